//! What a tree was materialized from, read beside the walk of a put: the contents and times of its files.
//!
//! The pool's record of the tree says it. What cannot be read any more costs times and never the put.

use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Result;
use crate::format::{Content, Time};
use crate::host::list::{ListReader, NEVER, Thing};
use crate::host::pool::{Mark, Pool};
use crate::host::walk::compare_paths;
use crate::id::StoreId;

/// A tree that was made here, and what it was made from.
pub(super) struct Origin {
    /// Where it begins in the walk; empty, or with a `/` at its end.
    at: Vec<u8>,
    /// Where in it the walk begins, likewise.
    inside: Vec<u8>,
    /// None when it could not be read (any further).
    files: Option<Recorded>,
    source: String,
}

/// The record of a tree, read beside a walk.
struct Recorded {
    list: ListReader<Thing>,
    path: Vec<u8>,
    /// How long the paths of the directories above are.
    above: Vec<usize>,
    /// What is at `path`, until it was passed.
    next: Option<Thing>,
}

impl Origin {
    /// Of the tree of `mark`; none when it has nothing to do with what is below `root`.
    pub(super) fn new(pool: &Pool, mark: &Mark, store: StoreId, root: &Path) -> Option<Self> {
        let made = mark.path();
        let (at, inside) = match (made.strip_prefix(root), root.strip_prefix(&made)) {
            (Ok(below), _) => (prefix(below), Vec::new()),
            (_, Ok(above)) => (Vec::new(), prefix(above)),
            _ => return None,
        };
        let source = format!("{} version {}", mark.source, mark.version);
        let files = Recorded::of(pool, mark, store).ok().flatten();
        Some(Self {
            at,
            inside,
            files,
            source,
        })
    }

    /// The file at `path` of the walk: none when it lies elsewhere, none inside of that when it was not made
    /// from a file of the version.
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

    /// The file at `path`. Must be called in the order of a walk.
    fn find(&mut self, path: &[u8]) -> Result<Option<(Content, Time)>> {
        while self.next.is_some() || self.advance()? {
            match (compare_paths(&self.path, path), self.next.take()) {
                (Ordering::Less, _) => {}
                (Ordering::Equal, Some(Thing::File { key, time, .. })) if time != NEVER => {
                    return Ok(Some((key.content, time)));
                }
                // There may be more of it under this path.
                (Ordering::Equal, _) => {}
                (Ordering::Greater, next) => {
                    self.next = next;
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Goes to the next entry; false at the end.
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

/// A relative path as what paths below it begin with.
fn prefix(path: &Path) -> Vec<u8> {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    if !bytes.is_empty() {
        bytes.push(b'/');
    }
    bytes
}
