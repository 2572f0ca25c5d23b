//! A large segment of a bucket: looked up where it is, and copied when that is cheaper.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use store::format::{RefSpec, SEGMENTS_PREFIX};
use store::remote::{Created, ObjectInfo, Prune, Read, Upload, Write};
use store::{Host, Kind, Portions, Result, Store, cat};
use support::assert_same_tree;

use crate::stores::noise;
use crate::world::World;

const REF: &str = "project/far/data";

/// A bucket that counts what is read of segments.
#[derive(Debug)]
struct Counted {
    inner: Arc<dyn Prune>,
    requests: AtomicU64,
    bytes: AtomicU64,
    keys: Mutex<Vec<String>>,
}

impl Counted {
    fn of(inner: Arc<dyn Prune>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            keys: Mutex::default(),
        })
    }

    fn count(&self, key: &str, bytes: u64) {
        if key.starts_with(SEGMENTS_PREFIX) {
            self.requests.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.keys.lock().unwrap().push(key.to_owned());
        }
    }

    /// Requests for segments, and bytes of them, since this was asked last.
    fn told(&self) -> (u64, u64) {
        let taken = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (taken(&self.requests), taken(&self.bytes))
    }
}

impl Read for Counted {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn get(&self, key: &str) -> Result<Bytes> {
        let bytes = self.inner.get(key)?;
        self.count(key, bytes.len() as u64);
        Ok(bytes)
    }

    fn get_run(&self, keys: &[String]) -> Result<Vec<Bytes>> {
        self.inner.get_run(keys)
    }

    fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let found = self.inner.get_ranges(key, ranges)?;
        (found.iter()).for_each(|bytes| self.count(key, bytes.len() as u64));
        Ok(found)
    }

    fn size(&self, key: &str) -> Result<u64> {
        self.inner.size(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.inner.list(prefix)
    }

    fn keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>> {
        self.inner.keys_after(prefix, after)
    }

    fn local_path(&self, _key: &str) -> Option<PathBuf> {
        None
    }
}

impl Write for Counted {
    fn create(&self, key: &str, bytes: Bytes) -> Result<Created> {
        self.inner.create(key, bytes)
    }

    fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.inner.put(key, bytes)
    }

    fn touch(&self, key: &str) -> Result<()> {
        self.inner.touch(key)
    }

    fn give_up(&self, key: &str) -> Result<()> {
        self.inner.give_up(key)
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload>> {
        self.inner.upload(key)
    }
}

/// A store whose one segment is larger than what is copied at once, since it is of very small chunks.
fn world() -> World {
    let mut world = World::fine();
    world.portions = Portions::default();
    let tree = world.tree("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("large"), noise(1, 24_000_000)).unwrap();
    for number in 0..30 {
        fs::write(
            tree.join("sub").join(number.to_string()),
            noise(number, 700),
        )
        .unwrap();
    }
    world.prepare("tree", REF);
    world
}

fn fresh(world: &World, remote: &Arc<Counted>, cache: &str) -> Store {
    let host = Host {
        cache_dir: Some(world.tree(cache)),
        ..world.host()
    };
    world.open_as(remote.clone(), host).unwrap()
}

fn cat_of(store: &Store, path: &str) -> Result<Vec<u8>> {
    let spec: RefSpec = format!("{REF}:{path}").parse().unwrap();
    let mut out = Vec::new();
    cat(store, &spec, &(0..u64::MAX), &mut |bytes| {
        out.extend_from_slice(bytes);
        Ok(())
    })?;
    Ok(out)
}

fn segment_bytes(remote: &dyn Read) -> u64 {
    let all = remote.list("segments").unwrap();
    all.iter().map(|info| info.size).sum()
}

#[test]
fn a_fresh_host_reads_no_segment_to_list_refs_and_little_of_a_large_one_to_get() {
    let world = world();
    let inner = world.memory();
    let all = segment_bytes(&*inner);
    assert!(all > 2 << 20, "{all}");
    let remote = Counted::of(inner);

    let store = fresh(&world, &remote, "cache-ls");
    let state = store.readable_state().unwrap();
    assert_eq!(state.refs_of(None).count(), 1);
    assert_eq!(remote.told(), (0, 0));

    let store = fresh(&world, &remote, "cache-cat");
    assert_eq!(cat_of(&store, "sub/7").unwrap(), noise(7, 700));
    let (requests, bytes) = remote.told();
    assert!((1..=16).contains(&requests), "{requests}");
    assert!(bytes < 100 << 10, "{bytes}");

    // All of it: 80,000 chunks, whose packs say where they are.
    let store = fresh(&world, &remote, "cache-get");
    let out = world.get(&store, REF).unwrap();
    assert_same_tree(&world.tree("tree"), out.path());
    let (requests, bytes) = remote.told();
    assert!((1..=24).contains(&requests), "{requests}");
    assert!(bytes < 150 << 10, "{bytes}");
    for cache in ["cache-cat", "cache-get"] {
        let id = remote.keys.lock().unwrap()[0].clone();
        let copy = world.tree(cache).join(store.format().id.to_string());
        assert!(!copy.join(&id).exists(), "{cache}");
    }
}

#[test]
fn a_segment_that_is_asked_often_is_copied_by_then() {
    let world = world();
    let remote = Counted::of(world.memory());
    let all = segment_bytes(&*remote);
    let mut read = Vec::new();
    for round in 0..40 {
        let store = fresh(&world, &remote, "cache");
        let path = format!("sub/{}", round % 30);
        assert_eq!(cat_of(&store, &path).unwrap(), noise(round % 30, 700));
        read.push(remote.told().1);
    }
    let copied = read.iter().position(|bytes| *bytes >= all);
    let copied = copied.unwrap_or_else(|| panic!("of {all}: {read:?}"));
    assert!((2..30).contains(&copied), "{read:?}");
    assert!(
        read[copied + 1..].iter().all(|bytes| *bytes == 0),
        "{read:?}"
    );
    assert!(read[..copied].iter().sum::<u64>() < all, "{read:?}");
}

/// Whatever a damaged one leads to, an error names it, or another reader finds the chunk.
#[test]
fn a_damaged_far_segment_is_named() {
    let world = world();
    let inner = world.memory();
    let key = inner.list("segments").unwrap().remove(0).key;
    let whole = inner.get(&key).unwrap();
    let middle = whole.len() / 2;
    let spoilt = |range: Range<usize>, with: u8| {
        let mut bytes = whole.to_vec();
        bytes[range].fill(with);
        inner.put(&key, bytes.into()).unwrap();
        let remote = Counted::of(inner.clone());
        let store = fresh(&world, &remote, &format!("cache-{with}"));
        let error = cat_of(&store, "sub/7").unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error:?}");
        assert!(error.to_string().contains(&key), "{error}");
    };
    // The fan-out, and the entries.
    spoilt(100..20_000, 0xff);
    spoilt(100..20_000, 0);
    spoilt(middle / 2..middle + middle / 2, 0xaa);
}
