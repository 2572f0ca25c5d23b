//! Claims as an explicit-state model: several workers that want the same thing, a collector that deletes claims, and
//! deaths.
//!
//! No step depends on a clock: a worker that saw no new beat may take over, whether the owner is dead, stopped or only
//! slow. Safety does not depend on claims, so the mutant that overwrites a claim (`Creates`) loses nothing either.
//!
//! | what holds (the mutant that breaks it) | kept by |
//! |---|---|
//! | one version is published, whoever makes it (`Publishes`) | the precondition of `store::put`: the ref does not exist |
//! | a dead owner is replaced (`TakesOver`) | `Claims::look` |
//! | (none: `Creates` breaks nothing) | put-if-absent of claims saves work |

use stateright::{Checker, HasDiscoveries, Model, Property};

const ONCE: &str = "one version";
const MADE: &str = "it is made";
const TWICE: &str = "two make it at once";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Publishes,
    TakesOver,
    Creates,
}

#[derive(Clone, Copy, Debug)]
struct Claims {
    workers: usize,
    deaths: u8,
    collections: u8,
    dropped: Option<Rule>,
}

/// A beat: its owner, its number, and whether the owner has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Beat {
    owner: usize,
    count: u8,
    ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// The newest claim and its owner.
    newest: Option<(u8, usize)>,
    beat: Option<Beat>,
    versions: u8,
    workers: Vec<Worker>,
    deaths: u8,
    collections: u8,
}

/// What a worker sees when it looks.
type Sight = (Option<(u8, usize)>, Option<Beat>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Waiting { seen: Option<Sight> },
    Taking { number: u8 },
    Making { number: u8, beats: u8 },
    Made { number: u8 },
    Done,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Look(usize),
    Create(usize),
    Beat(usize),
    Publish(usize),
    End(usize),
    Dies(usize),
    Collect,
}

impl World {
    fn look(&self, me: usize, seen: Option<Sight>, rules: &Claims) -> Worker {
        if self.versions > 0 {
            return Worker::Done;
        }
        let now = (self.newest, self.beat);
        let Some((number, owner)) = self.newest else {
            return Worker::Taking { number: 1 };
        };
        let has_ended = self
            .beat
            .is_some_and(|beat| beat.owner == owner && beat.ended);
        let stands_still = seen == Some(now) && rules.dropped != Some(Rule::TakesOver);
        match has_ended || stands_still || owner == me {
            true => Worker::Taking { number: number + 1 },
            false => Worker::Waiting { seen: Some(now) },
        }
    }

    fn is_newest(&self, me: usize, number: u8) -> bool {
        self.newest == Some((number, me))
    }

    fn show(&mut self, me: usize, number: u8, count: u8, ended: bool) {
        if self.is_newest(me, number) {
            self.beat = Some(Beat {
                owner: me,
                count,
                ended,
            });
        }
    }
}

impl Model for Claims {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            newest: None,
            beat: None,
            versions: 0,
            workers: vec![Worker::Waiting { seen: None }; self.workers],
            deaths: self.deaths,
            collections: self.collections,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for (me, worker) in world.workers.iter().enumerate() {
            match worker {
                Worker::Waiting { .. } => steps.push(Step::Look(me)),
                Worker::Taking { .. } => steps.push(Step::Create(me)),
                Worker::Making { beats, .. } => {
                    steps.push(Step::Publish(me));
                    if *beats == 0 {
                        steps.push(Step::Beat(me));
                    }
                }
                Worker::Made { .. } => steps.push(Step::End(me)),
                Worker::Done | Worker::Dead => continue,
            }
            if world.deaths > 0 {
                steps.push(Step::Dies(me));
            }
        }
        if world.collections > 0 && world.newest.is_some() {
            steps.push(Step::Collect);
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a step names a worker that there is"
    )]
    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        match step {
            Step::Collect => {
                world.collections -= 1;
                (world.newest, world.beat) = (None, None);
            }
            Step::Dies(me) => {
                world.deaths -= 1;
                world.workers[me] = Worker::Dead;
            }
            Step::Look(me)
            | Step::Create(me)
            | Step::Beat(me)
            | Step::Publish(me)
            | Step::End(me) => {
                world.workers[me] = match world.workers[me] {
                    Worker::Waiting { seen } => world.look(me, seen, self),
                    Worker::Taking { number } => {
                        let is_free = world.newest.is_none_or(|(newest, _)| newest < number);
                        if is_free || self.dropped == Some(Rule::Creates) {
                            world.newest = Some((number, me));
                            // If the thing was made meanwhile, it is not made again.
                            match world.versions {
                                0 => Worker::Making { number, beats: 0 },
                                _ => Worker::Made { number },
                            }
                        } else {
                            Worker::Waiting { seen: None }
                        }
                    }
                    Worker::Making { number, .. } if step == Step::Beat(me) => {
                        world.show(me, number, 1, false);
                        Worker::Making { number, beats: 1 }
                    }
                    Worker::Making { number, .. } => {
                        if world.versions == 0 || self.dropped == Some(Rule::Publishes) {
                            world.versions += 1;
                        }
                        Worker::Made { number }
                    }
                    Worker::Made { number } => {
                        world.show(me, number, 2, true);
                        Worker::Done
                    }
                    ended => ended,
                };
            }
        }
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(ONCE, |_, world| world.versions <= 1),
            Property::<Self>::eventually(MADE, |_, world| world.versions > 0),
            Property::<Self>::sometimes(TWICE, |_, world| {
                let workers = world.workers.iter();
                workers
                    .filter(|worker| matches!(worker, Worker::Making { .. }))
                    .count()
                    > 1
            }),
        ]
    }
}

const THREE: Claims = Claims {
    workers: 3,
    deaths: 2,
    collections: 1,
    dropped: None,
};

#[test]
fn three_seeders_publish_once_whoever_dies_and_whatever_a_collector_takes() {
    let checker = THREE.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), 16644);
}

#[test]
fn put_if_absent_of_claims_saves_work_and_nothing_else() {
    let model = Claims {
        dropped: Some(Rule::Creates),
        ..THREE
    };
    model
        .checker()
        .threads(2)
        .spawn_bfs()
        .join()
        .assert_properties();
}

fn breaks(rule: Rule, what: &'static str) {
    let model = Claims {
        dropped: Some(rule),
        ..THREE
    };
    let checker = model
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    assert!(checker.discovery(what).is_some(), "{rule:?} breaks nothing");
}

#[test]
fn without_the_precondition_two_versions_are_published() {
    breaks(Rule::Publishes, ONCE);
}

#[test]
fn without_taking_over_the_death_of_a_seeder_ends_it_all() {
    breaks(Rule::TakesOver, MADE);
}
