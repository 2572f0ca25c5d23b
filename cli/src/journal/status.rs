//! What is known of a job from outside, also while it runs: a file beside the journal, since the database
//! belongs to the process that runs the job.

use serde::{Deserialize, Serialize};
use std::io::Read;
use store::StoreId;

use super::place::JobDir;
use super::rows::{Outcome, RefError, Run};
use crate::host::files::{self, Use};

/// Most bytes of a status that are read: more is no JSON.
const STATUS_BYTES_MAX: u64 = 64 << 20;

/// What a job does.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) job: String,
    /// As the stores were named.
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) refs: Vec<String>,
    /// The stores that were found there, the source first; none, as long as nobody has looked.
    pub(crate) stores: Option<(StoreId, StoreId)>,
}

/// How far the run is, or was when it last said so.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct Far {
    pub(crate) bytes: u64,
    /// 0, where nobody knows yet.
    pub(crate) total_bytes: u64,
}

/// What is known of a job.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub(crate) struct Status {
    #[serde(flatten)]
    pub(crate) facts: Facts,
    /// Of the newest run.
    pub(crate) progress: Far,
    /// Of the newest run that ended.
    pub(crate) errors: Vec<RefError>,
    /// The newest first.
    pub(crate) runs: Vec<Run>,
}

impl Status {
    /// What is known; none, where nothing is or it cannot be read.
    pub(crate) fn read(dir: &JobDir) -> Option<Self> {
        let mut text = Vec::new();
        let file = store::open_regular(&dir.status()).ok()?;
        file.take(STATUS_BYTES_MAX).read_to_end(&mut text).ok()?;
        let mut status: Self = serde_json::from_slice(&text).ok()?;
        if !dir.is_running() {
            status.runs.iter_mut().for_each(Run::end_killed);
        }
        Some(status)
    }

    /// Tells others; whether that worked.
    pub(super) fn write(&self, dir: &JobDir) -> store::Result<()> {
        let text = serde_json::to_vec(self)
            .map_err(|source| store::Error::invalid("the status of a job").because(source))?;
        files::replace(&dir.status(), &text, Use::Report)
    }
}

impl Run {
    /// A run that never said how it ended.
    pub(super) fn end_killed(&mut self) {
        if self.outcome == Outcome::Running {
            self.outcome = Outcome::Killed;
        }
    }
}
