//! Faults: wraps any backend and fails or is slow like networks, disks and power supplies. For tests.
//!
//! Seeded: the same calls in the same order meet the same faults. Never invents data, except for uploads that rot: a
//! read returns what was written, or the beginning of it.

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::remote::{Created, ObjectInfo, Prune, Read, Upload, Write, one_by_one};

/// The longest delay of a late call.
const LATE_MICROS_MAX: u64 = 2000;
/// The most calls that overtake one call.
const OVERTAKEN_MAX: u64 = 3;
/// A call that is not overtaken continues after this time.
const OVERTAKEN_WAIT: Duration = Duration::from_millis(5);

/// Which faults occur, and how often, per thousand calls. The default is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Seed of the random numbers.
    pub seed: u64,
    /// The call fails without effect.
    pub before: u32,
    /// A mutation takes effect, and then fails.
    pub after: u32,
    /// A create takes effect and then reports that the object already exists, as for a retried request.
    pub retold: u32,
    /// A whole read returns only the beginning of the object; a read of ranges fails.
    pub truncated: u32,
    /// The call takes effect late, or answers late.
    pub late: u32,
    /// The call takes effect after later calls of other threads or clones.
    pub overtaken: u32,
    /// Uploads are stored with one bit flipped.
    pub rotten: bool,
    /// Only the request with this number meets a fault; the first is 1.
    pub only_at: Option<u64>,
    /// After this many mutations the power is off: every later call fails without effect.
    pub stop_after: Option<u64>,
    /// After this many uploads the disk is full: later uploads fail without effect.
    pub full_after: Option<u64>,
}

/// Counts of what was requested from a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of every kind, including pieces of uploads.
    pub requests: u64,
    /// Calls that change what is stored. A delete counts once per key, an upload when it finishes.
    pub mutations: u64,
    /// Injected faults, except for the power being off.
    pub faults: u64,
}

/// A backend with faults. Clones share the random numbers and the counts.
#[derive(Clone, Debug)]
pub struct Faulty {
    inner: Arc<dyn Prune>,
    shared: Arc<(Mutex<Shared>, Condvar)>,
}

#[derive(Debug)]
struct Shared {
    faults: Faults,
    counts: Counts,
    /// Calls that have taken effect.
    passed: u64,
    dice: u64,
    off: bool,
    /// Uploads that were finished.
    uploaded: u64,
}

/// The fault of one call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Fine,
    Before,
    After,
    Retold,
    Truncated,
}

/// When one call takes effect, and when it answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    AtOnce,
    Late(Duration),
    AnswersLate(Duration),
    After(u64),
}

/// The fate of one call, and random bits for its details.
struct Thrown {
    fate: Fate,
    pace: Pace,
    dice: u64,
}

impl Faulty {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Prune>, faults: Faults) -> Self {
        let shared = Shared {
            faults,
            counts: Counts::default(),
            passed: 0,
            dice: faults.seed,
            off: false,
            uploaded: 0,
        };
        Self {
            inner,
            shared: Arc::new((Mutex::new(shared), Condvar::new())),
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.shared().counts
    }

