//! The edit of a tree: which entries are removed, and what the directories and the times become.

use crate::error::{Error, ErrorKind, Result};
use crate::format::{Content, Node, Root, Time, Totals, TreeEntry, Version};
use crate::host::walk::Globs;
use crate::lists::Step;
use crate::read::{Reader, TimesReader};
use crate::shown::shown;

use super::TrimRequest;

/// Trees that are nested deeper than this are not edited.
const DEPTH_MAX: usize = 512;
/// Most paths that a report names.
const NAMED_MAX: usize = 1000;

/// Which files to remove; all conditions that are given must hold.
#[derive(Clone, Debug, Default)]
pub struct TrimFilter {
    /// Paths that match; a directory with everything in it.
    pub globs: Globs,
    /// Files larger than this.
    pub larger_than: Option<u64>,
    /// Files whose bytes changed before this.
    pub older_than: Option<Time>,
}

/// The entries that are removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Removed {
    /// Entries of all kinds.
    pub entries: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// The first paths; a directory that is removed whole is one path.
    #[serde(serialize_with = "crate::shown::as_texts")]
    pub paths: Vec<Vec<u8>>,
    /// The roots of what is removed; only in a dry run.
    #[serde(skip)]
    pub(super) roots: Vec<Root>,
}

/// Stores new directories.
pub(super) trait Write {
    fn tree(&mut self, entries: &[TreeEntry]) -> Result<Content>;
}

/// What happens to an entry.
enum Fate {
    Keep,
    Go,
    Into,
}

pub(super) struct Edit<'e, 'r> {
    reader: &'r Reader<'r>,
    request: &'e TrimRequest,
    writer: &'e mut dyn Write,
    times: TimesReader<'r>,
    path: Vec<u8>,
    found: Vec<bool>,
    removed: Removed,
    steps: Vec<Step>,
    kept: Vec<Root>,
    /// Whether anything except empty directories is left.
    is_any_left: bool,
}

/// The entries of an edited directory, and whether they changed.
type Edited = (Vec<TreeEntry>, bool);

impl TrimFilter {
    fn is_none(&self) -> bool {
        self.globs.is_empty() && !self.asks_of_files()
    }

    /// Whether files must be looked at one by one, so that no directory is removed whole.
    fn asks_of_files(&self) -> bool {
        self.larger_than.is_some() || self.older_than.is_some()
    }

    /// Whether the filter takes a file. Size and time of a symlink mean nothing, so only its name can select it.
    fn takes(&self, node: &Node, time: Time) -> bool {
        let size = match node {
            Node::File { content, .. } => content.size,
            _ if self.asks_of_files() => return false,
            _ => 0,
        };
        self.larger_than.is_none_or(|limit| size > limit)
            && self.older_than.is_none_or(|limit| time < limit)
    }
}

impl<'e, 'r> Edit<'e, 'r> {
    pub(super) fn new(
        reader: &'r Reader<'r>,
        request: &'e TrimRequest,
        version: &Version,
        writer: &'e mut dyn Write,
    ) -> Result<Self> {
        Ok(Self {
            times: TimesReader::of(reader, version)?,
            found: vec![false; request.paths.len()],
            reader,
            request,
            writer,
            path: Vec::new(),
            removed: Removed::default(),
            steps: Vec::new(),
            kept: Vec::new(),
            is_any_left: false,
        })
    }

