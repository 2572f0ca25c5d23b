//! The protocol of the log as an explicit-state model: every interleaving of writers, collectors, deleters and a user,
//! for one chunk. Anyone may stop at any point: the model then never schedules it again.
//!
//! The invariant: the chunk of a live ref is in a pack that was added, is not condemned, and exists. Each mutant drops
//! one rule, and a test shows that this breaks the invariant. The rules and the code that keeps them:
//!
//! | rule (its mutant) | kept by |
//! |---|---|
//! | chunks relied on are still offered (`Validate`) | `prepare` of `store::log::commit`, given by `put` |
//! | own packs are not condemned (`OwnPacks`) | the same |
//! | a writer's entry is the next one (`WriterCreates`) | put-if-absent in `store::log::commit` |
//! | a collector's entry is the next one (`CollectorCreates`) | the same, and `prepare` given by `gc` |
//! | a plan that continues serves new refs, or ends (`CollectorServes`, `CollectorYields`) | `is_valid` of `gc::apply` |
//! | the entry comes before the delete (`DeleteAfter`) | `gc`, which deletes what the log condemned |
//! | orphans are condemned through the log (`Orphans`) | `gc`, which never unlinks an orphan directly |

mod claims;
mod deltas;
mod folding;
mod protocol;
mod rollback;

use deltas::Deltas;
use folding::Folding;
use protocol::{Protocol, Rule, SAFE};
use rollback::Rollback;
use stateright::{Checker, HasDiscoveries, Model};

const TWO_WRITERS: Protocol = Protocol {
    writers: 2,
    collectors: 1,
    cycles: 2,
    long: false,
    dropped: None,
};
const TWO_COLLECTORS: Protocol = Protocol {
    writers: 1,
    collectors: 2,
    cycles: 2,
    long: false,
    dropped: None,
};
/// Rules of long writers:
///
/// | rule (its mutant) | kept by |
/// |---|---|
/// | what the last commit adds was not condemned since the pass began, whatever was committed between (`SinceThePassBegan`) | `Written::condemned` of `store::publish` |
/// | a pack that is taken up was not condemned when the pass began (`KnownAtTheStart`) | `for_each_left` of `store::replicate` |
/// | what was committed on the way may be gone at the end (`KeptMayGo`) | `Relied`, which counts on it |
const LONG_WRITER: Protocol = Protocol {
    writers: 1,
    collectors: 1,
    cycles: 2,
    long: true,
    dropped: None,
};

/// Rules of folding:
///
/// | rule (its mutant) | kept by |
/// |---|---|
/// | a fold contains everything that was dropped (`Whole`) | `store::index::merge` |
/// | a fold is abandoned if something was condemned or dropped meanwhile (`Stands`) | `commit_added` of `store::session` |
/// | what a writer relies on may be offered by another segment now (`Validate`) | `is_sound` of the same |
/// | what a live segment names is not forgotten (`Unnamed`) | `forget` of `gc::delete` |
const TWO_FOLDERS: Folding = Folding {
    writers: 2,
    cycles: 2,
    dropped: None,
};

/// Rules of deltas:
///
/// | rule (its mutant) | kept by |
/// |---|---|
/// | the bases of what is marked are marked (`MarksBases`) | `Marker::reach` of `gc::mark` |
/// | the bases of own deltas are plain at the commit (`BaseStands`) | `Index::still_offered`, of what `rely_on_plain` marked |
/// | so are the bases of deltas that are relied on (`RelyOnBases`) | `Index::rely` |
/// | what new refs need can be decoded after the entry (`ServesBases`) | `Index::position`, which has none for a delta that does not stand |
/// | and is marked for later entries (`MarksNewBases`) | `After::newer` of `gc::mark` |
/// | of two places, a merge keeps the plain one (`KeepsPlain`) | `store::index::merge` |
/// | only a plain chunk is a base (`DepthOne`) | `Index::rely_on_plain` |
const OF_EACH_OTHER: Deltas = Deltas {
    wants: [1, 0],
    dropped: None,
};
const OF_ONE: Deltas = Deltas {
    wants: [1, 1],
    dropped: None,
};

/// Rules for a log that was set back to an earlier state:
///
/// | rule (its mutant) | kept by |
/// |---|---|
/// | a host remembers the length of the log (`Memory`), and its last entry (`MemoryOfIds`) | `Store::set_back` |
/// | a writer looks for evidence in segments that no entry names (`WriterLooks`) | `Store::state`, by `log::witness::of_segments` |
/// | a collector looks for evidence in all objects that no entry names (`CollectorLooks`) | `gc::look`, by `log::witness::of_all` |
/// | an entry names its predecessor (`Follows`) | `State::apply` |
const PUT_BACK: Rollback = Rollback { dropped: None };

/// Explores all states. Their number is fixed, so that a change of the model shows.
fn holds(protocol: Protocol, states: usize) {
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), states);
}

fn breaks_without(rule: Rule) {
    breaks(TWO_WRITERS, rule);
}

fn breaks(protocol: Protocol, rule: Rule) {
    let protocol = Protocol {
        dropped: Some(rule),
        ..protocol
    };
    let checker = protocol
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = checker.discovery(SAFE);
    assert!(
        found.is_some(),
        "without {rule:?} nothing is lost in {} states",
        checker.unique_state_count()
    );
}

