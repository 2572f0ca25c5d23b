//! Transfers of versions from one store to another: which versions, that they arrive as they were put, and what happens
//! to those that cannot.

use std::fs;
use std::sync::Arc;

use jiff::Timestamp;
use store::check::{ReadData, VerifyRequest, verify};
use store::format::{At, pack_key};
use store::refs::{drop_versions, pin};
use store::remote::testing::faulty::Faults;
use store::remote::{Faulty, Objects, Prune};
use store::replicate::{Delete, Forgetful, RefStatus, Selection, Versions};
use store::{ErrorKind, ReplicateReport, ReplicateRequest, Result, Store, Unwatched, replicate};
use support::trees;

use crate::stores::{name, noise, text};
use crate::world::World;

pub(crate) const REF: &str = "project/a/data";
const OTHER: &str = "project/a/sub/other";
pub(crate) const FAR: &str = "team/b/data";

/// A new store in memory.
pub(crate) fn empty(world: &World) -> Arc<dyn Prune> {
    let remote = Arc::new(Objects::memory());
    Store::init(remote.clone(), world.host()).unwrap();
    remote
}

/// All versions of these refs and namespaces.
pub(crate) fn all(what: &[&str]) -> ReplicateRequest {
    ReplicateRequest {
        versions: Versions::All,
        ..latest(what)
    }
}

/// The newest versions of these refs and namespaces.
pub(crate) fn latest(what: &[&str]) -> ReplicateRequest {
    let select = |what: &&str| match what.matches('/').count() {
        1 => Selection::Namespace(what.parse().unwrap()),
        _ => Selection::Ref(name(what)),
    };
    ReplicateRequest::new(what.iter().map(select).collect())
}

/// Runs a transfer as a new process, without memory of earlier runs.
pub(crate) fn run(
    world: &World,
    from: &Arc<dyn Prune>,
    to: &Arc<dyn Prune>,
    request: &ReplicateRequest,
) -> Result<ReplicateReport> {
    let (from, to) = (world.open(from.clone())?, world.open(to.clone())?);
    replicate(&from, &to, request, &Forgetful, &Unwatched)
}

/// Runs a transfer that must succeed completely.
pub(crate) fn bring(
    world: &World,
    from: &Arc<dyn Prune>,
    to: &Arc<dyn Prune>,
    request: &ReplicateRequest,
) -> ReplicateReport {
    let report = run(world, from, to, request).unwrap();
    assert!(report.stopped.is_none(), "{report:?}");
    let failed = |status: &RefStatus| matches!(status, RefStatus::Failed(_));
    assert!(
        !report.refs.iter().any(|one| failed(&one.status)),
        "{report:?}"
    );
    report
}

/// The outcome of each version: `REF@FROM`, and `@TO` if it arrived.
pub(crate) fn outcomes(report: &ReplicateReport) -> Vec<String> {
    let tell = |one: &store::replicate::RefOutcome| {
        let number = |at: Option<u64>| at.map_or("-".to_owned(), |at| at.to_string());
        let status = match &one.status {
            RefStatus::Published => "published".to_owned(),
            RefStatus::Unchanged => "unchanged".to_owned(),
            RefStatus::Healed => "healed".to_owned(),
            RefStatus::Failed(error) => format!("{:?}", error.kind()),
        };
        let (from, to) = (number(one.from), number(one.to));
        format!("{} {from} > {to} {status}", one.name)
    };
    report.refs.iter().map(tell).collect()
}

/// Asserts that a store is clean down to the last byte. Returns its versions as `REF@N`.
pub(crate) fn assert_sound(world: &World, remote: &Arc<dyn Prune>, what: &str) -> Vec<String> {
    let store = world.open(remote.clone()).unwrap();
    let request = VerifyRequest {
        target: None,
        read: ReadData::Everything,
        now: Timestamp::UNIX_EPOCH,
    };
    let report = verify(&store, &request, &Unwatched).unwrap();
    assert!(report.is_clean(), "{what}: {report:#?}");
    let refs = store.state().unwrap().refs.all().unwrap();
    let versions = refs.iter().flat_map(|(name, known)| {
        let numbers = known.versions.keys();
        numbers.map(move |number| format!("{name}@{number}"))
    });
    versions.collect()
}

/// Two similar versions, the first also under another name, and a tree that shares nothing with them.
pub(crate) fn world() -> World {
    let mut world = World::new();
    for (tree, number) in [("one", 1), ("two", 2)] {
        trees::version(&world.tree(tree), 7, number, 4_000_000);
    }
    trees::everything(&world.tree("far"), 3);
    world.prepare("one", REF);
    world.prepare("two", REF);
    world.prepare("one", OTHER);
    world.prepare("far", FAR);
    world
}

