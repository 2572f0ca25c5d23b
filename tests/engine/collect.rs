//! One collector on a quiet store: what it deletes, what it keeps, and that damage stops it before any delete.

use std::fs;
use std::sync::Arc;

use gc::Options;
use gc::policy::{Pattern, Policy, Rules, Scope};
use gc::{CollectReport, Request, collect};
use jiff::{SignedDuration, Timestamp};
use store::access;
use store::format::{Change, log_key, parse_use_key};
use store::remote::{Prune, Read};
use store::{ErrorKind, Result, Store};
use support::{effort, trees};

use crate::stores::{noise, text};
use crate::world::World;

/// A request that collects everything at once: no grace, no age, no unused bytes.
pub(crate) fn eager() -> Request {
    Request {
        policy: Policy::default(),
        options: Options {
            min_age_secs: 0,
            grace_secs: 0,
            max_unused_ppm: 0,
            max_repack_bytes: None,
            repack: true,
            memory_bytes: 128 << 20,
        },
        dry_run: false,
        exclusive: false,
        time_limit: None,
        clock: Timestamp::now,
        elapsed: gc::steady,
    }
}

pub(crate) fn run(
    world: &World,
    remote: &Arc<dyn Prune>,
    request: &Request,
) -> Result<CollectReport> {
    let store = world.open(remote.clone())?;
    collect(&store, remote.as_ref(), request)
}

/// Asserts that a plan leaves a store as it is. If a day has begun since versions were read, records of the day before go.
pub(crate) fn assert_idle(plan: &gc::Plan, what: &str) {
    let (mut plan, today) = (plan.clone(), access::day(Timestamp::now()));
    let is_of_today = |key: &String| parse_use_key(key).is_none_or(|(day, _)| day >= today);
    plan.nameless.uses.retain(is_of_today);
    assert!(plan.is_empty(), "{what}: {plan:?}");
}

