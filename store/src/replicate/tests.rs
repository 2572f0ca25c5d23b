//! A run of many packs and batches is stopped after each of its mutations, and wherever it can be asked to stop. The
//! next run does not send again what was finished by then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::format::{Node, PACKS_PREFIX, RefName, Version, Who, pack_key, parse_pack_key};
use crate::get::GetRequest;
use crate::get::get;
use crate::id::PackId;
use crate::pack::PACK_BYTES_TARGET;
use crate::progress::Unwatched;
use crate::put::{PutRequest, put};
use crate::read::Reader;
use crate::remote::testing::faulty::{Faults, roll};
use crate::remote::{Faulty, Objects, Read, Write};
use crate::session::Relied;
use crate::store::Host;

const REFS: [&str; 3] = ["team/t/a", "team/t/b", "team/t/c"];
const FILES: u64 = 9;
const FILE_BYTES: usize = 250_000;
/// More mutations than a run makes.
const MUTATIONS_MAX: u64 = 200;
/// The pack that was being written, and the chunk that filled it.
const IN_FLIGHT_BYTES: u64 = PACK_BYTES_TARGET as u64 + (256 << 10);

/// Asks to stop after this many bytes.
struct StopAt(AtomicU64, Host);

impl Progress for StopAt {
    fn total(&self, _files: u64, _bytes: u64) {}

    fn advance(&self, _files: u64, bytes: u64) {
        let left = self.0.load(Ordering::Relaxed).saturating_sub(bytes);
        self.0.store(left, Ordering::Relaxed);
        if left == 0 {
            self.1.stop.store(true, Ordering::Relaxed);
        }
    }
}

fn host() -> Host {
    Host {
        cache_dir: None,
        who: Who::default(),
        memory_bytes: 32 << 20,
        threads: 2,
        stop: Arc::default(),
    }
}

