//! Rooms: directories in which a copy or a tree is being built, or was until its process was killed. A room is no user's
//! data, so a put of the directory around it leaves it out.
//!
//! A name alone proves nothing: a directory that is merely named like a room is user data.

use std::io::Read;

use rustix::io::Errno;

use super::disk;
use super::pool::{is_proof as is_proof_of_pool, is_room as is_room_of_pool};
use super::walk::{Dir, Item};

/// The prefix of the name of a copy's room; a random part follows.
pub(crate) const COPY: &str = ".store-get-";
/// The note in the room of a copy.
pub(crate) const NOTE: &str = "room";
/// The suffix of the list beside such a room while the room is removed.
pub(crate) const MOVED: &str = ".moved";
/// Bytes of a note that are of interest.
const NOTE_BYTES: u64 = 4096;

/// Whether an item of a walk is a room, or what is left of one.
pub(crate) fn is_room(item: &Item) -> bool {
    match item {
        Item::Enter { name, dir, .. } => {
            is_room_of_pool(name, dir)
                || nonce(name).is_some_and(|nonce| is_copy_room(dir, nonce).unwrap_or(false))
        }
        Item::File { name, dir, .. } => {
            let nonce = name.strip_suffix(MOVED.as_bytes()).and_then(nonce);
            nonce.is_some_and(|nonce| says(dir, name, nonce).unwrap_or(false))
        }
        _ => false,
    }
}

/// Whether an item of a walk is the link by which a pool knows its tree, where directories have no attributes.
pub(crate) fn is_proof(item: &Item) -> bool {
    matches!(item, Item::Symlink { name, target, .. } if is_proof_of_pool(name, target))
}

fn nonce(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(COPY.as_bytes())
}

/// Whether a directory has the note of a room, or is empty because its process was killed before it wrote one.
fn is_copy_room(dir: &Dir, nonce: &[u8]) -> rustix::io::Result<bool> {
    match says(dir, NOTE.as_bytes(), nonce) {
        Err(Errno::NOENT) => Ok(disk::is_empty(dir)),
        says => says,
    }
}

/// Whether the first line of a file is the note of a room with this random name.
fn says(dir: &Dir, name: &[u8], nonce: &[u8]) -> rustix::io::Result<bool> {
    /// The part of a note that tells.
    #[derive(serde::Deserialize)]
    struct Note {
        room: String,
    }
    let file = disk::open_file(dir, name)?;
    let mut text = Vec::new();
    let read = file.take(NOTE_BYTES).read_to_end(&mut text);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // A power cut can fill a note with zeros.
    let is_lost = !line.is_empty() && line.iter().all(|byte| *byte == 0);
    let note = serde_json::from_slice::<Note>(line);
    Ok(is_lost || note.is_ok_and(|note| note.room.as_bytes() == nonce))
}
