//! Claims one step at a time: who takes over, when, and what happens after a lost response.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::format::{CLAIMS_PREFIX, Sight};
use crate::remote::testing::faulty::{Faults, Faulty};
use crate::remote::{Objects, Prune, Read};
use crate::store::Host;

const KEY: &str = "seed project/demo/data";
const PATIENCE: Duration = Duration::from_secs(30);

fn at(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn store(remote: Arc<dyn Write>) -> Store {
    let host = Host {
        cache_dir: None,
        who: Who {
            host: "node-1".into(),
            ..Who::default()
        },
        memory_bytes: 1 << 20,
        threads: 1,
        stop: Arc::new(AtomicBool::new(false)),
    };
    Store::open_or_init(remote, host).unwrap()
}

fn mine(look: Look) -> Claim {
    match look {
        Look::Mine(claim) => claim,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn is_held(look: &Look) {
    assert!(
        matches!(look, Look::Held { who } if who.host == "node-1"),
        "{look:?}"
    );
}

fn two() -> (Store, Claims, Claims) {
    let store = store(Arc::new(Objects::memory()));
    let claims = || Claims::new(&store, KEY, PATIENCE).unwrap();
    let (one, other) = (claims(), claims());
    (store, one, other)
}

#[test]
fn one_makes_it_and_the_other_waits_as_long_as_it_beats() {
    let (_store, mut one, mut other) = two();
    let mut claim = mine(one.look(at(0)).unwrap());
    for secs in (0..100).step_by(20) {
        assert!(claim.beat().unwrap());
        is_held(&other.look(at(secs)).unwrap());
        is_held(&other.look(at(secs + 19)).unwrap());
    }
}

#[test]
fn one_that_is_silent_for_the_patience_is_replaced_and_learns_of_it() {
    let (_store, mut one, mut other) = two();
    let mut silent = mine(one.look(at(0)).unwrap());
    assert!(silent.beat().unwrap());
    // Nobody knows how long the owner was silent before the first look.
    is_held(&other.look(at(1000)).unwrap());
    is_held(&other.look(at(1029)).unwrap());
    let mut next = mine(other.look(at(1030)).unwrap());
    assert!(next.beat().unwrap());
    assert!(!silent.beat().unwrap(), "it was taken over");
    let mut third = Claims::new(&_store, KEY, PATIENCE).unwrap();
    is_held(&third.look(at(0)).unwrap());
    // Those that wait for the next owner do not see the beats of an owner that was replaced.
    silent.end(Ended::Done).unwrap();
    is_held(&third.look(at(1)).unwrap());
}

#[test]
fn who_ends_is_not_waited_for() {
    for how in [Ended::Done, Ended::Left] {
        let (_store, mut one, mut other) = two();
        let claim = mine(one.look(at(0)).unwrap());
        is_held(&other.look(at(0)).unwrap());
        claim.end(how).unwrap();
        assert_eq!(mine(other.look(at(0)).unwrap()).number, 2);
    }
}

#[test]
fn a_failure_is_told_to_those_who_waited_and_tried_again_by_those_who_come() {
    let (store, mut one, mut waiting) = two();
    let claim = mine(one.look(at(0)).unwrap());
    is_held(&waiting.look(at(0)).unwrap());
    claim.end(Ended::failed("exit code 3")).unwrap();
    let look = waiting.look(at(1)).unwrap();
    assert!(
        matches!(&look, Look::Failed { said, .. } if said == "exit code 3"),
        "{look:?}"
    );
    let mut late = Claims::new(&store, KEY, PATIENCE).unwrap();
    assert_eq!(mine(late.look(at(0)).unwrap()).number, 2);
}

/// Others may have tried again and failed since the last look.
#[test]
fn a_failure_of_a_later_claim_is_told_to_who_waited_for_an_earlier_one() {
    let (store, mut one, mut waiting) = two();
    let claim = mine(one.look(at(0)).unwrap());
    is_held(&waiting.look(at(0)).unwrap());
    claim.end(Ended::failed("exit code 3")).unwrap();
    let mut late = Claims::new(&store, KEY, PATIENCE).unwrap();
    let claim = mine(late.look(at(1)).unwrap());
    claim.end(Ended::failed("exit code 4")).unwrap();
    let look = waiting.look(at(2)).unwrap();
    assert!(
        matches!(&look, Look::Failed { said, .. } if said == "exit code 4"),
        "{look:?}"
    );
}

#[test]
fn of_two_who_take_over_at_once_one_does() {
    let (store, mut one, mut other) = two();
    drop(mine(one.look(at(0)).unwrap()));
    let mut third = Claims::new(&store, KEY, PATIENCE).unwrap();
    is_held(&other.look(at(0)).unwrap());
    is_held(&third.look(at(0)).unwrap());
    let mut taken = mine(other.look(at(30)).unwrap());
    is_held(&third.look(at(30)).unwrap());
    is_held(&third.look(at(59)).unwrap());
    assert!(taken.beat().unwrap());
    is_held(&third.look(at(61)).unwrap());
}

#[test]
fn an_owner_whose_answer_was_lost_knows_its_claim() {
    let remote = Arc::new(Faulty::new(Arc::new(Objects::memory()), Faults::default()));
    let store = store(remote.clone());
    let mut one = Claims::new(&store, KEY, PATIENCE).unwrap();
    remote.set(Faults {
        after: 1000,
        ..Faults::default()
    });
    one.look(at(0)).unwrap_err();
    remote.set(Faults::default());
    assert_eq!(mine(one.look(at(0)).unwrap()).number, 1);
}

#[test]
fn what_lies_there_and_says_nothing_is_waited_for_and_replaced() {
    let (store, mut one, mut other) = two();
    let id = ClaimId::of(KEY);
    for (part, text) in [
        (ClaimPart::Claim(7), "no claim"),
        (ClaimPart::Beat, "no beat"),
    ] {
        store
            .remote()
            .put(&claim_key(id, part), text.into())
            .unwrap();
    }
    let seen = Sight {
        claim: 9,
        beat: String::new(),
    };
    let seen = seen.encode().unwrap().into();
    store
        .remote()
        .put(&claim_key(id, ClaimPart::Seen), seen)
        .unwrap();
    store
        .remote()
        .put(&format!("{CLAIMS_PREFIX}/{id}/x"), Bytes::new())
        .unwrap();
    assert!(matches!(one.look(at(0)).unwrap(), Look::Held { .. }));
    assert!(matches!(other.look(at(20)).unwrap(), Look::Held { .. }));
    assert_eq!(mine(one.look(at(30)).unwrap()).number, 8);
    is_held(&other.look(at(50)).unwrap());
}

#[test]
fn one_whose_claim_was_taken_away_makes_it_twice_at_most() {
    let objects = Arc::new(Objects::memory());
    let store = store(objects.clone());
    let mut claim = mine(
        Claims::new(&store, KEY, PATIENCE)
            .unwrap()
            .look(at(0))
            .unwrap(),
    );
    assert!(claim.beat().unwrap());
    let listed = objects.list(CLAIMS_PREFIX).unwrap();
    let keys: Vec<String> = listed.into_iter().map(|info| info.key).collect();
    assert_eq!(keys.len(), 2);
    objects.delete(&keys).unwrap();
    assert!(!claim.beat().unwrap());
    assert!(objects.list(CLAIMS_PREFIX).unwrap().is_empty());
}

#[test]
fn beats_go_on_beside_the_work_and_end_with_it() {
    let (_store, mut one, mut other) = two();
    let beating = mine(one.look(at(0)).unwrap()).beating();
    is_held(&other.look(at(0)).unwrap());
    beating.end(Ended::Left).unwrap();
    let beating = mine(other.look(at(0)).unwrap()).beating();
    assert!(!beating.is_lost());
    drop(beating);
    is_held(&one.look(at(0)).unwrap());
}
