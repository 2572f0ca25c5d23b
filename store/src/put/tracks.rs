//! The trees of an edit, and the lists beside them: those of the newest version, rewritten along the changed paths.
//!
//! Unchanged trees are kept without being read. A directory that becomes empty is removed, except the root.

use std::collections::BTreeMap;

use crossbeam_channel::{Receiver, Sender, unbounded};
use jiff::Timestamp;

use super::PutRequest;
use super::dedup::Dedup;
use super::meta::{put_meta, put_tree};
use super::packer::Packer;
use super::publish::PutSession;
use crate::error::{Error, Result};
use crate::format::{
    Content, FrameKind, NAME_BYTES_MAX, Node, RefName, Root, Sides, Time, Totals, TreeEntry,
    Version,
};
use crate::lists::{Rewrite, Step, entries};
use crate::pack::{Framer, KindFrame};
use crate::read::Reader;
use crate::store::Store;

/// Most nested directories that an edit enters.
const DEPTH_MAX: usize = 512;
/// The permissions of a new directory.
const DIRECTORY_MODE: u32 = 0o755;

/// Changes at a path, and below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Branch {
    here: Option<Option<Node>>,
    below: BTreeMap<Vec<u8>, Branch>,
}

/// Trees and lists that are being written.
pub(super) struct Tracks<'t> {
    store: &'t Store,
    dedup: &'t Dedup,
    reader: &'t Reader<'t>,
    framer: Framer<Sender<KindFrame>>,
    frames: Receiver<KindFrame>,
    steps: Vec<Step>,
    time: Time,
}

impl Branch {
    /// Sets the node at `path`; removes it, if `node` is none.
    ///
    /// # Errors
    /// Invalid input, when a tree cannot hold this path, or not beside earlier changes.
    pub(super) fn set(&mut self, path: &[u8], node: Option<Node>) -> Result<()> {
        let refuse = |why: &str| Error::invalid(format!("path \"{}\": {why}", path.escape_ascii()));
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let is_bad = |name: &&[u8]| {
            matches!(*name, b"" | b"." | b"..") || name.contains(&0) || name.len() > NAME_BYTES_MAX
        };
        if names.iter().any(is_bad) {
            return Err(refuse("is no path of a file inside of a tree"));
        }
        if names.len() > DEPTH_MAX {
            return Err(refuse("has too many directories"));
        }
        let is_file = |branch: &Self| matches!(branch.here, Some(Some(_)));
        let mut at = self;
        for name in names {
            if is_file(at) {
                return Err(refuse("a part of it is a file"));
            }
            at = at.below.entry(name.to_vec()).or_default();
        }
        if node.is_some() && at.below.values().any(Self::adds) {
            return Err(refuse("is a directory"));
        }
        at.here = Some(node);
        Ok(())
    }

    fn adds(&self) -> bool {
        matches!(self.here, Some(Some(_))) || self.below.values().any(Self::adds)
    }
}

impl<'t> Tracks<'t> {
    pub(super) fn new(
        reader: &'t Reader<'t>,
        session: &'t PutSession<'_>,
        put: &PutRequest,
        time: Timestamp,
    ) -> Result<Self> {
        let (sender, frames) = unbounded();
        Ok(Self {
            store: session.store(),
            dedup: session.dedup(),
            reader,
            framer: Framer::new(FrameKind::Meta, put.level, put.verify_writes, sender)?,
            frames,
            steps: Vec::new(),
            time: Time {
                secs: time.as_second(),
                nanos: 0,
            },
        })
    }

    /// Makes a version of a single file. Returns its root and its lists.
    pub(super) fn file(
        &mut self,
        name: &RefName,
        newest: Option<&(u64, Version)>,
        content: Content,
    ) -> Result<(Root, Sides)> {
        let root = Root::File {
            content,
            executable: false,
        };
        // The lists of a tree say nothing of a file.
        let before = newest.filter(|(_, version)| matches!(version.root, Root::File { .. }));
        self.steps.push(match before {
            Some(_) => Step::Change,
            None => Step::new(&Node::File {
                content,
                executable: false,
            }),
        });
        let sides = self.sides(name, before, &root)?;
        Ok((root, sides))
    }

    /// Applies the changes to the newest version. Returns its root and its lists.
    pub(super) fn tree(
        &mut self,
        name: &RefName,
        newest: Option<&(u64, Version)>,
        changes: &Branch,
    ) -> Result<(Root, Sides)> {
        let base = match newest.map(|(number, version)| (number, version.root)) {
            None => None,
            Some((_, Root::Tree { content, .. })) => Some(content),
            Some((number, Root::File { .. })) => {
                return Err(Error::conflict(format!(
                    "@{number} is a file and no directory"
                )));
            }
        };
        self.steps.push(match base {
            Some(_) => Step::Change,
            None => Step::New {
                mode: DIRECTORY_MODE,
            },
        });
        let (entries, totals) = self.apply(base.as_ref(), changes)?;
        let content = self.write(&entries)?;
        let root = Root::Tree { content, totals };
        let sides = self.sides(name, newest, &root)?;
        Ok((root, sides))
    }

