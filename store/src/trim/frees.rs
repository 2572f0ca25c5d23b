//! How much space a trim frees: none while a version holds it, and how much after that.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::format::{Root, Sides, Version};
use crate::graph::reach::Reach;
use crate::read::Reader;

use super::{Removed, TrimRequest};

/// What is freed, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Frees {
    /// Stored bytes that nothing needs once the versions that hold them are dropped.
    pub bytes: u64,
    /// Live versions of the ref that hold some of these bytes, which are freed when the versions are dropped.
    pub held_by: Vec<u64>,
}

/// Counts what a trim frees. Reads the trees of all live versions.
pub(super) fn count(
    reader: &Reader<'_>,
    request: &TrimRequest,
    newest: &Version,
    removed: &Removed,
    kept: &[Root],
) -> Result<Frees> {
    let view = reader.view();
    let as_version = |root: &Root| Version {
        root: *root,
        sides: Sides::default(),
        ..newest.clone()
    };
    let gone = Reach::among(reader, view.clone());
    removed
        .roots
        .iter()
        .try_for_each(|root| gone.version(&as_version(root)))?;
    let stays = Reach::among(reader, view.clone());
    kept.iter()
        .try_for_each(|root| stays.version(&as_version(root)))?;
    let mut own = Vec::new();
    for found in view.state.refs.iter() {
        let (name, known) = found?;
        for (number, version) in known.versions {
            match name == request.target {
                true => own.push((number, version)),
                false => stays.version(&version)?,
            }
        }
    }
    let mut unique = Vec::new();
    let mut frees = Frees::default();
    for at in gone.chunks().positions() {
        if !stays.chunks().has(at) {
            let (_, location) = view.index.at(at)?;
            frees.bytes = frees.bytes.saturating_add(location.stored_share());
            unique.push(at);
        }
    }
    let mut held = BTreeSet::new();
    for (number, version) in own {
        let has = Reach::among(reader, view.clone());
        has.version(&version)?;
        if unique.iter().any(|at| has.chunks().has(*at)) {
            held.insert(number);
        }
    }
    frees.held_by = held.into_iter().collect();
    Ok(frees)
}