/// A store with refs whose files share no bytes; the last ref also has what the others have.
fn source() -> Store {
    let store = Store::init(Arc::new(Objects::memory()), host()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut dice = 1;
    for name in REFS {
        for number in 0..FILES {
            let words = (0..FILE_BYTES / 8).flat_map(|_| roll(&mut dice).to_le_bytes());
            let bytes: Vec<u8> = words.collect();
            let inside = dir.path().join(name.replace('/', "-"));
            std::fs::create_dir_all(&inside).unwrap();
            std::fs::write(inside.join(number.to_string()), bytes).unwrap();
        }
        let source = match name == REFS[2] {
            true => dir.path().to_owned(),
            false => dir.path().join(name.replace('/', "-")),
        };
        let request = PutRequest::new(source, name.parse().unwrap());
        put(&store, &request, &Unwatched).unwrap();
    }
    store
}

fn everything() -> ReplicateRequest {
    ReplicateRequest::new(vec![Selection::Namespace("team/t".parse().unwrap())])
}

/// Acts as one process: opens the destination and runs. Returns the bytes that it sent, and whether it finished.
fn process(
    from: &Store,
    to: Arc<dyn Write>,
    resume: &dyn Resume,
    progress: &dyn Progress,
    host: Host,
) -> (u64, bool) {
    let run =
        Store::open(to, host).and_then(|to| replicate(from, &to, &everything(), resume, progress));
    match run {
        Ok(report) => {
            let is_whole = report.stopped.is_none();
            assert!(!is_whole || report.refs.len() == REFS.len(), "{report:?}");
            (report.sent_bytes, is_whole)
        }
        Err(_) => (0, false),
    }
}

fn empty() -> Arc<Objects> {
    let remote = Arc::new(Objects::memory());
    Store::init(remote.clone(), host()).unwrap();
    remote
}

/// Reads all refs back, verifies every byte, and compares the ids of the trees with those at the source.
fn assert_arrived(from: &Store, remote: Arc<Objects>, what: &str) {
    let to = Store::open(remote, host()).unwrap();
    let (here, there) = (from.state().unwrap(), to.state().unwrap());
    for name in REFS {
        let name: RefName = name.parse().unwrap();
        let (one, other) = (here.version(&name, None), there.version(&name, None));
        assert_eq!(one.unwrap().1.root, other.unwrap().1.root, "{what}");
        let out = tempfile::tempdir().unwrap();
        get(
            &to,
            &GetRequest::new(name.as_str().parse().unwrap(), out.path()),
            &Unwatched,
        )
        .unwrap_or_else(|error| panic!("{what}: {error:?}"));
    }
}

fn unbroken(from: &Store) -> u64 {
    let remote = empty();
    let (sent, is_whole) = process(from, remote.clone(), &Forgetful, &Unwatched, host());
    assert!(is_whole);
    let to = Store::open(remote.clone(), host()).unwrap();
    let view = to.view().unwrap();
    assert!(view.index.packs().count() >= 12, "many packs");
    assert!(view.state.number >= 4, "many entries");
    assert_arrived(from, remote, "unbroken");
    sent
}

#[test]
fn a_run_stopped_after_any_mutation_goes_on_and_sends_again_only_what_was_in_flight() {
    let from = source();
    let all = unbroken(&from);
    for stop_after in 0..MUTATIONS_MAX {
        let what = format!("stopped after {stop_after}");
        let (remote, memory) = (empty(), Memory::default());
        let faults = Faults {
            stop_after: Some(stop_after),
            ..Faults::default()
        };
        let faulty = Arc::new(Faulty::new(remote.clone(), faults));
        let (first, is_whole) = process(&from, faulty.clone(), &memory, &Unwatched, host());
        // If the request that finishes a pack had no effect, the next pack was filled in vain, too.
        let is_there = |pack: &PackId| remote.size(&pack_key(*pack)).is_ok();
        let packs = match memory.packs().iter().all(is_there) {
            true => 1,
            false => 2,
        };
        let (second, _) = process(&from, remote.clone(), &memory, &Unwatched, host());
        assert_arrived(&from, remote, &what);
        assert!(
            first + second <= all + packs * IN_FLIGHT_BYTES,
            "{what}: {first} and {second}, unbroken {all}"
        );
        assert!(memory.packs().is_empty(), "{what}");
        if is_whole {
            assert_eq!((first, second), (all, 0));
            return;
        }
    }
    panic!("more than {MUTATIONS_MAX} mutations");
}

#[test]
fn without_a_memory_the_loss_is_what_was_not_committed() {
    let from = source();
    let all = unbroken(&from);
    for stop_after in (0..MUTATIONS_MAX).step_by(3) {
        let what = format!("stopped after {stop_after}");
        let remote = empty();
        let faults = Faults {
            stop_after: Some(stop_after),
            ..Faults::default()
        };
        let faulty = Arc::new(Faulty::new(remote.clone(), faults));
        let (first, is_whole) = process(&from, faulty, &Forgetful, &Unwatched, host());
        let (second, _) = process(&from, remote.clone(), &Forgetful, &Unwatched, host());
        assert_arrived(&from, remote, &what);
        // A segment is committed after 20 chunks, which are at most 5 packs.
        assert!(
            first + second <= all + 6 * IN_FLIGHT_BYTES,
            "{what}: {first} and {second}, unbroken {all}"
        );
        if is_whole {
            return;
        }
    }
    panic!("more than {MUTATIONS_MAX} mutations");
}

#[test]
fn a_run_that_is_asked_to_stop_commits_what_is_finished() {
    let from = source();
    let all = unbroken(&from);
    let mut stopped = 0;
    for bytes in (100_000..all).step_by(500_000) {
        let remote = empty();
        let asked = host();
        let progress = StopAt(bytes.into(), asked.clone());
        let (first, is_whole) = process(&from, remote.clone(), &Forgetful, &progress, asked);
        let (second, _) = process(&from, remote.clone(), &Forgetful, &Unwatched, host());
        assert_arrived(&from, remote, &format!("stopped at {bytes}"));
        stopped += u64::from(!is_whole);
        assert!(
            first + second <= all + IN_FLIGHT_BYTES,
            "stopped at {bytes}: {first} and {second}, unbroken {all}"
        );
    }
    assert!(stopped > 3, "{stopped}");
}

/// How many refs are at `remote`, and which refs are not although all their chunks are.
fn published(from: &Store, remote: Arc<Objects>, names: &[String]) -> (usize, Vec<String>) {
    let there = Store::open(remote, host()).unwrap().view().unwrap();
    let reader = Reader::new(from).unwrap();
    let (mut count, mut left) = (0, Vec::new());
    for name in names {
        if there.state.version(&name.parse().unwrap(), None).is_ok() {
            count += 1;
            continue;
        }
        let mut is_complete = true;
        let found = reader.resolve(&name.parse().unwrap()).unwrap();
        let Node::File { content, .. } = found.node else {
            panic!("{name} is no file");
        };
        for content in [&content, &found.version.times()] {
            let mut look = |id, _, _| {
                is_complete &= there.index.find(&id)?.is_some();
                Ok(())
            };
            reader.list(content, &mut look).unwrap();
        }
        if is_complete {
            left.push(name.clone());
        }
    }
    (count, left)
}

#[test]
fn a_run_that_is_asked_to_stop_publishes_what_is_complete_of_its_batch() {
    let from = Store::init(Arc::new(Objects::memory()), host()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut dice = 9;
    // Four of these are a batch.
    let names: Vec<String> = (0..4).map(|number| format!("team/t/{number}")).collect();
    for name in &names {
        let words = (0..FILE_BYTES / 8).flat_map(|_| roll(&mut dice).to_le_bytes());
        let path = dir.path().join("file");
        std::fs::write(&path, words.collect::<Vec<u8>>()).unwrap();
        let request = PutRequest::new(path, name.parse().unwrap());
        put(&from, &request, &Unwatched).unwrap();
    }
    let all = FILE_BYTES as u64 * 4;
    let mut partly = 0;
    for limit in [None, Some(3_000_000)] {
        for bytes in (1..all).step_by(60_000) {
            let (remote, asked) = (empty(), host());
            let to = Store::open(remote.clone(), asked.clone()).unwrap();
            let request = ReplicateRequest {
                bytes_per_second: limit,
                ..everything()
            };
            let progress = StopAt(bytes.into(), asked);
            let report = replicate(&from, &to, &request, &Forgetful, &progress).unwrap();
            let (count, left) = published(&from, remote.clone(), &names);
            assert!(left.is_empty(), "stopped at {bytes}: {left:?}, {report:?}");
            assert_eq!(report.refs.len(), count, "stopped at {bytes}: {report:?}");
            partly += usize::from(report.stopped.is_some() && (1..4).contains(&count));
            let to = Store::open(remote.clone(), host()).unwrap();
            let again = replicate(&from, &to, &everything(), &Forgetful, &Unwatched).unwrap();
            assert!(again.stopped.is_none(), "{again:?}");
            assert_eq!(published(&from, remote, &names).0, names.len());
        }
    }
    assert!(partly > 3, "{partly}");
}

#[test]
fn a_memory_that_lies_costs_nothing_but_a_look() {
    let from = source();
    let all = unbroken(&from);
    let remote = empty();
    let memory = Memory::default();
    // A pack that never existed, a damaged one, and one that is committed already.
    memory.pack_sealed(PackId::random().unwrap());
    let damaged = PackId::random().unwrap();
    let key = pack_key(damaged);
    remote.put(&key, vec![7; 1000].into()).unwrap();
    memory.pack_sealed(damaged);
    let (sent, is_whole) = process(&from, remote.clone(), &memory, &Unwatched, host());
    assert!(is_whole && sent == all);
    let to = Store::open(remote.clone(), host()).unwrap();
    let view = to.view().unwrap();
    view.index
        .packs()
        .for_each(|pack| memory.pack_sealed(pack.id));
    let name = REFS[0].parse().unwrap();
    crate::refs::drop_versions(&to, &name, None).unwrap();
    let report = replicate(&from, &to, &everything(), &memory, &Unwatched).unwrap();
    assert_eq!((report.sent_bytes, report.resumed_bytes), (0, 0));
    assert!(memory.packs().is_empty());
    assert_arrived(&from, remote, "after lies");
}

#[test]
fn with_verify_a_pack_of_an_earlier_run_is_read_before_it_is_taken_up() {
    let from = source();
    let (remote, memory) = (empty(), Memory::default());
    for stop_after in 0.. {
        let faults = Faults {
            stop_after: Some(stop_after),
            ..Faults::default()
        };
        let faulty = Arc::new(Faulty::new(remote.clone(), faults));
        process(&from, faulty, &memory, &Unwatched, host());
        if memory
            .packs()
            .iter()
            .any(|pack| remote.get(&pack_key(*pack)).is_ok())
        {
            break;
        }
    }
    for pack in memory.packs() {
        let key = pack_key(pack);
        // The last pack was sealed, but not finished.
        let Ok(bytes) = remote.get(&key) else {
            continue;
        };
        let mut bytes = bytes.to_vec();
        // A byte in the first frame.
        bytes[crate::format::PackHeader::LEN as usize + 100] ^= 1;
        remote.put(&key, bytes.into()).unwrap();
    }
    let to = Store::open(remote.clone(), host()).unwrap();
    let request = ReplicateRequest {
        verify: true,
        ..everything()
    };
    let report = replicate(&from, &to, &request, &memory, &Unwatched).unwrap();
    assert!(
        report.stopped.is_none() && report.resumed_bytes == 0,
        "{report:?}"
    );
    assert_arrived(&from, remote, "read before");
}

#[test]
fn a_pack_whose_last_answer_was_lost_is_not_sent_again() {
    let from = source();
    let mut found = 0;
    for only_at in 1.. {
        let (remote, memory) = (empty(), Memory::default());
        let faults = Faults {
            after: 1000,
            only_at: Some(only_at),
            ..Faults::default()
        };
        let faulty = Arc::new(Faulty::new(remote.clone(), faults));
        process(&from, faulty.clone(), &memory, &Unwatched, host());
        if faulty.counts().requests < only_at {
            break;
        }
        // The fault hit a read, which has no effect.
        if faulty.counts().faults == 0 {
            continue;
        }
        let to = Store::open(remote.clone(), host()).unwrap();
        let view = to.view().unwrap();
        let mut left = remote.list(PACKS_PREFIX).unwrap();
        left.retain(|info| {
            let id = parse_pack_key(&info.key).unwrap();
            view.index.packs().all(|pack| pack.id != id)
        });
        let bytes: u64 = left.iter().map(|info| info.size).sum();
        let report = replicate(&from, &to, &everything(), &memory, &Unwatched).unwrap();
        assert_eq!(report.resumed_bytes, bytes, "request {only_at}");
        found += left.len();
        assert_arrived(&from, remote, "after a lost answer");
    }
    assert!(found > 3, "{found}");
}

#[test]
fn a_size_that_is_not_that_of_the_chunk_is_refused_at_the_source() {
    let from = source();
    let (name, to) = (REFS[0].parse::<RefName>().unwrap(), empty());
    let mut state = from.state().unwrap();
    let version = state.version(&name, None).unwrap().1.clone();
    let mut times = version.times();
    times.size += 1;
    let set = crate::format::Change::SetRef {
        name: name.clone(),
        version: 2,
        root: version.root,
        sides: crate::format::Sides::of_times(times),
        message: String::new(),
        expires: None,
        origin: None,
        ends: Vec::new(),
        private: false,
        extra: crate::format::Extra::new(),
    };
    let who = Who::default();
    crate::log::commit(from.remote().as_ref(), &mut state, &who, &mut |_, _| {
        Ok(vec![set.clone()])
    })
    .unwrap();
    let to = Store::open(to, host()).unwrap();
    let request = ReplicateRequest::new(vec![Selection::Ref(name)]);
    let report = replicate(&from, &to, &request, &Forgetful, &Unwatched).unwrap();
    let [outcome] = report.refs.as_slice() else {
        panic!("{report:?}");
    };
    let RefStatus::Failed(error) = &outcome.status else {
        panic!("{outcome:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        format!("{error:?}").contains("bytes, expected"),
        "{error:?}"
    );
    assert!(to.state().unwrap().refs.is_empty());
}

/// A version that the source cannot read is not complete. A source that does not answer says nothing about it.
#[test]
fn a_version_that_the_source_has_lost_is_not_complete() {
    let from = source();
    let view = from.view().unwrap();
    let name: RefName = REFS[0].parse().unwrap();
    let (_, version) = view.state.version(&name, None).unwrap();
    let there = Relied::new(view.index.clone());
    let unreadable = missing::Unreadable::new();
    let is_complete = |store: &Store, version: &Version| {
        let reader = Reader::at(store, view.clone());
        let walk = missing::Missing::new(&reader, &there, &unreadable);
        walk.complete(version).map(|whole| whole.is_some())
    };
    assert!(is_complete(&from, &version).unwrap());
    let lost = crate::format::Content {
        size: 1,
        depth: 0,
        root: crate::id::ChunkId::of(b"nobody has it"),
    };
    let without = Version {
        root: crate::format::Root::File {
            content: lost,
            executable: false,
        },
        ..version.clone()
    };
    assert!(!is_complete(&from, &without).unwrap());
    let silent = Objects::memory();
    let format = from.remote().get(crate::format::FORMAT_KEY).unwrap();
    silent.put(crate::format::FORMAT_KEY, format).unwrap();
    let silent = Arc::new(Faulty::new(Arc::new(silent), Faults::default()));
    let mute = Store::open(silent.clone(), host()).unwrap();
    silent.set(Faults {
        before: 1000,
        ..Faults::default()
    });
    let error = is_complete(&mute, &version).unwrap_err();
    assert_eq!(
        error.kind(),
        crate::error::ErrorKind::Unavailable,
        "{error:?}"
    );
}

/// A missing ref is reported with the others, unless there are no others.
#[test]
fn a_selection_is_found_as_long_as_one_of_it_is() {
    let from = source();
    let select = |names: &[&str]| {
        let names = names
            .iter()
            .map(|name| Selection::Ref(name.parse().unwrap()));
        check_selected(&from, &ReplicateRequest::new(names.collect()))
    };
    select(&[REFS[0]]).unwrap();
    select(&["team/t/none", REFS[0]]).unwrap();
    let error = select(&["team/t/none"]).unwrap_err();
    assert_eq!(error.kind(), crate::error::ErrorKind::NotFound, "{error:?}");
}
