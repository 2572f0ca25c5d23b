//! What a run drops at the destination, and when it refuses to. Pure.
//!
//! The destination may hold the only copy of what another store once had. So nothing is dropped if the versions did not
//! come from this source, or if the source has lost most of what it had.

use std::collections::{BTreeMap, BTreeSet};

use super::same::is_same;
use super::select::{Ends, Selected};
use super::{Delete, RefStatus};
use crate::error::{Error, Result};
use crate::format::{Namespace, RefName, State};
use crate::refs::Dropped;
use crate::remedy::Remedy;

/// Most versions that a refusal names; further ones are counted.
const NAMED_MAX: usize = 10;

/// What only the destination has of the selected refs.
#[derive(Debug, Default)]
pub(super) struct Surplus {
    /// Versions to drop, and pinned versions that stay.
    pub(super) dropped: Dropped,
    /// Versions that stay because they were first put at the destination.
    pub(super) own: Vec<(RefName, u64)>,
}

/// The versions of selected refs that only the destination has: those to drop, and those that stay. Nothing of a ref in
/// `failed` is dropped.
pub(super) fn surplus(
    delete: Delete,
    selected: &Selected,
    failed: &BTreeSet<RefName>,
    from: &State,
    to: &State,
) -> Result<Surplus> {
    let mut surplus = Surplus::default();
    let in_namespace =
        |name: &RefName| selected.namespaces.iter().any(|space| space.contains(name));
    for found in to.refs.heads(None) {
        let (name, _) = found?;
        if failed.contains(&name) || !(selected.refs.contains(&name) || in_namespace(&name)) {
            continue;
        }
        let source = from.refs.get(&name)?;
        let there = to.refs.get(&name)?.unwrap_or_default();
        for (number, version) in &there.versions {
            let mut known = source.iter().flat_map(|known| known.versions.values());
            if known.any(|known| is_same(known, version)) {
                continue;
            }
            let is_own = version.origin.is_none() && delete != Delete::All;
            let list = match (version.pinned, is_own) {
                (true, _) => &mut surplus.dropped.kept,
                (false, true) => &mut surplus.own,
                (false, false) => &mut surplus.dropped.versions,
            };
            list.push((name.clone(), *number));
        }
    }
    Ok(surplus)
}

/// What is left of a plan: others may have dropped or pinned versions since then.
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

/// Checks whether the planned versions may be dropped; `to` is the destination before the run, and `brought` are the
/// refs of the versions that the run adds.
///
/// # Errors
/// Conflict: when the source is not that of the last run; when the versions came from another source; when the source
/// was restored from an older copy, which never had them; when more than half of what the destination has of a
/// namespace, or of a ref that was requested by name, would be dropped.
pub(super) fn check<'n>(
    delete: Delete,
    ends: Ends,
    planned: &Dropped,
    (from, to): (&State, &State),
    selected: &Selected,
    brought: impl Iterator<Item = &'n RefName>,
) -> Result<()> {
    let Delete::Surplus { last_source } = delete else {
        return Ok(());
    };
    if let Some(last) = last_source.filter(|last| *last != ends.from) {
        let what = format!(
            "the source is store {}, and the last run took from store {last}",
            ends.from
        );
        return Err(refusal(&what, &planned.versions));
    }
    let (mut foreign, mut unknown) = (Vec::new(), Vec::new());
    for going in &planned.versions {
        let version = to.version(&going.0, Some(going.1)).ok();
        let Some(origin) = version.and_then(|(_, version)| version.origin) else {
            continue;
        };
        if ![ends.from, ends.to].contains(&origin.source()) {
            foreign.push(going.clone());
        }
        if origin.store == ends.from && origin.version > from.refs.last(&origin.name)? {
            unknown.push(going.clone());
        }
    }
    if !foreign.is_empty() {
        let what = format!(
            "the source is store {}, and these versions came from another store",
            ends.from
        );
        return Err(refusal(&what, &foreign));
    }
    if !unknown.is_empty() {
        let what = "the source never had these versions, which came from it: it was restored from an older copy";
        return Err(refusal(what, &unknown));
    }
    match emptied(planned, to, selected, brought)? {
        Some((whole, going, all)) => Err(refusal(
            &format!("{going} of the {all} versions that {whole} has there would go"),
            &planned.versions,
        )),
        None => Ok(()),
    }
}

/// The unit of counting: a ref that was requested by name, otherwise a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whole {
    Ref(RefName),
    Namespace(Namespace),
}

impl Whole {
    fn of(name: &RefName, selected: &Selected) -> Self {
        match selected.refs.contains(name) {
            true => Self::Ref(name.clone()),
            false => Self::Namespace(name.namespace()),
        }
    }

