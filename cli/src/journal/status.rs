//! The status of a job, also while it runs. It is a file beside the journal, since the database belongs to the process
//! that runs the job.

use serde::{Deserialize, Serialize};
use std::io::Read;
use store::StoreId;

use super::place::JobDir;
use super::rows::{Outcome, RefError, Run};
use crate::host::files::{self, Use};

/// Maximum bytes to read of a status; a longer file is cut and so does not parse.
const STATUS_BYTES_MAX: u64 = 64 << 20;

/// The definition of a job.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) job: String,
    /// The stores, as they were named.
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) refs: Vec<String>,
    /// The ids of the stores, the source first; `None` until they were opened.
    pub(crate) stores: Option<(StoreId, StoreId)>,
}

/// The progress that the run last reported.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct Far {
    pub(crate) bytes: u64,
    /// 0 if not known yet.
    pub(crate) total_bytes: u64,
}

/// The status of a job.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub(crate) struct Status {
    #[serde(flatten)]
    pub(crate) facts: Facts,
    /// The progress of the newest run.
    pub(crate) progress: Far,
    /// The errors of the newest run that ended.
    pub(crate) errors: Vec<RefError>,
    /// Newest first.
    pub(crate) runs: Vec<Run>,
}

impl Status {
    /// Reads the status; `None` if there is none or it cannot be read.
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

    /// Writes the status.
    pub(super) fn write(&self, dir: &JobDir) -> store::Result<()> {
        let text = serde_json::to_vec(self)
            .map_err(|source| store::Error::invalid("the status of a job").because(source))?;
        files::replace(&dir.status(), &text, Use::State)
    }
}

impl Run {
    /// Marks a run that did not record its end as killed.
    pub(super) fn end_killed(&mut self) {
        if self.outcome == Outcome::Running {
            self.outcome = Outcome::Killed;
        }
    }
}
