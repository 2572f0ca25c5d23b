//! What was published before, according to the versions of the ref. The directories may be gone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use store::{ErrorKind, RefName, Result, Step, StepAge, Store, Time, Version, refs};

use super::gone::Gone;
use super::title::{is_title, name};

/// The newest published checkpoint. Times in the future are not used to order checkpoints, since trainers' clocks may
/// be ahead.
#[derive(Clone)]
pub(super) struct Last {
    pub(super) name: String,
    /// The newest change in the checkpoint, but at most the time of its publication.
    newest: Time,
    /// The newest change, as its files state it.
    dated: Time,
}

impl Last {
    /// The value for a checkpoint that is published now.
    pub(super) fn of(step: &Step) -> Self {
        Self::by(&step.name, step.newest, now())
    }

    fn by(name: &str, dated: Time, published: Time) -> Self {
        Self {
            name: name.to_owned(),
            newest: dated.min(published),
            dated,
        }
    }

    /// Whether this checkpoint's time is later than that of `step`. That can also mean that a clock was set back.
    pub(super) fn is_dated_after(&self, step: &Step) -> bool {
        let now = now();
        self.name != step.name && self.newest <= now && step.newest.min(now) < self.newest
    }

    /// Whether `step` should have been published before this checkpoint.
    pub(super) fn is_after(&self, step: &Step) -> bool {
        self.is_dated_after(step) && !is_later_step(&step.name, &self.name)
    }

    /// Whether `step` is older, for a `step` whose version may have been dropped. Compares times of one clock: also
    /// future ones, and those that were in the future when this host's clock was behind.
    pub(super) fn may_follow(&self, step: &Step) -> bool {
        let now = now();
        let is_of_one_clock = step.newest > now || self.dated <= now;
        let is_dated_before = is_of_one_clock && step.newest < self.dated;
        let is_other = self.name != step.name && !is_later_step(&step.name, &self.name);
        self.is_after(step) || (is_other && is_dated_before)
    }
}

/// The checkpoints that the versions of a ref were made from.
#[derive(Default)]
pub(super) struct Before {
    /// Their titles, which are the messages of the versions, and the times of publication.
    pub(super) titles: BTreeMap<String, Time>,
    pub(super) names: BTreeSet<String>,
    /// The age of each checkpoint, by name.
    pub(super) ages: BTreeMap<String, StepAge>,
    /// The values that order the checkpoints, by name.
    order: BTreeMap<String, Last>,
    /// The newest version, if an earlier program made it and it does not record an age.
    silent: Option<Version>,
    /// The value of the newest version.
    top: Option<Last>,
    /// Dropped checkpoints, as recorded in versions.
    pub(super) gone: Gone,
    /// Whether a version of the ref was dropped.
    pub(super) has_dropped: bool,
}

impl Before {
    pub(super) fn of(store: &Store, target: &RefName) -> Result<Self> {
        let state = store.state()?;
        let mut versions = match state.versions(target) {
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            versions => versions?,
        };
        let last = state.refs.last(target)?;
        let mut before = Self {
            has_dropped: last > versions.len() as u64,
            ..Self::default()
        };
        before.gone.see(&versions);
        let newest = versions.keys().next_back().copied().unwrap_or_default();
        if newest < last {
            // No remaining version records the ones that were dropped after the newest one. The log does.
            before.gone.learn(refs::gone_after(store, target, newest)?);
        }
        versions.retain(|_, version| is_title(&version.message));
        for version in versions.into_values() {
            let name = name(&version.message).to_owned();
            let (age, time) = (StepAge::of_version(&version), time(version.time));
            let last = age.map(|age| (name.clone(), Last::by(&name, age.newest, time)));
            before.top = last.as_ref().map(|(_, last)| last.clone());
            before.order.extend(last);
            before.ages.extend(age.map(|age| (name.clone(), age)));
            before.names.insert(name);
            before.titles.insert(version.message.clone(), time);
            before.silent = Some(version).filter(|_| age.is_none());
        }
        Ok(before)
    }

    /// The newest published checkpoint. If its version records no age, an unchanged directory supplies the time.
    pub(super) fn last(&self, there: &[Step]) -> Option<Last> {
        let whole = there.iter().filter_map(|step| {
            let published = self.titles.get(&step.title)?;
            Some(Last::by(&step.name, step.newest, *published))
        });
        let silent = self.silent.as_ref();
        let silent =
            silent.filter(|version| !there.iter().any(|step| step.title == version.message));
        let put = silent.map(|version| {
            let time = time(version.time);
            Last::by(name(&version.message), time, time)
        });
        let all: Vec<Last> = self
            .order
            .values()
            .cloned()
            .chain(whole)
            .chain(put)
            .collect();
        let now = now();
        let newest = |last: &&Last| (last.newest, last.dated);
        let past = all.iter().filter(|last| last.newest <= now);
        if let Some(last) = past.max_by_key(newest) {
            // If a clock was set back, the newest version has an older time than others, but a later step number.
            let top = self.top.as_ref().filter(|top| top.newest <= now);
            let top = top.filter(|top| is_later_step(&top.name, &last.name));
            return Some(top.unwrap_or(last).clone());
        }
        // This host's clock was ahead. If nothing was dropped, the titles are enough.
        let last = all.iter().max_by_key(newest);
        let last = last.filter(|_| self.has_dropped);
        last.map(|last| Last::by(&last.name, last.dated, now))
    }
}

fn time(at: Timestamp) -> Time {
    Time {
        secs: at.as_second(),
        nanos: at.subsec_nanosecond().unsigned_abs(),
    }
}

fn now() -> Time {
    time(Timestamp::now())
}

/// Whether both names are the same text with a number at the end, and the first number is larger.
fn is_later_step(name: &str, other: &str) -> bool {
    let numbered = |name: &str| {
        let text = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number: u128 = name.get(text.len()..)?.parse().ok()?;
        Some((text.to_owned(), number))
    };
    match (numbered(name), numbered(other)) {
        (Some((text, number)), Some((other, last))) => text == other && number > last,
        _ => false,
    }
}