#[test]
fn the_fields_of_a_plan_have_their_names_and_their_order() {
    let plan = serde_json::to_string(&gc::Plan::default()).unwrap();
    let waits = r#"{"bytes":0,"until":null}"#;
    let held =
        format!(r#"{{"by_grace":{waits},"by_age":{waits},"unused_bytes":0,"kept_bytes":0}}"#);
    let nameless = r#""stale_uploads":[],"checkpoints":[],"uses":[]"#;
    let steps =
        r#""drop":[],"condemn":[],"drop_segments":[],"orphan_segments":[],"repack":[],"merge":[]"#;
    assert_eq!(
        plan,
        format!(r#"{{"base":0,"delete":[],{nameless},{steps},"held":{held}}}"#)
    );
}

pub(crate) fn keys(remote: &dyn Read, prefix: &str) -> Vec<String> {
    let listed = remote.list(prefix).unwrap();
    listed.into_iter().map(|info| info.key).collect()
}

fn bytes(remote: &dyn Read) -> u64 {
    let listed = remote.list("").unwrap();
    listed.iter().map(|info| info.size).sum()
}

pub(crate) fn drop_ref(store: &Store, name: &str, version: Option<u64>) {
    store::refs::drop_versions(store, &name.parse().unwrap(), version).unwrap();
}

/// Two similar versions, and a tree that shares nothing with them.
pub(crate) fn world() -> World {
    let mut world = World::new();
    let base = [noise(1, 900_000), text(2, 900_000)].concat();
    for (name, at) in [("one", 0), ("two", 700_000)] {
        let dir = world.tree(name);
        fs::create_dir_all(dir.join("sub/deep")).unwrap();
        let mut bytes = base.clone();
        bytes[at..at + 100_000].copy_from_slice(&noise(at as u64 + 10, 100_000));
        fs::write(dir.join("sub/data"), bytes).unwrap();
        for number in 0..40 {
            let seed = if number < 20 {
                number
            } else {
                number + at as u64
            };
            fs::write(dir.join(format!("sub/deep/{number}")), text(seed, 3_000)).unwrap();
        }
    }
    fs::create_dir_all(world.tree("alone")).unwrap();
    fs::write(world.tree("alone/data"), noise(99, 2_000_000)).unwrap();
    world.prepare("one", "project/a/data");
    world.prepare("two", "project/a/data");
    world.prepare("alone", "team/b/data");
    world
}

/// The same store in memory, after one of the similar versions was dropped.
fn half_dropped() -> (World, Arc<dyn Prune>) {
    let world = world();
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    drop_ref(&store, "project/a/data", Some(1));
    (world, remote)
}

#[test]
fn nothing_is_taken_from_a_store_that_needs_all() {
    let world = world();
    let remote = world.memory();
    let before = keys(&*remote, "packs");
    let report = run(&world, &remote, &eager()).unwrap();
    assert!(report.plan.is_empty(), "{:?}", report.plan);
    assert!(report.entries.is_empty());
    assert_eq!(keys(&*remote, "packs"), before);
    assert_eq!(world.check(remote, "quiet").len(), 3);
}

#[test]
fn what_no_version_needs_goes_and_the_rest_stays() {
    let world = world();
    let remote = world.memory();
    drop_ref(&world.open(remote.clone()).unwrap(), "team/b/data", None);
    let before = bytes(&*remote);
    let report = run(&world, &remote, &eager()).unwrap();
    assert!(report.freed_bytes > 2_000_000, "{report:?}");
    assert!(bytes(&*remote) < before - 2_000_000);
    let left = world.check(remote.clone(), "dropped");
    assert_eq!(left, ["project/a/data@1", "project/a/data@2"]);
    let again = run(&world, &remote, &eager()).unwrap();
    assert_idle(&again.plan, "again");
    let state = world.open(remote).unwrap().state().unwrap();
    assert!(state.condemned.is_empty() && state.dropped.is_empty());
}

/// Two versions of twenty files. Every fourth file differs completely, the others a little. In the slow suite, they
/// take several packs.
fn similar(world: &World) {
    let len = effort(90_000, 20_000_000);
    for (name, version) in [("one", 0), ("two", 1)] {
        for number in 0..20 {
            let seed = match number % 4 {
                0 => 100 * version + number,
                _ => number,
            };
            let mut bytes = match number % 3 {
                0 => text(seed, len),
                _ => noise(seed, len),
            };
            let edit = noise(1000 + 100 * version + number, len / 100);
            bytes[len / 2..len / 2 + edit.len()].copy_from_slice(&edit);
            trees::write(&world.tree(name).join(number.to_string()), &bytes);
        }
    }
}

#[test]
fn half_of_two_similar_versions_leaves_no_more_than_a_fresh_store() {
    let mut world = World::new();
    similar(&world);
    let fresh = world.memory();
    world.put(fresh.clone(), "two", "project/a/data").unwrap();
    world.prepare("one", "project/a/data");
    world.prepare("two", "project/a/data");
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    drop_ref(&store, "project/a/data", Some(1));
    let mut request = eager();
    request.options.max_unused_ppm = 50_000;
    let report = run(&world, &remote, &request).unwrap();
    assert!(!report.plan.repack.is_empty(), "{:?}", report.plan);
    let dry = Request {
        dry_run: true,
        ..request
    };
    let held = run(&world, &remote, &dry).unwrap().plan.held;
    assert!(held.unused_bytes <= held.kept_bytes / 20, "{held:?}");
    let (left, fresh) = (bytes(&*remote), bytes(&*fresh));
    println!("{left} bytes are left, {held:?}, {fresh} in a fresh store");
    // The log stays, and chunks that are left of a frame compress a little worse.
    let needed = left - held.unused_bytes;
    assert!(needed < fresh + fresh / 100 + 10_000, "{needed} of {fresh}");
    world.check(remote, "half");
}

#[test]
fn a_dry_run_says_what_apply_does_and_does_nothing() {
    let (world, remote) = half_dropped();
    let before = keys(&*remote, "");
    let dry = Request {
        dry_run: true,
        ..eager()
    };
    let planned = run(&world, &remote, &dry).unwrap().plan;
    assert!(!planned.repack.is_empty(), "{planned:?}");
    assert_eq!(keys(&*remote, ""), before);
    assert_eq!(run(&world, &remote, &eager()).unwrap().plan, planned);
}

#[test]
fn objects_wait_for_their_grace_and_orphans_for_their_age() {
    let world = world();
    let remote = world.memory();
    let orphan = format!("packs/ab/{}", "ab".repeat(16));
    remote.put(&orphan, vec![1; 1000].into()).unwrap();
    drop_ref(&world.open(remote.clone()).unwrap(), "team/b/data", None);
    let mut request = eager();
    request.options.grace_secs = 3600;
    request.options.min_age_secs = 24 * 3600;
    let before = keys(&*remote, "packs");
    let report = run(&world, &remote, &request).unwrap();
    assert_eq!(keys(&*remote, "packs"), before);
    assert_eq!(report.freed_bytes, 0);
    assert!(report.held.by_grace.bytes > 2_000_000, "{report:?}");
    assert_eq!(report.held.by_age.bytes, 1000);
    // Two hours later, the grace is over but the minimum age is not reached.
    request.clock = || Timestamp::now() + SignedDuration::from_hours(2);
    assert!(run(&world, &remote, &request).unwrap().freed_bytes > 2_000_000);
    assert!(keys(&*remote, "packs").contains(&orphan));
    // By this clock, the entry that condemns the orphan is a day old when it is written.
    request.clock = || Timestamp::now() + SignedDuration::from_hours(26);
    let report = run(&world, &remote, &request).unwrap();
    assert_eq!((report.condemned_bytes, report.freed_bytes), (1000, 1000));
    assert!(!keys(&*remote, "packs").contains(&orphan));
    world.check(remote, "grace");
}

#[test]
fn an_orphan_segment_is_known_to_the_log_before_it_goes() {
    let world = world();
    let remote = world.memory();
    let orphan = format!("segments/{}", "cd".repeat(16));
    remote.put(&orphan, vec![1; 500].into()).unwrap();
    run(&world, &remote, &eager()).unwrap();
    assert!(!keys(&*remote, "segments").contains(&orphan));
    let mut changes = Vec::new();
    let mut state = store::format::State::default();
    for entry in store::log::read_after(&*remote, &mut state).unwrap() {
        changes.extend(entry.changes);
    }
    let segment = "cd".repeat(16).parse().unwrap();
    let into = None;
    assert!(changes.contains(&Change::DropSegment { segment, into }));
    world.check(remote, "orphan segment");
}

#[test]
fn many_segments_become_one_that_offers_the_same() {
    let mut world = World::new();
    // Segments as writers without folding leave them.
    world.portions.fold = usize::MAX;
    for number in 0..70_u64 {
        let name = number.to_string();
        trees::write(&world.tree(&name).join("f"), &noise(number, 2_000));
        world.prepare(&name, "project/a/data");
    }
    let remote = world.memory();
    let before = keys(&*remote, "segments").len();
    let mut request = eager();
    request.options.repack = false;
    let report = run(&world, &remote, &request).unwrap();
    assert!(before > 64 && !report.plan.merge.is_empty());
    assert!(keys(&*remote, "segments").len() <= 33);
    assert_eq!(world.check(remote, "merged").len(), 70);
}

#[test]
fn retention_takes_versions_and_spares_pins() {
    let world = world();
    let remote = world.memory();
    let mut request = eager();
    request.policy.scopes = vec![Scope {
        pattern: Pattern::new("project/*"),
        rules: Rules {
            keep_last: Some(1),
            ..Rules::default()
        },
        quota_bytes: None,
        extra: store::format::Extra::new(),
    }];
    let store = world.open(remote.clone()).unwrap();
    let name = "project/a/data".parse().unwrap();
    store::refs::pin(&store, &name, Some(1), true).unwrap();
    let report = run(&world, &remote, &request).unwrap();
    assert_eq!(report.plan.drop, []);
    assert!(report.live.by_pins_bytes > 0, "{:?}", report.live);
    store::refs::pin(&store, &name, Some(1), false).unwrap();
    let report = run(&world, &remote, &request).unwrap();
    assert_eq!(report.plan.drop.len(), 1);
    assert!(report.shared[&name] > 500_000, "{:?}", report.shared);
    let left = world.check(remote, "retention");
    assert_eq!(left, ["project/a/data@2", "team/b/data@1"]);
}

#[test]
fn what_an_rm_dropped_is_told_to_be_shared_too() {
    let (world, remote) = half_dropped();
    let report = run(&world, &remote, &eager()).unwrap();
    let name = "project/a/data".parse().unwrap();
    assert!(report.shared[&name] > 500_000, "{:?}", report.shared);
}

/// Replaces an object by its damaged form.
fn damage(remote: &Arc<dyn Prune>, key: &str, damage: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = remote.get(key).unwrap().to_vec();
    damage(&mut bytes);
    remote.put(key, bytes.into()).unwrap();
}

/// The packs with the trees of refs: metadata packs have kind 1.
fn meta_packs(remote: &dyn Read) -> Vec<String> {
    let mut packs = keys(remote, "packs");
    packs.retain(|key| remote.get(key).unwrap()[10] == 1);
    packs
}

#[test]
fn whatever_cannot_be_read_stops_it_by_name_before_anything_goes() {
    type Damage = (&'static str, ErrorKind, fn(&Arc<dyn Prune>) -> String);
    let cases: [Damage; 6] = [
        ("unreadable tree", ErrorKind::Corrupt, |remote| {
            let pack = meta_packs(&**remote).remove(0);
            damage(remote, &pack, |bytes| bytes[88..128].fill(7));
            pack.rsplit('/').next().unwrap().to_owned()
        }),
        ("missing metadata", ErrorKind::Corrupt, |remote| {
            let pack = meta_packs(&**remote).remove(0);
            remote.delete(std::slice::from_ref(&pack)).unwrap();
            pack.rsplit('/').next().unwrap().to_owned()
        }),
        ("missing data", ErrorKind::Corrupt, |remote| {
            let meta = meta_packs(&**remote);
            let data = keys(&**remote, "packs")
                .into_iter()
                .find(|key| !meta.contains(key));
            remote.delete(&[data.clone().unwrap()]).unwrap();
            data.unwrap()
        }),
        ("missing segment", ErrorKind::Corrupt, |remote| {
            let segment = keys(&**remote, "segments").remove(0);
            remote.delete(std::slice::from_ref(&segment)).unwrap();
            segment
        }),
        ("flipped bit in a segment", ErrorKind::Corrupt, |remote| {
            let segment = keys(&**remote, "segments").remove(0);
            damage(remote, &segment, |bytes| {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            });
            segment
        }),
        ("truncated log entry", ErrorKind::Corrupt, |remote| {
            damage(remote, &log_key(2), |bytes| bytes.truncate(100));
            log_key(2)
        }),
    ];
    let world = world();
    for (what, kind, hurt) in cases {
        let remote = world.memory();
        let named = hurt(&remote);
        // Something that could be collected, and must stay.
        let orphan = format!("packs/ab/{}", "ab".repeat(16));
        remote.put(&orphan, vec![1; 1000].into()).unwrap();
        let before = keys(&*remote, "");
        let error = run(&world, &remote, &eager()).unwrap_err();
        assert_eq!(error.kind(), kind, "{what}: {error:?}");
        assert!(
            format!("{error:?}").contains(&named),
            "{what}: {error:?}, {named}"
        );
        assert_eq!(keys(&*remote, ""), before, "{what}");
    }
}

#[test]
fn a_stale_or_broken_checkpoint_changes_nothing() {
    let world = world();
    let remote = world.memory();
    remote
        .put("checkpoints/00000003", vec![1, 2, 3].into())
        .unwrap();
    drop_ref(&world.open(remote.clone()).unwrap(), "team/b/data", None);
    run(&world, &remote, &eager()).unwrap();
    assert_eq!(world.check(remote, "checkpoint").len(), 2);
}

#[test]
fn old_checkpoints_go() {
    let world = world();
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    let name = "team/b/data".parse().unwrap();
    for number in 0..260 {
        store::refs::pin(&store, &name, None, number % 2 == 0).unwrap();
    }
    let state = store.state().unwrap();
    assert_eq!(keys(&*remote, "checkpoints").len(), 4);
    let report = run(&world, &remote, &eager()).unwrap();
    assert_eq!(report.freed_objects, 2);
    assert_eq!(
        keys(&*remote, "checkpoints"),
        ["checkpoints/00000192", "checkpoints/00000256"]
    );
    assert_eq!(store.state().unwrap(), state);
    world.check(remote, "checkpoints");
}

#[test]
fn a_time_limit_stops_in_good_order_and_the_next_run_goes_on() {
    let (world, remote) = half_dropped();
    let mut request = eager();
    request.time_limit = Some(std::time::Duration::ZERO);
    let report = run(&world, &remote, &request).unwrap();
    assert!(report.stopped);
    assert!(report.entries.is_empty());
    request.time_limit = None;
    assert!(!run(&world, &remote, &request).unwrap().stopped);
    world.check(remote, "limit");
}

/// A file has the same bytes as a tree and as a list node. It must not hide what these lead to.
#[test]
fn a_file_with_the_bytes_of_a_tree_hides_nothing() {
    let mut world = World::new();
    trees::write(&world.tree("real/sub/file"), &noise(5, 400_000));
    world.prepare("real", "project/z/real");
    let remote = world.memory();
    let store = world.open(remote).unwrap();
    let reader = store::read::Reader::new(&store).unwrap();
    let found = reader
        .resolve(&"project/z/real:sub".parse().unwrap())
        .unwrap();
    let store::format::Node::Tree { content, .. } = found.node else {
        panic!("{:?}", found.node)
    };
    let file = reader.tree(&content).unwrap().remove(0);
    let store::format::Node::File { content: list, .. } = file.node else {
        panic!("{file:?}")
    };
    trees::write(&world.tree("copy/tree"), &reader.meta(&content).unwrap());
    trees::write(
        &world.tree("copy/list"),
        &reader.meta_chunk(&list.root).unwrap(),
    );
    drop(reader);
    // The name sorts first, so this version is walked first.
    world.prepare("copy", "project/a/copy");
    let remote = world.memory();
    run(&world, &remote, &eager()).unwrap();
    assert_eq!(world.check(remote, "copy").len(), 2);
}

#[test]
fn stores_on_a_directory_are_collected_too() {
    let world = world();
    let remote = world.directory("store");
    drop_ref(
        &world.open(remote.clone()).unwrap(),
        "project/a/data",
        Some(1),
    );
    let stale = world.tree("store/packs/ab");
    fs::create_dir_all(&stale).unwrap();
    let upload = stale.join(format!("{}#1", "ab".repeat(16)));
    let open = fs::File::create(&upload).unwrap();
    let mut request = eager();
    run(&world, &remote, &request).unwrap();
    assert!(upload.exists(), "somebody writes it");
    request.clock = || Timestamp::now() + SignedDuration::from_hours(2);
    run(&world, &remote, &request).unwrap();
    assert!(!upload.exists(), "nobody writes so slowly");
    drop(open);
    assert_eq!(world.check(remote, "directory").len(), 2);
}
