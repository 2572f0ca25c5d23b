//! The commit of a put: what it has built becomes a version of its ref, and it counts what that took.

use std::sync::atomic::{AtomicU64, Ordering};

use super::assemble::Built;
use super::dedup::Dedup;
use super::{PutReport, PutRequest};
use crate::error::Result;
use crate::format::{Change, PackKind, Version};
use crate::pack::WrittenPack;
use crate::policy::{self, Room};
use crate::publish::{Publication, Published};
use crate::stat_cache::CacheBase;
use crate::store::{Store, View};

/// The version that cached contents belong to.
#[derive(Clone, Debug)]
pub(super) struct Base(pub(super) Version);

/// What one pass writes and has written.
pub(super) struct PutPublication<'p> {
    request: &'p PutRequest,
    dedup: &'p Dedup,
    publication: Publication<'p>,
    new_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    store: &'p Store,
    /// What the namespace of the target may still take, if it has a quota.
    room: Option<Room>,
}

impl<'p> PutPublication<'p> {
    pub(super) fn new(
        store: &'p Store,
        request: &'p PutRequest,
        dedup: &'p Dedup,
        view: View,
        base: Option<Base>,
    ) -> Result<Self> {
        if let Some(Base(version)) = base {
            dedup.relied().count_on(version.root);
        }
        Ok(Self {
            request,
            dedup,
            store,
            room: policy::room(store, &view, &request.target)?,
            publication: Publication::new(store, dedup.relied(), view),
            new_bytes: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(0),
        })
    }

    /// Counts a frame on its way to a pack. Fails as soon as the commit would fail in the end, for want of room.
    pub(super) fn count(&self, kind: PackKind, raw_bytes: u32, stored_bytes: usize) -> Result<()> {
        let new_bytes = match kind {
            PackKind::Data => raw_bytes.into(),
            PackKind::Meta => 0,
        };
        self.new_bytes.fetch_add(new_bytes, Ordering::Relaxed);
        let stored_bytes = stored_bytes as u64;
        let before = self.stored_bytes.fetch_add(stored_bytes, Ordering::Relaxed);
        match &self.room {
            Some(room) => room.check(before.saturating_add(stored_bytes)),
            None => Ok(()),
        }
    }

    /// Takes a durable pack.
    pub(super) fn add(&self, pack: &WrittenPack) -> Result<()> {
        if !self.publication.add(pack)?.is_empty() {
            self.dedup.committed();
        }
        Ok(())
    }

    /// Whether the pass failed because a collector took what it needs, so that another may succeed.
    pub(super) fn is_stale(&self) -> bool {
        self.publication.is_stale()
    }

    /// Adds the ref version; `None` when a collector took what this pass had counted on.
    pub(super) fn commit(self, built: Built) -> Result<Option<PutReport>> {
        let mut report = built.report;
        report.new_bytes = self.new_bytes.load(Ordering::Relaxed);
        report.stored_bytes = self.stored_bytes.load(Ordering::Relaxed);
        let target = &self.request.target;
        if self.request.dry_run {
            let relied = self.dedup.relied().index();
            let view = self.publication.into_view();
            policy::check_dry_run(self.store, &view, target, &relied, report.stored_bytes)?;
            return Ok(Some(report));
        }
        let mut version = 0;
        let published = self.publication.commit(&mut |state| {
            version = state.refs.get(target).map_or(0, |known| known.last) + 1;
            Ok(vec![Change::SetRef {
                name: target.clone(),
                version,
                root: built.root,
                times: built.times,
                message: self.request.message.clone(),
                expires: self.request.expires,
                origin: None,
            }])
        })?;
        let Published::Entry(committed) = published else {
            return Ok(None);
        };
        report.version = Some(version);
        if let Some(error) = committed.checkpoint {
            report
                .notes
                .push(format!("{error}: the store opens more slowly"));
        }
        let base = CacheBase {
            name: target.clone(),
            version,
            root: built.root,
        };
        if let Some(Err(error)) = built.cache.map(|cache| cache.commit(base)) {
            report
                .notes
                .push(format!("{error}: the next put from here reads every file"));
        }
        Ok(Some(report))
    }
}
