//! The walk over the trees of one version, which requests the files of the copy.
//!
//! A list of open directories replaces recursion, since a tree may be deeper than a stack.

use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, Mode, OFlags};

use super::beside::{Beside, Disowned, Own};
use super::file::{Access, FileSink};
use super::place::{CopyPlace, Ground};
use super::{GetReport, GetRequest, NAMED_MAX};
use crate::error::{Error, Result};
use crate::format::{Node, Time, TreeEntry};
use crate::fs::stamps;
use crate::graph::links::{FlattenLimit, Leads, Links};
use crate::progress::Progress;
use crate::read::fetch::Requests;
use crate::read::{Found, Reader};
use crate::remedy::{Note, Remedy};
use crate::wanted::Wanted;

/// The walk over the trees of one version.
pub(super) struct Copy<'g> {
    reader: &'g Reader<'g>,
    beside: Beside<'g>,
    progress: &'g dyn Progress,
    /// Counts attributes that could not be set.
    disowned: &'g Disowned,
    wanted: Wanted,
    /// Follows symlinks, if they are to be flattened.
    links: Option<(Links<'g>, FlattenLimit)>,
    /// The path from the root of the version to the current directory, with symlinks resolved.
    canonical: Vec<Vec<u8>>,
    /// Whether the copy itself is the target of a symlink.
    is_elsewhere: bool,
    /// The path of the current entry within the copy; maintained only if something needs it.
    path: Vec<u8>,
    /// The permission bits that entries may have; the umask reduces them further.
    access: Access,
    /// Directories with their attributes, which are set when nothing more is written into them.
    directories: Vec<(CopyPlace, Own)>,
    /// Symlinks with the index of their directory; none for the copy itself.
    symlinks: Vec<(Option<usize>, Box<[u8]>)>,
    pub(super) report: GetReport,
}

/// A directory that the walk is in.
struct Open {
    entries: std::vec::IntoIter<TreeEntry>,
    /// Its index among the directories.
    number: usize,
    /// The length of its path within the copy.
    path_len: usize,
    /// How [`Copy::canonical`] is restored when the walk leaves the directory.
    before: Before,
    /// The attributes of the flattened symlink that leads here, if one does; they apply to everything below.
    own: Option<Own>,
}

/// How to return to the directory above.
enum Before {
    /// Drop the last name.
    Above,
    /// Restore this path: the directory was entered through a symlink.
    Elsewhere(Vec<Vec<u8>>),
}

impl<'g> Copy<'g> {
    pub(super) fn new(
        reader: &'g Reader<'g>,
        beside: Beside<'g>,
        progress: &'g dyn Progress,
        request: &GetRequest,
        found: &Found,
        wanted: Wanted,
        disowned: &'g Disowned,
    ) -> Self {
        let root = Node::from(found.version.root);
        let limit = FlattenLimit::of(&root);
        let links = request.flatten.then(|| (Links::new(reader, root), limit));
        let names = request.spec.path.split(|byte| *byte == b'/');
        let is_private = found.version.private && !request.readable;
        let note = || {
            let text = "only their owner could read the files when they were put: the copy is for you alone";
            Note::with(text, Remedy::LetOthersRead)
        };
        Self {
            reader,
            beside,
            progress,
            disowned,
            wanted,
            links,
            canonical: names
                .filter(|name| !name.is_empty())
                .map(<[u8]>::to_vec)
                .collect(),
            is_elsewhere: false,
            path: Vec::new(),
            access: Access {
                bits: if is_private { 0o700 } else { 0o777 },
            },
            directories: Vec::new(),
            symlinks: Vec::new(),
            report: GetReport {
                name: request.spec.name.clone(),
                version: found.number,
                files: 0,
                directories: 0,
                symlinks: 0,
                dangling: 0,
                bytes: 0,
                notes: is_private.then(note).into_iter().collect(),
            },
        }
    }

    /// Whether only one user may access the copy.
    pub(super) fn is_private(&self) -> bool {
        self.access.bits & 0o077 == 0
    }

    /// The node to copy: `node`, or its target if it is a symlink and symlinks are flattened.
    pub(super) fn top(&mut self, node: &Node) -> Result<Node> {
        let (Some((links, _)), Node::Symlink { target }) = (&mut self.links, node) else {
            return Ok(node.clone());
        };
        let above = self
            .canonical
            .split_last()
            .map_or(&[][..], |(_, above)| above);
        match links.follow(above, target)? {
            Leads::To(node, canonical) => {
                self.canonical = canonical;
                self.is_elsewhere = true;
                Ok(node)
            }
            Leads::Nowhere | Leads::Outside => Err(leads_nowhere(b"", target)),
        }
    }

