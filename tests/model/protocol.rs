//! The states and steps of the model. Nothing in it is random or timed, and no step is skipped.
//!
//! There is one chunk. Packs are numbers below [`PACKS_MAX`], sets of packs are bits. Pack 0 and a ref to its chunk
//! exist at the start, and the user may drop that ref. Long writers commit on their way, and know of pack [`LEFT`],
//! which a killed writer uploaded; in their configurations, entries forget what was deleted.

use stateright::{Model, Property};

/// The name of the invariant.
pub(crate) const SAFE: &str = "a live ref has its chunk";
/// The name of what must happen at least once, so that the model does not hold because nothing happens.
const COLLECTED: &str = "all are done, a pack was deleted, and a ref lives";
/// Maximum number of packs, so that the model is finite.
const PACKS_MAX: u8 = 7;

/// A pack that a killed writer uploaded; no entry names it.
const LEFT: u8 = 1;

/// A set of packs, one bit each.
type Packs = u8;

/// A rule of the protocol that a mutant drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Validate,
    OwnPacks,
    WriterCreates,
    CollectorCreates,
    CollectorServes,
    CollectorYields,
    DeleteAfter,
    Orphans,
    SinceThePassBegan,
    KnownAtTheStart,
    KeptMayGo,
}

/// The numbers of writers and collectors, and how often each collector collects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) writers: usize,
    pub(crate) collectors: usize,
    pub(crate) cycles: u8,
    /// Whether writers commit on their way, and take up what a killed one left.
    pub(crate) long: bool,
    pub(crate) dropped: Option<Rule>,
}

/// One log entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    adds: Packs,
    condemns: Packs,
    forgets: Packs,
    /// Bits that say who set a ref; bit 0 is the initial ref.
    sets: u8,
    drops: u8,
}

/// The state after a log.
#[derive(Clone, Copy, Debug, Default)]
struct Fold {
    added: Packs,
    condemned: Packs,
    refs: u8,
}

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    log: Vec<Entry>,
    objects: Packs,
    next: u8,
    writers: Vec<Writer>,
    collectors: Vec<Collector>,
    user_done: bool,
}

/// The progress of a writer. `base` is the length of the log that it has read, `pass` its memory of earlier commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Writer {
    Idle,
    Loaded {
        pass: Pass,
        base: usize,
    },
    Staged {
        pass: Pass,
        base: usize,
        staged: Staged,
    },
    Validated {
        pass: Pass,
        base: usize,
        staged: Staged,
    },
    Done,
}

/// The pass of a long writer: the log at its beginning, the log after its last commit, and the number of commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Pass {
    began: usize,
    committed: usize,
    commits: u8,
}

/// What a writer's ref will rest on: an offered chunk, or a pack of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Staged {
    Relied,
    Own(u8),
    /// A committed pack of its own that no ref needs yet.
    Kept,
}

/// The progress of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Collector {
    Idle {
        cycles: u8,
    },
    Planned {
        cycles: u8,
        base: usize,
        entry: Entry,
    },
}

/// One step of one participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    UserDrops,
    Load(usize),
    Deduplicate(usize),
    Upload(usize),
    Validate(usize),
    Commit(usize),
    CommitOnTheWay(usize),
    TakeUp(usize),
    Forget(u8),
    CondemnAll(usize),
    CondemnOrphans(usize),
    UnlinkOrphans(usize),
    Repack(usize),
    CommitPlan(usize),
    DeleteEarly(usize),
    Delete(u8),
}

impl Entry {
    fn adding(pack: u8) -> Self {
        Self {
            adds: bit(pack),
            ..Self::default()
        }
    }
}

impl Pass {
    fn after_commit(self, now: usize) -> Self {
        match self.began {
            0 => self,
            began => Self {
                began,
                committed: now,
                commits: self.commits + 1,
            },
        }
    }
}

