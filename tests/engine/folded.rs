//! Segments that writers fold into their own: few are left, nothing is lost, and writers that rely on a folded one go
//! on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gc::collect;
use store::check::{ReadData, RepairRequest, repair};
use store::format::{Change, LOG_PREFIX, PackHeader, PackKind, State};
use store::log;
use store::remote::testing::scripted::{Scripted, Step, When};
use store::remote::{Prune, Read};
use store::{Portions, PutReport, Unwatched};
use support::trees;

use crate::collect::{eager, keys, run};
use crate::damaged::verify_target;
use crate::replicate::assert_sound;
use crate::stores::text;
use crate::world::World;

const REF: &str = "project/a/data";

/// A world whose commits fold `fold` segments of similar size, and `count` trees of one small file each.
fn world(fold: usize, count: u64) -> World {
    let mut world = World::new();
    world.portions = Portions {
        fold,
        together_bytes: 0,
        ..Portions::default()
    };
    for number in 0..count {
        let path = world.tree(&number.to_string()).join("file");
        trees::write(&path, &text(number, 3_000));
    }
    world
}

fn put(world: &World, remote: &Arc<dyn Prune>, tree: u64) -> PutReport {
    world.put(remote.clone(), &tree.to_string(), REF).unwrap()
}

fn segments(world: &World, remote: &Arc<dyn Prune>) -> usize {
    let state = world.open(remote.clone()).unwrap().state().unwrap();
    state.segments.len()
}

/// The changes in entry `number`.
fn changes(remote: &dyn Read, number: u64) -> Vec<Change> {
    log::entry(remote, number).unwrap().unwrap().changes
}

fn folds(changes: &[Change]) -> usize {
    let is_fold = |change: &&Change| matches!(change, Change::DropSegment { into: Some(_), .. });
    changes.iter().filter(is_fold).count()
}

/// Puts while `act` happens before the first attempt to write an entry.
fn put_beside(
    world: &World,
    remote: &Arc<dyn Prune>,
    tree: u64,
    act: impl Fn() + Send + Sync + 'static,
) -> PutReport {
    let entries = AtomicUsize::new(0);
    let script = move |when, step, key: &str| {
        let is_entry = when == When::Before && step == Step::Create && key.starts_with(LOG_PREFIX);
        if is_entry && entries.fetch_add(1, Ordering::SeqCst) == 0 {
            act();
        }
    };
    let scripted = Arc::new(Scripted::new(remote.clone(), script));
    put(world, &(scripted as Arc<dyn Prune>), tree)
}

#[test]
fn many_puts_leave_few_segments_and_a_collector_takes_what_was_folded() {
    let world = world(4, 40);
    let remote = world.memory();
    for tree in 0..40 {
        put(&world, &remote, tree);
    }
    assert!(segments(&world, &remote) < 10);
    let found = assert_sound(&world, &remote, "folded");
    assert_eq!(found.len(), 40);
    assert_eq!(world.check(remote.clone(), "folded"), found);
    assert_eq!(keys(&*remote, "segments").len(), 40, "nobody has collected");
    run(&world, &remote, &eager()).unwrap();
    let left = segments(&world, &remote);
    assert_eq!(keys(&*remote, "segments").len(), left);
    assert_eq!(world.check(remote.clone(), "collected"), found);
    let packs = keys(&*remote, "packs");
    assert_eq!(packs.len(), 2, "small packs are joined, those of each kind");
    let again = run(&world, &remote, &eager()).unwrap();
    assert_eq!(again.copied_bytes, 0, "and left alone then");
    assert_eq!(keys(&*remote, "packs"), packs);
}

#[test]
fn an_entry_that_folds_says_into_what() {
    let world = world(3, 3);
    let remote = world.memory();
    for tree in 0..3 {
        put(&world, &remote, tree);
    }
    let changes = changes(&*remote, 3);
    let Some(Change::AddSegment { segment, info }) = changes.first() else {
        panic!("{changes:?}");
    };
    assert_eq!(folds(&changes), 2);
    let is_into = |change: &Change| matches!(change, Change::DropSegment { into, .. } if *into == Some(*segment));
    assert_eq!(changes.iter().filter(|change| is_into(change)).count(), 2);
    assert_eq!(info.packs, 6, "those of the folded segments stay named");
    assert_eq!(segments(&world, &remote), 1);
}

