//! Who did something: a host, a user and a program, for people.

use serde::{Deserialize, Serialize};

/// Who wrote an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// Host name.
    pub host: String,
    /// User name or number.
    pub user: String,
    /// Program and version, and whether a rule decided; see [`Who::by_rule`].
    pub program: String,
}

/// The end of the program's name in an entry that a rule caused.
const BY_RULE: &str = ", by rule";

impl Who {
    /// The same writer, for an entry that a rule causes and nobody asked for: retention, or a mirror.
    #[must_use]
    pub fn by_rule(mut self) -> Self {
        if !self.is_by_rule() {
            self.program.push_str(BY_RULE);
        }
        self
    }

    /// Whether a rule caused the entry.
    pub fn is_by_rule(&self) -> bool {
        self.program.ends_with(BY_RULE)
    }
}
