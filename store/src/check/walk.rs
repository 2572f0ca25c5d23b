//! The walk over refs: checks that every version has all its trees, lists, times and chunks.
//!
//! Intact parts are walked only once, tracked with one bit per chunk. Damaged parts are walked wherever they occur, so
//! that every affected path is named. The walk continues after damage, with one hit per path.

use std::collections::HashSet;

use super::{Damage, Finding, Hit, Part, VerifyReport};
use crate::error::{Error, Result};
use crate::format::{
    Content, Keep, Node, RefName, RefState, Root, Side, Target, Totals, TreeEntry, Version,
    pack_key,
};
use crate::id::{ChunkId, PackId};
use crate::index::{Index, Location, Marks, Position};
use crate::read::{KeptReader, Reader, TimesReader};
use crate::remedy::Remedy;
use crate::store::{Store, View};

/// The walk.
pub(super) struct RefWalk<'w> {
    reader: Reader<'w>,
    view: &'w View,
    damage: &'w Damage,
    report: &'w mut VerifyReport,
    whole_lists: Marks,
    whole_trees: Marks,
    /// Packs that hold something that was walked.
    pub(super) packs: HashSet<PackId>,
    /// Packs whose metadata turned out to be unreadable during the walk.
    unreadable: HashSet<PackId>,
    /// The version that is being walked, and the path in it.
    at: Option<(RefName, u64)>,
    path: Vec<u8>,
}

/// A tree whose entries are being walked.
struct OpenTree {
    at: Option<Position>,
    totals: Totals,
    entries: std::vec::IntoIter<TreeEntry>,
    sum: Totals,
    is_whole: bool,
    /// The length of its path.
    path_len: usize,
}

enum Entered {
    /// Whether the tree is intact is already known, or it cannot be read.
    Known(bool),
    Open(OpenTree),
}

impl<'w> RefWalk<'w> {
    pub(super) fn new(
        store: &'w Store,
        view: &'w View,
        damage: &'w Damage,
        report: &'w mut VerifyReport,
    ) -> Self {
        let unreadable = report
            .findings
            .iter()
            .filter_map(|finding| match finding.part {
                Part::Pack(pack) => Some(pack),
                _ => None,
            });
        Self {
            reader: Reader::at(store, view.clone()),
            whole_lists: view.index.marks(),
            whole_trees: view.index.marks(),
            packs: HashSet::new(),
            unreadable: unreadable.collect(),
            view,
            damage,
            report,
            at: None,
            path: Vec::new(),
        }
    }

    /// Walks all live versions, or those of `target`.
    pub(super) fn versions(&mut self, target: Option<&Target>) -> Result<()> {
        let view = self.view;
        let named = match target {
            Some(Target::Ref(spec)) => view.state.number(&spec.name, spec.version.as_ref())?,
            _ => None,
        };
        let is_wanted = |name: &RefName, number: u64| match target {
            None => true,
            Some(Target::Namespace(namespace)) => namespace.contains(name),
            Some(Target::Ref(spec)) => spec.name == *name && named.is_none_or(|one| one == number),
        };
        let within = match target {
            Some(Target::Namespace(namespace)) => Some(namespace.clone()),
            Some(Target::Ref(spec)) => Some(spec.name.namespace()),
            None => None,
        };
        for found in view.state.refs.within(within.as_ref()) {
            let (name, RefState { versions, .. }) = found?;
            for (number, version) in &versions {
                if is_wanted(&name, *number) {
                    self.version(&name, *number, version)?;
                }
            }
        }
        if let (Some(Target::Namespace(namespace)), 0) = (target, self.report.versions) {
            return Err(Error::not_found(format!("{namespace}: no such namespace"))
                .hint(Remedy::ListNamespaces));
        }
        Ok(())
    }

    fn version(&mut self, name: &RefName, number: u64, version: &Version) -> Result<()> {
        self.report.versions += 1;
        self.at = Some((name.clone(), number));
        self.path.clear();
        let times = version.times();
        // A version without times has no such list.
        if times != Content::empty() && self.content(&times)? {
            self.times(version)?;
        }
        for side in version.sides.others() {
            if self.content(&side.content)? {
                self.kept(version, side)?;
            }
        }
        self.node(&version.root.into()).map(drop)
    }

