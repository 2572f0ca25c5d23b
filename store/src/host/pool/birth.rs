//! Which file or directory something is noted of, whatever comes to its path.
//!
//! Numbers of inodes are used again, so the time of birth tells two apart. A directory also gets an attribute when
//! something is noted of it: when that was for the first time, and the time of each note that holds. Where a file system
//! has no times of birth (ext3, ext4 with inodes of 128 bytes), the first time and the owner stand for that. Everywhere,
//! the time of a note tells the directory from one in an older copy of its whole file system, which has an earlier time
//! for that note, or none. The attribute begins with the number of the inode, since programs copy attributes from one
//! directory to another (`cp -a`). Without attributes, only the number of the inode and the owner are left, and an empty
//! directory may be a new one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags, StatxFlags, XattrFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::host::disk;

/// The attribute with the times.
const ATTRIBUTE: &str = "user.store.born";
/// What stands before the time at which it was found to be a copy.
const COPIED: &str = "-:";
/// How many times it has at most. An earlier one is forgotten: what was noted then does not hold any more.
const NOTES_MOST: usize = 64;
/// Longer than its text.
const BYTES_MAX: usize = 4096;
/// No time is as late as this, in the year 2116. So a later one can always be told.
const TIME_MAX: i64 = 1 << 62;
/// The time of a note is later than the clock says, by less than this and by chance: so two copies of a directory never get
/// the same time, wherever their clocks stand.
const CHANCE_NANOS: u32 = 1 << 20;
/// Attempts to be the only one that notes something of a directory, and the pause between two. Without locks in the file
/// system, or if another program holds one, nobody waits for longer.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// An inode by its number and its time of birth, or what stands for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inode {
    number: u64,
    born_secs: i64,
    born_nanos: u32,
    /// Without a time of birth, the time of the note that this is part of: an older copy of the directory may have the same
    /// number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noted: Option<i64>,
}

/// When things were noted of a directory, in nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Times {
    first: i64,
    /// A program had copied the attribute of another directory, which was noticed then: what was noted before is unknown.
    copied: Option<i64>,
    /// The last ones, in order.
    notes: Vec<Noted>,
}

/// One time of a note. All times of a note have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Noted {
    note: u32,
    time: i64,
}

impl Inode {
    pub(crate) fn of(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Self> {
        Self::look(dir.as_fd(), name).map(|(found, _)| found)
    }

    /// The same of a directory that has a note of this time.
    pub(crate) fn of_noted(
        dir: impl AsFd,
        name: &[u8],
        noted: Option<i64>,
    ) -> rustix::io::Result<Self> {
        let (found, has_birth) = Self::look(dir.as_fd(), name)?;
        let noted = noted.filter(|_| !has_birth);
        Ok(Self { noted, ..found })
    }

    /// The same of a directory that gets a mark, in the place of `before`. Without a time of birth, that is noted in it.
    pub(crate) fn of_marked(
        (dir, name): (impl AsFd, &[u8]),
        before: impl FnOnce() -> Option<Self>,
    ) -> rustix::io::Result<Self> {
        let (found, has_birth) = Self::look(dir.as_fd(), name)?;
        if has_birth {
            return Ok(found);
        }
        let before = before().and_then(|before| before.noted);
        let noted = note_at(&dir, name, before.as_slice());
        Self::of_noted(dir, name, noted)
    }

    /// Also returns whether the file system has times of birth.
    fn look(dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<(Self, bool)> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME | StatxFlags::UID;
        let found = fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
        let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let (born_secs, born_nanos) = match has_birth {
            true => (found.stx_btime.tv_sec, found.stx_btime.tv_nsec),
            false => {
                let times = open(dir, name).and_then(|dir| Said::by(dir.as_fd()).times());
                // Another user can copy the attribute.
                (times.map_or(0, |times| times.first), found.stx_uid)
            }
        };
        let found = Self {
            number: found.stx_ino,
            born_secs,
            born_nanos,
            noted: None,
        };
        Ok((found, has_birth))
    }

    /// Whether `name` in `dir` is this one, and is not from before this was noted.
    pub(crate) fn is_at(&self, dir: impl AsFd, name: &[u8]) -> bool {
        let has_note = |noted| open(dir.as_fd(), name).and_then(|dir| holds_note(dir, noted));
        Self::of(&dir, name).is_ok_and(|found| self.has_identity_of(&found))
            && self.noted.is_none_or(|noted| has_note(noted) == Some(true))
    }

    /// Whether both are one inode, be it an older copy.
    pub(crate) fn has_identity_of(&self, other: &Self) -> bool {
        let identity = |of: &Self| (of.number, of.born_secs, of.born_nanos);
        identity(self) == identity(other)
    }

    /// Whether the directory at `path`, which has this inode, may have been made since, as far as can be seen: neither a time
    /// of birth nor an attribute tells, and nothing is in it.
    pub(crate) fn may_be_new(&self, path: &Path) -> bool {
        self.born_secs == 0 && open_at(path).is_some_and(disk::is_empty)
    }

    pub(crate) fn number(self) -> u64 {
        self.number
    }

    /// Whether it may be the one with this device and number, if one is given.
    pub(crate) fn may_be(&self, identity: Option<(u64, u64)>) -> bool {
        identity.is_none_or(|(_, number)| self.number == number)
    }
}

/// What the attribute of a directory says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Times(Times),
    /// A program copied it from another directory.
    Copied,
    Nothing,
}

