//! Delete: removes objects that the log condemned once their grace is over; then the log forgets them.
//!
//! Nothing else deletes, except that `apply` takes back own packs for which the disk had no room. Before a condemned
//! object is deleted, the entry that condemned it is read back and made durable. Deleting twice is harmless, so any
//! number of collectors may do it concurrently.

use std::collections::{BTreeMap, HashSet};

use store::format::{Change, Condemned, pack_key, segment_key};
use store::index::Index;
use store::log;
use store::{PackId, Result, SegmentId};

use crate::apply::{Applied, Commit, Session};
use crate::held::waiting;
use crate::plan::is_due;
use crate::report::CollectReport;

/// Most keys that one request deletes.
const DELETE_KEYS: usize = 1000;

impl Session<'_, '_> {
    /// Deletes objects whose entry is in the log and whose grace is over.
    pub(crate) fn delete_due(&mut self, report: &mut CollectReport) -> Result<()> {
        let now = self.clock.now();
        let state = &self.view.state;
        let packs = state
            .condemned
            .iter()
            .map(|(id, condemned)| (pack_key(*id), *condemned));
        let segments = state
            .dropped
            .iter()
            .map(|(id, condemned)| (segment_key(*id), *condemned));
        let due: Vec<(String, Condemned)> = packs
            .chain(segments)
            .filter(|(key, condemned)| {
                is_due(condemned, self.request.options.grace_secs, now)
                    && self.sizes.of(key).is_some()
                    && !self.deleted.contains(key)
            })
            .collect();
        self.delete(report, due)
    }

    fn delete(&mut self, report: &mut CollectReport, due: Vec<(String, Condemned)>) -> Result<()> {
        for (_, condemned) in &due {
            // DESIGN, collector 4: an entry that cannot be read back stops the deletion.
            if self.confirmed.insert(condemned.entry) {
                log::confirm(self.store.remote().as_ref(), condemned.entry)?;
            }
        }
        let keys: Vec<String> = due.into_iter().map(|(key, _)| key).collect();
        for keys in keys.chunks(DELETE_KEYS) {
            self.prune.delete(keys)?;
            for key in keys {
                if let Some(bytes) = self.sizes.of(key) {
                    report.freed_bytes += bytes;
                    report.freed_objects += 1;
                }
                self.deleted.insert(key.clone());
            }
        }
        Ok(())
    }

    /// Deletes what no entry names: uploads of dead processes, superseded checkpoints and the like.
    pub(crate) fn delete_nameless(&mut self, report: &mut CollectReport) -> Result<()> {
        // DESIGN, collector 8: no entry needs to name these.
        let nameless = &self.plan.nameless;
        let keys = nameless.keys();
        for keys in keys.chunks(DELETE_KEYS) {
            self.prune.delete(keys)?;
        }
        for (key, sight) in &nameless.sights {
            // If this fails, what was seen stays for one more collection.
            drop(self.prune.put(key, sight.clone()));
        }
        report.freed_objects += keys.len() as u64;
        report.freed_bytes += nameless.bytes();
        Ok(())
    }

    /// Forgets packs and segments whose objects are gone, except packs that a live segment still names.
    pub(crate) fn forget(&mut self, report: &mut CollectReport) -> Result<Applied> {
        let now = self.clock.now();
        let grace = self.request.options.grace_secs;
        let state = &self.view.state;
        let named = named_packs(&self.view.index)?;
        let packs: BTreeMap<PackId, Condemned> = state
            .condemned
            .iter()
            .filter(|(id, condemned)| is_due(condemned, grace, now) && !named.contains(id))
            .map(|(id, condemned)| (*id, *condemned))
            .collect();
        let segments: BTreeMap<SegmentId, Condemned> = state
            .dropped
            .iter()
            .filter(|(_, condemned)| is_due(condemned, grace, now))
            .map(|(id, condemned)| (*id, *condemned))
            .collect();
        if packs.is_empty() && segments.is_empty() {
            return Ok(Applied::Done);
        }
        // DESIGN, collector 6.
        // A listing may be outdated. Only a successful delete proves that an object is gone.
        let keys = packs
            .iter()
            .map(|(id, condemned)| (pack_key(*id), *condemned))
            .chain(
                segments
                    .iter()
                    .map(|(id, condemned)| (segment_key(*id), *condemned)),
            )
            .filter(|(key, _)| !self.deleted.contains(key))
            .collect();
        self.delete(report, keys)?;
        let forget = Change::Forget {
            packs: packs.into_keys().collect(),
            segments: segments.into_keys().collect(),
        };
        match self.commit(report, &[forget])? {
            Commit::Void => Ok(Applied::Void),
            Commit::Made | Commit::Nothing => Ok(Applied::Done),
        }
    }

    /// Reports what still waits for its grace.
    pub(crate) fn held(&self, report: &mut CollectReport) {
        let state = &self.view.state;
        let packs = state
            .condemned
            .iter()
            .map(|(id, condemned)| (pack_key(*id), condemned));
        let segments = state
            .dropped
            .iter()
            .map(|(id, condemned)| (segment_key(*id), condemned));
        report.held.by_grace = waiting(
            packs
                .chain(segments)
                .filter(|(key, _)| !self.deleted.contains(key))
                .filter_map(|(key, condemned)| Some((self.sizes.of(&key)?, condemned))),
            self.request.options.grace_secs,
        );
    }
}

/// Every pack that a live segment names.
fn named_packs(index: &Index) -> Result<HashSet<PackId>> {
    let mut named = HashSet::new();
    for segment in index.segments() {
        for position in 0..segment.layout().packs() {
            named.insert(segment.layout().pack(segment.bytes(), position)?.id);
        }
    }
    Ok(named)
}
