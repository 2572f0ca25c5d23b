//! Opens the remote that a URL names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bucket::{self, Service};
use super::bundle::Bundle;
use super::{Objects, Options, Prune};
use crate::error::{Error, Result};

/// Opens `url`: a path, `file:///path`, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`,
/// `bundle:path`, or `memory:`, which is new and empty every time. A path to a bundle opens the bundle. Sends no
/// request to a bucket yet.
///
/// # Errors
/// Not found, when a directory is missing and must not be created; invalid input, when the scheme is unknown, the URL
/// holds credentials, a setting is invalid, or what is there is neither a directory nor a bundle.
pub fn open(url: &str, options: &Options) -> Result<Arc<dyn Prune>> {
    match scheme(url) {
        None => open_directory(Path::new(url), options),
        Some(("file", rest)) => open_directory(&file_path(url, rest)?, options),
        Some(("bundle", path)) => Ok(Arc::new(Bundle::open(Path::new(path), options.create)?)),
        Some(("memory", "")) => Ok(Arc::new(Objects::memory())),
        Some((scheme, rest)) => match Service::of(scheme) {
            Some(service) => {
                let bucket = bucket::open(service, scheme, rest, options)?;
                let objects = Objects::bucket(&bucket.url, bucket.store)?;
                Ok(Arc::new(objects.with_settings(options, bucket.alive)))
            }
            None => Err(unknown(scheme, rest)),
        },
    }
}

/// Whether `url` names a bucket that has a setting called `name`.
pub fn takes(url: &str, name: &str) -> bool {
    scheme(url)
        .and_then(|(scheme, _)| Service::of(scheme))
        .is_some_and(|service| service.takes(name))
}

/// Returns the error without repeating what may be credentials.
fn unknown(scheme: &str, rest: &str) -> Error {
    let rest = match rest.contains(['@', '?']) {
        true => "...",
        false => rest,
    };
    let small = scheme.to_ascii_lowercase();
    let error = Error::invalid(format!("store {scheme}:{rest}: unknown kind of store"));
    if small != scheme && (small == "file" || Service::of(&small).is_some()) {
        return error.hint(format!("write it in small letters, as {small}:{rest}"));
    }
    error.hint("name a directory, as a path or as file:///path, a bundle, as bundle:path, or a bucket: s3://, gs:// or az://")
}

fn open_directory(path: &Path, options: &Options) -> Result<Arc<dyn Prune>> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => return Ok(Arc::new(Bundle::open(path, false)?)),
        Ok(found) if !found.is_dir() => {
            return Err(Error::invalid(format!(
                "{}: expected the directory of a store or a bundle, found a pipe, a socket or a device",
                path.display()
            ))
            .hint("name a directory, as a path or as file:///path, or a bundle"));
        }
        _ => {}
    }
    let objects = if options.create {
        Objects::directory(path)
    } else {
        Objects::existing_directory(path)
    };
    Ok(Arc::new(objects?))
}

/// Splits `scheme:rest`. A path with a colon must be absolute or written as `./a:b`.
fn scheme(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let letters = scheme
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    (letters && scheme.starts_with(|first: char| first.is_ascii_alphabetic()))
        .then_some((scheme, rest))
}

fn file_path(url: &str, rest: &str) -> Result<PathBuf> {
    let bad = || {
        // What stands before an `@` may be a password.
        let shown = if url.contains('@') { "file:..." } else { url };
        Error::invalid(format!(
            "{shown}: expected file:///path with an absolute path"
        ))
    };
    let path = rest.strip_prefix("//").ok_or_else(bad)?;
    let path = path.strip_prefix("localhost").unwrap_or(path);
    if !path.starts_with('/') {
        return Err(bad());
    }
    percent_decoded(path).map(PathBuf::from).ok_or_else(bad)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>()?;
        let digits = std::str::from_utf8(digits)
            .ok()
            .filter(|digits| !digits.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn create() -> Options {
        Options {
            create: true,
            ..Options::default()
        }
    }

    #[test]
    fn a_directory_opens_by_path_and_by_url_and_is_made_on_request_only() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().canonicalize().unwrap().join("a b/store");
        let url = format!("file://{}", path.display()).replace(' ', "%20");
        for name in [path.to_str().unwrap(), &url] {
            let error = open(name, &Options::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
        }
        let made = open(&url, &create()).unwrap();
        assert_eq!(made.url(), format!("file://{}", path.display()));
        open(path.to_str().unwrap(), &Options::default()).unwrap();
    }

    #[test]
    fn a_file_is_no_store() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "somebody's notes").unwrap();
        for options in [Options::default(), create()] {
            let error = open(file.path().to_str().unwrap(), &options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
            let error = open("/dev/null", &options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
        }
    }

    #[test]
    fn urls_that_name_nothing_are_refused() {
        for (url, kind) in [
            ("ftp://host/x", ErrorKind::InvalidInput),
            ("file://relative/x", ErrorKind::InvalidInput),
            ("file:///bad%zz", ErrorKind::InvalidInput),
            ("file:///bad%+1", ErrorKind::InvalidInput),
            ("memory:x", ErrorKind::InvalidInput),
        ] {
            assert_eq!(
                open(url, &Options::default()).unwrap_err().kind(),
                kind,
                "{url}"
            );
        }
    }

    #[test]
    fn memory_is_new_every_time() {
        let first = open("memory:", &Options::default()).unwrap();
        first.put("a", bytes::Bytes::new()).unwrap();
        assert!(
            open("memory:", &Options::default())
                .unwrap()
                .list("")
                .unwrap()
                .is_empty()
        );
    }
}
