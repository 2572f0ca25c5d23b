//! Passes beside a scripted collector. The test decides what the collector takes, and between which steps.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::{Memory, ReplicateRequest, Resume, Selection, replicate};
use crate::error::{ErrorKind, Result};
use crate::format::{
    Change, LOG_PREFIX, PACKS_PREFIX, RefName, Who, pack_key, parse_pack_key, segment_key,
};
use crate::get::GetRequest;
use crate::get::get;
use crate::id::{PackId, SegmentId};
use crate::log;
use crate::pack::Portions;
use crate::progress::Unwatched;
use crate::put::{PutReport, PutRequest, put};
use crate::remedy::Remedy;
use crate::remote::testing::faulty::roll;
use crate::remote::testing::scripted::{Scripted, Step, When};
use crate::remote::{Objects, Prune, Read, Write};
use crate::store::{Host, Store};

const FILES: u64 = 12;
const FILE_BYTES: usize = 300_000;

fn host() -> Host {
    Host {
        cache_dir: None,
        who: Who::default(),
        memory_bytes: 32 << 20,
        threads: 2,
        stop: Arc::default(),
    }
}

pub(super) fn name() -> RefName {
    "team/t/long".parse().unwrap()
}

/// A directory of files that share no bytes.
pub(super) fn source(seed: u64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut dice = seed;
    for number in 0..FILES {
        let words = (0..FILE_BYTES / 8).flat_map(|_| roll(&mut dice).to_le_bytes());
        let bytes: Vec<u8> = words.collect();
        std::fs::write(dir.path().join(format!("{number:02}")), bytes).unwrap();
    }
    dir
}

pub(super) fn open(remote: Arc<dyn Write>) -> Store {
    Store::open(remote, host()).unwrap()
}

pub(super) fn memory() -> Arc<Objects> {
    let remote = Arc::new(Objects::memory());
    Store::init(remote.clone(), host()).unwrap();
    remote
}

/// One pass of a collector: condemns `packs`, drops the live segments that name nothing else, deletes all these
/// objects, and forgets packs that nothing names.
fn collect(remote: &Objects, mut packs: BTreeSet<PackId>) {
    let store = open(Arc::new(remote.clone()));
    let mut view = store.view().unwrap();
    packs.retain(|pack| !view.state.condemned.contains_key(pack));
    let mut changes = vec![Change::CondemnPacks {
        packs: packs.iter().copied().collect(),
    }];
    let mut keys: Vec<String> = packs.iter().map(|pack| pack_key(*pack)).collect();
    let mut named = BTreeSet::new();
    for segment in view.index.segments() {
        let gone = |pack: PackId| packs.contains(&pack) || view.state.condemned.contains_key(&pack);
        if segment.packs().all(|pack| gone(pack.id)) {
            let (segment, into) = (segment.id, None);
            changes.push(Change::DropSegment { segment, into });
            keys.push(segment_key(segment));
        } else {
            named.extend(segment.packs().map(|pack| pack.id));
        }
    }
    if packs.is_empty() {
        return;
    }
    let who = Who::default();
    log::commit(remote, &mut view.state, &who, &mut |_, _| {
        Ok(changes.clone())
    })
    .unwrap();
    remote.delete(&keys).unwrap();
    let forget = Change::Forget {
        packs: packs.difference(&named).copied().collect(),
        segments: Vec::new(),
    };
    log::commit(remote, &mut view.state, &who, &mut |_, _| {
        Ok(vec![forget.clone()])
    })
    .unwrap();
}

/// The packs that exist, and those of them that a live segment names.
fn packs(remote: &Objects) -> (BTreeSet<PackId>, BTreeSet<PackId>) {
    let listed = remote.list("packs").unwrap();
    let all = listed.iter().filter_map(|info| parse_pack_key(&info.key));
    let view = open(Arc::new(remote.clone())).view().unwrap();
    let live = view.index.packs().map(|pack| pack.id).collect();
    (all.collect(), live)
}

pub(super) fn put_through(remote: Arc<dyn Write>, source: &std::path::Path) -> Result<PutReport> {
    put(&open(remote), &PutRequest::new(source, name()), &Unwatched)
}

fn assert_comes_back(remote: &Objects, source: &std::path::Path, what: &str) {
    let store = open(Arc::new(remote.clone()));
    let out = tempfile::tempdir().unwrap();
    get(
        &store,
        &GetRequest::new(name().as_str().parse().unwrap(), out.path()),
        &Unwatched,
    )
    .unwrap_or_else(|error| panic!("{what}: {error:?}"));
    for entry in std::fs::read_dir(source).unwrap() {
        let entry = entry.unwrap();
        let found = std::fs::read(out.path().join(entry.file_name())).unwrap();
        assert!(
            found == std::fs::read(entry.path()).unwrap(),
            "{what}: {entry:?}"
        );
    }
}

