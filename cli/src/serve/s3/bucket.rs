//! A namespace as a bucket: maps keys to files of versions.
//!
//! A key is the name of a ref and a path in it; for a ref that is a file, the name alone. If a key begins with the
//! names of several refs, the longest one counts and hides paths of the others. `REF@N` and `REF@tID` are versions. A
//! symlink to a file inside of the version has that file's content; other symlinks have no key.

use std::sync::Arc;

use jiff::Timestamp;
use store::{Content, Namespace, RefSpec, Result, Root, Version};

use crate::serve::s3::names::Names;
use crate::serve::s3::shelf::{Dir, Shelf, TIMES_KEPT_MAX, What};
use crate::serve::source::Sight;
use crate::serve::text::joined;

/// Maximum number of symlinks to follow in a row.
const LINKS_MAX: usize = 16;

/// A namespace at one state of the store.
pub(crate) struct Bucket {
    pub(crate) sight: Sight,
    pub(crate) shelf: Arc<Shelf>,
    namespace: Namespace,
    pub(crate) names: Arc<Names>,
}

/// A version that keys lead to.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    /// The beginning of its keys: its name, without slash.
    pub(crate) name: String,
    version: Arc<Version>,
}

/// A file with a key.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) content: Content,
    owner: Owner,
    /// The number of entries of the version before this one; the list of times has the same order.
    place: u64,
}

/// The times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// The modification time, as stored in the version.
    pub(crate) file: Timestamp,
    /// When the version was put.
    pub(crate) put: Timestamp,
}

impl Bucket {
    /// The bucket of a namespace at the state of `sight`. Blocks.
    pub(crate) fn open(sight: Sight, shelf: Arc<Shelf>, namespace: Namespace) -> Result<Self> {
        let names = shelf.names(&sight, &namespace)?;
        Ok(Self {
            sight,
            shelf,
            namespace,
            names,
        })
    }

    /// The file with this key. Blocks.
    pub(crate) fn find(&self, key: &str) -> Result<Option<Object>> {
        let mut ends = key.match_indices('/').map(|(at, _)| at);
        let mut end = key.len();
        loop {
            let (name, path) = key.split_at_checked(end).unwrap_or((key, ""));
            if let Some(owner) = self.owner(name)? {
                return self.file(&owner, path);
            }
            let Some(before) = ends.next_back() else {
                return Ok(None);
            };
            end = before;
        }
    }

    /// The version of the name `NAME` or `NAME@N`, if it exists. Blocks.
    pub(crate) fn owner(&self, name: &str) -> Result<Option<Owner>> {
        let is_at_version = name.contains('@');
        if name.contains(':') || !(is_at_version || self.names.has(name)) {
            return Ok(None);
        }
        let Ok(spec) = format!("{}/{name}", self.namespace).parse::<RefSpec>() else {
            return Ok(None);
        };
        if !self.names.has(spec.name.path()) {
            return Ok(None);
        }
        let found = self.version(&spec)?;
        Ok(found.map(|version| Owner {
            name: name.to_owned(),
            version: Arc::new(version),
        }))
    }

