//! What to collect, how far, and when to stop.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use store::Store;

use crate::policy::Policy;

/// How far a plan goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Orphans younger than this are left alone: their writers may still commit them. What an unfinished pass has
    /// committed is left alone, too, until its newest part is as old.
    pub min_age_secs: u64,
    /// Objects are deleted this long after the log entry that condemned them, so that running readers can finish.
    pub grace_secs: u64,
    /// Unused bytes that may stay in packs, in parts per million of all packs.
    pub max_unused_ppm: u64,
    /// Most bytes of packs to copy in one run.
    pub max_repack_bytes: Option<u64>,
    /// Whether sparse packs are copied at all.
    pub repack: bool,
    /// Most memory in bytes for a merge of segments.
    pub memory_bytes: u64,
}

impl Default for Options {
    /// A day for writers, an hour for readers, one byte in twenty unused, a quarter of a gigabyte of memory.
    fn default() -> Self {
        Self {
            min_age_secs: 24 * 3600,
            grace_secs: 3600,
            max_unused_ppm: 50_000,
            max_repack_bytes: None,
            repack: true,
            memory_bytes: 256 << 20,
        }
    }
}

#[cfg(test)]
impl Options {
    /// Without any age or grace, for tests.
    pub(crate) const AT_ONCE: Self = Self {
        min_age_secs: 0,
        grace_secs: 0,
        max_unused_ppm: 50_000,
        max_repack_bytes: None,
        repack: true,
        memory_bytes: 1 << 30,
    };
}

/// A request to collect garbage.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to drop.
    pub policy: Policy,
    /// How far.
    pub options: Options,
    /// Only plan.
    pub dry_run: bool,
    /// Nothing else writes to the store. Required if a collector could lose what a concurrent writer writes.
    pub exclusive: bool,
    /// Stop cleanly after this long.
    pub time_limit: Option<Duration>,
    /// The clock for ages and graces.
    pub clock: fn() -> Timestamp,
    /// The clock for the time limit, with any origin; [`steady`] except in tests.
    pub elapsed: fn() -> Duration,
}

/// When to stop, by a request's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    elapsed: fn() -> Duration,
    end: Option<Duration>,
}

impl Deadline {
    pub(crate) fn of(request: &Request) -> Self {
        let end = |limit| (request.elapsed)().checked_add(limit);
        Self {
            elapsed: request.elapsed,
            end: request.time_limit.and_then(end),
        }
    }

    /// Whether to stop cleanly: the time is over, or `store`'s host was asked to stop.
    pub(crate) fn stops(&self, store: &Store) -> bool {
        self.is_over() || store.host().check_stop().is_err()
    }

    /// Whether the time is over.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| (self.elapsed)() >= end)
    }
}

/// The time since the first call, by a monotonic clock.
pub fn steady() -> Duration {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGAN.elapsed()
}

/// `secs` after `time`, or the end of all time.
pub(crate) fn after(time: Timestamp, secs: u64) -> Timestamp {
    let secs = i64::try_from(secs).unwrap_or(i64::MAX);
    time.checked_add(jiff::SignedDuration::from_secs(secs))
        .unwrap_or(Timestamp::MAX)
}
