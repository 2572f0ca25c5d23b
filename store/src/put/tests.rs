//! A put of many packs that commits segments as it goes is stopped after each of its mutations. The next try does not
//! store again what had been committed by then.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use super::assemble::Assembler;
use super::dedup::Dedup;
use super::messages::{Event, FileRead, Ingested};
use super::pipeline::reason;
use super::{PutReport, PutRequest, put};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Format, Time, Who};
use crate::get::GetRequest;
use crate::get::get;
use crate::host::stat_cache::{CacheBase, StatCache};
use crate::host::walk::Stat;
use crate::id::{ChunkId, StoreId};
use crate::progress::{Progress, Unwatched};
use crate::remote::testing::faulty::{Faults, roll};
use crate::remote::{Faulty, Objects, Read as _, Write};
use crate::store::{Host, Store};

const FILES: u64 = 16;
const FILE_BYTES: usize = 300_000;
/// More mutations than the put makes.
const MUTATIONS_MAX: u64 = 200;
/// Two packs are in flight at each commit, and the last commit is that of the ref.
const COMMITS_MIN: usize = 3;

/// A directory of files that share no bytes.
fn source() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut dice = 1;
    for number in 0..FILES {
        let bytes: Vec<u8> = (0..FILE_BYTES / 8)
            .flat_map(|_| roll(&mut dice).to_le_bytes())
            .collect();
        fs::write(dir.path().join(format!("{number:02}")), bytes).unwrap();
    }
    dir
}

fn host() -> Host {
    Host {
        cache_dir: None,
        who: Who::default(),
        memory_bytes: 128 << 20,
        threads: 2,
        stop: Arc::default(),
    }
}

fn put_into(remote: Arc<dyn Write>, source: &Path) -> Result<PutReport> {
    let request = PutRequest::new(source, "team/t/long".parse()?);
    put(&Store::open(remote, host())?, &request, &Unwatched)
}

fn assert_comes_back(remote: Arc<dyn Write>, source: &Path) {
    let store = Store::open(remote, host()).unwrap();
    let out = tempfile::tempdir().unwrap();
    let spec: crate::format::RefSpec = "team/t/long".parse().unwrap();
    get(
        &store,
        &GetRequest::new(spec.clone(), out.path()),
        &Unwatched,
    )
    .unwrap();
    for entry in fs::read_dir(source).unwrap() {
        let entry = entry.unwrap();
        let found = fs::read(out.path().join(entry.file_name())).unwrap();
        assert!(found == fs::read(entry.path()).unwrap(), "{entry:?}");
    }
}

/// Waits after the first bytes were read, so that the walk ends first.
#[derive(Default)]
struct Slow(AtomicBool);

impl Progress for Slow {
    fn total(&self, _: u64, _: u64) {}

    fn advance(&self, _: u64, bytes: u64) {
        if bytes > 0 && !self.0.swap(true, Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
    }

    fn is_watched(&self) -> bool {
        false
    }
}

#[test]
fn a_put_that_has_failed_does_not_read_on() {
    let source = tempfile::tempdir().unwrap();
    let mut dice = 7;
    let noise: Vec<u8> = (0..64 << 17)
        .flat_map(|_| roll(&mut dice).to_le_bytes())
        .collect();
    fs::write(source.path().join("a-large"), &noise).unwrap();
    // The walk refuses this socket, which comes after everything that is read.
    let socket = std::os::unix::net::UnixListener::bind(source.path().join("z")).unwrap();
    let remote = Arc::new(Objects::memory());
    let store = Store::init(remote.clone(), host()).unwrap();
    let request = PutRequest::new(source.path(), "team/t/failed".parse().unwrap());
    let error = put(&store, &request, &Slow::default()).unwrap_err();
    assert_eq!(
        error.kind(),
        crate::error::ErrorKind::InvalidInput,
        "{error}"
    );
    drop(socket);
    let stored: u64 = remote
        .list("packs")
        .unwrap()
        .iter()
        .map(|object| object.size)
        .sum();
    assert!(stored < 32 << 20, "{stored} of {} bytes", noise.len());
}

#[test]
fn a_long_put_stopped_anywhere_goes_on_from_its_last_commit() {
    let source = source();
    let all = FILES * FILE_BYTES as u64;
    for stop_after in 0..MUTATIONS_MAX {
        let remote = Arc::new(Objects::memory());
        let store = Store::init(remote.clone(), host()).unwrap();
        let faults = Faults {
            stop_after: Some(stop_after),
            ..Faults::default()
        };
        let faulty = Arc::new(Faulty::new(remote.clone(), faults));
        let outcome = put_into(faulty.clone(), source.path());
        let state = store.state().unwrap();
        if let Ok(report) = &outcome {
            assert_eq!(report.version, Some(1));
            assert!(
                state.segments.len() >= COMMITS_MIN,
                "{}",
                state.segments.len()
            );
            assert_comes_back(remote, source.path());
            assert!(faulty.counts().mutations <= stop_after);
            return;
        }
        assert!(state.refs.is_empty(), "stopped after {stop_after}");
        let again = put_into(remote.clone(), source.path()).unwrap();
        let resumes = !state.segments.is_empty();
        assert_eq!(
            again.new_bytes < all,
            resumes,
            "stopped after {stop_after}: {again:?}"
        );
        assert_comes_back(remote, source.path());
    }
    panic!("more than {MUTATIONS_MAX} mutations");
}

/// Contents depend on where writers end list nodes. The root of a file of thousands of chunks pins that.
#[test]
fn the_list_of_a_large_file_ends_its_nodes_where_it_always_did() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    let mut bytes = vec![0; 1 << 20];
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(b"a golden list")
        .finalize_xof()
        .fill(&mut bytes);
    std::fs::write(&source, &bytes).unwrap();
    let remote: Arc<dyn Write> = Arc::new(Objects::memory());
    // Small chunks, so that a small file has a long list.
    let mut format = Format::new(StoreId([7; 16]));
    (format.chunker.min, format.chunker.avg, format.chunker.max) = (64, 256, 1024);
    format.chunker.normalization = 1;
    let text = format.encode().unwrap();
    remote.put(crate::format::FORMAT_KEY, text.into()).unwrap();
    let store = Store::open(remote, host()).unwrap();
    let request = PutRequest::new(&source, "project/golden/list".parse().unwrap());
    put(&store, &request, &Unwatched).unwrap();
    let state = store.state().unwrap();
    let (_, version) = state.version(&request.target, None).unwrap();
    let content = version.root.content();
    let mut nodes = 0;
    let mut chunks = 0;
    let reader = crate::read::Reader::new(&store).unwrap();
    reader
        .list(content, &mut |_, depth, _| {
            match depth {
                0 => chunks += 1,
                _ => nodes += 1,
            }
            Ok(())
        })
        .unwrap();
    assert!(chunks > 2000 && nodes > 8, "{chunks} chunks, {nodes} nodes");
    assert_eq!(
        (content.depth, content.root.to_string().as_str()),
        (
            2,
            "6ae04f1dd99564ff0be7c2fb73bf5bc29030d87d4f075002205870b97391a767"
        )
    );
}