    /// Makes the copy on `ground`.
    pub(super) fn run<'s>(
        &mut self,
        node: Node,
        ground: &'s Ground,
        requests: &mut Requests<'_, FileSink<'s>>,
    ) -> Result<()>
    where
        'g: 's,
    {
        let own = self.beside.next()?;
        let mut open: Vec<Open> = Vec::new();
        match node {
            Node::Tree { content, .. } => {
                let entries = self.reader.tree(&content)?;
                let below = self.directory(ground, CopyPlace::top(), entries, own.clone())?;
                open.push(Open {
                    own: self.is_elsewhere.then_some(own),
                    ..below
                });
            }
            node => self.leaf(ground, (None, CopyPlace::top(), b""), node, own, requests)?,
        }
        while let Some(here) = open.last_mut() {
            let Some(entry) = here.entries.next() else {
                let left = open.pop();
                match left.map(|left| left.before) {
                    Some(Before::Elsewhere(before)) => self.canonical = before,
                    _ => drop(self.canonical.pop()),
                }
                continue;
            };
            let own = match &here.own {
                Some(own) => own.clone(),
                None => self.beside.next()?,
            };
            if self.links.is_some() || !self.wanted.is_everything() {
                self.path.truncate(here.path_len);
                if !self.path.is_empty() {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(&entry.name);
            }
            if !self.wanted.takes(self.reader, &self.path, &entry.node)? {
                if let (Node::Tree { totals, .. }, None) = (&entry.node, &here.own) {
                    self.beside.skip(totals.entries)?;
                }
                continue;
            }
            let at = (here.number, here.own.clone());
            if let Some(below) = self.entry(ground, at, entry, own, requests)? {
                open.push(below);
            }
        }
        Ok(())
    }

    /// Makes one entry of the directory with the index `above`. Returns a directory, for the walk to enter.
    fn entry<'s>(
        &mut self,
        ground: &'s Ground,
        (above, inherited): (usize, Option<Own>),
        entry: TreeEntry,
        own: Own,
        requests: &mut Requests<'_, FileSink<'s>>,
    ) -> Result<Option<Open>>
    where
        'g: 's,
    {
        let place = match self.directories.get(above) {
            Some((place, _)) => place.child(&entry.name),
            None => CopyPlace::top(),
        };
        let mut before = Before::Above;
        let mut inherited = inherited;
        let mut node = entry.node;
        if let (Node::Symlink { target }, Some((links, limit))) = (&node, &mut self.links) {
            let target = target.clone();
            match links.follow(&self.canonical, &target)? {
                Leads::To(Node::Tree { .. }, to) if self.canonical.starts_with(&to) => {
                    return Err(leads_nowhere(&self.path, &target));
                }
                Leads::To(found, to) => {
                    if matches!(found, Node::Tree { .. }) {
                        inherited = Some(own.clone());
                        before = Before::Elsewhere(std::mem::replace(&mut self.canonical, to));
                    }
                    node = found;
                }
                Leads::Nowhere | Leads::Outside => return Err(leads_nowhere(&self.path, &target)),
            }
            limit.spend(&self.path)?;
        } else if inherited.is_some()
            && let Some((_, limit)) = &mut self.links
        {
            limit.spend(&self.path)?;
        }
        let Node::Tree { content, .. } = node else {
            let at = (Some(above), place, &*entry.name);
            self.leaf(ground, at, node, own, requests)?;
            return Ok(None);
        };
        if matches!(before, Before::Above) {
            self.canonical.push(entry.name);
        }
        let entries = self.reader.tree(&content)?;
        let below = self.directory(ground, place, entries, own)?;
        Ok(Some(Open {
            before,
            own: inherited,
            ..below
        }))
    }

    /// Makes a directory, and returns it for the walk to enter.
    fn directory(
        &mut self,
        ground: &Ground,
        place: CopyPlace,
        entries: Vec<TreeEntry>,
        own: Own,
    ) -> Result<Open> {
        self.reader.store().host().check_stop()?;
        self.report.directories += 1;
        self.progress.advance(1, 0);
        let mode = self
            .access
            .mode(own.mode.map_or(0o777, |mode| mode | 0o700));
        ground
            .at(&place, |dir, path| fs::mkdirat(dir, path, mode))
            .map_err(|errno| ground.failed("create directory", &place, errno))?;
        self.directories.push((place, own));
        Ok(Open {
            entries: entries.into_iter(),
            number: self.directories.len() - 1,
            path_len: self.path.len(),
            before: Before::Above,
            own: None,
        })
    }

    /// Makes a symlink, or requests a file.
    fn leaf<'s>(
        &mut self,
        ground: &'s Ground,
        (above, place, name): (Option<usize>, CopyPlace, &[u8]),
        node: Node,
        own: Own,
        requests: &mut Requests<'_, FileSink<'s>>,
    ) -> Result<()>
    where
        'g: 's,
    {
        match node {
            Node::File {
                content,
                executable,
            } => {
                self.report.files += 1;
                self.report.bytes += content.size;
                let sink = FileSink {
                    ground,
                    place,
                    executable,
                    access: self.access,
                    own,
                    disowned: self.disowned,
                    progress: self.progress,
                };
                requests.push(sink, &content)
            }
            Node::Symlink { target } => {
                self.report.symlinks += 1;
                self.progress.advance(1, 0);
                self.symlinks.push((above, name.into()));
                ground
                    .at(&place, |dir, path| fs::symlinkat(&*target, dir, path))
                    .map_err(|errno| ground.failed("create symlink", &place, errno))?;
                ground
                    .at(&place, |dir, path| {
                        own.dress_symlink((dir, path), self.disowned)
                    })
                    .map_err(|errno| ground.failed("set the owner of", &place, errno))?;
                set_time(ground, &place, own.time)
            }
            Node::Tree { .. } => Ok(()),
        }
    }

    /// Sets the attributes of directories, except the mode of the copy itself: without write permission it could not be
    /// moved.
    pub(super) fn finish_directories(&self, ground: &Ground) -> Result<()> {
        let directories = self.directories.iter().enumerate().rev();
        directories
            .into_iter()
            .try_for_each(|(number, (place, own))| {
                if number > 0 && own.is_kept() {
                    let dir = open_directory(ground, place)?;
                    own.dress_directory(&dir, self.disowned)
                        .map_err(|errno| ground.failed("set the mode of", place, errno))?;
                }
                set_time(ground, place, own.time)
            })
    }

    /// Opens the directory that is the copy, so that its mode can be set after the rename, when its path may have
    /// changed.
    pub(super) fn open_top(&self, ground: &Ground) -> Result<Option<(OwnedFd, Own)>> {
        match self.directories.first() {
            Some((place, own)) if own.is_kept() => {
                Ok(Some((open_directory(ground, place)?, own.clone())))
            }
            _ => Ok(None),
        }
    }

    /// Checks which symlinks of the finished copy dangle, and adds a note about them.
    pub(super) fn note_dangling(&mut self, ground: &Ground) {
        let mut named = Vec::new();
        for (above, name) in &self.symlinks {
            let above = above.and_then(|above| self.directories.get(above));
            let place = above.map_or_else(CopyPlace::top, |(place, _)| place.child(name));
            let found = ground.at(&place, |dir, path| {
                fs::statat(dir, path, AtFlags::empty()).map(drop)
            });
            if matches!(
                found,
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP)
            ) {
                self.report.dangling += 1;
                if named.len() < NAMED_MAX {
                    named.push(ground.shown(&place).display().to_string());
                }
            }
        }
        if self.report.dangling == 0 {
            return;
        }
        let more = self.report.dangling.saturating_sub(named.len() as u64);
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!(
            "{} of {} symlinks lead to nothing that is there: {}{more}",
            self.report.dangling,
            self.report.symlinks,
            named.join(", "),
        );
        self.report.notes.push(match self.links {
            None => Note::with(text, Remedy::FlattenLinks),
            Some(_) => text.into(),
        });
    }
}

fn leads_nowhere(path: &[u8], target: &[u8]) -> Error {
    Error::invalid(format!(
        "{}: symlink to {}: leads to nothing that could take its place",
        path.escape_ascii(),
        target.escape_ascii()
    ))
    .hint(Remedy::ExcludeOrLeaveLinks)
}

fn open_directory(ground: &Ground, place: &CopyPlace) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    ground
        .at(place, |dir, path| {
            fs::openat(dir, path, flags, Mode::empty())
        })
        .map_err(|errno| ground.failed("open", place, errno))
}

fn set_time(ground: &Ground, place: &CopyPlace, time: Time) -> Result<()> {
    ground
        .at(place, |dir, path| {
            fs::utimensat(dir, path, &stamps(time), AtFlags::SYMLINK_NOFOLLOW)
        })
        .map_err(|errno| ground.failed("set the time of", place, errno))
}