pub(crate) fn packs(remote: &Arc<dyn Prune>) -> usize {
    remote.list("packs").unwrap().len()
}

#[test]
fn everything_arrives_and_is_sound_in_memory_and_in_a_directory() {
    let world = world();
    let from = world.directory("from");
    let directory: Arc<dyn Prune> = Arc::new(Objects::directory(&world.tree("to")).unwrap());
    Store::init(directory.clone(), world.host()).unwrap();
    for to in [empty(&world), directory] {
        let mut request = all(&["project/a", "team/b"]);
        request.verify = true;
        let report = bring(&world, &from, &to, &request);
        let found = world.check(to.clone(), "copy");
        assert_eq!(found, world.check(from.clone(), "source"));
        assert_eq!(
            outcomes(&report),
            [
                "project/a/data 1 > 1 published",
                "project/a/data 2 > 2 published",
                "project/a/sub/other 1 > 1 published",
                "team/b/data 1 > 1 published",
            ]
        );
        assert_sound(&world, &to, "copy");
        assert_eq!(packs(&to), 2, "one of metadata and one of data");
        let again = bring(&world, &from, &to, &request);
        assert_eq!((again.chunks, again.sent_bytes), (0, 0));
        assert_eq!(
            outcomes(&again),
            [
                "project/a/data 2 > 2 unchanged",
                "project/a/sub/other 1 > 1 unchanged",
                "team/b/data 1 > 1 unchanged",
            ]
        );
    }
}

#[test]
fn the_newest_there_is_the_newest_here_and_others_stay() {
    let world = world();
    let (from, to) = (world.memory(), empty(&world));
    world.put(to.clone(), "far", REF).unwrap();
    let only = ReplicateRequest::new(vec![Selection::Version(name(REF), At::Number(1))]);
    let report = bring(&world, &from, &to, &only);
    assert_eq!(outcomes(&report), [format!("{REF} 1 > 2 published")]);
    let report = bring(&world, &from, &to, &all(&[REF]));
    assert_eq!(outcomes(&report), [format!("{REF} 2 > 3 published")]);
    // A later put at the destination is not replaced by a version that had arrived before it.
    world.put(to.clone(), "one", REF).unwrap();
    let report = run(&world, &from, &to, &latest(&[REF])).unwrap();
    assert_eq!(outcomes(&report), [format!("{REF} 2 > 3 Conflict")]);
    // A version that is put again becomes the newest at the destination, at no cost.
    world.put(from.clone(), "one", REF).unwrap();
    world.put(from.clone(), "two", REF).unwrap();
    let report = bring(&world, &from, &to, &latest(&[REF]));
    assert_eq!(outcomes(&report), [format!("{REF} 4 > 5 published")]);
    assert_eq!(report.sent_bytes, 0);
    assert_eq!(world.check(to, "five versions").len(), 5);
}

#[test]
fn a_version_that_differs_in_times_only_is_brought() {
    let world = world();
    let (from, to) = (world.memory(), empty(&world));
    bring(&world, &from, &to, &latest(&[FAR]));
    let file = fs::File::open(world.tree("far")).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    file.set_modified(time).unwrap();
    world.put(from.clone(), "far", FAR).unwrap();
    let report = bring(&world, &from, &to, &latest(&[FAR]));
    assert_eq!(outcomes(&report), [format!("{FAR} 2 > 2 published")]);
    let there = world.open(to).unwrap();
    let out = world.get(&there, &format!("{FAR}@2")).unwrap();
    let modified = fs::metadata(out.path()).unwrap().modified().unwrap();
    assert_eq!(modified, time);
}

/// A tree of more than one chunk: its list is reached before it, and both are walked.
#[test]
fn a_directory_of_thousands_of_names_arrives_whole() {
    let mut world = World::new();
    for number in 0..3000 {
        let path = world
            .tree("wide")
            .join(format!("a-name-of-some-length-{number:06}"));
        trees::write(&path, number.to_string().as_bytes());
    }
    world.prepare("wide", FAR);
    let (from, to) = (world.memory(), empty(&world));
    let report = bring(&world, &from, &to, &latest(&["team/b"]));
    assert!(report.chunks > 3000, "{report:?}");
    world.check(to.clone(), "3,000 names");
    assert_eq!(
        assert_sound(&world, &to, "3,000 names"),
        [format!("{FAR}@1")]
    );
}

