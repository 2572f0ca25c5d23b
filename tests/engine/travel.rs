//! What is sent from one store to another: only missing data, in few requests and few packs.

use std::fs;
use std::sync::Arc;

use store::Portions;
use store::format::{Change, Extra, PackKind};
use store::remote::testing::faulty::Faults;
use store::remote::{Faulty, Prune};
use support::trees;

use crate::replicate::{FAR, REF, assert_sound, bring, empty, latest, outcomes, packs, world};
use crate::stores::{name, noise, text};
use crate::world::World;

/// Two stores over a network: the destination checks what it relies on, and the source reads no index.
#[test]
fn an_unchanged_ref_costs_only_opening_both_stores() {
    let world = world();
    let (from, to) = (world.memory(), empty(&world));
    bring(&world, &from, &to, &latest(&[REF]));
    let counted = |inner: &Arc<dyn Prune>| Arc::new(Faulty::new(inner.clone(), Faults::default()));
    let (source, destination) = (counted(&from), counted(&to));
    bring(
        &world,
        &(source.clone() as _),
        &(destination.clone() as _),
        &latest(&[REF]),
    );
    let (opened, viewed) = (counted(&from), counted(&to));
    world.open(opened.clone()).unwrap().state().unwrap();
    world.open(viewed.clone()).unwrap().view().unwrap();
    assert_eq!(source.counts(), opened.counts());
    // One more listing of packs.
    let mut expected = viewed.counts();
    expected.requests += 1;
    assert_eq!(destination.counts(), expected);
}

#[test]
fn a_second_version_moves_only_what_is_new() {
    let mut world = World::new();
    world.portions = Portions::default();
    for (tree, number) in [("one", 1), ("two", 2)] {
        trees::version(&world.tree(tree), 7, number, 20_000_000);
    }
    world.prepare("one", REF);
    let to = empty(&world);
    bring(&world, &world.memory(), &to, &latest(&[REF]));
    let from = world.memory();
    let stored = world.put(from.clone(), "two", REF).unwrap().stored_bytes;
    let far = Arc::new(Faulty::new(to.clone(), Faults::default()));
    let report = bring(&world, &from, &(far.clone() as _), &latest(&[REF]));
    assert_eq!(outcomes(&report), [format!("{REF} 2 > 2 published")]);
    let most = stored + stored / 10;
    assert!(
        report.sent_bytes > 0 && report.sent_bytes <= most,
        "{} of {stored}",
        report.sent_bytes
    );
    // Two packs, a segment and an entry.
    assert_eq!(far.counts().mutations, 4);
    world.check(to.clone(), "two versions");
    assert_sound(&world, &to, "two versions");
}

#[test]
fn what_is_there_under_another_name_moves_metadata_only() {
    let mut world = World::new();
    fs::create_dir_all(world.tree("in")).unwrap();
    fs::create_dir_all(world.tree("deep/er")).unwrap();
    for number in 0..20 {
        let bytes = noise(number, 200_000);
        fs::write(world.tree("in").join(number.to_string()), &bytes).unwrap();
        fs::write(world.tree("deep/er").join(format!("{number}.bin")), bytes).unwrap();
    }
    world.prepare("in", REF);
    let to = empty(&world);
    bring(&world, &world.memory(), &to, &latest(&[REF]));
    world.prepare("deep", FAR);
    let report = bring(&world, &world.memory(), &to, &latest(&[FAR]));
    assert!(
        report.chunks > 0 && report.sent_bytes < 10_000,
        "{report:?}"
    );
    let store = world.open(to.clone()).unwrap();
    let mut kinds: Vec<_> = store
        .view()
        .unwrap()
        .index
        .packs()
        .map(|pack| pack.kind)
        .collect();
    kinds.sort();
    assert_eq!(kinds, [PackKind::Data, PackKind::Meta, PackKind::Meta]);
    world.check(to, "under another name");
}

