//! The messages between the stages of a put, in the order of the pipeline: walk, workers, assembler, session.

use std::path::PathBuf;
use std::time::SystemTime;

use super::ties::Tie;
use super::{PutReport, PutRequest};
use crate::error::{Error, Result};
use crate::format::{Content, Root, Side, Time, Version, Xattrs};
use crate::host::saved::Listing;
use crate::host::stat_cache::StatCacheWriter;
use crate::host::walk::Stat;
use crate::id::ChunkId;
use crate::read::Reader;
use crate::remedy::Note;

/// What a put keeps on this host, and the reader that keeps its trees in memory.
pub(super) type OfHost<'p> = (
    Option<StatCacheWriter>,
    Option<&'p Reader<'p>>,
    Option<Listing>,
);

/// The version that cached contents belong to.
#[derive(Clone, Debug)]
pub(super) struct Base(pub(super) Version);

/// How many events the walk sends at once: sent one by one, they would wake the assembler for each file.
pub(super) const EVENTS_TOLD: usize = 128;

/// An entry that the walk found, in the order of the walk.
#[derive(Debug)]
pub(super) enum Event {
    Enter {
        name: Vec<u8>,
        stat: Stat,
        xattrs: Xattrs,
    },
    /// A file that need not be read.
    Known {
        name: Vec<u8>,
        stat: Stat,
        content: Content,
        tie: Tie,
        xattrs: Xattrs,
    },
    /// A file that a worker reads under this number.
    Read {
        name: Vec<u8>,
        number: u64,
        read_began: SystemTime,
        tie: Tie,
        xattrs: Xattrs,
    },
    Symlink {
        name: Vec<u8>,
        target: Vec<u8>,
        stat: Stat,
    },
    Leave,
    Skipped {
        path: PathBuf,
        error: Error,
    },
}

/// The result of a walk.
pub(super) struct Walked {
    /// Notes for the user.
    pub(super) notes: Vec<Note>,
    /// Whether only the owner may read some of the files.
    pub(super) is_private: bool,
    /// Whether the walk left anything out.
    pub(super) has_left_out: bool,
    /// Whether some of that may be nowhere else.
    pub(super) has_missed: bool,
    /// Whether that is all there was, and only since globs may leave out everything.
    pub(super) is_all_left_out: bool,
    /// The paths that globs left out, a limited number of them.
    pub(super) excluded: Vec<PathBuf>,
}

/// A chunk of a file: its id and length.
pub(super) type FileChunk = (ChunkId, u32);

/// The result of reading a file, or a part of it.
#[derive(Debug)]
pub(super) enum Ingested {
    /// The chunks of one part of the file.
    Part {
        number: u64,
        part: u64,
        chunks: Vec<FileChunk>,
    },
    /// The file was read to its end.
    End { number: u64, file: FileRead },
    /// The file could not be read.
    Unreadable {
        number: u64,
        path: PathBuf,
        error: Error,
    },
    /// What was read could not be stored, so the put fails.
    Broken(Error),
}

/// A file that was read to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileRead {
    /// The number of its parts.
    pub(super) parts: u64,
    /// Its attributes when it had been read.
    pub(super) stat: Stat,
    /// Whether every later change shows in its times.
    pub(super) shows_changes: bool,
}

/// The result of a put before its log entry.
pub(super) struct Built {
    pub(super) root: Root,
    pub(super) times: Content,
    /// What was kept on request.
    pub(super) kept: Vec<Side>,
    /// The hash of the times of files alone: times of directories change with every temporary file in them.
    pub(super) file_times: blake3::Hash,
    /// Metadata chunks of `times` that the store did not have.
    pub(super) new_times: u64,
    /// Whether only one user may access copies of it, whatever earlier versions allow.
    pub(super) is_private: bool,
    pub(super) report: PutReport,
    pub(super) cache: Option<StatCacheWriter>,
    /// A list of all paths, if this is a save.
    pub(super) listing: Option<Listing>,
    /// Whether the reader of the pass lacks some of the metadata that the pass made.
    pub(super) is_known_in_part: bool,
    /// Whether the walk left anything out.
    pub(super) has_left_out: bool,
    /// Whether it left out everything, as globs may.
    pub(super) is_all_left_out: bool,
}

impl Built {
    /// Whether anything in the source is missing from what was built.
    pub(super) fn leaves_out(&self) -> bool {
        self.has_left_out || !self.report.skipped.is_empty()
    }

    /// Checks that not everything was left out.
    pub(super) fn check_has_files(&self, request: &PutRequest) -> Result<()> {
        let PutReport {
            files,
            symlinks,
            skipped,
            ..
        } = &self.report;
        if files + symlinks > 0 || skipped.is_empty() {
            return Ok(());
        }
        let left_out = skipped.iter().map(|(_, error)| error.to_string());
        Err(Error::partial(format!(
            "{}: everything in {} was left out, so that nothing is left to be stored",
            request.target,
            request.source.display()
        ))
        .list(left_out))
    }
}

/// One hash of the times of files, in order.
#[derive(Default)]
pub(super) struct FileTimes(blake3::Hasher);

impl FileTimes {
    pub(super) fn push(&mut self, time: Time) {
        self.0.update(&time.secs.to_le_bytes());
        self.0.update(&time.nanos.to_le_bytes());
    }

    pub(super) fn finish(&self) -> blake3::Hash {
        self.0.finalize()
    }
}
