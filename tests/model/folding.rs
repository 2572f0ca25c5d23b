//! Folding as a model of its own: it distinguishes segments from packs, and writers drop segments, too.
//!
//! There is one chunk, which every pack holds. At the start there are packs 0 and 1, each in its own segment, and a ref
//! to the chunk, which the user may drop. Each writer sets a ref, and folds all segments that are live when it looks. A
//! collector repacks, merges, condemns what no ref needs and drops the segments; anyone may delete and forget.

use stateright::{Model, Property};

pub(crate) const SAFE: &str = "a live ref has its chunk";
/// The invariant: a segment must not bring back packs that were condemned and forgotten.
pub(crate) const THERE: &str = "every pack that is offered exists";
const FOLDED: &str = "all are done, a segment was folded, a pack was deleted, and a ref lives";
const PACKS_MAX: u8 = 7;

/// A set of packs or of segments, one bit each.
type Set = u16;

/// A rule that a mutant drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A fold contains everything that the dropped segments offer.
    Whole,
    /// A fold is abandoned if another entry condemned or dropped something meanwhile.
    Stands,
    /// What a writer relies on is still offered at its commit.
    Validate,
    /// A pack that a live segment names is not forgotten.
    Unnamed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Folding {
    pub(crate) writers: usize,
    pub(crate) cycles: u8,
    pub(crate) dropped: Option<Rule>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    /// The segment that becomes live.
    adds: Option<u8>,
    drops: Set,
    /// Whether the added segment offers what the dropped ones did.
    is_fold: bool,
    condemns: Set,
    forgets: Set,
    sets: u8,
    unsets: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    log: Vec<Entry>,
    /// The packs that each segment names.
    segments: Vec<Set>,
    objects: Set,
    next: u8,
    writers: Vec<Writer>,
    collector: Collector,
    user_done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Writer {
    Idle,
    /// Has read `base` entries, and relies on offered packs or has a pack of its own. It folds at most once.
    Staged {
        base: usize,
        own: Option<u8>,
        may_fold: bool,
    },
    /// Has uploaded a segment that contains those of `folded`.
    Uploaded {
        base: usize,
        own: Option<u8>,
        packs: Set,
        folded: Set,
    },
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Collector {
    Idle {
        cycles: u8,
    },
    Planned {
        cycles: u8,
        base: usize,
        /// The packs of the segment that the plan adds.
        packs: Set,
        entry: Entry,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    UserDrops,
    Load(usize),
    Fold(usize),
    Plain(usize),
    Commit(usize),
    CondemnAll,
    Repack,
    Thin,
    Merge,
    CommitPlan,
    Delete(u8),
    Forget(u8),
}

/// The state after a log.
#[derive(Clone, Copy, Debug, Default)]
struct Now {
    live: Set,
    condemned: Set,
    refs: u8,
}

impl Now {
    fn of(log: &[Entry]) -> Self {
        log.iter().fold(Self::default(), |now, entry| Self {
            live: (now.live | entry.adds.map_or(0, bit)) & !entry.drops,
            condemned: (now.condemned | entry.condemns) & !entry.forgets,
            refs: (now.refs | entry.sets) & !entry.unsets,
        })
    }

    fn named(&self, segments: &[Set]) -> Set {
        let live = (0..)
            .zip(segments)
            .filter(|(at, _)| self.live & bit(*at) != 0);
        live.fold(0, |all, (_, packs)| all | packs)
    }

    fn offered(&self, segments: &[Set]) -> Set {
        self.named(segments) & !self.condemned
    }
}

impl World {
    fn now(&self) -> Now {
        Now::of(&self.log)
    }

    fn offered(&self) -> Set {
        self.now().offered(&self.segments)
    }

    fn upload(&mut self) -> Option<u8> {
        let pack = self.next;
        self.next += 1;
        self.objects |= bit(pack);
        (pack < PACKS_MAX).then_some(pack)
    }

    fn segment(&mut self, packs: Set) -> Option<u8> {
        self.segments.push(packs);
        u8::try_from(self.segments.len() - 1)
            .ok()
            .filter(|at| *at < 16)
    }

    fn has_folded(&self) -> bool {
        let done = self.writers.iter().all(|writer| *writer == Writer::Done);
        let folds = self
            .log
            .iter()
            .any(|entry| entry.is_fold && entry.sets != 0);
        let condemned = self.log.iter().fold(0, |all, entry| all | entry.condemns);
        done && folds && self.now().refs != 0 && condemned & !self.objects != 0
    }
}

impl Model for Folding {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let first = Entry {
            adds: Some(0),
            sets: 1,
            ..Entry::default()
        };
        let second = Entry {
            adds: Some(1),
            ..Entry::default()
        };
        vec![World {
            log: vec![first, second],
            segments: vec![bit(0), bit(1)],
            objects: bit(0) | bit(1),
            next: 2,
            writers: vec![Writer::Idle; self.writers],
            collector: Collector::Idle { cycles: 0 },
            user_done: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        steps.push(Step::UserDrops);
        for at in 0..self.writers {
            steps.extend([
                Step::Load(at),
                Step::Fold(at),
                Step::Plain(at),
                Step::Commit(at),
            ]);
        }
        steps.extend([
            Step::CondemnAll,
            Step::Repack,
            Step::Thin,
            Step::Merge,
            Step::CommitPlan,
        ]);
        for pack in 0..world.next {
            steps.extend([Step::Delete(pack), Step::Forget(pack)]);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::UserDrops if !world.user_done => {
                next.user_done = true;
                next.log.push(Entry {
                    unsets: 1,
                    ..Entry::default()
                });
            }
            Step::Delete(pack) if world.now().condemned & world.objects & bit(pack) != 0 => {
                next.objects &= !bit(pack);
            }
            Step::Forget(pack) => self.forget(&mut next, pack)?,
            Step::Load(at) | Step::Fold(at) | Step::Plain(at) | Step::Commit(at) => {
                let writer = self.write(&mut next, step, *world.writers.get(at)?, at)?;
                *next.writers.get_mut(at)? = writer;
            }
            Step::CondemnAll | Step::Repack | Step::Thin | Step::Merge | Step::CommitPlan => {
                next.collector = match world.collector {
                    Collector::Idle { cycles } => self.plan(&mut next, step, cycles)?,
                    Collector::Planned {
                        cycles,
                        base,
                        packs,
                        entry,
                    } if step == Step::CommitPlan => {
                        apply(&mut next, base, packs, entry)?;
                        Collector::Idle { cycles: cycles + 1 }
                    }
                    Collector::Planned { .. } => return None,
                };
            }
            _ => return None,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAFE, |_, world: &World| {
                world.now().refs == 0 || world.offered() & world.objects != 0
            }),
            Property::always(THERE, |_, world: &World| {
                world.offered() & !world.objects == 0
            }),
            Property::sometimes(FOLDED, |_, world: &World| world.has_folded()),
        ]
    }
}

impl Folding {
    fn has(&self, rule: Rule) -> bool {
        self.dropped != Some(rule)
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each step of a writer")]
    fn write(&self, world: &mut World, step: Step, writer: Writer, at: usize) -> Option<Writer> {
        let len = world.log.len();
        match (step, writer) {
            (Step::Load(_), Writer::Idle) => {
                let own = match world.offered() {
                    0 => Some(world.upload()?),
                    _ => None,
                };
                Some(Writer::Staged {
                    base: len,
                    own,
                    may_fold: true,
                })
            }
            (
                Step::Fold(_),
                Writer::Staged {
                    base,
                    own,
                    may_fold: true,
                },
            ) => {
                let known = Now::of(world.log.get(..base)?);
                let taken = match self.has(Rule::Whole) {
                    true => known.offered(&world.segments),
                    false => 0,
                };
                (known.live != 0).then_some(Writer::Uploaded {
                    base,
                    own,
                    packs: own.map_or(0, bit) | taken,
                    folded: known.live,
                })
            }
            (Step::Plain(_), Writer::Staged { base, own, .. }) => Some(Writer::Uploaded {
                base,
                own,
                packs: own.map_or(0, bit),
                folded: 0,
            }),
            (
                Step::Commit(_),
                Writer::Uploaded {
                    base,
                    own,
                    packs,
                    folded,
                },
            ) => {
                let news = world.log.get(base..)?;
                let taken = news.iter().fold(0, |all, entry| all | entry.condemns);
                let is_moved = taken != 0 || news.iter().any(|entry| entry.drops != 0);
                if folded != 0 && is_moved && self.has(Rule::Stands) {
                    return Some(Writer::Staged {
                        base,
                        own,
                        may_fold: false,
                    });
                }
                let lost_own = own.is_some_and(|own| taken & bit(own) != 0);
                let lost = own.is_none() && world.offered() == 0 && self.has(Rule::Validate);
                if lost_own || lost {
                    return Some(Writer::Staged {
                        base: len,
                        own: Some(world.upload()?),
                        may_fold: false,
                    });
                }
                let adds = match packs {
                    0 => None,
                    _ => Some(world.segment(packs)?),
                };
                world.log.push(Entry {
                    adds,
                    drops: folded,
                    is_fold: folded != 0,
                    sets: 2 << at,
                    ..Entry::default()
                });
                Some(Writer::Done)
            }
            _ => None,
        }
    }

    fn plan(&self, world: &mut World, step: Step, cycles: u8) -> Option<Collector> {
        let now = world.now();
        let offered = now.offered(&world.segments);
        let base = world.log.len();
        if cycles >= self.cycles || now.live == 0 {
            return None;
        }
        let (packs, entry) = match step {
            Step::CondemnAll if now.refs == 0 && offered != 0 => (
                0,
                Entry {
                    condemns: offered,
                    drops: now.live,
                    ..Entry::default()
                },
            ),
            Step::Repack if now.refs != 0 && offered != 0 => (
                bit(world.upload()?),
                Entry {
                    condemns: offered,
                    drops: now.live,
                    ..Entry::default()
                },
            ),
            // Condemns one of several packs with the chunk, and drops the segments that name no other pack.
            Step::Thin if offered.count_ones() > 1 => {
                let condemns = offered & offered.wrapping_neg();
                let gone = now.condemned | condemns;
                let names_only = |at: &u8| {
                    let packs = world.segments.get(usize::from(*at));
                    packs.is_some_and(|packs| packs & !gone == 0)
                };
                let empty = (0..16).filter(|at| now.live & bit(*at) != 0 && names_only(at));
                let drops = empty.fold(0, |all, at| all | bit(at));
                (
                    0,
                    Entry {
                        condemns,
                        drops,
                        ..Entry::default()
                    },
                )
            }
            Step::Merge if offered != 0 => (
                offered,
                Entry {
                    drops: now.live,
                    is_fold: true,
                    ..Entry::default()
                },
            ),
            _ => return None,
        };
        Some(Collector::Planned {
            cycles,
            base,
            packs,
            entry,
        })
    }

    /// A deleted pack may be forgotten, unless a live segment still names it.
    fn forget(&self, world: &mut World, pack: u8) -> Option<()> {
        let now = world.now();
        let is_gone = now.condemned & !world.objects & bit(pack) != 0;
        let is_named = now.named(&world.segments) & bit(pack) != 0 && self.has(Rule::Unnamed);
        world.log.push(Entry {
            forgets: bit(pack),
            ..Entry::default()
        });
        (is_gone && !is_named).then_some(())
    }
}

/// Commits a plan if writers only folded segments that it does not drop; otherwise the plan is void.
fn apply(world: &mut World, base: usize, packs: Set, entry: Entry) -> Option<()> {
    let news = world.log.get(base..)?;
    let moves = |new: &Entry| {
        new.condemns != 0 || (new.drops != 0 && !new.is_fold) || new.drops & entry.drops != 0
    };
    let now = Now::of(&world.log);
    let left = Now {
        live: now.live & !entry.drops,
        condemned: now.condemned | entry.condemns,
        ..now
    };
    let after = left.offered(&world.segments) | (packs & !left.condemned);
    let serves = news.iter().all(|new| new.sets == 0) || after != 0;
    let planned = Now::of(world.log.get(..base)?).named(&world.segments);
    let adds = news.iter().filter_map(|new| new.adds);
    let named = adds.filter_map(|at| world.segments.get(usize::from(at)));
    let names = named.fold(0, |all, packs| all | packs) & entry.condemns & !planned;
    if news.iter().any(moves) || !serves || names != 0 {
        return Some(());
    }
    let adds = match packs {
        0 => None,
        _ => Some(world.segment(packs)?),
    };
    world.log.push(Entry { adds, ..entry });
    Some(())
}

fn bit(number: u8) -> Set {
    1 << number
}
