//! What a merge reads and writes: trees of the store, of this pass, and of the merge, and the lists beside the merged
//! tree.

use super::graft::LeftOut;
use super::insert;
use super::messages::Built;
use super::meta::{put_meta, put_tree};
use super::packer::Packer;
use super::publish::PutSession;
use super::rebuilt::known_tree;
use crate::error::Result;
use crate::format::{Content, FrameKind, Node, Side, Time, TimesEncoder, TreeEntry, Version};
use crate::lists::{self, Rewrite, has_others};
use crate::merge::{Both, Step, Trees};
use crate::pack::{Framer, KindFrame};
use crate::read::{Reader, TimesReader};
use crate::tree::MetaBuilder;

/// Trees of the store, of this pass, and of the merge.
pub(super) struct Stored<'s> {
    session: &'s PutSession<'s>,
    reader: &'s Reader<'s>,
    left_out: LeftOut,
    leaves_out: bool,
    framer: Framer<crossbeam_channel::Sender<KindFrame>>,
    frames: crossbeam_channel::Receiver<KindFrame>,
}

impl<'s> Stored<'s> {
    pub(super) fn new(
        session: &'s PutSession<'_>,
        reader: &'s Reader<'_>,
        built: &Built,
    ) -> Result<Self> {
        let request = session.request();
        let (sender, frames) = crossbeam_channel::unbounded();
        let verify = request.verify_writes;
        let left_out = LeftOut::new(request)?;
        Ok(Self {
            framer: Framer::new(FrameKind::Meta, request.level, verify, sender)?,
            frames,
            leaves_out: built.leaves_out() || left_out.has_globs(),
            left_out,
            session,
            reader,
        })
    }

    /// Writes the times of the merged tree, each from the side of its entry; for a directory of both sides, the later
    /// one.
    pub(super) fn times(
        &mut self,
        steps: &[Step],
        (ours, theirs): (&Content, &Content),
    ) -> Result<Content> {
        let mut ours = TimesReader::new(self.reader, ours)?;
        let mut theirs = TimesReader::new(self.reader, theirs)?;
        let mut bytes = MetaBuilder::new(self.session.store().chunker().clone());
        let mut encoder = TimesEncoder::new(&mut bytes.bytes);
        let dedup = self.session.dedup();
        let framer = &mut self.framer;
        let mut sink = |bytes: &[u8]| put_meta(dedup, framer, bytes);
        for step in steps {
            let (side, count) = match step {
                Step::PassOurs(count) => {
                    ours.skip(*count)?;
                    continue;
                }
                Step::PassTheirs(count) => {
                    theirs.skip(*count)?;
                    continue;
                }
                Step::Both => {
                    let time = ours.next()?.max(theirs.next()?);
                    encoder.push(time, &mut bytes.bytes);
                    bytes.cut(&mut sink)?;
                    continue;
                }
                Step::Ours(count) => (&mut ours, count),
                Step::Theirs(count) => (&mut theirs, count),
            };
            for _ in 0..*count {
                encoder.push(side.next()?, &mut bytes.bytes);
                bytes.cut(&mut sink)?;
            }
        }
        bytes.finish(&mut sink)
    }

    /// Writes the lists that the newest version has beside its tree, for the tree `content`: what stays keeps its
    /// records.
    pub(super) fn kept(
        &mut self,
        (number, newest): &(u64, Version),
        content: &Content,
    ) -> Result<Vec<Side>> {
        if !has_others(newest) {
            return Ok(Vec::new());
        }
        let steps = lists::steps_between(self.reader, newest.root.content(), content)?;
        let rewrite = Rewrite {
            reader: self.reader,
            before: Some((&self.session.request().target, *number, newest)),
            steps: &steps,
            time: Time::default(),
        };
        let dedup = self.session.dedup();
        let framer = &mut self.framer;
        rewrite.others(&mut |bytes| put_meta(dedup, framer, bytes))
    }

    /// Makes what was written durable.
    pub(super) fn finish(mut self) -> Result<()> {
        self.framer.flush()?;
        drop(self.framer);
        let is_dry = self.session.request().dry_run;
        Packer::new(self.session.store(), is_dry, self.session).run(&self.frames)
    }
}

impl Trees for Stored<'_> {
    fn read(&self, content: &Content) -> Result<Vec<TreeEntry>> {
        self.session.store().host().check_stop()?;
        self.reader.tree(content)
    }

    fn write(&mut self, entries: &[TreeEntry]) -> Result<Content> {
        let known = (self.session.store(), self.session.dedup());
        // It is read before it is stored: for links, and for the lists beside it.
        known_tree(self.reader, entries)?;
        put_tree(known, &mut self.framer, entries)
    }

    fn leaves_out(&self) -> bool {
        self.leaves_out
    }

    fn is_left_out(&self, path: &[u8], is_dir: bool) -> bool {
        self.left_out.has(path, is_dir)
    }

    fn both(&self, path: &[u8], ours: &Node, theirs: &Node) -> Both {
        insert::both(self.session.request(), path, ours, theirs)
    }
}
