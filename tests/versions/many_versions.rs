//! A store of very many versions for `tests/run versions`: refs and versions in the log, all of one tree, which was put
//! before as `project/first/tree`. The messages of versions are incompressible, like ids.
//!
//! `many_versions make DIR REFS VERSIONS` makes them. `many_versions far DIR` opens the store like a bucket, and
//! counts. `many_versions commit DIR REF SECONDS MILLIS` pins and unpins a ref for SECONDS, and prints how often.
//! Unless MILLIS is 0, each request takes that long, as with a bucket.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a tool of the tests that cannot go on stops, and says what it found"
)]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use store::format::{Change, Extra, RefName, State, Version, Who};
use store::remote::{Created, ObjectInfo, Objects, Read, Upload, Write};
use store::{Host, Result, Store, log};
use support::Random;

/// Number of namespaces.
const NAMESPACES: u64 = 100;
/// Versions per log entry.
const AT_ONCE: u64 = 10_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", dir, refs, versions] => {
            make(
                Path::new(dir),
                refs.parse().unwrap(),
                versions.parse().unwrap(),
            );
        }
        ["far", dir] => far(Path::new(dir)),
        ["commit", dir, number, secs, millis] => {
            commit(
                Path::new(dir),
                number.parse().unwrap(),
                secs.parse().unwrap(),
                Duration::from_millis(millis.parse().unwrap()),
            );
        }
        _ => println!(
            "usage: many_versions make DIR REFS VERSIONS | far DIR | commit DIR REF SECONDS MILLIS"
        ),
    }
}

fn name(number: u64) -> RefName {
    let text = format!("project/p{:02}/data/set-{number:06}", number % NAMESPACES);
    text.parse().unwrap()
}

fn make(dir: &Path, refs: u64, versions: u64) {
    let remote = Arc::new(Objects::directory(dir).unwrap());
    let store = Store::open(remote.clone(), Host::default()).unwrap();
    let first = "project/first/tree".parse().unwrap();
    let (_, model) = store.state().unwrap().version(&first, None).unwrap();
    let mut random = Random::new(7);
    let mut state = store.state().unwrap();
    for begin in (0..versions).step_by(usize::try_from(AT_ONCE).unwrap()) {
        let end = versions.min(begin + AT_ONCE);
        let set = |at: u64| set(&name(at % refs), 1 + at / refs, &model, &mut random);
        let changes: Vec<Change> = (begin..end).map(set).collect();
        let committed = log::commit(remote.as_ref(), &mut state, &Who::default(), &mut |_, _| {
            Ok(changes.clone())
        });
        assert!(committed.unwrap().unwrap().checkpoint.is_none());
        // Continues from the checkpoint, as the next process would.
        state = store.state().unwrap();
    }
    // Small entries, as in a store in use, up to the next checkpoint.
    let mut pinned = false;
    while !state.number.is_multiple_of(log::CHECKPOINT_EVERY) {
        pinned = !pinned;
        let pin = Change::Pin {
            name: name(7),
            version: 1,
            pinned,
        };
        log::commit(remote.as_ref(), &mut state, &Who::default(), &mut |_, _| {
            Ok(vec![pin.clone()])
        })
        .unwrap();
    }
}

fn set(name: &RefName, version: u64, model: &Version, random: &mut Random) -> Change {
    let noise: Vec<String> = (0..8).map(|_| format!("{:016x}", random.draw())).collect();
    Change::SetRef {
        name: name.clone(),
        version,
        root: model.root,
        sides: model.sides.clone(),
        message: noise.concat(),
        expires: None,
        origin: None,
        ends: Vec::new(),
        private: false,
        extra: Extra::new(),
    }
}

fn commit(dir: &Path, number: u64, secs: u64, delay: Duration) {
    let objects = Objects::directory(dir).unwrap();
    let remote: Arc<dyn Write> = match delay.is_zero() {
        true => Arc::new(objects),
        false => Arc::new(Bucket::of(objects, delay)),
    };
    let store = Store::open(remote, Host::default()).unwrap();
    let begin = Instant::now();
    let mut count = 0_u64;
    while begin.elapsed().as_secs() < secs {
        count += 1;
        store::refs::pin(&store, &name(number), Some(1), count % 2 == 1).unwrap();
    }
    println!("{count}");
}

