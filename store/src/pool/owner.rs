//! Owners: processes that work in a pool, how others see that one has died, and what it leaves.
//!
//! A process writes who it is into a file of its own and touches it every two seconds. Claims are
//! hard links to that file, so they say who holds them from their first moment on, and one touch
//! keeps all of them fresh. No lock is held; a wrong judgement costs work done twice, nothing else.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_NOW};
use serde::{Deserialize, Serialize};

use super::disk;
use crate::error::{Error, Result};
use crate::walk::Stat;

/// How often an owner shows that it lives.
const BEAT: Duration = Duration::from_secs(2);
/// How long an owner may show nothing before it is taken for dead, on the watcher's own clock.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How long, by the clock, before a sweep takes what it left.
const LONG_SILENCE_SECS: u64 = 3600;

/// Who a process is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pid: i32,
    /// When it began, in ticks since boot: tells it from a later process of the same number.
    started: u64,
    boot: String,
    /// Numbers of processes mean nothing outside of their namespace.
    namespace: String,
    host: String,
}

/// What is known of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Alive,
    Dead,
    /// It lives in another namespace or on another host; only its touches tell.
    Unknown,
}

impl Identity {
    /// This process.
    pub(crate) fn own() -> Self {
        Self::of(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// The process `pid` of this host, as it is now.
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

    /// Whether it certainly is no more.
    pub(crate) fn is_dead(&self) -> bool {
        self.life(&Self::own()) == Life::Dead
    }

    fn life(&self, own: &Self) -> Life {
        if self.host == own.host && self.boot != own.boot {
            return Life::Dead;
        }
        if (&self.host, &self.boot, &self.namespace) != (&own.host, &own.boot, &own.namespace) {
            return Life::Unknown;
        }
        if started(self.pid) == Some(self.started) {
            Life::Alive
        } else {
            Life::Dead
        }
    }
}

/// The name of the time since the kernel started; a new one after a power cut.
pub(super) fn boot() -> String {
    read("/proc/sys/kernel/random/boot_id")
}

fn read(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// When a process began; none, when there is no such process or it only waits to be buried.
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

/// This process as an owner: its file, its directory of temporaries, and its touches.
#[derive(Debug)]
pub(crate) struct Owner {
    /// Random, unique in the pool.
    pub(crate) id: String,
    /// Where it builds files.
    pub(crate) temporaries: OwnedFd,
    pool: OwnedFd,
    beat: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Owner {
    /// Becomes an owner in the pool at `path`, open as `pool`.
    pub(crate) fn new(pool: &OwnedFd, path: &Path) -> Result<Self> {
        let id = disk::random_name()?;
        let failed = |doing| move |errno| disk::failed(doing, path, errno);
        let pool = pool
            .try_clone()
            .map_err(|source| Error::io("open", path, source))?;
        let text = serde_json::to_vec(&Identity::own())
            .map_err(|source| Error::invalid("identity of this process").because(source))?;
        // Its name first, so that a sweep finds all that is made in that name.
        let file = disk::write_whole(&pool, &format!("owners/{id}"), &text)
            .map_err(failed("write who works in the pool"))?;
        let temporary = format!("tmp/{id}");
        fs::mkdirat(&pool, &temporary, Mode::from_raw_mode(0o700))
            .map_err(failed("create a directory for temporaries in the pool"))?;
        let temporaries = disk::open_dir(&pool, temporary.as_bytes())
            .map_err(failed("open a directory for temporaries in the pool"))?;
        Ok(Self {
            id,
            temporaries,
            pool,
            beat: Some(touch_regularly(file)),
        })
    }

    /// The path of its file, from the pool on.
    pub(crate) fn file(&self) -> String {
        format!("owners/{}", self.id)
    }
}

impl Drop for Owner {
    /// Leaves nothing behind; what a killed process left, a sweep takes.
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.beat.take() {
            drop(stop);
            drop(thread.join());
        }
        bury(&self.pool, &self.id);
    }
}

fn touch_regularly(file: std::fs::File) -> (Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = channel();
    let thread = std::thread::spawn(move || {
        while stopped.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_NOW,
            };
            let times = Timestamps {
                last_access: now,
                last_modification: now,
            };
            // An owner that cannot show that it lives is taken for dead in time, which is harmless.
            disk::forgive(fs::futimens(&file, &times));
        }
    });
    (stop, thread)
}

/// Removes what an owner has in the pool: its temporaries first, its name last.
fn bury(pool: &OwnedFd, id: &str) {
    let temporaries = format!("tmp/{id}");
    // What cannot be removed now is found by the next sweep.
    disk::forgive(disk::remove_tree(pool, temporaries.as_bytes()));
    disk::forgive(fs::unlinkat(pool, format!("owners/{id}"), AtFlags::empty()));
}

/// Watches owners and says which of them have died.
#[derive(Debug)]
pub(crate) struct Watch {
    own: Identity,
    /// By inode: the last touch, and when it was first seen here.
    silent_since: HashMap<u64, (crate::format::Time, Instant)>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            own: Identity::own(),
            silent_since: HashMap::new(),
        }
    }

    /// Whether the owner whose file (or a link to it) is `name` in `dir` has died. No file: nobody has died.
    pub(crate) fn is_dead(&mut self, dir: impl AsFd, name: &str) -> bool {
        let Ok(file) = fs::openat(
            &dir,
            name,
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        ) else {
            return false;
        };
        let Ok(stat) = fs::fstat(&file).map(Stat::from) else {
            return false;
        };
        let mut text = [0; 4096];
        let read = rustix::io::pread(&file, &mut text[..], 0);
        // A power cut took the bytes: whole files only get names.
        if read.is_ok() && text.iter().all(|byte| *byte == 0) {
            return true;
        }
        let identity = read
            .ok()
            .and_then(|len| serde_json::from_slice::<Identity>(text.get(..len)?).ok());
        match identity.map_or(Life::Unknown, |identity| identity.life(&self.own)) {
            Life::Dead => true,
            Life::Alive | Life::Unknown => self.is_silent(&stat),
        }
    }

    /// Stopped processes show no touches either; whoever waits for them goes on without them.
    fn is_silent(&mut self, stat: &Stat) -> bool {
        let now = Instant::now();
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

/// Removes what dead owners left, and returns their ids.
pub(crate) fn sweep(pool: &OwnedFd, path: &Path) -> Result<Vec<String>> {
    let owners = disk::open_dir(pool, b"owners")
        .map_err(|errno| disk::failed("open owners of the pool", path, errno))?;
    let mut watch = Watch::new();
    let mut dead = Vec::new();
    for name in disk::names(&owners, path)? {
        let Ok(id) = String::from_utf8(name) else {
            continue;
        };
        if watch.is_dead(&owners, &id) || is_long_silent(&owners, &id) {
            dead.push(id);
        }
    }
    Ok(dead)
}

/// Whether an owner of whom nothing else is known has shown nothing for very long.
fn is_long_silent(owners: &OwnedFd, id: &str) -> bool {
    let touched =
        fs::statat(owners, id, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Stat::from(stat).mtime.secs);
    let now = std::time::UNIX_EPOCH.elapsed().map(|now| now.as_secs());
    match (touched.map(u64::try_from), now) {
        (Ok(Ok(touched)), Ok(now)) => now.saturating_sub(touched) > LONG_SILENCE_SECS,
        _ => false,
    }
}

/// Removes what the dead owner `id` left in the pool, its claims included.
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

    #[test]
    fn who_cannot_be_seen_is_judged_by_its_touches() {
        let own = Identity::own();
        let elsewhere = Identity {
            namespace: "pid:[1]".into(),
            ..own.clone()
        };
        assert_eq!(elsewhere.life(&own), Life::Unknown);
        let before_reboot = Identity {
            boot: "another".into(),
            ..own.clone()
        };
        assert_eq!(before_reboot.life(&own), Life::Dead);
        let later = Identity {
            started: own.started + 1,
            ..own.clone()
        };
        assert_eq!(later.life(&own), Life::Dead, "the number was used again");
    }
}
