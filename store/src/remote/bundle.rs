//! A store in one file, which can be carried to where there is no network. `format/bundle` defines its layout.
//!
//! The file is only appended to. An object is written after the last one and synced; then the end record is rewritten
//! and synced. So the file is valid after a crash at any moment, and a truncated copy is recognized. Only one process
//! can write at a time.

mod file;

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};

use self::file::{append_file, begins_as_one, make, read_up_to};
use super::key::{check_key, check_prefix};
use super::{Created, ObjectInfo, Prune, Read, Upload, Write, one_by_one};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    BUNDLE_ENDS, BUNDLE_HEAD_BYTES, BUNDLE_RECORDS, BundleEnd, BundleKind, BundleRecord, bytes_max,
    decode_bundle_start, is_of_reserve,
};

/// A store in one file.
#[derive(Clone, Debug)]
pub(super) struct Bundle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    url: String,
    file: File,
    /// The file that was made when this was opened. A server may give it to another user than the caller.
    made: Option<(u64, u64)>,
    is_writable: bool,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    objects: BTreeMap<String, Place>,
    end: BundleEnd,
    is_locked: bool,
}

/// The position of an object's bytes.
#[derive(Clone, Copy, Debug)]
struct Place {
    begin: u64,
    bytes: u64,
    modified: Timestamp,
}

