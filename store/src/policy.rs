//! The policy of a store, and whether a namespace has room for the versions that a commit adds.
//!
//! Room is counted at exactly the state that the entry will make, so that two concurrent writers cannot both take the
//! last of it. Bytes that namespaces share count in each of them. The collector measures in the same way, so it never
//! takes back what a put was allowed.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{Change, Namespace, Policy, RefName, State, Version};
use crate::graph::reach::Reach;
use crate::id::CommitId;
use crate::index::Index;
use crate::read::Reader;
use crate::refs;
use crate::remedy::Remedy;
use crate::size::Size;
use crate::store::{Store, View};

/// Replaces the policy of the store by what `change` returns, and returns the old and the new one. An empty policy
/// means none: then each host follows its own configuration.
///
/// # Errors
/// The errors of `change`; then nothing is changed.
pub fn set(store: &Store, change: impl Fn(&Policy) -> Result<Policy>) -> Result<(Policy, Policy)> {
    let plan = |state: &State| Ok((state.policy.clone(), change(&state.policy)?));
    refs::commit(store, plan, |(before, after)| match before == after {
        true => Vec::new(),
        false => vec![Change::SetPolicy {
            policy: after.clone(),
        }],
    })
}

/// The policy that applies to a store in `state`: its own, or else that of this host.
fn in_force<'s>(store: &'s Store, state: &'s State) -> &'s Policy {
    match state.policy.is_empty() {
        true => store.local_policy(),
        false => &state.policy,
    }
}

/// How many stored bytes a namespace may take: the smallest of the quotas that apply to its refs.
///
/// # Errors
/// When the state cannot be read.
pub(crate) fn quota(store: &Store, state: &State, namespace: &Namespace) -> Result<Option<u64>> {
    let policy = in_force(store, state);
    let mut least: Option<u64> = None;
    for found in state.refs.heads(Some(namespace)) {
        if let Some(quota) = policy.quota(&found?.0) {
            least = Some(least.map_or(quota, |least| least.min(quota)));
        }
    }
    Ok(least)
}

/// Stored bytes that the namespace of `target` may take.
pub(crate) fn limit(store: &Store, state: &State, target: &RefName) -> Option<u64> {
    in_force(store, state).quota(target)
}

/// Namespaces without room for what a commit would add to them.
pub(crate) type Refused = BTreeMap<Namespace, Over>;

/// A quota, and what it would be exceeded by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over {
    quota: u64,
    used: u64,
    after: u64,
    /// Whether more bytes would have followed, so that `after` is a lower bound.
    is_least: bool,
}

impl Over {
    /// The error that says why `namespace` gets nothing.
    pub(crate) fn error(&self, namespace: &Namespace) -> Error {
        let Self {
            quota, used, after, ..
        } = *self;
        let least = if self.is_least { "at least " } else { "" };
        Error::new(
            ErrorKind::Denied,
            format!(
                "{namespace}: its quota is {}, it uses {}, and this adds {least}{}",
                Size(quota),
                Size(used),
                Size(after - used)
            ),
        )
        .hint(Remedy::DropOrRaiseQuota)
    }
}

/// The namespaces to which `changes` add a version that does not fit into their quotas.
///
/// # Errors
/// When a version cannot be read.
pub(crate) fn refused(
    store: &Store,
    state: &State,
    index: &Index,
    changes: &[Change],
) -> Result<Refused> {
    let mut refused = Refused::new();
    let quotas = quotas(in_force(store, state), changes);
    if quotas.is_empty() {
        return Ok(refused);
    }
    let after = after(store, state, index, changes)?;
    let reader = Reader::at(store, after.clone());
    for (namespace, quota) in quotas {
        let reach = Reach::new(&reader);
        each_version(state, &namespace, |version| reach.version(version))?;
        let used = reach.stored_bytes()?;
        each_version(&after.state, &namespace, |version| reach.version(version))?;
        if let Some(over) = over(quota, used, reach.stored_bytes()?) {
            refused.insert(namespace, over);
        }
    }
    Ok(refused)
}