impl Fold {
    fn of(log: &[Entry]) -> Self {
        log.iter().fold(Self::default(), |fold, entry| Self {
            added: (fold.added | entry.adds) & !entry.forgets,
            condemned: (fold.condemned | entry.condemns) & !entry.forgets,
            refs: (fold.refs | entry.sets) & !entry.drops,
        })
    }

    fn offered(&self) -> Packs {
        self.added & !self.condemned
    }
}

impl World {
    fn fold(&self) -> Fold {
        Fold::of(&self.log)
    }

    fn safe(&self) -> bool {
        let fold = self.fold();
        fold.refs == 0 || fold.offered() & self.objects != 0
    }

    fn collected(&self) -> bool {
        let fold = self.fold();
        let done = self.writers.iter().all(|writer| *writer == Writer::Done);
        let condemned = self.log.iter().fold(0, |all, entry| all | entry.condemns);
        done && fold.refs != 0 && condemned & !self.objects != 0
    }

    /// Uploads a new pack; `None` when the names are used up.
    fn upload(&mut self) -> Option<u8> {
        let pack = self.next;
        if pack >= PACKS_MAX {
            return None;
        }
        self.next += 1;
        self.objects |= bit(pack);
        Some(pack)
    }

    fn orphans(&self, fold: &Fold) -> Packs {
        self.objects & !fold.added & !fold.condemned
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            log: vec![Entry {
                sets: bit(0),
                ..Entry::adding(0)
            }],
            objects: if self.long {
                bit(0) | bit(LEFT)
            } else {
                bit(0)
            },
            next: if self.long { LEFT + 1 } else { 1 },
            writers: vec![Writer::Idle; self.writers],
            collectors: vec![Collector::Idle { cycles: 0 }; self.collectors],
            user_done: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        steps.push(Step::UserDrops);
        for writer in 0..self.writers {
            steps.extend([
                Step::Load(writer),
                Step::Deduplicate(writer),
                Step::Upload(writer),
            ]);
            steps.extend([Step::Validate(writer), Step::Commit(writer)]);
            if self.long {
                steps.extend([Step::CommitOnTheWay(writer), Step::TakeUp(writer)]);
            }
        }
        for collector in 0..self.collectors {
            steps.extend([Step::CondemnAll(collector), Step::CondemnOrphans(collector)]);
            steps.extend([Step::UnlinkOrphans(collector), Step::Repack(collector)]);
            steps.extend([Step::CommitPlan(collector), Step::DeleteEarly(collector)]);
        }
        steps.extend((0..world.next).map(Step::Delete));
        if self.long {
            steps.extend((0..world.next).map(Step::Forget));
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::UserDrops => user_drops(&mut next),
            Step::Delete(pack) => delete(&mut next, pack),
            Step::Forget(pack) => forget(&mut next, pack),
            Step::Load(at)
            | Step::Deduplicate(at)
            | Step::Upload(at)
            | Step::Validate(at)
            | Step::CommitOnTheWay(at)
            | Step::TakeUp(at)
            | Step::Commit(at) => {
                let writer = self.write(&mut next, step, *world.writers.get(at)?, at)?;
                *next.writers.get_mut(at)? = writer;
                Some(())
            }
            Step::CondemnAll(at)
            | Step::CondemnOrphans(at)
            | Step::UnlinkOrphans(at)
            | Step::Repack(at)
            | Step::CommitPlan(at)
            | Step::DeleteEarly(at) => {
                let collector = match *world.collectors.get(at)? {
                    Collector::Idle { cycles } => self.plan(&mut next, step, cycles)?,
                    Collector::Planned {
                        cycles,
                        base,
                        entry,
                    } => self.apply(&mut next, step, cycles, base, entry)?,
                };
                *next.collectors.get_mut(at)? = collector;
                Some(())
            }
        }?;
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAFE, |_, world: &World| world.safe()),
            Property::sometimes(COLLECTED, |_, world: &World| world.collected()),
        ]
    }
}

impl Protocol {
    fn has(&self, rule: Rule) -> bool {
        self.dropped != Some(rule)
    }

