//! Objects: implements the three capabilities for any backend of object_store.
//!
//! For a local directory, `directory` is used where object_store lacks something or is slower.

mod bucket_reads;
mod upload;

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use jiff::Timestamp;
use object_store::Result as AskResult;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions};

use self::upload::{NamedUpload, SharedUpload};
use super::abandoned::abandoned;
use super::bucket::{
    Alive, Parts, PartsMax, Unconditional, bucket_failure, by_status, is_conflict,
    is_without_credentials, retry,
};
use super::directory::{Directory, Ranges};
use super::failure::{DELETE, LIST, READ, WRITE, failure, in_chain, io_failure};
use super::key::{check_key, check_prefix, is_staged, object_path, staged_for};
use super::wait::Wait;
use super::{
    Created, ObjectInfo, Options, Prune, Read, Settings, Upload, Write, one_by_one, overwrites,
};
use crate::error::{Error, ErrorKind, Result};
use crate::format::is_of_reserve;

/// How long touching an unimportant object may take.
const TOUCH_MAX: Duration = Duration::from_secs(1);

/// The objects at one address. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Objects {
    url: Arc<str>,
    store: Arc<dyn ObjectStore>,
    directory: Option<Arc<Directory>>,
    wait: Wait,
    settings: Settings,
    parts_max: PartsMax,
    /// The limit for retries.
    deadline: Duration,
    alive: Alive,
    /// Why no credentials were found, if known.
    no_credentials: Option<String>,
}

impl Objects {
    /// An empty remote in the memory of this process.
    pub fn memory() -> Self {
        Self {
            url: "memory:".into(),
            store: Arc::new(InMemory::new()),
            directory: None,
            wait: Wait::Here,
            settings: Settings::default(),
            parts_max: PartsMax::default(),
            deadline: Duration::MAX,
            alive: Alive::default(),
            no_credentials: None,
        }
    }

    /// Opens a local directory, and creates it if it is missing.
    ///
    /// # Errors
    /// When it cannot be created; invalid input, when its path is not UTF-8.
    pub fn directory(path: &Path) -> Result<Self> {
        Self::over_directory(
            Directory::make(path).map_err(|error| Error::io("make the directory", path, error))?,
        )
    }

    /// Opens an existing local directory.
    ///
    /// # Errors
    /// Not found, when it does not exist; invalid input, when its path is not UTF-8.
    pub fn existing_directory(path: &Path) -> Result<Self> {
        Self::over_directory(
            Directory::existing(path)
                .map_err(|error| Error::io("open the directory", path, error))?,
        )
    }

    fn over_directory(directory: Directory) -> Result<Self> {
        let Some(root) = directory.root().to_str() else {
            return Err(Error::invalid(format!("{}: the path of a store must be UTF-8", directory.root().display()))
                .hint("name another directory, or a symbolic link that leads there from a directory of plain name"));
        };
        let url = format!("file://{root}").into();
        let store = LocalFileSystem::new_with_prefix(root)
            .map_err(|error| failure(".", READ, root, true, error))?
            .with_fsync(true);
        Ok(Self {
            url,
            store: Arc::new(store),
            directory: Some(Arc::new(directory)),
            ..Self::memory()
        })
    }

    /// Opens a backend across a network, driven by the shared runtime. `url` names it and holds no credentials.
    ///
    /// # Errors
    /// When the runtime's threads cannot be started.
    pub fn bucket(url: &str, store: Arc<dyn ObjectStore>) -> Result<Self> {
        Ok(Self {
            url: url.into(),
            store,
            wait: Wait::shared()?,
            ..Self::memory()
        })
    }

    /// Applies options: settings to redact in errors, deadline, and memory for parts in flight.
    #[must_use]
    pub(super) fn with_settings(mut self, options: &Options, alive: Alive) -> Self {
        self.alive = alive;
        self.no_credentials.clone_from(&options.no_credentials);
        self.settings = options.settings.clone();
        self.deadline = options.deadline;
        self.parts_max = PartsMax::of_bytes(options.upload_bytes);
        self
    }

