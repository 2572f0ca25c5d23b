//! save: merges the changes of a directory into the newest version of its ref, and commits the result.
//!
//! The bytes are stored before that. If another commit was faster, only metadata is merged again, with that commit's
//! version: the entry is added to exactly the version that was merged.

use super::accepted::forgive;
use super::ancestor::Base;
use super::messages::Built;
use super::publish::{PutSession, refused_room};
use super::remember::Remembering;
use super::stored::Stored;
use super::{Onto, PutReport, PutRequest, SaveReport, beside};
use crate::error::{Error, Result};
use crate::format::{Change, Content, Extra, Id, Root, SIDE_TIMES, Side, Sides, Version};
use crate::host::pool::Known;
use crate::host::stat_cache::CacheBase;
use crate::lists::has_others;
use crate::log::{Outside, System};
use crate::merge::{Case, Clash, Counts, Merged, count, merge};
use crate::read::Reader;
use crate::remedy::{Note, Remedy};
use crate::session::Published;
use crate::sound::carried::{LOOKED_UP_BYTES, check_carried};

/// Most paths that the message of a version names.
const TOLD_MAX: usize = 5;
/// How many races a commit may lose before it waits a little.
const TRIES_AT_ONCE: u32 = 2;

/// The newest version, with its number.
type Newest = Option<(u64, Version)>;

/// The merged version.
struct Outcome {
    root: Root,
    times: Content,
    /// What the newest version kept of its entries, for the merged tree.
    kept: Vec<Side>,
    merged: Merged,
}

impl Outcome {
    /// The newest version as it is.
    fn of(newest: &Version) -> Self {
        Self {
            root: newest.root,
            times: newest.times(),
            kept: Vec::new(),
            merged: Merged::default(),
        }
    }
}

/// The result of a commit.
enum Committed {
    /// The number of the new version.
    Version(u64),
    /// Another commit was faster.
    Late,
    /// A collector took what the pass relied on.
    Stale,
}

