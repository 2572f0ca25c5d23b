//! How much there is to put, counted ahead of the walk while somebody watches.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::host::walk::{Item, WalkOptions, walk};
use crate::progress::Progress;

/// A count under way; it only ever informs, so it ends in silence where the walk will fail.
pub(super) struct Expected {
    /// Where to count.
    pub(super) root: PathBuf,
    /// What to leave out.
    pub(super) options: WalkOptions,
}

impl Expected {
    /// Counts, unless the put is `over` first, and tells the total.
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
