//! One run: a sequence of batches, each a walk, a copy and one log entry.
//!
//! A batch is as many versions as fill a few packs, so that small refs share packs and large ones appear as soon as
//! they are complete. If a collector makes a batch stale, the batch is repeated from the walk on; packs that were
//! finished by then are adopted, and not sent again.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::changes::changes;
use super::complete::complete;
use super::copy::{Failure, at_destination, at_source, copy, unreadable};
use super::missing::{Missing, Unreadable, Wants, is_its_own};
use super::resume::{adopt, adoptable};
use super::select::{Bring, Ends, Selected};
use super::surplus::{Surplus, check, still, surplus};
use super::uploader::{Sent, Unsettled, Uploader};
use super::{RefOutcome, RefStatus, ReplicateReport, ReplicateRequest, Resume, room};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{RefName, Root, State};
use crate::id::{ChunkId, PassId};
use crate::index::Index;
use crate::log::{Outside, System};
use crate::progress::Progress;
use crate::read::Reader;
use crate::remedy::Remedy;
use crate::retry::{Headway, VAIN_MAX};
use crate::session::{Published, Relied, Session};
use crate::sound::mend::mend;
use crate::store::{Store, View};
use crate::throttle::Throttle;

/// Stored bytes after which a batch is published. Small in tests, so that a run has many batches.
const BATCH_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 256 << 20 };
/// Versions after which a batch is published.
const BATCH_VERSIONS: usize = 1000;
/// Versions whose metadata is read concurrently, if that takes a network.
const WARM_VERSIONS: usize = 16;

/// One run and its state.
pub(super) struct Job<'r> {
    from: &'r Store,
    to: &'r Store,
    request: &'r ReplicateRequest,
    progress: &'r dyn Progress,
    unsettled: Unsettled<'r>,
    throttle: Throttle,
    /// In a dry run: chunks of an earlier run that would be adopted.
    left: HashSet<ChunkId>,
    /// The total that was reported to the progress.
    total: (u64, u64),
    pub(super) report: ReplicateReport,
}

/// The states of both sides at the beginning of a batch.
struct Views {
    source: View,
    there: View,
}

/// The versions of a batch, from the first remaining one on.
struct Batch<'q> {
    versions: &'q [Bring],
    /// Versions that failed, by position, and why.
    failed: BTreeMap<usize, Error>,
    wants: Wants,
}

/// How a batch ended.
enum Ended {
    /// This many versions are finished.
    Settled(usize),
    /// A collector took what the batch relied on.
    Stale,
}

impl<'r> Job<'r> {
    pub(super) fn new(
        from: &'r Store,
        to: &'r Store,
        request: &'r ReplicateRequest,
        resume: &'r dyn Resume,
        progress: &'r dyn Progress,
    ) -> Self {
        Self {
            from,
            to,
            request,
            progress,
            unsettled: Unsettled::new(resume),
            throttle: Throttle::new(request.bytes_per_second),
            left: HashSet::new(),
            total: (0, 0),
            report: ReplicateReport::default(),
        }
    }

    /// Copies `versions`, in order.
    pub(super) fn bring(&mut self, versions: &[Bring], source: State, there: State) -> Result<()> {
        if versions.is_empty() {
            return Ok(());
        }
        if self.from.format().chunker != self.to.format().chunker {
            let text = format!(
                "{} and {} cut files differently: what is put at one shares nothing with what is put at the other",
                self.from.remote().url(),
                self.to.remote().url()
            );
            self.report.notes.push(text.into());
        }
        let mut views = Views {
            source: unopened(source),
            there: unopened(there),
        };
        (self.from.follow(&mut views.source)).map_err(at_source)?;
        (self.to.follow(&mut views.there)).map_err(at_destination)?;
        let ends = (self.from, &views.source, self.to, &views.there);
        let versions = room::fitting(ends, versions, &mut self.report.refs)?;
        let pass = PassId::random()?;
        let (mut rest, mut headway) = (&*versions, Headway::new());
        while !rest.is_empty() {
            let before = self.report.sent_bytes;
            match self.batch(rest, &mut views, pass)? {
                Ended::Settled(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    headway = Headway::new();
                    if !rest.is_empty() {
                        self.to.follow(&mut views.there)?;
                    }
                }
                Ended::Stale => {
                    let tries = headway.stale(self.report.sent_bytes - before);
                    System.pause(tries.ok_or_else(|| self.beaten())?);
                    views.there = self.to.view().map_err(at_destination)?;
                }
            }
        }
        Ok(())
    }

