//! The wanted tree: the tree of a ref, filtered and flattened as requested, entry by entry with its times.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::diff::Wants;
use super::list::Thing;
use super::{MaterializeRequest, Task, shown};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Content, Node, Time, TreeEntry};
use crate::graph::links::{FlattenLimit, Leads, Links};
use crate::host::disk;
use crate::host::pool::PoolKey;
use crate::read::{Reader, TimesReader};
use crate::remedy::{Note, Remedy};
use crate::wanted::Wanted as Globbed;

/// The largest file that may be a ref of a hub cache; some clients rewrite those in place.
const HUB_REF_BYTES_MAX: u64 = 256;
/// Most links out of the destination that are counted, and that are named.
const OUTSIDE_MAX: usize = 1000;
const NAMED_MAX: usize = 5;

/// A walk over the wanted tree.
pub(super) struct Wanted<'m> {
    reader: &'m Reader<'m>,
    request: &'m MaterializeRequest,
    filter: Globbed,
    times: TimesReader<'m>,
    /// Resolves symlinks relative to the destination.
    inside: Links<'m>,
    /// Resolves symlinks relative to the root of the version, to flatten them.
    whole: Links<'m>,
    limit: FlattenLimit,
    levels: Vec<Level>,
    /// The current path below the destination.
    path: Vec<Vec<u8>>,
    /// The current path in the version, with symlinks resolved.
    canonical: Vec<Vec<u8>>,
    next: Option<Below>,
    /// Whether the version is private.
    is_for_one: bool,
    /// Whether every file is copied.
    is_copied: bool,
    outside: Outside,
}

/// Paths of links that are made although they lead out of the destination; no more than a note can use.
#[derive(Clone, Default)]
pub(super) struct Outside(Arc<Mutex<BTreeSet<Vec<u8>>>>);

struct Level {
    entries: std::vec::IntoIter<TreeEntry>,
    /// The time of the flattened symlink that leads here, if one does; it applies to everything below.
    time: Option<Time>,
    /// Where the walk was before it went through a flattened symlink.
    came_from: Option<Vec<Vec<u8>>>,
}

/// The directory that was returned last.
struct Below {
    name: Vec<u8>,
    content: Content,
    time: Option<Time>,
    /// The number of its entries, whose times are skipped with it.
    entries: u64,
    /// The path that a flattened symlink leads to.
    canonical: Option<Vec<Vec<u8>>>,
}

impl<'m> Wanted<'m> {
    pub(super) fn new(task: &Task<'m>) -> Result<Self> {
        let mut times = TimesReader::of(task.reader, &task.found.version)?;
        times.skip(task.found.entries_before)?;
        let names = task.request.spec.path.split(|byte| *byte == b'/');
        let names = names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec);
        let root = Node::from(task.found.version.root);
        Ok(Self {
            reader: task.reader,
            request: task.request,
            filter: Globbed::new(&task.request.include, &task.request.exclude)?,
            times,
            inside: Links::new(task.reader, task.found.node.clone()),
            limit: FlattenLimit::of(&root),
            whole: Links::new(task.reader, root),
            levels: Vec::new(),
            path: Vec::new(),
            canonical: names.collect(),
            next: None,
            is_for_one: task.is_private(),
            is_copied: false,
            outside: task.outside.clone(),
        })
    }

    /// Enters the root of the tree and returns its time.
    pub(super) fn begin(&mut self, content: &Content) -> Result<Time> {
        let time = self.times.next()?;
        let entries = self.reader.tree(content)?.into_iter();
        self.levels.push(Level {
            entries,
            time: None,
            came_from: None,
        });
        Ok(time)
    }

    /// Returns what is wanted, if that is a single file or symlink.
    pub(super) fn alone(&mut self, node: &Node) -> Result<Thing> {
        let time = self.times.next()?;
        let name = self.canonical.pop().unwrap_or_default();
        // A private file is copied: no private directory protects it here, and pool files are readable by others.
        self.is_copied = self.is_for_one;
        self.thing(&name, node, time, None)
    }

    fn thing(
        &mut self,
        name: &[u8],
        node: &Node,
        time: Time,
        inherited: Option<Time>,
    ) -> Result<Thing> {
        match node {
            Node::Tree { content, totals } => {
                self.next = Some(Below {
                    name: name.to_vec(),
                    content: *content,
                    time: inherited,
                    entries: totals.entries,
                    canonical: None,
                });
                Ok(Thing::Dir { time })
            }
            Node::Symlink { target } if self.request.flatten => self.flattened(name, target, time),
            Node::Symlink { target } => {
                self.check_target(name, target)?;
                Ok(Thing::Symlink {
                    target: target.clone(),
                    time,
                })
            }
            Node::File {
                content,
                executable,
            } => Ok(self.file(content, *executable, time)),
        }
    }

    fn file(&self, content: &Content, executable: bool, time: Time) -> Thing {
        Thing::File {
            key: PoolKey {
                content: *content,
                executable,
            },
            time,
            is_private: self.is_private(content.size),
        }
    }

    /// Whether a file must be a private copy: tools edit small files in place, and clients rewrite refs of a hub cache.
    fn is_private(&self, size: u64) -> bool {
        let is_hub_ref =
            || size <= HUB_REF_BYTES_MAX && self.path.iter().any(|name| name == b"refs");
        self.is_copied || size <= self.request.copy_below_bytes || is_hub_ref()
    }

    /// Returns the target of a symlink in its place.
    fn flattened(&mut self, name: &[u8], target: &[u8], time: Time) -> Result<Thing> {
        match self.whole.follow(&self.canonical, target)? {
            Leads::To(
                Node::File {
                    content,
                    executable,
                },
                _,
            ) => Ok(self.file(&content, executable, time)),
            Leads::To(Node::Tree { content, .. }, canonical)
                if !self.canonical.starts_with(&canonical) =>
            {
                self.next = Some(Below {
                    name: name.to_vec(),
                    content,
                    time: Some(time),
                    entries: 0,
                    canonical: Some(canonical),
                });
                Ok(Thing::Dir { time })
            }
            Leads::To(..) | Leads::Nowhere | Leads::Outside => Err(Error::invalid(format!(
                "{}: symlink to {}: leads to nothing that could take its place",
                shown(&self.path_of(name)),
                shown(target)
            ))
            .hint(Remedy::ExcludeOrLeaveLinks)),
        }
    }

    fn check_target(&mut self, name: &[u8], target: &[u8]) -> Result<()> {
        // If nothing is written, nothing leads outside.
        let is_free = self.request.destination.is_none();
        if is_free || Links::stays_inside(self.path.len(), target) {
            return Ok(());
        }
        let Leads::Outside = self.inside.follow(&self.path, target)? else {
            return Ok(());
        };
        if self.request.allow_outside_symlinks {
            self.outside.add(self.path_of(name));
            return Ok(());
        }
        // A link that leads out of the requested part may still lead to something in the version.
        let has_file = !self.request.spec.path.is_empty()
            && matches!(self.whole.follow(&self.canonical, target)?, Leads::To(..));
        let error = Error::new(
            ErrorKind::Denied,
            format!(
                "{}: symlink to {} leads out of the destination",
                shown(&self.path_of(name)),
                shown(target)
            ),
        );
        Err(error.hint(if has_file {
            Remedy::FlattenOrExclude
        } else {
            Remedy::ExcludeOrAllowOutside
        }))
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path.join(&b'/');
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    fn is_wanted(&self, entry: &TreeEntry) -> Result<bool> {
        if self.filter.is_everything() {
            return Ok(true);
        }
        let path = self.path_of(&entry.name);
        self.filter.takes(self.reader, &path, &entry.node)
    }

    /// Skips the times of entries that are not wanted.
    fn pass_over(&mut self, entries: u64, inherited: Option<Time>) -> Result<()> {
        match inherited {
            None => self.times.skip(entries),
            Some(_) => Ok(()),
        }
    }
}

