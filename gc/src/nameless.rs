//! Nameless: the objects that no entry names, and which of them go. Pure, but for the listing.
//!
//! Uploads, checkpoints, uses and claims. None is needed for a version, so they are deleted without an entry, in the
//! order of [`NamelessPlan::rows`]. A new kind of such objects is a field of both structs and a row.

use std::collections::HashSet;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use store::access::Uses;
use store::format::{CHECKPOINTS_PREFIX, OBJECT_KINDS, State, parse_checkpoint_key, use_key};
use store::log::CHECKPOINT_EVERY;
use store::remote::{ObjectInfo, Prune};
use store::{Result, VersionId};

use crate::claims::ClaimUse;
use crate::held::Held;
use crate::request::{Options, after};

/// The newest checkpoints are kept: more than one in case that it is damaged, and one some way before for reports that
/// look back.
const CHECKPOINTS_LEFT: usize = 2;
/// An upload in progress touches its file all the time. Younger files are left alone, unless it is known that nobody
/// writes them.
const UPLOAD_AGE_SECS_MIN: u64 = 3600;

/// An object to delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Doomed {
    /// Its key.
    pub key: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// What a store has that no entry names.
#[derive(Clone, Debug, Default)]
pub struct Nameless {
    /// Files of unfinished uploads.
    pub uploads: Vec<ObjectInfo>,
    /// Keys of those uploads that nobody writes any more.
    pub dead_uploads: HashSet<String>,
    /// Checkpoints by number.
    pub checkpoints: Vec<(u64, Doomed)>,
    /// Numbers of checkpoints that the remaining ones build on.
    pub layers: HashSet<u64>,
    /// On which days versions were read.
    pub uses: Uses,
    /// Claims.
    pub claims: Vec<ClaimUse>,
}

/// Which of it is deleted, and what is recorded of the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamelessPlan {
    /// Files of dead uploads.
    pub stale_uploads: Vec<Doomed>,
    /// Superseded checkpoints.
    pub checkpoints: Vec<Doomed>,
    /// Keys of obsolete uses.
    pub uses: Vec<String>,
    /// Keys of claims that have not changed since an earlier collection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<String>,
    /// What the next collection compares claims with.
    #[serde(skip)]
    pub sights: Vec<(String, Bytes)>,
}

/// What is deleted of one kind.
#[derive(Clone, Copy, Debug)]
pub enum NamelessRow<'p> {
    /// Each is worth a line.
    Each {
        /// What they are, in plain words.
        what: &'static str,
        /// The objects.
        objects: &'p [Doomed],
    },
    /// They are small and many, so that only their number tells anything.
    Number {
        /// One of them, in plain words.
        one: &'static str,
        /// The words that follow.
        which: &'static str,
        /// Their keys.
        keys: &'p [String],
    },
}

impl Nameless {
    /// Lists it, except for uses.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub(crate) fn list(prune: &dyn Prune) -> Result<Self> {
        let mut uploads = Vec::new();
        for kind in OBJECT_KINDS.iter().filter(|kind| kind.is_staged) {
            uploads.extend(prune.stale_uploads(kind.prefix)?);
        }
        let checkpoint = |info: ObjectInfo| {
            let number = parse_checkpoint_key(&info.key)?;
            let (key, bytes) = (info.key, info.size);
            Some((number, Doomed { key, bytes }))
        };
        let checkpoints = prune.list(CHECKPOINTS_PREFIX)?;
        Ok(Self {
            claims: ClaimUse::read(prune)?,
            checkpoints: checkpoints.into_iter().filter_map(checkpoint).collect(),
            uploads,
            ..Self::default()
        })
    }

    /// Finds out which uploads nobody writes any more.
    pub(crate) fn find_dead(&mut self, prune: &dyn Prune) {
        self.dead_uploads = prune.abandoned(&self.uploads);
    }

    /// Whether something may become garbage by time alone.
    pub(crate) fn waits(&self) -> bool {
        !self.uploads.is_empty() || !self.claims.is_empty()
    }

    /// What is to be deleted, by the clock of the plan and by that of the store's server. Adds what waits to `held`.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub(crate) fn plan(
        &self,
        state: &State,
        options: &Options,
        (now, by_store): (Timestamp, Timestamp),
        held: &mut Held,
    ) -> Result<NamelessPlan> {
        let idle = |claim: &ClaimUse| claim.idle(options.grace_secs, by_store).to_vec();
        Ok(NamelessPlan {
            stale_uploads: self.stale_uploads(options, by_store, held),
            checkpoints: self.superseded(state),
            uses: idle_uses(state, &self.uses, now)?,
            claims: self.claims.iter().flat_map(idle).collect(),
            sights: self.claims.iter().filter_map(ClaimUse::note).collect(),
        })
    }

    fn superseded(&self, state: &State) -> Vec<Doomed> {
        let mut checkpoints = self.checkpoints.clone();
        checkpoints.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        // A checkpoint that is newer than the state belongs to a process that commits right now, and supersedes none
        // yet.
        checkpoints.retain(|(number, _)| *number <= state.number);
        let left = checkpoints_left(&self.checkpoints, state);
        checkpoints
            .into_iter()
            .filter(|(number, _)| !left.contains(number) && !self.layers.contains(number))
            .map(|(_, doomed)| doomed)
            .collect()
    }

    fn stale_uploads(&self, options: &Options, now: Timestamp, held: &mut Held) -> Vec<Doomed> {
        let mut stale = Vec::new();
        for upload in &self.uploads {
            let age = match self.dead_uploads.contains(&upload.key) {
                true => options.min_age_secs,
                false => options.min_age_secs.max(UPLOAD_AGE_SECS_MIN),
            };
            if age == 0 || after(upload.modified, age) <= now {
                stale.push(Doomed {
                    key: upload.key.clone(),
                    bytes: upload.size,
                });
            } else {
                let until = after(upload.modified, age);
                held.by_age.add(upload.size, until);
            }
        }
        stale
    }
}

