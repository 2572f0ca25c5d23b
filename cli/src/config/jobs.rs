//! Jobs of the configuration: named duplications, for cron.

use serde::Deserialize;
use store::replicate::Versions;

use crate::config::Size;

/// The table `[job.NAME]`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    /// Clusters, paths or URLs.
    pub(crate) from: String,
    pub(crate) to: String,
    /// The profile for a bucket that is named by its URL, if no cluster with this URL has a profile.
    pub(crate) profile: Option<String>,
    /// Namespaces, refs, and versions of refs.
    pub(crate) refs: Vec<String>,
    #[serde(default)]
    pub(crate) versions: Choice,
    #[serde(default)]
    pub(crate) delete: bool,
    /// Bytes per second.
    pub(crate) bwlimit: Option<Size>,
    #[serde(default)]
    pub(crate) verify: bool,
}

/// Which versions, as people write it.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Choice {
    /// The newest of each ref
    #[default]
    Latest,
    /// All that are live, the oldest first
    All,
}

impl From<Choice> for Versions {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Latest => Self::Latest,
            Choice::All => Self::All,
        }
    }
}