impl Bundle {
    /// Opens the bundle at `path`. If `create` is set and there is no file, makes an empty bundle.
    ///
    /// # Errors
    /// Not found, when there is no file; invalid input, when it is no bundle; corrupt, when it is damaged or truncated.
    pub(super) fn open(path: &Path, create: bool) -> Result<Self> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::IsADirectory | io::ErrorKind::InvalidData => Error::invalid(format!(
                "{}: expected a bundle, which is a file",
                path.display()
            ))
            .because(source),
            _ => Error::io("open the bundle", path, source),
        };
        let absolute = std::path::absolute(path).map_err(failed)?;
        let is_nothing = |found: Metadata| found.is_file() && found.len() == 0;
        let mut made = None;
        if create && std::fs::symlink_metadata(&absolute).map_or(true, is_nothing) {
            let file = make(&absolute);
            made = file.map_err(|source| Error::io("make the bundle", path, source))?;
        }
        let file = crate::fs::open_regular(&absolute).map_err(failed)?;
        let (file, is_writable) = match OpenOptions::new().read(true).write(true).open(&absolute) {
            Ok(writable) => (writable, true),
            // The bundle can be read; writing fails later.
            Err(_) => (file, false),
        };
        let bundle = Self(Arc::new(Shared {
            url: format!("bundle:{}", absolute.display()),
            path: absolute,
            file,
            made,
            is_writable,
            inner: Mutex::new(Inner {
                objects: BTreeMap::new(),
                end: BundleEnd {
                    number: 0,
                    bytes: BUNDLE_RECORDS,
                },
                is_locked: false,
            }),
        }));
        if !begins_as_one(&bundle.0.file).map_err(failed)? {
            let path = path.display();
            return Err(match create {
                true => Error::conflict(format!(
                    "{path}: there is a file already, and it is no bundle"
                ))
                .hint("name another file, or move this one away first; nothing overrides this"),
                false => Error::invalid(format!(
                    "{path}: expected a bundle or the directory of a store, found another file"
                ))
                .hint("name the file that refs were exported to, or the directory of a store"),
            });
        }
        bundle.follow(&mut bundle.inner(), bundle.end()?)?;
        Ok(bundle)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn io_failed(&self, doing: &str) -> impl Fn(io::Error) -> Error {
        move |source| Error::io(doing, &self.0.path, source)
    }

    fn corrupt(&self, what: &str) -> Error {
        Error::corrupt(format!("{}: {what}", self.0.url)).hint(ANEW)
    }

    /// Reads the heads of the records from the known end up to `end`.
    fn follow(&self, inner: &mut Inner, end: BundleEnd) -> Result<()> {
        let found = self.0.file.metadata().map_err(self.io_failed(READ))?.len();
        if found < end.bytes {
            let what = format!("cut short: expected {} bytes, found {found}", end.bytes);
            return Err(self.corrupt(&what));
        }
        while inner.end.bytes < end.bytes {
            let at = inner.end.bytes;
            let odd = |why: &str| self.corrupt(&format!("record at {at}: {why}"));
            let beyond = || odd("it ends behind the bundle");
            let read = |bytes: &mut [u8], at: u64| {
                if at.saturating_add(bytes.len() as u64) > end.bytes {
                    return Err(beyond());
                }
                let read = self.0.file.read_exact_at(bytes, at);
                read.map_err(self.io_failed(READ))
            };
            let mut head = [0; BUNDLE_HEAD_BYTES];
            read(&mut head, at)?;
            let mut key = vec![0; BundleRecord::key_bytes(&head)];
            let key_at = at + BUNDLE_HEAD_BYTES as u64;
            read(&mut key, key_at)?;
            let record =
                BundleRecord::decode(&head, &key).map_err(|error| odd(&error.to_string()))?;
            let begin = key_at + key.len() as u64;
            let behind = begin
                .checked_add(record.body_bytes)
                .filter(|behind| *behind <= end.bytes)
                .ok_or_else(beyond)?;
            inner.take(record, begin);
            inner.end.bytes = behind;
        }
        inner.end = end;
        Ok(())
    }

    /// Returns the place of an object. If the object is unknown, first reads what another process has added.
    fn place(&self, key: &str) -> Result<Place> {
        check_key(key)?;
        let mut inner = self.inner();
        if !inner.objects.contains_key(key) && !inner.is_locked {
            let end = self.end()?;
            if end.number > inner.end.number {
                self.follow(&mut inner, end)?;
            }
        }
        inner.objects.get(key).copied().ok_or_else(|| {
            Error::not_found(format!("{key}: there is no such object in {}", self.0.url))
        })
    }

    fn end(&self) -> Result<BundleEnd> {
        let mut start = vec![0; usize::try_from(BUNDLE_RECORDS).unwrap_or(0)];
        let read = read_up_to(&self.0.file, &mut start).map_err(self.io_failed(READ))?;
        decode_bundle_start(start.get(..read).unwrap_or_default()).map_err(|error| {
            match error.kind() {
                ErrorKind::Corrupt => error.within(&self.0.url).hint(ANEW),
                _ => error.within(&self.0.url),
            }
        })
    }

    /// Locks the file against other writers, as long as it is open.
    fn lock(&self, inner: &mut Inner) -> Result<()> {
        if inner.is_locked {
            return Ok(());
        }
        self.check_own()?;
        if !self.0.is_writable {
            let message = format!("{}: you may not write to it", self.0.url);
            return Err(Error::denied(message));
        }
        let locked = flock(&self.0.file, FlockOperation::NonBlockingLockExclusive);
        if locked == Err(rustix::io::Errno::WOULDBLOCK) {
            let message = format!("{}: another process is writing to it", self.0.url);
            return Err(Error::conflict(message).hint("wait until it has ended"));
        }
        locked.map_err(|source| self.io_failed("lock")(source.into()))?;
        let end = self.end()?;
        self.follow(inner, end)?;
        inner.is_locked = true;
        Ok(())
    }

    /// Fails when the file belongs to another user, who could read what is added to it.
    fn check_own(&self) -> Result<()> {
        let found = self.0.file.metadata().map_err(self.io_failed(READ))?;
        let user = rustix::process::geteuid().as_raw();
        if found.uid() == user || self.0.made == Some((found.dev(), found.ino())) {
            return Ok(());
        }
        Err(Error::denied(format!(
            "{}: belongs to user {}, expected user {user}, who runs this",
            self.0.url,
            found.uid()
        ))
        .hint("name another file: the owner of this one can read and change all that is written to it"))
    }

    /// Appends a record and `body`, durably.
    fn append(&self, inner: &mut Inner, record: BundleRecord, body: Body<'_>) -> Result<()> {
        let failed = self.io_failed(WRITE);
        let head = record.encode()?;
        let begin = inner.end.bytes + head.len() as u64;
        let file = &self.0.file;
        file.write_all_at(&head, inner.end.bytes).map_err(&failed)?;
        match body {
            Body::Bytes(bytes) => file.write_all_at(bytes, begin),
            Body::File(staged) => append_file(file, begin, staged),
        }
        .map_err(&failed)?;
        file.sync_data().map_err(&failed)?;
        let end = BundleEnd {
            number: inner.end.number + 1,
            bytes: begin + record.body_bytes,
        };
        let [even, odd] = BUNDLE_ENDS;
        let copies = match end.number.is_multiple_of(2) {
            true => even,
            false => odd,
        };
        for at in copies {
            file.write_all_at(&end.encode(), at).map_err(&failed)?;
        }
        file.sync_data().map_err(&failed)?;
        self.check_there(end)?;
        inner.take(record, begin);
        inner.end = end;
        Ok(())
    }

    /// Fails when the written file is no longer the one at the path, or has been truncated.
    fn check_there(&self, end: BundleEnd) -> Result<()> {
        let written = self.0.file.metadata().map_err(self.io_failed(WRITE))?;
        let same = std::fs::metadata(&self.0.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (written.dev(), written.ino()));
        if same && written.len() >= end.bytes {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "{}: somebody removed, replaced or cut it while it was written",
            self.0.url
        ))
        .hint("export again, to a file that nobody touches meanwhile"))
    }

    fn put_object(&self, inner: &mut Inner, key: &str, body: Body<'_>) -> Result<()> {
        self.lock(inner)?;
        let body_bytes = match &body {
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::File(staged) => staged.metadata().map_err(self.io_failed(READ))?.len(),
        };
        let record = BundleRecord {
            kind: BundleKind::Object,
            key: key.to_owned(),
            body_bytes,
            modified: now(),
        };
        self.append(inner, record, body)
    }
}

