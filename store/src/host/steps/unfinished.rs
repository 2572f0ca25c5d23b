//! Why a step does not count as finished yet.

use std::fmt;
use std::path::PathBuf;

use crate::shown::shown;

/// A step that is not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// What it is called, on one line.
    pub name: String,
    /// Why it is not.
    pub why: NotYet,
}

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotYet {
    /// Its writer does not say so yet, or it changed just now.
    Written,
    /// Its marker is of what was there before: this file of the step is newer.
    Older {
        /// The marker.
        mark: PathBuf,
        /// From the step on.
        file: Vec<u8>,
    },
    /// This file of it, from the step on, is cut off, or cannot be read.
    Torn(Vec<u8>),
}

impl fmt::Display for Unfinished {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.why {
            NotYet::Written => write!(out, "{name}: not finished"),
            NotYet::Older { mark, file } => {
                let mark = mark.file_name().unwrap_or_default();
                let mark = shown(mark.as_encoded_bytes());
                write!(
                    out,
                    "{name}: not finished: {mark} is older than {}, so that it was written anew and not to its end",
                    shown(file)
                )
            }
            NotYet::Torn(file) => write!(
                out,
                "{name}: not finished: {} is cut off, or cannot be read",
                shown(file)
            ),
        }
    }
}
