//! A log that is set back to an earlier entry, as a model of its own: a host that can know of this neither adds nor
//! deletes. It happens once, from outside; checkpoints are set back too, packs and segments stay.
//!
//! Uploaded objects say how much of the log their writer knew, and each host remembers the newest entry that it saw.
//! Ghost variables record what was really seen. A host that saw none of the lost entries cannot know of them if no
//! object names them any more. It then continues, and hosts that do know refuse to follow. A host that is in the middle
//! of a commit and finds a log of the old length adds an entry that does not follow its predecessor. All readers see
//! that, so it is harmless.

use stateright::{Model, Property};

pub(crate) const SAFE: &str = "who can know that the log was put back adds and deletes nothing";
const REFUSED: &str = "somebody was kept from adding";
const UNKNOWING: &str = "somebody who cannot know has added";
const HOSTS: usize = 3;
/// Entries have ids from 1 on.
const IDS_MAX: u8 = 5;
const OBJECTS_MAX: usize = 4;

/// A set of entries or of objects, one bit each.
type Set = u8;

/// A rule that a mutant drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A host remembers the length of the log.
    Memory,
    /// A host remembers the last entry.
    MemoryOfIds,
    /// A writer looks for evidence in segments that no entry names.
    WriterLooks,
    /// A collector looks for evidence in all objects that no entry names.
    CollectorLooks,
    /// An entry names its predecessor.
    Follows,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rollback {
    pub(crate) dropped: Option<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    id: u8,
    /// The id of the predecessor.
    prev: u8,
    adds: Option<u8>,
    condemns: Set,
}

/// An uploaded object: the length of the log that its writer had seen, and the id of the last entry in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Object {
    began: usize,
    knew: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    log: Vec<Entry>,
    objects: Vec<Object>,
    there: Set,
    ids: u8,
    hosts: [Host; HOSTS],
    /// The entries that were lost.
    taken: Set,
    is_put_back: bool,
    /// Whether nothing was added since the log was set back.
    is_as_put_back: bool,
    has_harm: bool,
    has_refused: bool,
    has_unknowing: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Host {
    /// The number and the id of the newest entry that the host remembers.
    remembers: Option<(usize, u8)>,
    /// The entries that the host really saw.
    saw: Set,
    pass: Pass,
}

/// The progress of a host. `base` and `last` describe the log that it looked at; `could_know` says whether objects then
/// showed that entries were missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Pass {
    #[default]
    Idle,
    Uploaded {
        base: usize,
        last: u8,
        object: u8,
        could_know: bool,
    },
    Planned {
        base: usize,
        last: u8,
        condemns: Set,
        could_know: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Upload(usize),
    Plan(usize),
    Commit(usize),
    Delete(usize, u8),
    PutBack(usize),
}

impl World {
    fn last(&self) -> u8 {
        self.log.last().map_or(0, |entry| entry.id)
    }

    fn ids_in_log(&self) -> Set {
        self.log.iter().fold(0, |all, entry| all | bit(entry.id))
    }

    fn condemned(&self) -> Set {
        self.log.iter().fold(0, |all, entry| all | entry.condemns)
    }

    /// Existing objects that no entry names.
    fn strange(&self) -> Set {
        let named = self.log.iter().filter_map(|entry| entry.adds);
        let named = named.fold(self.condemned(), |all, object| all | bit(object));
        self.there & !named
    }

    fn strangers(&self) -> impl Iterator<Item = &Object> {
        let strange = self.strange();
        let numbered = (0..).zip(&self.objects);
        numbered.filter_map(move |(at, object)| (strange & bit(at) != 0).then_some(object))
    }

    /// Whether an object shows that entries are missing: its writer had seen a lost entry. This holds only until
    /// something is added, since the log may then be as long as the writer knew it.
    fn store_can_know(&self) -> bool {
        let knew = |object: &Object| self.taken & bit(object.knew) != 0;
        self.is_as_put_back && self.strangers().any(knew)
    }

    fn is_whole(&self) -> bool {
        let before = [0].into_iter().chain(self.log.iter().map(|entry| entry.id));
        before.zip(&self.log).all(|(id, entry)| entry.prev == id)
    }
}

impl Model for Rollback {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            log: vec![Entry {
                id: 1,
                prev: 0,
                adds: Some(0),
                condemns: 0,
            }],
            objects: vec![Object { began: 0, knew: 0 }],
            there: bit(0),
            ids: 1,
            hosts: [Host::default(); HOSTS],
            taken: 0,
            is_put_back: false,
            is_as_put_back: false,
            has_harm: false,
            has_refused: false,
            has_unknowing: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for at in 0..HOSTS {
            steps.extend([Step::Upload(at), Step::Plan(at), Step::Commit(at)]);
            let objects = (0..).zip(&world.objects).map(|(object, _)| object);
            steps.extend(objects.map(|object| Step::Delete(at, object)));
        }
        steps.extend((1..world.log.len()).map(Step::PutBack));
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::PutBack(number) if !world.is_put_back => {
                let gone = next.log.drain(number..);
                next.taken = gone.fold(0, |all, entry| all | bit(entry.id));
                (next.is_put_back, next.is_as_put_back) = (true, true);
            }
            Step::PutBack(_) => return None,
            Step::Upload(at) | Step::Plan(at) | Step::Commit(at) | Step::Delete(at, _) => {
                let mut host = *world.hosts.get(at)?;
                self.act(&mut next, &mut host, step)?;
                *next.hosts.get_mut(at)? = host;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAFE, |_, world: &World| !world.has_harm),
            Property::sometimes(REFUSED, |_, world: &World| world.has_refused),
            Property::sometimes(UNKNOWING, |_, world: &World| world.has_unknowing),
        ]
    }
}