/// Selects what a collector takes at one step.
type Takes = fn(&Objects) -> BTreeSet<PackId>;

/// Runs a put. At its step `at` among those that `acts` selects, a collector takes what `takes` selects. Returns
/// whether there was such a step.
fn put_beside(
    source: &std::path::Path,
    at: usize,
    acts: fn(When, Step, &str) -> bool,
    takes: Takes,
    portions: Portions,
) -> bool {
    let remote = memory();
    let steps = Arc::new(AtomicUsize::new(0));
    let script = {
        let (remote, steps) = (remote.clone(), steps.clone());
        move |when, step, key: &str| {
            if acts(when, step, key) && steps.fetch_add(1, Ordering::SeqCst) == at {
                collect(&remote, takes(&remote));
            }
        }
    };
    let report = {
        let store = open(Arc::new(Scripted::new(remote.clone(), script))).in_portions(portions);
        put(&store, &PutRequest::new(source, name()), &Unwatched).unwrap()
    };
    assert_eq!(report.version, Some(1));
    assert_comes_back(&remote, source, &format!("collected at step {at}"));
    steps.load(Ordering::SeqCst) > at
}

fn is_entry(when: When, step: Step, key: &str) -> bool {
    when == When::Before && step == Step::Create && key.starts_with(LOG_PREFIX)
}

fn is_segment(when: When, step: Step, key: &str) -> bool {
    when == When::After && step == Step::Put && key.starts_with("segments/")
}

/// Before and after every entry of a long put, a collector takes some packs: those that are about to be committed,
/// those that are committed, or all. The put succeeds, and what it publishes is whole.
#[test]
fn whatever_a_collector_takes_between_two_commits_is_stored_again() {
    let source = source(1);
    let takes: [Takes; 4] = [
        |remote| packs(remote).0,
        |remote| packs(remote).1,
        |remote| {
            let (all, live) = packs(remote);
            all.difference(&live).copied().collect()
        },
        |remote| packs(remote).1.into_iter().take(1).collect(),
    ];
    // Includes a put that commits only at its end, when all packs are its own and in no segment yet.
    let at_once = Portions {
        commit_chunks: usize::MAX,
        ..Portions::default()
    };
    let mut steps = 0;
    for portions in [Portions::default(), at_once] {
        for takes in takes {
            for acts in [is_entry, is_segment] {
                for at in 0.. {
                    if !put_beside(source.path(), at, acts, takes, portions) {
                        break;
                    }
                    steps += 1;
                }
            }
        }
    }
    assert!(steps >= 24, "several commits in a pass: {steps}");
}

/// A collector takes exactly the segment that was uploaded and not committed.
#[test]
fn a_segment_that_a_collector_found_uncommitted_is_written_again() {
    let source = source(2);
    for at in 0.. {
        let remote = memory();
        let steps = Arc::new(AtomicUsize::new(0));
        let script = {
            let (remote, steps) = (remote.clone(), steps.clone());
            move |when, step, key: &str| {
                if is_segment(when, step, key) && steps.fetch_add(1, Ordering::SeqCst) == at {
                    let segment: SegmentId = key["segments/".len()..].parse().unwrap();
                    let info = crate::format::SegmentInfo::default();
                    let (mut state, into) = (open(remote.clone()).state().unwrap(), None);
                    let changes = vec![
                        Change::AddSegment { segment, info },
                        Change::DropSegment { segment, into },
                    ];
                    let who = Who::default();
                    log::commit(&*remote, &mut state, &who, &mut |_, _| Ok(changes.clone()))
                        .unwrap();
                    remote.delete(&[key.to_owned()]).unwrap();
                }
            }
        };
        put_through(
            Arc::new(Scripted::new(remote.clone(), script)),
            source.path(),
        )
        .unwrap();
        assert_comes_back(&remote, source.path(), &format!("segment {at}"));
        if steps.load(Ordering::SeqCst) <= at {
            assert!(at >= 3, "{at}");
            return;
        }
    }
}