/// Two writers fold the same segments: the second one commits only its own segment, and nothing twice.
#[test]
fn a_fold_that_another_writer_has_done_meanwhile_is_given_up() {
    let world = Arc::new(world(3, 4));
    let remote = world.memory();
    put(&world, &remote, 0);
    put(&world, &remote, 1);
    let (there, other) = (world.clone(), remote.clone());
    put_beside(&world, &remote, 2, move || {
        put(&there, &other, 3);
    });
    assert_eq!(folds(&changes(&*remote, 3)), 2, "the other one");
    assert_eq!(folds(&changes(&*remote, 4)), 0);
    assert_eq!(segments(&world, &remote), 2);
    let found = assert_sound(&world, &remote, "two folds");
    assert_eq!(found.len(), 4);
    assert_eq!(world.check(remote.clone(), "two folds"), found);
}

/// The chunks that a put relies on are in another segment by the time it commits.
#[test]
fn who_relies_on_a_segment_that_is_folded_stores_nothing_again() {
    let world = Arc::new(world(3, 3));
    let remote = world.memory();
    put(&world, &remote, 0);
    put(&world, &remote, 1);
    let (there, other) = (world.clone(), remote.clone());
    let report = put_beside(&world, &remote, 0, move || {
        assert_eq!(put(&there, &other, 2).version, Some(3));
    });
    assert_eq!((report.version, report.new_bytes), (Some(4), 0));
    assert_eq!(folds(&changes(&*remote, 3)), 2);
    assert_eq!(log::load(&*remote as &dyn Read).unwrap().number, 4);
    let found = assert_sound(&world, &remote, "relied");
    assert_eq!(world.check(remote.clone(), "relied"), found);
}

/// A collector condemns a pack of a segment that is being folded. The folded segment must not bring the pack back.
#[test]
fn a_fold_beside_a_collector_names_nothing_that_was_condemned() {
    let world = Arc::new(world(3, 4));
    let remote = world.memory();
    put(&world, &remote, 0);
    put(&world, &remote, 1);
    let (there, other) = (world.clone(), remote.clone());
    put_beside(&world, &remote, 2, move || {
        let store = there.open(other.clone()).unwrap();
        store::refs::drop_versions(&store, &REF.parse().unwrap(), Some(1)).unwrap();
        collect(&store, other.as_ref(), &eager()).unwrap();
    });
    let view = world.open(remote.clone()).unwrap().view().unwrap();
    let packs = keys(&*remote, "packs");
    for pack in view.index.packs() {
        let key = store::format::pack_key(pack.id);
        assert!(packs.contains(&key), "{key} is gone, and named");
    }
    let found = assert_sound(&world, &remote, "condemned");
    assert_eq!(world.check(remote.clone(), "condemned"), found);
}

/// Writers that fold all the time do not make a collector start again.
#[test]
fn a_plan_stands_beside_a_writer_that_folds() {
    let world = Arc::new(world(3, 4));
    let remote = world.memory();
    for tree in 0..2 {
        put(&world, &remote, tree);
    }
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &REF.parse().unwrap(), Some(1)).unwrap();
    let tries = Arc::new(AtomicUsize::new(0));
    let (count, there, other) = (tries.clone(), world.clone(), remote.clone());
    let script = move |when, step, key: &str| {
        let is_entry = when == When::Before && step == Step::Create && key.starts_with(LOG_PREFIX);
        if is_entry && count.fetch_add(1, Ordering::SeqCst) == 0 {
            put(&there, &other, 2);
        }
    };
    let scripted = Arc::new(Scripted::new(remote.clone(), script));
    let mut request = eager();
    request.options.repack = false;
    let report = collect(
        &world.open(scripted.clone()).unwrap(),
        scripted.as_ref(),
        &request,
    )
    .unwrap();
    assert_eq!(folds(&changes(&*remote, 4)), 2, "the writer");
    assert!(report.condemned_bytes > 0);
    let is_condemned = |change: &Change| matches!(change, Change::CondemnPacks { .. });
    assert!(
        changes(&*remote, 5).iter().any(is_condemned),
        "the plan of before"
    );
    let found = assert_sound(&world, &remote, "a plan");
    assert_eq!(found.len(), 2);
    assert_eq!(world.check(remote.clone(), "a plan"), found);
}

