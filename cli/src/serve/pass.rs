//! One pass over a file: the body of one answer.

use std::fs::File;
use std::sync::{Arc, OnceLock};

use store::{Content, Error, Pool, Result};
use tokio::sync::Semaphore;

use crate::serve::ahead::Held;
use crate::serve::memory::Share;

/// What one pass over a file knows of it.
#[derive(Clone)]
pub(crate) struct Pass {
    pub(super) warm: Warm,
    /// What is read ahead of it, if the store is far.
    pub(super) held: Option<Arc<Held>>,
    /// Its own memory, for one piece at a time.
    own: Arc<Semaphore>,
}

impl Pass {
    pub(super) fn new(held: Option<Arc<Held>>) -> Self {
        Self {
            warm: Warm::default(),
            held,
            own: Arc::new(Semaphore::new(1)),
        }
    }

    /// Waits until its own memory is free: until this client took what it was sent.
    pub(super) async fn own(&self) -> Result<Share> {
        let share = Arc::clone(&self.own).acquire_owned().await;
        let share = share.map_err(|_| Error::interrupted("the server stops"))?;
        Ok(Share(share))
    }

    /// The same, if it is free now.
    pub(super) fn own_at_once(&self) -> Option<Share> {
        let share = Arc::clone(&self.own).try_acquire_owned();
        Some(Share(share.ok()?))
    }
}

/// The pool file of a content, searched once.
#[derive(Clone, Default)]
pub(super) struct Warm(pub(super) Arc<OnceLock<Option<File>>>);

impl Warm {
    pub(super) fn file(&self, pools: &[Pool], content: &Content) -> Option<&File> {
        let found = self.0.get_or_init(|| {
            // An unreadable pool is skipped, since the store has the bytes too.
            let mut files = pools
                .iter()
                .filter_map(|pool| pool.open_content(content).ok()?);
            files.next()
        });
        found.as_ref()
    }
}
