//! Policy of a store: which versions it keeps, and how much space its namespaces may take.
//!
//! The log holds the policy, so the collector and the writers of every host follow the same rules. Pure data: `gc` uses
//! it to decide what to drop, and a commit to decide whether a namespace has room.

use serde::{Deserialize, Serialize};

use crate::format::{Extra, RefName};

/// How many versions of a ref to keep. A version is kept if any rule keeps it; without rules, all are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// The newest versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_last: Option<usize>,
    /// Versions younger than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_within_secs: Option<u64>,
    /// The newest version of each of the last days (UTC) that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_daily: Option<usize>,
    /// The same for ISO weeks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_weekly: Option<usize>,
    /// The same for months.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_monthly: Option<usize>,
}

/// Rules and limits for the refs that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The refs to which this applies.
    #[serde(rename = "refs")]
    pub pattern: Pattern,
    /// Which versions of each ref to keep.
    #[serde(flatten)]
    pub rules: Rules,
    /// How many stored bytes each matching namespace may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What a store keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Scopes by pattern; the first that matches a ref applies.
    pub keep: Vec<Scope>,
    /// How many stored bytes all live versions may take together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A namespace or ref name in which `*` matches any characters, including `/`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Policy {
    /// Whether it sets nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns how many stored bytes the namespace of a ref may take: the quota of the first matching scope that has
    /// one.
    pub fn quota(&self, name: &RefName) -> Option<u64> {
        quota(&self.keep, name)
    }
}

/// Returns how many stored bytes the namespace of a ref may take: the quota of the first of `scopes` that matches the
/// ref and has one.
pub fn quota(scopes: &[Scope], name: &RefName) -> Option<u64> {
    let mut matching = scopes.iter().filter(|scope| scope.pattern.matches(name));
    matching.find_map(|scope| scope.quota_bytes)
}

impl Rules {
    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Pattern {
    /// Creates a pattern from text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it certainly matches all that `other` matches; false if the texts alone do not show it.
    pub fn covers(&self, other: &Self) -> bool {
        glob(self.0.as_bytes(), other.0.as_bytes())
    }

    /// Whether it matches the namespace or the whole name of a ref.
    pub fn matches(&self, name: &RefName) -> bool {
        let matches = |text: &str| glob(self.0.as_bytes(), text.as_bytes());
        matches(name.namespace().as_str()) || matches(name.as_str())
    }
}

/// Matches `text` against `pattern`, where `*` matches any bytes. Takes at most time in proportion to the product of
/// the lengths, even for a hostile pattern.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut behind) = (0, 0);
    // The position of the last star, and the end of the text that it has matched so far.
    let mut star: Option<(usize, usize)> = None;
    while let Some(byte) = text.get(behind) {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, behind));
                at += 1;
            }
            Some(expected) if expected == byte => {
                at += 1;
                behind += 1;
            }
            _ => match &mut star {
                None => return false,
                Some((place, matched)) => {
                    *matched += 1;
                    (at, behind) = (*place + 1, *matched);
                }
            },
        }
    }
    pattern
        .get(at..)
        .is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_namespaces_and_whole_names() {
        let name = "project/llama-ft/imagenet/train".parse().unwrap();
        for pattern in [
            "*",
            "**",
            "project/*",
            "project/llama-*",
            "project/llama-ft",
            "*/train",
            "*train*",
            "project/*/imagenet/*n",
            "project/llama-ft/imagenet/train",
        ] {
            assert!(Pattern::new(pattern).matches(&name), "{pattern}");
        }
        for pattern in [
            "",
            "team/*",
            "project/llama",
            "project/llama-ft/imagenet",
            "*x",
        ] {
            assert!(!Pattern::new(pattern).matches(&name), "{pattern}");
        }
    }

    #[test]
    fn a_hostile_pattern_costs_no_more_than_its_length() {
        let name = format!("project/{}/b", "a".repeat(200)).parse().unwrap();
        assert!(!Pattern::new("*a".repeat(100) + "c").matches(&name));
    }

    #[test]
    fn a_quota_is_that_of_the_first_scope_that_has_one() {
        let scope = |pattern: &str, quota_bytes| Scope {
            pattern: Pattern::new(pattern),
            rules: Rules::default(),
            quota_bytes,
            extra: Extra::new(),
        };
        let policy = Policy {
            keep: vec![
                scope("project/a/tmp", None),
                scope("project/*", Some(5)),
                scope("*", Some(9)),
            ],
            bytes_max: None,
            extra: Extra::new(),
        };
        assert_eq!(policy.quota(&"project/a/tmp".parse().unwrap()), Some(5));
        assert_eq!(policy.quota(&"team/a/b".parse().unwrap()), Some(9));
    }

    #[test]
    fn its_text_holds_what_is_said_and_no_more() {
        let policy = Policy {
            keep: vec![Scope {
                pattern: Pattern::new("project/*"),
                rules: Rules {
                    keep_last: Some(3),
                    ..Rules::default()
                },
                quota_bytes: Some(7),
                extra: Extra::new(),
            }],
            bytes_max: Some(9),
            extra: Extra::new(),
        };
        let text = r#"{"keep":[{"refs":"project/*","keep_last":3,"quota_bytes":7}],"bytes_max":9}"#;
        assert_eq!(serde_json::to_string(&policy).unwrap(), text);
        assert_eq!(serde_json::from_str::<Policy>(text).unwrap(), policy);
    }
}
