//! One pass over a file: the body of one answer.

use std::fs::File;
use std::sync::{Arc, OnceLock};

use store::{Content, Pool};

use crate::serve::ahead::Held;
use crate::serve::memory::Own;

/// What one pass over a file knows of it.
#[derive(Clone)]
pub(crate) struct Pass {
    pub(super) warm: Warm,
    /// What is read ahead of it, if the store is far.
    pub(super) held: Option<Arc<Held>>,
    pub(super) own: Own,
}

impl Pass {
    pub(super) fn new(held: Option<Arc<Held>>) -> Self {
        Self {
            warm: Warm::default(),
            held,
            own: Own::new(),
        }
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
