//! Selects the versions to copy, from the states of both stores. Pure.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::absent::{dropped_there, none_in};
use super::same::{is_same, repeated, stays_as_long};
use super::{Delete, RefOutcome, RefStatus, ReplicateRequest, Selection, Versions};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{At, Change, Namespace, Origin, RefName, RefState, State, Version};
use crate::id::StoreId;
use crate::remedy::{Note, Remedy};

/// The two stores of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) from: StoreId,
    pub(super) to: StoreId,
}

/// A version of the source to copy to the destination.
#[derive(Clone, Debug)]
pub(super) struct Bring {
    pub(super) name: RefName,
    /// Its number at the source.
    pub(super) from: u64,
    pub(super) version: Version,
    /// The origin that is recorded at the destination.
    origin: Origin,
    /// The destination.
    to: StoreId,
    /// Whether it must become the newest at the destination.
    pub(super) is_newest: bool,
    /// Its number at the destination, if the destination has it but lacks some of its chunks.
    pub(super) kept: Option<u64>,
    /// Whether it was dropped at the destination and is restored. It never replaces a later version as the newest.
    pub(super) is_back: bool,
}

/// A version that the destination already has.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) bring: Bring,
    /// Its number there.
    pub(super) to: u64,
}

/// What a run has to do.
#[derive(Debug, Default)]
pub(super) struct Selected {
    /// Versions to copy; those of one ref are in order.
    pub(super) bring: Vec<Bring>,
    /// Versions that the destination has, to be checked.
    pub(super) kept: Vec<Kept>,
    /// Outcomes of refs and versions that need no copy, or cannot be copied.
    pub(super) settled: Vec<RefOutcome>,
    /// Refs and namespaces of which versions may be dropped.
    pub(super) refs: BTreeSet<RefName>,
    pub(super) namespaces: Vec<Namespace>,
    /// Selected namespaces without a ref.
    pub(super) missing: Vec<(Namespace, Error)>,
    pub(super) notes: Vec<Note>,
}

/// What the destination has of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing: the version is to be published.
    Nowhere,
    /// The version, under this number; nothing is to be done.
    There(u64),
    /// The version was copied before, and the source has gone back to it since.
    GoneBack {
        /// Its number.
        there: u64,
        /// The number of a later version that came from the same source.
        newest: u64,
    },
    /// The version was copied before, and somebody else has published a newer one since.
    Overtaken {
        /// Its number.
        there: u64,
        /// The number of that newer version.
        newest: u64,
    },
}

/// Which versions of one ref are requested.
#[derive(Debug, Default)]
struct Asked {
    whole: bool,
    numbers: BTreeSet<u64>,
    /// Errors of requested versions that do not exist.
    failed: Vec<(Option<u64>, Error)>,
}