/// A collector takes a chunk on which a later pass relies after its own commit. The last commit must not forget a
/// condemnation that an intermediate commit saw.
#[test]
fn what_is_condemned_before_an_intermediate_commit_counts_at_the_last() {
    let remote = memory();
    let source = source(3);
    put_through(remote.clone(), source.path()).unwrap();
    let old = packs(&remote).1;
    // Half of the files are known and half are new, so that the pass relies on both.
    let mut dice = 77;
    for number in FILES / 2..FILES {
        let words = (0..FILE_BYTES / 8).flat_map(|_| roll(&mut dice).to_le_bytes());
        let path = source.path().join(format!("{number:02}"));
        std::fs::write(path, words.collect::<Vec<u8>>()).unwrap();
    }
    let steps = Arc::new(AtomicUsize::new(0));
    let script = {
        let (remote, steps) = (remote.clone(), steps.clone());
        move |when, step, key: &str| {
            if is_entry(when, step, key) && steps.fetch_add(1, Ordering::SeqCst) == 0 {
                let store = open(remote.clone());
                crate::refs::drop_versions(&store, &name(), None).unwrap();
                collect(&remote, old.clone());
            }
        }
    };
    put_through(
        Arc::new(Scripted::new(remote.clone(), script)),
        source.path(),
    )
    .unwrap();
    assert!(steps.load(Ordering::SeqCst) > 2, "it commits as it goes");
    assert_comes_back(&remote, source.path(), "condemned before a commit");
}

/// The run before was killed and left many packs. A collector condemns one of them right after the next run has loaded
/// its state, and forgets it before that run commits it.
#[test]
fn a_pack_that_was_condemned_and_forgotten_is_not_taken_up() {
    let source = source(4);
    let from = memory();
    put_through(from.clone(), source.path()).unwrap();
    let from = open(from);
    let request = ReplicateRequest::new(vec![Selection::Ref(name())]);
    for victim in 0..6 {
        let to = memory();
        // Everything arrives except the entry: the packs are left, and the memory knows them.
        let left = Arc::new(Memory::default());
        leave_packs(&from, &to, &request, &left);
        let mut names = left.packs();
        names.sort_unstable();
        assert!(names.len() > 6, "{names:?}");
        let victim = names[victim];
        let commits = Arc::new(Mutex::new(0));
        let script = {
            let (to, commits) = (to.clone(), commits.clone());
            move |when, step, key: &str| {
                // The collector's first entry comes before the first commit. Its deletion and its second entry come
                // before the next commit. The pack is opened in between.
                if !is_entry(when, step, key) {
                    return;
                }
                let mut commits = commits.lock().unwrap();
                *commits += 1;
                match *commits {
                    1 => condemn(&to, victim),
                    2 => forget(&to, victim),
                    _ => {}
                }
            }
        };
        let store = open(Arc::new(Scripted::new(to.clone(), script)));
        let report = replicate(&from, &store, &request, &*left, &Unwatched).unwrap();
        assert!(report.stopped.is_none(), "{report:?}");
        assert!(*commits.lock().unwrap() >= 2);
        assert_comes_back(&to, source.path(), &format!("victim {victim}"));
    }
}

/// The same pack is condemned before the next run begins: it still exists, but may be deleted at any moment.
#[test]
fn a_pack_that_is_condemned_already_is_not_taken_up() {
    let source = source(4);
    let from = memory();
    put_through(from.clone(), source.path()).unwrap();
    let from = open(from);
    let request = ReplicateRequest::new(vec![Selection::Ref(name())]);
    let (to, left) = (memory(), Arc::new(Memory::default()));
    leave_packs(&from, &to, &request, &left);
    let victim = left.packs()[0];
    condemn(&to, victim);
    let store = open(to.clone());
    let report = replicate(&from, &store, &request, &*left, &Unwatched).unwrap();
    assert!(
        report.stopped.is_none() && report.resumed_bytes > 0,
        "{report:?}"
    );
    let view = store.view().unwrap();
    let mut named = view.index.packs().map(|pack| pack.id);
    assert!(named.all(|pack| pack != victim), "{victim} is named");
    assert_comes_back(&to, source.path(), "condemned before");
}

/// Sends everything, and is cut off before the first entry.
fn leave_packs(from: &Store, to: &Arc<Objects>, request: &ReplicateRequest, left: &Memory) {
    let everything = Portions {
        commit_bytes: u64::MAX,
        commit_chunks: usize::MAX,
        ..Portions::default()
    };
    let faults = crate::remote::testing::faulty::Faults::default();
    let faulty = Arc::new(crate::remote::Faulty::new(to.clone(), faults));
    let cut = {
        let faulty = faulty.clone();
        move |when, step, key: &str| {
            if is_segment_before(when, step, key) {
                faulty.set(crate::remote::testing::faulty::Faults {
                    before: 1000,
                    ..crate::remote::testing::faulty::Faults::default()
                });
            }
        }
    };
    let remote = Arc::new(Scripted::new(faulty, cut));
    let store = open(remote).in_portions(everything);
    let report = replicate(from, &store, request, left, &Unwatched).unwrap();
    assert!(report.stopped.is_some(), "{report:?}");
}