impl Rollback {
    fn has(&self, rule: Rule) -> bool {
        self.dropped != Some(rule)
    }

    fn act(&self, world: &mut World, host: &mut Host, step: Step) -> Option<()> {
        match (step, host.pass) {
            (Step::Upload(_), Pass::Idle) if world.objects.len() < OBJECTS_MAX => {
                if !self.looks(world, host, Rule::WriterLooks) {
                    return Some(());
                }
                let could_know = world.store_can_know();
                let (base, last) = (world.log.len(), world.last());
                let object = u8::try_from(world.objects.len()).ok()?;
                world.objects.push(Object {
                    began: base,
                    knew: last,
                });
                world.there |= bit(object);
                host.pass = Pass::Uploaded {
                    base,
                    last,
                    object,
                    could_know,
                };
            }
            (Step::Plan(_), Pass::Idle) if world.strange() != 0 => {
                if !self.looks(world, host, Rule::CollectorLooks) {
                    return Some(());
                }
                host.pass = Pass::Planned {
                    base: world.log.len(),
                    last: world.last(),
                    condemns: world.strange(),
                    could_know: world.store_can_know(),
                };
            }
            (Step::Commit(_), Pass::Uploaded { .. } | Pass::Planned { .. }) => {
                self.commit(world, host)?;
            }
            (Step::Delete(_, object), Pass::Idle) => {
                if world.condemned() & world.there & bit(object) == 0 {
                    return None;
                }
                if !self.looks(world, host, Rule::CollectorLooks) {
                    return Some(());
                }
                world.there &= !bit(object);
                world.has_harm |= host.saw & world.taken != 0 || world.store_can_know();
            }
            _ => return None,
        }
        Some(())
    }

    /// Loads the state, and looks for evidence of loss.
    fn looks(&self, world: &mut World, host: &mut Host, rule: Rule) -> bool {
        let len = world.log.len();
        let is_remembered = |(number, id): (usize, u8)| {
            let there = world.log.get(number - 1);
            let is_it = there.is_some_and(|entry| entry.id == id);
            is_it || (there.is_some() && !self.has(Rule::MemoryOfIds))
        };
        let is_set_back =
            self.has(Rule::Memory) && host.remembers.is_some_and(|known| !is_remembered(known));
        let is_told = self.has(rule) && world.strangers().any(|object| object.began > len);
        if !world.is_whole() || is_set_back || is_told {
            world.has_refused = true;
            return false;
        }
        remember(world, host);
        true
    }

    fn commit(&self, world: &mut World, host: &mut Host) -> Option<()> {
        let (base, last, adds, condemns, could_know) = match host.pass {
            Pass::Idle => return None,
            Pass::Uploaded {
                base,
                last,
                object,
                could_know,
            } => (base, last, Some(object), 0, could_know),
            Pass::Planned {
                base,
                last,
                condemns,
                could_know,
            } => (base, last, None, condemns, could_know),
        };
        host.pass = Pass::Idle;
        let len = world.log.len();
        let behind = world.log.get(base).map(|entry| entry.prev);
        let is_another = self.has(Rule::Follows) && behind.is_some_and(|prev| prev != last);
        if len < base || is_another {
            world.has_refused = true;
            return Some(());
        }
        let is_taken = adds.is_some_and(|object| world.condemned() & bit(object) != 0);
        // The host starts again if its object was condemned or its plan is outdated.
        if is_taken || (len > base && condemns != 0) {
            return Some(());
        }
        if world.ids == IDS_MAX {
            return None;
        }
        world.ids += 1;
        let prev = match self.has(Rule::Follows) && len == base {
            true => last,
            false => world.last(),
        };
        let does_follow = prev == world.last() && world.is_whole();
        let knows = host.saw & world.taken != 0 || could_know;
        world.has_harm |= does_follow && knows;
        world.has_unknowing |= world.is_put_back && does_follow && !knows;
        world.is_as_put_back = false;
        world.log.push(Entry {
            id: world.ids,
            prev,
            adds,
            condemns,
        });
        remember(world, host);
        Some(())
    }
}

/// Remembers the newest entry, and all that were read on the way.
fn remember(world: &World, host: &mut Host) {
    let (number, id) = (world.log.len(), world.last());
    host.saw |= world.ids_in_log();
    if host.remembers.is_none_or(|(known, _)| known < number) {
        host.remembers = Some((number, id));
    }
}

fn bit(number: u8) -> Set {
    1 << number
}
