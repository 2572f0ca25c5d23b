//! What killed gets left: their rooms, and the entries that they had moved from a room into the destination.
//!
//! A room is removed only if it belongs to the caller, its note names it, nobody holds the lock, and its process is
//! dead. A process is dead if the process table says so, or if it was silent for an hour by the times of its file
//! system, which the own clock confirms. A room that is empty, or whose note a power cut filled with zeros, is judged
//! by silence alone; an empty one inside a destination is removed at once. Entries that were moved out are removed only
//! if nobody touched them since. If the destination holds anything else, nothing in it is touched.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::moved::{self, Moved, Out, is_out, room_of};
use super::note::{Absent, NOTE, PREFIX, TREE, life_of};
use crate::error::{Error, Result};
use crate::format::Time;
use crate::host::beat;
use crate::host::destination::{Site, There};
use crate::host::pool::Life;
use crate::host::walk::Stat;
use crate::host::{disk, trust};

/// Most bytes of a note.
const NOTE_BYTES_MAX: usize = 4096;
/// What killed gets left in a destination that holds nothing else.
pub(super) struct Remains {
    dest: OwnedFd,
    rooms: Vec<Vec<u8>>,
    /// Empty ones, of which nobody knows whose they are: they go if they still are empty.
    bare: Vec<Vec<u8>>,
}

impl Remains {
    /// Returns the remains of killed gets, if the destination holds nothing else.
    ///
    /// # Errors
    /// Conflict, when a room may be in use, or foreign entries are beside entries that a room moved out.
    pub(super) fn of(site: &Site) -> Result<Option<Self>> {
        if site.there != There::Directory {
            return Ok(None);
        }
        let Ok(dest) = disk::open_path(&site.path) else {
            return Ok(None);
        };
        let names = entries(&dest).unwrap_or_default().into_iter();
        let (rooms, mut others): (BTreeSet<_>, BTreeSet<_>) =
            names.partition(|name| name.starts_with(PREFIX.as_bytes()));
        if rooms.is_empty() {
            return Ok(None);
        }
        let rooms: BTreeSet<_> = rooms.iter().map(|name| room_of(name).to_vec()).collect();
        let rooms: Vec<_> = rooms.into_iter().collect();
        let dead = dead(&dest, &rooms, || time(&dest));
        let mut is_part = false;
        for room in &dead {
            let out = Out::of(&dest, &site.path, room);
            is_part |= !out.unchanged.is_empty() || out.changed.is_some() || out.is_unknown;
            for moved in out.unchanged {
                others.remove(&moved.name);
            }
        }
        let is_bare = |room: &&Vec<u8>| !dead.contains(*room) && is_bare(&dest, room);
        let bare: Vec<_> = rooms.iter().filter(is_bare).cloned().collect();
        match others.first() {
            Some(other) if is_part => Err(mixed(site, other)),
            Some(_) => Ok(None),
            None if dead.len() + bare.len() < rooms.len() => Err(occupied(site)),
            None => Ok(Some(Self {
                dest,
                rooms: dead,
                bare,
            })),
        }
    }

    /// Moves entries back into their rooms, and removes the rooms.
    pub(super) fn remove(self, site: &Site) -> Result<()> {
        let failed = |errno| disk::failed("remove what a killed get left in", &site.given, errno);
        for name in &self.bare {
            match fs::unlinkat(&self.dest, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::NOTEMPTY | Errno::EXIST) => return Err(occupied(site)),
                Err(errno) => return Err(failed(errno)),
            }
        }
        for name in &self.rooms {
            let out = Out::of(&self.dest, &site.path, name);
            if let Some(changed) = out.changed {
                return Err(mixed(site, &changed));
            }
            let Some(room) = moved::restored(&self.dest, name).map_err(failed)? else {
                continue;
            };
            if !out.unchanged.is_empty() {
                match fs::mkdirat(&room, TREE, Mode::from_raw_mode(0o700)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(failed(errno)),
                }
                let tree = disk::open_dir(&room, TREE).map_err(failed)?;
                for Moved { name, .. } in &out.unchanged {
                    fs::renameat_with(&self.dest, name, &tree, name, RenameFlags::NOREPLACE)
                        .map_err(failed)?;
                }
            }
            moved::unlist(&room).map_err(failed)?;
            remove_room(&self.dest, name, &room).map_err(failed)?;
        }
        Ok(())
    }
}

fn occupied(site: &Site) -> Error {
    Error::conflict(format!(
        "{}: another get builds in it, or did until it was killed: of a process elsewhere only its silence tells",
        site.given.display()
    ))
    .hint(format!(
        "wait for it; after an hour without a sign of life what it left is removed; if you know that no get works \
         there, remove {PREFIX}* from it"
    ))
}

