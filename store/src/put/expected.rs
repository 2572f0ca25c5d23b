//! Counts how much there is to put, ahead of the walk, if somebody watches.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::host::walk::{Item, WalkOptions, walk};
use crate::progress::Progress;

/// A count in progress. It only informs, so it ends silently if it fails; the walk then fails with an error.
pub(super) struct Expected {
    /// Where to count.
    pub(super) root: PathBuf,
    /// What to leave out.
    pub(super) options: WalkOptions,
}

impl Expected {
    /// Counts and reports the total, unless the put is `over` first.
    pub(super) fn run(self, progress: &dyn Progress, over: &AtomicBool) {
        let Ok(items) = walk(&self.root, self.options) else {
            return;
        };
        let (mut files, mut bytes) = (0, 0_u64);
        for item in items {
            match item {
                _ if over.load(Ordering::Relaxed) => return,
                Ok(Item::File { stat, .. }) => {
                    files += 1;
                    bytes = bytes.saturating_add(stat.size);
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
        progress.total(files, bytes);
    }
}