    /// Changes the faults. Counts stay, and the power comes back.
    pub fn set(&self, faults: Faults) {
        let mut shared = self.shared();
        shared.dice = faults.seed;
        shared.faults = faults;
        shared.off = false;
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(
        &self,
        key: &str,
        call: impl FnOnce() -> Result<T>,
        truncate: fn(T, u64) -> Result<T>,
    ) -> Result<T> {
        let Thrown { fate, pace, dice } = self.shared().throw(key, false)?;
        match fate {
            Fate::Before => Err(injected(key, "no answer")),
            Fate::Truncated => truncate(self.pass(pace, call)?, dice),
            _ => self.pass(pace, call),
        }
    }

    fn mutate<T>(
        &self,
        key: &str,
        call: impl FnOnce() -> Result<T>,
        retell: fn(T) -> Result<T>,
    ) -> Result<T> {
        let Thrown { fate, pace, .. } = self.shared().throw(key, true)?;
        match fate {
            Fate::Before => Err(injected(key, "no answer")),
            Fate::After => self
                .pass(pace, call)
                .and_then(|_| Err(injected(key, "the answer was lost"))),
            Fate::Retold => retell(self.pass(pace, call)?),
            _ => self.pass(pace, call),
        }
    }

    /// Forwards a call at the right time.
    fn pass<T>(&self, pace: Pace, call: impl FnOnce() -> Result<T>) -> Result<T> {
        match pace {
            Pace::Late(time) => std::thread::sleep(time),
            Pace::After(others) => self.let_pass(others),
            Pace::AtOnce | Pace::AnswersLate(_) => {}
        }
        let answer = call();
        self.shared().passed += 1;
        self.shared.1.notify_all();
        if let Pace::AnswersLate(time) = pace {
            std::thread::sleep(time);
        }
        answer
    }

    /// Waits until this many other calls have taken effect, but not for long.
    fn let_pass(&self, others: u64) {
        let shared = self.shared();
        let enough = shared.passed.saturating_add(others);
        let too_few = |shared: &mut Shared| shared.passed < enough;
        drop(
            self.shared
                .1
                .wait_timeout_while(shared, OVERTAKEN_WAIT, too_few),
        );
    }
}

impl Shared {
    /// Takes space for one more upload.
    fn take_room(&mut self, key: &str) -> Result<()> {
        if self
            .faults
            .full_after
            .is_some_and(|full| self.uploaded >= full)
        {
            let full = std::io::ErrorKind::StorageFull;
            return Err(Error::io("injected fault: writing", key, full.into()));
        }
        self.uploaded += 1;
        Ok(())
    }

    fn throw(&mut self, key: &str, mutation: bool) -> Result<Thrown> {
        self.counts.requests += 1;
        let stopped = mutation
            && self
                .faults
                .stop_after
                .is_some_and(|stop| self.counts.mutations >= stop);
        self.off |= stopped;
        if self.off {
            return Err(Error::unavailable(format!("{key}: power is off")));
        }
        self.counts.mutations += u64::from(mutation);
        let (dice, pace) = (roll(&mut self.dice), roll(&mut self.dice));
        let (fate, pace) = match self.faults.only_at {
            Some(at) if at != self.counts.requests => (Fate::Fine, Pace::AtOnce),
            _ => (
                self.faults.fate(dice % 1000, mutation),
                self.faults.pace(pace),
            ),
        };
        self.counts.faults += u64::from(fate != Fate::Fine || pace != Pace::AtOnce);
        Ok(Thrown {
            fate,
            pace,
            dice: dice >> 16,
        })
    }
}

impl Faults {
    fn fate(&self, dice: u64, mutation: bool) -> Fate {
        let (second, third) = if mutation {
            (self.after, self.retold)
        } else {
            (self.truncated, 0)
        };
        let limits = [self.before, second, third].map(u64::from);
        let [before, second, third] = limits;
        match dice {
            dice if dice < before => Fate::Before,
            dice if dice < before + second && mutation => Fate::After,
            dice if dice < before + second => Fate::Truncated,
            dice if dice < before + second + third => Fate::Retold,
            _ => Fate::Fine,
        }
    }

