//! The list of the entries that a room moves out into its destination, and which of them are still there unchanged.
//!
//! The list is in the room. When all entries are out, the list is moved out as well, under the room's name and a suffix;
//! then the room is removed, and the list last. So whenever a get is killed, something proves whose the entries are.
//!
//! An entry is unchanged if its time of change is not later than the last move. Nobody can set that time back.

use std::io::BufRead;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, FileType, Mode, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::note::{Absent, NOTE, Note, TREE, life_of};
use crate::format::Time;
use crate::host::destination::is_mounted;
use crate::host::pool::{Inode, Life};
use crate::host::rooms::MOVED as BESIDE;
use crate::host::walk::{Item, Stat, WalkOptions, walk};
use crate::host::{disk, trust};

/// The file that lists what a room moves out: the room's note, then one entry per line.
const MOVED: &str = "moved";
/// How much later than the last move an entry may say that it was changed by it: the kernel takes the two times one after
/// the other, from a clock with steps, and the process may be held up in between.
const SLACK_NANOS: i128 = 250_000_000;

/// An entry that is moved out of a room, as it was then.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moved {
    pub(super) name: Vec<u8>,
    inode: Inode,
    /// The size of a file; 0 for a directory.
    bytes: u64,
    secs: i64,
    nanos: u32,
    /// Older programs did not write it.
    #[serde(default)]
    mode: Option<u32>,
}

