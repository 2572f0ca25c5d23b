//! undo: restores the versions that were dropped last, if their bytes still exist.
//!
//! The source is the store itself, with the refs that it had before. Chunks in packs that a collector has condemned
//! since, but not deleted yet, are copied to new packs, like any chunk that a destination lacks.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};

use super::missing::is_its_own;
use super::remains::{Remains, collected};
use super::same::{is_same, stays_as_long};
use super::{Forgetful, RefStatus, ReplicateRequest, Selection, replicate_state};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{At, Change, LogEntry, RefName, State, Target, Version};
use crate::log;
use crate::progress::Progress;
use crate::refs;
use crate::remedy::Remedy;
use crate::store::Store;

/// How many entries back the log is searched.
const ENTRIES_MAX: u64 = 10_000;

/// The report of an undo.
#[derive(Debug, Serialize)]
pub struct UndoReport {
    /// The entry that dropped the versions.
    pub entry: u64,
    /// The time of that entry.
    pub time: jiff::Timestamp,
    /// The user who dropped them.
    pub user: String,
    /// The host where they were dropped.
    pub host: String,
    /// Restored versions, then versions that had stayed and are the newest again.
    pub restored: Vec<Restored>,
    /// Versions whose content the ref still has.
    #[serde(serialize_with = "versions")]
    pub there: Vec<(RefName, u64)>,
    /// What could not be restored, and why; the caller formats the errors.
    #[serde(skip)]
    pub failed: Vec<(RefName, u64, Error)>,
}

/// A version that was restored, or is the newest again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The ref.
    #[serde(rename = "ref")]
    pub name: RefName,
    /// The number that it had before.
    #[serde(rename = "from_version")]
    pub from: u64,
    /// Its new number; none after a dry run.
    #[serde(rename = "version", skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// Whether it was not dropped, but is the newest again.
    pub on_top: bool,
}

/// Serializes each as `REF@N`.
fn versions<S: Serializer>(
    versions: &[(RefName, u64)],
    out: S,
) -> std::result::Result<S::Ok, S::Error> {
    out.collect_seq(
        versions
            .iter()
            .map(|(name, number)| format!("{name}@{number}")),
    )
}

/// Restores the versions of `what` that were dropped last; without `what`, those of the last drop.
///
/// # Errors
/// Not found, when nothing was dropped lately.
pub fn undo(
    store: &Store,
    what: Option<&Target>,
    dry_run: bool,
    progress: &dyn Progress,
) -> Result<UndoReport> {
    let state = store.state()?;
    store.check_writable(&state)?;
    let (entry, dropped) = last_drop(store, &state, what)?;
    let before = store.clone().at(entry.number.saturating_sub(1));
    let was = before.readable_state()?;
    let mut report = UndoReport {
        entry: entry.number,
        time: entry.time,
        user: entry.who.user,
        host: entry.who.host,
        restored: Vec::new(),
        there: Vec::new(),
        failed: Vec::new(),
    };
    let mut missing = Vec::new();
    for (name, number) in &dropped {
        let (_, version) = was.version(name, Some(*number))?;
        let known = state.refs.get(name)?.unwrap_or_default();
        let is_it = |one: &Version| is_same(one, &version) && stays_as_long(one, &version);
        match known.versions.values().any(is_it) {
            true => report.there.push((name.clone(), *number)),
            false => missing.push((name.clone(), *number)),
        }
    }
    if !missing.is_empty() {
        let remains = Remains {
            before: &before,
            was: &was,
            now: &state,
        };
        bring(store, &remains, &missing, dry_run, progress, &mut report)?;
    }
    if !dry_run && report.failed.is_empty() {
        on_top(store, &was, &dropped, &mut report)?;
        stayed(&state, &store.state()?, &mut report)?;
    }
    Ok(report)
}

/// Reports versions that were put on top of restored ones, in the same entry.
fn stayed(before: &State, now: &State, report: &mut UndoReport) -> Result<()> {
    let back = report.restored.iter().filter(|one| !one.on_top);
    let names: BTreeSet<RefName> = back.map(|one| one.name.clone()).collect();
    for name in names {
        let (number, version) = now.version(&name, None)?;
        let is_it = |one: &Restored| one.name == name && one.to == Some(number);
        let is_told = report.restored.iter().any(is_it);
        let was = now.was(&name, &version);
        if let Some(was) = was.filter(|_| !is_told && number > before.refs.last(&name).unwrap_or(0))
        {
            report.restored.push(Restored {
                name,
                from: was.version,
                to: Some(number),
                on_top: true,
            });
        }
    }
    Ok(())
}