    fn pace(&self, dice: u64) -> Pace {
        let [late, overtaken] = [self.late, self.overtaken].map(u64::from);
        let more = dice >> 16;
        let time = Duration::from_micros((more >> 1) % LATE_MICROS_MAX);
        match dice % 1000 {
            dice if dice < late && more.is_multiple_of(2) => Pace::Late(time),
            dice if dice < late => Pace::AnswersLate(time),
            dice if dice < late + overtaken => Pace::After(1 + more % OVERTAKEN_MAX),
            _ => Pace::AtOnce,
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Read for Faulty {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn get(&self, key: &str) -> Result<Bytes> {
        let cut = |bytes: Bytes, dice: u64| {
            let len = usize::try_from(dice % (bytes.len() as u64 + 1)).unwrap_or(0);
            Ok(bytes.slice(..len))
        };
        self.read(key, || self.inner.get(key), cut)
    }

    fn get_run(&self, keys: &[String]) -> Result<Vec<Bytes>> {
        one_by_one(self, keys)
    }

    fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.read(
            key,
            || self.inner.get_ranges(key, ranges),
            |_, _| Err(injected("ranges", "the answer was cut short")),
        )
    }

    fn size(&self, key: &str) -> Result<u64> {
        self.read(key, || self.inner.size(key), |size, _| Ok(size))
    }

    /// A truncated listing is stale: some objects are missing from it.
    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        let thin = |mut found: Vec<ObjectInfo>, mut dice: u64| {
            found.retain(|_| !roll(&mut dice).is_multiple_of(4));
            Ok(found)
        };
        self.read(prefix, || self.inner.list(prefix), thin)
    }

    fn keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>> {
        let thin = |mut found: Vec<String>, mut dice: u64| {
            found.retain(|_| !roll(&mut dice).is_multiple_of(4));
            Ok(found)
        };
        self.read(prefix, || self.inner.keys_after(prefix, after), thin)
    }

    /// Nothing is mapped, so that faults apply to all reads.
    fn local_path(&self, _key: &str) -> Option<PathBuf> {
        None
    }
}

#[deny(clippy::missing_trait_methods)]
impl Write for Faulty {
    fn create(&self, key: &str, bytes: Bytes) -> Result<Created> {
        self.mutate(
            key,
            || self.inner.create(key, bytes),
            |_| Ok(Created::Exists),
        )
    }

    fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.mutate(key, || self.inner.put(key, bytes), Ok)
    }

    fn touch(&self, key: &str) -> Result<()> {
        self.mutate(key, || self.inner.touch(key), Ok)
    }

