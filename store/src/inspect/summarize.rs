//! summarize: the space that a namespace or a ref takes, exact in spite of deduplication.
//!
//! Anything that cannot be read is an error, because an incomplete number would be wrong.

use std::sync::Arc;

use super::deltas::Deltas;
use crate::error::Result;
use crate::format::{Namespace, RefName, Root, State, Target, Version};
use crate::graph::reach::Reach;
use crate::graph::shares::{Share, Sum, Tally};
use crate::read::Reader;
use crate::store::View;

/// Contents and space of a namespace or a ref.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Refs with a live version.
    pub refs: u64,
    /// Their live versions, or the version that was named.
    pub versions: u64,
    /// Entries of all kinds in the newest version of each ref.
    pub entries: u64,
    /// Bytes of all files in the newest version of each ref.
    pub bytes: u64,
    /// Bytes of all files in all these versions, as if each were stored whole.
    pub version_bytes: u64,
    /// Chunks that nothing else in the store needs: the space that deleting it would free eventually.
    pub unique: Share,
    /// Chunks that other refs, or other versions, need as well.
    pub shared: Share,
    /// Chunks in deltas, if there are any.
    #[serde(skip_serializing_if = "Deltas::is_none")]
    pub deltas: Deltas,
}

/// The space of one ref compared with all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefShares {
    /// The ref.
    pub name: RefName,
    /// Chunks that no other ref needs.
    pub unique: Share,
    /// Chunks that other refs need as well.
    pub shared: Share,
}

/// Summarizes `target`: a namespace, all versions of a ref, or one version. Ignores a path in the target.
///
/// # Errors
/// Not found, when there is nothing of that name; not found and corrupt as for [`Reader`].
pub fn summarize(reader: &Reader<'_>, target: &Target) -> Result<Summary> {
    let view = reader.view();
    let own = own(&view.state, target)?;
    let mine = Reach::among(reader, view.clone());
    own.iter()
        .try_for_each(|(_, _, version)| mine.version(version))?;
    let theirs = theirs(reader, &view, &own)?;
    summed(&view, &own, &mine, &theirs)
}

/// Summarizes a namespace, and the space of each of its refs, by name. Walks each ref separately, so metadata that
/// several refs share is read once for each.
///
/// # Errors
/// As for [`summarize`].
pub fn summarize_refs(
    reader: &Reader<'_>,
    namespace: &Namespace,
) -> Result<(Summary, Vec<RefShares>)> {
    let view = reader.view();
    let own = own(&view.state, &Target::Namespace(namespace.clone()))?;
    let mine = Reach::among(reader, view.clone());
    let mut tally = Tally::new(&view.index);
    let mut names = Vec::new();
    for versions in own.chunk_by(|(one, ..), (next, ..)| one == next) {
        let one = Reach::among(reader, view.clone());
        versions
            .iter()
            .try_for_each(|(_, _, version)| one.version(version))?;
        tally.add(one.chunks())?;
        mine.add(&one);
        names.extend(versions.first().map(|(name, ..)| name.clone()));
    }
    let theirs = theirs(reader, &view, &own)?;
    // All other refs together are one more owner.
    tally.add(theirs.chunks())?;
    let refs = names.into_iter().zip(tally.shares()?);
    let refs = refs.map(|(name, (unique, shared))| RefShares {
        name,
        unique,
        shared,
    });
    Ok((summed(&view, &own, &mine, &theirs)?, refs.collect()))
}

/// Returns what all other versions reach.
fn theirs<'r>(reader: &'r Reader<'r>, view: &Arc<View>, own: &[Owned]) -> Result<Reach<'r>> {
    let theirs = Reach::among(reader, view.clone());
    each_other(&view.state, own, &mut |version| theirs.version(version))?;
    Ok(theirs)
}

fn summed(view: &View, own: &[Owned], mine: &Reach<'_>, theirs: &Reach<'_>) -> Result<Summary> {
    let mut summary = totals(own);
    let index = &view.index;
    let (mut shared, mut unique) = (Sum::default(), Sum::default());
    for at in mine.chunks().positions() {
        let (_, location) = index.at(at)?;
        match theirs.chunks().has(at) {
            true => shared.add(&location),
            false => unique.add(&location),
        }
    }
    summary.shared = shared.share();
    summary.unique = unique.share();
    let has_version = |at| mine.has_itself(at) || theirs.has_itself(at);
    let deltas = Deltas::among(
        index,
        mine.chunks().positions(),
        Some(&has_version),
        &|at| theirs.chunks().has(at),
    )?;
    summary.deltas = match deltas.chunks.chunks {
        0 => Deltas::default(),
        _ => deltas,
    };
    Ok(summary)
}

/// A version of a ref and its number.
type Owned = (RefName, u64, Version);

/// Returns the versions that `target` names, sorted.
fn own(state: &State, target: &Target) -> Result<Vec<Owned>> {
    let (namespace, versions) = match target {
        Target::Namespace(namespace) => {
            let mut own = Vec::new();
            for found in state.refs.within(Some(namespace)) {
                let (name, known) = found?;
                let versions = known.versions.into_iter();
                own.extend(versions.map(|(number, version)| (name.clone(), number, version)));
            }
            (namespace.clone(), own)
        }
        Target::Ref(spec) => {
            let named = state.number(&spec.name, spec.version.as_ref())?;
            let versions = state.versions(&spec.name)?.into_iter();
            let is_own = |(number, _): &(u64, Version)| named.is_none_or(|one| one == *number);
            let own = versions.filter(is_own);
            let own = own.map(|(number, version)| (spec.name.clone(), number, version));
            (spec.name.namespace(), own.collect())
        }
    };
    match versions.is_empty() {
        true => Err(state.no_namespace(&namespace)),
        false => Ok(versions),
    }
}

/// Calls `each` with all other versions.
fn each_other(
    state: &State,
    own: &[Owned],
    each: &mut dyn FnMut(&Version) -> Result<()>,
) -> Result<()> {
    for found in state.refs.iter() {
        let (name, known) = found?;
        for (number, version) in &known.versions {
            let is_own = own.binary_search_by(|(one, at, _)| (one, at).cmp(&(&name, number)));
            if is_own.is_err() {
                each(version)?;
            }
        }
    }
    Ok(())
}

/// Returns the totals that the log alone gives; `own` is sorted by ref and version.
fn totals(own: &[Owned]) -> Summary {
    let mut summary = Summary::default();
    for (at, (name, _, version)) in own.iter().enumerate() {
        summary.versions += 1;
        summary.version_bytes = summary.version_bytes.saturating_add(version.root.bytes());
        let is_newest = own.get(at + 1).is_none_or(|(next, _, _)| next != name);
        if is_newest {
            summary.refs += 1;
            summary.bytes = summary.bytes.saturating_add(version.root.bytes());
            summary.entries = summary.entries.saturating_add(match version.root {
                Root::File { .. } => 1,
                Root::Tree { totals, .. } => totals.entries,
            });
        }
    }
    summary
}