impl NamelessPlan {
    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is deleted, by kind, in the order in which it is.
    pub fn rows(&self) -> [NamelessRow<'_>; 4] {
        [
            NamelessRow::Each {
                what: "left behind by uploads that died",
                objects: &self.stale_uploads,
            },
            NamelessRow::Each {
                what: "checkpoints that newer ones stand for",
                objects: &self.checkpoints,
            },
            NamelessRow::Number {
                one: "use",
                which: "of versions that are gone or were used since",
                keys: &self.uses,
            },
            NamelessRow::Number {
                one: "object",
                which: "of claims that nobody works on",
                keys: &self.claims,
            },
        ]
    }

    /// The keys of all that is deleted, in that order.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for row in self.rows() {
            match row {
                NamelessRow::Each { objects, .. } => {
                    keys.extend(objects.iter().map(|doomed| doomed.key.clone()));
                }
                NamelessRow::Number { keys: all, .. } => keys.extend_from_slice(all),
            }
        }
        keys
    }

    /// The bytes of what is deleted, as far as they are counted.
    pub fn bytes(&self) -> u64 {
        self.rows().iter().map(NamelessRow::bytes).sum()
    }
}

impl NamelessRow<'_> {
    /// The bytes of the objects; those of which only the number is told count as none.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Each { objects, .. } => objects.iter().map(|doomed| doomed.bytes).sum(),
            Self::Number { .. } => 0,
        }
    }
}

/// Keys of uses of versions that are not live, and of all uses of a version before the last.
///
/// # Errors
/// When the state cannot be read.
fn idle_uses(state: &State, uses: &Uses, now: Timestamp) -> Result<Vec<String>> {
    let mut live: HashSet<VersionId> = HashSet::new();
    if uses.iter().next().is_none() {
        return Ok(Vec::new());
    }
    for found in state.refs.iter() {
        let (name, known) = found?;
        live.extend(
            known
                .versions
                .keys()
                .map(|number| VersionId::of(&name, *number)),
        );
    }
    let mut idle: Vec<String> = uses
        .iter()
        .filter(|(day, version)| {
            !live.contains(version) || uses.last(*version, now).is_some_and(|last| *day < last)
        })
        .map(|(day, version)| use_key(day, version))
        .collect();
    idle.sort_unstable();
    Ok(idle)
}