    /// The number of its versions in `state`.
    fn versions(&self, state: &State) -> Result<usize> {
        let versions = match self {
            Self::Ref(name) => state.refs.head(name)?.map_or(0, |head| head.live),
            Self::Namespace(namespace) => {
                let sums = state.refs.sums();
                sums.get(namespace).map_or(0, |sums| sums.versions)
            }
        };
        Ok(usize::try_from(versions).unwrap_or(usize::MAX))
    }
}

impl std::fmt::Display for Whole {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ref(name) => name.fmt(formatter),
            Self::Namespace(namespace) => namespace.fmt(formatter),
        }
    }
}

/// What would lose more than half of its versions: how many, and of how many.
fn emptied<'n>(
    planned: &Dropped,
    to: &State,
    selected: &Selected,
    brought: impl Iterator<Item = &'n RefName>,
) -> Result<Option<(Whole, usize, usize)>> {
    // Numbers of versions to drop and to add.
    let mut counts: BTreeMap<Whole, (usize, usize)> = BTreeMap::new();
    for (name, _) in &planned.versions {
        counts.entry(Whole::of(name, selected)).or_default().0 += 1;
    }
    for name in brought {
        if let Some((_, come)) = counts.get_mut(&Whole::of(name, selected)) {
            *come += 1;
        }
    }
    for (whole, (going, come)) in counts {
        let all = whole.versions(to)?.saturating_add(come);
        if going * 2 > all {
            return Ok(Some((whole, going, all)));
        }
    }
    Ok(None)
}

fn refusal(what: &str, versions: &[(RefName, u64)]) -> Error {
    let named = versions.iter().take(NAMED_MAX);
    let mut named: Vec<String> = named.map(|(name, at)| format!("{name}@{at}")).collect();
    if let Some(more) = versions
        .len()
        .checked_sub(NAMED_MAX)
        .filter(|more| *more > 0)
    {
        named.push(format!("and {more} more"));
    }
    let named = match named.is_empty() {
        true => String::new(),
        false => format!(": {}", named.join(", ")),
    };
    Error::conflict(format!("nothing is dropped, since {what}{named}")).hint(Remedy::DeleteAll)
}

impl Delete {
    /// Whether anything may be dropped.
    pub fn drops(self) -> bool {
        self != Self::Nothing
    }
}

