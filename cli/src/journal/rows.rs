//! What a journal remembers of a run, as it is written down and as machines read it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One run of a job.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub(crate) struct Run {
    /// 1 is the first.
    pub(crate) number: u64,
    pub(crate) pid: u32,
    pub(crate) started: Timestamp,
    /// None, while it runs and when it was killed.
    pub(crate) ended: Option<Timestamp>,
    pub(crate) outcome: Outcome,
    #[serde(flatten)]
    pub(crate) numbers: Numbers,
    /// Why it did not do all, on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// Not yet, or its process was killed.
    Running,
    /// Its process was killed.
    Killed,
    Done,
    /// Some refs did not make it.
    Partly,
    Interrupted,
    Failed,
}

/// What a run moved.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq)]
pub(crate) struct Numbers {
    /// Versions that were published.
    pub(crate) published: u64,
    /// Refs and versions that did not make it.
    pub(crate) failed: u64,
    pub(crate) chunks: u64,
    /// Bytes of frames, as encoded.
    pub(crate) sent_bytes: u64,
    /// Bytes of packs that an earlier run had sent.
    pub(crate) resumed_bytes: u64,
    pub(crate) secs: f64,
}

/// A ref that did not make it.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct RefError {
    #[serde(rename = "ref")]
    pub(crate) name: String,
    pub(crate) error: String,
}

impl Outcome {
    /// In a sentence.
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
