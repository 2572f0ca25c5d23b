//! Endpoints that ignore put-if-absent: how to recognize them, and how to use them nevertheless.
//!
//! [`keeps_first`] tests an endpoint. [`SingleWriter`] checks for the object before it creates it and reads it back
//! afterwards, which is correct only as long as one process writes at a time.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::{Created, ObjectInfo, Prune, Read, Upload, Write};
use crate::error::{Error, ErrorKind, Result};
use crate::id::CommitId;
use crate::remedy::Remedy;

/// Prefix of the objects for this test.
const TRIAL_PREFIX: &str = "trial";

/// Whether put-if-absent keeps an existing object. Tests this with an object that is deleted afterwards.
///
/// # Errors
/// Unavailable, when the first create fails, or the object cannot be read or deleted.
pub fn keeps_first(remote: &dyn Prune) -> Result<bool> {
    let key = format!("{TRIAL_PREFIX}/{}", CommitId::random()?);
    let (first, second) = (Bytes::from_static(b"first"), Bytes::from_static(b"second"));
    let tried = remote.create(&key, first.clone()).and_then(|created| {
        // A create whose answer was lost is retried, and finds its own object.
        if created == Created::Exists && !holds(remote, &key, &first)? {
            return Err(Error::unavailable(format!(
                "{key}: {} says that an object exists whose name is new",
                remote.url()
            )));
        }
        let again = remote.create(&key, second)?;
        Ok(again == Created::Exists && remote.get(&key)? == first)
    });
    // The first error counts; an object that remains takes a few bytes and is never read.
    let deleted = remote.delete(std::slice::from_ref(&key));
    let kept = match tried {
        // The endpoint itself reports that it does not support put-if-absent.
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(false),
        tried => tried?,
    };
    deleted.map(|()| kept)
}

fn holds(remote: &dyn Prune, key: &str, bytes: &Bytes) -> Result<bool> {
    match remote.get(key) {
        Ok(found) => Ok(found == bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates with put-if-absent if the endpoint supports it, otherwise with a plain put.
fn create_or_put(remote: &dyn Write, key: &str, bytes: Bytes) -> Result<Created> {
    match remote.create(key, bytes.clone()) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            remote.put(key, bytes).map(|()| Created::Created)
        }
        created => created,
    }
}

/// Returns the error for creating a store where put-if-absent overwrites.
pub fn overwrites(url: &str) -> Error {
    Error::unsupported(format!(
        "{url}: the endpoint overwrites an object that it is asked to create only if it is absent"
    ))
    .hint(Remedy::SingleWriter)
}

/// Objects at such an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct SingleWriter(pub(crate) Arc<dyn Write>);

#[deny(clippy::missing_trait_methods)]
impl Read for SingleWriter {
    fn url(&self) -> String {
        self.0.url()
    }

    fn get(&self, key: &str) -> Result<Bytes> {
        self.0.get(key)
    }

    fn get_run(&self, keys: &[String]) -> Result<Vec<Bytes>> {
        self.0.get_run(keys)
    }

    fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.0.get_ranges(key, ranges)
    }

    fn size(&self, key: &str) -> Result<u64> {
        self.0.size(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.0.list(prefix)
    }

    fn keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>> {
        self.0.keys_after(prefix, after)
    }

    fn local_path(&self, key: &str) -> Option<PathBuf> {
        self.0.local_path(key)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Write for SingleWriter {
    /// If another writer wrote in between, returns `Exists`, provided that its object is read back.
    fn create(&self, key: &str, bytes: Bytes) -> Result<Created> {
        match self.0.size(key) {
            Ok(_) => return Ok(Created::Exists),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match create_or_put(self.0.as_ref(), key, bytes.clone())? {
            Created::Created if self.0.get(key)? == bytes => Ok(Created::Created),
            _ => Ok(Created::Exists),
        }
    }

    fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.0.put(key, bytes)
    }

    fn touch(&self, key: &str) -> Result<()> {
        self.0.touch(key)
    }

    fn give_up(&self, key: &str) -> Result<()> {
        self.0.give_up(key)
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload>> {
        self.0.upload(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::Objects;
    use crate::remote::testing::faulty::{Faults, Faulty};
    use crate::remote::testing::overwriting::Overwriting;

    #[test]
    fn the_trial_tells_endpoints_apart_and_leaves_nothing() {
        for (remote, kept) in [
            (Arc::new(Objects::memory()) as Arc<dyn Prune>, true),
            (Arc::new(Overwriting(Objects::memory())), false),
        ] {
            assert_eq!(keeps_first(remote.as_ref()).unwrap(), kept);
            assert!(remote.list("").unwrap().is_empty());
        }
    }

    #[test]
    fn the_trial_outlives_answers_that_are_lost() {
        for lost in [1, 2] {
            let faults = Faults {
                retold: 1000,
                only_at: Some(lost),
                ..Faults::default()
            };
            let remote = Faulty::new(Arc::new(Objects::memory()), faults);
            assert!(keeps_first(&remote).unwrap(), "{lost}");
            assert_eq!(remote.counts().faults, 1, "{lost}");
            assert!(remote.list("").unwrap().is_empty());
        }
    }

    #[test]
    fn one_writer_after_the_other_is_right_where_creates_overwrite() {
        let remote = SingleWriter(Arc::new(Overwriting(Objects::memory())));
        let create = |text: &'static str| remote.create("log/1", text.into()).unwrap();
        assert_eq!(create("first"), Created::Created);
        assert_eq!(create("second"), Created::Exists);
        assert_eq!(remote.get("log/1").unwrap(), "first");
    }
}
