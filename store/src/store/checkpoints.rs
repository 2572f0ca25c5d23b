//! Checkpoints of an open store: where they are read from, and which older ones they build on.

use std::sync::Arc;

use super::Store;
use crate::error::Result;
use crate::format::State;
use crate::log;
use crate::remote::Read;

impl Store {
    /// Returns the checkpoints that the one at `number` builds on; none, if it cannot be read.
    ///
    /// # Errors
    /// When the store does not answer.
    pub fn layers_of(&self, number: u64) -> Result<Vec<u64>> {
        let (far, again) = (self.far(), self.again());
        let found = self
            .place(far.as_ref(), &again)
            .read(number, None, self.format.id)?;
        let tables = found
            .iter()
            .flat_map(|state| state.refs.tables().iter().skip(1));
        Ok(tables
            .filter_map(|table| Some(table.layer()?.number))
            .collect())
    }

    /// Returns the state of the checkpoint at `number`.
    ///
    /// # Errors
    /// Corrupt, when it is not what was written; not found, when there is none.
    pub fn checkpoint(&self, number: u64) -> Result<State> {
        let (far, again) = (self.far(), self.again());
        self.place(far.as_ref(), &again).open(number, None)
    }

    /// Where parts of checkpoints are read from later, if the store is no directory.
    pub(super) fn far(&self) -> Option<log::Far> {
        self.is_far().then(|| log::Far {
            remote: Arc::clone(&self.remote) as Arc<dyn Read>,
            dir: self.host.cache_dir_of(self.format.id),
        })
    }

    /// What a damaged checkpoint is rebuilt from. Rebuilding one is a warning.
    pub(super) fn again(&self) -> Arc<log::Again> {
        let store = self.clone();
        Arc::new(log::Again {
            remote: Arc::clone(&self.remote) as Arc<dyn Read>,
            store: self.format.id,
            tell: Box::new(move |error| store.warn(error)),
        })
    }

    pub(super) fn place<'p>(
        &'p self,
        far: Option<&'p log::Far>,
        again: &'p Arc<log::Again>,
    ) -> log::CheckpointPlace<'p> {
        log::CheckpointPlace {
            remote: self.remote.as_ref(),
            far,
            again: Some(again),
            by_copies: false,
        }
    }
}
