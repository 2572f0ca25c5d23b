//! The files of a revision by path, and their directories.
//!
//! The list contains what a client can download. A symlink to a file inside of the tree appears as that file. Left out
//! are other symlinks, names that are not UTF-8, and compiled modules without the file that marks them as complete,
//! since clients would use them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use store::{Content, Error, Node, Reader, Result};

use crate::serve::hub::hashes::{Hashes, derived, git_name};
use crate::serve::hub::repos::{Commit, FilesOf, Top};
use crate::serve::hub::saved::{hashed, read_listing, subtree};
use crate::serve::text::{is_hex, joined};

/// Maximum number of entries of a revision.
const ENTRIES_MAX: usize = 1_000_000;
/// Maximum number of entries in memory, over all revisions.
const ENTRIES_KEPT_MAX: usize = 200_000;
/// Maximum number of symlinks to follow in a row.
const LINKS_MAX: usize = 16;
/// Files of at least this size are large.
const LARGE_BYTES: u64 = 10_000_000;
/// The prefix of compiled modules, and the file that marks one as complete.
const MODULE: (&str, &str) = ("MODULE_", "model.done");
/// Extensions of files that count as binary at any size.
const BINARY: [&str; 46] = [
    "7z",
    "arrow",
    "avro",
    "bin",
    "bmp",
    "bz2",
    "ckpt",
    "feather",
    "flac",
    "ftz",
    "gguf",
    "gif",
    "gz",
    "h5",
    "jpeg",
    "jpg",
    "joblib",
    "mlmodel",
    "model",
    "mp3",
    "mp4",
    "msgpack",
    "neff",
    "npy",
    "npz",
    "onnx",
    "ot",
    "parquet",
    "pb",
    "pickle",
    "pkl",
    "png",
    "pt",
    "pth",
    "rar",
    "safetensors",
    "tar",
    "tflite",
    "tgz",
    "wasm",
    "wav",
    "webp",
    "xz",
    "zip",
    "zst",
    "tiff",
];

/// The entries of one revision, sorted by path.
#[derive(Debug, Default)]
pub(crate) struct Files {
    entries: Vec<Entry>,
}

/// A file or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) what: What,
}

/// What a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A file. If it comes from a saved cache, its name there, which is its hash.
    File(Content, Option<String>),
    /// A file of the upstream that is not in the store: its size and its hash.
    Absent(u64, String),
    /// A directory, and forty hex digits as its id.
    Directory(String),
}

/// The ids by which clients identify the bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Etag {
    /// The git object id of the file, or of the LFS pointer if it is large.
    pub(crate) oid: String,
    /// The SHA-256 of a large file.
    pub(crate) sha256: Option<String>,
    /// The size of the LFS pointer.
    pub(crate) pointer_bytes: usize,
}

impl Etag {
    /// The etag of a file whose hash is `name`.
    fn named(name: &str, size: u64) -> Self {
        if name.len() == 40 {
            return Self {
                oid: name.to_owned(),
                sha256: None,
                pointer_bytes: 0,
            };
        }
        let pointer =
            format!("version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize {size}\n");
        Self {
            oid: git_name(&pointer),
            sha256: Some(name.to_owned()),
            pointer_bytes: pointer.len(),
        }
    }

    /// The etag by the rule for files without a known hash: name, size and first bytes decide whether a file is large.
    pub(crate) fn by_rule(path: &str, size: u64, hashes: &Hashes) -> Self {
        match is_large(path, size, hashes.is_binary) {
            true => Self::named(&hashes.sha256, size),
            false => Self::named(&hashes.git, size),
        }
    }

    /// The value of the ETag header.
    pub(crate) fn value(&self) -> &str {
        self.sha256.as_ref().unwrap_or(&self.oid)
    }
}

/// Whether git would store the file as an LFS pointer.
pub(super) fn is_large(path: &str, size: u64, is_binary: bool) -> bool {
    size >= LARGE_BYTES || is_binary || is_binary_name(path)
}

/// Whether the name is that of a binary file.
fn is_binary_name(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let ending = name
        .rsplit_once('.')
        .map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| BINARY.contains(&ending.as_str())) || name.contains("tfevents")
}

impl Entry {
    /// The etag, if it is known from a saved cache or from the upstream.
    pub(crate) fn known_etag(&self) -> Option<Etag> {
        match &self.what {
            What::File(content, Some(name)) => Some(Etag::named(name, content.size)),
            What::Absent(size, name) => Some(Etag::named(name, *size)),
            _ => None,
        }
    }