/// Segments of an unfinished pass are not folded.
#[test]
fn segments_of_a_pass_under_way_are_not_folded() {
    let world = World::fine();
    for number in 0..3 {
        trees::version(&world.tree(&number.to_string()), 7, number, 6_000);
    }
    let remote = world.memory();
    put(&world, &remote, 0);
    put(&world, &remote, 1);
    let mut state = State::default();
    let entries = log::read_after(&*remote as &dyn Read, &mut state).unwrap();
    let mut state = State::default();
    let mut of_passes = 0;
    for entry in &entries {
        for change in &entry.changes {
            if let Change::DropSegment { segment, .. } = change {
                assert!(state.segments[segment].pass.is_none(), "{}", entry.number);
            }
        }
        state.apply(entry).unwrap();
        of_passes += state
            .segments
            .values()
            .filter(|one| one.pass.is_some())
            .count();
    }
    assert!(of_passes > 5);
}

/// A small put writes one pack of both kinds. Readers, transfers and collectors distinguish its frames.
#[test]
fn a_put_of_little_is_one_pack() {
    let mut world = world(8, 12);
    world.portions.together_bytes = Portions::default().together_bytes;
    let remote = world.memory();
    put(&world, &remote, 0);
    assert_eq!(keys(&*remote, "packs").len(), 1);
    let view = world.open(remote.clone()).unwrap().view().unwrap();
    assert!(view.index.packs().all(|pack| pack.kind == PackKind::Both));
    for tree in 1..12 {
        put(&world, &remote, tree);
    }
    assert_eq!(keys(&*remote, "packs").len(), 12);
    let found = assert_sound(&world, &remote, "both");
    assert_eq!(world.check(remote.clone(), "both"), found);
    run(&world, &remote, &eager()).unwrap();
    let view = world.open(remote.clone()).unwrap().view().unwrap();
    let mut kinds: Vec<PackKind> = view.index.packs().map(|pack| pack.kind).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [PackKind::Data, PackKind::Meta], "joined by kind");
    assert_eq!(world.check(remote.clone(), "joined"), found);
    assert_eq!(assert_sound(&world, &remote, "joined"), found);
}

#[test]
fn a_put_of_more_keeps_data_and_metadata_apart() {
    let mut world = world(8, 1);
    world.portions.together_bytes = 100;
    let remote = world.memory();
    put(&world, &remote, 0);
    let view = world.open(remote.clone()).unwrap().view().unwrap();
    let mut kinds: Vec<PackKind> = view.index.packs().map(|pack| pack.kind).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [PackKind::Data, PackKind::Meta]);
}

/// If a frame in a pack of both kinds is damaged, the others are saved, each to a pack of its kind.
#[test]
fn what_is_good_in_a_damaged_pack_of_both_kinds_is_saved() {
    let mut world = world(8, 1);
    world.portions.together_bytes = Portions::default().together_bytes;
    let remote = world.memory();
    put(&world, &remote, 0);
    let store = world.open(remote.clone()).unwrap();
    let key = keys(&*remote, "packs").remove(0);
    let mut bytes = remote.get(&key).unwrap().to_vec();
    let first = usize::try_from(PackHeader::LEN).unwrap();
    bytes[first + 9] ^= 1;
    remote.put(&key, bytes.into()).unwrap();
    let report = verify_target(&store, ReadData::Everything, None).unwrap();
    assert!(!report.is_clean());
    let request = RepairRequest {
        read_data: true,
        dry_run: false,
        accept_loss: false,
    };
    let report = repair(&store, request, &Unwatched).unwrap();
    assert!(
        report.chunks_saved > 0 && report.chunks_lost > 0,
        "{report:?}"
    );
    let view = store.view().unwrap();
    let packs = view.index.packs();
    let offered = packs.filter(|pack| !view.state.condemned.contains_key(&pack.id));
    let kinds: Vec<PackKind> = offered.map(|pack| pack.kind).collect();
    assert_eq!(kinds, [PackKind::Meta], "the data is lost");
    put(&world, &remote, 0);
    let found = assert_sound(&world, &remote, "healed");
    assert_eq!(found.len(), 2);
    assert_eq!(world.check(remote.clone(), "healed"), found);
}
