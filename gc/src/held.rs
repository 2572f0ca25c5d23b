//! Held: what a collection does not free, and until when.

use jiff::Timestamp;
use serde::Serialize;
use store::format::Condemned;

use crate::request::after;

/// What a plan does not free, and until when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Condemned objects within their grace.
    pub by_grace: Wait,
    /// Young objects that a writer may still need: not committed yet, or committed by a pass that has not ended.
    pub by_age: Wait,
    /// Unused bytes in packs that stay.
    pub unused_bytes: u64,
    /// Bytes of packs that stay, including unused ones.
    pub kept_bytes: u64,
}

/// Bytes that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The number of bytes.
    pub bytes: u64,
    /// When the last of them may be freed.
    pub until: Option<Timestamp>,
}

impl Wait {
    pub(crate) fn add(&mut self, bytes: u64, until: Timestamp) {
        self.bytes += bytes;
        self.until = self.until.max(Some(until));
    }
}

/// The bytes of objects that wait for their grace, given their sizes and what condemned them.
pub(crate) fn waiting<'c>(
    objects: impl Iterator<Item = (u64, &'c Condemned)>,
    grace_secs: u64,
) -> Wait {
    let mut wait = Wait::default();
    objects.for_each(|(bytes, condemned)| wait.add(bytes, after(condemned.time, grace_secs)));
    wait
}
