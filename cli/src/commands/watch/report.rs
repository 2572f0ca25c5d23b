//! The reports about each checkpoint, for people and for machines.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::time::Duration;

use serde::Serialize;
use store::{Error, Id, RefName, Remedy};

use crate::ui::output::Output;
use crate::ui::{failure, human, names};

/// A published checkpoint.
#[derive(Serialize)]
pub(super) struct Report {
    #[serde(rename = "ref")]
    pub(super) target: RefName,
    pub(super) version: u64,
    pub(super) id: Option<Id>,
    pub(super) checkpoint: String,
    /// Whether the newest version already had the same content.
    pub(super) unchanged: bool,
    pub(super) bytes: u64,
    pub(super) new_bytes: u64,
    pub(super) stored_bytes: u64,
    /// Versions of earlier checkpoints that were dropped.
    pub(super) dropped: Vec<u64>,
    pub(super) secs: f64,
}

/// A checkpoint that was not published, in JSON. People get a warning.
#[derive(Serialize)]
struct LeftOut<'t> {
    #[serde(rename = "ref")]
    target: &'t RefName,
    checkpoint: &'t str,
    /// The reason.
    not_published: &'t str,
}

/// Versions that were dropped when the watch began.
#[derive(Serialize)]
pub(super) struct Trimmed {
    #[serde(rename = "ref")]
    pub(super) target: RefName,
    pub(super) dropped: Vec<u64>,
}

/// Prints each message only once.
pub(super) struct Teller<'t> {
    out: &'t Output,
    target: &'t RefName,
    /// Messages already printed to people.
    told: BTreeSet<String>,
    /// Names and reasons already printed in JSON.
    left_out: BTreeSet<(String, String)>,
}

impl<'t> Teller<'t> {
    pub(super) fn new(out: &'t Output, target: &'t RefName) -> Self {
        Self {
            out,
            target,
            told: BTreeSet::new(),
            left_out: BTreeSet::new(),
        }
    }

    /// Prints what was done. A closed terminal does not stop the publishing.
    pub(super) fn report(&mut self, report: &(impl Serialize + Display)) {
        let told = self.out.report(report).and_then(|()| self.out.finish());
        if let Err(error) = told {
            self.failure(&error);
        }
    }

    /// Prints a failure that will be retried.
    pub(super) fn failure(&mut self, error: &Error) {
        let text = failure::one_line(error);
        if self.told.insert(text.clone()) {
            self.out
                .warning(format_args!("warning: {text}; tried again"));
        }
    }

    /// Prints that a checkpoint is not published.
    pub(super) fn left_out(&mut self, name: &str, why: &str) {
        self.warning(name, why);
        self.left_out_aside(name, why);
    }

    /// Prints it in JSON only, when people are told in another way.
    pub(super) fn left_out_aside(&mut self, name: &str, why: &str) {
        let is_new = self.left_out.insert((name.to_owned(), why.to_owned()));
        if !is_new || !self.out.is_json() {
            return;
        }
        let left_out = LeftOut {
            target: self.target,
            checkpoint: name,
            not_published: why,
        };
        if let Err(error) = self.out.json(&left_out) {
            self.failure(&error);
        }
    }

    /// Prints a problem with a checkpoint.
    pub(super) fn warning(&mut self, name: &str, why: &str) {
        let text = named(name, why);
        if self.told.insert(text.clone()) {
            self.out.warning(format_args!("warning: {text}"));
        }
    }
}

/// The message about a checkpoint.
pub(super) fn named(name: &str, why: &str) -> String {
    format!("{name}: {why}")
}

/// Why a checkpoint is not put, and what to do about it here.
pub(super) fn advised(error: &Error) -> String {
    let told = failure::one_line(error);
    let glob = match error.remedy() {
        Some(Remedy::AllowSecret { glob }) => names::quoted(glob),
        Some(Remedy::AllowSecrets) => "GLOB".into(),
        _ => return told,
    };
    format!("{told}; if it holds none, --allow-secret {glob} takes it")
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
