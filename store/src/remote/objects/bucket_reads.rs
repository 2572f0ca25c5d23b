//! Reads and listings of a bucket: many keys or ranges at once, with retries when an answer breaks off.

use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::{Objects, exact, object_info};
use crate::error::{Error, ErrorKind, Result};
use crate::format::bytes_max;
use crate::remedy::Remedy;
use crate::remote::bucket::{NO_STORE, retry};
use crate::remote::failure::{LIST, READ};
use crate::remote::key::object_path;
use crate::remote::{ObjectInfo, Read};

/// Returns all bytes of an object; if it is larger than allowed for its key, returns its length without reading it.
async fn bounded(
    store: &dyn ObjectStore,
    path: &Path,
) -> object_store::Result<std::result::Result<Bytes, u64>> {
    let found = store.get(path).await?;
    match found.meta.size {
        size if size > bytes_max(path.as_ref()) => Ok(Err(size)),
        _ => found.bytes().await.map(Ok),
    }
}

impl Objects {
    pub(super) fn bucket_get(&self, key: &str, path: &Path) -> Result<Bytes> {
        let begun = Instant::now();
        self.ask(|| bounded(self.store.as_ref(), path))
            .map_err(|error| self.failed(key, READ)(error).given_up(self.is_over(begun)))?
            .map_err(|size| self.too_large(key, size))
            .and_then(|bytes| self.no_page(key, bytes))
    }

    /// Refuses an HTML page: a proxy that asks for a login answers everything with one, and no object begins like that.
    fn no_page(&self, key: &str, bytes: Bytes) -> Result<Bytes> {
        let begins = |with: &[u8]| {
            let head = bytes.trim_ascii_start().get(..with.len());
            head.is_some_and(|head| head.eq_ignore_ascii_case(with))
        };
        if !begins(b"<!doctype") && !begins(b"<html") {
            return Ok(bytes);
        }
        let what = format!(
            "{key}: expected an object of a store in {}, found a page of HTML",
            self.url
        );
        Err(Error::unavailable(what).hint(NO_STORE))
    }

    fn too_large(&self, key: &str, size: u64) -> Error {
        let most = bytes_max(key);
        let what = format!(
            "{key}: expected at most {most} bytes in {}, found {size}",
            self.url
        );
        Error::corrupt(what).hint(Remedy::VerifyThenRepair)
    }

    pub(super) fn bucket_run(&self, keys: &[String]) -> Result<Vec<Bytes>> {
        let paths: Vec<_> = keys
            .iter()
            .map(|key| object_path(key))
            .collect::<Result<_>>()?;
        let gets = paths
            .iter()
            .map(|path| retry(self.deadline, || bounded(self.store.as_ref(), path)));
        let all = async { Ok(futures_util::future::join_all(gets).await) };
        let named = keys.first().map_or("", String::as_str);
        let answers = self.on(all).map_err(self.failed(named, READ))?;
        let mut found = Vec::new();
        for (answer, key) in answers.into_iter().zip(keys) {
            match answer {
                Ok(Ok(bytes)) => found.push(self.no_page(key, bytes)?),
                Ok(Err(size)) => return Err(self.too_large(key, size)),
                Err(object_store::Error::NotFound { .. }) => break,
                Err(error) => return Err(self.failed(key, READ)(error)),
            }
        }
        Ok(found)
    }

    pub(super) fn bucket_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let path = object_path(key)?;
        let asked: Vec<_> = ranges
            .iter()
            .filter(|range| !range.is_empty())
            .cloned()
            .collect();
        if asked.is_empty() {
            self.size(key)?;
        }
        let error = match self.ask(|| self.store.get_ranges(&path, &asked)) {
            Ok(got) => {
                let mut got = got.into_iter();
                let whole: Option<_> = ranges.iter().map(|range| exact(range, &mut got)).collect();
                match whole {
                    Some(whole) => return Ok(whole),
                    None => {
                        Error::unavailable(format!("{key}: bytes from {} are incomplete", self.url))
                    }
                }
            }
            Err(error) => self.failed(key, READ)(error),
        };
        // An error with a remedy has a cause other than the length.
        if error.remedy().is_some() || error.kind() == ErrorKind::NotFound {
            return Err(error);
        }
        let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
        match self.size(key) {
            Ok(size) if end > size => Err(self.short(key, end, size)),
            _ => Err(error),
        }
    }

    pub(super) fn bucket_list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        let path = (!prefix.is_empty())
            .then(|| object_path(prefix))
            .transpose()?;
        let ask = || self.store.list(path.as_ref()).try_collect::<Vec<_>>();
        let listed = self.ask(ask).map_err(self.failed(prefix, LIST))?;
        listed.into_iter().map(object_info).collect()
    }

    pub(super) fn bucket_keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>> {
        let below = object_path(prefix)?;
        let after = object_path(after)?;
        let ask = || {
            let listed = self.store.list_with_offset(Some(&below), &after);
            listed.try_collect::<Vec<_>>()
        };
        let listed = self.ask(ask).map_err(self.failed(prefix, LIST))?;
        Ok(listed
            .into_iter()
            .map(|meta| meta.location.to_string())
            .collect())
    }
}
