//! What a journal remembers of a run, as written to disk and as JSON output.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One run of a job.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub(crate) struct Run {
    /// The first run is 1.
    pub(crate) number: u64,
    pub(crate) pid: u32,
    pub(crate) started: Timestamp,
    /// `None` while the run lasts, and if it was killed.
    pub(crate) ended: Option<Timestamp>,
    pub(crate) outcome: Outcome,
    #[serde(flatten)]
    pub(crate) numbers: Numbers,
    /// Why the run did not succeed completely, on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// The run has not ended, or its process was killed.
    Running,
    /// Its process was killed.
    Killed,
    Done,
    /// Some refs failed.
    Partly,
    Interrupted,
    Failed,
}

/// What a run transferred.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq)]
pub(crate) struct Numbers {
    /// Versions that were published.
    pub(crate) published: u64,
    /// Refs and versions that failed.
    pub(crate) failed: u64,
    pub(crate) chunks: u64,
    /// Encoded bytes of frames.
    pub(crate) sent_bytes: u64,
    /// Bytes of packs that earlier runs had sent.
    pub(crate) resumed_bytes: u64,
    pub(crate) secs: f64,
}

/// A ref that failed.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct RefError {
    #[serde(rename = "ref")]
    pub(crate) name: String,
    pub(crate) error: String,
}

impl Outcome {
    /// The outcome, for use in a sentence.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Killed => "killed",
            Self::Done => "done",
            Self::Partly => "partly done",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}
