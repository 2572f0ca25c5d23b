//! Files of this program inside a source, which a put leaves out: the store and its caches, which change while they are
//! read, and rooms, which are no user's data.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::FORMAT_KEY;
use crate::host::rooms;
use crate::host::walk::{Globs, Item};
use crate::remedy::Note;
use crate::store::Store;

/// Bytes of a path that a note shows.
const NAMED_BYTES: usize = 200;

/// What a put leaves out of a source.
pub(super) struct Own {
    /// Directories of the store and of its caches, relative to the source.
    directories: Vec<String>,
    /// The number of rooms found.
    rooms: u64,
    first: String,
}

impl Own {
    /// Looks for directories of this program inside `root`.
    ///
    /// # Errors
    /// If the source is such a directory, or is inside one.
    pub(super) fn of(store: &Store, root: &Path) -> Result<Self> {
        let mut directories = Vec::new();
        for own in own_paths(store) {
            match own.strip_prefix(root).ok().and_then(Path::to_str) {
                Some("") => {
                    return Err(Error::invalid(format!(
                        "{}: this program itself writes there",
                        root.display()
                    ))
                    .hint("put a directory beside it"));
                }
                Some(path) => directories.push(path.to_owned()),
                None => {}
            }
        }
        Ok(Self {
            directories,
            rooms: 0,
            first: String::new(),
        })
    }

    /// The globs of a request, and globs for the directories.
    pub(super) fn excluded(&self, globs: &[String]) -> Result<Globs> {
        let own = self.directories.iter();
        let own = own.map(|path| format!("/{}/", Globs::escape(path)));
        Globs::new(&globs.iter().cloned().chain(own).collect::<Vec<_>>())
    }

    /// Whether an item is a room. Counts the rooms.
    pub(super) fn is_room(&mut self, path: &[u8], item: &Item) -> bool {
        let is_room = rooms::is_room(item);
        if is_room {
            if self.rooms == 0 {
                let begin = path.get(..NAMED_BYTES).unwrap_or(path);
                self.first = begin.escape_ascii().to_string();
            }
            self.rooms += 1;
        }
        is_room
    }

    pub(super) fn notes(&self) -> Vec<Note> {
        let told = |path| format!("{path}: left out, since this program itself writes there");
        let mut notes: Vec<_> = self.directories.iter().map(told).map(Note::from).collect();
        let more = match self.rooms {
            0 => return notes,
            1 => String::new(),
            rooms => format!(" and {} more", rooms - 1),
        };
        notes.push(Note::from(format!(
            "{}{more}: left out, since a copy or a tree is being built there, or was when its process was killed",
            self.first
        )));
        notes
    }
}

/// The directories of the store and of its caches, with symlinks resolved.
pub(super) fn own_paths(store: &Store) -> Vec<PathBuf> {
    let format = store.remote().local_path(FORMAT_KEY);
    let directory = format.as_deref().and_then(Path::parent);
    let own = directory
        .into_iter()
        .chain(store.host().cache_dir.as_deref());
    own.filter_map(|own| own.canonicalize().ok()).collect()
}