impl Selected {
    /// The refs that failed before anything was done.
    pub(super) fn failed(&self) -> BTreeSet<RefName> {
        let failed = self.settled.iter();
        failed
            .filter(|outcome| matches!(outcome.status, RefStatus::Failed(_)))
            .map(|outcome| outcome.name.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Content, Extra, Origin, RefState, Root, Sides, Version, Who};
    use crate::id::StoreId;

    const FROM: StoreId = StoreId([1; 16]);
    const TO: StoreId = StoreId([2; 16]);
    const OTHER: StoreId = StoreId([3; 16]);
    const ENDS: Ends = Ends { from: FROM, to: TO };
    const SURPLUS: Delete = Delete::Surplus { last_source: None };

    fn name() -> RefName {
        "team/t/r".parse().unwrap()
    }

    fn version(source: Option<StoreId>) -> Version {
        let origin = source.map(|store| Origin {
            store,
            name: name(),
            version: 1,
            time: jiff::Timestamp::UNIX_EPOCH,
            who: Who::default(),
            via: None,
        });
        Version {
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
            origin: origin.map(Box::new),
            private: false,
            extra: Extra::new(),
        }
    }

    /// A state with one ref, whose versions came from these stores.
    fn state(sources: &[Option<StoreId>]) -> State {
        let known = RefState {
            last: sources.len() as u64,
            versions: (1..)
                .zip(sources.iter().map(|from| version(*from)))
                .collect(),
            extra: Extra::new(),
        };
        State {
            refs: BTreeMap::from([(name(), known)]).into(),
            ..State::default()
        }
    }

    fn plan(numbers: &[u64]) -> Dropped {
        Dropped {
            versions: numbers.iter().map(|number| (name(), *number)).collect(),
            kept: Vec::new(),
        }
    }

    /// Checks a run that adds no versions.
    fn checked(delete: Delete, numbers: &[u64], states: (&State, &State)) -> Result<()> {
        let (planned, selected) = (plan(numbers), Selected::default());
        check(
            delete,
            ENDS,
            &planned,
            states,
            &selected,
            std::iter::empty(),
        )
    }

    #[test]
    fn a_version_that_was_pinned_since_the_plan_stays() {
        let mut now = state(&[None, None, None]);
        let mut known = now.refs.get(&name()).unwrap().unwrap();
        known.versions.get_mut(&1).unwrap().pinned = true;
        known.versions.remove(&2);
        now.refs = BTreeMap::from([(name(), known)]).into();
        let left = still(&plan(&[1, 2, 3]), &now);
        assert_eq!(left.versions, [(name(), 3)]);
        assert_eq!(left.kept, [(name(), 1)]);
    }

    #[test]
    fn more_than_half_of_a_namespace_is_refused_and_half_of_it_is_not() {
        let there = state(&[None, None, None, None]);
        let none: [RefName; 0] = [];
        let tried = |numbers, brought: &[RefName]| {
            check(
                SURPLUS,
                ENDS,
                &plan(numbers),
                (&there, &there),
                &Selected::default(),
                brought.iter(),
            )
        };
        tried(&[1, 2], &none).unwrap();
        let error = tried(&[1, 2, 3], &none).unwrap_err();
        assert_eq!(
            error.to_string(),
            "nothing is dropped, since 3 of the 4 versions that team/t has there would go: \
             team/t/r@1, team/t/r@2, team/t/r@3"
        );
        // Added versions count, too: every night, a newest version replaces the one before.
        tried(&[1, 2, 3], &[name(), name()]).unwrap();
        check(
            Delete::All,
            ENDS,
            &plan(&[1, 2, 3, 4]),
            (&there, &there),
            &Selected::default(),
            none.iter(),
        )
        .unwrap();
    }

    #[test]
    fn a_ref_that_was_named_is_counted_by_itself() {
        let mut there = state(&[None, None, None, None]);
        let large: RefName = "team/t/large".parse().unwrap();
        let mut refs = BTreeMap::new();
        for (name, of) in [(name(), 4), (large.clone(), 90)] {
            let of = state(&vec![None; of]).refs.get(&self::name()).unwrap();
            refs.insert(name, of.unwrap());
        }
        there.refs = refs.into();
        let named = Selected {
            refs: BTreeSet::from([name()]),
            ..Selected::default()
        };
        let whole = Selected {
            namespaces: vec![name().namespace()],
            ..Selected::default()
        };
        let tried = |selected: &Selected, brought: &[RefName]| {
            let planned = plan(&[1, 2, 3]);
            check(
                SURPLUS,
                ENDS,
                &planned,
                (&there, &there),
                selected,
                brought.iter(),
            )
        };
        tried(&whole, &[]).unwrap();
        let error = tried(&named, &[]).unwrap_err();
        let expected = "3 of the 4 versions that team/t/r has there would go";
        assert!(error.to_string().contains(expected), "{error}");
        // Versions added to another ref do not make up for dropped ones.
        tried(&named, &[large.clone(), large]).unwrap_err();
        tried(&named, &[name(), name()]).unwrap();
    }

    #[test]
    fn a_refusal_names_ten_versions_and_counts_the_others() {
        let ends = [
            (10, "@9, team/t/r@10"),
            (11, "@10, and 1 more"),
            (12, "@10, and 2 more"),
        ];
        for (count, end) in ends {
            let versions: Vec<_> = (1..=count).map(|number| (name(), number)).collect();
            let error = refusal("so", &versions);
            assert!(error.to_string().ends_with(end), "{error}");
        }
    }

    #[test]
    fn what_came_from_another_store_is_not_dropped() {
        let there = state(&[Some(FROM), Some(OTHER), None, Some(TO)]);
        let tried = |delete, numbers| checked(delete, numbers, (&there, &there));
        tried(SURPLUS, &[1]).unwrap();
        tried(SURPLUS, &[3, 4]).unwrap();
        let error = tried(SURPLUS, &[1, 2]).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Conflict);
        assert!(
            error.to_string().ends_with("another store: team/t/r@2"),
            "{error}"
        );
        tried(Delete::All, &[1, 2]).unwrap();
    }

    #[test]
    fn what_the_source_had_and_does_not_know_of_any_more_is_not_dropped() {
        let there = state(&[Some(FROM), Some(FROM), None, None]);
        let tried = |from: &State, delete| checked(delete, &[1, 2], (from, &there));
        tried(&state(&[None]), SURPLUS).unwrap();
        let error = tried(&state(&[]), SURPLUS).unwrap_err();
        assert!(error.to_string().contains("from an older copy"), "{error}");
        tried(&state(&[]), Delete::All).unwrap();
    }

    #[test]
    fn another_source_than_last_time_drops_nothing() {
        let there = state(&[None, None]);
        let last = |store| Delete::Surplus {
            last_source: Some(store),
        };
        checked(last(FROM), &[1], (&there, &there)).unwrap();
        let error = checked(last(OTHER), &[1], (&there, &there)).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("the last run took from store 0303"),
            "{error}"
        );
        // Refused even if nothing would be dropped: otherwise this source would count as the last one in the next run.
        checked(last(OTHER), &[], (&there, &there)).unwrap_err();
    }
}
