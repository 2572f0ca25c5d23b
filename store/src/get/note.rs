//! What a room holds: the copy, and a note that names the process that builds there.

use serde::{Deserialize, Serialize};

use crate::format::Time;
use crate::host::pool::{Identity, Life};
pub(super) use crate::host::rooms::{COPY as PREFIX, NOTE};

/// The name under which the copy is built in a room.
pub(super) const TREE: &[u8] = b"tree";

/// The process that builds in a room.
#[derive(Serialize, Deserialize)]
pub(super) struct Note {
    /// The random part of the room's name, so that a note which was copied elsewhere proves nothing.
    pub(super) room: String,
    pub(super) owner: Identity,
}

impl Note {
    /// Of this process, in a room of this name.
    pub(super) fn own(room: &[u8]) -> Self {
        Self {
            room: String::from_utf8_lossy(nonce(room)).into_owned(),
            owner: Identity::own(),
        }
    }
}

/// The random part of a room's name.
fn nonce(room: &[u8]) -> &[u8] {
    room.strip_prefix(PREFIX.as_bytes()).unwrap_or_default()
}

/// The process of a room, when nothing shows that it is alive.
pub(super) struct Absent {
    pub(super) life: Life,
    /// The time of its last sign of life.
    pub(super) beaten: Time,
}

/// The state of the process that a note names; none, if this is not a note of the room.
pub(super) fn life_of(note: &Note, room: &[u8]) -> Option<Life> {
    (note.room.as_bytes() == nonce(room)).then(|| note.owner.life(&Identity::own()))
}