/// A directory that is read like a bucket, and counts requests and bytes.
#[derive(Debug)]
struct Bucket {
    objects: Objects,
    /// The additional time of each request.
    delay: Duration,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Bucket {
    fn of(objects: Objects, delay: Duration) -> Self {
        Self {
            objects,
            delay,
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// The requests of one call are parallel, so they wait once.
    fn wait(&self) {
        std::thread::sleep(self.delay);
    }

    fn count(&self, bytes: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn told(&self) -> (u64, u64) {
        let taken = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (taken(&self.requests), taken(&self.bytes))
    }
}

impl Read for Bucket {
    fn url(&self) -> String {
        self.objects.url()
    }

    fn get(&self, key: &str) -> Result<Bytes> {
        self.wait();
        let found = self.objects.get(key);
        self.count(found.as_ref().map_or(0, Bytes::len));
        found
    }

    fn get_run(&self, keys: &[String]) -> Result<Vec<Bytes>> {
        self.wait();
        let found = self.objects.get_run(keys)?;
        found.iter().for_each(|bytes| self.count(bytes.len()));
        if found.len() < keys.len() {
            self.count(0);
        }
        Ok(found)
    }

    fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.wait();
        let found = self.objects.get_ranges(key, ranges)?;
        found.iter().for_each(|bytes| self.count(bytes.len()));
        Ok(found)
    }

    fn size(&self, key: &str) -> Result<u64> {
        self.wait();
        self.count(0);
        self.objects.size(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.wait();
        let listed = self.objects.list(prefix)?;
        listed
            .chunks(1000)
            .for_each(|page| self.count(300 * page.len()));
        Ok(listed)
    }

    fn keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>> {
        self.wait();
        let listed = self.objects.keys_after(prefix, after)?;
        self.count(300 * listed.len());
        Ok(listed)
    }

    fn local_path(&self, _key: &str) -> Option<PathBuf> {
        None
    }
}

impl Write for Bucket {
    fn create(&self, key: &str, bytes: Bytes) -> Result<Created> {
        self.wait();
        self.count(bytes.len());
        self.objects.create(key, bytes)
    }

    fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.wait();
        self.count(bytes.len());
        self.objects.put(key, bytes)
    }

    fn touch(&self, key: &str) -> Result<()> {
        self.wait();
        self.count(0);
        self.objects.touch(key)
    }

    fn give_up(&self, key: &str) -> Result<()> {
        self.objects.give_up(key)
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload>> {
        self.objects.upload(key)
    }
}

fn far(dir: &Path) {
    let bucket = Arc::new(Bucket::of(Objects::directory(dir).unwrap(), Duration::ZERO));
    let cache = tempfile::tempdir().unwrap();
    let host = Host {
        cache_dir: Some(cache.path().to_owned()),
        ..Host::default()
    };
    println!("| as a bucket, with a cache of this host | requests | bytes | time |");
    println!("|---|---|---|---|");
    for round in ["fresh host", "again"] {
        step(&bucket, &host, round, "open, info", &|state| {
            state.refs.sums().len()
        });
        step(&bucket, &host, round, "a version", &|state| {
            usize::from(state.version(&name(777), None).is_ok())
        });
        step(&bucket, &host, round, "ls of a namespace", &|state| {
            let namespace = name(42).namespace();
            state
                .refs_of(Some(&namespace))
                .map(|line| line.map(drop))
                .filter(Result::is_ok)
                .count()
        });
    }
}

fn step(
    bucket: &Arc<Bucket>,
    host: &Host,
    round: &str,
    what: &str,
    look: &dyn Fn(&State) -> usize,
) {
    let begin = Instant::now();
    let store = Store::open(bucket.clone(), host.clone()).unwrap();
    let state = store.readable_state().unwrap();
    assert!(look(&state) > 0, "{what}");
    let (requests, bytes) = bucket.told();
    let took = begin.elapsed().as_millis();
    println!("| {round}: {what} | {requests} | {bytes} | {took} ms |");
}
