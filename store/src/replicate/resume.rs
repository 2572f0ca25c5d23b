//! What an earlier run that was killed left: packs that are finished and in no segment yet.
//!
//! The caller remembers them, if it likes to; nothing here trusts that memory. Losing it costs time only.

use crate::id::PackId;

/// Remembers, for one pair of stores, which packs are finished and not committed yet.
///
/// Disposable: an empty one is a normal start, and one that is wrong costs a look at each pack it names.
pub trait Resume: Send + Sync {
    /// Packs that earlier runs finished and did not commit.
    fn packs(&self) -> Vec<PackId>;

    /// Told when a pack is durable at the destination. Called from one thread at a time; what it cannot
    /// write down is sent again by the next run.
    fn pack_finished(&self, pack: PackId);

    /// Told when packs need not be remembered any more: they were committed, or turned out to be useless.
    fn packs_committed(&self, packs: &[PackId]);
}

/// Remembers nothing: a run that was killed resumes from what it had committed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forgetful;

impl Resume for Forgetful {
    fn packs(&self) -> Vec<PackId> {
        Vec::new()
    }

    fn pack_finished(&self, _pack: PackId) {}

    fn packs_committed(&self, _packs: &[PackId]) {}
}