    fn apply(
        &mut self,
        base: Option<&Content>,
        changes: &Branch,
    ) -> Result<(Vec<TreeEntry>, Totals)> {
        self.store.host().check_stop()?;
        let mut old = match base {
            Some(base) => self.reader.tree(base)?,
            None => Vec::new(),
        }
        .into_iter()
        .peekable();
        let mut new = changes.below.iter().peekable();
        let (mut made, mut totals) = (Vec::new(), Totals::default());
        loop {
            let names = [
                old.peek().map(|entry| entry.name.clone()),
                new.peek().map(|(name, _)| (*name).clone()),
            ];
            let Some(name) = names.into_iter().flatten().min() else {
                return Ok((made, totals));
            };
            let before = old
                .next_if(|entry| entry.name == name)
                .map(|entry| entry.node);
            let node = match (before, new.next_if(|(known, _)| **known == name)) {
                (Some(before), None) => {
                    self.steps.push(Step::Keep(entries(&before)));
                    Some(before)
                }
                (before, Some((_, branch))) => self.change(before, branch)?,
                (None, None) => None,
            };
            if let Some(node) = node {
                totals.add(&node);
                made.push(TreeEntry { name, node });
            }
        }
    }

    fn change(&mut self, before: Option<Node>, branch: &Branch) -> Result<Option<Node>> {
        let pass = before.as_ref().map(|node| Step::Pass(entries(node)));
        if let Some(Some(node)) = &branch.here {
            let node = as_before(node, before.as_ref());
            match before.as_ref() {
                Some(before) if *before == node => self.steps.push(Step::Keep(1)),
                // The kind stays, and with it what is kept of the entry.
                Some(Node::File { .. }) if matches!(node, Node::File { .. }) => {
                    self.steps.push(Step::Change);
                }
                _ => self
                    .steps
                    .extend(pass.into_iter().chain([Step::new(&node)])),
            }
            return Ok(Some(node));
        }
        let is_gone = branch.here.is_some();
        if !branch.adds() && (is_gone || !matches!(before, Some(Node::Tree { .. }))) {
            // Nothing is added, and there is no directory in which anything could be removed.
            return Ok(match is_gone {
                true => {
                    self.steps.extend(pass);
                    None
                }
                false => {
                    self.steps
                        .extend(before.as_ref().map(|node| Step::Keep(entries(node))));
                    before
                }
            });
        }
        let first = self.steps.len();
        let base = match before {
            Some(Node::Tree { content, .. }) if !is_gone => {
                self.steps.push(Step::Change);
                Some(content)
            }
            _ => {
                let new = Step::New {
                    mode: DIRECTORY_MODE,
                };
                self.steps.extend(pass.into_iter().chain([new]));
                None
            }
        };
        let (made, totals) = self.apply(base.as_ref(), branch)?;
        if made.is_empty() {
            self.steps.truncate(first);
            self.steps.extend(pass);
            return Ok(None);
        }
        let content = self.write(&made)?;
        Ok(Some(Node::Tree { content, totals }))
    }

    fn write(&mut self, entries: &[TreeEntry]) -> Result<Content> {
        put_tree((self.store, self.dedup), &mut self.framer, entries)
    }

    /// Writes the lists of the version that was made from `newest`.
    fn sides(
        &mut self,
        name: &RefName,
        newest: Option<&(u64, Version)>,
        root: &Root,
    ) -> Result<Sides> {
        if let Some((_, newest)) = newest
            && newest.root == *root
        {
            return Ok(newest.sides.clone());
        }
        let rewrite = Rewrite {
            reader: self.reader,
            before: newest.map(|(number, newest)| (name, *number, newest)),
            steps: &self.steps,
            time: self.time,
        };
        let (dedup, framer) = (self.dedup, &mut self.framer);
        rewrite.sides(&mut |bytes| put_meta(dedup, framer, bytes))
    }

    /// Makes what was written durable.
    pub(super) fn finish(mut self, session: &PutSession<'_>) -> Result<()> {
        self.framer.flush()?;
        drop(self.framer);
        Packer::new(self.store, false, session).run(&self.frames)
    }
}

/// Keeps a file executable if it was before.
fn as_before(node: &Node, before: Option<&Node>) -> Node {
    match (node, before) {
        (Node::File { content, .. }, Some(Node::File { executable, .. })) => Node::File {
            content: *content,
            executable: *executable,
        },
        _ => node.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Option<Node> {
        Some(Node::File {
            content: Content::empty(),
            executable: false,
        })
    }

    #[test]
    fn paths_that_no_tree_holds_are_refused() {
        for bad in ["", "/", "/a", "a/", "a//b", ".", "a/../b", "a\0b"] {
            assert!(
                Branch::default().set(bad.as_bytes(), file()).is_err(),
                "{bad:?}"
            );
        }
        let long = "a".repeat(256);
        assert!(Branch::default().set(long.as_bytes(), file()).is_err());
        let deep = ["a"; DEPTH_MAX + 1].join("/");
        assert!(Branch::default().set(deep.as_bytes(), file()).is_err());
    }

    #[test]
    fn a_path_is_a_file_or_a_directory() {
        let mut branch = Branch::default();
        branch.set(b"a/b", file()).unwrap();
        assert!(branch.set(b"a", file()).is_err());
        assert!(branch.set(b"a/b/c", file()).is_err());
        branch.set(b"a", None).unwrap();
        assert!(branch.adds());
    }
}