    fn give_up(&self, key: &str) -> Result<()> {
        self.mutate(key, || self.inner.give_up(key), Ok)
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload>> {
        let inner = self.read(key, || self.inner.upload(key), |upload, _| Ok(upload))?;
        Ok(Box::new(FaultyUpload {
            faulty: self.clone(),
            key: key.to_owned(),
            inner,
        }))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Prune for Faulty {
    fn delete(&self, keys: &[String]) -> Result<()> {
        keys.iter().try_for_each(|key| {
            self.mutate(key, || self.inner.delete(std::slice::from_ref(key)), Ok)
        })
    }

    fn abandoned(&self, uploads: &[ObjectInfo]) -> HashSet<String> {
        self.inner.abandoned(uploads)
    }

    fn stale_uploads(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.read(
            prefix,
            || self.inner.stale_uploads(prefix),
            |found, _| Ok(found),
        )
    }
}

struct FaultyUpload {
    faulty: Faulty,
    key: String,
    inner: Box<dyn Upload>,
}

#[deny(clippy::missing_trait_methods)]
impl Upload for FaultyUpload {
    fn write(&mut self, bytes: Bytes) -> Result<()> {
        let bytes = match self.faulty.shared().faults.rotten {
            true => flipped(&bytes),
            false => bytes,
        };
        let inner = &mut self.inner;
        self.faulty
            .read(&self.key, || inner.write(bytes), |(), _| Ok(()))
    }

    fn seal(&mut self) -> Result<()> {
        let inner = &mut self.inner;
        self.faulty.read(&self.key, || inner.seal(), |(), _| Ok(()))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Self { faulty, key, inner } = *self;
        faulty.shared().take_room(&key)?;
        faulty.mutate(&key, || inner.finish(), Ok)
    }
}

fn flipped(bytes: &Bytes) -> Bytes {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    bytes
        .iter_mut()
        .skip(middle)
        .take(1)
        .for_each(|byte| *byte ^= 1);
    bytes.into()
}

fn injected(key: &str, what: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("{key}: injected fault: {what}"),
    )
}

/// Returns the next number of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
pub(crate) fn roll(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::Objects;

    fn faulty(faults: Faults) -> Faulty {
        Faulty::new(Arc::new(Objects::memory()), faults)
    }

    #[test]
    fn an_error_before_has_no_effect_and_an_error_after_has() {
        let remote = faulty(Faults {
            before: 1000,
            ..Faults::default()
        });
        remote.create("a", Bytes::new()).unwrap_err();
        remote.set(Faults {
            after: 1000,
            ..Faults::default()
        });
        remote.create("b", Bytes::new()).unwrap_err();
        remote.set(Faults {
            retold: 1000,
            ..Faults::default()
        });
        assert_eq!(remote.create("c", Bytes::new()).unwrap(), Created::Exists);
        remote.set(Faults::default());
        let keys: Vec<_> = remote
            .list("")
            .unwrap()
            .into_iter()
            .map(|info| info.key)
            .collect();
        assert_eq!(keys, ["b", "c"]);
        assert_eq!(
            remote.counts(),
            Counts {
                requests: 4,
                mutations: 3,
                faults: 3
            }
        );
    }

    #[test]
    fn when_the_power_is_off_nothing_answers_and_nothing_changes() {
        let remote = faulty(Faults {
            stop_after: Some(3),
            ..Faults::default()
        });
        let mut upload = remote.upload("up").unwrap();
        remote.put("a", Bytes::new()).unwrap();
        remote.put("b", Bytes::new()).unwrap();
        upload.write(Bytes::from_static(b"x")).unwrap();
        let keys = ["a".to_owned(), "b".to_owned()];
        assert_eq!(
            remote.delete(&keys).unwrap_err().to_string(),
            "b: power is off"
        );
        assert_eq!(remote.get("b").unwrap_err().to_string(), "b: power is off");
        upload.finish().unwrap_err();
        remote.set(Faults::default());
        let keys: Vec<_> = remote
            .list("")
            .unwrap()
            .into_iter()
            .map(|info| info.key)
            .collect();
        assert_eq!(keys, ["b"]);
    }

    #[test]
    fn one_request_alone_meets_a_fault() {
        let remote = faulty(Faults {
            before: 1000,
            only_at: Some(2),
            ..Faults::default()
        });
        let done: Vec<_> = ["a", "b", "c"]
            .iter()
            .map(|key| remote.put(key, Bytes::new()).is_ok())
            .collect();
        assert_eq!(done, [true, false, true]);
    }

    #[test]
    fn truncated_reads_return_the_beginning() {
        let remote = faulty(Faults {
            seed: 1,
            truncated: 1000,
            ..Faults::default()
        });
        let bytes = Bytes::from_static(b"0123456789");
        remote.put("a", bytes.clone()).unwrap();
        let cut: Vec<_> = (0..20).map(|_| remote.get("a").unwrap()).collect();
        assert!(cut.iter().all(|cut| bytes.starts_with(cut)));
        assert!(cut.iter().any(|cut| cut.len() < bytes.len()));
        remote.get_ranges("a", &[0..1, 2..3]).unwrap_err();
    }

    #[test]
    fn a_call_that_is_overtaken_takes_effect_after_the_other() {
        let remote = faulty(Faults::default());
        let is_overtaken = |key: &str| {
            remote.set(Faults {
                overtaken: 1000,
                only_at: Some(remote.counts().requests + 1),
                ..Faults::default()
            });
            let before = remote.counts().requests;
            std::thread::scope(|scope| {
                let first = scope.spawn(|| remote.create(key, Bytes::new()));
                while remote.counts().requests == before {
                    std::thread::yield_now();
                }
                let second = remote.create(key, Bytes::new()).unwrap();
                assert_ne!(first.join().unwrap().unwrap(), second);
                second == Created::Created
            })
        };
        // On a busy machine the second call may come too late.
        assert!((0..100).any(|number| is_overtaken(&number.to_string())));
    }

    #[test]
    fn late_calls_do_what_they_should() {
        let remote = faulty(Faults {
            late: 1000,
            ..Faults::default()
        });
        for number in 0..20 {
            let key = number.to_string();
            remote.put(&key, Bytes::from(key.clone())).unwrap();
            assert_eq!(remote.get(&key).unwrap(), key);
        }
        assert_eq!(remote.counts().faults, 40);
    }

    #[test]
    fn the_same_seed_brings_the_same_faults() {
        let run = |seed| {
            let remote = faulty(Faults {
                seed,
                before: 200,
                after: 200,
                ..Faults::default()
            });
            (0..50)
                .map(|number| remote.put(&number.to_string(), Bytes::new()).is_ok())
                .collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}