#[test]
fn small_refs_share_packs_and_an_entry() {
    let mut world = World::new();
    world.portions = Portions::default();
    for number in 0..30 {
        let tree = format!("tree-{number}");
        fs::create_dir_all(world.tree(&tree)).unwrap();
        fs::write(world.tree(&tree).join("file"), text(number, 5_000)).unwrap();
        world.prepare(&tree, &format!("team/t/{number}"));
    }
    let (from, to) = (world.memory(), empty(&world));
    let report = bring(&world, &from, &to, &latest(&["team/t"]));
    assert_eq!(report.refs.len(), 30);
    assert_eq!(packs(&to), 2);
    assert_eq!(world.open(to.clone()).unwrap().state().unwrap().number, 1);
    assert_eq!(world.check(to, "small refs").len(), 30);
}

/// As many refs as one batch holds.
#[test]
fn a_thousand_refs_are_set_in_one_entry() {
    let mut world = World::new();
    fs::create_dir_all(world.tree("tree")).unwrap();
    fs::write(world.tree("tree").join("file"), text(1, 5_000)).unwrap();
    world.prepare("tree", "team/t/0");
    world.change(|store| {
        let mut state = store.state().unwrap();
        let (_, first) = state.version(&name("team/t/0"), None).unwrap();
        let set = |number| Change::SetRef {
            name: name(&format!("team/t/{number}")),
            version: 1,
            root: first.root,
            sides: first.sides.clone(),
            message: first.message.clone(),
            expires: None,
            origin: None,
            ends: Vec::new(),
            private: false,
            extra: Extra::new(),
        };
        let changes: Vec<Change> = (1..1000).map(set).collect();
        let done = store.commit(&mut state, &mut |_, _| Ok(changes.clone()));
        done.unwrap().unwrap();
    });
    let (from, to) = (world.memory(), empty(&world));
    let report = bring(&world, &from, &to, &latest(&["team/t"]));
    assert_eq!(report.refs.len(), 1000);
    let [there, here] = [&to, &from].map(|remote| {
        let store = world.open(remote.clone()).unwrap();
        store.state().unwrap()
    });
    assert_eq!(there.number, 1);
    let (there, here) = (there.refs.all().unwrap(), here.refs.all().unwrap());
    assert_eq!(there.len(), 1000);
    for (name, one) in &here {
        assert_eq!(
            there[name].versions[&1].root, one.versions[&1].root,
            "{name}"
        );
    }
}

#[test]
fn a_first_copy_reads_the_source_in_large_runs() {
    let mut world = World::new();
    fs::create_dir_all(world.tree("large/below")).unwrap();
    for number in 0..400 {
        let path = world.tree("large/below").join(number.to_string());
        fs::write(path, noise(number, 100_000)).unwrap();
    }
    world.prepare("large", REF);
    let from = Arc::new(Faulty::new(world.memory(), Faults::default()));
    let to = empty(&world);
    let report = bring(&world, &(from.clone() as _), &to, &latest(&[REF]));
    assert!(report.sent_bytes > 40_000_000);
    // 5 or 6 runs of data, a few of metadata, and opening the store.
    let requests = from.counts().requests;
    assert!(requests <= 20, "{requests}");
    world.check(to, "large");
}

/// The number of wanted chunks of a frame depends on how many the destination has.
#[test]
fn a_frame_goes_as_it_is_unless_most_of_it_is_there() {
    for (there, sent) in [(0..3, 20), (0..17, 3)] {
        let mut world = World::new();
        fs::create_dir_all(world.tree("all")).unwrap();
        fs::create_dir_all(world.tree("some")).unwrap();
        for number in 0..20 {
            let bytes = text(number, 9_000);
            if there.contains(&number) {
                fs::write(world.tree("some").join(number.to_string()), &bytes).unwrap();
            }
            fs::write(world.tree("all").join(number.to_string()), bytes).unwrap();
        }
        world.prepare("all", REF);
        let (from, to) = (world.memory(), empty(&world));
        world.put(to.clone(), "some", FAR).unwrap();
        let report = bring(&world, &from, &to, &latest(&[REF]));
        // The tree and its times are metadata.
        assert_eq!(report.chunks, sent + 2, "{there:?}");
        world.check(to.clone(), "frames");
        assert_sound(&world, &to, "frames");
    }
}
