//! Which versions are to be brought, from the states of both stores. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{RefOutcome, RefStatus, ReplicateRequest, Selection, Versions};
use crate::error::{Error, Result};
use crate::format::{Change, Namespace, RefName, RefState, State, Version};
use crate::refs::Dropped;

/// A version of the source that the destination is to have.
#[derive(Clone, Debug)]
pub(super) struct Bring {
    pub(super) name: RefName,
    /// Its number at the source.
    pub(super) from: u64,
    pub(super) version: Version,
    /// Whether it must be the newest at the destination, not just any.
    pub(super) is_newest: bool,
}

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Selected {
    /// Versions to bring, those of one ref in order.
    pub(super) bring: Vec<Bring>,
    /// What needs nothing, or cannot be had.
    pub(super) settled: Vec<RefOutcome>,
    /// Refs and namespaces of which versions may be dropped.
    pub(super) refs: BTreeSet<RefName>,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) notes: Vec<String>,
}

/// Which versions of one ref are asked for.
#[derive(Debug, Default)]
struct Asked {
    whole: bool,
    numbers: BTreeSet<u64>,
}

/// What `request` asks for, less what `to` has.
///
/// # Errors
/// Not found, when nothing that is asked for exists.
pub(super) fn select(request: &ReplicateRequest, from: &State, to: &State) -> Result<Selected> {
    let mut selected = Selected::default();
    let mut asked: BTreeMap<RefName, Asked> = BTreeMap::new();
    for selection in &request.what {
        match selection {
            Selection::Namespace(namespace) => {
                let names = live(from, namespace);
                if names.is_empty() {
                    let note = format!("{namespace}: the source has no ref in this namespace");
                    selected.notes.push(note);
                    continue;
                }
                selected.namespaces.push(namespace.clone());
                names
                    .into_iter()
                    .for_each(|name| asked.entry(name.clone()).or_default().whole = true);
            }
            Selection::Ref(name) => asked.entry(name.clone()).or_default().whole = true,
            Selection::Version(name, number) => {
                let asked = asked.entry(name.clone()).or_default();
                asked.numbers.insert(*number);
            }
        }
    }
    if asked.is_empty() {
        let what = selected.notes.join("; ");
        return Err(Error::not_found(match what.as_str() {
            "" => "nothing is selected".to_owned(),
            _ => what,
        })
        .hint("see what there is with `store ls`"));
    }
    for (name, asked) in &asked {
        if asked.whole {
            selected.refs.insert(name.clone());
        }
        if let Err(error) = select_ref(request.versions, name, asked, from, to, &mut selected) {
            selected.settled.push(RefOutcome {
                name: name.clone(),
                from: None,
                to: None,
                status: RefStatus::Failed(error),
            });
        }
    }
    Ok(selected)
}

/// The versions to bring of one ref; where there are none, that it is unchanged.
fn select_ref(
    which: Versions,
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
            || (asked.whole && (which == Versions::All || Some(number) == newest))
    };
    let mut there = to.refs.get(name).cloned().unwrap_or_default();
    let mut unchanged = None;
    let before = selected.bring.len();
    for (number, version) in source.iter().filter(|(number, _)| is_asked(**number)) {
        let bring = Bring {
            name: name.clone(),
            from: *number,
            version: version.clone(),
            is_newest: asked.whole && Some(*number) == newest,
        };
        match bring.in_state(&there) {
            Some(found) => unchanged = Some((*number, found)),
            None => {
                bring.add_to(&mut there);
                selected.bring.push(bring);
            }
        }
    }
    for number in &asked.numbers {
        if let Err(error) = from.version(name, Some(*number)) {
            selected.settled.push(RefOutcome {
                name: name.clone(),
                from: Some(*number),
                to: None,
                status: RefStatus::Failed(error),
            });
        }
    }
    if let Some((number, found)) = unchanged.filter(|_| selected.bring.len() == before) {
        selected.settled.push(RefOutcome {
            name: name.clone(),
            from: Some(number),
            to: Some(found),
            status: RefStatus::Unchanged,
        });
    }
    Ok(())
}

impl Bring {
    /// What became of it.
    pub(super) fn outcome(&self, to: Option<u64>, status: RefStatus) -> RefOutcome {
        RefOutcome {
            name: self.name.clone(),
            from: Some(self.from),
            to,
            status,
        }
    }

    /// What went wrong with it.
    pub(super) fn failure(&self, error: Error) -> Error {
        error.within(format!("{}@{}", self.name, self.from))
    }

    /// The number under which a ref of the destination has it already.
    pub(super) fn in_state(&self, there: &RefState) -> Option<u64> {
        let same = |(_, version): &(&u64, &Version)| is_same(version, &self.version);
        let found = match self.is_newest {
            true => there.versions.last_key_value().filter(same),
            false => there.versions.iter().rev().find(same),
        };
        found.map(|(number, _)| *number)
    }

    /// Gives it the next number of a ref.
    pub(super) fn add_to(&self, there: &mut RefState) -> u64 {
        there.last += 1;
        there.versions.insert(there.last, self.version.clone());
        there.last
    }

    /// The change that publishes it under `number`.
    pub(super) fn set_ref(&self, number: u64) -> Change {
        Change::SetRef {
            name: self.name.clone(),
            version: number,
            root: self.version.root,
            times: self.version.times,
            message: self.version.message.clone(),
            expires: self.version.expires,
        }
    }
}

/// Versions to drop at the destination, and pinned ones that stay: what none of the selected refs has at the
/// source. Of refs that `failed` nothing is dropped.
pub(super) fn surplus(
    selected: &Selected,
    failed: &BTreeSet<RefName>,
    from: &State,
    to: &State,
) -> Dropped {
    let mut surplus = Dropped::default();
    let in_namespace =
        |name: &RefName| selected.namespaces.iter().any(|space| space.contains(name));
    for (name, there) in &to.refs {
        if failed.contains(name) || !(selected.refs.contains(name) || in_namespace(name)) {
            continue;
        }
        let source = from.refs.get(name);
        for (number, version) in &there.versions {
            let mut known = source.iter().flat_map(|known| known.versions.values());
            if known.any(|known| is_same(known, version)) {
                continue;
            }
            let list = match version.pinned {
                true => &mut surplus.kept,
                false => &mut surplus.versions,
            };
            list.push((name.clone(), *number));
        }
    }
    surplus
}

/// Whether two versions are the same tree with the same times.
pub(super) fn is_same(one: &Version, other: &Version) -> bool {
    (one.root, one.times) == (other.root, other.times)
}

/// The refs of a namespace that have a version.
fn live<'s>(state: &'s State, namespace: &Namespace) -> Vec<&'s RefName> {
    let refs = state.refs.iter();
    refs.filter(|(name, known)| namespace.contains(name) && !known.versions.is_empty())
        .map(|(name, _)| name)
        .collect()
}

/// What is left of a plan: others may have dropped or pinned versions since it was made.
pub(super) fn still(planned: &Dropped, state: &State) -> Dropped {
    let mut left = Dropped {
        versions: Vec::new(),
        kept: planned.kept.clone(),
    };
    for (name, number) in &planned.versions {
        match state.version(name, Some(*number)) {
            Ok((_, version)) if version.pinned => left.kept.push((name.clone(), *number)),
            Ok(_) => left.versions.push((name.clone(), *number)),
            Err(_) => {}
        }
    }
    left
}