#[test]
fn two_writers_and_a_collector_lose_nothing() {
    holds(TWO_WRITERS, 10_974);
}

#[test]
fn a_writer_and_two_collectors_lose_nothing() {
    holds(TWO_COLLECTORS, 1_484_770);
}

#[test]
fn a_long_writer_that_takes_up_what_was_left_loses_nothing() {
    holds(LONG_WRITER, 265_763);
}

#[test]
fn forgetting_what_a_pass_read_on_its_way_loses_a_chunk() {
    breaks(LONG_WRITER, Rule::SinceThePassBegan);
}

#[test]
fn taking_up_what_was_condemned_before_loses_a_chunk() {
    breaks(LONG_WRITER, Rule::KnownAtTheStart);
}

#[test]
fn counting_on_what_was_committed_on_the_way_loses_a_chunk() {
    breaks(LONG_WRITER, Rule::KeptMayGo);
}

#[test]
fn long_writers_need_every_other_rule_too() {
    for rule in [
        Rule::Validate,
        Rule::OwnPacks,
        Rule::WriterCreates,
        Rule::Orphans,
    ] {
        breaks(LONG_WRITER, rule);
    }
}

#[test]
fn without_validation_a_chunk_is_lost() {
    breaks_without(Rule::Validate);
}

#[test]
fn without_the_check_of_own_packs_a_chunk_is_lost() {
    breaks_without(Rule::OwnPacks);
}

#[test]
fn without_put_if_absent_of_writers_a_chunk_is_lost() {
    breaks_without(Rule::WriterCreates);
}

#[test]
fn without_put_if_absent_of_collectors_a_chunk_is_lost() {
    breaks_without(Rule::CollectorCreates);
}

#[test]
fn a_plan_that_moves_on_unseen_loses_a_chunk() {
    breaks_without(Rule::CollectorServes);
}

#[test]
fn a_plan_that_ignores_other_collectors_loses_a_chunk() {
    breaks(TWO_COLLECTORS, Rule::CollectorYields);
}

#[test]
fn deleting_before_the_entry_loses_a_chunk() {
    breaks_without(Rule::DeleteAfter);
}

#[test]
fn unlinking_orphans_directly_loses_a_chunk() {
    breaks_without(Rule::Orphans);
}

#[test]
fn two_writers_that_fold_beside_a_collector_lose_nothing() {
    let checker = TWO_FOLDERS.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), 916_013);
}

#[test]
fn folding_needs_each_of_its_rules() {
    let rules = [
        (folding::Rule::Whole, folding::SAFE),
        (folding::Rule::Stands, folding::THERE),
        (folding::Rule::Validate, folding::SAFE),
        (folding::Rule::Unnamed, folding::THERE),
    ];
    for (rule, broken) in rules {
        let protocol = Folding {
            dropped: Some(rule),
            ..TWO_FOLDERS
        };
        let failing = HasDiscoveries::AnyOf([broken].into());
        let checker = protocol.checker().finish_when(failing).spawn_bfs().join();
        let found = checker.discovery(broken);
        let states = checker.unique_state_count();
        assert!(found.is_some(), "{rule:?}: nothing in {states} states");
    }
}

#[test]
fn writers_of_deltas_beside_a_collector_lose_nothing() {
    for (protocol, states) in [(OF_EACH_OTHER, 374_878), (OF_ONE, 1_891_292)] {
        let checker = protocol.checker().threads(2).spawn_bfs().join();
        checker.assert_properties();
        assert_eq!(checker.unique_state_count(), states);
    }
}

#[test]
fn deltas_need_each_of_their_rules() {
    for (protocol, rule) in [
        (OF_EACH_OTHER, deltas::Rule::MarksBases),
        (OF_EACH_OTHER, deltas::Rule::BaseStands),
        (OF_ONE, deltas::Rule::RelyOnBases),
        (OF_EACH_OTHER, deltas::Rule::ServesBases),
        (OF_EACH_OTHER, deltas::Rule::MarksNewBases),
        (OF_ONE, deltas::Rule::KeepsPlain),
        (OF_EACH_OTHER, deltas::Rule::DepthOne),
    ] {
        let protocol = Deltas {
            dropped: Some(rule),
            ..protocol
        };
        let failing = HasDiscoveries::AnyFailures;
        let checker = protocol.checker().finish_when(failing).spawn_bfs().join();
        let found = checker.discovery(deltas::SAFE);
        let states = checker.unique_state_count();
        assert!(found.is_some(), "{rule:?}: nothing in {states} states");
    }
}

#[test]
fn a_log_that_is_put_back_is_left_alone_by_who_can_know() {
    let checker = PUT_BACK.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), 373_459);
}

#[test]
fn knowing_of_a_rollback_needs_each_of_its_rules() {
    for rule in [
        rollback::Rule::Memory,
        rollback::Rule::MemoryOfIds,
        rollback::Rule::WriterLooks,
        rollback::Rule::CollectorLooks,
        rollback::Rule::Follows,
    ] {
        let protocol = Rollback {
            dropped: Some(rule),
        };
        let failing = HasDiscoveries::AnyFailures;
        let checker = protocol.checker().finish_when(failing).spawn_bfs().join();
        let found = checker.discovery(rollback::SAFE);
        let states = checker.unique_state_count();
        assert!(found.is_some(), "{rule:?}: nothing in {states} states");
    }
}