impl Said {
    fn by(dir: BorrowedFd<'_>) -> Self {
        Self::read(dir).unwrap_or(Self::Nothing)
    }

    fn read(dir: BorrowedFd<'_>) -> Option<Self> {
        let mut text = [0; BYTES_MAX];
        let len = fs::fgetxattr(dir, ATTRIBUTE, &mut text[..]).ok()?;
        let text = std::str::from_utf8(text.get(..len)?).ok()?;
        let mut parts = text.split(' ');
        let number: u64 = parts.next()?.parse().ok()?;
        let first = parts.next().and_then(time)?;
        let mut parts = parts.peekable();
        let copied = parts.next_if(|part| part.starts_with(COPIED));
        let copied = copied.and_then(|part| time(part.strip_prefix(COPIED)?));
        let notes = parts.map(Noted::parse).collect::<Option<_>>()?;
        let is_own = number == fs::fstat(dir).ok()?.st_ino;
        Some(match is_own {
            true => Self::Times(Times {
                first,
                copied,
                notes,
            }),
            false => Self::Copied,
        })
    }

    fn times(self) -> Option<Times> {
        match self {
            Self::Times(times) => Some(times),
            Self::Copied | Self::Nothing => None,
        }
    }

    /// The times to add to, at the time `now`.
    fn times_from(self, now: i64) -> Times {
        let copied = (self == Self::Copied).then_some(now);
        self.times().unwrap_or(Times {
            first: now,
            copied,
            notes: Vec::new(),
        })
    }
}

impl Noted {
    fn parse(text: &str) -> Option<Self> {
        // Builds from before 2026-11-29 wrote times alone.
        let (note, noted) = text.split_once(':').unwrap_or(("0", text));
        Some(Self {
            note: u32::from_str_radix(note, 16).ok()?,
            time: time(noted)?,
        })
    }
}

fn time(text: &str) -> Option<i64> {
    text.parse().ok().filter(|time| *time < TIME_MAX)
}

impl Times {
    /// None, if that is unknown.
    fn has(&self, noted: i64) -> Option<bool> {
        match self.notes.iter().any(|note| note.time == noted) {
            true => Some(true),
            false if self.copied.is_some_and(|copied| noted < copied) => None,
            false => Some(false),
        }
    }

    /// Adds the time of a note, which is `now` or later, and returns it. Of the times that the same note had, only those
    /// `before` stay. Without a number, it is that of these, or a random one. Returns none if no later time can be told.
    fn add(&mut self, number: Option<u32>, before: &[i64], now: i64) -> Option<i64> {
        let own = self.notes.iter().find(|noted| before.contains(&noted.time));
        let note = match number.or(own.map(|own| own.note)) {
            Some(note) => note,
            None => getrandom::u32().ok()?,
        };
        // A clock may have been set back.
        let last = self.notes.last().map_or(0, |last| last.time);
        let chance = getrandom::u32().ok()? % CHANCE_NANOS;
        let time = now
            .max(last.checked_add(1)?)
            .checked_add(i64::from(chance))?;
        if time >= TIME_MAX {
            return None;
        }
        self.keep(note, before);
        self.notes.push(Noted { note, time });
        let forgotten = self.notes.len().saturating_sub(NOTES_MOST);
        self.notes.drain(..forgotten);
        Some(time)
    }

