//! What the stages of a put tell each other, in the order of the drawing: the walk, the workers, the assembler, the session.

use std::path::PathBuf;
use std::time::SystemTime;

use super::PutReport;
use super::ties::Tie;
use crate::error::Error;
use crate::format::{Content, Root, Side, Time, Version, Xattrs};
use crate::host::saved::Listing;
use crate::host::stat_cache::StatCacheWriter;
use crate::host::walk::Stat;
use crate::id::ChunkId;
use crate::read::Reader;
use crate::remedy::Note;

/// What is kept of a put on this host, and the reader that is to know its trees.
pub(super) type OfHost<'p> = (
    Option<StatCacheWriter>,
    Option<&'p Reader<'p>>,
    Option<Listing>,
);

/// The version that cached contents belong to.
#[derive(Clone, Debug)]
pub(super) struct Base(pub(super) Version);

/// Events that the walk tells at once: one by one, they would wake the assembler for each file.
pub(super) const EVENTS_TOLD: usize = 128;

/// What there is, in the walk's order; told many at once.
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
    /// A file that a worker has been given under this number.
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

/// What a walk has found out.
pub(super) struct Walked {
    /// What is worth notes.
    pub(super) notes: Vec<Note>,
    /// Whether only their owner may read some of it.
    pub(super) is_private: bool,
    /// Whether it passed over anything.
    pub(super) has_left_out: bool,
}

/// A chunk of a file: its id and length.
pub(super) type FileChunk = (ChunkId, u32);

/// What has become of a file.
#[derive(Debug)]
pub(super) enum Ingested {
    /// The chunks of one part of it.
    Part {
        number: u64,
        part: u64,
        chunks: Vec<FileChunk>,
    },
    /// All of it.
    End { number: u64, file: FileRead },
    /// It could not be read.
    Unreadable {
        number: u64,
        path: PathBuf,
        error: Error,
    },
    /// What was read could not be stored: the put fails.
    Broken(Error),
}

/// A file that was read to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileRead {
    /// How many parts were told.
    pub(super) parts: u64,
    /// What it looked like when it had been read.
    pub(super) stat: Stat,
    /// Whether each later change shows in its times.
    pub(super) shows_changes: bool,
}

/// What a put has built: everything but the log entry.
pub(super) struct Built {
    pub(super) root: Root,
    pub(super) times: Content,
    /// What it was asked to keep.
    pub(super) kept: Vec<Side>,
    /// Over the times of files alone: those of directories move with everything that passes through.
    pub(super) file_times: blake3::Hash,
    /// Metadata chunks of `times` that the store did not have.
    pub(super) new_times: u64,
    /// Whether it comes out for one person alone, whatever came before it.
    pub(super) is_private: bool,
    pub(super) report: PutReport,
    pub(super) cache: Option<StatCacheWriter>,
    /// What there is, path by path, where it is saved.
    pub(super) listing: Option<Listing>,
    /// Whether not all metadata that the pass made is known to its reader.
    pub(super) is_known_in_part: bool,
    /// Whether the walk passed over anything.
    pub(super) has_left_out: bool,
}

impl Built {
    /// Whether anything that lies in the source is not in what was built.
    pub(super) fn leaves_out(&self) -> bool {
        self.has_left_out || !self.report.skipped.is_empty()
    }
}

/// The times of files, one after another, as one hash.
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