fn is_segment_before(when: When, step: Step, key: &str) -> bool {
    when == When::Before && step == Step::Put && key.starts_with("segments/")
}

fn condemn(remote: &Objects, pack: PackId) {
    let mut state = open(Arc::new(remote.clone())).state().unwrap();
    let change = Change::CondemnPacks { packs: vec![pack] };
    log::commit(remote, &mut state, &Who::default(), &mut |_, _| {
        Ok(vec![change.clone()])
    })
    .unwrap();
}

fn forget(remote: &Objects, pack: PackId) {
    remote.delete(&[pack_key(pack)]).unwrap();
    let mut state = open(Arc::new(remote.clone())).state().unwrap();
    let change = Change::Forget {
        packs: vec![pack],
        segments: vec![],
    };
    log::commit(remote, &mut state, &Who::default(), &mut |_, _| {
        Ok(vec![change.clone()])
    })
    .unwrap();
}

#[test]
fn segments_of_a_pass_are_marked_until_its_version_is_there() {
    let remote = memory();
    let source = source(5);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let script = {
        let (remote, seen) = (remote.clone(), seen.clone());
        move |when, step, key: &str| {
            if when == When::After && step == Step::Create && key.starts_with(LOG_PREFIX) {
                let state = open(remote.clone()).state().unwrap();
                let passes: Vec<_> = state.segments.values().map(|info| info.pass).collect();
                seen.lock()
                    .unwrap()
                    .push((state.refs.all().unwrap().len(), passes));
            }
        }
    };
    put_through(
        Arc::new(Scripted::new(remote.clone(), script)),
        source.path(),
    )
    .unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 2, "{seen:?}");
    for (refs, passes) in seen.iter() {
        let marked: BTreeSet<_> = passes.iter().collect();
        assert_eq!(marked.len(), 1, "one put is one pass: {seen:?}");
        assert_eq!(marked.contains(&None), *refs == 1, "{seen:?}");
    }
}

#[test]
fn a_put_that_finds_what_a_killed_one_left_ends_its_pass_and_no_other() {
    let remote = memory();
    let (one, other) = (source(6), source(7));
    let faults = crate::remote::testing::faulty::Faults {
        stop_after: Some(11),
        ..crate::remote::testing::faulty::Faults::default()
    };
    for source in [&one, &other] {
        let cut = Arc::new(crate::remote::Faulty::new(remote.clone(), faults));
        put_through(cut, source.path()).unwrap_err();
    }
    let marked = || {
        let state = open(remote.clone()).state().unwrap();
        let passes: BTreeSet<_> = state
            .segments
            .values()
            .filter_map(|info| info.pass)
            .collect();
        passes
    };
    assert_eq!(marked().len(), 2);
    put_through(remote.clone(), one.path()).unwrap();
    assert_eq!(marked().len(), 1);
    put_through(remote.clone(), other.path()).unwrap();
    assert!(marked().is_empty());
}

#[test]
fn an_interrupted_put_commits_what_it_has_and_says_so() {
    struct StopAt(std::sync::atomic::AtomicU64, Host);
    impl crate::Progress for StopAt {
        fn total(&self, _files: u64, _bytes: u64) {}
        fn advance(&self, _files: u64, bytes: u64) {
            if self.0.fetch_add(bytes, Ordering::SeqCst) > 5_000_000 {
                self.1.stop.store(true, Ordering::SeqCst);
            }
        }
    }
    let (remote, source) = (memory(), tempfile::tempdir().unwrap());
    let mut dice = 8;
    for number in 0..4 {
        let words = (0..500_000).flat_map(|_| roll(&mut dice).to_le_bytes());
        let path = source.path().join(number.to_string());
        std::fs::write(path, words.collect::<Vec<u8>>()).unwrap();
    }
    let host = host();
    // No intermediate commits.
    let store = Store::open(remote.clone(), host.clone())
        .unwrap()
        .in_portions(Portions {
            commit_bytes: u64::MAX,
            commit_chunks: usize::MAX,
            ..Portions::default()
        });
    let stop = StopAt(0.into(), host);
    let error = put(&store, &PutRequest::new(source.path(), name()), &stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error:?}");
    let remedy = error.remedy();
    let packs = remote.list(PACKS_PREFIX).unwrap();
    let bytes: u64 = packs.iter().map(|pack| pack.size).sum();
    assert!(bytes > 0);
    assert_eq!(remedy, Some(&Remedy::Kept { bytes }));
    let again = put_through(remote.clone(), source.path()).unwrap();
    assert!(again.new_bytes < 12_000_000, "{again:?}");
    assert_comes_back(&remote, source.path(), "interrupted");
}