    /// Sends a request, and repeats it when the answer breaks off.
    fn ask<T, F: Future<Output = AskResult<T>>>(&self, ask: impl Fn() -> F) -> AskResult<T> {
        self.on(retry(self.deadline, ask))
    }

    /// Waits for `future`. After a request to stop, does not wait for a silent bucket.
    fn on<T, F: Future<Output = AskResult<T>>>(&self, future: F) -> AskResult<T> {
        match self.wait {
            Wait::Here => self.wait.on(future),
            Wait::Shared(_) => self.wait.on(self.alive.watch(future)),
        }
    }

    fn failed(&self, key: &str, doing: &str) -> impl Fn(object_store::Error) -> Error {
        let local = self.directory.is_some();
        move |source| match &self.wait {
            Wait::Here => failure(key, doing, &self.url, local, source),
            Wait::Shared(_) => {
                let error = bucket_failure(key, doing, &self.url, &self.settings, &source);
                match &self.no_credentials {
                    Some(why) if is_without_credentials(&error) => error.hint(why.clone()),
                    _ => error,
                }
            }
        }
    }

    /// Whether the deadline has passed since `begun`, so that nobody should retry.
    fn is_over(&self, begun: Instant) -> bool {
        begun.elapsed() >= self.deadline
    }

    /// Handles a conflict. S3 may answer 409 to one of two simultaneous conditional puts even if neither creates the
    /// object.
    fn found(&self, key: &str, source: &object_store::Error) -> Result<Created> {
        if is_conflict(source) {
            self.size(key).map_err(|error| match error.kind() {
                ErrorKind::NotFound => Error::unavailable(format!(
                    "{key}: {} did another request for it at the same time",
                    self.url
                ))
                .hint("run it again: that is safe"),
                _ => error,
            })?;
        }
        Ok(Created::Exists)
    }

    fn io_failed(&self, key: &str, doing: &str) -> impl Fn(std::io::Error) -> Error {
        move |source| io_failure(key, doing, &self.url, source)
    }

    fn short(&self, key: &str, end: u64, size: u64) -> Error {
        Error::corrupt(format!(
            "{key}: ends too early in {}, expected at least {end} bytes, found {size}",
            self.url
        ))
    }

    /// Puts with `mode`. In a directory, makes the parents durable first.
    fn put_as(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<object_store::Result<()>> {
        let path = object_path(key)?;
        if let Some(directory) = &self.directory {
            let staged = directory.ready(key).and_then(|()| directory.stage(key));
            if let Some(staged) = staged.map_err(self.io_failed(key, WRITE))? {
                return self.put_staged(key, staged, &bytes, &mode);
            }
        }
        let options = PutOptions {
            mode,
            ..PutOptions::default()
        };
        let put = || {
            self.store
                .put_opts(&path, bytes.clone().into(), options.clone())
        };
        let done = self.ask(put).map(drop);
        if let (Some(directory), Ok(())) = (&self.directory, &done) {
            let checked = directory.check_root().and_then(|()| directory.judge(key));
            checked.map_err(self.io_failed(key, WRITE))?;
        }
        Ok(done)
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Objects").field(&self.url).finish()
    }
}

impl Read for Objects {
    fn url(&self) -> String {
        self.url.to_string()
    }

    fn get(&self, key: &str) -> Result<Bytes> {
        let path = object_path(key)?;
        match &self.directory {
            Some(directory) => directory.read(key).map_err(self.io_failed(key, READ)),
            None => self.bucket_get(key, &path),
        }
    }

    fn get_run(&self, keys: &[String]) -> Result<Vec<Bytes>> {
        match &self.directory {
            Some(_) => one_by_one(self, keys),
            None => self.bucket_run(keys),
        }
    }

    fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        check_key(key)?;
        let Some(directory) = &self.directory else {
            return self.bucket_ranges(key, ranges);
        };
        match directory
            .read_ranges(key, ranges)
            .map_err(self.io_failed(key, READ))?
        {
            Ranges::Whole(bytes) => Ok(bytes),
            Ranges::Short(size) => {
                let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
                Err(self.short(key, end, size))
            }
        }
    }

    fn size(&self, key: &str) -> Result<u64> {
        let path = object_path(key)?;
        match &self.directory {
            Some(directory) => directory.size(key).map_err(self.io_failed(key, READ)),
            None => {
                let begun = Instant::now();
                let head = self.ask(|| self.store.head(&path));
                head.map(|meta| meta.size)
                    .map_err(|error| self.failed(key, READ)(error).given_up(self.is_over(begun)))
            }
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        let prefix = check_prefix(prefix)?;
        let mut found = match &self.directory {
            Some(directory) => {
                let wanted = |key: &str| check_key(key).is_ok();
                directory
                    .list(prefix, wanted)
                    .map_err(self.io_failed(prefix, LIST))?
            }
            None => self.bucket_list(prefix)?,
        };
        found.sort_unstable_by(|left, right| left.key.cmp(&right.key));
        Ok(found)
    }

    fn keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>> {
        let prefix = check_prefix(prefix)?;
        let mut found = match &self.directory {
            Some(directory) => directory
                .keys_after(prefix, after)
                .map_err(self.io_failed(prefix, LIST))?,
            None => self.bucket_keys_after(prefix, after)?,
        };
        found.retain(|key| check_key(key).is_ok());
        found.sort_unstable();
        Ok(found)
    }

    fn local_path(&self, key: &str) -> Option<PathBuf> {
        check_key(key).ok()?;
        self.directory.as_ref()?.local_path(key)
    }
}

impl Write for Objects {
    fn create(&self, key: &str, bytes: Bytes) -> Result<Created> {
        check_key(key)?;
        if let Some(directory) = &self.directory
            && directory.exists(key)
        {
            // Nothing is staged, so that even on a full disk the object is reported to exist.
            directory
                .ready(key)
                .and_then(|()| directory.settle(key))
                .map_err(self.io_failed(key, WRITE))?;
            return Ok(Created::Exists);
        }
        let begun = Instant::now();
        match self.put_as(key, bytes, PutMode::Create)? {
            Ok(()) => Ok(Created::Created),
            Err(
                found @ (object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. }),
            ) => match &self.directory {
                Some(directory) => {
                    directory.settle(key).map_err(self.io_failed(key, WRITE))?;
                    Ok(Created::Exists)
                }
                None => self.found(key, &found),
            },
            Err(error) if in_chain::<Unconditional>(&error).is_some() => {
                Err(overwrites(&self.url).because(error))
            }
            Err(error) => Err(self.failed(key, WRITE)(error).given_up(self.is_over(begun))),
        }
    }

    fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        check_key(key)?;
        self.put_as(key, bytes, PutMode::Overwrite)?
            .map_err(self.failed(key, WRITE))
    }

    fn touch(&self, key: &str) -> Result<()> {
        let path = object_path(key)?;
        if let Some(directory) = &self.directory {
            return directory.touch(key).map_err(self.io_failed(key, WRITE));
        }
        let put = self
            .store
            .put_opts(&path, Bytes::new().into(), PutMode::Create.into());
        let put = async { put.await.map_err(by_status) };
        match self.wait.on_within(TOUCH_MAX, put) {
            Some(Err(error)) if in_chain::<Unconditional>(&error).is_some() => {
                self.put(key, Bytes::new())
            }
            Some(Ok(_)) => Ok(()),
            Some(Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            )) => Ok(()),
            Some(Err(error)) => Err(self.failed(key, WRITE)(error)),
            None => Err(Error::unavailable(format!(
                "{key}: {} took longer than {TOUCH_MAX:?}",
                self.url
            ))),
        }
    }

    fn give_up(&self, key: &str) -> Result<()> {
        if !is_of_reserve(key) {
            return Err(Error::invalid(format!("{key}: is no piece of the reserve")));
        }
        self.delete(&[key.to_owned()])
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload>> {
        let path = object_path(key)?;
        if let Some(directory) = &self.directory {
            directory.ready(key).map_err(self.io_failed(key, WRITE))?;
            if directory.is_shared() {
                let upload = SharedUpload::new(Arc::clone(directory), self.clone(), key);
                return Ok(Box::new(upload));
            }
        }
        let parts = Parts::new(
            Arc::clone(&self.store),
            self.wait.clone(),
            self.alive.clone(),
            path,
            self.parts_max.clone(),
        );
        Ok(Box::new(NamedUpload {
            parts,
            objects: self.clone(),
            key: key.to_owned(),
        }))
    }
}

