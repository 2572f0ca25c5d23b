//! Refs and their versions in the state, and how versions are dropped and pinned.
//!
//! Plans are pure: they map a state to the changes of one log entry. Nothing here touches chunks; chunks that only
//! dropped versions used are garbage from then on.

mod had;

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::format::{
    At, Change, Content, Id, LogEntry, Namespace, RefHead, RefName, RefSpec, State, Version,
    log_key,
};
use crate::remedy::Remedy;
use crate::store::Store;

/// Most characters by which a mistyped name may differ from the meant one.
const SLIPS_MAX: usize = 3;
/// Most names that a mistyped one is compared with.
const NAMES_COMPARED_MAX: usize = 10_000;
/// How many entries back the log is searched for dropped versions, and how many entries are requested at once.
const ENTRIES_MAX: u64 = 10_000;
const ENTRIES_AT_ONCE: u64 = 16;

/// The result of a drop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Versions that are dropped.
    pub versions: Vec<(RefName, u64)>,
    /// Versions of the namespace that stay because they are pinned.
    pub kept: Vec<(RefName, u64)>,
}

impl Dropped {
    /// The changes that drop the versions.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let drop = |(name, version): &(RefName, u64)| Change::DropRef {
            name: name.clone(),
            version: *version,
        };
        self.versions.iter().map(drop).collect()
    }
}

impl State {
    /// The live versions of a ref by number, at least one.
    ///
    /// # Errors
    /// Not found, saying what exists instead.
    pub fn versions(&self, name: &RefName) -> Result<BTreeMap<u64, Version>> {
        self.live_head(name)?;
        let known = self.refs.get(name)?;
        Ok(known.map(|known| known.versions).unwrap_or_default())
    }

    /// Returns the head of a ref with a live version.
    fn live_head(&self, name: &RefName) -> Result<RefHead> {
        let (what, hint) = match self.refs.head(name)? {
            None => (format!("{name}: no such ref"), self.instead_of(name)?),
            Some(head) if head.live == 0 => (
                format!("{name}: the ref was removed (last version: {})", head.last),
                Remedy::undo(name),
            ),
            Some(head) => return Ok(head),
        };
        let error = Error::not_found(what).of_missing(name.as_str());
        Err(self.not_found(error, || hint))
    }

    /// Adds a hint to `error`. If the log is damaged behind this state, the ref may exist there, so the error says so.
    fn not_found(&self, error: Error, hint: impl FnOnce() -> Remedy) -> Error {
        match &self.cut.0 {
            None => error.hint(hint()),
            Some(damage) => Error::corrupt(format!(
                "{error} in what can be read of the log, which is damaged: {damage}"
            ))
            .hint(Remedy::RepairLog),
        }
    }

    /// Splits `name` into an existing ref and the rest, for somebody who wrote `/` instead of `:`.
    fn ref_above(&self, name: &RefName) -> Result<Option<(RefName, String)>> {
        let text = name.as_str();
        for (at, _) in text.match_indices('/').rev() {
            let (Some(above), Some(path)) = (text.get(..at), text.get(at + 1..)) else {
                continue;
            };
            let Ok(above) = above.parse::<RefName>() else {
                continue;
            };
            if self.refs.head(&above)?.is_some_and(|head| head.live > 0) {
                return Ok(Some((above, path.to_owned())));
            }
        }
        Ok(None)
    }

    /// The error for a namespace without a live version.
    pub fn no_namespace(&self, namespace: &Namespace) -> Error {
        let error = Error::not_found(format!("{namespace}: no such namespace"));
        // All that it had was removed.
        if self.refs.heads(Some(namespace)).next().is_some() {
            return self.not_found(error, || Remedy::undo(namespace));
        }
        let known = self.refs.sums().keys().map(Namespace::as_str);
        let near = nearest(namespace.as_str(), known).map(str::to_owned);
        let hint = near.map_or(Remedy::ListNamespaces, |near| Remedy::NearNamespace {
            near,
        });
        self.not_found(error, || hint)
    }

