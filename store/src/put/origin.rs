//! What a tree was materialized from, read in step with the walk of a put: the contents and times of its files.
//!
//! The pool's record of the tree has them. If the record cannot be read, times are lost, but the put does not fail.

use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Result;
use crate::format::{Content, Time};
use crate::host::pool::list::{ADDED, ListReader, NEVER, Thing};
use crate::host::pool::{Mark, Pool};
use crate::host::walk::{Stat, compare_paths};
use crate::id::StoreId;

/// A tree that was made here, and what it was made from.
pub(super) struct Origin {
    /// The path of the tree in the walk; empty, or with a `/` at its end.
    at: Vec<u8>,
    /// The path of the walk's root in the tree; empty, or with a `/` at its end.
    inside: Vec<u8>,
    /// None, if the record cannot be read, or not any further.
    files: Option<Recorded>,
    /// When the tree was settled, by the clock of its file system, if the system was started again since.
    settled_before_boot: Option<Time>,
    source: String,
}

/// The record of a tree, read in step with a walk.
struct Recorded {
    list: ListReader<Thing>,
    path: Vec<u8>,
    /// The lengths of the paths of the directories above.
    above: Vec<usize>,
    /// The entry at `path`, until the walk has passed it.
    next: Option<Thing>,
}

impl Origin {
    /// Opens the record of the tree of `mark`; none, if the tree does not overlap with what is below `root`.
    pub(super) fn new(pool: &Pool, mark: &Mark, store: StoreId, root: &Path) -> Option<Self> {
        let made = mark.path();
        let (at, inside) = match (made.strip_prefix(root), root.strip_prefix(&made)) {
            (Ok(below), _) => (prefix(below), Vec::new()),
            (_, Ok(above)) => (Vec::new(), prefix(above)),
            _ => return None,
        };
        let source = format!("{} version {}", mark.source, mark.version);
        let files = Recorded::of(pool, mark, store).ok().flatten();
        let record = mark.record.as_ref().filter(|_| !mark.is_of_this_boot());
        Some(Self {
            at,
            inside,
            files,
            settled_before_boot: record.and_then(|record| pool.settled_at(&made, record)),
            source,
        })
    }

    /// Returns the file at `path` of the walk: none, if the path is outside of the tree; none inside, if the file was
    /// not made from a file of the version.
    pub(super) fn file(&mut self, path: &[u8]) -> Option<Option<(Content, Time)>> {
        let below = path.strip_prefix(&*self.at)?;
        let path = [&self.inside, below].concat();
        let found = self.files.as_mut().map(|files| files.find(&path));
        match found {
            Some(Ok(found)) => Some(found),
            Some(Err(_)) => {
                self.files = None;
                Some(None)
            }
            None => Some(None),
        }
    }

    /// The content of a file that was cut short by a power cut: it was not touched since the tree was settled, and the
    /// system was started again. Called in the place of [`Self::file`].
    pub(super) fn torn(&mut self, path: &[u8], stat: &Stat) -> Option<Content> {
        let settled = self.settled_before_boot?;
        let (content, time) = self.file(path)??;
        // Anyone who shortens a file changes its time.
        let is_torn = stat.size < content.size && stat.mtime == time && stat.ctime <= settled;
        is_torn.then_some(content)
    }

    /// The note that times are lost, if they are.
    pub(super) fn note(&self) -> Option<String> {
        let source = &self.source;
        let note = format!(
            "{source}: cannot be read any more, so that files linked from it are dated 1980"
        );
        self.files.is_none().then_some(note)
    }
}

impl Recorded {
    fn of(pool: &Pool, mark: &Mark, store: StoreId) -> Result<Option<Self>> {
        if mark.store != store || !mark.is_settled {
            return Ok(None);
        }
        let list = pool.list_of(mark)?;
        Ok(list.map(|list| Self {
            list,
            path: Vec::new(),
            above: vec![0],
            next: None,
        }))
    }

    /// Returns the file at `path`. Must be called in the order of a walk.
    fn find(&mut self, path: &[u8]) -> Result<Option<(Content, Time)>> {
        while self.next.is_some() || self.advance()? {
            match (compare_paths(&self.path, path), self.next.take()) {
                (Ordering::Less, _) => {}
                (Ordering::Equal, Some(Thing::File { key, time, .. }))
                    if ![NEVER, ADDED].contains(&time) =>
                {
                    return Ok(Some((key.content, time)));
                }
                // The record may have more entries for this path.
                (Ordering::Equal, _) => {}
                (Ordering::Greater, next) => {
                    self.next = next;
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Advances to the next entry; returns false at the end.
    fn advance(&mut self) -> Result<bool> {
        let Some((level, name, thing)) = self.list.next()? else {
            return Ok(false);
        };
        self.above.truncate(level.max(1));
        self.path.truncate(self.above.last().copied().unwrap_or(0));
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(&name);
        self.above.push(self.path.len());
        self.next = Some(thing);
        Ok(true)
    }
}

/// A relative path in the form with which paths below it begin.
fn prefix(path: &Path) -> Vec<u8> {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    if !bytes.is_empty() {
        bytes.push(b'/');
    }
    bytes
}
