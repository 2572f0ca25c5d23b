//! A large segment in a bucket: searched in place, or copied when that is cheaper. And packs: read in large parts.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use store::format::{PACKS_PREFIX, RefSpec, SEGMENTS_PREFIX};
use store::remote::{Created, ObjectInfo, Prune, Read, Upload, Write};
use store::{
    ErrorKind, GetRequest, Host, Node, Portions, Reader, Result, Store, Unwatched, cat, get,
};
use support::assert_same_tree;

use crate::stores::noise;
use crate::world::World;

const REF: &str = "project/far/data";

/// A bucket that counts reads of segments or of packs.
#[derive(Debug)]
struct Counted {
    inner: Arc<dyn Prune>,
    counts: &'static str,
    requests: AtomicU64,
    bytes: AtomicU64,
    keys: Mutex<Vec<String>>,
    /// The delay of ranges.
    delay: Duration,
}

impl Counted {
    fn of(inner: Arc<dyn Prune>) -> Arc<Self> {
        Self::counting(SEGMENTS_PREFIX, inner)
    }

    fn counting(counts: &'static str, inner: Arc<dyn Prune>) -> Arc<Self> {
        Self::delayed(counts, inner, Duration::ZERO)
    }

    fn delayed(counts: &'static str, inner: Arc<dyn Prune>, delay: Duration) -> Arc<Self> {
        Arc::new(Self {
            inner,
            counts,
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            keys: Mutex::default(),
            delay,
        })
    }

    fn count(&self, key: &str, bytes: u64) {
        if key.starts_with(self.counts) {
            self.requests.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.keys.lock().unwrap().push(key.to_owned());
        }
    }

    /// Requests, and bytes of their answers, since the last call.
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
        std::thread::sleep(self.delay);
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

/// A store whose only segment is too large to be copied at once, because its chunks are very small.
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

    // A get of everything: 80,000 chunks, which are located by the tables of their packs.
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

/// Either an error names the damaged segment, or another reader finds the chunk.
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
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.to_string().contains(&key), "{error}");
    };
    // The fan-out and the rows.
    spoilt(100..20_000, 0xff);
    spoilt(100..20_000, 0);
    spoilt(middle / 2..middle + middle / 2, 0xaa);
}

/// Pieces of two files alternate in the packs, as after a put by several workers. Both files are wanted, so one read
/// covers many pieces.
#[test]
fn files_that_lie_in_turn_are_read_together() {
    const PIECE: usize = 2 << 20;
    let mut world = World::new();
    world.portions = Portions::default();
    let [one, other] = [1, 2].map(|seed| noise(seed, 120_000_000));
    let pieces = one.chunks(PIECE).zip(other.chunks(PIECE));
    let in_turn: Vec<u8> = pieces
        .flat_map(|(one, other)| [one, other].concat())
        .collect();
    for (tree, files) in [("in-turn", vec![&in_turn]), ("apart", vec![&one, &other])] {
        fs::create_dir_all(world.tree(tree)).unwrap();
        for (number, bytes) in files.into_iter().enumerate() {
            fs::write(world.tree(tree).join(number.to_string()), bytes).unwrap();
        }
    }
    let inner = world.memory();
    // A single worker stores chunks in order.
    let host = Host {
        threads: 1,
        ..world.host()
    };
    let writer = world.open_as(inner.clone(), host).unwrap();
    for (tree, target) in [("in-turn", "project/far/in-turn"), ("apart", REF)] {
        world.put_with(&writer, tree, target).unwrap();
    }
    let remote = Counted::counting(PACKS_PREFIX, inner);
    let store = fresh(&world, &remote, "cache");
    remote.told();
    let request = GetRequest::new(crate::stores::spec(REF), world.tree("out"));
    get(&store, &request, &Unwatched).unwrap();
    assert_same_tree(&world.tree("apart"), &world.tree("out"));
    let (requests, bytes) = remote.told();
    let size = (one.len() + other.len()) as u64;
    // The first reads are small, so that the output begins at once.
    assert!(bytes < size * 115 / 100, "{bytes} of {size}");
    println!("{requests} requests, {bytes} bytes");
    assert!(requests < 100, "{requests}");
}

/// Clients of a server that request one file at the same time.
#[test]
fn what_many_read_at_once_is_read_once() {
    const READERS: usize = 8;
    let mut world = World::new();
    fs::create_dir_all(world.tree("tree")).unwrap();
    fs::write(world.tree("tree").join("large"), noise(3, 6_000_000)).unwrap();
    world.prepare("tree", REF);
    let delay = Duration::from_millis(5);
    let remote = Counted::delayed(PACKS_PREFIX, world.memory(), delay);
    let store = fresh(&world, &remote, "cache");
    let reader = Reader::new(&store).unwrap();
    let spec: RefSpec = format!("{REF}:large").parse().unwrap();
    let Node::File { content, .. } = reader.resolve(&spec).unwrap().node else {
        panic!("a file");
    };
    remote.told();
    std::thread::scope(|scope| {
        let read = || {
            let mut bytes = 0;
            let mut each = |id, _| {
                bytes += reader.meta_chunk(&id)?.len();
                Ok(())
            };
            reader.chunks(&content, &mut each).unwrap();
            assert_eq!(bytes, 6_000_000);
        };
        for _ in 0..READERS {
            scope.spawn(read);
        }
    });
    let (requests, bytes) = remote.told();
    assert!(bytes < 12_000_000, "{requests} requests for {bytes} bytes");
}
