//! Acts in the middle of a put, at a deterministic point: when the put reports its progress.

use std::sync::atomic::{AtomicBool, Ordering};

use store::Progress;

/// Acts once in the middle of a put.
pub(crate) struct Meddler<F> {
    when_total: bool,
    done: AtomicBool,
    act: F,
}

impl<F: Fn() + Sync> Meddler<F> {
    /// Acts when the walk has seen its first file, before it reads later directories.
    pub(crate) fn in_the_walk(act: F) -> Self {
        Self {
            when_total: true,
            done: AtomicBool::new(false),
            act,
        }
    }

    /// Acts after the first bytes have been hashed.
    pub(crate) fn in_the_reading(act: F) -> Self {
        Self {
            when_total: false,
            done: AtomicBool::new(false),
            act,
        }
    }

    /// Whether it has acted.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }

    fn meddle(&self) {
        if !self.done.swap(true, Ordering::SeqCst) {
            (self.act)();
        }
    }
}

impl<F: Fn() + Sync> Progress for Meddler<F> {
    fn total(&self, _files: u64, _bytes: u64) {
        if self.when_total {
            self.meddle();
        }
    }

    fn advance(&self, _files: u64, _bytes: u64) {
        if !self.when_total {
            self.meddle();
        }
    }

    /// A count ahead of the walk would report a total at an unpredictable time.
    fn is_watched(&self) -> bool {
        false
    }
}