    /// Runs one batch, beginning with the first of `versions`.
    fn batch(&mut self, versions: &[Bring], views: &mut Views, pass: PassId) -> Result<Ended> {
        let relied = Relied::new(views.there.index.clone());
        let session = Session::new(self.to, &relied, views.there.clone(), pass);
        match self.pass(versions, &mut views.source, &views.there, &relied, &session) {
            Err(failure) => {
                self.keep_finished(&failure, &session);
                Err(failure.into_error())
            }
            Ok(Ended::Stale) => Ok(Ended::Stale),
            Ok(settled) => {
                views.there = session.into_view();
                Ok(settled)
            }
        }
    }

    /// Walks, copies and publishes one batch.
    fn pass(
        &mut self,
        versions: &[Bring],
        source: &mut View,
        there: &View,
        relied: &Relied,
        session: &Session<'_>,
    ) -> Result<Ended, Failure> {
        let is_dry = self.request.dry_run;
        let verify = self.request.verify;
        let adopted = match is_dry {
            true => adoptable(self.to, there, &self.unsettled).map(|(bytes, chunks)| {
                self.left = chunks;
                bytes
            }),
            false => adopt(self.to, there, session, &self.unsettled, verify),
        };
        let adopted = adopted.map_err(Failure::of_destination)?;
        // Packs that are adopted later were sent by this run.
        if self.report.sent_bytes == 0 {
            self.report.resumed_bytes += adopted;
        }
        let reader = Reader::at(self.from, source.clone());
        let mut batch = self
            .gather(versions, relied, &reader)
            .map_err(Failure::of_source)?;
        self.tell_total(&batch, versions.len());
        if is_dry {
            return Ok(self.pretend(batch));
        }
        let mut unreadable = Unreadable::new();
        let mut uploader = Uploader {
            to: self.to,
            session,
            unsettled: &self.unsettled,
            throttle: &mut self.throttle,
            verify: self.request.verify,
            sent: Sent::default(),
        };
        let copied = copy(
            (self.from, relied),
            source,
            &batch.wants,
            &mut uploader,
            &mut unreadable,
            self.progress,
        );
        let sent = uploader.sent;
        self.count(sent);
        if let Err(failure) = copied {
            if self.to.host().check_stop().is_err() && !failure.is_there {
                self.publish_complete(&batch, source, relied, session);
            }
            return Err(failure);
        }
        batch
            .fail_all_that_reach(&unreadable, relied, &Reader::at(self.from, source.clone()))
            .map_err(Failure::of_source)?;
        let good: Vec<&Bring> = batch.good().collect();
        let mended = mend(self.to, &there.state, relied).map_err(Failure::of_destination)?;
        if mended.is_some() {
            let packs = session.commit_packs().map_err(Failure::of_destination)?;
            self.unsettled.settle(&packs);
            return Ok(Ended::Stale);
        }
        let published = self
            .publish(&good, session)
            .map_err(Failure::of_destination)?;
        Ok(match published {
            Some(settled) => self.settle(batch, settled),
            None => Ended::Stale,
        })
    }