/// Selects what `request` asks for and `to` lacks.
///
/// # Errors
/// Not found, when nothing that is asked for exists.
pub(super) fn select(
    request: &ReplicateRequest,
    ends: Ends,
    from: &State,
    to: &State,
) -> Result<Selected> {
    let mut selected = Selected::default();
    let mut asked: BTreeMap<RefName, Asked> = BTreeMap::new();
    for selection in &request.what {
        match selection {
            Selection::Namespace(namespace) => {
                let names = live(from, namespace)?;
                let mut known = from.refs.heads(Some(namespace));
                let was_there = known.next().transpose()?.is_some();
                if names.is_empty() && !(was_there && request.delete == Delete::All) {
                    let error = none_in(namespace);
                    let error = dropped_there(request.delete, was_there, error);
                    selected.missing.push((namespace.clone(), error));
                    continue;
                }
                selected.namespaces.push(namespace.clone());
                names
                    .into_iter()
                    .for_each(|name| asked.entry(name.clone()).or_default().whole = true);
            }
            Selection::Ref(name) => asked.entry(name.clone()).or_default().whole = true,
            Selection::Version(name, at) => {
                let asked = asked.entry(name.clone()).or_default();
                match from.at(name, Some(at)) {
                    Ok((number, _)) => drop(asked.numbers.insert(number)),
                    Err(error) => {
                        let number = match at {
                            At::Number(number) => Some(*number),
                            At::Id(_) | At::Latest => None,
                        };
                        asked.failed.push((number, error));
                    }
                }
            }
        }
    }
    if asked.is_empty() && selected.namespaces.is_empty() {
        let mut advices = selected
            .missing
            .iter()
            .filter_map(|(_, error)| error.remedy());
        let advice = advices.next().cloned().unwrap_or(Remedy::List);
        let missing = selected.missing.iter();
        let what: Vec<String> = missing.map(|(_, error)| error.to_string()).collect();
        return Err(Error::not_found(match what.is_empty() {
            true => "nothing is selected".to_owned(),
            false => what.join("; "),
        })
        .hint(advice));
    }
    for (name, mut asked) in asked {
        let failed = std::mem::take(&mut asked.failed);
        let is_any = asked.whole || !asked.numbers.is_empty();
        let failures = failed
            .into_iter()
            .map(|(number, error)| RefOutcome::failed(&name, number, error));
        selected.settled.extend(failures);
        if !is_any {
            continue;
        }
        if asked.whole {
            selected.refs.insert(name.clone());
        }
        let chosen = select_ref(request, ends, &name, &asked, from, to, &mut selected);
        let Err(error) = chosen else {
            continue;
        };
        let is_gone = error.kind() == ErrorKind::NotFound && asked.whole;
        let was_there = is_gone && from.refs.last(&name)? > 0;
        if !(was_there && request.delete == Delete::All) {
            let error = dropped_there(request.delete, was_there, error);
            selected
                .settled
                .push(RefOutcome::failed(&name, None, error));
        }
    }
    Ok(selected)
}

/// Selects versions of one ref. If there are none to copy, adds the outcome that the ref is unchanged.
fn select_ref(
    request: &ReplicateRequest,
    ends: Ends,
    name: &RefName,
    asked: &Asked,
    from: &State,
    to: &State,
    selected: &mut Selected,
) -> Result<()> {
    let source = from.versions(name)?;
    let newest = source.keys().next_back().copied();
    let is_asked = |number: u64| {
        asked.numbers.contains(&number)
            || (asked.whole && (request.versions == Versions::All || Some(number) == newest))
    };
    let mut there = to.refs.get(name)?.unwrap_or_default();
    let top = there.versions.clone().pop_last();
    let mut unchanged = None;
    let before = selected.bring.len();
    // In an undo, source and destination are one store: only dropped versions are missing.
    let is_back = ends.from == ends.to;
    let bring_of = |number: u64, version: &Version| Bring {
        name: name.clone(),
        from: number,
        version: match is_back {
            true => from.coming_back(name, number, version),
            false => version.clone(),
        },
        is_back,
        origin: origin(ends.from, name, number, version),
        to: ends.to,
        is_newest: asked.whole && Some(number) == newest,
        kept: None,
    };
    let repeated = match is_back {
        true => HashSet::new(),
        false => repeated(&source, is_asked),
    };
    let above = above(&source, &there);
    let is_topped = match source.last_key_value().filter(|_| asked.whole) {
        Some((number, last)) => bring_of(*number, last).found(&there) == Found::Nowhere,
        None => false,
    };
    for (number, version) in source.iter().filter(|(number, _)| is_asked(**number)) {
        if repeated.contains(number) {
            continue;
        }
        let bring = bring_of(*number, version);
        match bring.found(&there) {
            Found::Nowhere if !is_topped && above.is_some_and(|(above, _)| above > *number) => {
                let (_, newest) = above.unwrap_or_default();
                if asked.whole {
                    selected.leave_out(&bring, newest, request.older_fails);
                    continue;
                }
                selected.notes.push(bring.older(newest).into());
                selected.add(bring, &mut there);
            }
            Found::Nowhere => {
                selected.notes.extend(bring.tops(&source, top.as_ref()));
                selected.add(bring, &mut there);
            }
            Found::There(found) => {
                unchanged = Some((*number, found));
                selected.kept.push(Kept { bring, to: found });
            }
            Found::GoneBack { there, newest } => {
                // With deletion, the later version is dropped anyway.
                if !request.delete.drops() {
                    selected.notes.push(bring.gone_back(there, newest));
                }
                unchanged = Some((*number, there));
                selected.kept.push(Kept { bring, to: there });
            }
            Found::Overtaken { there, newest } => {
                let error = bring.overtaken(there, newest);
                let outcome = bring.outcome(Some(there), RefStatus::Failed(error));
                selected.settled.push(outcome);
            }
        }
    }
    if let Some((number, found)) = unchanged.filter(|_| selected.bring.len() == before) {
        selected.settled.push(RefOutcome {
            name: name.clone(),
            from: Some(number),
            id: source.get(&number).map(Version::id),
            to: Some(found),
            status: RefStatus::Unchanged,
        });
    }
    Ok(())
}