impl PutSession<'_> {
    /// Adds the merged version; `None` when a collector took what this pass relied on.
    pub(super) fn save(
        self,
        mut built: Built,
        base: &Base,
        reader: &Reader<'_>,
    ) -> Result<Option<PutReport>> {
        // What cannot be read is found before anything is published.
        let counts = self.counts(&built, base, reader)?;
        let (what, listing) = ((self.store(), self.request()), built.listing.take());
        let mut remembering = Remembering::new(what, base.made.clone(), listing);
        // An insert is made for one call, and is never saved again.
        let is_kept = !self.request().dry_run && self.request().onto != Onto::Insert;
        remembering.flush_if(is_kept, base.root.as_ref(), &built.root);
        let mut tries = 0;
        let (newest, outcome, version) = loop {
            let newest = self.newest(reader)?;
            let outcome = self.outcome(&built, base, newest.as_ref(), reader)?;
            let known = self.is_known(&outcome, newest.as_ref(), &built);
            if is_kept {
                let left_out = base.root.as_ref().filter(|_| outcome.merged.left_out > 0);
                remembering.prepare(&built.root, left_out, reader);
            }
            if let Some(number) = known {
                if is_kept {
                    remembering.announce(number, *outcome.root.content())?;
                }
                if !self.request().dry_run {
                    // If the pass stored anything nevertheless, it was missing: from a version, or from this
                    // directory's own tree.
                    self.commit_packs()?;
                }
                break (newest, outcome, Some(number));
            }
            if self.request().dry_run {
                break (newest, outcome, None);
            }
            if is_kept {
                let after = newest.as_ref().map_or(0, |(number, _)| *number);
                remembering.announce(after + 1, *outcome.root.content())?;
            }
            match self.commit_save(&built, &outcome, newest.as_ref())? {
                Committed::Version(number) => break (newest, outcome, Some(number)),
                Committed::Stale => return Ok(None),
                Committed::Late => tries += 1,
            }
            self.store().host().check_stop()?;
            if tries > TRIES_AT_ONCE {
                System.pause(tries);
            }
        };
        let mut report = std::mem::take(&mut built.report);
        let roots: Vec<_> = base.root.iter().chain([outcome.root.content()]).collect();
        forgive(&mut report.skipped, &self.request().source, &roots, reader);
        (report.new_bytes, report.stored_bytes) = self.written_bytes();
        report.unchanged =
            version.is_some() && version == newest.as_ref().map(|(number, _)| *number);
        report.version = version;
        report.id = version.map(|_| Id::of(&outcome.root));
        report.private = self.is_private(&built, newest.as_ref());
        let left = left_behind(&outcome, newest.as_ref());
        report.notes.extend(left.map(Note::from));
        let was = newest.as_ref().map(|(number, _)| *number);
        let is_whole = outcome.root == built.root;
        (report.notes).extend(self.dropped(base, (was, is_whole), reader)?);
        // Whatever the directory has was looked up.
        let took_over = was
            .zip(version)
            .filter(|_| !report.unchanged && outcome.root != built.root);
        if let Some(versions) = took_over {
            check_carried(
                self.store(),
                &self.request().target,
                versions,
                &outcome.root,
                LOOKED_UP_BYTES,
            );
        }
        report.saved = Some(SaveReport {
            base: base.version,
            onto: was,
            counts: self.counted(counts, was, &built, &mut report.notes),
            clashed: outcome.merged.clashed,
            clashes: outcome.merged.clashes,
        });
        if let Some(number) = version.filter(|_| is_kept) {
            report.notes.extend(self.cache(&mut built, number));
            report
                .notes
                .extend(remembering.keep(number, *outcome.root.content()));
        }
        Ok(Some(report))
    }

    /// The note that the ref, which the directory was made from, was removed since.
    fn made_again(&self) -> Note {
        let PutRequest { source, target, .. } = self.request();
        let dir = source.display();
        let name = target.to_string();
        Note::with(
            format!("{name} was removed, and is made again from what is in {dir}"),
            Remedy::RemoveAgain { name },
        )
    }

    /// The note that the version that the directory was of was dropped since. `was` is the newest version before the
    /// save; a new version may have the whole directory.
    fn dropped(
        &self,
        base: &Base,
        (was, is_whole): (Option<u64>, bool),
        reader: &Reader<'_>,
    ) -> Result<Option<Note>> {
        let PutRequest { source, target, .. } = self.request();
        match (was, base.version) {
            (None, Some(_)) => Ok(Some(self.made_again())),
            (Some(was), Some(version)) if was < version && !is_whole => {
                let known = Known {
                    version,
                    tree: base.root,
                };
                let state = self.newest_state(reader)?;
                Ok(state.gone_back(target, known, source))
            }
            _ => Ok(None),
        }
    }

    /// Whether the globs of a job leave nothing of the directory. Nothing tells what it emptied from what it left out.
    fn deletes_nothing(&self, built: &Built) -> bool {
        built.is_all_left_out && !self.request().allow_empty
    }

    /// The changes as they are published: nothing that is gone from such a directory, which a note says.
    fn counted(
        &self,
        counts: Counts,
        was: Option<u64>,
        built: &Built,
        notes: &mut Vec<Note>,
    ) -> Counts {
        if was.is_none() || !self.deletes_nothing(built) {
            return counts;
        }
        if counts.removed > 0 {
            let PutRequest { source, target, .. } = self.request();
            let dir = source.display();
            notes.push(Note::from(format!(
                "{dir}: all that is there is left out, so nothing is deleted from {target}"
            )));
        }
        Counts::default()
    }

    fn newest(&self, reader: &Reader<'_>) -> Result<Newest> {
        let state = self.newest_state(reader)?;
        let newest = state.version(&self.request().target, None).ok();
        if let Some((number, _)) = &newest {
            reader.asks_for(&self.request().target, *number);
        }
        Ok(newest)
    }

    /// Merges what was built with the newest version, unless that is the base.
    fn outcome(
        &self,
        built: &Built,
        base: &Base,
        newest: Option<&(u64, Version)>,
        reader: &Reader<'_>,
    ) -> Result<Outcome> {
        let request = self.request();
        let Root::Tree { content, totals } = built.root else {
            return Err(self.is_file());
        };
        let as_built = |kept| Outcome {
            root: built.root,
            times: built.times,
            kept,
            merged: Merged::default(),
        };
        let Some(before @ (number, newest)) = newest else {
            return Ok(as_built(Vec::new()));
        };
        let Root::Tree {
            content: their_tree,
            totals: their_totals,
        } = newest.root
        else {
            return Err(Error::conflict(format!(
                "{}@{number}: is a file by now, and {} is a directory",
                request.target,
                request.source.display()
            ))
            .hint(Remedy::OtherRef));
        };
        if self.deletes_nothing(built) {
            return Ok(Outcome::of(newest));
        }
        let is_emptied = totals.entries == 0 && their_totals.entries > 0 && !request.allow_empty;
        let emptied = || {
            Error::conflict(format!(
                "{}: is empty, and {}@{number} is not",
                request.source.display(),
                request.target
            ))
            .hint(Remedy::SaveEmpty)
        };
        let leaves_out = built.leaves_out() || !request.exclude.is_empty();
        if base.root == Some(their_tree) && !leaves_out {
            if is_emptied {
                return Err(emptied());
            }
            if !has_others(newest) || content == their_tree {
                return Ok(as_built(Vec::new()));
            }
            self.make_readable(built)?;
            let mut stored = Stored::new(self, reader, built)?;
            let kept = stored.kept(before, &content)?;
            stored.finish()?;
            return Ok(as_built(kept));
        }
        self.make_readable(built)?;
        let mut stored = Stored::new(self, reader, built)?;
        let theirs = (their_tree, their_totals);
        let (tree, merged) = merge(&mut stored, base.root.as_ref(), &(content, totals), &theirs)?;
        // Left-out entries are not deleted, and an unchanged tree lost nothing.
        let is_all_left_out = built.leaves_out() && merged.left_out > 0;
        if is_emptied && !is_all_left_out && tree.0 != their_tree {
            return Err(emptied());
        }
        let times = match (tree.0 == their_tree, tree.0 == content) {
            (true, _) => newest.times(),
            (_, true) => built.times,
            _ => stored.times(&merged.steps, (&built.times, &newest.times()))?,
        };
        let kept = match tree.0 == their_tree {
            true => Vec::new(),
            false => stored.kept(before, &tree.0)?,
        };
        stored.finish()?;
        let (content, totals) = tree;
        Ok(Outcome {
            root: Root::Tree { content, totals },
            times,
            kept,
            merged,
        })
    }

    /// Makes sure that the trees of the pass can be read.
    fn make_readable(&self, built: &Built) -> Result<()> {
        match built.is_known_in_part {
            // The pass made more metadata than is kept in memory, so the rest is read from the store.
            true => self.commit_packs(),
            false => Ok(()),
        }
    }

    /// The newest version, if the merge adds nothing to it.
    fn is_known(
        &self,
        outcome: &Outcome,
        newest: Option<&(u64, Version)>,
        built: &Built,
    ) -> Option<u64> {
        let request = self.request();
        let (number, version) = newest?;
        let is_kept = version
            .expires
            .is_none_or(|end| request.expires.is_some_and(|wanted| wanted <= end));
        let is_same = version.root == outcome.root
            && is_kept
            && version.private == self.is_private(built, newest)
            && !request.always;
        is_same.then_some(*number)
    }

    /// A ref that was private once stays private, whoever saves to it.
    fn is_private(&self, built: &Built, newest: Option<&(u64, Version)>) -> bool {
        let was = newest.is_some_and(|(_, newest)| newest.private);
        let is_private = built.is_private && !(newest.is_some() && self.deletes_nothing(built));
        !self.request().readable && (is_private || was)
    }

    fn commit_save(
        &self,
        built: &Built,
        outcome: &Outcome,
        newest: Option<&(u64, Version)>,
    ) -> Result<Committed> {
        let request = self.request();
        let number = newest.map(|(number, _)| *number);
        let mut version = 0;
        let mut is_late = false;
        let committed = self.commit_changes(&mut |state, refused| {
            refused_room(refused)?;
            let now = state.version(&request.target, None).ok();
            let is_as_merged = match (now, newest) {
                (Some((now, version)), Some((number, newest))) => {
                    now == *number && version.root == newest.root
                }
                (now, newest) => now.is_none() && newest.is_none(),
            };
            if !is_as_merged {
                is_late = true;
                return Err(Error::conflict(format!(
                    "{}: another version came first",
                    request.target
                )));
            }
            version = state.refs.last(&request.target)? + 1;
            Ok(vec![Change::SetRef {
                name: request.target.clone(),
                version,
                root: outcome.root,
                sides: sides(outcome, newest),
                message: message(request, &outcome.merged, number),
                expires: request.expires,
                origin: None,
                ends: Vec::new(),
                private: self.is_private(built, newest),
                extra: Extra::new(),
            }])
        });
        match committed {
            Err(_) if is_late => Ok(Committed::Late),
            Err(error) => Err(error),
            Ok(Published::Stale) => Ok(Committed::Stale),
            Ok(Published::Nothing) => Ok(Committed::Version(version)),
            Ok(Published::Entry(committed)) => {
                if let Some(error) = committed.checkpoint {
                    let what =
                        "a checkpoint could not be written, so that the store opens more slowly";
                    self.store().warn(error.within(what));
                }
                Ok(Committed::Version(version))
            }
        }
    }

    /// Counts the changes of the directory since its base.
    fn counts(&self, built: &Built, base: &Base, reader: &Reader<'_>) -> Result<Counts> {
        let Root::Tree { content, totals } = built.root else {
            return Err(self.is_file());
        };
        self.make_readable(built)?;
        let target = &self.request().target;
        if let Ok((number, _)) = reader.view().state.version(target, None) {
            reader.asks_for(target, number);
        }
        let stored = Stored::new(self, reader, built)?;
        count(&stored, base.root.as_ref(), (&content, totals.entries))
    }

    fn is_file(&self) -> Error {
        Error::invalid(format!(
            "{}: is a file, and only directories are saved",
            self.request().source.display()
        ))
        .hint(Remedy::PutInstead)
    }

    /// Keeps what the files looked like for the next put. Returns what could not be kept, which only costs time then.
    fn cache(&self, built: &mut Built, number: u64) -> Option<Note> {
        let base = CacheBase {
            name: self.request().target.clone(),
            version: number,
            root: built.root,
        };
        let error = built.cache.take()?.commit(base).err()?;
        Some(Note::from(format!(
            "{error}: the next save from here takes longer"
        )))
    }
}