    /// Walks versions until there are enough for a batch.
    fn gather<'q>(
        &self,
        versions: &'q [Bring],
        relied: &Relied,
        reader: &Reader<'_>,
    ) -> Result<Batch<'q>> {
        let (mut failed, none) = (BTreeMap::new(), Unreadable::new());
        loop {
            let walk = Missing::new(reader, relied, &none).beside(&self.left);
            let mut count = 0;
            let mut broken = None;
            for (at, bring) in versions.iter().enumerate() {
                if at.is_multiple_of(WARM_VERSIONS) {
                    warm(reader, versions.get(at..).unwrap_or_default());
                }
                count = at + 1;
                if failed.contains_key(&at) {
                    continue;
                }
                self.to.host().check_stop()?;
                match walk.version(&bring.version) {
                    Err(error) if is_its_own(&error) => {
                        let error = lacking(bring, reader, error);
                        broken = Some((at, bring.failure(error)));
                        break;
                    }
                    walked => walked?,
                }
                let is_enough = walk.stored_bytes() >= BATCH_BYTES || count >= BATCH_VERSIONS;
                if is_enough && !self.request.dry_run {
                    break;
                }
            }
            match broken {
                // Nothing must be sent for a version that fails, so the walk is repeated without it.
                Some((at, error)) => drop(failed.insert(at, error)),
                None => {
                    let mut wants = walk.finish();
                    wants.add_bases(relied, &self.left)?;
                    return Ok(Batch {
                        versions: versions.get(..count).unwrap_or_default(),
                        failed,
                        wants,
                    });
                }
            }
        }
    }

    /// Adds versions to the log in one entry; none, when the pass is stale.
    fn publish(
        &mut self,
        good: &[&Bring],
        session: &Session<'_>,
    ) -> Result<Option<Vec<RefOutcome>>> {
        let mut settled = Vec::new();
        let published = session.commit(&mut |state, refused| {
            let (changes, outcomes) = changes(good, state, refused)?;
            settled = outcomes;
            Ok(changes)
        })?;
        match published {
            Published::Stale => return Ok(None),
            Published::Nothing => {}
            Published::Entry(committed) => {
                self.unsettled.settle(&self.unsettled.packs());
                let note = |error| format!("{error}: the store opens more slowly").into();
                self.report.notes.extend(committed.checkpoint.map(note));
            }
        }
        Ok(Some(settled))
    }

    /// When the run was asked to stop: publishes the versions of a batch that are complete already. A failure is no
    /// error, since the next run does it.
    fn publish_complete(
        &mut self,
        batch: &Batch<'_>,
        source: &View,
        relied: &Relied,
        session: &Session<'_>,
    ) {
        let mut publish = || {
            self.unsettled.settle(&session.commit_packs()?);
            let whole = complete(self.from, source, batch.good(), relied)?;
            self.publish(&whole, session)
        };
        match publish() {
            Ok(settled) => self.report.refs.extend(settled.unwrap_or_default()),
            Err(error) => {
                let text = format!("{error}: what was complete is published by the next run");
                self.report.notes.push(text.into());
            }
        }
    }

    /// Counts what would have been sent and published, in a dry run.
    fn pretend(&mut self, batch: Batch<'_>) -> Ended {
        self.count(Sent {
            chunks: batch.wants.chunks,
            raw_bytes: batch.wants.raw_bytes,
            stored_bytes: batch.wants.stored_bytes,
        });
        let good = batch.good();
        let settled = good.map(|bring| match bring.kept {
            Some(there) => bring.outcome(Some(there), RefStatus::Healed),
            None => bring.outcome(None, RefStatus::Published),
        });
        let settled = settled.collect();
        self.settle(batch, settled)
    }

    fn settle(&mut self, batch: Batch<'_>, settled: Vec<RefOutcome>) -> Ended {
        let count = batch.versions.len();
        self.progress.advance(count as u64, 0);
        self.report.refs.extend(settled);
        for (at, error) in batch.failed {
            if let Some(bring) = batch.versions.get(at) {
                let failed = RefStatus::Failed(unreadable(error));
                self.report.refs.push(bring.outcome(None, failed));
            }
        }
        Ended::Settled(count)
    }

    /// Commits a segment over the finished packs, so that the next run finds them, unless the destination has failed.
    fn keep_finished(&mut self, failure: &Failure, session: &Session<'_>) {
        if failure.is_there || self.request.dry_run {
            return;
        }
        match session.commit_packs() {
            Ok(packs) => self.unsettled.settle(&packs),
            Err(error) => self
                .report
                .notes
                .push(format!("{error}: what was sent last may be sent again").into()),
        }
    }

    /// Drops what only the destination has, as planned when the run began.
    pub(super) fn drop_surplus(
        &mut self,
        selected: &Selected,
        ends: Ends,
        source: &State,
        mut there: State,
    ) -> Result<()> {
        let outcomes = self.report.refs.iter();
        let failed: BTreeSet<RefName> = outcomes
            .filter(|outcome| matches!(outcome.status, RefStatus::Failed(_)))
            .map(|outcome| outcome.name.clone())
            .collect();
        let delete = self.request.delete;
        let Surplus {
            dropped: planned,
            own,
        } = surplus(delete, selected, &failed, source, &there)?;
        self.report.own = own;
        let outcomes = self.report.refs.iter();
        let brought = outcomes
            .filter(|outcome| matches!(outcome.status, RefStatus::Published))
            .map(|outcome| &outcome.name);
        check(delete, ends, &planned, (source, &there), selected, brought)?;
        let mut dropped = planned.clone();
        if !planned.versions.is_empty() && !self.request.dry_run {
            let to = self.to.clone().by_rule();
            to.commit(&mut there, &mut |state, _| {
                dropped = still(&planned, state);
                Ok(dropped.changes())
            })?;
        }
        (self.report.dropped, self.report.kept) = (dropped.versions, dropped.kept);
        Ok(())
    }

    fn count(&mut self, sent: Sent) {
        self.report.chunks += sent.chunks;
        self.report.raw_bytes += sent.raw_bytes;
        self.report.sent_bytes += sent.stored_bytes;
    }

    fn tell_total(&mut self, batch: &Batch<'_>, versions_left: usize) {
        let (files, bytes) = &mut self.total;
        *files = (*files).max(versions_left as u64);
        *bytes += batch.wants.raw_bytes;
        self.progress.total(*files, *bytes);
    }

    fn beaten(&self) -> Error {
        Error::conflict(format!(
            "{}: collectors took what had been sent, {VAIN_MAX} times in a row without an end in sight",
            self.to.remote().url()
        ))
        .hint(Remedy::LongerMinAgeThere)
    }
}

