//! Compares versions with what a put has built: whether another one would add anything, and what it would take away.

use super::beside::left_behind;
use super::messages::{Built, FileTimes};
use super::{Onto, PutRequest};
use crate::error::Result;
use crate::format::{Content, Keep, Node, Root, State, Version};
use crate::host::pool::Known;
use crate::read::{Reader, TimesReader};
use crate::remedy::{Note, Remedy};

/// Whether a version has everything that the put was asked to keep, with the current values. It may have more.
fn built_is_kept(built: &Built, newest: &Version) -> bool {
    let has = |side| newest.sides.iter().any(|known| known == side);
    built.kept.iter().all(has)
}

/// The name in the message of a version: everything except the last word.
fn named(message: &str) -> &str {
    message.rsplit_once(' ').map_or(message, |(name, _)| name)
}

/// Compares versions with what a put has built.
pub(super) struct Same<'c> {
    pub(super) request: &'c PutRequest,
    /// What the source was before the put.
    pub(super) source: Option<Known>,
    pub(super) built: &'c Built,
    pub(super) reader: &'c Reader<'c>,
}

impl Same<'_> {
    /// The newest version of the target in `state`, if another one would add nothing: it has the same tree and the same
    /// times of files, and stays at least as long. For [`Onto::New`], see there.
    pub(super) fn version(&self, state: &State) -> Option<(u64, Version)> {
        if self.request.onto == Onto::New {
            let all = state.versions(&self.request.target).ok()?;
            let own = named(&self.request.message);
            let is_it = |version: &Version| {
                version.root == self.built.root && named(&version.message) == own
            };
            return all.into_iter().rev().find(|(_, version)| is_it(version));
        }
        let (number, newest) = state.version(&self.request.target, None).ok()?;
        let is_kept = newest
            .expires
            .is_none_or(|end| self.request.expires.is_some_and(|wanted| wanted <= end));
        let is_same = !self.request.always
            && is_kept
            && newest.root == self.built.root
            && newest.private == self.is_private(state)
            && built_is_kept(self.built, &newest)
            && (newest.times() == self.built.times || self.has_times_of(&newest));
        is_same.then_some((number, newest))
    }

    /// What is lost with another version on top of the newest one.
    pub(super) fn notes(&self, state: &State) -> Vec<Note> {
        let lost = [self.reverted(state), self.kept_no_more(state)];
        lost.into_iter().flatten().collect()
    }

    /// The warning that the source is of an older version than the newest, whose changes are not in it.
    pub(super) fn reverted(&self, state: &State) -> Option<Note> {
        let PutRequest { target, onto, .. } = self.request;
        let known = self.source.filter(|_| *onto == Onto::Replace)?;
        let (newest, version) = state.version(target, None).ok()?;
        let is_newest = match known.tree {
            Some(tree) => tree == *version.root.content(),
            None => newest <= known.version,
        };
        if is_newest {
            return None;
        }
        let dir = self.request.source.display().to_string();
        let (was, made) = (known.version, state.refs.last(target).ok()? + 1);
        let text = format!(
            "{dir} is of version {was} of {target}, and version {made} takes the place of version {newest}, which {}@{} put: \
             what others changed is not in it",
            version.who.user, version.who.host
        );
        let name = target.to_string();
        let remedy = Remedy::MergeAfterAll { name, dir, made };
        Some(Note::with(text, remedy).warning())
    }

    /// A note if the newest version in `state` kept attributes that this one does not keep.
    fn kept_no_more(&self, state: &State) -> Option<Note> {
        let (number, newest) = state.version(&self.request.target, None).ok()?;
        let is_kept = |kind: &str| self.built.kept.iter().any(|side| side.kind == kind);
        let kinds = newest.sides.others().map(|side| &*side.kind);
        let kinds: Vec<&str> = kinds.filter(|kind| !is_kept(kind)).collect();
        let text = left_behind(&kinds, number)?;
        let known = Keep::ALL.iter().map(|keep| keep.as_str());
        let known: Vec<&str> = known.filter(|keep| kinds.contains(keep)).collect();
        Some(match known.is_empty() {
            true => text.into(),
            false => Note::with(
                text,
                Remedy::KeepToo {
                    what: known.join(","),
                },
            ),
        })
    }

    /// Whether only one user may access copies of the version. A ref that was private once stays private, because files
    /// of a copy that came out of the store may have other modes.
    pub(super) fn is_private(&self, state: &State) -> bool {
        let was = || {
            state
                .version(&self.request.target, None)
                .is_ok_and(|(_, newest)| newest.private)
        };
        !self.request.readable && (self.built.is_private || was())
    }

    /// Whether the files of `newest`, which has the same tree, have the same times. Unreadable times count as
    /// different: another version heals them.
    fn has_times_of(&self, newest: &Version) -> bool {
        let Root::Tree { content, .. } = newest.root else {
            return false;
        };
        let found = file_times(self.reader, newest, &content);
        found.is_ok_and(|found| found == self.built.file_times)
    }
}

/// The hash of the times of the files of a version with the tree `content`, in the order of a walk.
fn file_times(reader: &Reader<'_>, version: &Version, content: &Content) -> Result<blake3::Hash> {
    let mut times = TimesReader::of(reader, version)?;
    // The time of the root.
    times.skip(1)?;
    let mut hash = FileTimes::default();
    let mut open = vec![reader.tree(content)?.into_iter()];
    while let Some(level) = open.last_mut() {
        let Some(entry) = level.next() else {
            open.pop();
            continue;
        };
        let time = times.next()?;
        match entry.node {
            Node::Tree { content, .. } => open.push(reader.tree(&content)?.into_iter()),
            Node::File { .. } => hash.push(time),
            Node::Symlink { .. } => {}
        }
    }
    Ok(hash.finish())
}
