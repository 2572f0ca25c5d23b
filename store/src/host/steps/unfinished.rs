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

impl fmt::Display for NotYet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("not finished")?;
        match self {
            Self::Written => Ok(()),
            Self::Late => out.write_str(": files came after its marker a moment ago"),
            Self::Empty => out.write_str(": there is no file in it"),
            Self::Older { mark, file } => {
                let (mark, file) = (last_name(mark), shown(file));
                write!(
                    out,
                    ": {mark} is older than {file}, so it was being rewritten and was not finished"
                )
            }
            Self::Thinned { mark } => write!(
                out,
                ": a file of it was removed after {} was written, as if it were being deleted",
                last_name(mark)
            ),
            Self::Lacks { index, lacks } => {
                let (index, lacks) = (shown(index), shown(lacks.as_bytes()));
                write!(out, ": {index} names {lacks}, which is not there")
            }
            Self::Torn(file) => write!(out, ": {} is cut off, or cannot be read", shown(file)),
        }
    }
}

fn last_name(path: &Path) -> String {
    shown(path.file_name().unwrap_or_default().as_encoded_bytes())
}