    fn version(&self, spec: &RefSpec) -> Result<Option<Version>> {
        let view = self.sight.view();
        match view.state.at(&spec.name, spec.version.as_ref()) {
            Ok((_, version)) => Ok(Some(version)),
            Err(error) if error.kind() == store::ErrorKind::NotFound => Ok(None),
            // The prefix of several ids names no version.
            Err(error) if error.kind() == store::ErrorKind::InvalidInput => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The file at `path` in a version: `/PATH`, or empty for a version that is a file.
    fn file(&self, owner: &Owner, path: &str) -> Result<Option<Object>> {
        match (owner.version.root, path.strip_prefix('/')) {
            (Root::File { content, .. }, None) if path.is_empty() => {
                Ok(Some(owner.object(content, 0)))
            }
            (Root::Tree { .. }, Some(path)) => {
                let Some((what, place)) = self.entry(owner, path)? else {
                    return Ok(None);
                };
                self.object(owner, path, &what, place)
            }
            _ => Ok(None),
        }
    }

    /// The file at `path`, after symlinks are followed. Blocks.
    pub(crate) fn object(
        &self,
        owner: &Owner,
        path: &str,
        what: &What,
        place: u64,
    ) -> Result<Option<Object>> {
        let (mut path, mut what, mut place) = (path.to_owned(), what.clone(), place);
        for _ in 0..LINKS_MAX {
            let target = match what {
                What::File(content) => return Ok(Some(owner.object(content, place))),
                What::Dir(_) => return Ok(None),
                What::Link(target) => target,
            };
            let target = std::str::from_utf8(&target).ok();
            let Some(next) = target.and_then(|target| joined(&path, target)) else {
                return Ok(None);
            };
            let Some(found) = self.entry(owner, &next)? else {
                return Ok(None);
            };
            (path, (what, place)) = (next, found);
        }
        Ok(None)
    }

    /// The entry at `path` of a tree, without following symlinks, and the number of entries of the version before it.
    fn entry(&self, owner: &Owner, path: &str) -> Result<Option<(What, u64)>> {
        let Some(top) = owner.tree() else {
            return Ok(None);
        };
        let (mut what, mut place) = (What::Dir(top), 0_u64);
        for name in path.split('/') {
            let What::Dir(tree) = what else {
                return Ok(None);
            };
            let dir = self.dir(&tree)?;
            let Some(entry) = dir.find(name) else {
                return Ok(None);
            };
            place = place.saturating_add(entry.before).saturating_add(1);
            what = entry.what.clone();
        }
        Ok(Some((what, place)))
    }

    /// Reads the directory `tree`. Blocks.
    pub(crate) fn dir(&self, tree: &Content) -> Result<Arc<Dir>> {
        self.shelf.dir(&self.sight, tree)
    }

    /// The times of a file. Blocks.
    pub(crate) fn changed(&self, object: &Object) -> Result<Changed> {
        let version = &object.owner.version;
        let put = version.time;
        let entries = match version.root {
            Root::Tree { totals, .. } => totals.entries.saturating_add(1),
            Root::File { .. } => 1,
        };
        if entries > TIMES_KEPT_MAX {
            return Ok(Changed { file: put, put });
        }
        let times = self.shelf.times(&self.sight, &version.times(), entries)?;
        let secs = usize::try_from(object.place).ok();
        let secs = secs.and_then(|place| times.get(place));
        let file = secs.and_then(|secs| Timestamp::from_second(i64::from(*secs)).ok());
        let file = file.unwrap_or(put);
        Ok(Changed { file, put })
    }
}

impl Owner {
    /// The root of the version, if it is a tree.
    pub(crate) fn tree(&self) -> Option<Content> {
        match self.version.root {
            Root::Tree { content, .. } => Some(content),
            Root::File { .. } => None,
        }
    }

    /// The root of the version, if it is a file.
    pub(crate) fn whole(&self) -> Option<Object> {
        match self.version.root {
            Root::File { content, .. } => Some(self.object(content, 0)),
            Root::Tree { .. } => None,
        }
    }

    fn object(&self, content: Content, place: u64) -> Object {
        Object {
            content,
            owner: self.clone(),
            place,
        }
    }
}

impl Object {
    /// Equal for equal bytes in stores with the same chunking. It does not look like an MD5, which clients would
    /// verify.
    pub(crate) fn etag(&self) -> String {
        format!("\"{}-{}\"", self.content.root, self.content.depth)
    }
}

impl Changed {
    /// Whether a client that has the file as of `time` has the current one. A newly put file may be older than the one
    /// that it replaces, so the file's own time is not enough.
    pub(crate) fn is_not_since(&self, time: Timestamp) -> bool {
        let secs = time.as_second();
        let at = self.file.as_second();
        at == secs || (at <= secs && self.put.as_second() <= secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_file_that_came_later_is_another() {
        let at = |secs| Timestamp::from_second(secs).unwrap();
        let changed = Changed {
            file: at(100),
            put: at(500),
        };
        for (secs, expected) in [
            (99, false),
            (100, true),
            (101, false),
            (499, false),
            (500, true),
        ] {
            assert_eq!(changed.is_not_since(at(secs)), expected, "{secs}");
        }
    }
}