#[test]
fn the_stage_that_failed_is_told_and_not_those_that_lost_their_neighbour() {
    let store = Store::init(Arc::new(Objects::memory()), host()).unwrap();
    let lost = || Error::interrupted("the packer stopped");
    let found = || Error::corrupt("a file");
    for errors in [
        vec![lost(), found()],
        vec![found(), lost()],
        vec![lost(), found(), lost()],
    ] {
        assert_eq!(
            reason(&store, errors.into_iter()).kind(),
            ErrorKind::Corrupt
        );
    }
}

/// Whether an assembler remembers a file whose last change was at second 1,000 and whose reading began at `read_began`.
fn is_remembered(read_began: SystemTime) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, b"bytes").unwrap();
    let changed = Time {
        secs: 1000,
        nanos: 0,
    };
    let stat = Stat {
        mtime: changed,
        ctime: changed,
        ..Stat::of_file(&fs::File::open(&path).unwrap(), &path).unwrap()
    };
    let store = Store::init(Arc::new(Objects::memory()), host()).unwrap();
    let request = PutRequest::new(&path, "team/t/one".parse().unwrap());
    let dedup = Dedup::new(store.view().unwrap().index);
    let open = || StatCache::open(dir.path(), store.format().id, &path);
    let (frames, _packer) = crossbeam_channel::unbounded();
    let assembler = Assembler::new(
        &store,
        &request,
        &dedup,
        (Some(open().writer), None, None),
        frames,
    )
    .unwrap();
    let (events, to_assemble) = crossbeam_channel::unbounded();
    let (results, finished) = crossbeam_channel::unbounded();
    let event = Event::Read {
        name: b"file".to_vec(),
        number: 0,
        read_began,
        tie: super::ties::Tie::default(),
        xattrs: crate::format::Xattrs::new(),
    };
    events.send(vec![event]).unwrap();
    let part = Ingested::Part {
        number: 0,
        part: 0,
        chunks: vec![(ChunkId::of(b"bytes"), 5)],
    };
    results.send(part).unwrap();
    let file = FileRead {
        parts: 1,
        stat,
        shows_changes: true,
    };
    results.send(Ingested::End { number: 0, file }).unwrap();
    drop((events, results));
    let built = assembler.run(&to_assemble, &finished).unwrap();
    let base = CacheBase {
        name: request.target.clone(),
        version: 1,
        root: built.root,
    };
    built.cache.unwrap().commit(base).unwrap();
    open().reader.lookup(b"file", &stat).is_some()
}

/// A file that changed right before it was read may change again unnoticed, however late it is recorded.
#[test]
fn a_file_has_settled_by_the_time_of_its_reading() {
    let at = |secs| UNIX_EPOCH + Duration::from_secs(secs);
    assert!(!is_remembered(at(1001)));
    assert!(is_remembered(at(1010)));
}