    /// The size of a file; `None` for a directory.
    pub(crate) fn size(&self) -> Option<u64> {
        match &self.what {
            What::File(content, _) => Some(content.size),
            What::Absent(size, _) => Some(*size),
            What::Directory(_) => None,
        }
    }
}

impl Files {
    /// All entries.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry at `path`.
    pub(crate) fn at(&self, path: &str) -> Option<&Entry> {
        let found = self
            .entries
            .binary_search_by(|entry| entry.path.as_str().cmp(path));
        self.entries.get(found.ok()?)
    }

    /// The entries of the directory at `path`, recursively if `is_deep`, after `cursor`; `None` if it is not a
    /// directory.
    pub(crate) fn below<'f>(
        &'f self,
        path: &str,
        is_deep: bool,
        cursor: Option<&str>,
    ) -> Option<impl Iterator<Item = &'f Entry> + use<'f>> {
        let prefix = match path {
            "" => String::new(),
            _ => match &self.at(path)?.what {
                What::Directory(_) => format!("{path}/"),
                _ => return None,
            },
        };
        let is_before = |entry: &Entry| {
            entry.path.as_str() < prefix.as_str()
                || cursor.is_some_and(|cursor| entry.path.as_str() <= cursor)
        };
        let start = self.entries.partition_point(is_before);
        let rest = self.entries.get(start..).unwrap_or_default();
        let inside = rest.iter().map_while(move |entry| {
            let name = entry.path.strip_prefix(&prefix)?;
            Some((entry, is_deep || !name.contains('/')))
        });
        Some(inside.filter_map(|(entry, is_wanted)| is_wanted.then_some(entry)))
    }

    /// Reads the files of a commit. Blocks.
    pub(crate) fn of(reader: &Reader<'_>, commit: &Commit, name: &str) -> Result<Self> {
        let mut walk = Walk {
            reader,
            entries: Vec::new(),
            links: Vec::new(),
        };
        match commit.files {
            FilesOf::Root(Top { content, is_tree }) if !is_tree => {
                let path = name.rsplit('/').next().unwrap_or(name);
                walk.add(path.to_owned(), What::File(content, None))?;
            }
            FilesOf::Root(Top { content, .. }) => {
                walk.run(&content)?;
                walk.follow();
            }
            FilesOf::Snapshot { snapshot, repo } => {
                walk.run(&snapshot)?;
                walk.name(&repo)?;
            }
            FilesOf::Listed { listing, repo } => return Self::listed(reader, &listing, &repo),
        }
        Ok(Self::whole(walk.entries))
    }
}

impl Files {
    /// The files in a commit of the upstream, whether they are in the store or not.
    fn listed(reader: &Reader<'_>, listing: &Content, repo: &Content) -> Result<Self> {
        let listing = read_listing(reader, listing)?.into_files();
        let held = hashed(reader, repo)?;
        let mut dirs: BTreeSet<String> = BTreeSet::new();
        let mut entries = Vec::with_capacity(listing.len());
        for (path, listed) in listing {
            let name = listed.name().to_owned();
            let what = match held.get(&name).filter(|held| held.size == listed.size) {
                Some(content) => What::File(*content, Some(name)),
                None => What::Absent(listed.size, name),
            };
            for dir in path.match_indices('/').filter_map(|(at, _)| path.get(..at)) {
                if !dirs.contains(dir) {
                    dirs.insert(dir.to_owned());
                }
            }
            entries.push(Entry { path, what });
        }
        entries.extend(dirs.into_iter().map(|path| Entry {
            what: What::Directory(derived(&path)),
            path,
        }));
        Ok(Self::whole(entries))
    }

    /// Sorts the entries, and leaves out those in incomplete compiled modules.
    fn whole(mut entries: Vec<Entry>) -> Self {
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let files = Self { entries };
        let is_kept =
            |entry: &Entry| module_of(&entry.path).is_none_or(|module| is_whole(&files, module));
        let entries = files.entries.iter().filter(|entry| is_kept(entry)).cloned();
        match files.entries.iter().all(is_kept) {
            true => files,
            false => Self {
                entries: entries.collect(),
            },
        }
    }

    /// The upstream's files, as paths and hashes.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().filter_map(|entry| match &entry.what {
            What::File(_, Some(name)) | What::Absent(_, name) => {
                Some((entry.path.as_str(), name.as_str()))
            }
            _ => None,
        })
    }
}

/// A walk over a tree.
struct Walk<'r> {
    reader: &'r Reader<'r>,
    entries: Vec<Entry>,
    links: Vec<(String, Vec<u8>)>,
}