    /// The hint for somebody who named a ref that does not exist.
    fn instead_of(&self, name: &RefName) -> Result<Remedy> {
        if let Some((known, path)) = self.ref_above(name)? {
            let text = format!("{known} is a ref; a path inside of it is spelled {known}:{path}");
            return Ok(text.into());
        }
        let namespace = name.namespace();
        let is_there = self.refs.sums().contains_key(&namespace);
        // Refs of the same namespace come first: they are the likely ones if there are too many to compare with all.
        for within in [is_there.then_some(&namespace), None] {
            let live = self.live(within)?;
            if let Some(near) = nearest(name.as_str(), live.iter().map(RefName::as_str)) {
                return Ok(format!("did you mean {near}?").into());
            }
        }
        if is_there {
            return Ok(Remedy::ListBelow {
                place: namespace.to_string(),
            });
        }
        let known = self.refs.sums().keys().map(Namespace::as_str);
        Ok(match nearest(namespace.as_str(), known) {
            Some(near) => Remedy::NearNamespaceOfRef {
                namespace: namespace.to_string(),
                near: near.to_owned(),
            },
            None => Remedy::NoNamespaceOfRef {
                namespace: namespace.to_string(),
            },
        })
    }

    /// Refs with a live version, at most as many as a mistyped name is compared with.
    fn live(&self, namespace: Option<&Namespace>) -> Result<Vec<RefName>> {
        let heads = self.refs.heads(namespace);
        let is_live = |found: &Result<(RefName, RefHead)>| {
            found.as_ref().map_or(true, |(_, head)| head.live > 0)
        };
        let names = heads.filter(is_live).map(|found| Ok(found?.0));
        names.take(NAMES_COMPARED_MAX).collect()
    }

    /// Finds a version whose root is this tree or file; looks at `likely` first.
    pub(crate) fn with_root(
        &self,
        root: &Content,
        likely: Option<(RefName, u64)>,
    ) -> Result<Option<(RefName, u64, Version)>> {
        if let Some((name, number)) = likely
            && let Some(version) = self.refs.version(&name, number)?
            && version.root.content() == root
        {
            return Ok(Some((name, number, version)));
        }
        for found in self.refs.iter() {
            let (name, head) = found?;
            let is_of = |(_, version): &(u64, Version)| version.root.content() == root;
            if let Some((number, version)) = head.versions.into_iter().find(is_of) {
                return Ok(Some((name, number, version)));
            }
        }
        Ok(None)
    }

    /// Returns a version of a ref and its number. Without a number: the newest version.
    ///
    /// # Errors
    /// Not found, saying what exists instead.
    pub fn version(&self, name: &RefName, number: Option<u64>) -> Result<(u64, Version)> {
        let head = self.live_head(name)?;
        let number = number.unwrap_or(head.newest);
        if let Some(version) = self.refs.version(name, number)? {
            return Ok((number, version));
        }
        let error = Error::not_found(format!("{name}@{number}: no such version"));
        Err(match (1..=head.last).contains(&number) {
            // The number is used up: the version cannot be in the damaged part of the log.
            true => error.hint(Remedy::undo(format_args!("{name}@{number}"))),
            false => self.not_found(error, || Remedy::ListVersions {
                name: name.to_string(),
            }),
        })
    }
}

/// The known name that `wanted` is most likely a misspelling of.
fn nearest<'k>(wanted: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let max = wanted.len().div_ceil(8).min(SLIPS_MAX);
    let is_alike = |known: &&str| known.len().abs_diff(wanted.len()) <= max;
    let alike = known.take(NAMES_COMPARED_MAX).filter(is_alike);
    let near = alike.map(|known| (strsim::damerau_levenshtein(wanted, known), known));
    let nearest = near.filter(|(far, _)| *far <= max).min();
    nearest.map(|(_, known)| known)
}

