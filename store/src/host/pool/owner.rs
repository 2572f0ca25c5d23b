//! Owners: processes that work in a pool, how others notice that one has died, and what it leaves.
//!
//! A process writes its identity into a file of its own, and touches the file every two seconds. Claims are hard links
//! to that file, so they name their holder from the first moment on, and one touch keeps all of them fresh. No lock is
//! held. A wrong judgement only means that work is done twice.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, Mode};
use serde::{Deserialize, Serialize};

use super::{disk, trust};
use crate::error::{Error, Result};
use crate::host::beat::Beat;
use crate::host::walk::Stat;

/// How long an owner may be silent before it counts as dead, on the watcher's own clock.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The identity of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pid: i32,
    /// Its start in ticks since boot, which tells it from a later process with the same number.
    started: u64,
    boot: String,
    /// The PID namespace: numbers of processes mean nothing outside of it.
    namespace: String,
    host: String,
}

/// The process that a tree ends with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    #[serde(flatten)]
    pub(super) identity: Identity,
    /// Its name in `owners`, where its file shows that it lives.
    #[serde(default)]
    pub(super) owner: String,
    /// The nonce that the tree holds, too. A tree without one is removed only by people.
    #[serde(default)]
    pub(super) nonce: String,
}

/// The state of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Alive,
    Dead,
    /// It is in another namespace or on another host; only its touches can tell.
    Unknown,
}

