//! Where symlinks lead inside of a tree. Relative targets are resolved as text; absolute paths by the directories of
//! this host that they name.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most path spellings of directories that are remembered.
const SPELLINGS_MAX: usize = 4096;

/// How a tree keeps a symlink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// With its own target: it leads to a place inside of the tree wherever that is.
    AsIs,
    /// With this target: its own leads through places outside to a place inside.
    Relative(Vec<u8>),
    /// It leads out of the tree.
    Outside,
}

/// A directory of this host whose symlinks are judged. It is recognized by its inode, however a link spells its path.
#[derive(Debug)]
pub(crate) struct LinkRoot {
    path: PathBuf,
    id: Option<(u64, u64)>,
    /// Spellings of paths, and whether each leads to this directory.
    spellings: HashMap<Vec<u8>, bool>,
}

impl LinkRoot {
    /// Prepares for the directory at `path`.
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            id: id_of(path),
            spellings: HashMap::new(),
        }
    }

    /// The path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Decides how a tree keeps the link at `path`, relative to this directory.
    pub(crate) fn keep(&mut self, path: &[u8], target: &[u8]) -> Kept {
        if !target.starts_with(b"/") && resolve(b"", path, target).is_some() {
            return Kept::AsIs;
        }
        let above = path
            .rsplitn(2, |byte| *byte == b'/')
            .nth(1)
            .unwrap_or_default();
        // An absolute target replaces everything before it.
        let full = self.path.join(OsStr::from_bytes(above));
        let full = full.join(OsStr::from_bytes(target));
        match self.inside(full.as_os_str().as_bytes()) {
            Some(inside) => Kept::Relative(relative_to(path, &inside)),
            None => Kept::Outside,
        }
    }

    /// The path from this directory to the absolute path `full`, if that leads through this directory.
    fn inside(&mut self, full: &[u8]) -> Option<Vec<u8>> {
        let slashes = full.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let ends: Vec<usize> = slashes.map(|(at, _)| at).chain([full.len()]).collect();
        // The last occurrence of this directory counts, since the rest behind it is the shortest.
        ends.into_iter().rev().find_map(|end| {
            let rest = full.get(end..)?;
            resolve(b"", b"", trimmed(rest))?;
            let is_here = end > 0 && self.is_here(full.get(..end)?);
            is_here.then(|| trimmed(rest).to_vec())
        })
    }

    fn is_here(&mut self, spelled: &[u8]) -> bool {
        if let Some(known) = self.spellings.get(spelled) {
            return *known;
        }
        let found = id_of(Path::new(OsStr::from_bytes(spelled)));
        let is_here = self.id.is_some() && found == self.id;
        if self.spellings.len() >= SPELLINGS_MAX {
            self.spellings.clear();
        }
        self.spellings.insert(spelled.to_vec(), is_here);
        is_here
    }
}

fn id_of(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn trimmed(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|byte| *byte != b'/');
    path.get(start.unwrap_or(path.len())..).unwrap_or_default()
}

/// The relative target by which a link at `path` leads to `to`. If `to` contains `..`, names before that may be
/// symlinks, so `to` is kept as it is.
fn relative_to(path: &[u8], to: &[u8]) -> Vec<u8> {
    if !split(to).any(|name| name == b"..") {
        let inside = split(to).filter(|name| *name != b".");
        let target = relative(path, &inside.collect::<Vec<_>>().join(&b'/'));
        return if target.is_empty() {
            b".".to_vec()
        } else {
            target
        };
    }
    let depth = split(path).count().saturating_sub(1);
    let up = std::iter::repeat_n(&b".."[..], depth);
    up.chain(split(to)).collect::<Vec<_>>().join(&b'/')
}

/// Where a link at `path` leads, relative to the tree's root at `root`; `None` if that is outside.
pub(super) fn resolve(root: &[u8], path: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    if target.starts_with(b"/") {
        let rest = target.strip_prefix(root)?.strip_prefix(b"/")?;
        return walk(Vec::new(), rest);
    }
    let mut names: Vec<&[u8]> = split(path).collect();
    names.pop();
    walk(names, target)
}

