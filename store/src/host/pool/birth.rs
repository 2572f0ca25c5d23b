//! Which file or directory something is noted of, whatever comes to its path.
//!
//! Numbers of inodes are used again, so the time of birth tells two apart. A directory also gets an attribute when something
//! is noted of it: when that was for the first time, and the last times. Where a file system has no times of birth (ext3, ext4
//! with inodes of 128 bytes), the first time and the owner stand for that. Everywhere, the time of a note tells the directory
//! from one in an older copy of its whole file system, which does not have it, whatever was noted of that since. The attribute
//! begins with the number of the inode, since programs copy attributes from one directory to another (`cp -a`). Without
//! attributes, only the number of the inode and the owner are left, and an empty directory may be a new one.

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
/// How many times it has at most. A note from before all of them counts.
const NOTES_MOST: usize = 16;
/// Longer than its text.
const BYTES_MAX: usize = 512;
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
    /// Without a time of birth, the last time that the directory held: an older copy of it may have the same number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noted: Option<i64>,
}

/// The times at which something was noted of a directory, in nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Times {
    first: i64,
    /// The last ones, in order.
    notes: Vec<i64>,
}

impl Inode {
    pub(crate) fn of(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Self> {
        let dir = dir.as_fd();
        let wanted = StatxFlags::INO | StatxFlags::BTIME | StatxFlags::UID;
        let found = fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
        let is_known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let number = found.stx_ino;
        if is_known {
            let (born_secs, born_nanos) = (found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
            return Ok(Self {
                number,
                born_secs,
                born_nanos,
                noted: None,
            });
        }
        let times = open(dir, name).and_then(|dir| Said::by(dir.as_fd()).times());
        Ok(Self {
            number,
            born_secs: times.as_ref().map_or(0, |times| times.first),
            // Another user can copy the attribute.
            born_nanos: found.stx_uid,
            noted: times.as_ref().and_then(Times::last),
        })
    }

    /// The same of a directory that gets a mark. Without a time of birth, that is noted in it.
    pub(crate) fn of_marked(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Self> {
        let found = Self::of(&dir, name)?;
        match found.has_birth() {
            true => Ok(found),
            false => {
                note_at(&dir, name);
                Self::of(&dir, name)
            }
        }
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

    fn has_birth(&self) -> bool {
        self.noted.is_none() && self.born_secs != 0
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
        let numbers: Vec<i64> = text
            .split(' ')
            .map(|part| part.parse().ok())
            .collect::<Option<_>>()?;
        let [number, first, ref notes @ ..] = numbers[..] else {
            return None;
        };
        let notes = notes.to_vec();
        let is_own = number.cast_unsigned() == fs::fstat(dir).ok()?.st_ino;
        Some(match is_own {
            true => Self::Times(Times { first, notes }),
            false => Self::Copied,
        })
    }

    fn times(self) -> Option<Times> {
        match self {
            Self::Times(times) => Some(times),
            Self::Copied | Self::Nothing => None,
        }
    }
}

impl Times {
    fn last(&self) -> Option<i64> {
        self.notes.last().copied()
    }

    /// Whether something was noted at this time, as far as is known.
    fn has(&self, noted: i64) -> bool {
        let is_forgotten = self.notes.len() >= NOTES_MOST;
        let is_before = self.notes.first().is_some_and(|first| noted < *first);
        self.notes.contains(&noted) || is_forgotten && is_before
    }

    fn write(&self, dir: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let number = fs::fstat(dir)?.st_ino.cast_signed();
        let mut text = format!("{number} {}", self.first);
        self.notes
            .iter()
            .for_each(|note| text += &format!(" {note}"));
        fs::fsetxattr(dir, ATTRIBUTE, text.as_bytes(), XattrFlags::empty())
    }
}

/// Writes down in the open directory that something is noted of it now, and makes that durable. Returns the time, in
/// nanoseconds since 1970; none if it cannot have attributes.
pub fn note_now(dir: impl AsFd) -> Option<i64> {
    let dir = dir.as_fd();
    let _alone = alone(dir);
    let before = Said::by(dir).times();
    let now = now()?;
    let mut times = before.unwrap_or(Times {
        first: now,
        notes: Vec::new(),
    });
    // A clock may have been set back.
    let noted = times
        .last()
        .map_or(now, |last| now.max(last.saturating_add(1)));
    times.notes.push(noted);
    let forgotten = times.notes.len().saturating_sub(NOTES_MOST);
    times.notes.drain(..forgotten);
    times.write(dir).ok()?;
    // After a power cut, the directory must not be older than what is noted.
    fs::fsync(dir).ok()?;
    Some(noted)
}

/// The same of the directory `name`.
pub(crate) fn note_at(dir: impl AsFd, name: &[u8]) -> Option<i64> {
    open(dir.as_fd(), name).and_then(note_now)
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

/// Whether the open directory holds the time that [`note_now`] returned; none if a program copied the attribute of another
/// directory to it, so that nothing tells. An older copy of it does not hold it.
pub fn holds_note(dir: impl AsFd, noted: i64) -> Option<bool> {
    match Said::by(dir.as_fd()) {
        Said::Times(times) => Some(times.has(noted)),
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
        let Some(noted) = note_now(&one) else {
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
        let second = note_now(&one).unwrap();
        assert!(second > noted);
        let times = Said::by(one.as_fd()).times().unwrap();
        assert_eq!((times.first, times.notes), (noted, vec![noted, second]));
        assert_eq!(holds_note(&one, second), Some(true));
        assert_eq!(holds_note(&one, second + 1), Some(false));
        assert_eq!(holds_note(&other, noted), Some(false));

        // A program copies the attributes to another directory.
        set(&other, &copy());
        assert_eq!(holds_note(&other, noted), None);
        assert!(note_now(&other).unwrap() > second);

        // An older copy lacks what was noted since, whatever is noted of it.
        set(&one, &before);
        note_now(&one).unwrap();
        assert_eq!(holds_note(&one, noted), Some(true));
        assert_eq!(holds_note(&one, second), Some(false));
        // Only the last times are kept.
        for _ in 0..NOTES_MOST {
            note_now(&one).unwrap();
        }
        assert_eq!(holds_note(&one, noted), Some(true));
        let times = Said::by(one.as_fd()).times().unwrap();
        assert_eq!((times.first, times.notes.len()), (noted, NOTES_MOST));
    }
}