/// The quota of `target`'s namespace and what the namespace takes, if it has a quota. A writer cannot publish more than
/// is left: what is new to the store is new to the namespace.
///
/// # Errors
/// When a version cannot be read.
pub(crate) fn room(store: &Store, view: &View, target: &RefName) -> Result<Option<Room>> {
    let Some(quota) = in_force(store, &view.state).quota(target) else {
        return Ok(None);
    };
    let namespace = target.namespace();
    let reader = Reader::at(store, view.clone());
    let reach = Reach::new(&reader);
    each_version(&view.state, &namespace, |version| reach.version(version))?;
    Ok(Some(Room {
        namespace,
        quota,
        used: reach.stored_bytes()?,
    }))
}

/// Fails when a put to `target` would not fit: one that stores `stored` new bytes and relies on the chunks marked in
/// `relied`. Chunks that the namespace already reaches add nothing.
///
/// # Errors
/// Denied, naming the namespace; when a version cannot be read.
pub(crate) fn check_dry_run(
    store: &Store,
    view: &View,
    target: &RefName,
    relied: &Index,
    stored: u64,
) -> Result<()> {
    let Some(quota) = in_force(store, &view.state).quota(target) else {
        return Ok(());
    };
    let namespace = target.namespace();
    let reader = Reader::at(store, view.clone());
    let reach = Reach::new(&reader);
    each_version(&view.state, &namespace, |version| reach.version(version))?;
    let used = reach.stored_bytes()?;
    relied.relied().try_for_each(|chunk| reach.also(&chunk?))?;
    let after = reach.stored_bytes()?.saturating_add(stored);
    over(quota, used, after).map_or(Ok(()), |over| Err(over.error(&namespace)))
}

/// What a namespace may take and takes.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    namespace: Namespace,
    quota: u64,
    used: u64,
}

impl Room {
    /// Fails when `stored` new bytes do not fit. More bytes may follow.
    ///
    /// # Errors
    /// Denied.
    pub(crate) fn check(&self, stored: u64) -> Result<()> {
        let after = self.used.saturating_add(stored);
        match over(self.quota, self.used, after) {
            Some(over) => Err(Over {
                is_least: true,
                ..over
            }
            .error(&self.namespace)),
            None => Ok(()),
        }
    }
}

/// The namespaces to which `changes` add a version, with their quotas.
fn quotas(policy: &Policy, changes: &[Change]) -> BTreeMap<Namespace, u64> {
    let mut quotas = BTreeMap::new();
    for change in changes {
        let Change::SetRef { name, .. } = change else {
            continue;
        };
        if let Some(quota) = policy.quota(name) {
            let least = quotas.entry(name.namespace()).or_insert(quota);
            *least = quota.min(*least);
        }
    }
    quotas
}

/// The state after `changes`, and its segments, which are uploaded already.
fn after(store: &Store, state: &State, index: &Index, changes: &[Change]) -> Result<View> {
    let mut after = state.clone();
    let who = store.host().who.clone();
    let now = jiff::Timestamp::UNIX_EPOCH;
    after.apply(&state.next(CommitId([0; 16]), now, who, changes.to_vec()))?;
    let index = store.open_index(&after, index)?;
    Ok(View {
        state: after,
        index,
    })
}

/// Calls `each` with every version of a namespace.
///
/// # Errors
/// When the state cannot be read, and what `each` says.
pub(crate) fn each_version(
    state: &State,
    namespace: &Namespace,
    mut each: impl FnMut(&Version) -> Result<()>,
) -> Result<()> {
    for found in state.refs.within(Some(namespace)) {
        found?.1.versions.values().try_for_each(&mut each)?;
    }
    Ok(())
}

/// Whether a namespace that uses so much is over its quota afterwards.
pub(crate) fn over(quota: u64, used: u64, after: u64) -> Option<Over> {
    // A namespace above its quota may still shrink or stay as it is.
    (after > quota && after > used).then_some(Over {
        quota,
        used,
        after,
        is_least: false,
    })
}