    /// Lets the note have none but these times.
    fn keep(&mut self, note: u32, times: &[i64]) {
        self.notes
            .retain(|noted| noted.note != note || times.contains(&noted.time));
    }

    /// Writes them to the directory. Where it has no room for all of them, the earliest are forgotten.
    fn write(&mut self, dir: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let number = fs::fstat(dir)?.st_ino;
        loop {
            let mut text = format!("{number} {}", self.first);
            if let Some(copied) = self.copied {
                text += &format!(" {COPIED}{copied}");
            }
            for Noted { note, time } in &self.notes {
                text += &format!(" {note:x}:{time}");
            }
            let written = fs::fsetxattr(dir, ATTRIBUTE, text.as_bytes(), XattrFlags::empty());
            match written {
                Err(Errno::NOSPC | Errno::RANGE | Errno::TOOBIG) if self.notes.len() > 1 => {
                    self.notes.remove(0);
                }
                written => return written,
            }
        }
    }
}

/// Writes down in the open directory that it has a note, and makes that durable. Returns the time of the note, in nanoseconds
/// since 1970; none if the directory cannot have attributes. `before` are the times of the same note that still hold, until
/// it is written anew. If the note is not always there, only its `number` tells that it is the same.
pub fn note_now(dir: impl AsFd, number: Option<u32>, before: &[i64]) -> Option<i64> {
    let dir = dir.as_fd();
    let _alone = alone(dir);
    let now = now()?;
    let mut times = Said::by(dir).times_from(now);
    let noted = times.add(number, before, now).or_else(|| {
        // Somebody wrote a time from which no later one can be told. Then no note holds any more.
        times.notes.clear();
        times.add(number, &[], now)
    })?;
    times.write(dir).ok()?;
    // After a power cut, the directory must not be older than what is noted.
    fs::fsync(dir).ok()?;
    Some(noted)
}

/// The same of the directory `name`.
pub(crate) fn note_at(dir: impl AsFd, name: &[u8], before: &[i64]) -> Option<i64> {
    open(dir.as_fd(), name).and_then(|dir| note_now(dir, None, before))
}

/// Lets the note of the directory at `path` that has the time `noted` have no other one: so a copy of the note from before is
/// known for what it is. If this is lost, such a copy counts.
pub(crate) fn settle_note(path: &Path, noted: i64) {
    let Some(dir) = open_at(path) else { return };
    let _alone = alone(dir.as_fd());
    let Some(mut times) = Said::by(dir.as_fd()).times() else {
        return;
    };
    let own = times.notes.iter().find(|note| note.time == noted);
    if let Some(note) = own.map(|own| own.note) {
        times.keep(note, &[noted]);
        // Nothing is lost by times that stay.
        let _ = times.write(dir.as_fd());
    }
}

/// Waits until nobody else notes anything of the directory. The lock ends with the value.
fn alone(dir: BorrowedFd<'_>) -> Option<OwnedFd> {
    // A lock belongs to the open file, and the caller may hold one of its own.
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    let opened = fs::openat(dir, ".", flags, Mode::empty()).ok()?;
    for _ in 0..TRIES {
        match fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
            locked => return locked.is_ok().then_some(opened),
        }
    }
    None
}

fn now() -> Option<i64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(now.as_nanos()).ok()
}

/// Whether the open directory holds the time that [`note_now`] returned; none if a program has copied the attribute of another
/// directory to it since, so that nothing tells. An older copy of it does not hold it.
pub fn holds_note(dir: impl AsFd, noted: i64) -> Option<bool> {
    match Said::by(dir.as_fd()) {
        Said::Times(times) => times.has(noted),
        Said::Copied => None,
        Said::Nothing => Some(false),
    }
}

/// The same of the directory at `path`, which is no symlink.
pub(crate) fn holds_note_at(path: &Path, noted: i64) -> Option<bool> {
    holds_note(open_at(path)?, noted)
}

fn open_at(path: &Path) -> Option<OwnedFd> {
    open(fs::CWD, path.as_os_str().as_bytes())
}

