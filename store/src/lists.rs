//! The lists beside a tree that was rewritten: its times, and the modes, owners and attributes that were kept.
//!
//! A rewrite goes through the old tree in depth-first order, as the lists do, and notes its steps. What stays keeps its
//! records.

use std::iter::Peekable;
use std::vec::IntoIter;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    Content, Keep, Kept, Node, RefName, Side, Sides, Time, TimesEncoder, TreeEntry, Version, Xattrs,
};
use crate::read::{KeptReader, Reader, TimesReader};
use crate::store::Store;
use crate::tree::{MetaBuilder, MetaSink};

/// What became of the next entries of the old tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many stay.
    Keep(u64),
    /// So many are not in the new tree.
    Pass(u64),
    /// One has other content: it gets a new time, and keeps the rest.
    Change,
    /// One is new, with these permissions. Its owner is that of the root, and it has no attributes.
    New { mode: u32 },
}

/// A rewrite of a version.
pub(crate) struct Rewrite<'r> {
    pub(crate) reader: &'r Reader<'r>,
    /// The version before, with its ref and number, if there is one.
    pub(crate) before: Option<(&'r RefName, u64, &'r Version)>,
    pub(crate) steps: &'r [Step],
    /// The time of new and changed entries.
    pub(crate) time: Time,
}

impl Step {
    /// A new entry.
    pub(crate) fn new(node: &Node) -> Self {
        let mode = match node {
            Node::Tree { .. }
            | Node::File {
                executable: true, ..
            } => 0o755,
            Node::File { .. } => 0o644,
            Node::Symlink { .. } => 0o777,
        };
        Self::New { mode }
    }
}