impl State {
    /// Returns a version of a ref and its number. Without `at`: the newest version. If several versions, which differ
    /// only in times or messages, have the same id: the newest of them.
    ///
    /// # Errors
    /// Not found, saying what exists instead; invalid input, when several ids begin with the given one.
    pub fn at(&self, name: &RefName, at: Option<&At>) -> Result<(u64, Version)> {
        let id = match at {
            None | Some(At::Latest) => return self.version(name, None),
            Some(At::Number(number)) => return self.version(name, Some(*number)),
            Some(At::Id(id)) => id,
        };
        let versions = self.versions(name)?.into_iter().rev();
        let mut found = versions.filter(|(_, version)| id.is_of(&version.root));
        let Some((number, version)) = found.next() else {
            let error = Error::not_found(format!("{name}@{id}: no such version"));
            let name = name.to_string();
            return Err(self.not_found(error, || Remedy::ListVersions { name }));
        };
        match found.find(|(_, other)| other.id() != version.id()) {
            None => Ok((number, version)),
            Some((other, _)) => Err(Error::invalid(format!(
                "{name}@{id}: is the beginning of several ids, of versions {number} and {other} for two"
            ))
            .hint("name more digits of it, or the number of the version")),
        }
    }

    /// Returns the number of the version that `at` names, if it names one. Checks that a version exists in any case.
    ///
    /// # Errors
    /// As [`Self::at`].
    pub fn number(&self, name: &RefName, at: Option<&At>) -> Result<Option<u64>> {
        let (number, _) = self.at(name, at)?;
        Ok(at.map(|_| number))
    }
}

/// Returns the number of the version that `spec` names, if it names one. Numbers are never used again, so the number
/// means the same version later.
///
/// # Errors
/// As [`State::at`], for an id.
pub fn number(store: &Store, spec: &RefSpec) -> Result<Option<u64>> {
    match &spec.version {
        None => Ok(None),
        Some(At::Number(number)) => Ok(Some(*number)),
        Some(at) => store.state()?.number(&spec.name, Some(at)),
    }
}

/// The message and id of each version of a ref above version `number` that is gone, oldest first. Only the log has
/// them; it is searched back to the entries that made these versions.
///
/// # Errors
/// When the log cannot be read.
pub fn gone_after(store: &Store, name: &RefName, number: u64) -> Result<Vec<(String, Id)>> {
    let state = store.state()?;
    let mut gone = BTreeMap::new();
    let mut oldest = state.refs.last(name)? + 1;
    let mut end = state.number;
    let first = end.saturating_sub(ENTRIES_MAX).max(1);
    while oldest > number + 1 && end >= first {
        store.host().check_stop()?;
        let begin = end.saturating_sub(ENTRIES_AT_ONCE - 1).max(first);
        let keys: Vec<String> = (begin..=end).map(log_key).collect();
        for (at, bytes) in (begin..=end).zip(store.remote().get_run(&keys)?) {
            for change in LogEntry::decode_alone(at, &bytes)?.0.changes {
                if let Change::SetRef {
                    name: set,
                    version,
                    root,
                    message,
                    ..
                } = change
                    && set == *name
                {
                    oldest = oldest.min(version);
                    gone.insert(version, (message, Id::of(&root)));
                }
            }
        }
        end = begin - 1;
    }
    let mut missing = Vec::new();
    for (version, said) in gone.split_off(&(number + 1)) {
        if state.refs.version(name, version)?.is_none() {
            missing.push(said);
        }
    }
    Ok(missing)
}

/// Drops one version of a ref, or all of them.
///
/// # Errors
/// Not found, when there is no such version; conflict, when one is pinned: then nothing is dropped.
pub fn drop_versions(store: &Store, name: &RefName, number: Option<u64>) -> Result<Dropped> {
    commit(
        store,
        |state| plan_drop_versions(state, name, number),
        Dropped::changes,
    )
}

/// Drops versions of a ref because a rule says so.
///
/// # Errors
/// As [`drop_versions`].
pub fn drop_surplus(store: &Store, name: &RefName, numbers: &[u64]) -> Result<()> {
    let store = store.clone().by_rule();
    for number in numbers {
        drop_versions(&store, name, Some(*number))?;
    }
    Ok(())
}

/// Drops every version of every ref of a namespace, except the pinned ones.
///
/// # Errors
/// Not found, when the namespace has no version.
pub fn drop_namespace(store: &Store, namespace: &Namespace) -> Result<Dropped> {
    commit(
        store,
        |state| plan_drop_namespace(state, namespace),
        Dropped::changes,
    )
}

