//! Finishing behind: one pack becomes durable while the next one is filled.
//!
//! A bucket takes its time to join the parts of an upload, and a disk to sync them.

use crossbeam_channel::{Sender, bounded};

use crate::error::{Error, Result};

/// Where full packs are handed over.
pub(crate) struct Finisher<P>(Sender<P>);

impl<P> Finisher<P> {
    /// Waits until the pack before is finished.
    ///
    /// # Errors
    /// Interrupted, when finishing has failed.
    pub(crate) fn hand_over(&self, pack: P) -> Result<()> {
        let handed = self.0.send(pack);
        handed.map_err(|_| Error::interrupted("finishing of packs stopped"))
    }
}

/// Runs `fill`, and behind it `finish` for each pack that it hands over, one at a time and in order.
///
/// # Errors
/// That of `finish` before that of `fill`, which may follow from it.
pub(crate) fn finish_behind<P: Send>(
    finish: impl Fn(P) -> Result<()> + Send,
    fill: impl FnOnce(&Finisher<P>) -> Result<()>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (full, to_finish) = bounded(0);
        let finishing = scope.spawn(move || to_finish.iter().try_for_each(finish));
        let full = Finisher(full);
        let filled = fill(&full);
        drop(full);
        finishing
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        filled
    })
}
