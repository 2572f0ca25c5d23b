//! Deltas as a model: two chunks, each of which may be stored plain or as the difference to the other.
//!
//! A pack holds one chunk. Pack 0 has the first chunk, plain, which a ref needs. Each of two writers wants one chunk;
//! the configurations differ in which. The user may drop all refs but the last. A collector condemns unmarked packs one
//! by one in separate entries, copies packs, and merges segments so that each chunk keeps one place.

use stateright::{Model, Property};

/// The name of the invariant.
pub(crate) const SAFE: &str = "what a live ref needs can be decoded";
/// The name of what must happen at least once, so that the model does not hold because nothing happens.
const NEEDED: &str = "a live ref rests on a delta, and a pack was deleted";
const PACKS_MAX: u8 = 5;
const CYCLES_MAX: u8 = 1;

/// A set of packs, one bit each.
type Packs = u8;

/// A rule that a mutant drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The collector marks the bases of what it marks.
    MarksBases,
    /// At its commit, a writer checks that the bases of its deltas are still plain.
    BaseStands,
    /// A writer that relies on a chunk in a delta also relies on its bases.
    RelyOnBases,
    /// A plan that continues after new entries checks that their refs can be decoded after its own entry.
    ServesBases,
    /// Such a plan marks what these refs need, for its later entries.
    MarksNewBases,
    /// A merge keeps the plain one of two places of a chunk.
    KeepsPlain,
    /// Only a plain chunk can be a base.
    DepthOne,
}

/// The protocol, and the rule that is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deltas {
    /// The chunk that each writer wants.
    pub(crate) wants: [usize; 2],
    pub(crate) dropped: Option<Rule>,
}

/// A place of chunk 0 or 1: in a plain frame, or in a delta of the other chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Place {
    chunk: usize,
    is_delta: bool,
}