impl Outside {
    fn add(&self, path: Vec<u8>) {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.len() < OUTSIDE_MAX {
            paths.insert(path);
        }
    }

    pub(super) fn note(&self) -> Option<Note> {
        let paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let named: Vec<_> = paths.iter().take(NAMED_MAX).collect();
        let names: Vec<_> = named.iter().map(|path| shown(path).to_string()).collect();
        let what = match paths.len() {
            0 => return None,
            1 => "1 symlink leads".to_owned(),
            OUTSIDE_MAX => format!("{OUTSIDE_MAX} symlinks or more lead"),
            count => format!("{count} symlinks lead"),
        };
        let more = match paths.len() - named.len() {
            0 => "",
            _ => ", ...",
        };
        Some(format!("{what} out of the destination: {}{more}", names.join(", ")).into())
    }
}

impl Wants for Wanted<'_> {
    fn next(&mut self) -> Result<Option<(Vec<u8>, Thing)>> {
        loop {
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            let inherited = level.time;
            let Some(entry) = level.entries.next() else {
                let level = self.levels.pop();
                self.path.pop();
                self.canonical.pop();
                if let Some(came_from) = level.and_then(|level| level.came_from) {
                    self.canonical = came_from;
                }
                return Ok(None);
            };
            let time = match inherited {
                Some(time) => time,
                None => self.times.next()?,
            };
            if self.is_wanted(&entry)? {
                let is_link = matches!(entry.node, Node::Symlink { .. });
                if self.request.flatten && (is_link || inherited.is_some()) {
                    self.limit.spend(&self.path_of(&entry.name))?;
                }
                let thing = self.thing(&entry.name, &entry.node, time, inherited)?;
                return Ok(Some((entry.name, thing)));
            }
            if let Node::Tree { totals, .. } = &entry.node {
                self.pass_over(totals.entries, inherited)?;
            }
        }
    }

    fn enter(&mut self) -> Result<()> {
        let Some(below) = self.next.take() else {
            return Ok(());
        };
        if self.path.len() >= disk::DEPTH_MAX {
            return Err(disk::too_deep(Path::new(
                &shown(&self.path.join(&b'/')).to_string(),
            )));
        }
        self.reader.store().host().check_stop()?;
        let entries = self.reader.tree(&below.content)?.into_iter();
        let came_from = match below.canonical {
            Some(canonical) => Some(std::mem::replace(&mut self.canonical, canonical)),
            None => {
                self.canonical.push(below.name.clone());
                None
            }
        };
        self.path.push(below.name);
        self.levels.push(Level {
            entries,
            time: below.time,
            came_from,
        });
        Ok(())
    }

    fn skip(&mut self) -> Result<()> {
        match self.next.take() {
            Some(below) => self.pass_over(below.entries, below.time),
            None => Ok(()),
        }
    }

    fn selects(&self, path: &[u8], is_dir: bool) -> bool {
        self.filter.selects(path, is_dir)
    }
}