/// Brings versions back from all that is there of them. What a damaged pack of then holds may be live in another one,
/// so versions that fail are tried again with what is live.
fn bring(
    store: &Store,
    remains: &Remains<'_>,
    missing: &[(RefName, u64)],
    dry_run: bool,
    progress: &dyn Progress,
    report: &mut UndoReport,
) -> Result<()> {
    let ends = (remains.before, store);
    let failed = pass(ends, remains.all()?, missing, dry_run, progress, report)?;
    let (lacking, mut failed): (Vec<_>, Vec<_>) =
        (failed.into_iter()).partition(|(.., error)| is_its_own(error));
    if !lacking.is_empty() {
        let again: Vec<(RefName, u64)> = (lacking.iter())
            .map(|(name, number, _)| (name.clone(), *number))
            .collect();
        let live = remains.live(&store.state()?);
        let still = pass(ends, live, &again, dry_run, progress, report)?;
        for (name, number, error) in lacking {
            let mut still = still.iter();
            if still.any(|(one, from, _)| (one, *from) == (&name, number)) {
                let error = remains.why(&name, number, error)?;
                failed.push((name, number, error));
            }
        }
    }
    report.failed = failed;
    Ok(())
}

/// Copies versions of one state of the store, and returns those that failed.
fn pass(
    (before, store): (&Store, &Store),
    source: State,
    missing: &[(RefName, u64)],
    dry_run: bool,
    progress: &dyn Progress,
    report: &mut UndoReport,
) -> Result<Vec<(RefName, u64, Error)>> {
    let version =
        |(name, number): &(RefName, u64)| Selection::Version(name.clone(), At::Number(*number));
    let request = ReplicateRequest {
        dry_run,
        ..ReplicateRequest::new(missing.iter().map(version).collect())
    };
    let done = replicate_state(before, source, store, &request, &Forgetful, progress);
    let done = done.map_err(too_late)?;
    let mut failed = Vec::new();
    for outcome in done.refs {
        let from = outcome.from.unwrap_or_default();
        match outcome.status {
            RefStatus::Failed(error) => failed.push((outcome.name, from, error)),
            _ => report.restored.push(Restored {
                name: outcome.name,
                from,
                to: outcome.to,
                on_top: false,
            }),
        }
    }
    match done.stopped {
        Some(error) => Err(too_late(error)),
        None => Ok(failed),
    }
}

/// Makes the version that was the newest of a ref the newest again, even if an earlier undo was killed. A restored
/// version ranks as it did before.
fn on_top(
    store: &Store,
    was: &State,
    dropped: &[(RefName, u64)],
    report: &mut UndoReport,
) -> Result<()> {
    let state = store.state()?;
    let names: BTreeSet<&RefName> = dropped.iter().map(|(name, _)| name).collect();
    for name in names {
        let mut own = Vec::new();
        for (_, number) in dropped.iter().filter(|(one, _)| one == name) {
            own.push(was.version(name, Some(*number))?);
        }
        let is_own = |version: &Version| own.iter().any(|(_, one)| is_same(one, version));
        // What has the same content and was put since is another version, which counts as what it is.
        let is_back = |version: &Version| is_own(version) && state.was(name, version).is_some();
        let live = state.versions(name)?;
        let others = live.iter().filter(|(_, version)| !is_back(version));
        let others =
            others.map(|(number, version)| (state.ranked(name, *number, version), version));
        let own = own.iter();
        let own = own.map(|(number, version)| (was.ranked(name, *number, version), version));
        let ranked = own.chain(others).max_by_key(|(ranked, _)| ranked.clone());
        let Some((ranked, first)) = ranked else {
            continue;
        };
        let newest = live.last_key_value();
        if newest.is_some_and(|(_, version)| is_same(version, first)) {
            continue;
        }
        let mut there = live.iter().rev();
        if let Some((there, _)) = there.find(|(_, version)| is_same(version, first)) {
            let made = refs::put_on_top(store, name, (*there, (ranked.number, first)))?;
            report.restored.push(Restored {
                name: name.clone(),
                from: ranked.rank,
                to: Some(made),
                on_top: true,
            });
        }
    }
    Ok(())
}

/// Finds the last entry that drops versions, and selects those that are meant. What a rule dropped is meant only if it is
/// named.
fn last_drop(
    store: &Store,
    state: &State,
    what: Option<&Target>,
) -> Result<(LogEntry, Vec<(RefName, u64)>)> {
    let first = state.number.saturating_sub(ENTRIES_MAX).max(1);
    for number in (first..=state.number).rev() {
        store.host().check_stop()?;
        let Some(entry) = log::entry(store.remote().as_ref(), number)? else {
            continue;
        };
        if what.is_none() && entry.who.is_by_rule() {
            continue;
        }
        if let Some(remedy) = took_paths(&entry, state, what)? {
            let what = what.map_or_else(String::new, |what| format!("{what}: "));
            let told = format!("{what}the last `rm` took paths and dropped no version");
            return Err(Error::not_found(told).hint(remedy));
        }
        let drops = |change: &Change| match change {
            Change::DropRef { name, version } => Some((name.clone(), *version)),
            _ => None,
        };
        let mut meant: Vec<(RefName, u64)> = entry.changes.iter().filter_map(drops).collect();
        // A collector condemns packs in the entry in which it drops versions.
        if what.is_none() && meant.len() < entry.changes.len() {
            continue;
        }
        meant.retain(|(name, number)| is_meant(what, name, *number));
        if !meant.is_empty() {
            return Ok((entry, meant));
        }
    }
    let what = what.map_or_else(String::new, |what| format!("{what}: "));
    Err(Error::not_found(format!("{what}nothing was dropped lately")).hint(Remedy::List))
}

