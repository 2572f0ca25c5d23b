//! Policy (pure): which versions retention drops, and how much a namespace may take.
//!
//! A pinned version is never dropped. The newest version of a ref is dropped only if its own time to live is over, or
//! if a run was told that size limits may drop it: no rule may empty a ref by mistake.

use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use store::Result;
use store::format::{Ranked, RefName, State, quota};

pub use store::format::{Pattern, Rules, Scope};

/// Everything that decides about versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The first scope that matches a ref decides which versions are kept. The first one with a quota decides how much
    /// the namespace of the ref may take.
    pub scopes: Vec<Scope>,
    /// Stored bytes that all live versions may take together.
    pub store_bytes_max: Option<u64>,
    /// Settings for this run only.
    pub given: Given,
}

/// Settings of a single run. They override the policy of the store and of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// The rules for the refs that it matches.
    pub scope: Option<Scope>,
    /// Stored bytes that all live versions may take together.
    pub store_bytes_max: Option<u64>,
    /// Whether size limits may drop the newest version of a ref, too.
    pub may_drop_newest: bool,
}

/// A version to drop, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Drop {
    /// The ref.
    pub name: RefName,
    /// The version.
    pub version: u64,
    /// Why.
    pub why: Why,
    /// The day of its last use, if a size limit drops it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_use: Option<Date>,
}

/// Why a version is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its time to live is over.
    Expired,
    /// No rule keeps it.
    Retention,
    /// Its namespace exceeds its quota, and other versions were used later.
    Quota,
    /// The store exceeds its limit, and other versions were used later.
    MaxSize,
}

impl Policy {
    /// The policy that applies to a store in `state`: its own if it has one, otherwise this one. Settings of the run
    /// override both.
    #[must_use]
    pub fn in_force(&self, state: &State) -> Self {
        let own = &state.policy;
        if own.is_empty() {
            return self.clone();
        }
        Self {
            scopes: own.keep.clone(),
            store_bytes_max: own.bytes_max,
            given: self.given.clone(),
        }
    }

    /// The scope that applies to a ref.
    pub fn scope(&self, name: &RefName) -> Option<&Scope> {
        let mut scopes = self.given.scope.iter().chain(&self.scopes);
        scopes.find(|scope| scope.pattern.matches(name))
    }

    /// Stored bytes that the namespace of a ref may take.
    pub fn quota(&self, name: &RefName) -> Option<u64> {
        quota(&self.scopes, name)
    }

    /// Stored bytes that all live versions may take together.
    pub fn bytes_max(&self) -> Option<u64> {
        self.given.store_bytes_max.or(self.store_bytes_max)
    }

    /// The versions that rules and times to live drop. Size limits need more than a state.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn drops(&self, state: &State, now: Timestamp) -> Result<BTreeSet<Drop>> {
        let mut drops = BTreeSet::new();
        for found in state.refs.iter() {
            let (name, known) = found?;
            let rules = self
                .scope(&name)
                .map(|scope| scope.rules)
                .unwrap_or_default();
            let kept = keeps(&rules, &state.by_rank(&name, &known.versions), now);
            for (number, version) in known.versions {
                let why = match version.expires {
                    Some(end) if end <= now => Why::Expired,
                    _ if kept.contains(&number) => continue,
                    _ => Why::Retention,
                };
                if !version.pinned {
                    drops.insert(Drop {
                        name: name.clone(),
                        version: number,
                        why,
                        last_use: None,
                    });
                }
            }
        }
        Ok(drops)
    }
}

/// Numbers of the versions that some rule keeps; `versions` must ascend. Of a restored version, all copies are kept, or
/// none.
fn keeps(rules: &Rules, versions: &[Ranked], now: Timestamp) -> BTreeSet<u64> {
    if rules.is_empty() {
        return versions.iter().map(|version| version.number).collect();
    }
    let mut firsts = versions.to_vec();
    firsts.dedup_by_key(|version| version.rank);
    let newest_first = || firsts.iter().rev();
    let mut kept: BTreeSet<u64> = newest_first()
        .take(rules.keep_last.unwrap_or(0).max(1))
        .map(|version| version.rank)
        .collect();
    if let Some(secs) = rules.keep_within_secs {
        let young = |time: Timestamp| {
            now.as_second().saturating_sub(time.as_second())
                <= i64::try_from(secs).unwrap_or(i64::MAX)
        };
        kept.extend(
            newest_first()
                .filter(|version| young(version.time))
                .map(|version| version.rank),
        );
    }
    for (count, period) in [
        (rules.keep_daily, day as fn(Timestamp) -> (i16, i16)),
        (rules.keep_weekly, week),
        (rules.keep_monthly, month),
    ] {
        kept.extend(newest_of_each(newest_first(), count.unwrap_or(0), period));
    }
    let copies = versions
        .iter()
        .filter(|version| kept.contains(&version.rank));
    let newest = versions.iter().map(|version| version.number).max();
    copies.map(|version| version.number).chain(newest).collect()
}