/// Makes a version the newest again, under a new number, and returns that. `was` is the version that the new one
/// continues: its number and itself.
///
/// # Errors
/// Not found, when there is no such version.
pub(crate) fn put_on_top(
    store: &Store,
    name: &RefName,
    (number, was): (u64, (u64, &Version)),
) -> Result<u64> {
    let plan = |state: &State| {
        let (_, version) = state.version(name, Some(number))?;
        let back = Version {
            extra: state.coming_back(name, was.0, was.1).extra,
            ..version
        };
        Ok((back, state.refs.last(name)? + 1))
    };
    // A live version's bytes exist, so nothing has to be checked.
    let changes = |(version, made): &(Version, u64)| vec![set(name, *made, version)];
    Ok(commit(store, plan, changes)?.1)
}

/// The change that sets `version` under this number. Its bytes must be in the store.
pub(crate) fn set(name: &RefName, number: u64, version: &Version) -> Change {
    Change::SetRef {
        name: name.clone(),
        version: number,
        root: version.root,
        sides: version.sides.clone(),
        message: version.message.clone(),
        expires: version.expires,
        origin: version.origin.clone(),
        ends: Vec::new(),
        private: version.private,
        extra: version.extra.clone(),
    }
}

/// Pins a version or ends its pin, and returns its number. Without `number`: the newest version.
///
/// # Errors
/// Not found, when there is no such version.
pub fn pin(store: &Store, name: &RefName, number: Option<u64>, pinned: bool) -> Result<u64> {
    let plan = |state: &State| {
        state
            .version(name, number)
            .map(|(number, found)| (number, found.pinned != pinned))
    };
    let changes = |(number, changes): &(u64, bool)| match changes {
        true => vec![Change::Pin {
            name: name.clone(),
            version: *number,
            pinned,
        }],
        false => Vec::new(),
    };
    Ok(commit(store, plan, changes)?.0)
}

/// What [`drop_versions`] would drop.
///
/// # Errors
/// As there.
pub fn plan_drop_versions(state: &State, name: &RefName, number: Option<u64>) -> Result<Dropped> {
    let chosen = match number {
        Some(number) => vec![state.version(name, Some(number))?],
        None => state.versions(name)?.into_iter().collect(),
    };
    if let Some((number, _)) = chosen.iter().find(|(_, version)| version.pinned) {
        return Err(Error::conflict(format!(
            "{name}@{number}: it is pinned; nothing was dropped"
        ))
        .hint(Remedy::Unpin {
            name: name.to_string(),
            number: *number,
        }));
    }
    let versions = chosen
        .into_iter()
        .map(|(number, _)| (name.clone(), number))
        .collect();
    Ok(Dropped {
        versions,
        kept: Vec::new(),
    })
}

/// What [`drop_namespace`] would drop.
///
/// # Errors
/// As there.
pub fn plan_drop_namespace(state: &State, namespace: &Namespace) -> Result<Dropped> {
    let mut dropped = Dropped::default();
    for found in state.refs.within(Some(namespace)) {
        let (name, found) = found?;
        for (number, version) in &found.versions {
            let list = if version.pinned {
                &mut dropped.kept
            } else {
                &mut dropped.versions
            };
            list.push((name.clone(), *number));
        }
    }
    if dropped == Dropped::default() {
        return Err(state.no_namespace(namespace));
    }
    Ok(dropped)
}

/// Commits one log entry with the changes that `plan` finds in the newest state. Plans again after every lost race.
///
/// If a checkpoint was due and could not be written, that is only a warning: the next one makes up for it.
pub(crate) fn commit<P>(
    store: &Store,
    plan: impl Fn(&State) -> Result<P>,
    changes: impl Fn(&P) -> Vec<Change>,
) -> Result<P> {
    let mut state = store.state()?;
    store.check_writable(&state)?;
    let mut planned = plan(&state)?;
    let committed = store.commit(&mut state, &mut |state, _| {
        planned = plan(state)?;
        Ok(changes(&planned))
    })?;
    if let Some(error) = committed.and_then(|committed| committed.checkpoint) {
        store.warn(
            error.within("a checkpoint could not be written, so that the store opens more slowly"),
        );
    }
    Ok(planned)
}