fn mixed(site: &Site, other: &[u8]) -> Error {
    Error::conflict(format!(
        "{}: holds a copy that a killed get left, or a part of one, and things that it did not make or that were \
         changed since, like {}",
        site.given.display(),
        String::from_utf8_lossy(other).escape_debug()
    ))
    .hint(format!(
        "move away what is yours, remove the rest, {PREFIX}* included, and run it again"
    ))
}

/// Removes the rooms of dead processes in `above`. What cannot be removed is left for the next get. A room stays if
/// entries were moved out of it, since those belong to another copy.
pub(super) fn sweep(above: &OwnedFd, own: &str, now: Time) {
    let mut names = entries(above).unwrap_or_default();
    names.retain(|name| name.starts_with(PREFIX.as_bytes()) && name != own.as_bytes());
    for name in dead(above, &names, || Some(now)) {
        if let Ok(room) = disk::open_dir(above, &name)
            && !is_out(above, &name)
        {
            disk::forgive(remove_room(above, &name, &room));
        }
    }
}

fn remove_room(above: &OwnedFd, name: &[u8], room: &OwnedFd) -> rustix::io::Result<()> {
    empty(room)?;
    fs::unlinkat(above, name, AtFlags::REMOVEDIR)
}

/// The current time of the file system: that of a new directory. If killed here, it looks like a room without a note.
fn time(dir: &OwnedFd) -> Option<Time> {
    let name = format!("{PREFIX}{}", disk::random_name().ok()?);
    fs::mkdirat(dir, &name, Mode::from_raw_mode(0o700)).ok()?;
    let stat = fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW);
    disk::forgive(fs::unlinkat(dir, &name, AtFlags::REMOVEDIR));
    Some(Stat::from(stat.ok()?).mtime)
}

/// Whether a room is an empty directory of this user. Its process was killed before it wrote a note, or is about to write
/// one; then it begins another room.
fn is_bare(above: &OwnedFd, name: &[u8]) -> bool {
    let Ok(room) = disk::open_dir(above, name) else {
        return false;
    };
    fs::fstat(&room).is_ok_and(|stat| stat.st_uid == trust::user()) && disk::is_empty(&room)
}

/// The rooms that are ours and whose processes are dead. A process of which nothing is known counts as alive.
fn dead(above: &OwnedFd, names: &[Vec<u8>], now: impl FnOnce() -> Option<Time>) -> Vec<Vec<u8>> {
    let looked = names.iter();
    let looked = looked.filter_map(|name| Some((name, look(above, name)?)));
    let (mut dead, unseen): (Vec<_>, Vec<_>) =
        looked.partition(|(_, absent)| absent.life == Life::Dead);
    if !unseen.is_empty()
        && let Some(now) = now()
    {
        dead.extend(beat::silent(
            unseen,
            now,
            |(_, absent)| absent.beaten,
            |(name, _)| look(above, name).map(|absent| absent.beaten),
        ));
    }
    dead.into_iter().map(|(name, _)| name.clone()).collect()
}

/// What is known of the process of a room; none, if the room is not ours or is in use.
fn look(above: &OwnedFd, name: &[u8]) -> Option<Absent> {
    let is_own = |stat: &fs::Stat| stat.st_uid == trust::user() && stat.st_mode & 0o022 == 0;
    let room = match disk::open_dir(above, name) {
        Err(Errno::NOENT) => return moved::absent(above, name),
        room => room.ok()?,
    };
    let dir = fs::fstat(&room).ok().filter(is_own)?;
    let note = match disk::open_file(&room, NOTE.as_bytes()) {
        // The process was killed before it wrote the note, or at the very end of a removal.
        Err(Errno::NOENT) => {
            let unwritten = format!(".{NOTE}");
            let names = entries(&room).ok()?;
            let is_bare = names.iter().all(|name| name == unwritten.as_bytes());
            return is_bare.then(|| {
                moved::absent(above, name).unwrap_or(Absent {
                    life: Life::Unknown,
                    beaten: Stat::from(dir).mtime,
                })
            });
        }
        note => note.ok()?,
    };
    let stat = fs::fstat(&note).ok().filter(is_own)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let life = life(&note, name)?;
    // Any other error means that this file system has no locks, which says nothing about the process.
    if let Err(Errno::WOULDBLOCK) = fs::flock(&note, FlockOperation::NonBlockingLockExclusive) {
        return None;
    }
    (life != Life::Alive).then(|| Absent {
        life,
        beaten: Stat::from(stat).mtime,
    })
}