/// The shortest target by which a link at `path` leads to `to`, both relative to the same root.
pub(super) fn relative(path: &[u8], to: &[u8]) -> Vec<u8> {
    let mut from: Vec<&[u8]> = split(path).collect();
    from.pop();
    let to: Vec<&[u8]> = split(to).collect();
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = from.iter().skip(common).map(|_| &b".."[..]);
    let down = to.iter().skip(common).copied();
    up.chain(down).collect::<Vec<_>>().join(&b'/')
}

fn walk<'a>(mut names: Vec<&'a [u8]>, target: &'a [u8]) -> Option<Vec<u8>> {
    for name in split(target) {
        match name {
            b"." => {}
            b".." => {
                names.pop()?;
            }
            _ => names.push(name),
        }
    }
    Some(names.join(&b'/'))
}

fn split(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_by_their_text() {
        let cases: [(&str, &str, Option<&str>); 8] = [
            ("m/snapshots/c/f", "../../blobs/x", Some("m/blobs/x")),
            ("m/snapshots/c/d/f", "../../../blobs/x", Some("m/blobs/x")),
            ("f", "./a//b", Some("a/b")),
            ("f", "../x", None),
            ("a/f", "../../x/../..", None),
            ("a/f", "/tree/b/c", Some("b/c")),
            ("a/f", "/trees/b", None),
            ("a/f", "/tree/../x", None),
        ];
        for (path, target, expected) in cases {
            let found = resolve(b"/tree", path.as_bytes(), target.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{target}");
        }
    }

    #[test]
    fn a_link_is_kept_by_where_it_leads_however_that_is_spelled() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let root = base.join("data/home/u/cache");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink("data/home", base.join("home")).unwrap();
        let mut links = LinkRoot::new(&root);
        let at = |text: &str| text.replace("BASE", base.to_str().unwrap()).into_bytes();
        for (path, target, expected) in [
            ("x", "a/b", Kept::AsIs),
            ("x", "gone", Kept::AsIs),
            (
                "x",
                "BASE/data/home/u/cache/a/b",
                Kept::Relative(b"a/b".to_vec()),
            ),
            (
                "a/b/x",
                "BASE/home/u/cache/a/gone",
                Kept::Relative(b"../gone".to_vec()),
            ),
            (
                "a/x",
                "BASE/home/../home/u/cache//a/./b/",
                Kept::Relative(b"b".to_vec()),
            ),
            ("a/x", "BASE/home/u/cache", Kept::Relative(b"..".to_vec())),
            ("x", "BASE/home/u/cache/", Kept::Relative(b".".to_vec())),
            (
                "a/x",
                "BASE/home/u/cache/a/b/../y",
                Kept::Relative(b"../a/b/../y".to_vec()),
            ),
            ("a/x", "../../cache/a", Kept::Relative(b".".to_vec())),
            ("x", "BASE/home/u", Kept::Outside),
            ("x", "BASE/home/u/cache/../other", Kept::Outside),
            ("x", "BASE/home/u/cachet", Kept::Outside),
            ("a/x", "../../other", Kept::Outside),
            ("x", "/", Kept::Outside),
        ] {
            assert_eq!(
                links.keep(path.as_bytes(), &at(target)),
                expected,
                "{path} -> {target}"
            );
        }
    }

    #[test]
    fn a_relative_target_leads_back() {
        for (path, to, target) in [
            ("m/snapshots/c/f", "m/blobs/x", "../../blobs/x"),
            ("m/snapshots/c/d/f", "m/blobs/x", "../../../blobs/x"),
            ("f", "blobs/x", "blobs/x"),
        ] {
            let found = relative(path.as_bytes(), to.as_bytes());
            assert_eq!(found, target.as_bytes());
            assert_eq!(
                resolve(b"/tree", path.as_bytes(), &found).as_deref(),
                Some(to.as_bytes())
            );
        }
    }
}