impl Walk<'_> {
    fn run(&mut self, top: &Content) -> Result<()> {
        let mut waiting = vec![(String::new(), *top)];
        while let Some((above, tree)) = waiting.pop() {
            for entry in self.reader.tree(&tree)? {
                let Ok(name) = String::from_utf8(entry.name) else {
                    continue;
                };
                let path = format!("{above}{name}");
                match entry.node {
                    Node::File { content, .. } => self.add(path, What::File(content, None))?,
                    Node::Symlink { target } => self.links.push((path, target)),
                    Node::Tree { content, .. } => {
                        let mut digits = content.root.to_string();
                        digits.truncate(40);
                        self.add(path.clone(), What::Directory(digits))?;
                        waiting.push((path + "/", content));
                    }
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, path: String, what: What) -> Result<()> {
        if self.entries.len() >= ENTRIES_MAX {
            return Err(Error::new(
                store::ErrorKind::Unsupported,
                format!("more than {ENTRIES_MAX} entries in one revision"),
            ));
        }
        self.entries.push(Entry { path, what });
        Ok(())
    }

    /// Replaces symlinks by the files that they lead to.
    fn follow(&mut self) {
        self.entries.sort_by(|a, b| a.path.cmp(&b.path));
        self.links.sort();
        let followed: Vec<Entry> = self
            .links
            .iter()
            .filter_map(|(path, target)| {
                let what = self.led_to(path, target)?;
                let path = path.clone();
                Some(Entry { path, what })
            })
            .collect();
        self.entries.extend(followed);
    }

    fn led_to(&self, path: &str, target: &[u8]) -> Option<What> {
        let (mut path, mut target) = (path.to_owned(), target);
        for _ in 0..LINKS_MAX {
            path = joined(&path, std::str::from_utf8(target).ok()?)?;
            let at = |path: &str| {
                self.entries
                    .binary_search_by(|entry| entry.path.as_str().cmp(path))
            };
            if let Ok(found) = at(&path) {
                let what = &self.entries.get(found)?.what;
                return matches!(what, What::File(..)).then(|| what.clone());
            }
            let next = self
                .links
                .binary_search_by(|(link, _)| link.cmp(&path))
                .ok()?;
            target = &self.links.get(next)?.1;
        }
        None
    }

    /// Replaces the symlinks of a snapshot by files of the saved repo, whose names are their hashes.
    fn name(&mut self, repo: &Content) -> Result<()> {
        let Some(held) = subtree(self.reader, repo, "blobs")? else {
            return Ok(());
        };
        let held = self.reader.tree(&held)?;
        for (path, target) in std::mem::take(&mut self.links) {
            let name = target
                .rsplit(|byte| *byte == b'/')
                .next()
                .unwrap_or_default();
            let found = held.binary_search_by(|entry| entry.name.as_slice().cmp(name));
            let Some(entry) = found.ok().and_then(|at| held.get(at)) else {
                continue;
            };
            if let Node::File { content, .. } = entry.node {
                let hash = std::str::from_utf8(name).ok();
                let hash = hash.filter(|name| is_hex(name, 40) || is_hex(name, 64));
                self.add(path, What::File(content, hash.map(str::to_owned)))?;
            }
        }
        Ok(())
    }
}

/// The compiled module that contains `path` or is at `path`.
fn module_of(path: &str) -> Option<&str> {
    let starts = std::iter::once(0).chain(path.match_indices('/').map(|(at, _)| at + 1));
    let mut starts = starts.filter(|at| {
        path.get(*at..)
            .is_some_and(|rest| rest.starts_with(MODULE.0))
    });
    let start = starts.next()?;
    let end = path
        .get(start..)?
        .find('/')
        .map_or(path.len(), |len| start + len);
    path.get(..end)
}

/// Whether a compiled module is complete. A file with such a name is not a module and counts as complete.
fn is_whole(files: &Files, module: &str) -> bool {
    let is_directory = files
        .at(module)
        .is_some_and(|entry| matches!(entry.what, What::Directory(_)));
    !is_directory || files.at(&format!("{module}/{}", MODULE.1)).is_some()
}

/// Cached revisions, the most recently used last.
#[derive(Default)]
pub(crate) struct Shelf {
    kept: Mutex<Vec<(Key, Arc<Files>)>>,
    /// Those that are being read: a large one takes much memory, so it is read once for all who want it.
    reading: Mutex<HashMap<Key, Arc<Mutex<()>>>>,
}

/// What the files of a commit depend on. A single file has the name of its ref, and other refs may have the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key(FilesOf, Option<String>);

impl Key {
    fn of(commit: &Commit, name: &str) -> Self {
        let name = commit.files.is_file().then(|| name.to_owned());
        Self(commit.files, name)
    }
}

impl Shelf {
    /// The files of a commit, cached. Blocks.
    pub(crate) fn files(
        &self,
        reader: &Reader<'_>,
        commit: &Commit,
        name: &str,
    ) -> Result<Arc<Files>> {
        let key = Key::of(commit, name);
        if let Some(files) = self.find(&key) {
            return Ok(files);
        }
        let reading = || self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = Arc::clone(reading().entry(key.clone()).or_default());
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = self.find(&key) {
            return Ok(files);
        }
        let files = Files::of(reader, commit, name).map(Arc::new);
        if let Ok(files) = &files {
            self.keep(key.clone(), files);
        }
        reading().remove(&key);
        files
    }

    fn keep(&self, key: Key, files: &Arc<Files>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push((key, Arc::clone(files)));
        let mut entries: usize = kept.iter().map(|(_, files)| files.entries.len()).sum();
        while entries > ENTRIES_KEPT_MAX && kept.len() > 1 {
            entries -= kept.remove(0).1.entries.len();
        }
    }

    /// The files of a commit, if they are in memory.
    pub(crate) fn known(&self, commit: &Commit, name: &str) -> Option<Arc<Files>> {
        self.find(&Key::of(commit, name))
    }

    fn find(&self, wanted: &Key) -> Option<Arc<Files>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(key, _)| key == wanted)?;
        let hit = kept.remove(at);
        let files = Arc::clone(&hit.1);
        kept.push(hit);
        Some(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Files {
        let entry = |path: &&str| match path.strip_suffix('/') {
            Some(path) => Entry {
                path: path.to_owned(),
                what: What::Directory(String::new()),
            },
            None => Entry {
                path: (*path).to_owned(),
                what: What::File(Content::empty(), None),
            },
        };
        let mut entries: Vec<Entry> = paths.iter().map(entry).collect();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Files { entries }
    }

    fn below(files: &Files, path: &str, is_deep: bool, cursor: Option<&str>) -> Vec<String> {
        let found = files.below(path, is_deep, cursor).unwrap();
        found.map(|entry| entry.path.clone()).collect()
    }

    #[test]
    fn a_directory_is_listed_whole_or_from_a_cursor_on() {
        let files = files(&["a/", "a-b", "a/b/", "a/b/c", "a/d", "b"]);
        assert_eq!(below(&files, "", false, None), ["a", "a-b", "b"]);
        assert_eq!(below(&files, "a", false, None), ["a/b", "a/d"]);
        assert_eq!(below(&files, "a", true, None), ["a/b", "a/b/c", "a/d"]);
        assert_eq!(below(&files, "a", true, Some("a/b")), ["a/b/c", "a/d"]);
        assert_eq!(below(&files, "", true, Some("a/d")), ["b"]);
        assert!(files.below("b", false, None).is_none());
        assert!(files.below("none", false, None).is_none());
    }

    #[test]
    fn a_module_without_its_mark_is_known() {
        let found = files(&[
            "c/",
            "c/MODULE_1/",
            "c/MODULE_1/model.neff",
            "c/MODULE_2/",
            "c/MODULE_2/model.done",
        ]);
        assert_eq!(module_of("c/MODULE_1/model.neff"), Some("c/MODULE_1"));
        assert_eq!(module_of("c/MODULE_1"), Some("c/MODULE_1"));
        assert_eq!(module_of("c/x/aMODULE_1"), None);
        assert!(!is_whole(&found, "c/MODULE_1") && is_whole(&found, "c/MODULE_2"));
    }

    #[test]
    fn which_hash_counts_depends_on_name_size_and_beginning() {
        let mut hashes = Hashes {
            git: "1".repeat(40),
            sha256: "2".repeat(64),
            is_binary: false,
        };
        let is_large =
            |path, size, hashes: &Hashes| Etag::by_rule(path, size, hashes).sha256.is_some();
        assert!(!is_large("a/config.json", 9_999_999, &hashes));
        assert!(is_large("a/config.json", 10_000_000, &hashes));
        assert!(is_large("x.SafeTensors", 1, &hashes));
        hashes.is_binary = true;
        assert!(is_large("a/config.json", 5, &hashes));
        let etag = Etag::by_rule("x.bin", 12, &hashes);
        assert_eq!(
            (etag.value(), etag.pointer_bytes),
            (hashes.sha256.as_str(), 127)
        );
    }
}