/// What helps against damage. An export never mends a file that exists.
const ANEW: &str = "copy the file again from where it was made, or export to a new file";
const READ: &str = "read the bundle";
const WRITE: &str = "write to the bundle";

/// The bytes of an object.
enum Body<'b> {
    Bytes(&'b [u8]),
    File(&'b mut File),
}

impl Inner {
    fn take(&mut self, record: BundleRecord, begin: u64) {
        let modified = i64::try_from(record.modified).unwrap_or(i64::MAX);
        let place = Place {
            begin,
            bytes: record.body_bytes,
            modified: Timestamp::from_millisecond(modified).unwrap_or(Timestamp::MAX),
        };
        match record.kind {
            BundleKind::Object => self.objects.insert(record.key, place),
            BundleKind::Removed => self.objects.remove(&record.key),
        };
    }
}

fn now() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
}

impl Read for Bundle {
    fn url(&self) -> String {
        self.0.url.clone()
    }

    fn get(&self, key: &str) -> Result<Bytes> {
        let size = self.size(key)?;
        if size > bytes_max(key) {
            let most = bytes_max(key);
            return Err(self.corrupt(&format!(
                "{key}: expected at most {most} bytes, found {size}"
            )));
        }
        let whole = self.get_ranges(key, std::slice::from_ref(&(0..size)))?;
        Ok(whole.into_iter().next().unwrap_or_default())
    }

    fn get_run(&self, keys: &[String]) -> Result<Vec<Bytes>> {
        one_by_one(self, keys)
    }

    fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let place = self.place(key)?;
        let read = |range: &Range<u64>| {
            if range.end > place.bytes || range.start > range.end {
                return Err(Error::corrupt(format!(
                    "{key}: ends too early in {}, expected at least {} bytes, found {}",
                    self.0.url, range.end, place.bytes
                )));
            }
            let len = usize::try_from(range.end - range.start)
                .map_err(|_| Error::invalid(format!("{key}: a range of 2^64 bytes")))?;
            let mut bytes = vec![0; len];
            (self.0.file)
                .read_exact_at(&mut bytes, place.begin + range.start)
                .map_err(self.io_failed(READ))?;
            Ok(Bytes::from(bytes))
        };
        ranges.iter().map(read).collect()
    }

    fn size(&self, key: &str) -> Result<u64> {
        self.place(key).map(|place| place.bytes)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        let prefix = check_prefix(prefix)?;
        let below = match prefix {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        let inner = self.inner();
        let found = inner.objects.range(below.clone()..);
        Ok(found
            .take_while(|(key, _)| key.starts_with(&below))
            .map(|(key, place)| ObjectInfo {
                key: key.clone(),
                size: place.bytes,
                modified: place.modified,
            })
            .collect())
    }

    fn keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>> {
        let listed = self.list(prefix)?.into_iter();
        Ok(listed
            .map(|info| info.key)
            .filter(|key| key.as_str() > after)
            .collect())
    }

    /// Objects are parts of a file and cannot be mapped by path.
    fn local_path(&self, _key: &str) -> Option<PathBuf> {
        None
    }
}

impl Write for Bundle {
    fn create(&self, key: &str, bytes: Bytes) -> Result<Created> {
        check_key(key)?;
        let mut inner = self.inner();
        self.lock(&mut inner)?;
        if inner.objects.contains_key(key) {
            return Ok(Created::Exists);
        }
        self.put_object(&mut inner, key, Body::Bytes(&bytes))?;
        Ok(Created::Created)
    }

    fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        check_key(key)?;
        self.put_object(&mut self.inner(), key, Body::Bytes(&bytes))
    }

    /// Works only while the bundle is open for writing: readers leave nothing in it.
    fn touch(&self, key: &str) -> Result<()> {
        check_key(key)?;
        let mut inner = self.inner();
        if inner.objects.contains_key(key) {
            return Ok(());
        }
        if !inner.is_locked {
            let message = format!("{key}: {} is only read", self.0.url);
            return Err(Error::unavailable(message));
        }
        self.put_object(&mut inner, key, Body::Bytes(&[]))
    }

    fn give_up(&self, key: &str) -> Result<()> {
        if !is_of_reserve(key) {
            return Err(Error::invalid(format!("{key}: is no piece of the reserve")));
        }
        self.delete(&[key.to_owned()])
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload>> {
        check_key(key)?;
        let parent = self.0.path.parent().unwrap_or(Path::new("/"));
        let staged = tempfile::tempfile_in(parent).map_err(self.io_failed(WRITE))?;
        Ok(Box::new(Staged {
            bundle: self.clone(),
            key: key.to_owned(),
            staged,
        }))
    }
}

impl Prune for Bundle {
    /// Removes the objects; their bytes remain in the file.
    fn delete(&self, keys: &[String]) -> Result<()> {
        let mut inner = self.inner();
        for key in keys {
            check_key(key)?;
            self.lock(&mut inner)?;
            if !inner.objects.contains_key(key) {
                continue;
            }
            let record = BundleRecord {
                kind: BundleKind::Removed,
                key: key.clone(),
                body_bytes: 0,
                modified: now(),
            };
            self.append(&mut inner, record, Body::Bytes(&[]))?;
        }
        Ok(())
    }

    fn stale_uploads(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        check_prefix(prefix).map(|_| Vec::new())
    }
}

/// An object that is being written to an unnamed file beside the bundle.
struct Staged {
    bundle: Bundle,
    key: String,
    staged: File,
}

impl Upload for Staged {
    fn write(&mut self, bytes: Bytes) -> Result<()> {
        let written = self.staged.write_all(&bytes);
        written.map_err(self.bundle.io_failed(WRITE))
    }

