//! Policy (pure): which versions retention gives up, and how much a namespace may take.
//!
//! Never drops a pinned version. The newest version of a ref goes only when its own time to live
//! is over or a size limit wants it: a rule that keeps little must not empty a ref by mistake.

use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use store::format::{RefName, State, Version};

/// How many versions of a ref to keep. A version that any rule keeps is kept; without rules all are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rules {
    /// The newest ones.
    pub keep_last: Option<usize>,
    /// Those younger than this.
    pub keep_within_secs: Option<u64>,
    /// The newest of each of so many days (UTC) that have one.
    pub keep_daily: Option<usize>,
    /// The same for ISO weeks.
    pub keep_weekly: Option<usize>,
    /// The same for months.
    pub keep_monthly: Option<usize>,
}

/// Rules and limits for the refs that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Which refs.
    pub pattern: Pattern,
    /// What to keep of each.
    pub rules: Rules,
    /// Stored bytes that each namespace it matches may take.
    pub quota_bytes: Option<u64>,
}

/// Everything that decides about versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The first scope that matches a ref decides what is kept of it.
    pub scopes: Vec<Scope>,
    /// The first scope that matches a ref decides how much its namespace may take.
    pub quotas: Vec<Scope>,
    /// Stored bytes that all live versions may take together.
    pub store_bytes_max: Option<u64>,
}

/// A namespace or a ref name in which `*` stands for any characters, `/` included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

/// A version that goes, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Drop {
    /// The ref.
    pub name: RefName,
    /// The version.
    pub version: u64,
    /// Why.
    pub why: Why,
    /// The day of its last use, where a limit of size takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_use: Option<Date>,
}

/// Why a version goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its time to live is over.
    Expired,
    /// No rule keeps it.
    Retention,
    /// Its namespace is over its quota, and others were used later.
    Quota,
    /// The store is over its limit, and others were used later.
    MaxSize,
}

impl Pattern {
    /// A pattern from text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether it matches a ref: by its namespace or by its whole name.
    pub fn matches(&self, name: &RefName) -> bool {
        let matches = |text: &str| glob(self.0.as_bytes(), text.as_bytes());
        matches(name.namespace().as_str()) || matches(name.as_str())
    }
}

impl Policy {
    /// The scope of a ref.
    pub fn scope(&self, name: &RefName) -> Option<&Scope> {
        self.scopes.iter().find(|scope| scope.pattern.matches(name))
    }

    /// Stored bytes that the namespace of a ref may take.
    pub fn quota(&self, name: &RefName) -> Option<u64> {
        let scope = self.quotas.iter().find(|scope| scope.pattern.matches(name));
        scope.and_then(|scope| scope.quota_bytes)
    }

    /// The versions that rules and times to live give up; limits of size need more than a state.
    pub fn drops(&self, state: &State, now: Timestamp) -> BTreeSet<Drop> {
        let mut drops = BTreeSet::new();
        for (name, known) in &state.refs {
            let rules = self
                .scope(name)
                .map(|scope| scope.rules)
                .unwrap_or_default();
            let versions: Vec<(u64, &Version)> = known
                .versions
                .iter()
                .map(|(number, version)| (*number, version))
                .collect();
            let kept = rules.keeps(&versions, now);
            for (number, version) in versions {
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
        drops
    }
}

impl Rules {
    /// Whether it says anything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Numbers of the versions that some rule keeps; `versions` ascend.
    fn keeps(&self, versions: &[(u64, &Version)], now: Timestamp) -> BTreeSet<u64> {
        let newest_first = || versions.iter().rev();
        if self.is_empty() {
            return versions.iter().map(|(number, _)| *number).collect();
        }
        let mut kept: BTreeSet<u64> = newest_first()
            .take(self.keep_last.unwrap_or(0).max(1))
            .map(|(number, _)| *number)
            .collect();
        if let Some(secs) = self.keep_within_secs {
            let young = |time: Timestamp| {
                now.as_second().saturating_sub(time.as_second())
                    <= i64::try_from(secs).unwrap_or(i64::MAX)
            };
            kept.extend(
                newest_first()
                    .filter(|(_, version)| young(version.time))
                    .map(|(number, _)| *number),
            );
        }
        for (count, period) in [
            (self.keep_daily, day as fn(Timestamp) -> (i16, i16)),
            (self.keep_weekly, week),
            (self.keep_monthly, month),
        ] {
            kept.extend(newest_of_each(newest_first(), count.unwrap_or(0), period));
        }
        kept
    }
}

/// The newest version of each of the last `count` periods that have one.
fn newest_of_each<'v>(
    newest_first: impl Iterator<Item = &'v (u64, &'v Version)>,
    count: usize,
    period: fn(Timestamp) -> (i16, i16),
) -> Vec<u64> {
    let mut periods = BTreeSet::new();
    newest_first
        .filter(|(_, version)| periods.len() < count && periods.insert(period(version.time)))
        .map(|(number, _)| *number)
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

/// `*` matches any bytes.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => {
            (0..=text.len()).any(|at| text.get(at..).is_some_and(|text| glob(rest, text)))
        }
        Some((byte, rest)) => text
            .split_first()
            .is_some_and(|(first, text)| first == byte && glob(rest, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::format::{Content, RefState, Root, Who};

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    /// One ref whose versions were put at these times, the first being version 1.
    fn state(times: &[&str]) -> State {
        let version = |time: &&str| Version {
            root: Root::File {
                content: Content::empty(),
                executable: false,
            },
            times: Content::empty(),
            time: at(time),
            who: Who::default(),
            message: String::new(),
            pinned: false,
            expires: None,
        };
        let known = RefState {
            last: times.len() as u64,
            versions: (1..).zip(times.iter().map(version)).collect(),
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
            }],
            ..Policy::default()
        };
        let drops = policy.drops(state, at(now));
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
    fn the_end_of_a_time_to_live_takes_even_the_newest_and_a_pin_keeps_all() {
        let mut state = state(&TIMES);
        let versions = &mut state.refs.values_mut().next().unwrap().versions;
        for version in versions.values_mut() {
            version.expires = Some(at(NOW));
        }
        versions.get_mut(&2).unwrap().pinned = true;
        assert_eq!(dropped(&state, Rules::default(), NOW), [1, 3, 4, 5]);
        assert!(dropped(&state, Rules::default(), "2025-02-03T23:59:59Z").is_empty());
    }

    #[test]
    fn patterns_match_namespaces_and_whole_names() {
        let name = "project/llama-ft/imagenet/train".parse().unwrap();
        for pattern in [
            "*",
            "project/*",
            "project/llama-*",
            "project/llama-ft",
            "*/train",
            "project/llama-ft/imagenet/train",
        ] {
            assert!(Pattern::new(pattern).matches(&name), "{pattern}");
        }
        for pattern in ["", "team/*", "project/llama", "project/llama-ft/imagenet"] {
            assert!(!Pattern::new(pattern).matches(&name), "{pattern}");
        }
    }
}