impl Moved {
    fn of(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<(Self, Stat)> {
        let stat = Stat::from(fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?);
        let moved = Self {
            name: name.to_vec(),
            inode: Inode::of(&dir, name)?,
            bytes: if stat.is_dir() { 0 } else { stat.size },
            secs: stat.mtime.secs,
            nanos: stat.mtime.nanos,
            mode: Some(stat.mode),
        };
        Ok((moved, stat))
    }

    fn is_like(&self, there: &Self) -> bool {
        let mode = self.mode.and(there.mode);
        let there = Self {
            name: there.name.clone(),
            mode,
            ..*there
        };
        *self == there
    }
}

/// The name of the list beside a room.
fn beside(room: &[u8]) -> Vec<u8> {
    [room, BESIDE.as_bytes()].concat()
}

/// The room that a name in a destination belongs to.
pub(super) fn room_of(name: &[u8]) -> &[u8] {
    name.strip_suffix(BESIDE.as_bytes()).unwrap_or(name)
}

/// Lists the entries of a tree in its room before they are moved out.
pub(super) fn list(
    room: &OwnedFd,
    note: &Note,
    tree: &OwnedFd,
    names: &[Vec<u8>],
) -> rustix::io::Result<()> {
    let mut text = serde_json::to_vec(note).map_err(|_| Errno::IO)?;
    text.push(b'\n');
    for name in names {
        serde_json::to_writer(&mut text, &Moved::of(tree, name)?.0).map_err(|_| Errno::IO)?;
        text.push(b'\n');
    }
    let file = disk::write_whole(room, MOVED, &text)?;
    // If a power cut destroys the list, the user must clean up the destination.
    disk::forgive(fs::fdatasync(&file));
    Ok(())
}

/// Removes the list: all entries are back in the room.
pub(super) fn unlist(room: &OwnedFd) -> rustix::io::Result<()> {
    match fs::unlinkat(room, MOVED, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Removes the room, and last the list: all entries are out.
pub(super) fn finish(above: &OwnedFd, name: &[u8], room: &OwnedFd) -> rustix::io::Result<()> {
    let list = beside(name);
    fs::unlinkat(room, TREE, AtFlags::REMOVEDIR)?;
    fs::renameat_with(room, MOVED, above, &*list, RenameFlags::NOREPLACE)?;
    fs::unlinkat(room, NOTE, AtFlags::empty())?;
    fs::unlinkat(above, name, AtFlags::REMOVEDIR)?;
    fs::unlinkat(above, &*list, AtFlags::empty())
}

/// Puts the list back into its room, which is made again if it is gone; none, if neither is left.
pub(super) fn restored(above: &OwnedFd, name: &[u8]) -> rustix::io::Result<Option<OwnedFd>> {
    let open = || match disk::open_dir(above, name) {
        Err(Errno::NOENT) => Ok(None),
        room => room.map(Some),
    };
    let list = beside(name);
    match fs::statat(above, &*list, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return open(),
        there => there?,
    };
    let taken = |errno| match errno {
        Errno::EXIST => Ok(()),
        errno => Err(errno),
    };
    fs::mkdirat(above, name, Mode::from_raw_mode(0o700)).or_else(taken)?;
    let Some(room) = open()? else {
        return Ok(None);
    };
    let note = serde_json::to_vec(&Note::own(name)).map_err(|_| Errno::IO)?;
    let written = disk::write_whole(&room, NOTE, &note);
    written.map(drop).or_else(taken)?;
    fs::renameat_with(above, &*list, &room, MOVED, RenameFlags::NOREPLACE)?;
    Ok(Some(room))
}

/// A list of a room.
#[derive(Default)]
struct List {
    note: Option<Note>,
    moved: Vec<Moved>,
    /// When it was written.
    begun: Time,
    /// When the last entry was moved, or later.
    last: Time,
}

/// A line of a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Moved(Moved),
    Note(Note),
}

/// Reads the list of a room, inside or beside it. An absent list is empty; none, if the list cannot be read.
fn listed(above: &OwnedFd, name: &[u8]) -> Option<List> {
    let room = disk::open_dir(above, name);
    let inside = match &room {
        Ok(room) => disk::open_file(room, MOVED.as_bytes()),
        Err(_) => Err(Errno::NOENT),
    };
    let file = match inside {
        Err(Errno::NOENT) => disk::open_file(above, &beside(name)),
        file => file,
    };
    let file = match file {
        Err(Errno::NOENT) => return Some(List::default()),
        file => file.ok()?,
    };
    let stat = Stat::of_file(&file, Path::new(MOVED)).ok()?;
    if stat.uid != trust::user() || FileType::from_raw_mode(stat.mode) != FileType::RegularFile {
        return None;
    }
    let mut list = List {
        begun: stat.mtime,
        last: stat.ctime,
        ..List::default()
    };
    for line in std::io::BufReader::new(file).split(b'\n') {
        match serde_json::from_slice(&line.ok()?).ok()? {
            Line::Moved(moved) => list.moved.push(moved),
            Line::Note(note) => list.note = Some(note),
        }
    }
    // A move changes the directory that the entry leaves. The list is moved after all entries, which changes the list.
    let tree = room.map(|room| fs::statat(room, TREE, AtFlags::SYMLINK_NOFOLLOW));
    if let Ok(Ok(tree)) = tree {
        list.last = list.last.max(Stat::from(tree).ctime);
    }
    Some(list)
}

/// The process of a room that is gone but for its list. If a power cut destroyed the list, the process is judged by
/// silence alone.
pub(super) fn absent(above: &OwnedFd, name: &[u8]) -> Option<Absent> {
    let stat = fs::statat(above, &*beside(name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_own = stat.st_uid == trust::user() && stat.st_mode & 0o022 == 0;
    if !is_own || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let note = listed(above, name).and_then(|list| list.note);
    let life = match &note {
        Some(note) => life_of(note, name)?,
        None => Life::Unknown,
    };
    (life != Life::Alive).then(|| Absent {
        life,
        beaten: Stat::from(stat).mtime,
    })
}

/// Entries that were moved out of a room and are in the destination.
#[derive(Default)]
pub(super) struct Out {
    /// Entries that are as they were moved.
    pub(super) unchanged: Vec<Moved>,
    /// The first entry that has changed since.
    pub(super) changed: Option<Vec<u8>>,
    /// A power cut destroyed the list, so nobody knows which entries were moved.
    pub(super) is_unknown: bool,
}

impl Out {
    pub(super) fn of(dest: &OwnedFd, path: &Path, room: &[u8]) -> Self {
        let mut out = Self::default();
        let Some(list) = listed(dest, room) else {
            out.is_unknown = true;
            return out;
        };
        for moved in list.moved {
            let there = Moved::of(dest, &moved.name);
            if there.as_ref().err() == Some(&Errno::NOENT) {
                continue;
            }
            let path = path.join(std::ffi::OsStr::from_bytes(&moved.name));
            let is_as_it_was = there.is_ok_and(|(there, stat)| {
                moved.is_like(&there) && nanos(stat.ctime) <= nanos(list.last) + SLACK_NANOS
            });
            if is_as_it_was && is_untouched(&path, list.begun) {
                out.unchanged.push(moved);
            } else {
                out.changed.get_or_insert(moved.name);
            }
        }
        out
    }
}

fn nanos(time: Time) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

/// Whether nothing below `path` has changed or was mounted since. The directory itself is exempt: it was renamed.
fn is_untouched(path: &Path, since: Time) -> bool {
    let Ok(top) = Stat::of_path(path) else {
        return false;
    };
    if !top.is_dir() {
        return true;
    }
    let is_as_it_was = |stat: &Stat| stat.ctime <= since && stat.dev == top.dev;
    walk(path, WalkOptions::default()).is_ok_and(|mut items| {
        items.all(|item| match item {
            Ok(Item::Enter { name, dir, stat }) => {
                (name.is_empty() || is_as_it_was(&stat)) && !is_mounted(&dir)
            }
            Ok(Item::File { stat, .. } | Item::Symlink { stat, .. }) => is_as_it_was(&stat),
            Ok(Item::Leave) => true,
            Ok(Item::Skipped { .. }) | Err(_) => false,
        })
    })
}

/// Whether entries that a room was moving out are, or may be, beside the room.
pub(super) fn is_out(above: &OwnedFd, room: &[u8]) -> bool {
    listed(above, room).is_none_or(|list| {
        let is_there =
            |moved: &Moved| match fs::statat(above, &*moved.name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(errno) => errno != Errno::NOENT,
                Ok(_) => true,
            };
        list.moved.iter().any(is_there)
    })
}