impl Batch<'_> {
    /// The versions that have not failed.
    fn good(&self) -> impl Iterator<Item = &Bring> {
        let versions = self.versions.iter().enumerate();
        versions
            .filter(|(at, _)| !self.failed.contains_key(at))
            .map(|(_, bring)| bring)
    }

    /// Fails every version that reaches an unreadable chunk, and no others.
    fn fail_all_that_reach(
        &mut self,
        unreadable: &Unreadable,
        relied: &Relied,
        reader: &Reader<'_>,
    ) -> Result<()> {
        if unreadable.is_empty() {
            return Ok(());
        }
        for (at, bring) in self.versions.iter().enumerate() {
            if self.failed.contains_key(&at) {
                continue;
            }
            match Missing::new(reader, relied, unreadable).version(&bring.version) {
                Err(error) if is_its_own(&error) => {
                    let error = lacking(bring, reader, error);
                    self.failed.insert(at, bring.failure(error));
                }
                walked => walked?,
            }
        }
        Ok(())
    }
}

/// The error about a version that lacks something: lost if the version is live, otherwise gone with the version.
fn lacking(bring: &Bring, reader: &Reader<'_>, error: Error) -> Error {
    let is_live = || {
        let state = &reader.view().state;
        state.version(&bring.name, Some(bring.from)).is_ok()
    };
    match error.kind() {
        ErrorKind::NotFound if is_live() => {
            Error::corrupt(error.to_string()).hint(Remedy::VerifySource)
        }
        _ => error,
    }
}

/// Reads the first metadata of the next versions concurrently. Small refs have packs of their own, and over a network
/// each read would wait for the one before.
fn warm(reader: &Reader<'_>, versions: &[Bring]) {
    if !reader.store().is_far() {
        return;
    }
    std::thread::scope(|scope| {
        for bring in versions.iter().take(WARM_VERSIONS) {
            if let Root::Tree { content, .. } = &bring.version.root {
                // A failure is noticed when the metadata is needed.
                scope.spawn(|| drop(reader.meta_chunk(&content.root)));
            }
        }
    });
}

fn unopened(state: State) -> View {
    View {
        state,
        index: Index::default(),
    }
}