fn open(dir: BorrowedFd<'_>, name: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags | OFlags::RDONLY, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_holds_its_notes_and_not_those_of_others() {
        let base = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let path = base.path().join(name);
            std::fs::create_dir(&path).unwrap();
            open_at(&path).unwrap()
        };
        let (one, other) = (open("one"), open("other"));
        assert_eq!(Said::by(one.as_fd()), Said::Nothing);
        let Some(noted) = note_now(&one, None, &[]) else {
            // This file system has no attributes.
            return;
        };
        let copy = || {
            let mut text = [0; BYTES_MAX];
            let len = fs::fgetxattr(&one, ATTRIBUTE, &mut text[..]).unwrap();
            text[..len].to_vec()
        };
        let set = |dir: &OwnedFd, text: &[u8]| {
            fs::fsetxattr(dir, ATTRIBUTE, text, XattrFlags::empty()).unwrap();
        };
        let before = copy();
        let second = note_now(&one, None, &[]).unwrap();
        assert!(second > noted);
        let times = Said::by(one.as_fd()).times().unwrap();
        assert!(times.first <= noted && times.notes.len() == 2);
        assert_eq!(holds_note(&one, noted), Some(true));
        assert_eq!(holds_note(&one, second), Some(true));
        assert_eq!(holds_note(&one, second + 1), Some(false));
        assert_eq!(holds_note(&other, noted), Some(false));

        // A program copies the attributes to another directory.
        set(&other, &copy());
        assert_eq!(holds_note(&other, noted), None);
        // Nothing tells afterwards, either, what had been noted before.
        let since = note_now(&other, None, &[]).unwrap();
        let hold = [noted, since, since + 1].map(|noted| holds_note(&other, noted));
        assert_eq!(hold, [None, Some(true), Some(false)]);

        // An older copy lacks what was noted since, whatever is noted of it.
        set(&one, &before);
        for _ in 0..NOTES_MOST - 1 {
            note_now(&one, None, &[]).unwrap();
        }
        assert_eq!(holds_note(&one, noted), Some(true));
        assert_eq!(holds_note(&one, second), Some(false));
        // The earliest of too many is forgotten.
        note_now(&one, None, &[]).unwrap();
        assert_eq!(holds_note(&one, noted), Some(false));
        let times = Said::by(one.as_fd()).times().unwrap();
        assert_eq!(times.notes.len(), NOTES_MOST);
        // A time that nothing has, and one from which no later one can be told.
        let number = fs::fstat(&one).unwrap().st_ino;
        set(&one, format!("{number} 5 7:{}", i64::MAX).as_bytes());
        assert_eq!(Said::by(one.as_fd()), Said::Nothing);
        let last = TIME_MAX - 1;
        set(&one, format!("{number} 5 6:{noted} 7:{last}").as_bytes());
        let now = note_now(&one, None, &[noted]).unwrap();
        let hold = [noted, last, now].map(|noted| holds_note(&one, noted).unwrap());
        assert_eq!(hold, [false, false, true]);
    }

    #[test]
    fn a_note_has_its_newest_time_and_that_before_until_it_is_written() {
        let base = tempfile::tempdir().unwrap();
        let dir = open_at(base.path()).unwrap();
        let Some(first) = note_now(&dir, None, &[]) else {
            return;
        };
        let other = note_now(&dir, None, &[]).unwrap();
        // Programs that were killed before their note was there.
        for _ in 0..NOTES_MOST {
            note_now(&dir, None, &[first]).unwrap();
        }
        let last = note_now(&dir, None, &[first]).unwrap();
        let hold = || [first, last, other].map(|noted| holds_note(&dir, noted).unwrap());
        assert_eq!(hold(), [true; 3]);
        settle_note(base.path(), last);
        assert_eq!(hold(), [false, true, true]);
        // One that is not always there, with a number of its own.
        let [gone, again] = [(); 2].map(|()| note_now(&dir, Some(7), &[]).unwrap());
        assert_eq!(holds_note(&dir, gone), Some(false));
        assert_eq!(holds_note(&dir, again), Some(true));
        assert_eq!(hold(), [false, true, true]);
        // A clock that is set back.
        let mut times = Said::by(dir.as_fd()).times().unwrap();
        assert!(times.add(None, &[], 0).unwrap() > other);
    }

    #[test]
    fn two_copies_of_a_directory_never_have_the_same_time() {
        let times = Times {
            first: 1,
            copied: None,
            notes: vec![Noted { note: 1, time: 100 }],
        };
        let [one, other] = [(); 2].map(|()| {
            let mut times = times.clone();
            (0..4).map(|_| times.add(None, &[], 50)).collect::<Vec<_>>()
        });
        assert_ne!(one, other);
    }
}