/// The newest version of a source that the destination has: its number here and there.
fn above(source: &BTreeMap<u64, Version>, there: &RefState) -> Option<(u64, u64)> {
    source.iter().rev().find_map(|(number, version)| {
        let mut known = there.versions.iter().rev();
        let found = known.find(|(_, known)| is_same(known, version));
        found.map(|(found, _)| (*number, *found))
    })
}

impl Selected {
    fn add(&mut self, bring: Bring, there: &mut RefState) {
        bring.add_to(there);
        self.bring.push(bring);
    }

    /// Leaves out a version because the destination has a later one, which is version `newest` there.
    fn leave_out(&mut self, bring: &Bring, newest: u64, fails: bool) {
        let Bring { name, from, .. } = bring;
        let why = format!(
            "a later version is already there, as version {newest}, and this one would take its place as the newest; \
             naming {name}@{from} copies it all the same"
        );
        if fails {
            let error = Error::conflict(format!("{name}@{from}: {why}"));
            let outcome = bring.outcome(None, RefStatus::Failed(error));
            self.settled.push(outcome);
        } else {
            let note = format!("{name}@{from} is not copied: {why}");
            self.notes.push(note.into());
        }
    }

    /// What to copy: first the incomplete versions, which are no longer reported as unchanged, then new versions.
    pub(super) fn healing(&mut self, incomplete: &[Kept]) -> Vec<Bring> {
        let is_healed = |outcome: &RefOutcome| {
            let mut healed = incomplete.iter().map(|kept| &kept.bring);
            healed.any(|bring| (&bring.name, Some(bring.from)) == (&outcome.name, outcome.from))
        };
        self.settled.retain(|outcome| {
            !matches!(outcome.status, RefStatus::Unchanged) || !is_healed(outcome)
        });
        let brought = incomplete.iter().map(|kept| Bring {
            kept: Some(kept.to),
            ..kept.bring.clone()
        });
        let mut bring: Vec<Bring> = brought.collect();
        bring.append(&mut self.bring);
        bring
    }
}

impl Bring {
    /// The outcome of the version.
    pub(super) fn outcome(&self, to: Option<u64>, status: RefStatus) -> RefOutcome {
        RefOutcome {
            name: self.name.clone(),
            from: Some(self.from),
            id: Some(self.version.id()),
            to,
            status,
        }
    }

    /// The error about the version.
    pub(super) fn failure(&self, error: Error) -> Error {
        let place = format!("{}@{}", self.name, self.from);
        match self.kept {
            Some(there) => Error::corrupt(format!(
                "{place}: is damaged at the destination, as version {there}, and the source cannot heal it: {error}"
            ))
            .hint(Remedy::VerifyBothEnds),
            None => error.within(place),
        }
    }

    /// What a ref of the destination has of the version.
    ///
    /// A version is the newest when it is published, and later ones were published on top of it. So a version that was
    /// copied before is not published again: that would undo what others have put since.
    pub(super) fn found(&self, there: &RefState) -> Found {
        let is_it = |version: &Version| {
            is_same(version, &self.version)
                && (!self.is_back || stays_as_long(version, &self.version))
        };
        let same = |(_, version): &(&u64, &Version)| is_it(version);
        let versions = there.versions.iter().rev();
        if !self.is_newest {
            let found = versions.clone().find(same).map(|(number, _)| *number);
            return found.map_or(Found::Nowhere, Found::There);
        }
        let Some((newest, last)) = there.versions.last_key_value() else {
            return Found::Nowhere;
        };
        if is_same(last, &self.version) {
            return Found::There(*newest);
        }
        let is_it = |(number, version): &(&u64, &Version)| {
            is_same(version, &self.version) && self.is_copy(**number, version)
        };
        let Some((number, _)) = versions.clone().find(is_it) else {
            return Found::Nowhere;
        };
        let (there, newest) = (*number, *newest);
        let source = last.origin.as_ref().map(|origin| origin.source());
        if self.origin.store == self.to {
            // The version was first put at the destination, and the source does not know what followed it there.
            Found::There(there)
        } else if source == Some(self.origin.source()) {
            Found::GoneBack { there, newest }
        } else {
            Found::Overtaken { there, newest }
        }
    }

