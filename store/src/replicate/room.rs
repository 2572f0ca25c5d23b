//! Finds the versions that exceed a quota at the destination, before anything is sent.
//!
//! Versions are tried in order. One that does not fit is left out, and the next ones are still tried. The bytes that a
//! version adds are counted as the source stores them; the commit counts what the destination stores, and decides. Only
//! namespaces with a quota are examined.

use std::collections::{BTreeMap, BTreeSet};

use super::select::Bring;
use super::{RefOutcome, RefStatus};
use crate::error::{Error, Result};
use crate::format::Namespace;
use crate::graph::reach::Reach;
use crate::index::{Marks, Position};
use crate::policy;
use crate::read::Reader;
use crate::store::{Store, View};

/// The usage and quota of a namespace at the destination.
struct Full<'r> {
    quota: u64,
    used: u64,
    /// The chunks that its versions need there.
    there: Reach<'r>,
    /// The chunks of versions that fit, by position at the source.
    let_in: Marks,
    added: u64,
}

/// Returns the versions that fit; adds the outcomes of the others to `settled`.
///
/// # Errors
/// If a version of the destination cannot be read.
pub(super) fn fitting(
    (from, source, to, there): (&Store, &View, &Store, &View),
    versions: &[Bring],
    settled: &mut Vec<RefOutcome>,
) -> Result<Vec<Bring>> {
    let from = Reader::at(from, source.clone());
    let to = Reader::at(to, there.clone());
    let mut refused = refused(&from, &to, versions)?;
    let mut fitting = Vec::with_capacity(versions.len());
    for (at, bring) in versions.iter().enumerate() {
        match refused.remove(&at) {
            None => fitting.push(bring.clone()),
            Some(error) => settled.push(bring.outcome(None, RefStatus::Failed(error))),
        }
    }
    Ok(fitting)
}

/// Returns the errors of versions that do not fit, by position in `versions`. Unreadable versions are skipped.
fn refused(
    from: &Reader<'_>,
    to: &Reader<'_>,
    versions: &[Bring],
) -> Result<BTreeMap<usize, Error>> {
    let mut refused = BTreeMap::new();
    let view = to.view();
    let mut all: BTreeMap<Namespace, Full<'_>> = BTreeMap::new();
    let mut without = BTreeSet::new();
    for (at, bring) in versions.iter().enumerate() {
        let namespace = bring.name.namespace();
        // A version that is healed was counted when it was first copied.
        if bring.kept.is_some() || without.contains(&namespace) {
            continue;
        }
        let Some(quota) = policy::limit(to.store(), &view.state, &bring.name) else {
            without.insert(namespace);
            continue;
        };
        if !all.contains_key(&namespace) {
            let there = Reach::among(to, view.clone());
            policy::each_version(&view.state, &namespace, |version| there.version(version))?;
            let full = Full {
                quota,
                used: there.stored_bytes()?,
                there,
                let_in: from.view().index.marks(),
                added: 0,
            };
            all.insert(namespace.clone(), full);
        }
        from.store().host().check_stop()?;
        let reach = Reach::new(from);
        if let Some(full) = all.get_mut(&namespace)
            && reach.version(&bring.version).is_ok()
            && let Err(over) = full.let_in(&reach, (from, to), quota)?
        {
            refused.insert(at, bring.failure(over.error(&namespace)));
        }
    }
    Ok(refused)
}

impl Full<'_> {
    /// Counts the chunks of a version, if it fits.
    fn let_in(
        &mut self,
        reach: &Reach<'_>,
        (from, to): (&Reader<'_>, &Reader<'_>),
        quota: u64,
    ) -> Result<std::result::Result<(), policy::Over>> {
        self.quota = self.quota.min(quota);
        let mut more = 0_u64;
        let mut new = Vec::new();
        for at in reach.chunks().positions() {
            if !self.let_in.has(at) {
                more = more.saturating_add(self.share(reach, at, (from, to))?);
                new.push(at);
            }
        }
        let before = self.used.saturating_add(self.added);
        let after = before.saturating_add(more);
        if let Some(over) = policy::over(self.quota, before, after) {
            return Ok(Err(over));
        }
        self.added = self.added.saturating_add(more);
        for at in new {
            self.let_in.set(at);
        }
        Ok(Ok(()))
    }

    /// The bytes that a chunk of the source adds.
    fn share(
        &self,
        reach: &Reach<'_>,
        at: Position,
        (from, to): (&Reader<'_>, &Reader<'_>),
    ) -> Result<u64> {
        let (from, to) = (from.view(), to.view());
        let (id, location) = from.index.at(at)?;
        if let Some(place) = to.index.position(&id)? {
            return Ok(match self.there.chunks().has(place) {
                true => 0,
                false => to.index.at(place)?.1.stored_share(),
            });
        }
        // A delta without its bases is sent as a plain frame of about their size, and they are counted already.
        if reach.has_itself(at) {
            for base in from.index.bases(at, &location)? {
                let known = from.index.position_plain(&base)?;
                let is_let_in = known.is_some_and(|base| self.let_in.has(base));
                if !is_let_in && to.index.position_plain(&base)?.is_none() {
                    return Ok(0);
                }
            }
        }
        Ok(location.stored_share())
    }
}
