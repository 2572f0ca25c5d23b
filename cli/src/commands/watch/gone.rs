//! Checkpoints that were published and dropped since. Each version records those that existed when it was made; for
//! versions after the newest remaining one, the log is read. There is no other record.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use store::{Extra, Id, State, Step, StepAge, Version};

use super::title::{is_title, name};

/// The field of a version that records them.
const GONE: &str = "gone";
/// Maximum number in one version, since a version is read whenever its store is opened.
const GONE_MAX: usize = 500;
/// How many of the newest existing versions are recorded. Earlier versions record the others.
const LIVE_MAX: usize = 100;
/// Length of the prefix of a content's id that is recorded.
const ID_CHARS: usize = 33;

/// The checkpoints whose versions are gone, by name: the last title and content that each was published with.
#[derive(Clone, Debug, Default)]
pub(super) struct Gone {
    all: BTreeMap<String, (String, String)>,
    /// The versions that existed at the last check, by number.
    live: BTreeMap<u64, (String, String)>,
    /// The newest version that was read. Records in versions up to it are older than drops seen since.
    read: u64,
}

impl Gone {
    /// Learns from the current versions: from their records, and from the versions that are missing since the last
    /// check.
    pub(super) fn see(&mut self, versions: &BTreeMap<u64, Version>) {
        let ours = versions
            .iter()
            .filter(|(_, version)| is_title(&version.message));
        for (number, version) in ours.clone() {
            if *number <= self.read {
                continue;
            }
            self.read = *number;
            for (title, id) in said(version) {
                self.all.insert(name(&title).to_owned(), (title, id));
            }
        }
        let live: BTreeMap<u64, (String, String)> = ours
            .map(|(number, version)| (*number, of(version)))
            .collect();
        for (number, (title, id)) in std::mem::replace(&mut self.live, live) {
            if !self.live.contains_key(&number) {
                self.all.insert(name(&title).to_owned(), (title, id));
            }
        }
    }

    /// Learns of dropped versions, oldest first: the message and the id of each.
    pub(super) fn learn(&mut self, gone: Vec<(String, Id)>) {
        for (title, id) in gone.into_iter().filter(|(title, _)| is_title(title)) {
            self.all
                .insert(name(&title).to_owned(), (title, short(&id)));
        }
    }

    /// The record for a new version, after which `doomed` are dropped: gone checkpoints, and existing ones, which may
    /// be dropped by others later. Skips checkpoints that are not in `dir` any more.
    pub(super) fn extra(&self, doomed: &[u64], dir: &Path) -> Extra {
        let there: BTreeSet<&str> = self.live.values().map(|(title, _)| name(title)).collect();
        let mut all = self.all.clone();
        all.retain(|name, _| !there.contains(name.as_str()));
        let newest = self.live.keys().rev();
        let newest = newest.filter(|number| !doomed.contains(number));
        let oldest = newest.take(LIVE_MAX).last().copied();
        let is_said = |number: &u64| {
            oldest.is_some_and(|oldest| *number >= oldest) || doomed.contains(number)
        };
        for (_, (title, id)) in self.live.iter().filter(|(number, _)| is_said(number)) {
            all.insert(name(title).to_owned(), (title.clone(), id.clone()));
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.retain(|(name, _)| dir.join(name).is_dir());
        let too_many = all.len().saturating_sub(GONE_MAX);
        let said: Vec<_> = all
            .into_iter()
            .skip(too_many)
            .map(|(_, said)| said)
            .collect();
        let said = serde_json::to_value(&said)
            .ok()
            .filter(|_| !said.is_empty());
        said.map(|said| (GONE.to_owned(), said))
            .into_iter()
            .collect()
    }

    /// The title of a checkpoint whose versions are all gone.
    pub(super) fn title(&self, checkpoint: &str) -> Option<&str> {
        let (title, _) = self.of(checkpoint)?;
        Some(title)
    }

    /// The ages of gone checkpoints that are as they were published: they may be rewritten in place.
    pub(super) fn ages(&self, there: &[Step]) -> BTreeMap<String, StepAge> {
        let is_as_it_was = |step: &&Step| self.title(&step.name) == Some(&*step.title);
        let there = there.iter().filter(is_as_it_was);
        there
            .map(|step| (step.name.clone(), StepAge::of(step)))
            .collect()
    }

    /// Whether the gone checkpoint had this content.
    pub(super) fn was(&self, checkpoint: &str, id: &Id) -> bool {
        self.of(checkpoint)
            .is_some_and(|(_, was)| *was == short(id))
    }

    pub(super) fn has(&self, checkpoint: &str) -> bool {
        self.all.contains_key(checkpoint)
    }

    fn of(&self, checkpoint: &str) -> Option<&(String, String)> {
        let is_live = || {
            self.live
                .values()
                .any(|(title, _)| name(title) == checkpoint)
        };
        self.all.get(checkpoint).filter(|_| !is_live())
    }
}

/// The versions to drop so that `keep` of them stay, oldest first.
pub(super) fn doomed(
    state: &State,
    target: &store::RefName,
    versions: &BTreeMap<u64, Version>,
    keep: usize,
) -> Vec<u64> {
    let mut ours = versions.clone();
    ours.retain(|_, version| !version.pinned && is_title(&version.message));
    // A restored version keeps its rank. Copies of one version have the same rank and stay or go together.
    let ours = state.by_rank(target, &ours);
    let ranks: BTreeSet<u64> = ours.iter().map(|version| version.rank).collect();
    let first_kept = match keep {
        0 => None,
        _ => ranks.into_iter().rev().take(keep).next_back(),
    };
    let doomed = ours
        .iter()
        .filter(|version| first_kept.is_none_or(|first| version.rank < first));
    doomed.map(|version| version.number).collect()
}

fn of(version: &Version) -> (String, String) {
    (version.message.clone(), short(&Id::of(&version.root)))
}

fn short(id: &Id) -> String {
    id.to_string().chars().take(ID_CHARS).collect()
}

fn said(version: &Version) -> Vec<(String, String)> {
    let said = version.extra.get(GONE).cloned();
    said.and_then(|said| serde_json::from_value(said).ok())
        .unwrap_or_default()
}