    /// Whether a version of the destination is a copy of this one, rather than only equal to it.
    fn is_copy(&self, number: u64, there: &Version) -> bool {
        let own = &self.origin;
        match &there.origin {
            Some(origin) => origin.is_of(own),
            None => (own.store, &own.name, own.version) == (self.to, &self.name, number),
        }
    }

    /// The note that this version will replace one that somebody else put or sent there. A rule that keeps few versions
    /// drops that one then.
    fn tops(&self, source: &BTreeMap<u64, Version>, top: Option<&(u64, Version)>) -> Option<Note> {
        let (newest, last) = top?;
        let is_known = source.values().any(|version| is_same(version, last));
        let came_from = last.origin.as_ref().map(|origin| origin.source());
        let is_foreign = !is_known && came_from != Some(self.origin.source());
        if !self.is_newest || self.is_back || !is_foreign {
            return None;
        }
        let Self { name, from, .. } = self;
        let whose = match came_from {
            Some(store) => format!("came from the store {store}"),
            None => "was put there".to_owned(),
        };
        let text = format!(
            "{name}@{from} becomes the newest there, on top of version {newest}, which {whose} and is unknown to this \
             source: rules that keep few versions drop it"
        );
        Some(Note::with(text, Remedy::OneWriter).warning())
    }

    fn gone_back(&self, there: u64, newest: u64) -> Note {
        let Self { name, from, .. } = self;
        let text = format!(
            "{name}@{from}, which is the source's newest, was copied before as version {there}; version {newest} there is \
             later and stays the newest"
        );
        Note::with(text, Remedy::DropThere)
    }

    /// The note about a version that is older than another one of the same source at the destination.
    fn older(&self, newest: u64) -> String {
        let Self { name, from, .. } = self;
        format!(
            "{name}@{from} becomes the newest there, on top of a later version, which is version {newest} there"
        )
    }

    pub(super) fn overtaken(&self, there: u64, newest: u64) -> Error {
        let Self { name, from, .. } = self;
        Error::conflict(format!(
            "{name}@{from}: it was copied before as version {there}, and version {newest}, which does not come from this \
             source, was put after it"
        ))
        .hint(Remedy::OneWriter)
    }

    /// Adds it to a ref under the next number.
    pub(super) fn add_to(&self, there: &mut RefState) -> u64 {
        there.last += 1;
        let version = Version {
            origin: Some(Box::new(self.origin.clone())),
            ..self.version.clone()
        };
        there.versions.insert(there.last, version);
        there.last
    }

    /// The change that publishes it under `number`.
    pub(super) fn set_ref(&self, number: u64) -> Change {
        Change::SetRef {
            name: self.name.clone(),
            version: number,
            root: self.version.root,
            sides: self.version.sides.clone(),
            message: self.version.message.clone(),
            expires: self.version.expires,
            origin: Some(Box::new(self.origin.clone())),
            ends: Vec::new(),
            private: self.version.private,
            extra: self.version.extra.clone(),
        }
    }
}

/// The origin of a version of `source`: where it was first put.
fn origin(source: StoreId, name: &RefName, number: u64, version: &Version) -> Origin {
    match version.origin.as_deref() {
        Some(origin) => Origin {
            via: (origin.store != source).then_some(source),
            ..origin.clone()
        },
        None => Origin {
            store: source,
            name: name.clone(),
            version: number,
            time: version.time,
            who: version.who.clone(),
            via: None,
        },
    }
}

/// The refs of a namespace that have a version.
fn live(state: &State, namespace: &Namespace) -> Result<Vec<RefName>> {
    let refs = state.refs.heads(Some(namespace));
    let live = refs.filter(|found| found.as_ref().map_or(true, |(_, head)| head.live > 0));
    live.map(|found| Ok(found?.0)).collect()
}
