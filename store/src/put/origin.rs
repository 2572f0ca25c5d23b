//! What a tree was materialized from, read beside the walk of a put: the contents and times of its files.
//!
//! The pool's record of the tree says it; where an earlier pool has none, the version. What cannot be read any more
//! costs times and never the put.

use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Result;
use crate::format::{At, Content, Node, RefSpec, Time, TreeEntry};
use crate::host::list::{ListReader, NEVER, Thing, checksum};
use crate::host::pool::{Mark, Pool};
use crate::host::walk::compare_paths;
use crate::read::{Reader, TimesReader};

/// A tree that was made here, and what it was made from.
pub(super) struct Origin<'p> {
    /// Where it begins in the walk; empty, or with a `/` at its end.
    at: Vec<u8>,
    /// Where in it the walk begins, likewise.
    inside: Vec<u8>,
    /// None when it could not be read (any further).
    files: Option<Source<'p>>,
    source: String,
    /// What was made is for one user alone.
    is_private: bool,
}

/// Where the files of a tree are told.
enum Source<'p> {
    Record(Recorded),
    Version(Box<Files<'p>>),
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

/// The files of a version and their times, in the order of a walk.
pub(super) struct Files<'p> {
    reader: &'p Reader<'p>,
    times: TimesReader<'p>,
    /// Directories on the way down: what is left in them, and how long their path is.
    open: Vec<(std::vec::IntoIter<TreeEntry>, usize)>,
    path: Vec<u8>,
    /// What is at `path`, until it was passed.
    next: Option<(Node, Time)>,
}

impl<'p> Origin<'p> {
    /// Of the tree of `mark`; none when it has nothing to do with what is below `root`.
    pub(super) fn new(
        pool: &Pool,
        mark: &Mark,
        reader: &'p Reader<'p>,
        root: &Path,
    ) -> Option<Self> {
        let made = mark.path();
        let (at, inside) = match (made.strip_prefix(root), root.strip_prefix(&made)) {
            (Ok(below), _) => (prefix(below), Vec::new()),
            (_, Ok(above)) => (Vec::new(), prefix(above)),
            _ => return None,
        };
        let source = format!("{} version {}", mark.source, mark.version);
        let files = Source::of(pool, mark, reader).ok().flatten();
        Some(Self {
            at,
            inside,
            files,
            source,
            is_private: mark.is_private(),
        })
    }

    /// What paths of the walk begin with that come from a version for one user alone; none when it was for others.
    pub(super) fn private_below(&self) -> Option<&[u8]> {
        self.is_private.then_some(&*self.at)
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

impl<'p> Source<'p> {
    fn of(pool: &Pool, mark: &Mark, reader: &'p Reader<'p>) -> Result<Option<Self>> {
        if mark.store != reader.store().format().id || !mark.is_settled {
            return Ok(None);
        }
        if let Some(record) = Recorded::of(pool, mark)? {
            return Ok(Some(Self::Record(record)));
        }
        let files = Files::of(mark, reader)?;
        Ok(files.map(|files| Self::Version(Box::new(files))))
    }

    fn find(&mut self, path: &[u8]) -> Result<Option<(Content, Time)>> {
        match self {
            Self::Record(record) => record.find(path),
            Self::Version(files) => files.find(path),
        }
    }
}

impl Recorded {
    fn of(pool: &Pool, mark: &Mark) -> Result<Option<Self>> {
        let Some(name) = &mark.record else {
            return Ok(None);
        };
        let Some(file) = pool.record(&mark.path(), name)? else {
            return Ok(None);
        };
        if !checksum(&file).is_ok_and(|sum| sum.is_some()) {
            return Ok(None);
        }
        Ok(Some(Self {
            list: ListReader::new(file)?,
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

impl<'p> Files<'p> {
    /// Of the version that `mark` names, if it is still what the tree was made from.
    fn of(mark: &Mark, reader: &'p Reader<'p>) -> Result<Option<Self>> {
        let mut spec: RefSpec = mark.source.parse()?;
        spec.version = Some(At::Number(mark.version));
        let found = reader.resolve(&spec)?;
        let Node::Tree { content, .. } = &found.node else {
            return Ok(None);
        };
        if mark.tree != Some(*content) {
            return Ok(None);
        }
        let mut times = TimesReader::of(reader, &found.version)?;
        times.skip(found.entries_before)?;
        Self::new(reader, times, content).map(Some)
    }

    /// Below the tree `content`, whose time is the next one in `times`.
    pub(super) fn new(
        reader: &'p Reader<'p>,
        mut times: TimesReader<'p>,
        content: &Content,
    ) -> Result<Self> {
        times.skip(1)?;
        Ok(Self {
            reader,
            times,
            open: vec![(reader.tree(content)?.into_iter(), 0)],
            path: Vec::new(),
            next: None,
        })
    }

    /// The next file, whatever is before it opened.
    pub(super) fn next_file(&mut self) -> Result<Option<(Content, Time)>> {
        while self.advance()? {
            match self.next.take() {
                Some((Node::Tree { content, .. }, _)) => self.enter(&content)?,
                Some((Node::File { content, .. }, time)) => return Ok(Some((content, time))),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The file at `path`. Must be called in the order of a walk.
    fn find(&mut self, path: &[u8]) -> Result<Option<(Content, Time)>> {
        while self.next.is_some() || self.advance()? {
            let is_inside = path
                .strip_prefix(&*self.path)
                .is_some_and(|rest| rest.starts_with(b"/"));
            match (compare_paths(&self.path, path), self.next.take()) {
                (Ordering::Less, Some((Node::Tree { content, .. }, _))) if is_inside => {
                    self.enter(&content)?;
                }
                (Ordering::Less, Some((Node::Tree { totals, .. }, _))) => {
                    self.times.skip(totals.entries)?;
                }
                (Ordering::Less, _) => {}
                (Ordering::Equal, Some((Node::File { content, .. }, time))) => {
                    return Ok(Some((content, time)));
                }
                (_, next) => {
                    self.next = next;
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    fn enter(&mut self, content: &Content) -> Result<()> {
        self.path.push(b'/');
        let entries = self.reader.tree(content)?.into_iter();
        self.open.push((entries, self.path.len()));
        Ok(())
    }

    /// Goes to the next entry; false at the end.
    fn advance(&mut self) -> Result<bool> {
        while let Some((entries, len)) = self.open.last_mut() {
            self.path.truncate(*len);
            if let Some(entry) = entries.next() {
                self.path.extend_from_slice(&entry.name);
                self.next = Some((entry.node, self.times.next()?));
                return Ok(true);
            }
            self.open.pop();
        }
        Ok(false)
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