    fn write(&self, world: &mut World, step: Step, writer: Writer, at: usize) -> Option<Writer> {
        let now = world.log.len();
        match (step, writer) {
            (Step::Load(_), Writer::Idle) => Some(Writer::Loaded {
                pass: self.begin(now),
                base: now,
            }),
            (Step::Deduplicate(_), Writer::Loaded { pass, base }) => {
                let known = Fold::of(world.log.get(..base)?);
                let staged = Staged::Relied;
                (known.offered() != 0).then_some(Writer::Staged { pass, base, staged })
            }
            (Step::Upload(_), Writer::Loaded { pass, base }) => {
                let known = Fold::of(world.log.get(..base)?);
                if known.offered() != 0 {
                    return None;
                }
                let staged = Staged::Own(world.upload()?);
                Some(Writer::Staged { pass, base, staged })
            }
            (Step::TakeUp(_), Writer::Loaded { pass, base }) => {
                let known = Fold::of(world.log.get(..pass.began)?);
                let is_known = (known.added | known.condemned) & bit(LEFT) != 0;
                let is_taken = is_known && self.has(Rule::KnownAtTheStart);
                let staged = Staged::Own(LEFT);
                (!is_taken && world.objects & bit(LEFT) != 0).then_some(Writer::Staged {
                    pass,
                    base,
                    staged,
                })
            }
            // Commits an unrelated entry. The writer then has read all earlier entries.
            (Step::CommitOnTheWay(_), Writer::Loaded { pass, .. }) if pass.commits == 0 => {
                world.log.push(Entry::default());
                let (pass, base) = (pass.after_commit(now + 1), now + 1);
                Some(Writer::Loaded { pass, base })
            }
            // Commits its own pack without a ref.
            (
                Step::CommitOnTheWay(_),
                Writer::Validated {
                    pass,
                    base,
                    staged: Staged::Own(pack),
                },
            ) if pass.commits < 2 => {
                if base != now {
                    return None;
                }
                world.log.push(Entry::adding(pack));
                Some(Writer::Staged {
                    pass: pass.after_commit(now + 1),
                    base: now + 1,
                    staged: Staged::Kept,
                })
            }
            (Step::Validate(_), Writer::Staged { pass, staged, .. }) => {
                let base = now;
                if self.stands(world, pass, staged)? {
                    return Some(Writer::Validated { pass, base, staged });
                }
                let staged = Staged::Own(world.upload()?);
                Some(Writer::Staged { pass, base, staged })
            }
            (Step::Commit(_), Writer::Validated { pass, base, staged }) => {
                if base != now && self.has(Rule::WriterCreates) {
                    return Some(Writer::Staged { pass, base, staged });
                }
                let entry = match staged {
                    Staged::Own(pack) => Entry::adding(pack),
                    Staged::Relied | Staged::Kept => Entry::default(),
                };
                world.log.push(Entry {
                    sets: bit(u8::try_from(at + 1).ok()?),
                    ..entry
                });
                Some(Writer::Done)
            }
            _ => None,
        }
    }

    /// A pass that begins now. Where nothing is forgotten, the writer may look at the whole log.
    fn begin(&self, now: usize) -> Pass {
        match self.long {
            true => Pass {
                began: now,
                committed: now,
                commits: 0,
            },
            false => Pass::default(),
        }
    }

    /// Validates against the log: what the ref rests on is offered, or was not condemned since the pass began.
    fn stands(&self, world: &World, pass: Pass, staged: Staged) -> Option<bool> {
        let is_offered = || world.fold().offered() != 0;
        let since = match self.has(Rule::SinceThePassBegan) {
            true => pass.began,
            false => pass.committed,
        };
        let news = world.log.get(since..)?;
        let condemned = news.iter().fold(0, |all, entry| all | entry.condemns);
        Some(match staged {
            _ if !self.has(Rule::Validate) => true,
            Staged::Kept if !self.has(Rule::KeptMayGo) => true,
            Staged::Relied | Staged::Kept => is_offered(),
            Staged::Own(_) if !self.has(Rule::OwnPacks) => true,
            Staged::Own(pack) => condemned & bit(pack) == 0,
        })
    }