    /// Whether everything below `node` is intact.
    fn node(&mut self, node: &Node) -> Result<bool> {
        match node {
            Node::Symlink { .. } => Ok(true),
            Node::File { content, .. } => self.content(content),
            Node::Tree { content, totals } => self.tree(content, totals),
        }
    }

    /// Like [`Self::node`], for a tree. Open trees are on the heap, since trees may be too deep for the stack.
    fn tree(&mut self, content: &Content, totals: &Totals) -> Result<bool> {
        let mut open = match self.enter(content, totals)? {
            Entered::Known(is_whole) => return Ok(is_whole),
            Entered::Open(tree) => vec![tree],
        };
        loop {
            let Some(tree) = open.last_mut() else {
                return Ok(true);
            };
            self.path.truncate(tree.path_len);
            let Some(entry) = tree.entries.next() else {
                let Some(tree) = open.pop() else {
                    return Ok(true);
                };
                let is_whole = self.leave(tree);
                match open.last_mut() {
                    Some(above) => above.is_whole &= is_whole,
                    None => return Ok(is_whole),
                }
                continue;
            };
            if tree.path_len > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&entry.name);
            tree.sum.add(&entry.node);
            match &entry.node {
                Node::Tree { content, totals } => match self.enter(content, totals)? {
                    Entered::Known(is_whole) => tree.is_whole &= is_whole,
                    Entered::Open(below) => open.push(below),
                },
                node => tree.is_whole &= self.node(node)?,
            }
        }
    }

    fn enter(&mut self, content: &Content, totals: &Totals) -> Result<Entered> {
        self.reader.store().host().check_stop()?;
        let at = self.index().position(&content.root)?;
        if at.is_some_and(|at| self.whole_trees.has(at)) {
            return Ok(Entered::Known(true));
        }
        if !self.content(content)? {
            return Ok(Entered::Known(false));
        }
        match self.reader.tree(content) {
            Ok(entries) => Ok(Entered::Open(OpenTree {
                at,
                totals: *totals,
                entries: entries.into_iter(),
                sum: Totals::default(),
                is_whole: true,
                path_len: self.path.len(),
            })),
            Err(error) => self.unreadable(&content.root, error).map(Entered::Known),
        }
    }

    fn leave(&mut self, mut tree: OpenTree) -> bool {
        let (sum, totals) = (tree.sum, tree.totals);
        if sum != totals {
            tree.is_whole = false;
            let what = format!(
                "{} entries of {} bytes are below it, it says {} of {}",
                sum.entries, sum.bytes, totals.entries, totals.bytes
            );
            self.hit(Part::Version, what);
        }
        if let Some(at) = tree.at.filter(|_| tree.is_whole) {
            self.whole_trees.set(at);
        }
        tree.is_whole
    }

    fn content(&mut self, content: &Content) -> Result<bool> {
        match content.size {
            0 => Ok(true),
            size => self.list(&content.root, content.depth, size),
        }
    }

    /// Whether every chunk below `id` is offered and undamaged; reports the first that is not.
    fn list(&mut self, id: &ChunkId, depth: u8, size: u64) -> Result<bool> {
        let Some((position, location)) = self.find(id)? else {
            let what = format!("chunk {id}: {}", self.index().lack(id));
            self.hit(Part::Version, what);
            return Ok(false);
        };
        self.packs.insert(location.pack);
        if !self.bases(id, (position, location))? {
            return Ok(false);
        }
        if self.damage.hits(id, &location) {
            let what = format!("chunk {id} is damaged or missing");
            self.hit(Part::Pack(location.pack), what);
            return Ok(false);
        }
        let Some(level) = depth.checked_sub(1) else {
            if u64::from(location.len) == size {
                return Ok(true);
            }
            let what = format!(
                "chunk {id} has {} bytes, its list says {size}",
                location.len
            );
            self.hit(Part::Version, what);
            return Ok(false);
        };
        if self.whole_lists.has(position) {
            return Ok(true);
        }
        let node = match self.reader.list_node(id, level, size) {
            Ok(node) => node,
            Err(error) => return self.unreadable(id, error),
        };
        for child in &node.children {
            if !self.list(&child.id, level, child.size)? {
                return Ok(false);
            }
        }
        self.whole_lists.set(position);
        Ok(true)
    }

    /// Whether the bases of a chunk are undamaged, if it is in a delta.
    fn bases(&mut self, id: &ChunkId, (position, at): (Position, Location)) -> Result<bool> {
        for base in self.index().bases(position, &at)? {
            let Some(place) = self.index().find_plain(&base)? else {
                continue;
            };
            self.packs.insert(place.pack);
            if self.damage.hits(&base, &place) {
                let what = format!(
                    "chunk {id}: its frame, at offset {} of {}, is the difference to chunk {base}, which is damaged or missing",
                    at.frame_offset,
                    pack_key(at.pack)
                );
                self.hit(Part::Pack(place.pack), what);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Checks that there is exactly one time for each entry.
    fn times(&mut self, version: &Version) -> Result<()> {
        let entries = entries_of(version);
        let read = || {
            let mut times = TimesReader::strict(&self.reader, &version.times())?;
            times.skip(entries)?;
            match times.is_at_end() {
                true => Ok(()),
                false => Err(Error::corrupt(format!(
                    "list of times: has more than the {entries} of its tree"
                ))),
            }
        };
        match read() {
            Ok(()) => Ok(()),
            Err(error) => self.unreadable(&version.times().root, error).map(drop),
        }
    }

    /// Checks that there is exactly one attribute for each entry; side objects of unknown kinds are not checked.
    fn kept(&mut self, version: &Version, side: &Side) -> Result<()> {
        let Ok(keep) = side.kind.parse::<Keep>() else {
            return Ok(());
        };
        let read = || {
            let Some(mut kept) = KeptReader::of(&self.reader, keep, &version.sides)? else {
                return Ok(());
            };
            let entries = entries_of(version);
            kept.skip(entries)?;
            match kept.is_at_end() {
                true => Ok(()),
                false => Err(Error::corrupt(format!(
                    "list of {keep}: has more than the {entries} of its tree"
                ))),
            }
        };
        match read() {
            Ok(()) => Ok(()),
            Err(error) => self.unreadable(&side.content.root, error).map(drop),
        }
    }

    /// Reports metadata that cannot be read or decoded; returns the error if it does not show damage.
    fn unreadable(&mut self, id: &ChunkId, error: Error) -> Result<bool> {
        if !error.is_damage() {
            return Err(error);
        }
        let cause = match self.find(id)? {
            Some((_, location)) => Part::Pack(location.pack),
            None => Part::Version,
        };
        if let Part::Pack(pack) = cause
            && self.reader.meta_chunk(id).is_err()
            && self.unreadable.insert(pack)
        {
            let finding = Finding::new(cause, pack_key(pack), error.to_string());
            self.report.findings.push(finding);
        }
        self.hit(cause, error.to_string());
        Ok(false)
    }

    fn hit(&mut self, cause: Part, what: String) {
        if let Some((name, version)) = self.at.clone() {
            self.report.hit(Hit {
                name,
                version,
                path: self.path.clone(),
                cause,
                what,
            });
        }
    }

    fn find(&self, id: &ChunkId) -> Result<Option<(Position, Location)>> {
        let Some(position) = self.index().position(id)? else {
            return Ok(None);
        };
        Ok(Some((position, self.index().at(position)?.1)))
    }

    fn index(&self) -> &'w Index {
        &self.view.index
    }
}

/// Returns the number of entries of a version, including its root.
fn entries_of(version: &Version) -> u64 {
    match version.root {
        Root::File { .. } => 1,
        Root::Tree { totals, .. } => totals.entries.saturating_add(1),
    }
}