/// The checkpoints that stay, without those that they build on.
pub(crate) fn checkpoints_left(there: &[(u64, Doomed)], state: &State) -> Vec<u64> {
    let numbers = there.iter().map(|(number, _)| *number);
    let mut numbers: Vec<u64> = numbers.filter(|number| *number <= state.number).collect();
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    let is_before = |number: &u64| number + CHECKPOINT_EVERY <= state.number;
    let before = numbers.iter().copied().find(is_before);
    numbers.truncate(CHECKPOINTS_LEFT);
    numbers.extend(before.filter(|before| !numbers.contains(before)));
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const OPTIONS: Options = Options::AT_ONCE;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(secs).unwrap()
    }

    fn made(
        state: &State,
        nameless: &Nameless,
        options: &Options,
        now: i64,
    ) -> (NamelessPlan, Held) {
        let mut held = Held::default();
        let plan = nameless.plan(state, options, (at(now), at(now)), &mut held);
        (plan.unwrap(), held)
    }

    #[test]
    fn rows_are_in_the_order_of_deletion_and_only_told_objects_have_bytes() {
        let doomed = |key: &str| Doomed {
            key: key.to_owned(),
            bytes: 10,
        };
        let plan = NamelessPlan {
            stale_uploads: vec![doomed("a"), doomed("b")],
            checkpoints: vec![doomed("c")],
            uses: vec!["d".to_owned()],
            claims: vec!["e".to_owned(), "f".to_owned()],
            sights: Vec::new(),
        };
        assert_eq!(plan.keys().concat(), "abcdef");
        assert_eq!(plan.rows().map(|row| row.bytes()), [20, 10, 0, 0]);
        assert!(!plan.is_empty() && NamelessPlan::default().is_empty());
    }

    #[test]
    fn an_upload_in_progress_is_left_alone_for_an_hour_whatever_the_age() {
        let upload = ObjectInfo {
            key: "packs/ab/x#1".to_owned(),
            size: 7,
            modified: at(0),
        };
        let mut nameless = Nameless {
            uploads: vec![upload],
            ..Nameless::default()
        };
        let state = State::default();
        let (young, held) = made(&state, &nameless, &OPTIONS, HOUR - 1);
        assert_eq!(young.stale_uploads, []);
        assert_eq!(held.by_age.until, Some(at(HOUR)));
        assert_eq!(
            made(&state, &nameless, &OPTIONS, HOUR)
                .0
                .stale_uploads
                .len(),
            1
        );
        // For a dead upload, only the minimum age counts.
        nameless.dead_uploads.insert("packs/ab/x#1".to_owned());
        let aged = Options {
            min_age_secs: 100,
            ..OPTIONS
        };
        let (young, held) = made(&state, &nameless, &aged, 99);
        assert_eq!(young.stale_uploads, []);
        assert_eq!(held.by_age.until, Some(at(100)));
        assert_eq!(made(&state, &nameless, &aged, 100).0.stale_uploads.len(), 1);
        // Whatever the clocks say.
        assert_eq!(
            made(&state, &nameless, &OPTIONS, -HOUR)
                .0
                .stale_uploads
                .len(),
            1
        );
    }

    #[test]
    fn the_two_newest_checkpoints_stay() {
        let doomed = |number: u64| {
            let (key, bytes) = (number.to_string(), 10);
            (number, Doomed { key, bytes })
        };
        let nameless = Nameless {
            checkpoints: [64, 320, 192, 128, 256].map(doomed).into(),
            ..Nameless::default()
        };
        let state = State {
            number: 300,
            ..State::default()
        };
        // The checkpoint of entry 320 belongs to a process that is ahead of this state.
        let (plan, _) = made(&state, &nameless, &OPTIONS, 0);
        assert_eq!(plan.checkpoints, [doomed(128).1, doomed(64).1]);
        // The remaining checkpoints build on one of these.
        let nameless = Nameless {
            layers: [64].into(),
            ..nameless
        };
        let (plan, _) = made(&state, &nameless, &OPTIONS, 0);
        assert_eq!(plan.checkpoints, [doomed(128).1]);
    }

    /// In a bucket, checkpoints are closer together, but reports look back just as far.
    #[test]
    fn of_checkpoints_that_lie_close_one_some_way_before_stays() {
        let doomed = |at: u64| {
            let (key, bytes) = (at.to_string(), 10);
            (8 * at, Doomed { key, bytes })
        };
        let there: Vec<_> = (1..=40).map(doomed).collect();
        let state = State {
            number: 300,
            ..State::default()
        };
        assert_eq!(checkpoints_left(&there, &state), [296, 288, 232]);
    }

    #[test]
    fn a_use_goes_when_a_later_one_stands_for_it_or_its_version_is_gone() {
        let name: store::format::RefName = "project/a/b".parse().unwrap();
        let version = |number| VersionId::of(&name, number);
        let empty = store::format::Content::empty();
        let put = store::format::Version {
            root: store::format::Root::File {
                content: empty,
                executable: false,
            },
            sides: store::format::Sides::default(),
            time: at(0),
            who: store::format::Who::default(),
            message: String::new(),
            pinned: false,
            expires: None,
            origin: None,
            private: false,
            extra: store::format::Extra::new(),
        };
        let known = store::format::RefState {
            last: 3,
            versions: [(1, put.clone()), (2, put)].into(),
            extra: store::format::Extra::new(),
        };
        let state = State {
            refs: [(name.clone(), known)].into(),
            ..State::default()
        };
        let day = |number| jiff::civil::date(1970, 1, number);
        let uses = [
            (day(1), version(1)),
            (day(3), version(1)),
            (day(9), version(1)),
            (day(1), version(2)),
            (day(9), version(3)),
        ];
        let nameless = Nameless {
            uses: uses.into_iter().collect(),
            ..Nameless::default()
        };
        // A use on a day far in the future is not the last one, and may be removed.
        let idle = idle_uses(&state, &nameless.uses, at(5 * 24 * HOUR)).unwrap();
        assert_eq!(
            idle,
            [use_key(day(1), version(1)), use_key(day(9), version(3))]
        );
    }
}
