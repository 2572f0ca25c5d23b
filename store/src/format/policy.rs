//! Policy of a store: which versions it keeps, and how much its namespaces may take.
//!
//! It is kept in the log, so every host's collector and every put follow the same rules. It is pure data: with it, `gc`
//! decides what is deleted, and a commit whether a namespace has room.

use serde::{Deserialize, Serialize};

use crate::format::{Extra, RefName};

/// How many versions of a ref to keep. A version that any rule keeps is kept; without rules all are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// The newest ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_last: Option<usize>,
    /// Those younger than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_within_secs: Option<u64>,
    /// The newest of each of so many days (UTC) that have one.
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
    /// Which refs.
    #[serde(rename = "refs")]
    pub pattern: Pattern,
    /// What to keep of each.
    #[serde(flatten)]
    pub rules: Rules,
    /// Stored bytes that each namespace it matches may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// What this program does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What a store keeps: the first scope that matches a ref decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// By pattern, the first that matches a ref counts.
    pub keep: Vec<Scope>,
    /// Stored bytes that all live versions may take together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// What this program does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A namespace or a ref name in which `*` stands for any characters, `/` included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Policy {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Stored bytes that the namespace of a ref may take: the first scope that matches the ref and has a quota.
    pub fn quota(&self, name: &RefName) -> Option<u64> {
        quota(&self.keep, name)
    }
}

/// Stored bytes that the namespace of a ref may take: the first of `scopes` that matches the ref and has a quota.
pub fn quota(scopes: &[Scope], name: &RefName) -> Option<u64> {
    let mut matching = scopes.iter().filter(|scope| scope.pattern.matches(name));
    matching.find_map(|scope| scope.quota_bytes)
}

impl Rules {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Pattern {
    /// A pattern from text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it matches all that `other` matches, as far as the texts show.
    pub fn covers(&self, other: &Self) -> bool {
        glob(self.0.as_bytes(), other.0.as_bytes())
    }

    /// Whether it matches a ref: by its namespace or by its whole name.
    pub fn matches(&self, name: &RefName) -> bool {
        let matches = |text: &str| glob(self.0.as_bytes(), text.as_bytes());
        matches(name.namespace().as_str()) || matches(name.as_str())
    }
}

/// `*` matches any bytes. Linear in the product of the lengths, so a hostile pattern costs no more.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut behind) = (0, 0);
    // Where the newest star stands, and the text that it matches up to.
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