impl Rewrite<'_> {
    /// Writes the lists of the new tree.
    ///
    /// # Errors
    /// When chunks cannot be read; the errors of the sink. A list that is lost is a warning: the tree is as whole
    /// without it.
    pub(crate) fn sides(&self, sink: &mut MetaSink<'_>) -> Result<Sides> {
        let times = Sides::of_times(self.times(sink)?);
        let others = self.others(sink)?;
        Ok(others.into_iter().fold(times, Sides::with))
    }

    /// Writes the lists of the new tree, without its times.
    ///
    /// # Errors
    /// As [`Self::sides`].
    pub(crate) fn others(&self, sink: &mut MetaSink<'_>) -> Result<Vec<Side>> {
        let mut sides = Vec::new();
        let Some((name, number, version)) = self.before else {
            return Ok(sides);
        };
        for keep in Keep::ALL {
            match self.kept(keep, version, sink) {
                Ok(side) => sides.extend(side),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    self.reader.store().warn_of_part(Error::corrupt(format!(
                        "the {keep} of {name}@{number} are lost, and the new version has none: {error}"
                    )));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(sides)
    }

    fn times(&self, sink: &mut MetaSink<'_>) -> Result<Content> {
        let mut known = match self.before {
            Some((_, _, version)) => Some(TimesReader::of(self.reader, version)?),
            None => None,
        };
        let mut list = self.list();
        let mut encoder = TimesEncoder::new(&mut list.bytes);
        for step in self.steps {
            let (passed, kept, is_own) = match *step {
                Step::Keep(count) => (0, count, false),
                Step::Pass(count) => (count, 0, false),
                Step::Change => (1, 0, true),
                Step::New { .. } => (0, 0, true),
            };
            if let Some(known) = &mut known {
                known.skip(passed)?;
                for _ in 0..kept {
                    encoder.push(known.next()?, &mut list.bytes);
                    list.cut(sink)?;
                }
            }
            if is_own {
                encoder.push(self.time, &mut list.bytes);
                list.cut(sink)?;
            }
        }
        list.finish(sink)
    }

    /// Writes one list, if the version before has it.
    fn kept(&self, keep: Keep, version: &Version, sink: &mut MetaSink<'_>) -> Result<Option<Side>> {
        let open = || KeptReader::of(self.reader, keep, &version.sides);
        let (Some(mut known), Some(mut root)) = (open()?, open()?) else {
            return Ok(None);
        };
        let root = root.next()?;
        let mut list = self.list();
        keep.begin(&mut list.bytes);
        for step in self.steps {
            let (passed, kept) = match *step {
                Step::Keep(count) => (0, count),
                Step::Pass(count) => (count, 0),
                Step::Change => (0, 1),
                Step::New { .. } => (0, 0),
            };
            known.skip(passed)?;
            for _ in 0..kept {
                known.next()?.push(&mut list.bytes);
                list.cut(sink)?;
            }
            if let Step::New { mode } = step {
                let new = match keep {
                    Keep::Modes => Kept::Mode(*mode),
                    Keep::Owners => root.clone(),
                    Keep::Xattrs => Kept::Xattrs(Xattrs::new()),
                };
                new.push(&mut list.bytes);
                list.cut(sink)?;
            }
        }
        let content = list.finish(sink)?;
        let kind = keep.as_str().to_owned();
        Ok(Some(Side { kind, content }))
    }

    fn list(&self) -> MetaBuilder {
        MetaBuilder::new(self.reader.store().chunker().clone())
    }
}

/// Whether anything but times was kept beside a tree.
pub(crate) fn has_others(version: &Version) -> bool {
    version.sides.others().next().is_some()
}

/// A directory of which both trees are walked. One that only one of them has is empty in the other.
struct Level {
    old: Peekable<IntoIter<TreeEntry>>,
    new: Peekable<IntoIter<TreeEntry>>,
}

/// The steps that lead from the tree `old` to the tree `new`, beginning with the root. Subtrees that are the same are
/// not read.
///
/// # Errors
/// When a tree cannot be read.
pub(crate) fn steps_between(
    reader: &Reader<'_>,
    old: &Content,
    new: &Content,
) -> Result<Vec<Step>> {
    let read = |tree: Option<&Content>| -> Result<Peekable<IntoIter<TreeEntry>>> {
        let entries = tree.map(|tree| reader.tree(tree)).transpose()?;
        Ok(entries.unwrap_or_default().into_iter().peekable())
    };
    let mut steps = vec![Step::Keep(1)];
    let mut stack = vec![Level {
        old: read(Some(old))?,
        new: read(Some(new))?,
    }];
    while let Some(level) = stack.last_mut() {
        let names =
            [level.old.peek(), level.new.peek()].map(|entry| entry.map(|entry| &entry.name));
        let Some(name) = names.into_iter().flatten().min().cloned() else {
            stack.pop();
            continue;
        };
        let old = level.old.next_if(|entry| entry.name == name);
        let new = level.new.next_if(|entry| entry.name == name);
        match (old.map(|entry| entry.node), new.map(|entry| entry.node)) {
            (Some(old), Some(new)) if old == new => steps.push(Step::Keep(entries(&old))),
            (Some(Node::Tree { content: old, .. }), Some(Node::Tree { content: new, .. })) => {
                steps.push(Step::Keep(1));
                stack.push(Level {
                    old: read(Some(&old))?,
                    new: read(Some(&new))?,
                });
            }
            (Some(old), Some(new)) if is_alike(&old, &new) => steps.push(Step::Change),
            (old, new) => {
                steps.extend(old.map(|old| Step::Pass(entries(&old))));
                steps.extend(new.as_ref().map(Step::new));
                if let Some(Node::Tree { content, .. }) = new {
                    stack.push(Level {
                        old: read(None)?,
                        new: read(Some(&content))?,
                    });
                }
            }
        }
    }
    Ok(steps)
}

/// The number of entries of a node in depth-first order, including itself: so many records it has in each list.
pub(crate) fn entries(node: &Node) -> u64 {
    match node {
        Node::Tree { totals, .. } => totals.entries.saturating_add(1),
        _ => 1,
    }
}

/// Whether what was kept of one entry holds for the other: both are links, or files that may be executed alike.
fn is_alike(old: &Node, new: &Node) -> bool {
    match (old, new) {
        (
            Node::File {
                executable: old, ..
            },
            Node::File {
                executable: new, ..
            },
        ) => old == new,
        (Node::Symlink { .. }, Node::Symlink { .. }) => true,
        _ => false,
    }
}

/// Warns of lists that a newer program kept beside a tree: this program cannot rewrite them.
pub(crate) fn warn_of_unknown(store: &Store, name: &RefName, number: u64, version: &Version) {
    let is_known = |kind: &str| Keep::ALL.iter().any(|keep| keep.as_str() == kind);
    let kinds = version.sides.others().map(|side| side.kind.as_str());
    let kinds: Vec<&str> = kinds.filter(|kind| !is_known(kind)).collect();
    if !kinds.is_empty() {
        store.warn(Error::new(ErrorKind::Unsupported, format!(
            "{name}@{number}: {} were kept beside its tree by a newer program, and are not beside the new one",
            kinds.join(" and ")
        )));
    }
}