/// The side objects of the version: its times, and what the newest version kept of its entries.
fn sides(outcome: &Outcome, newest: Option<&(u64, Version)>) -> Sides {
    let same = newest.filter(|(_, newest)| newest.root == outcome.root);
    let others = same
        .into_iter()
        .flat_map(|(_, newest)| newest.sides.others());
    let own = (outcome.times != Content::empty()).then(|| Side {
        kind: SIDE_TIMES.to_owned(),
        content: outcome.times,
    });
    let all = others.cloned().chain(outcome.kept.iter().cloned());
    all.chain(own).fold(Sides::default(), Sides::with)
}

/// Names the side objects of the newest version that the merged one does not have.
fn left_behind(outcome: &Outcome, newest: Option<&(u64, Version)>) -> Option<String> {
    let (number, newest) = newest.filter(|(_, newest)| newest.root != outcome.root)?;
    let is_kept = |kind: &str| outcome.kept.iter().any(|side| side.kind == kind);
    let kinds = newest.sides.others().map(|side| &*side.kind);
    let kinds: Vec<&str> = kinds.filter(|kind| !is_kept(kind)).collect();
    beside::left_behind(&kinds, *number)
}

/// The message of the version: that of the request, and the paths that both sides had changed.
fn message(request: &PutRequest, merged: &Merged, onto: Option<u64>) -> String {
    let mut parts = Vec::new();
    if !request.message.is_empty() {
        parts.push(request.message.clone());
    }
    let of = |case: Case| {
        merged
            .clashes
            .iter()
            .filter(move |clash| clash.case == case)
    };
    let before = onto.map_or_else(String::new, |number| format!("@{number}"));
    for (case, told) in [
        (Case::BothChanged, "changed here and in "),
        (Case::DeletedThere, "changed here, deleted in "),
        (Case::DeletedHere, "deleted here, kept as changed in "),
        (Case::LinkedHere, "kept for a link from here, deleted in "),
        (Case::LinkedThere, "deleted here, kept for a link from "),
        (
            Case::LinkLost,
            "lost to a link, as something else is in its place, merged into ",
        ),
        (Case::ThereFirst, "kept out, since others are in "),
    ] {
        let paths: Vec<_> = of(case).take(TOLD_MAX).map(Clash::shown).collect();
        let more = match of(case).count().saturating_sub(TOLD_MAX) {
            _ if paths.is_empty() => continue,
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        parts.push(format!("{told}{before}: {}{more}", paths.join(", ")));
    }
    parts.join("; ")
}
