//! Makes one pack durable while the next one is filled, or writes frames while the next ones are encoded.
//!
//! Joining the parts of an upload takes time in a bucket, and so does syncing to a disk.

use crossbeam_channel::{Sender, bounded};

use crate::error::{Error, Result};

/// Takes full packs, or other full portions.
pub struct Finisher<P>(Sender<P>);

impl<P> Finisher<P> {
    /// Hands over a pack, after waiting until the previous one is finished.
    ///
    /// # Errors
    /// Interrupted, when finishing has failed.
    pub fn hand_over(&self, pack: P) -> Result<()> {
        let handed = self.0.send(pack);
        handed.map_err(|_| Error::interrupted("finishing of packs stopped"))
    }
}

/// Runs `fill`, and concurrently `finish` for each pack that it hands over, one at a time and in order.
///
/// # Errors
/// The error of `finish`, or else that of `fill`, which may be a consequence of the former.
pub fn finish_behind<P: Send>(
    finish: impl FnMut(P) -> Result<()> + Send,
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