/// The way back, if an entry removed paths of what is meant: that made a version, which is still there, and dropped
/// none.
fn took_paths(entry: &LogEntry, state: &State, what: Option<&Target>) -> Result<Option<Remedy>> {
    for change in &entry.changes {
        let Change::SetRef {
            name,
            version,
            message,
            origin: None,
            ..
        } = change
        else {
            continue;
        };
        let is_it = message.starts_with(&format!("rm {name}")) && is_meant(what, name, *version);
        // What an earlier undo brought back was not removed just now.
        let is_new = |found: Version| state.was(name, &found).is_none();
        if is_it && state.refs.version(name, *version)?.is_some_and(is_new) {
            let (name, version) = (name.to_string(), *version);
            return Ok(Some(Remedy::TookPaths { name, version }));
        }
    }
    Ok(None)
}

fn is_meant(what: Option<&Target>, name: &RefName, number: u64) -> bool {
    match what {
        None => true,
        Some(Target::Namespace(namespace)) => name.namespace() == *namespace,
        Some(Target::Ref(spec)) => {
            let is_it = match spec.version {
                Some(At::Number(wanted)) => wanted == number,
                _ => true,
            };
            spec.name == *name && is_it
        }
    }
}

/// The error about objects that a collector deleted meanwhile.
fn too_late(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => collected(&error),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::format::{Content, Extra, RefState, Root, Sides, Who};

    fn name(last: &str) -> RefName {
        format!("team/t/{last}").parse().unwrap()
    }

    #[test]
    fn a_version_is_meant_by_its_number_and_a_ref_by_its_name() {
        let is_meant = |what: &str, one: &str, number| {
            is_meant(
                Some(&Target::parse(what.as_bytes()).unwrap()),
                &name(one),
                number,
            )
        };
        assert!(is_meant("team/t/r@2", "r", 2));
        assert!(!is_meant("team/t/r@2", "r", 3));
        assert!(!is_meant("team/t/r@2", "s", 2));
        assert!(is_meant("team/t/r", "r", 3));
        assert!(!is_meant("team/t/r", "s", 3));
        assert!(is_meant("team/t", "s", 3));
        assert!(!is_meant("team/u", "s", 3));
    }

    /// A state of refs whose newest version, number 5, was put on top in place of number 3.
    fn on_top_of(names: &[RefName]) -> State {
        let mut state = State::default();
        let version = Version {
            root: Root::File {
                content: Content::empty(),
                executable: false,
            },
            sides: Sides::default(),
            time: jiff::Timestamp::UNIX_EPOCH,
            who: Who::default(),
            message: String::new(),
            pinned: false,
            expires: None,
            origin: None,
            private: false,
            extra: Extra::new(),
        };
        let refs: BTreeMap<RefName, RefState> = (names.iter())
            .map(|name| {
                let back = state.coming_back(name, 3, &version);
                let known = RefState {
                    last: 5,
                    versions: BTreeMap::from([(4, version.clone()), (5, back)]),
                    extra: Extra::new(),
                };
                (name.clone(), known)
            })
            .collect();
        state.refs = refs.into();
        state
    }

    #[test]
    fn what_stays_on_top_is_told_once_for_each_ref() {
        let (one, other) = (name("r"), name("s"));
        let now = on_top_of(&[one.clone(), other.clone()]);
        let told = |restored: &[&RefName], on_top: &[(RefName, u64, u64)]| {
            let one = |name: &RefName, from, to, on_top| Restored {
                name: name.clone(),
                from,
                to: Some(to),
                on_top,
            };
            let back = restored.iter().map(|name| one(name, 2, 4, false));
            let top = on_top
                .iter()
                .map(|(name, from, to)| one(name, *from, *to, true));
            let mut report = UndoReport {
                entry: 1,
                time: jiff::Timestamp::UNIX_EPOCH,
                user: String::new(),
                host: String::new(),
                restored: back.chain(top).collect(),
                there: Vec::new(),
                failed: Vec::new(),
            };
            stayed(&State::default(), &now, &mut report).unwrap();
            let top = report.restored.into_iter().filter(|one| one.on_top);
            top.map(|one| (one.name, one.from, one.to.unwrap()))
                .collect::<Vec<_>>()
        };
        let both = [(one.clone(), 3, 5), (other.clone(), 3, 5)];
        assert_eq!(told(&[&one, &other], &[]), both);
        assert_eq!(told(&[&one, &other], &both[..1]), both);
        assert_eq!(told(&[&one], &both[..1]), both[..1]);
        let earlier = (one.clone(), 1, 4);
        let all = [earlier.clone(), both[0].clone()];
        assert_eq!(told(&[&one], std::slice::from_ref(&earlier)), all);
    }
}