    /// Whether a plan made at `base` may follow the new entries: they condemned nothing and added no pack that the plan
    /// condemns, and what refs reach is offered after the plan.
    fn still_stands(&self, world: &World, base: usize, entry: Entry) -> Option<bool> {
        let news = Fold::of(world.log.get(base..)?);
        let yields = news.condemned != 0 || news.added & entry.condemns != 0;
        if yields && self.has(Rule::CollectorYields) {
            return Some(false);
        }
        let mut after = world.log.clone();
        after.push(entry);
        let after = Fold::of(&after);
        // As in the implementation: what older refs reach was marked when the plan was made.
        let serves = news.refs & after.refs == 0 || after.offered() != 0;
        Some(serves || !self.has(Rule::CollectorServes))
    }

    fn plan(&self, world: &mut World, step: Step, cycles: u8) -> Option<Collector> {
        let fold = world.fold();
        let (live, orphans) = (fold.refs != 0, world.orphans(&fold));
        let entry = match step {
            _ if cycles >= self.cycles => return None,
            Step::CondemnAll(_) if !live => Entry {
                condemns: fold.offered() | orphans,
                ..Entry::default()
            },
            Step::CondemnOrphans(_) if live => Entry {
                condemns: orphans,
                ..Entry::default()
            },
            Step::Repack(_) if live && fold.offered() != 0 => Entry {
                condemns: fold.offered(),
                ..Entry::adding(world.upload()?)
            },
            Step::UnlinkOrphans(_) if orphans != 0 && !self.has(Rule::Orphans) => {
                world.objects &= !orphans;
                return Some(Collector::Idle { cycles: cycles + 1 });
            }
            _ => return None,
        };
        let base = world.log.len();
        (entry.condemns != 0).then_some(Collector::Planned {
            cycles,
            base,
            entry,
        })
    }

    fn apply(
        &self,
        world: &mut World,
        step: Step,
        cycles: u8,
        base: usize,
        entry: Entry,
    ) -> Option<Collector> {
        match step {
            Step::CommitPlan(_) if base != world.log.len() && self.has(Rule::CollectorCreates) => {
                // If the plan is still valid, it moves to the newest state; otherwise the collector plans again.
                Some(match self.still_stands(world, base, entry)? {
                    true => Collector::Planned {
                        cycles,
                        base: world.log.len(),
                        entry,
                    },
                    false => Collector::Idle { cycles },
                })
            }
            Step::CommitPlan(_) => {
                world.log.push(entry);
                Some(Collector::Idle { cycles: cycles + 1 })
            }
            Step::DeleteEarly(_)
                if !self.has(Rule::DeleteAfter) && entry.condemns & world.objects != 0 =>
            {
                world.objects &= !entry.condemns;
                Some(Collector::Planned {
                    cycles,
                    base,
                    entry,
                })
            }
            _ => None,
        }
    }
}

/// A single entry, with nothing to validate.
fn user_drops(world: &mut World) -> Option<()> {
    if world.user_done {
        return None;
    }
    world.user_done = true;
    world.log.push(Entry {
        drops: bit(0),
        ..Entry::default()
    });
    Some(())
}

/// A deleted pack may be forgotten; its segment was dropped with it.
fn forget(world: &mut World, pack: u8) -> Option<()> {
    let gone = world.fold().condemned & !world.objects & bit(pack);
    world.log.push(Entry {
        forgets: gone,
        ..Entry::default()
    });
    (gone != 0).then_some(())
}

/// Anyone may delete what the log condemned, any number of times.
fn delete(world: &mut World, pack: u8) -> Option<()> {
    let dead = world.fold().condemned & world.objects & bit(pack);
    world.objects &= !dead;
    (dead != 0).then_some(())
}

fn bit(number: u8) -> u8 {
    1 << number
}