/// The newest version of each of the last `count` periods that have one.
fn newest_of_each<'v>(
    newest_first: impl Iterator<Item = &'v Ranked>,
    count: usize,
    period: fn(Timestamp) -> (i16, i16),
) -> Vec<u64> {
    let mut periods = BTreeSet::new();
    newest_first
        .filter(|version| periods.len() < count && periods.insert(period(version.time)))
        .map(|version| version.rank)
        .collect()
}

fn day(time: Timestamp) -> (i16, i16) {
    let date = time.to_zoned(TimeZone::UTC).date();
    (date.year(), date.day_of_year())
}

fn week(time: Timestamp) -> (i16, i16) {
    let week = time.to_zoned(TimeZone::UTC).date().iso_week_date();
    (week.year(), week.week().into())
}

fn month(time: Timestamp) -> (i16, i16) {
    let date = time.to_zoned(TimeZone::UTC).date();
    (date.year(), date.month().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::format::{Content, Extra, RefState, Root, Sides, Version, Who};

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    /// A state with one ref whose versions were put at these times; the first is version 1.
    fn state(times: &[&str]) -> State {
        let version = |time: &&str| Version {
            root: Root::File {
                content: Content::empty(),
                executable: false,
            },
            sides: Sides::default(),
            time: at(time),
            who: Who::default(),
            message: String::new(),
            pinned: false,
            expires: None,
            origin: None,
            private: false,
            extra: Extra::new(),
        };
        let known = RefState {
            last: times.len() as u64,
            versions: (1..).zip(times.iter().map(version)).collect(),
            extra: Extra::new(),
        };
        State {
            refs: [("project/a/b".parse().unwrap(), known)].into(),
            ..State::default()
        }
    }

    fn dropped(state: &State, rules: Rules, now: &str) -> Vec<u64> {
        let policy = Policy {
            scopes: vec![Scope {
                pattern: Pattern::new("project/*"),
                rules,
                quota_bytes: None,
                extra: Extra::new(),
            }],
            ..Policy::default()
        };
        let drops = policy.drops(state, at(now)).unwrap();
        drops.into_iter().map(|drop| drop.version).collect()
    }

    const TIMES: [&str; 5] = [
        "2025-01-01T10:00:00Z",
        "2025-01-31T10:00:00Z",
        "2025-02-01T10:00:00Z",
        "2025-02-01T20:00:00Z",
        "2025-02-03T10:00:00Z",
    ];
    const NOW: &str = "2025-02-04T00:00:00Z";

    #[test]
    fn a_version_that_any_rule_keeps_stays() {
        let state = state(&TIMES);
        let none = Rules::default();
        let cases = [
            (none, vec![]),
            (
                Rules {
                    keep_last: Some(2),
                    ..none
                },
                vec![1, 2, 3],
            ),
            (
                Rules {
                    keep_last: Some(0),
                    ..none
                },
                vec![1, 2, 3, 4],
            ),
            (
                Rules {
                    keep_within_secs: Some(3 * 86_400),
                    ..none
                },
                vec![1, 2],
            ),
            (
                Rules {
                    keep_daily: Some(2),
                    ..none
                },
                vec![1, 2, 3],
            ),
            (
                Rules {
                    keep_daily: Some(3),
                    ..none
                },
                vec![1, 3],
            ),
            (
                Rules {
                    keep_weekly: Some(2),
                    ..none
                },
                vec![1, 2, 3],
            ),
            (
                Rules {
                    keep_monthly: Some(2),
                    ..none
                },
                vec![1, 3, 4],
            ),
            (
                Rules {
                    keep_last: Some(1),
                    keep_monthly: Some(9),
                    ..none
                },
                vec![1, 3, 4],
            ),
        ];
        for (rules, expected) in cases {
            assert_eq!(dropped(&state, rules, NOW), expected, "{rules:?}");
        }
    }

    #[test]
    fn a_version_is_kept_to_the_last_second_of_its_time() {
        let state = state(&TIMES);
        let rules = |secs| Rules {
            keep_within_secs: Some(secs),
            ..Rules::default()
        };
        // The age of version 3, from 10:00 on the first of February to the start of the fourth.
        let age = 62 * 3600;
        assert_eq!(dropped(&state, rules(age), NOW), [1, 2]);
        assert_eq!(dropped(&state, rules(age - 1), NOW), [1, 2, 3]);
    }

    #[test]
    fn the_end_of_a_time_to_live_takes_even_the_newest_and_a_pin_keeps_all() {
        let mut state = state(&TIMES);
        let mut refs = state.refs.all().unwrap();
        let versions = &mut refs.values_mut().next().unwrap().versions;
        for version in versions.values_mut() {
            version.expires = Some(at(NOW));
        }
        versions.get_mut(&2).unwrap().pinned = true;
        state.refs = refs.into();
        assert_eq!(dropped(&state, Rules::default(), NOW), [1, 3, 4, 5]);
        assert!(dropped(&state, Rules::default(), "2025-02-03T23:59:59Z").is_empty());
    }
}