    fn seal(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let bundle = self.bundle.clone();
        let body = Body::File(&mut self.staged);
        bundle.put_object(&mut bundle.inner(), &self.key, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::remote::testing::conformance::conformance;

    fn bundle(path: &Path) -> Bundle {
        Bundle::open(path, true).unwrap()
    }

    #[test]
    fn it_does_what_every_backend_does() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = bundle(&dir.path().join("b"));
        bundle.put("x", Bytes::new()).unwrap();
        bundle.delete(&["x".to_owned()]).unwrap();
        conformance(&bundle).unwrap();
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn what_was_acknowledged_is_there_wherever_the_file_is_cut_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b");
        let first = bundle(&path);
        first.put("a", Bytes::from_static(b"first")).unwrap();
        let kept = std::fs::read(&path).unwrap();
        first.put("b/c", Bytes::from(vec![7; 300])).unwrap();
        let whole = std::fs::read(&path).unwrap();
        drop(first);
        // The second object is being written: its bytes may be there, but the end record is not.
        for len in kept.len()..=whole.len() {
            let mut cut = whole[..len].to_vec();
            cut[..4096].copy_from_slice(&kept[..4096]);
            std::fs::write(&path, &cut).unwrap();
            let again = bundle(&path);
            assert_eq!(again.get("a").unwrap(), "first", "{len}");
            assert_eq!(again.get("b/c").unwrap_err().kind(), ErrorKind::NotFound);
            again.put("b/c", Bytes::from_static(b"other")).unwrap();
            drop(again);
            assert_eq!(bundle(&path).get("b/c").unwrap(), "other");
        }
        // A truncated copy.
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            let error = Bundle::open(&path, false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{len}: {error}");
        }
    }

    #[test]
    fn flipped_bits_of_heads_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b");
        bundle(&path)
            .put("a/key", Bytes::from_static(b"text"))
            .unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in 4096..whole.len() - 4 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            let error = Bundle::open(&path, false).unwrap_err();
            assert!(
                error.to_string().contains("record at 4096"),
                "{at}: {error}"
            );
        }
    }

    #[test]
    fn one_process_writes_at_a_time_and_others_see_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b");
        let (writer, reader) = (bundle(&path), bundle(&path));
        writer.put("a", Bytes::from_static(b"1")).unwrap();
        assert_eq!(reader.get("a").unwrap(), "1");
        let error = reader.put("b", Bytes::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        reader.touch("use/today").unwrap_err();
        drop(writer);
        reader.put("b", Bytes::new()).unwrap();
        assert_eq!(reader.list("").unwrap().len(), 2);
    }

    #[test]
    fn what_is_removed_or_replaced_while_it_is_written_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b");
        let meddlers: [fn(&Path); 3] = [
            |path| std::fs::remove_file(path).unwrap(),
            |path| {
                std::fs::remove_file(path).unwrap();
                std::fs::write(path, b"mine").unwrap();
            },
            |path| drop(std::fs::rename(path, path.with_extension("old"))),
        ];
        for meddle in meddlers {
            let _gone = std::fs::remove_file(&path);
            let bundle = bundle(&path);
            bundle.put("a", Bytes::new()).unwrap();
            meddle(&path);
            let error = bundle.put("b", Bytes::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        }
    }

    #[test]
    fn an_empty_file_becomes_a_bundle() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b");
        std::fs::write(&path, b"").unwrap();
        assert!(Bundle::open(&path, false).is_err());
        bundle(&path).put("a", Bytes::new()).unwrap();
        assert_eq!(
            Bundle::open(&path, false).unwrap().list("").unwrap().len(),
            1
        );
    }

    #[test]
    fn nothing_is_made_or_written_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b");
        let error = Bundle::open(&path, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        std::fs::write(&path, b"somebody's file").unwrap();
        for create in [true, false] {
            assert!(Bundle::open(&path, create).is_err());
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"somebody's file");
        let error = Bundle::open(&path, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        // What ends in the middle of the magic was one.
        std::fs::write(&path, &crate::format::BUNDLE_MAGIC[..5]).unwrap();
        let error = Bundle::open(&path, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}