impl Identity {
    /// The identity of this process.
    pub(crate) fn own() -> Self {
        Self::of(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// The identity of the process `pid` of this host, as it is now.
    pub(crate) fn of(pid: i32) -> Self {
        Self {
            pid,
            started: started(pid).unwrap_or_default(),
            boot: boot(),
            namespace: std::fs::read_link("/proc/self/ns/pid")
                .map(|link| link.display().to_string())
                .unwrap_or_default(),
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
        }
    }

    /// Whether the process lives, as far as process `own` can see. A different host or boot proves no death: hosts
    /// share names, and containers have boot ids of their own. Missing information proves nothing either.
    pub(crate) fn life(&self, own: &Self) -> Life {
        let place = |of: &Self| (of.host.clone(), of.boot.clone(), of.namespace.clone());
        let is_told =
            |of: &Self| !of.boot.is_empty() && !of.namespace.is_empty() && of.started != 0;
        if place(self) != place(own) || !is_told(self) || !is_told(own) {
            return Life::Unknown;
        }
        if started(self.pid) == Some(self.started) {
            Life::Alive
        } else {
            Life::Dead
        }
    }
}

/// The boot id of the kernel; it changes with every start.
pub(super) fn boot() -> String {
    read("/proc/sys/kernel/random/boot_id")
}

fn read(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// When a process began; none, if it does not exist or is a zombie.
fn started(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// This process as an owner: its file, its directory of temporaries, and its beat.
#[derive(Debug)]
pub(crate) struct Owner {
    /// Random, unique in the pool.
    pub(crate) id: String,
    /// The directory in which it builds files.
    pub(crate) temporaries: OwnedFd,
    /// The inode of its file and of its claims.
    pub(super) inode: u64,
    pool: OwnedFd,
    beat: Option<Beat>,
}

impl Owner {
    /// Makes this process an owner in the pool at `path`, which is open as `pool`.
    pub(crate) fn new(pool: &OwnedFd, path: &Path) -> Result<Self> {
        let id = disk::random_name()?;
        let failed = |doing| move |errno| disk::failed(doing, path, errno);
        let pool = pool
            .try_clone()
            .map_err(|source| Error::io("open", path, source))?;
        let text = serde_json::to_vec(&Identity::own())
            .map_err(|source| Error::invalid("identity of this process").because(source))?;
        // The owner's file is written first, so that a sweep finds everything that belongs to it.
        let file = disk::open_dir(&pool, b"owners")
            .and_then(|owners| disk::write_whole(owners, &id, &text))
            .map_err(failed("record who works in the pool"))?;
        let inode = Stat::of_file(&file, path)?.ino;
        let temporary = format!("tmp/{id}");
        fs::mkdirat(&pool, &temporary, Mode::from_raw_mode(0o700))
            .map_err(failed("create a directory for temporaries in the pool"))?;
        let temporaries = disk::open_dir(&pool, temporary.as_bytes())
            .map_err(failed("open a directory for temporaries in the pool"))?;
        Ok(Self {
            id,
            temporaries,
            inode,
            pool,
            beat: Some(Beat::of(file)),
        })
    }

    /// The path of its file within the pool.
    pub(crate) fn file(&self) -> String {
        format!("owners/{}", self.id)
    }
}

impl Drop for Owner {
    /// Removes everything. A sweep removes what a killed process left.
    fn drop(&mut self) {
        drop(self.beat.take());
        bury(&self.pool, &self.id);
    }
}

/// Removes what an owner has in the pool: its temporaries first, its file last.
fn bury(pool: &OwnedFd, id: &str) {
    let temporaries = format!("tmp/{id}");
    // The next sweep finds what cannot be removed now.
    disk::forgive(disk::remove_tree(pool, temporaries.as_bytes()));
    disk::forgive(fs::unlinkat(pool, format!("owners/{id}"), AtFlags::empty()));
}

/// Watches owners, and tells which of them have died.
#[derive(Debug)]
pub(crate) struct Watch {
    own: Identity,
    /// By inode: the last touch, and when this process first saw it.
    silent_since: HashMap<u64, (crate::format::Time, Instant)>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            own: Identity::own(),
            silent_since: HashMap::new(),
        }
    }

    /// Whether the owner has died whose file (or a link to it) is `name` in `dir`. False, if there is no such file.
    pub(crate) fn is_dead(&mut self, dir: impl AsFd, name: &str) -> bool {
        match self.look(dir, name) {
            None => false,
            Some((Life::Dead, _)) => true,
            Some((Life::Alive | Life::Unknown, stat)) => self.is_silent(&stat, Instant::now()),
        }
    }

    /// The state of the owner whose file is `name` in `dir`, and the file's attributes with its last touch.
    pub(super) fn look(&self, dir: impl AsFd, name: &str) -> Option<(Life, Stat)> {
        let file = disk::open_file(&dir, name.as_bytes()).ok()?;
        let stat = fs::fstat(&file).map(Stat::from).ok()?;
        // Files of other users are not trusted.
        if stat.uid != trust::user() {
            return Some((Life::Dead, stat));
        }
        let mut text = [0; 4096];
        let read = rustix::io::pread(&file, &mut text[..], 0);
        // A power cut took the bytes: a file gets such a name only when it is complete.
        let is_whole = !name.rsplit('/').next().unwrap_or(name).starts_with('.');
        if is_whole && read.is_ok() && text.iter().all(|byte| *byte == 0) {
            return Some((Life::Dead, stat));
        }
        let identity = read
            .ok()
            .and_then(|len| serde_json::from_slice::<Identity>(text.get(..len)?).ok());
        let life = identity.map_or(Life::Unknown, |identity| self.life(&identity));
        Some((life, stat))
    }

    /// The state of a process.
    pub(super) fn life(&self, identity: &Identity) -> Life {
        identity.life(&self.own)
    }

    /// Whether an owner was silent for too long. A suspended process is silent, too; others continue without it.
    fn is_silent(&mut self, stat: &Stat, now: Instant) -> bool {
        let seen = self
            .silent_since
            .entry(stat.ino)
            .or_insert((stat.mtime, now));
        if seen.0 != stat.mtime {
            *seen = (stat.mtime, now);
        }
        now.duration_since(seen.1) > SILENCE_MAX
    }
}

/// Removes what the dead owner `id` left in the pool, including its claims.
pub(crate) fn bury_dead(pool: &OwnedFd, claims: &OwnedFd, id: &str, path: &Path) -> Result<()> {
    let inode = |dir: &OwnedFd, name: &str| {
        let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.map(|stat| stat.st_ino).ok()
    };
    let owner = inode(pool, &format!("owners/{id}"));
    for name in disk::names(claims, path)? {
        let Ok(name) = String::from_utf8(name) else {
            continue;
        };
        if owner.is_some() && inode(claims, &name) == owner {
            disk::forgive(fs::unlinkat(claims, &name, AtFlags::empty()));
        }
    }
    bury(pool, id);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_it_is_not() {
        let own = Identity::own();
        assert_eq!(own.life(&own), Life::Alive);
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let other = Identity::of(pid);
        assert_eq!(other.life(&own), Life::Alive);
        child.kill().unwrap();
        while std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z"))
        {
            std::thread::yield_now();
        }
        assert_eq!(other.life(&own), Life::Dead, "killed and not buried yet");
        child.wait().unwrap();
        assert_eq!(other.life(&own), Life::Dead, "buried");
    }

    /// The identity of this process, changed by `change`.
    fn other(change: impl FnOnce(&mut Identity)) -> Identity {
        let mut other = Identity::own();
        change(&mut other);
        other
    }

    #[test]
    fn nothing_but_the_table_of_processes_says_dead() {
        let own = Identity::own();
        let later = other(|other| other.started += 1);
        assert_eq!(later.life(&own), Life::Dead, "the number was used again");
        let elsewhere = [
            other(|other| other.namespace = "pid:[1]".into()),
            other(|other| other.boot = "another".into()),
            other(|other| other.host = "another".into()),
            other(|other| {
                other.host = "another".into();
                other.boot = "another".into();
            }),
            other(|other| {
                other.boot = "another".into();
                other.namespace = "pid:[1]".into();
            }),
        ];
        for mut elsewhere in elsewhere {
            assert_eq!(elsewhere.life(&own), Life::Unknown, "{elsewhere:?}");
            // A local process that happens to have the same number changes nothing.
            elsewhere.started += 1;
            assert_eq!(elsewhere.life(&own), Life::Unknown, "{elsewhere:?}");
        }
    }

    #[test]
    fn what_the_system_does_not_tell_proves_nothing() {
        let own = Identity::own();
        for untold in [
            other(|other| other.boot.clear()),
            other(|other| other.namespace.clear()),
            other(|other| other.started = 0),
        ] {
            assert_eq!(untold.life(&untold), Life::Unknown, "{untold:?}");
            assert_eq!(untold.life(&own), Life::Unknown, "{untold:?}");
            assert_eq!(own.life(&untold), Life::Unknown, "{untold:?}");
        }
    }

    #[test]
    fn silence_is_measured_by_who_waits() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("beat")).unwrap();
        let stat = |secs| {
            let time = std::time::UNIX_EPOCH + Duration::from_secs(secs);
            file.set_modified(time).unwrap();
            Stat::of_file(&file, dir.path()).unwrap()
        };
        let mut watch = Watch::new();
        let start = Instant::now();
        let after = |secs| start + Duration::from_secs(secs);
        // Whatever the time of the beat is, in the past or in the future.
        assert!(!watch.is_silent(&stat(1_000), start));
        assert!(!watch.is_silent(&stat(1_000), after(30)));
        assert!(watch.is_silent(&stat(1_000), after(31)));
        assert!(
            !watch.is_silent(&stat(9_000_000_000), after(40)),
            "it moved"
        );
        assert!(!watch.is_silent(&stat(9_000_000_000), after(70)));
        assert!(watch.is_silent(&stat(9_000_000_000), after(71)));
        assert!(!watch.is_silent(&stat(1_000), after(72)), "also backwards");
    }
}
