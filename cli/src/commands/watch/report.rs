//! What a watch tells of each checkpoint, for people and for machines.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use store::{Id, RefName};

use crate::ui::{human, names};

/// One that was published.
#[derive(Serialize)]
pub(super) struct Report {
    #[serde(rename = "ref")]
    pub(super) target: RefName,
    pub(super) version: u64,
    pub(super) id: Option<Id>,
    pub(super) checkpoint: String,
    /// The version was the same already.
    pub(super) unchanged: bool,
    pub(super) bytes: u64,
    pub(super) new_bytes: u64,
    pub(super) stored_bytes: u64,
    /// Versions of earlier checkpoints that were dropped.
    pub(super) dropped: Vec<u64>,
    pub(super) secs: f64,
}

/// One that was not, for machines: people are told beside the data.
#[derive(Serialize)]
pub(super) struct LeftOut {
    #[serde(rename = "ref")]
    pub(super) target: RefName,
    pub(super) checkpoint: String,
    /// Why.
    pub(super) not_published: String,
}

/// What went when the watch began.
#[derive(Serialize)]
pub(super) struct Trimmed {
    #[serde(rename = "ref")]
    pub(super) target: RefName,
    pub(super) dropped: Vec<u64>,
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same = if self.unchanged { " (unchanged)" } else { "" };
        write!(
            out,
            "{}@{}{}{same}: {}, {}, new {} in {}",
            self.target,
            self.version,
            names::id(self.id.as_ref()),
            self.checkpoint,
            human::bytes(self.bytes),
            human::bytes(self.new_bytes),
            human::duration(Duration::from_secs_f64(self.secs))
        )?;
        match self.dropped.len() as u64 {
            0 => Ok(()),
            count => write!(out, "; dropped {}", human::counted(count, "older version")),
        }
    }
}

impl fmt::Display for Trimmed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = human::counted(self.dropped.len() as u64, "older version");
        write!(out, "{}: dropped {count}", self.target)
    }
}