/// The same as [`life_of`] for the file of a note.
fn life(note: &std::fs::File, room: &[u8]) -> Option<Life> {
    let mut text = [0; NOTE_BYTES_MAX];
    let len = rustix::io::pread(note, &mut text[..], 0).ok()?;
    let text = text.get(..len)?;
    // A power cut destroyed the bytes: the note got its name only when it was complete.
    if text.iter().all(|byte| *byte == 0) {
        return Some(Life::Unknown);
    }
    life_of(&serde_json::from_slice(text).ok()?, room)
}

/// Removes everything in a room, however deep. Directories are moved up to the top one after another, so that neither
/// the stack nor the number of open directories grows with the depth. The note goes last: after a kill it still proves
/// what the rest is.
pub(super) fn empty(top: &OwnedFd) -> rustix::io::Result<()> {
    let mut count: u64 = 0;
    loop {
        let mut names = entries(top)?;
        names.retain(|name| name != NOTE.as_bytes());
        if names.is_empty() {
            break;
        }
        for name in names {
            if !remove(top, &name)? {
                let below = disk::open_dir(top, &name)?;
                for inner in entries(&below)? {
                    if !remove(&below, &inner)? {
                        set_aside(&below, &inner, top, &mut count)?;
                    }
                }
                fs::unlinkat(top, &name, AtFlags::REMOVEDIR)?;
            }
        }
    }
    match remove(top, NOTE.as_bytes())? {
        true => Ok(()),
        false => Err(Errno::NOTEMPTY),
    }
}

/// Moves a directory to the top of a room under a free name; a removal that was killed may have used some names.
fn set_aside(
    below: &OwnedFd,
    name: &[u8],
    top: &OwnedFd,
    count: &mut u64,
) -> rustix::io::Result<()> {
    loop {
        *count += 1;
        let aside = format!("{NOTE}-{count}");
        match fs::renameat_with(below, name, top, &aside, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            moved => return moved,
        }
    }
}