impl Prune for Objects {
    fn delete(&self, keys: &[String]) -> Result<()> {
        let named = keys.first().map_or("", String::as_str);
        if let Some(directory) = &self.directory {
            keys.iter()
                .try_for_each(|key| check_key(staged_for(key).unwrap_or(key)))?;
            return directory
                .delete(keys)
                .map_err(self.io_failed(named, DELETE));
        }
        let paths: Vec<_> = keys
            .iter()
            .map(|key| object_path(key))
            .collect::<Result<_>>()?;
        let delete = || async {
            let paths = futures_util::stream::iter(paths.clone().into_iter().map(Ok));
            let mut deleted = self.store.delete_stream(paths.boxed());
            while let Some(result) = deleted.next().await {
                match result.map_err(by_status) {
                    Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        self.ask(delete).map_err(self.failed(named, DELETE))
    }

    /// Buckets show unfinished uploads only to their owner's tools, and have lifecycle rules for them.
    fn stale_uploads(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        let prefix = check_prefix(prefix)?;
        let Some(directory) = &self.directory else {
            return Ok(Vec::new());
        };
        directory
            .list(prefix, is_staged)
            .map_err(self.io_failed(prefix, LIST))
    }

    fn abandoned(&self, uploads: &[ObjectInfo]) -> HashSet<String> {
        let Some(directory) = &self.directory else {
            return HashSet::new();
        };
        let paths = uploads.iter().map(|upload| directory.path(&upload.key));
        let dead: HashSet<PathBuf> = abandoned(paths.collect()).into_iter().collect();
        let is_dead = |upload: &&ObjectInfo| dead.contains(&directory.path(&upload.key));
        let uploads = uploads.iter().filter(is_dead);
        uploads.map(|upload| upload.key.clone()).collect()
    }
}

/// Returns the next of `got` if it has the length of `range`; an empty range takes none.
fn exact(range: &Range<u64>, got: &mut impl Iterator<Item = Bytes>) -> Option<Bytes> {
    if range.is_empty() {
        return Some(Bytes::new());
    }
    got.next()
        .filter(|bytes| bytes.len() as u64 == range.end - range.start)
}

fn object_info(meta: ObjectMeta) -> Result<ObjectInfo> {
    let nanos = i32::try_from(meta.last_modified.timestamp_subsec_nanos()).unwrap_or(0);
    let modified = Timestamp::new(meta.last_modified.timestamp(), nanos).map_err(|error| {
        Error::corrupt(format!("{}: impossible time of change", meta.location)).because(error)
    })?;
    Ok(ObjectInfo {
        key: meta.location.into(),
        size: meta.size,
        modified,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{FORMAT_KEY, bytes_max};
    use crate::remote::testing::conformance::conformance;
    use crate::remote::testing::faulty::{Faults, Faulty};

    fn directory() -> (tempfile::TempDir, Objects) {
        let temp = tempfile::tempdir().unwrap();
        let objects = Objects::directory(&temp.path().join("new/parents/a b#1/store")).unwrap();
        (temp, objects)
    }

    #[test]
    fn memory_conforms() {
        conformance(&Objects::memory()).unwrap();
    }

    #[test]
    fn a_directory_conforms() {
        conformance(&directory().1).unwrap();
    }

    #[test]
    fn a_backend_on_the_shared_runtime_conforms() {
        conformance(&Objects::bucket("memory:", Arc::new(InMemory::new())).unwrap()).unwrap();
    }

    #[test]
    fn a_wrapper_without_faults_conforms() {
        conformance(&Faulty::new(Arc::new(directory().1), Faults::default())).unwrap();
    }

    #[test]
    fn what_is_larger_than_its_key_allows_is_not_read() {
        let objects = Objects::memory();
        let most = usize::try_from(bytes_max(FORMAT_KEY)).unwrap();
        objects.put(FORMAT_KEY, vec![0; most].into()).unwrap();
        assert_eq!(objects.get(FORMAT_KEY).unwrap().len(), most);
        objects.put(FORMAT_KEY, vec![0; most + 1].into()).unwrap();
        let error = objects.get(FORMAT_KEY).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    }

    #[test]
    fn messages_name_the_key_and_the_place() {
        let (_temp, objects) = directory();
        let error = objects.get("packs/x").unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("packs/x: cannot read from {}", objects.url())
        );
        objects.put("packs/x", Bytes::from_static(b"abc")).unwrap();
        let error = objects.get_ranges("packs/x", &[1..2, 2..9]).unwrap_err();
        let place = objects.url();
        assert_eq!(
            error.to_string(),
            format!("packs/x: ends too early in {place}, expected at least 9 bytes, found 3")
        );
    }

    #[test]
    fn what_killed_writers_left_is_hidden_found_and_deleted() {
        let (_temp, objects) = directory();
        objects
            .put("packs/ab/x", Bytes::from_static(b"abc"))
            .unwrap();
        let staged = objects
            .local_path("packs/ab/x")
            .unwrap()
            .with_file_name("y#1");
        std::fs::write(&staged, b"half").unwrap();
        let keys: Vec<_> = objects
            .list("")
            .unwrap()
            .into_iter()
            .map(|info| info.key)
            .collect();
        assert_eq!(keys, ["packs/ab/x"]);
        assert!(objects.stale_uploads("segments").unwrap().is_empty());
        let stale = objects.stale_uploads("packs").unwrap();
        assert_eq!(
            stale
                .iter()
                .map(|info| (info.key.as_str(), info.size))
                .collect::<Vec<_>>(),
            [("packs/ab/y#1", 4)]
        );
        objects.delete(&[stale[0].key.clone()]).unwrap();
        assert!(!staged.exists());
    }

    /// One may be closed to this user, so none is looked into.
    #[test]
    fn a_directory_that_has_no_name_yet_holds_nothing() {
        let (_temp, objects) = directory();
        objects
            .put("packs/ab/x", Bytes::from_static(b"abc"))
            .unwrap();
        let packs = objects.local_path("packs").unwrap();
        std::fs::create_dir(packs.join("cd#1")).unwrap();
        std::fs::write(packs.join("cd#1/y"), b"half").unwrap();
        let keys = objects.list("").unwrap().into_iter().map(|info| info.key);
        assert_eq!(keys.collect::<Vec<_>>(), ["packs/ab/x"]);
        assert_eq!(objects.keys_after("packs", "").unwrap(), ["packs/ab/x"]);
    }

    #[test]
    fn a_path_that_is_not_utf8_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
        assert_eq!(
            Objects::directory(&path).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }

    #[test]
    fn a_local_object_can_be_mapped_and_a_remote_one_cannot() {
        let (_temp, objects) = directory();
        objects.put("a/b", Bytes::from_static(b"abc")).unwrap();
        assert_eq!(
            std::fs::read(objects.local_path("a/b").unwrap()).unwrap(),
            b"abc"
        );
        assert_eq!(objects.local_path("../b"), None);
        assert_eq!(Objects::memory().local_path("a/b"), None);
    }
}
