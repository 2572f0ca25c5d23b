//! The commit of a put: what it has built becomes a version of its ref, and it counts what that took.

use std::sync::atomic::{AtomicU64, Ordering};

use super::assemble::Built;
use super::dedup::Dedup;
use super::{PutReport, PutRequest};
use crate::error::Result;
use crate::format::{Change, PackKind, Version};
use crate::index::Index;
use crate::pack::WrittenPack;
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
}

impl<'p> PutPublication<'p> {
    pub(super) fn new(
        store: &'p Store,
        request: &'p PutRequest,
        dedup: &'p Dedup,
        view: View,
        base: Option<Base>,
    ) -> Self {
        if let Some(Base(version)) = base {
            dedup.relied().count_on(version.root);
        }
        Self {
            request,
            dedup,
            publication: Publication::new(store, dedup.relied(), view),
            new_bytes: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(0),
        }
    }

    /// Counts a frame on its way to a pack.
    pub(super) fn count(&self, kind: PackKind, raw_bytes: u32, stored_bytes: usize) {
        if kind == PackKind::Data {
            self.new_bytes
                .fetch_add(raw_bytes.into(), Ordering::Relaxed);
        }
        self.stored_bytes
            .fetch_add(stored_bytes as u64, Ordering::Relaxed);
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
        if self.request.dry_run {
            report.relied = Index::clone(&self.dedup.relied().index());
            return Ok(Some(report));
        }
        let target = &self.request.target;
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
