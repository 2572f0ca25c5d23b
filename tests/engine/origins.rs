//! The origins of versions: what a copy takes along, that nothing is published twice, and that a replaced source drops
//! nothing.

use std::sync::Arc;

use store::format::State;
use store::remote::Prune;
use store::replicate::{Delete, RefStatus};
use store::{Error, ErrorKind, Remedy, ReplicateReport};
use support::trees;

use crate::replicate::{FAR, REF, all, bring, empty, latest, outcomes, run};
use crate::stores::name;
use crate::world::World;

const SURPLUS: Delete = Delete::Surplus { last_source: None };

/// The trees `one` to `four`, of one file each.
fn world() -> World {
    let world = World::new();
    for tree in ["one", "two", "three", "four"] {
        trees::write(&world.tree(tree).join("file"), tree.as_bytes());
    }
    world
}

fn state(world: &World, remote: &Arc<dyn Prune>) -> State {
    world.open(remote.clone()).unwrap().state().unwrap()
}

fn id(world: &World, remote: &Arc<dyn Prune>) -> store::StoreId {
    world.open(remote.clone()).unwrap().format().id
}

/// The error of a run in which one ref failed.
fn failure(report: &ReplicateReport) -> &Error {
    match report.refs.as_slice() {
        [one] => match &one.status {
            RefStatus::Failed(error) => error,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn time_author_and_number_of_the_first_put_go_along_with_every_copy() {
    let world = world();
    let [first, second, third] = [(); 3].map(|()| empty(&world));
    world.put(first.clone(), "one", REF).unwrap();
    world.put(first.clone(), "two", REF).unwrap();
    bring(&world, &first, &second, &latest(&[REF]));
    bring(&world, &second, &third, &latest(&[REF]));
    let here = state(&world, &first);
    let (_, put) = here.version(&name(REF), Some(2)).unwrap();
    assert!(put.origin.is_none());
    for (at, via) in [(&second, None), (&third, Some(id(&world, &second)))] {
        let there = state(&world, at);
        let (number, copy) = there.version(&name(REF), None).unwrap();
        let origin = copy.origin.as_deref().unwrap();
        assert_eq!(number, 1);
        assert_eq!(copy.message, put.message);
        assert_eq!((origin.store, origin.version), (id(&world, &first), 2));
        assert_eq!((&origin.name, origin.time), (&name(REF), put.time));
        assert_eq!((&origin.who, origin.via), (&put.who, via));
    }
}

#[test]
fn two_sources_by_turns_are_told_of_each_other_and_make_no_version_each_time() {
    let world = world();
    let [one, other, there] = [(); 3].map(|()| empty(&world));
    world.put(one.clone(), "one", REF).unwrap();
    world.put(other.clone(), "two", REF).unwrap();
    bring(&world, &one, &there, &latest(&[REF]));
    bring(&world, &other, &there, &latest(&[REF]));
    for _ in 0..3 {
        let report = run(&world, &one, &there, &latest(&[REF])).unwrap();
        let error = failure(&report);
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let expected = format!(
            "{REF}@1: it was copied before as version 1, and version 2, which does not come from this source, was put after it"
        );
        assert_eq!(error.to_string(), expected);
        let report = bring(&world, &other, &there, &latest(&[REF]));
        assert_eq!(outcomes(&report), [format!("{REF} 1 > 2 unchanged")]);
    }
    // A version that is put again at the source is transferred, although its bytes were there before.
    world.put(one.clone(), "three", REF).unwrap();
    world.put(one.clone(), "one", REF).unwrap();
    let report = bring(&world, &one, &there, &latest(&[REF]));
    assert_eq!(outcomes(&report), [format!("{REF} 3 > 3 published")]);
}

#[test]
fn a_source_that_goes_back_to_an_older_version_publishes_it_only_once() {
    let world = world();
    let [from, to] = [(); 2].map(|()| empty(&world));
    for tree in ["one", "two"] {
        world.put(from.clone(), tree, REF).unwrap();
        bring(&world, &from, &to, &latest(&[REF]));
    }
    let here = world.open(from.clone()).unwrap();
    store::refs::drop_versions(&here, &name(REF), Some(2)).unwrap();
    let report = bring(&world, &from, &to, &latest(&[REF]));
    assert_eq!(outcomes(&report), [format!("{REF} 1 > 1 unchanged")]);
    let [note] = report.notes.as_slice() else {
        panic!("{:?}", report.notes);
    };
    assert!(
        note.text
            .contains("version 2 there is later and stays the newest"),
        "{note}"
    );
    assert_eq!(note.remedy, Some(Remedy::DropThere));
    // With delete, the later version goes, so that all is as at the source.
    let mut request = latest(&[REF]);
    request.delete = SURPLUS;
    let report = bring(&world, &from, &to, &request);
    assert_eq!(report.dropped, [(name(REF), 2)]);
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

#[test]
fn what_comes_home_is_not_published_over_later_work() {
    let world = world();
    let [home, away] = [(); 2].map(|()| empty(&world));
    world.put(home.clone(), "one", REF).unwrap();
    bring(&world, &home, &away, &latest(&[REF]));
    world.put(home.clone(), "two", REF).unwrap();
    let report = bring(&world, &away, &home, &latest(&[REF]));
    assert_eq!(outcomes(&report), [format!("{REF} 1 > 1 unchanged")]);
    let report = bring(&world, &home, &away, &latest(&[REF]));
    assert_eq!(outcomes(&report), [format!("{REF} 2 > 2 published")]);
}

#[test]
fn a_store_that_took_the_place_of_the_source_drops_nothing() {
    let world = world();
    let [from, to, other] = [(); 3].map(|()| empty(&world));
    for (tree, target) in [("one", REF), ("two", "project/a/good"), ("three", FAR)] {
        world.put(from.clone(), tree, target).unwrap();
    }
    bring(&world, &from, &to, &all(&["project/a", "team/b"]));
    // A new store with other work, which must not replace the old store's.
    world.put(other.clone(), "four", "project/a/new").unwrap();
    world.put(other.clone(), "two", "project/a/good").unwrap();
    let mut request = all(&["project/a"]);
    request.delete = SURPLUS;
    for dry_run in [true, false] {
        request.dry_run = dry_run;
        let error = run(&world, &other, &to, &request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(
            error
                .to_string()
                .contains("came from another store: project/a/data@1"),
            "{error}"
        );
        assert_eq!(error.remedy(), Some(&Remedy::DeleteAll));
    }
    assert_eq!(world.check(to.clone(), "refused").len(), 3);
    request.delete = Delete::All;
    let report = bring(&world, &other, &to, &request);
    assert_eq!(report.dropped, [(name(REF), 1)]);
}

#[test]
fn a_source_that_lost_most_of_a_namespace_drops_nothing() {
    let world = world();
    let [from, to] = [(); 2].map(|()| empty(&world));
    let refs = ["project/a/x", "project/a/y", "project/a/z"];
    for (tree, target) in ["one", "two", "three"].into_iter().zip(refs) {
        world.put(from.clone(), tree, target).unwrap();
    }
    bring(&world, &from, &to, &all(&["project/a"]));
    let here = world.open(from.clone()).unwrap();
    for gone in &refs[1..] {
        store::refs::drop_versions(&here, &name(gone), None).unwrap();
    }
    let mut request = all(&["project/a"]);
    request.delete = SURPLUS;
    let error = run(&world, &from, &to, &request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(
        error
            .to_string()
            .contains("2 of the 3 versions that project/a has there"),
        "{error}"
    );
    request.delete = Delete::All;
    assert_eq!(bring(&world, &from, &to, &request).dropped.len(), 2);
}