    /// Edits the tree, and returns the root of what is left.
    pub(super) fn run(&mut self, content: &Content, totals: Totals) -> Result<Root> {
        self.times.next()?;
        self.steps.push(Step::Keep(1));
        let is_whole = self.request.paths.iter().any(Vec::is_empty);
        let entries = self.reader.tree(content)?;
        let (entries, _) = self.directory(entries, false, 0)?;
        let target = &self.request.target;
        let mut asked = self.request.paths.iter().zip(&self.found);
        if let Some((path, _)) = asked.find(|(path, found)| !**found && !path.is_empty()) {
            return Err(Error::not_found(format!(
                "{target}:{}: there is nothing",
                shown(path)
            )));
        }
        if self.removed.entries == 0 && self.removed.paths.is_empty() {
            return Err(Error::not_found(format!(
                "{target}: nothing in it is what was asked for"
            )));
        }
        if !self.is_any_left || (is_whole && self.request.filter.is_none()) {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "{target}: nothing would be left of {} entries",
                    totals.entries
                ),
            )
            .hint("drop the ref itself instead"));
        }
        Ok(Root::Tree {
            content: self.writer.tree(&entries)?,
            totals: totals_of(&entries),
        })
    }

    pub(super) fn into_parts(self) -> (Removed, Vec<Step>, Vec<Root>) {
        (self.removed, self.steps, self.kept)
    }

    fn directory(
        &mut self,
        entries: Vec<TreeEntry>,
        is_matched: bool,
        depth: usize,
    ) -> Result<Edited> {
        if depth >= DEPTH_MAX {
            return Err(Error::invalid(format!(
                "{}: more than {DEPTH_MAX} directories one in another",
                shown(&self.path)
            )));
        }
        self.reader.store().host().check_stop()?;
        let len = self.path.len();
        let (mut left, mut is_changed) = (Vec::new(), false);
        for entry in entries {
            self.path.truncate(len);
            if len > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&entry.name);
            match self.entry(&entry, is_matched, depth)? {
                Some((node, is_other)) => {
                    is_changed |= is_other;
                    left.push(TreeEntry {
                        name: entry.name,
                        node,
                    });
                }
                None => is_changed = true,
            }
        }
        self.path.truncate(len);
        Ok((left, is_changed))
    }

    /// Returns what an entry becomes, and whether that differs; none, if the entry is removed.
    fn entry(
        &mut self,
        entry: &TreeEntry,
        is_matched: bool,
        depth: usize,
    ) -> Result<Option<(Node, bool)>> {
        let time = self.times.next()?;
        let below = match &entry.node {
            Node::Tree { totals, .. } => totals.entries,
            _ => 0,
        };
        let is_tree = matches!(entry.node, Node::Tree { .. });
        let is_matched = is_matched || self.request.filter.globs.is_match(&self.path, is_tree);
        match (self.fate(&entry.node, time, is_matched), &entry.node) {
            (Fate::Into, Node::Tree { content, .. }) => {
                self.steps.push(Step::Keep(1));
                let entries = self.reader.tree(content)?;
                // A directory that becomes empty stays, as `rm` leaves it.
                let (entries, is_changed) = self.directory(entries, is_matched, depth + 1)?;
                let node = match is_changed {
                    false => entry.node.clone(),
                    true => Node::Tree {
                        content: self.writer.tree(&entries)?,
                        totals: totals_of(&entries),
                    },
                };
                Ok(Some((node, is_changed)))
            }
            (Fate::Go, node) => {
                self.times.skip(below)?;
                self.steps.push(Step::Pass(below + 1));
                self.find_below(node)?;
                self.remove(node);
                Ok(None)
            }
            (_, node) => {
                self.times.skip(below)?;
                self.steps.push(Step::Keep(below + 1));
                self.is_any_left |= !is_tree || below > 0;
                if self.request.dry_run {
                    self.kept.extend(root_of(node));
                }
                Ok(Some((node.clone(), false)))
            }
        }
    }

    fn fate(&mut self, node: &Node, time: Time, is_matched: bool) -> Fate {
        let filter = &self.request.filter;
        let is_tree = matches!(node, Node::Tree { .. });
        let (mut is_inside, mut leads_there) = (self.request.paths.is_empty(), false);
        for (path, found) in self.request.paths.iter().zip(&mut self.found) {
            let is_it = *path == self.path || path.is_empty();
            *found |= is_it;
            is_inside |= is_it || is_below(&self.path, path);
            leads_there |= is_below(path, &self.path);
        }
        let fits = filter.globs.is_empty() || is_matched;
        match (is_inside, is_tree) {
            (false, true) if leads_there => Fate::Into,
            (false, _) => Fate::Keep,
            (true, _) if filter.is_none() => Fate::Go,
            (true, true) if fits && !filter.asks_of_files() => Fate::Go,
            (true, true) => Fate::Into,
            (true, false) if fits && filter.takes(node, time) => Fate::Go,
            (true, false) => Fate::Keep,
        }
    }

    /// Marks the requested paths that are in a directory that is removed whole as found.
    fn find_below(&mut self, node: &Node) -> Result<()> {
        let Node::Tree { content, .. } = node else {
            return Ok(());
        };
        for (path, found) in self.request.paths.iter().zip(&mut self.found) {
            if !*found && is_below(path, &self.path) {
                let inside = path.get(self.path.len() + 1..).unwrap_or_default();
                *found = has(self.reader, content, inside)?;
            }
        }
        Ok(())
    }

    fn remove(&mut self, node: &Node) {
        let (entries, bytes) = match node {
            Node::Tree { totals, .. } => (totals.entries.saturating_add(1), totals.bytes),
            Node::File { content, .. } => (1, content.size),
            Node::Symlink { .. } => (1, 0),
        };
        self.removed.entries = self.removed.entries.saturating_add(entries);
        self.removed.bytes = self.removed.bytes.saturating_add(bytes);
        if self.removed.paths.len() < NAMED_MAX {
            self.removed.paths.push(self.path.clone());
        }
        if self.request.dry_run {
            self.removed.roots.extend(root_of(node));
        }
    }
}

/// Whether a tree has this path.
fn has(reader: &Reader<'_>, tree: &Content, path: &[u8]) -> Result<bool> {
    let mut tree = *tree;
    let mut names = path.split(|byte| *byte == b'/').peekable();
    while let Some(name) = names.next() {
        let entries = reader.tree(&tree)?;
        match entries.into_iter().find(|entry| entry.name == name) {
            Some(_) if names.peek().is_none() => return Ok(true),
            Some(entry) => match entry.node {
                Node::Tree { content, .. } => tree = content,
                _ => return Ok(false),
            },
            None => return Ok(false),
        }
    }
    Ok(false)
}

/// Whether `path` is below `dir`.
fn is_below(path: &[u8], dir: &[u8]) -> bool {
    let rest = path.strip_prefix(dir);
    dir.is_empty() || rest.is_some_and(|rest| rest.first() == Some(&b'/'))
}

fn root_of(node: &Node) -> Option<Root> {
    match node {
        Node::Tree { content, totals } => Some(Root::Tree {
            content: *content,
            totals: *totals,
        }),
        Node::File {
            content,
            executable,
        } => Some(Root::File {
            content: *content,
            executable: *executable,
        }),
        Node::Symlink { .. } => None,
    }
}

fn totals_of(entries: &[TreeEntry]) -> Totals {
    let mut totals = Totals::default();
    entries.iter().for_each(|entry| totals.add(&entry.node));
    totals
}