#[test]
fn message_and_expiry_come_along_and_pins_do_not() {
    let world = world();
    let from = world.memory();
    let store = world.open(from.clone()).unwrap();
    let expires = Some(Timestamp::UNIX_EPOCH);
    let mut request = crate::stores::request(&world.tree("two"), FAR);
    (request.message, request.expires) = ("two".to_owned(), expires);
    store::put(&store, &request, &Unwatched).unwrap();
    pin(&store, &name(FAR), None, true).unwrap();
    let to = empty(&world);
    bring(&world, &from, &to, &latest(&[FAR]));
    let state = world.open(to).unwrap().state().unwrap();
    let (number, version) = state.version(&name(FAR), None).unwrap();
    assert_eq!((number, version.pinned), (1, false));
    assert_eq!(
        (version.message.as_str(), version.expires),
        ("two", expires)
    );
}

#[test]
fn delete_takes_what_the_source_has_not_but_for_pins() {
    let world = world();
    let (from, to) = (world.memory(), empty(&world));
    bring(&world, &from, &to, &all(&["project/a", "team/b"]));
    for (tree, target) in [
        ("far", REF),
        ("two", REF),
        ("far", "project/a/gone"),
        ("one", FAR),
    ] {
        world.put(to.clone(), tree, target).unwrap();
    }
    let there = world.open(to.clone()).unwrap();
    pin(&there, &name("project/a/gone"), None, true).unwrap();
    world.put(to.clone(), "two", "project/a/gone").unwrap();
    let here = world.open(from.clone()).unwrap();
    drop_versions(&here, &name(OTHER), None).unwrap();
    let mut request = latest(&["project/a"]);
    request.delete = Delete::Surplus { last_source: None };
    request.dry_run = true;
    let planned = bring(&world, &from, &to, &request);
    request.dry_run = false;
    let report = bring(&world, &from, &to, &request);
    assert_eq!(
        (&planned.dropped, &planned.kept, &planned.own),
        (&report.dropped, &report.kept, &report.own)
    );
    let listed = |list: &[(store::format::RefName, u64)]| -> Vec<String> {
        list.iter()
            .map(|(name, at)| format!("{name}@{at}"))
            .collect()
    };
    assert_eq!(listed(&report.dropped), ["project/a/sub/other@1"]);
    // What was first put at the destination is not a copy.
    assert_eq!(
        listed(&report.own),
        ["project/a/data@3", "project/a/gone@2"]
    );
    assert_eq!(listed(&report.kept), ["project/a/gone@1"]);
    let left = world.check(to.clone(), "after delete");
    assert_eq!(
        left,
        [
            "project/a/data@1",
            "project/a/data@2",
            "project/a/data@3",
            "project/a/data@4",
            "project/a/gone@1",
            "project/a/gone@2",
            "team/b/data@1",
            "team/b/data@2"
        ]
    );
    // On request it is dropped like others.
    request.delete = Delete::All;
    let report = bring(&world, &from, &to, &request);
    assert_eq!(
        listed(&report.dropped),
        ["project/a/data@3", "project/a/gone@2"]
    );
    assert_eq!(report.own, []);
    let left = world.check(to.clone(), "after all is deleted");
    assert_eq!(left.len(), 6);
    // A namespace that the source lacks is treated as a mistake, and nothing is dropped.
    drop_versions(&here, &name(FAR), None).unwrap();
    let mut request = latest(&["team/b"]);
    request.delete = Delete::Surplus { last_source: None };
    let error = run(&world, &from, &to, &request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(world.check(to, "after nothing").len(), left.len());
}

#[test]
fn a_dry_run_tells_what_a_real_one_does() {
    let world = world();
    let (from, to) = (world.memory(), empty(&world));
    bring(&world, &from, &to, &latest(&[OTHER]));
    let mut request = all(&["project/a", "team/b"]);
    request.dry_run = true;
    let far = Arc::new(Faulty::new(to.clone(), Faults::default()));
    let planned = bring(&world, &from, &(far.clone() as _), &request);
    assert_eq!(far.counts().mutations, 0);
    request.dry_run = false;
    let done = bring(&world, &from, &to, &request);
    assert_eq!(
        (planned.chunks, planned.raw_bytes),
        (done.chunks, done.raw_bytes)
    );
    let (planned_bytes, sent) = (planned.sent_bytes, done.sent_bytes);
    assert!(
        planned_bytes.abs_diff(sent) < sent / 20,
        "{planned_bytes}, {sent}"
    );
    assert_eq!(planned.refs.len(), done.refs.len());
}

#[test]
fn what_does_not_exist_fails_by_itself() {
    let world = world();
    let (from, to) = (world.memory(), empty(&world));
    let mut request = latest(&["project/a/none", FAR, "project/nobody"]);
    request
        .what
        .push(Selection::Version(name(REF), At::Number(9)));
    let report = run(&world, &from, &to, &request).unwrap();
    assert_eq!(
        outcomes(&report),
        [
            "project/a/data 9 > - NotFound",
            "project/a/none - > - NotFound",
            "team/b/data 1 > 1 published"
        ]
    );
    let missing = report.missing.iter().map(|(_, error)| error.to_string());
    assert_eq!(
        missing.collect::<Vec<_>>(),
        ["project/nobody: the source has no ref in this namespace"]
    );
    for what in [&[][..], &["team/nobody"]] {
        let error = run(&world, &from, &to, &latest(what)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}

#[test]
fn a_damaged_chunk_fails_its_refs_only_and_never_arrives() {
    let mut world = World::new();
    for (tree, seed) in [("bad", 1), ("good", 2)] {
        fs::create_dir_all(world.tree(tree)).unwrap();
        fs::write(world.tree(tree).join("text"), text(seed, 900_000)).unwrap();
        fs::write(world.tree(tree).join("noise"), noise(seed, 3_000_000)).unwrap();
    }
    world.prepare("bad", REF);
    world.prepare("good", OTHER);
    world.prepare("bad", FAR);
    for inside in ["text", "noise"] {
        let from = world.memory();
        let store = world.open(from.clone()).unwrap();
        let reader = store::read::Reader::new(&store).unwrap();
        let found = reader
            .resolve(&format!("{REF}:{inside}").parse().unwrap())
            .unwrap();
        let store::format::Node::File { content, .. } = found.node else {
            panic!("a file");
        };
        let mut chunks = Vec::new();
        let each = &mut |id, _| {
            chunks.push(id);
            Ok(())
        };
        reader.chunks(&content, each).unwrap();
        let at = reader.locate(&chunks[1]).unwrap();
        let key = pack_key(at.pack);
        let mut bytes = from.get(&key).unwrap().to_vec();
        let byte = at.frame_offset as usize + at.stored_len as usize / 2;
        bytes[byte] ^= 1;
        from.put(&key, bytes.into()).unwrap();
        let to = empty(&world);
        let report = run(&world, &from, &to, &latest(&["project/a", "team/b"])).unwrap();
        assert_eq!(
            outcomes(&report),
            [
                "project/a/sub/other 1 > 1 published",
                "project/a/data 1 > - Corrupt",
                "team/b/data 1 > - Corrupt",
            ]
        );
        let RefStatus::Failed(error) = &report.refs[1].status else {
            panic!("{report:?}");
        };
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("{REF}@1: ")) && message.contains(&key),
            "{message}"
        );
        let there = world.open(to.clone()).unwrap().view().unwrap();
        // The flip hits one or more chunks of its frame, and the others are unaffected.
        let is_there = |id| there.index.find(id).unwrap().is_some();
        let missing = chunks.iter().filter(|id| !is_there(id)).count();
        assert!(missing > 0 && missing < chunks.len(), "{missing}");
        assert_eq!(world.check(to.clone(), "the rest"), [format!("{OTHER}@1")]);
        assert_sound(&world, &to, "the rest");
    }
}

#[test]
fn a_run_that_is_asked_to_stop_says_so() {
    let world = world();
    let (from, to) = (world.memory(), empty(&world));
    let mut host = world.host();
    host.stop = Arc::new(true.into());
    let from = Store::open(from, host.clone()).unwrap();
    let there = Store::open(to, host).unwrap();
    let report = replicate(&from, &there, &latest(&[REF]), &Forgetful, &Unwatched).unwrap();
    assert_eq!(report.stopped.unwrap().kind(), ErrorKind::Interrupted);
    assert!(report.refs.is_empty());
    assert_eq!(there.state().unwrap().number, 0);
}

#[test]
fn a_destination_that_keeps_other_bytes_is_found_out_when_asked_to_verify() {
    let world = world();
    let from = world.open(world.memory()).unwrap();
    for verify in [true, false] {
        let faults = Faults {
            rotten: true,
            ..Faults::default()
        };
        let remote = Arc::new(Faulty::new(empty(&world), faults));
        let to = Store::open(remote, world.host()).unwrap();
        let mut request = latest(&[REF]);
        request.verify = verify;
        let report = replicate(&from, &to, &request, &Forgetful, &Unwatched).unwrap();
        let stopped = report
            .stopped
            .map(|error| (error.kind(), error.to_string()));
        match stopped {
            Some((kind, message)) => {
                assert!(verify && kind == ErrorKind::Corrupt, "{message}");
                assert!(
                    message.starts_with("read back from the destination: packs/"),
                    "{message}"
                );
                assert_eq!(to.state().unwrap().number, 0);
            }
            None => assert!(!verify),
        }
    }
}