/// One log entry. The bits of refs say who set them; bit 0 is the initial ref.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Entry {
    adds: Packs,
    condemns: Packs,
    /// Packs whose places a merge has left out.
    unnames: Packs,
    sets: u8,
    drops: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    log: Vec<Entry>,
    places: Vec<Place>,
    objects: Packs,
    writers: [Writer; 2],
    collector: Collector,
    wants: [usize; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Writer {
    Idle,
    Loaded {
        base: usize,
    },
    Staged {
        began: usize,
        own: Option<u8>,
    },
    Validated {
        began: usize,
        base: usize,
        own: Option<u8>,
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
        known: Packs,
        marked: Packs,
        /// Whether an entry that condemns nothing was written.
        has_begun: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    UserDrops(u8),
    Load(usize),
    Rely(usize),
    Upload(usize, bool),
    Validate(usize),
    Commit(usize),
    Plan,
    Begin,
    Condemn(u8),
    Copy(u8),
    Merge(u8),
    End,
    Delete(u8),
}

/// The state after a log: the packs that are offered, and the live refs.
#[derive(Clone, Copy, Debug, Default)]
struct Fold {
    offered: Packs,
    condemned: Packs,
    refs: u8,
}

impl Fold {
    fn of(log: &[Entry]) -> Self {
        log.iter().fold(Self::default(), |fold, entry| Self {
            offered: (fold.offered | entry.adds) & !entry.condemns & !entry.unnames,
            condemned: fold.condemned | entry.condemns,
            refs: (fold.refs | entry.sets) & !entry.drops,
        })
    }
}

/// The chunks that these refs need.
fn needed(wants: [usize; 2], refs: u8) -> impl Iterator<Item = usize> {
    let [first, second] = wants;
    [0, first, second]
        .into_iter()
        .enumerate()
        .filter(move |(who, _)| refs & 1 << who != 0)
        .map(|(_, chunk)| chunk)
}

impl World {
    fn fold(&self) -> Fold {
        Fold::of(&self.log)
    }

    /// The first of `packs` with this kind of place.
    fn find(&self, packs: Packs, chunk: usize, is_delta: bool) -> Option<u8> {
        let wanted = Place { chunk, is_delta };
        let mut all = (0..).zip(&self.places);
        all.find(|(pack, place)| packs & bit(*pack) != 0 && **place == wanted)
            .map(|(pack, _)| pack)
    }

    fn plain(&self, packs: Packs, chunk: usize) -> Option<u8> {
        self.find(packs, chunk, false)
    }

    /// The pack that offers a chunk: plain, or in a delta whose base is plain.
    fn offers(&self, packs: Packs, chunk: usize) -> Option<u8> {
        let delta = || {
            self.plain(packs, 1 - chunk)?;
            self.find(packs, chunk, true)
        };
        self.plain(packs, chunk).or_else(delta)
    }

    fn has_any(&self, packs: Packs, chunk: usize) -> bool {
        self.plain(packs, chunk)
            .or(self.find(packs, chunk, true))
            .is_some()
    }

    fn upload(&mut self, place: Place) -> Option<u8> {
        let pack = u8::try_from(self.places.len()).ok()?;
        if pack >= PACKS_MAX {
            return None;
        }
        self.places.push(place);
        self.objects |= bit(pack);
        Some(pack)
    }

    fn place(&self, pack: u8) -> Option<Place> {
        self.places.get(usize::from(pack)).copied()
    }

    fn safe(&self) -> bool {
        let fold = self.fold();
        let there = fold.offered & self.objects;
        needed(self.wants, fold.refs).all(|chunk| self.offers(there, chunk).is_some())
    }

    fn rests_on_delta(&self) -> bool {
        let fold = self.fold();
        let is_delta = |chunk| self.plain(fold.offered, chunk).is_none();
        needed(self.wants, fold.refs).any(is_delta) && fold.condemned & !self.objects != 0
    }
}

impl Model for Deltas {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let first = Entry {
            adds: bit(0),
            sets: bit(0),
            ..Entry::default()
        };
        vec![World {
            log: vec![first],
            places: vec![Place::default()],
            objects: bit(0),
            writers: [Writer::Idle; 2],
            collector: Collector::Idle { cycles: 0 },
            wants: self.wants,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        steps.extend([Step::UserDrops(0), Step::UserDrops(1)]);
        steps.extend([Step::Plan, Step::Begin, Step::End]);
        for at in 0..world.writers.len() {
            steps.extend([Step::Load(at), Step::Rely(at), Step::Validate(at)]);
            steps.extend([
                Step::Upload(at, false),
                Step::Upload(at, true),
                Step::Commit(at),
            ]);
        }
        for pack in (0..).zip(&world.places).map(|(pack, _)| pack) {
            steps.extend([Step::Condemn(pack), Step::Copy(pack)]);
            steps.extend([Step::Merge(pack), Step::Delete(pack)]);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::UserDrops(who) => {
                let drops = world.fold().refs & bit(who);
                let none = Entry::default();
                next.log.push(Entry { drops, ..none });
                (drops != 0).then_some(())?;
            }
            Step::Delete(pack) => {
                let dead = world.fold().condemned & world.objects & bit(pack);
                next.objects &= !dead;
                (dead != 0).then_some(())?;
            }
            Step::Load(at)
            | Step::Rely(at)
            | Step::Upload(at, _)
            | Step::Validate(at)
            | Step::Commit(at) => {
                let writer = self.write(&mut next, step, at)?;
                *next.writers.get_mut(at)? = writer;
            }
            Step::Plan
            | Step::Begin
            | Step::Condemn(_)
            | Step::Copy(_)
            | Step::Merge(_)
            | Step::End => {
                next.collector = self.collect(&mut next, step)?;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAFE, |_, world: &World| world.safe()),
            Property::sometimes(NEEDED, |_, world: &World| world.rests_on_delta()),
        ]
    }
}

impl Deltas {
    fn has(&self, rule: Rule) -> bool {
        self.dropped != Some(rule)
    }

    fn write(&self, world: &mut World, step: Step, at: usize) -> Option<Writer> {
        let (chunk, now) = (*self.wants.get(at)?, world.log.len());
        match (step, *world.writers.get(at)?) {
            (Step::Load(_), Writer::Idle) => Some(Writer::Loaded { base: now }),
            (Step::Rely(_), Writer::Loaded { base }) => {
                let known = Fold::of(world.log.get(..base)?);
                world.offers(known.offered, chunk)?;
                let (began, own) = (base, None);
                Some(Writer::Staged { began, own })
            }
            (Step::Upload(_, is_delta), Writer::Loaded { base }) => {
                let known = Fold::of(world.log.get(..base)?).offered;
                let has_base = match self.has(Rule::DepthOne) {
                    true => world.plain(known, 1 - chunk).is_some(),
                    false => world.has_any(known, 1 - chunk),
                };
                if world.offers(known, chunk).is_some() || (is_delta && !has_base) {
                    return None;
                }
                let own = Some(world.upload(Place { chunk, is_delta })?);
                Some(Writer::Staged { began: base, own })
            }
            (Step::Validate(_), Writer::Staged { began, own }) => {
                match self.stands(world, chunk, began, own)? {
                    true => Some(Writer::Validated {
                        began,
                        base: now,
                        own,
                    }),
                    // Begins another pass.
                    false => Some(Writer::Loaded { base: now }),
                }
            }
            (Step::Commit(_), Writer::Validated { began, base, own }) => {
                if base != now {
                    return Some(Writer::Staged { began, own });
                }
                world.log.push(Entry {
                    adds: own.map_or(0, bit),
                    sets: bit(u8::try_from(at + 1).ok()?),
                    ..Entry::default()
                });
                Some(Writer::Done)
            }
            _ => None,
        }
    }

    fn stands(&self, world: &World, chunk: usize, began: usize, own: Option<u8>) -> Option<bool> {
        let fold = world.fold();
        let Some(own) = own else {
            return Some(match self.has(Rule::RelyOnBases) {
                true => world.offers(fold.offered, chunk).is_some(),
                false => world.has_any(fold.offered, chunk),
            });
        };
        let news = world.log.get(began..)?;
        let condemned = news.iter().fold(0, |all, entry| all | entry.condemns);
        let has_base = match (world.place(own)?.is_delta, self.has(Rule::DepthOne)) {
            (true, true) => world.plain(fold.offered, 1 - chunk).is_some(),
            (true, false) => world.has_any(fold.offered, 1 - chunk),
            (false, _) => true,
        };
        Some(condemned & bit(own) == 0 && (has_base || !self.has(Rule::BaseStands)))
    }

    /// The packs that refs need: the places, and the plain places of their bases.
    fn marks(&self, world: &World, packs: Packs, refs: u8) -> Packs {
        needed(self.wants, refs).fold(0, |marked, chunk| {
            let Some(pack) = world.offers(packs, chunk) else {
                return marked;
            };
            let is_delta = world.place(pack).is_some_and(|place| place.is_delta);
            let base = world.plain(packs, 1 - chunk).filter(|_| is_delta);
            marked | bit(pack) | base.map_or(0, bit)
        })
    }

    fn collect(&self, world: &mut World, step: Step) -> Option<Collector> {
        let (fold, now) = (world.fold(), world.log.len());
        let (cycles, base, known, marked, has_begun) = match (step, world.collector) {
            (Step::Plan, Collector::Idle { cycles }) if cycles < CYCLES_MAX => {
                let mut marked = self.marks(world, fold.offered, fold.refs);
                if !self.has(Rule::MarksBases) {
                    marked = needed(self.wants, fold.refs)
                        .filter_map(|chunk| world.offers(fold.offered, chunk))
                        .fold(0, |all, pack| all | bit(pack));
                }
                return Some(Collector::Planned {
                    cycles: cycles + 1,
                    base: now,
                    known: fold.offered,
                    marked,
                    has_begun: false,
                });
            }
            (Step::End, Collector::Planned { cycles, .. }) => {
                return Some(Collector::Idle { cycles });
            }
            (
                Step::Begin,
                Collector::Planned {
                    has_begun: true, ..
                },
            ) => return None,
            (
                _,
                Collector::Planned {
                    cycles,
                    base,
                    known,
                    marked,
                    has_begun,
                },
            ) => (
                cycles,
                base,
                known,
                marked,
                has_begun || step == Step::Begin,
            ),
            _ => return None,
        };
        let (entry, marked) = self.entry(world, step, base, (known, marked))?;
        let Some(entry) = entry else {
            return Some(Collector::Idle { cycles });
        };
        world.log.push(entry);
        Some(Collector::Planned {
            cycles,
            base: now + 1,
            known,
            marked,
            has_begun,
        })
    }

    /// The next entry of a plan if it may follow the new entries, and the marks by then.
    fn entry(
        &self,
        world: &mut World,
        step: Step,
        base: usize,
        (known, mut marked): (Packs, Packs),
    ) -> Option<(Option<Entry>, Packs)> {
        let fold = world.fold();
        let entry = match step {
            Step::Begin => Entry::default(),
            Step::Condemn(pack) if known & fold.offered & !marked & bit(pack) != 0 => Entry {
                condemns: bit(pack),
                ..Entry::default()
            },
            Step::Copy(pack) if known & fold.offered & marked & bit(pack) != 0 => Entry {
                condemns: bit(pack),
                adds: bit(world.upload(world.place(pack)?)?),
                ..Entry::default()
            },
            Step::Merge(pack) if known & fold.offered & bit(pack) != 0 => {
                let place = world.place(pack)?;
                let others = known & fold.offered & !bit(pack);
                let stays = match (place.is_delta, self.has(Rule::KeepsPlain)) {
                    (false, true) => world.plain(others, place.chunk),
                    _ => {
                        (world.plain(others, place.chunk)).or(world.find(others, place.chunk, true))
                    }
                }?;
                // Of two equal places, the marked one stays.
                let is_alike = world.place(stays)? == place;
                if is_alike && marked & bit(pack) != 0 && marked & bit(stays) == 0 {
                    return None;
                }
                Entry {
                    unnames: bit(pack),
                    ..Entry::default()
                }
            }
            _ => return None,
        };
        let news = Fold::of(world.log.get(base..)?).refs & fold.refs;
        let mut log = world.log.clone();
        log.push(entry);
        let after = Fold::of(&log).offered;
        for chunk in needed(self.wants, news) {
            let is_served = match self.has(Rule::ServesBases) {
                true => world.offers(after, chunk).is_some(),
                false => world.has_any(after, chunk),
            };
            if !is_served {
                return Some((None, marked));
            }
        }
        marked |= match self.has(Rule::MarksNewBases) {
            true => (self.marks(world, known, news) | self.marks(world, after, news)) & known,
            false => needed(self.wants, news)
                .filter_map(|chunk| world.offers(known, chunk))
                .fold(0, |all, pack| all | bit(pack)),
        };
        Some((Some(entry), marked))
    }
}

fn bit(number: u8) -> u8 {
    1 << number
}
