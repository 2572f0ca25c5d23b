//! Why a step does not count as finished yet.

use std::fmt;
use std::path::{Path, PathBuf};

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
    /// Files came after its marker a moment ago: others may still write.
    Late,
    /// There is no file in it.
    Empty,
    /// Its marker is of what was there before: this file of the step is newer.
    Older {
        /// The marker.
        mark: PathBuf,
        /// From the step on.
        file: Vec<u8>,
    },
    /// Something in it went when its marker was there: it is being deleted, or rewritten.
    Thinned {
        /// The marker.
        mark: PathBuf,
    },
    /// An index in it, from the step on, names a file that is not there.
    Lacks {
        /// The index.
        index: Vec<u8>,
        /// As it names it.
        lacks: String,
    },
    /// This file of it, from the step on, is cut off, or cannot be read.
    Torn(Vec<u8>),
}

impl fmt::Display for Unfinished {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.why {
            NotYet::Written => write!(out, "{name}: not finished"),
            NotYet::Late => write!(
                out,
                "{name}: not finished: files came after its marker a moment ago"
            ),
            NotYet::Empty => write!(out, "{name}: not finished: there is no file in it"),
            NotYet::Older { mark, file } => {
                let mark = last_name(mark);
                write!(
                    out,
                    "{name}: not finished: {mark} is older than {}, so it was being rewritten and was not finished",
                    shown(file)
                )
            }
            NotYet::Thinned { mark } => write!(
                out,
                "{name}: not finished: a file of it was removed after {} was written, as if it were being deleted",
                last_name(mark)
            ),
            NotYet::Lacks { index, lacks } => write!(
                out,
                "{name}: not finished: {} names {}, which is not there",
                shown(index),
                shown(lacks.as_bytes())
            ),
            NotYet::Torn(file) => write!(
                out,
                "{name}: not finished: {} is cut off, or cannot be read",
                shown(file)
            ),
        }
    }
}

fn last_name(path: &Path) -> String {
    shown(path.file_name().unwrap_or_default().as_encoded_bytes())
}
