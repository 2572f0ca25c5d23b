//! What was published before, as the versions of the ref tell it. Directories come and go.

use std::collections::{BTreeMap, BTreeSet};

use store::{Kind, RefName, Result, Step, StepAge, Store};
use store::{Time, Version};

/// The newest checkpoint that is published.
#[derive(Clone)]
pub(super) struct Last {
    pub(super) name: String,
    /// When something in it changed last.
    pub(super) newest: Time,
}

impl Last {
    pub(super) fn of(step: &Step) -> Self {
        Self {
            name: step.name.clone(),
            newest: step.newest,
        }
    }
}

/// The checkpoints that the versions of a ref were made from.
#[derive(Default)]
pub(super) struct Before {
    /// Their titles, which are the messages of the versions.
    pub(super) titles: BTreeSet<String>,
    pub(super) names: BTreeSet<String>,
    /// How old each was, by its name.
    pub(super) ages: BTreeMap<String, StepAge>,
    /// The newest version, where an earlier build made it, which says nothing of its age.
    silent: Option<Version>,
    /// Whether a version of the ref was dropped.
    pub(super) has_dropped: bool,
}

impl Before {
    pub(super) fn of(store: &Store, target: &RefName) -> Result<Self> {
        let mut versions = match store.state()?.versions(target) {
            Err(error) if error.kind() == Kind::NotFound => return Ok(Self::default()),
            versions => versions?,
        };
        let last = versions.keys().next_back().copied().unwrap_or_default();
        let mut before = Self {
            has_dropped: last > versions.len() as u64,
            ..Self::default()
        };
        versions.retain(|_, version| is_title(&version.message));
        for version in versions.into_values() {
            let name = name(&version.message).to_owned();
            let age = StepAge::of_version(&version);
            before.ages.extend(age.map(|age| (name.clone(), age)));
            before.names.insert(name);
            before.titles.insert(version.message.clone());
            before.silent = Some(version).filter(|_| age.is_none());
        }
        Ok(before)
    }

    /// The newest of them. Of one whose version says nothing its directory may, if it is what it was.
    pub(super) fn last(&self, there: &[Step]) -> Option<Last> {
        let aged = self.ages.iter().map(|(name, age)| Last {
            name: name.clone(),
            newest: age.newest,
        });
        let whole = there
            .iter()
            .filter(|step| self.titles.contains(&step.title));
        let silent = self.silent.as_ref();
        let silent =
            silent.filter(|version| !there.iter().any(|step| step.title == version.message));
        let put = silent.map(|version| Last {
            name: name(&version.message).to_owned(),
            newest: Time {
                secs: version.time.as_second(),
                nanos: version.time.subsec_nanosecond().unsigned_abs(),
            },
        });
        let all = aged.chain(whole.map(Last::of)).chain(put);
        all.max_by_key(|last| last.newest)
    }
}

fn name(title: &str) -> &str {
    title.rsplit_once(' ').map_or(title, |(name, _)| name)
}

/// A name, a space, and 16 hex digits.
pub(super) fn is_title(message: &str) -> bool {
    let is_hex = |sum: &str| sum.len() == 16 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    message
        .rsplit_once(' ')
        .is_some_and(|(name, sum)| !name.is_empty() && is_hex(sum))
}
