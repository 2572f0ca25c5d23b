//! Versions that the destination already has, but not completely: they are noticed, and sent again or named.

use std::sync::Arc;

use store::format::{At, PACKS_PREFIX, Pattern, Policy, Rules, Scope};
use store::remote::Prune;
use store::replicate::{RefStatus, Selection};
use store::{ErrorKind, ReplicateRequest};

use crate::replicate::{FAR, REF, all, assert_sound, bring, empty, latest, outcomes, run, world};
use crate::stores::{name, noise};
use crate::world::World;

fn keys(remote: &Arc<dyn Prune>) -> Vec<String> {
    let listed = remote.list(PACKS_PREFIX).unwrap();
    listed.into_iter().map(|info| info.key).collect()
}

fn stores(world: &World, is_far: [bool; 2]) -> (Arc<dyn Prune>, Arc<dyn Prune>) {
    let from = match is_far[0] {
        true => world.memory(),
        false => world.directory("from"),
    };
    let to: Arc<dyn Prune> = match is_far[1] {
        true => empty(world),
        false => {
            let path = world.tree("to");
            let remote = Arc::new(store::remote::Objects::directory(&path).unwrap());
            store::Store::init(remote.clone(), world.host()).unwrap();
            remote
        }
    };
    (from, to)
}

/// A request for one version of the ref.
fn version(number: u64) -> ReplicateRequest {
    ReplicateRequest::new(vec![Selection::Version(name(REF), At::Number(number))])
}

#[test]
fn a_pack_that_is_gone_at_the_destination_is_noticed_and_healed() {
    for is_far in [[true, true], [true, false], [false, true], [false, false]] {
        let world = world();
        let (from, to) = stores(&world, is_far);
        bring(&world, &from, &to, &all(&[REF]));
        let is_last = |at: usize| at + 1 == keys(&to).len();
        let mut at = 0;
        loop {
            let key = keys(&to)[at].clone();
            to.delete(&[key]).unwrap();
            let mut dry = all(&[REF]);
            dry.dry_run = true;
            let told = outcomes(&bring(&world, &from, &to, &dry));
            assert!(told.iter().any(|one| one.ends_with("healed")), "{told:?}");
            let report = bring(&world, &from, &to, &all(&[REF]));
            let done = outcomes(&report);
            assert_eq!(done, told, "{is_far:?}");
            assert!(report.chunks > 0);
            assert_eq!(assert_sound(&world, &to, "healed").len(), 2);
            let again = bring(&world, &from, &to, &all(&[REF]));
            assert_eq!(outcomes(&again), [format!("{REF} 2 > 2 unchanged")]);
            assert_eq!(again.chunks, 0);
            at += 1;
            if is_last(at) || at > 3 {
                break;
            }
        }
    }
}

#[test]
fn what_is_damaged_at_the_destination_is_healed_when_asked_to_verify() {
    let world = world();
    let (from, to) = stores(&world, [true, true]);
    bring(&world, &from, &to, &latest(&[REF]));
    for key in keys(&to) {
        let mut bytes = to.get(&key).unwrap().to_vec();
        bytes[100] ^= 0x10;
        to.put(&key, bytes.into()).unwrap();
    }
    let mut request = latest(&[REF]);
    let report = bring(&world, &from, &to, &request);
    assert_eq!(outcomes(&report), [format!("{REF} 2 > 1 unchanged")]);
    request.verify = true;
    let report = bring(&world, &from, &to, &request);
    assert_eq!(outcomes(&report), [format!("{REF} 2 > 1 healed")]);
    assert_eq!(assert_sound(&world, &to, "healed"), [format!("{REF}@1")]);
    assert_eq!(
        outcomes(&bring(&world, &from, &to, &request)),
        [format!("{REF} 2 > 1 unchanged")]
    );
}

#[test]
fn what_a_repair_gave_up_is_sent_again() {
    let world = world();
    let (from, to) = stores(&world, [false, true]);
    bring(&world, &from, &to, &latest(&[REF]));
    to.delete(&[keys(&to)[0].clone()]).unwrap();
    let store = world.open(to.clone()).unwrap();
    store::check::repair(&store, Default::default(), &store::Unwatched).unwrap();
    let report = bring(&world, &from, &to, &latest(&[REF]));
    assert_eq!(outcomes(&report), [format!("{REF} 2 > 1 healed")]);
    assert_sound(&world, &to, "healed");
}

