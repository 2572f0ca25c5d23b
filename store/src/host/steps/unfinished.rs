//! Why a step does not count as finished yet.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::shown::shown;

/// A step that is not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Its name, on one line.
    pub name: String,
    /// Why it is not finished.
    pub why: NotYet,
}

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotYet {
    /// It changed just now, or its writer is unknown.
    Written,
    /// Its writer has not declared it finished yet.
    Unmarked {
        /// The file that would declare it.
        mark: PathBuf,
        /// Whether that file is beside the step.
        is_beside: bool,
    },
    /// Files came after its marker or may come, and it has not stood still for long.
    Late,
    /// It has no files.
    Empty,
    /// It has no files but its marker: others may not have begun to write.
    Alone {
        /// The marker.
        mark: PathBuf,
    },
    /// Its marker belongs to what was there before: a file is newer.
    Older {
        /// The marker.
        mark: PathBuf,
        /// The newer file, relative to the step.
        file: Vec<u8>,
    },
    /// Entries were removed after its marker was written: it is being deleted, or rewritten.
    Thinned {
        /// The marker.
        mark: PathBuf,
    },
    /// It was published, and some of its files were written since.
    Rewritten {
        /// A file that was not, relative to the step.
        file: Vec<u8>,
        /// How long nothing must change until that file counts as unchanged.
        span: Duration,
    },
    /// An index names a file that does not exist.
    Lacks {
        /// The index, relative to the step.
        index: Vec<u8>,
        /// The file, as the index names it.
        lacks: String,
    },
    /// This file, relative to the step, is truncated or unreadable.
    Torn(Vec<u8>),
    /// It is a symlink to a directory elsewhere, and links are not followed.
    Link {
        /// Where it leads.
        to: PathBuf,
    },
}

impl NotYet {
    /// Whether every step is in this state while it is written.
    pub fn is_usual(&self) -> bool {
        matches!(self, Self::Written | Self::Unmarked { .. } | Self::Late)
    }
}

impl fmt::Display for NotYet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Link { to } = self {
            let to = shown(to.as_os_str().as_encoded_bytes());
            return write!(
                out,
                "not published: it is a symlink to {to}, and links are not followed"
            );
        }
        out.write_str("not finished")?;
        match self {
            Self::Link { .. } => Ok(()),
            Self::Written => Ok(()),
            Self::Unmarked { mark, is_beside } => {
                let mark = shown(mark.as_os_str().as_encoded_bytes());
                match is_beside {
                    true => write!(out, ": {mark} beside it does not name it"),
                    false => write!(out, ": there is no whole {mark} in it"),
                }
            }
            Self::Late => out.write_str(
                ": it has not stood still for long, and files may come after its marker",
            ),
            Self::Empty => out.write_str(": there is no file in it"),
            Self::Alone { mark } => {
                write!(out, ": there is no file in it but {}", last_name(mark))
            }
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
            Self::Rewritten { file, span } => write!(
                out,
                ": other files were written since it was published, and {} was not; it counts when that is written, \
                 too, or when nothing has changed for {} s",
                shown(file),
                span.as_secs()
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