/// Removes a name, unless it is a non-empty directory.
fn remove(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<bool> {
    match fs::unlinkat(&dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    match fs::unlinkat(&dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno),
    }
}

pub(super) fn entries(dir: &OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    // Each listing opens the directory again: a descriptor that was read once is at its end.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = fs::openat(dir, ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in fs::Dir::read_from(dir)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::note::Note;
    use super::*;
    use crate::host::pool::Identity;

    fn assert_left(gone: &[std::path::PathBuf], kept: &[std::path::PathBuf]) {
        for path in gone {
            assert!(!path.exists(), "{}", path.display());
        }
        for path in kept {
            assert!(path.exists(), "{}", path.display());
        }
    }

    #[test]
    fn a_room_is_emptied_however_deep_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let top = disk::open_path(dir.path()).unwrap();
        let mut at = top.try_clone().unwrap();
        for _ in 0..3_000 {
            fs::mkdirat(&at, "d", Mode::from_raw_mode(0o700)).unwrap();
            disk::write_new(&at, b"file", b"x").unwrap();
            at = disk::open_dir(&at, b"d").unwrap();
        }
        drop(at);
        empty(&top).unwrap();
        assert!(entries(&top).unwrap().is_empty());
    }

    /// A room of `owner`, whose process showed a sign of life `ago` seconds before 10,000.
    struct Made<'r> {
        name: &'r str,
        says: &'r str,
        owner: &'r Identity,
        mode: u32,
        ago: i64,
    }

    fn date(path: &Path, secs: i64) {
        let file = std::fs::File::open(path).unwrap();
        fs::futimens(&file, &crate::fs::stamps(Time { secs, nanos: 0 })).unwrap();
    }

    fn room(dir: &Path, made: &Made<'_>) -> std::path::PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = dir.join(format!("{PREFIX}{}", made.name));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("tree"), "bytes").unwrap();
        let note = Note {
            room: made.says.into(),
            owner: made.owner.clone(),
        };
        std::fs::write(path.join(NOTE), serde_json::to_vec(&note).unwrap()).unwrap();
        date(&path.join(NOTE), 10_000 - made.ago);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(made.mode)).unwrap();
        path
    }

    /// A process of another host.
    fn unseen() -> Identity {
        let mut said = serde_json::to_value(Identity::own()).unwrap();
        said["host"] = "elsewhere".into();
        serde_json::from_value(said).unwrap()
    }

    const NOW: Time = Time {
        secs: 10_000,
        nanos: 0,
    };

    #[test]
    fn the_list_of_a_room_that_went_tells_who_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let above = disk::open_path(dir.path()).unwrap();
        let mut sleeping = std::process::Command::new("sleep");
        let mut child = sleeping.arg("100").spawn().unwrap();
        let dead_one = Identity::of(i32::try_from(child.id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        let write = |name: &str, text: &[u8], ago: i64| {
            let path = dir.path().join(format!("{PREFIX}{name}.moved"));
            std::fs::write(&path, text).unwrap();
            date(&path, 10_000 - ago);
        };
        let said = |room: &str, owner: &Identity| {
            let (room, owner) = (room.into(), owner.clone());
            [
                &serde_json::to_vec(&Note { room, owner }).unwrap()[..],
                b"\n",
            ]
            .concat()
        };
        write("1", &said("1", &dead_one), 1);
        write("2", &said("2", &Identity::own()), 9_000);
        // That of another room.
        write("3", &said("1", &dead_one), 9_000);
        // A power cut took the bytes of these.
        write("4", &[0; 100], 9_000);
        write("5", &[0; 100], 1_000);
        let names = ["1", "2", "3", "4", "5", "6"].map(|name| format!("{PREFIX}{name}").into());
        let mut found = dead(&above, &names, || Some(NOW));
        found.sort();
        assert_eq!(found, [names[0].clone(), names[3].clone()]);
    }

    #[test]
    fn only_what_proves_to_be_ours_and_dead_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let above = disk::open_path(dir.path()).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let dead = Identity::of(i32::try_from(child.id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        let (own, unseen) = (Identity::own(), unseen());
        let make = |name, says, owner, mode, ago| {
            room(
                dir.path(),
                &Made {
                    name,
                    says,
                    owner,
                    mode,
                    ago,
                },
            )
        };
        let gone = [
            make("1", "1", &dead, 0o700, 1),
            make("2", "2", &unseen, 0o700, 9_000),
        ];
        let kept = [
            make("3", "3", &unseen, 0o700, 1_000),
            make("4", "1", &dead, 0o700, 10_000),
            make("5", "5", &dead, 0o777, 10_000),
            make("6", "6", &own, 0o700, 9_000),
            make("7", "7", &unseen, 0o700, 9_000),
            dir.path().join(format!("{PREFIX}8")),
        ];
        std::fs::create_dir(&kept[5]).unwrap();
        std::fs::write(kept[5].join("data"), "mine").unwrap();
        date(&kept[5], 0);
        // A held lock outweighs any silence.
        let note = std::fs::File::open(kept[4].join(NOTE)).unwrap();
        fs::flock(&note, FlockOperation::NonBlockingLockExclusive).unwrap();
        sweep(&above, "none", NOW);
        assert_left(&gone, &kept);
    }

    #[test]
    fn a_room_that_says_nothing_of_its_process_goes_after_the_silence() {
        let dir = tempfile::tempdir().unwrap();
        let above = disk::open_path(dir.path()).unwrap();
        let zeros = |name: &str, len: usize, secs: i64| {
            let path = dir.path().join(format!("{PREFIX}{name}"));
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("tree"), "bytes").unwrap();
            std::fs::write(path.join(NOTE), vec![0; len]).unwrap();
            date(&path.join(NOTE), secs);
            path
        };
        let bare = |name: &str, inside: &[&str], secs: i64| {
            let path = dir.path().join(format!("{PREFIX}{name}"));
            std::fs::create_dir(&path).unwrap();
            for name in inside {
                std::fs::write(path.join(name), "{\"ro").unwrap();
            }
            date(&path, secs);
            path
        };
        let gone = [
            zeros("1", 300, 1_000),
            zeros("2", 0, 1_000),
            bare("3", &[], 1_000),
            bare("4", &[".room"], 1_000),
        ];
        let kept = [
            zeros("5", 300, 9_000),
            bare("6", &[], 9_000),
            bare("7", &["mine"], 1_000),
        ];
        sweep(&above, "none", NOW);
        assert_left(&gone, &kept);
    }

    #[test]
    fn a_leap_of_the_clock_makes_no_room_dead() {
        let dir = tempfile::tempdir().unwrap();
        let above = disk::open_path(dir.path()).unwrap();
        let unseen = unseen();
        let make = |name| {
            let made = Made {
                name,
                says: name,
                owner: &unseen,
                mode: 0o700,
                ago: 0,
            };
            room(dir.path(), &made)
        };
        // No lock, as on file systems without them. The file server's clock is two hours ahead of the last touch.
        let (alive, silent) = (make("1"), make("2"));
        let note = std::fs::File::options()
            .write(true)
            .open(alive.join(NOTE))
            .unwrap();
        let beat = beat::Beat::of(note);
        std::thread::sleep(std::time::Duration::from_millis(2_500));
        let stat = Stat::of_path(&alive.join(NOTE)).unwrap();
        let now = Time {
            secs: stat.mtime.secs + 7_200,
            nanos: 0,
        };
        sweep(&above, "none", now);
        drop(beat);
        assert!(alive.exists());
        assert!(!silent.exists());
    }
}