#[test]
fn what_neither_side_has_is_corrupt_by_name() {
    let world = world();
    let (from, to) = stores(&world, [false, true]);
    bring(&world, &from, &to, &latest(&[REF]));
    for remote in [&from, &to] {
        for key in keys(remote) {
            remote.delete(&[key]).unwrap();
        }
    }
    let report = run(&world, &from, &to, &latest(&[REF])).unwrap();
    let RefStatus::Failed(error) = &report.refs[0].status else {
        panic!("{report:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(
        error.to_string().starts_with(&format!(
            "{REF}@2: is damaged at the destination, as version 1"
        )),
        "{error:?}"
    );
}

/// The source has lost the version's data, but the destination has all of it.
#[test]
fn what_the_source_has_lost_and_the_destination_has_is_unchanged() {
    let world = world();
    let (from, to) = stores(&world, [false, true]);
    bring(&world, &from, &to, &latest(&[REF]));
    for key in keys(&from) {
        from.delete(&[key]).unwrap();
    }
    let report = run(&world, &from, &to, &latest(&[REF])).unwrap();
    assert_eq!(outcomes(&report), [format!("{REF} 2 > 1 unchanged")]);
    assert_sound(&world, &to, "the only one");
}

/// A truncated pack is good up to its end: a version that needs no more of it arrives.
#[test]
fn what_lies_before_the_end_of_a_pack_that_was_cut_arrives() {
    let mut world = World::new();
    let bytes = noise(1, 2_000_000);
    support::trees::write(&world.tree("all/file"), &bytes);
    support::trees::write(&world.tree("half/file"), &bytes[..800_000]);
    world.prepare("all", REF);
    world.prepare("half", FAR);
    let (from, to) = stores(&world, [false, true]);
    let index = world.open(from.clone()).unwrap().view().unwrap().index;
    let largest = index.packs().max_by_key(|pack| pack.len).unwrap();
    let key = store::format::pack_key(largest.id);
    let bytes = from.get(&key).unwrap();
    from.put(&key, bytes.slice(..1_500_000)).unwrap();
    let report = run(&world, &from, &to, &latest(&["project/a", "team/b"])).unwrap();
    assert!(report.stopped.is_none(), "{report:?}");
    let mut told = outcomes(&report);
    told.sort();
    let expected = [
        format!("{REF} 1 > - Corrupt"),
        format!("{FAR} 1 > 1 published"),
    ];
    assert_eq!(told, expected);
    assert_eq!(world.check(to, "the first half"), [format!("{FAR}@1")]);
}

#[test]
fn a_new_version_does_not_rely_on_a_pack_that_is_gone() {
    let world = world();
    let (from, to) = stores(&world, [false, true]);
    let one = version(1);
    bring(&world, &from, &to, &one);
    for key in keys(&to) {
        to.delete(&[key]).unwrap();
    }
    let report = bring(&world, &from, &to, &latest(&[REF]));
    assert_eq!(outcomes(&report), [format!("{REF} 2 > 2 published")]);
    let store = world.open(to.clone()).unwrap();
    world.get(&store, &format!("{REF}@2")).unwrap();
}

/// An older version does not become the newest at the destination, unless it is requested; then the report says so.
#[test]
fn an_older_version_does_not_become_the_newest_unasked() {
    let world = world();
    let (from, to) = stores(&world, [false, true]);
    bring(&world, &from, &to, &latest(&[REF]));
    let report = bring(&world, &from, &to, &all(&[REF]));
    assert_eq!(outcomes(&report), [format!("{REF} 2 > 1 unchanged")]);
    assert!(
        report.notes[0].text.starts_with(&format!(
            "{REF}@1 is not copied: a later version is already there, as version 1"
        )),
        "{:?}",
        report.notes
    );
    // If a newer version is transferred as well, that one becomes the newest.
    world.put(from.clone(), "far", REF).unwrap();
    let report = bring(&world, &from, &to, &all(&[REF]));
    let published = [
        format!("{REF} 1 > 2 published"),
        format!("{REF} 3 > 3 published"),
    ];
    assert_eq!(outcomes(&report), published);
    let mut there = world.open(to.clone()).unwrap();
    store::refs::drop_versions(&there, &name(REF), Some(2)).unwrap();
    let report = bring(&world, &from, &to, &version(1));
    assert_eq!(outcomes(&report), [format!("{REF} 1 > 4 published")]);
    assert!(
        report.notes[0]
            .text
            .starts_with(&format!("{REF}@1 becomes the newest there")),
        "{:?}",
        report.notes
    );
    there = world.open(to).unwrap();
    assert_eq!(
        there.state().unwrap().refs.all().unwrap()[&name(REF)].last,
        4
    );
}

#[test]
fn a_namespace_over_its_quota_does_not_hold_the_others_back() {
    let world = world();
    let (from, to) = stores(&world, [false, true]);
    let there = world.open(to.clone()).unwrap();
    store::policy::set(&there, |_| {
        Ok(Policy {
            keep: vec![Scope {
                pattern: Pattern::new("team/b"),
                rules: Rules::default(),
                quota_bytes: Some(100),
                extra: store::format::Extra::new(),
            }],
            bytes_max: None,
            extra: store::format::Extra::new(),
        })
    })
    .unwrap();
    let report = run(&world, &from, &to, &latest(&["project/a", "team/b"])).unwrap();
    assert!(report.stopped.is_none(), "{report:?}");
    let told = outcomes(&report);
    assert_eq!(
        told.iter().filter(|one| one.ends_with("published")).count(),
        2
    );
    assert!(told.contains(&format!("{FAR} 1 > - Denied")), "{told:?}");
    let found = assert_sound(&world, &to, "after a refusal");
    assert_eq!(found.len(), 2, "{found:?}");
}
