//! Hashes of files by which clients identify them: git's SHA-1, and SHA-256.
//!
//! A hash is computed once for a content. It is kept in the host's cache directory, in lines that name the content and
//! have a checksum, so that a torn line is computed again. Hashes are not side objects of versions: versions never
//! change, and replication should not carry what only one door needs. If the hashes are lost, that costs only time.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sha1::Sha1;
use sha2::{Digest, Sha256};
use store::{Content, Reader, Result};

use crate::serve::numbers::Numbers;
use crate::serve::text::{hex, is_hex};

/// What the read of one file may take.
const MEMORY_BYTES: u64 = 16 << 20;
/// A text has no NUL in its first bytes; this is their number.
pub(super) const HEAD_BYTES: usize = 512;
/// Length of a line's checksum in hex digits.
const CHECK_DIGITS: usize = 16;
/// Most bytes of a file of hashes.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of hashes in memory.
const KNOWN_MAX: usize = 100_000;
/// Maximum number of contents whose hashes are computed at once.
const LANES: usize = 32;

/// The hashes of one content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hashes {
    /// Git's blob id: SHA-1 of `blob <size>\0` and the bytes.
    pub(crate) git: String,
    pub(crate) sha256: String,
    /// Whether there is a NUL near the beginning.
    pub(crate) is_binary: bool,
}

/// The known hashes of contents.
pub(crate) struct Known {
    dir: Option<PathBuf>,
    /// Cleared when it is full; the entries are also on disk.
    memory: Mutex<HashMap<Content, Arc<Hashes>>>,
    /// Locks that make requests for the same content wait for one computation.
    lanes: [Mutex<()>; LANES],
    numbers: Arc<Numbers>,
}

impl Known {
    /// Keeps hashes below `cache_dir`, if there is one.
    pub(crate) fn new(cache_dir: Option<PathBuf>, numbers: Arc<Numbers>) -> Self {
        Self {
            dir: cache_dir.map(|dir| dir.join("hub-hashes")),
            memory: Mutex::default(),
            lanes: Default::default(),
            numbers,
        }
    }

    /// The hashes of `content`, computed if necessary. Blocks.
    ///
    /// # Errors
    /// If its bytes cannot be read.
    pub(crate) fn of(&self, reader: &Reader<'_>, content: &Content) -> Result<Arc<Hashes>> {
        if let Some(known) = self.look_up(content) {
            return Ok(known);
        }
        let [first, ..] = content.root.0;
        let lane = self.lanes.get(usize::from(first) % LANES);
        let _turn = lane.map(|lane| lane.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(known) = self.look_up(content) {
            return Ok(known);
        }
        let hashes = compute(reader, content, &self.numbers)?;
        // If writing fails, the next server computes them again.
        let _kept = self.keep(content, &hashes);
        Ok(self.remember(content, hashes))
    }

    /// Stores hashes that were computed elsewhere.
    pub(crate) fn learn(&self, content: &Content, hashes: Hashes) {
        if self.look_up(content).is_none() {
            // If writing fails, the next server computes them.
            let _kept = self.keep(content, &hashes);
            self.remember(content, hashes);
        }
    }

    /// The hashes, if they are in memory.
    pub(crate) fn remembered(&self, content: &Content) -> Option<Arc<Hashes>> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.get(content).map(Arc::clone)
    }

    /// The hashes, if they are in memory or on disk.
    pub(crate) fn look_up(&self, content: &Content) -> Option<Arc<Hashes>> {
        if let Some(known) = self.remembered(content) {
            return Some(known);
        }
        // Remembers the whole file: a long list asks for neighbouring hashes too.
        let text = store::read_regular(&self.place(content)?, FILE_BYTES_MAX).ok()?;
        let text = String::from_utf8(text).ok()?;
        let mut found = None;
        for (of, hashes) in text.lines().filter_map(parse) {
            let is_it = of == *content;
            let hashes = self.remember(&of, hashes);
            found = is_it.then_some(hashes).or(found);
        }
        found
    }

    fn remember(&self, content: &Content, hashes: Hashes) -> Arc<Hashes> {
        let hashes = Arc::new(hashes);
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() >= KNOWN_MAX {
            memory.clear();
        }
        memory.insert(*content, Arc::clone(&hashes));
        hashes
    }

    fn keep(&self, content: &Content, hashes: &Hashes) -> std::io::Result<()> {
        let (Some(place), Some(dir)) = (self.place(content), &self.dir) else {
            return Ok(());
        };
        std::fs::create_dir_all(dir)?;
        let mut file =
            store::open_regular_with(OpenOptions::new().create(true).append(true), &place)?;
        // One write, so that lines of several servers do not mix. The first newline ends a torn line.
        file.write_all(format!("\n{}\n", line(content, hashes)).as_bytes())
    }

    /// The file for a content, one of 256.
    fn place(&self, content: &Content) -> Option<PathBuf> {
        let root = content.root.to_string();
        Some(self.dir.as_ref()?.join(root.get(..2)?))
    }
}

fn line(content: &Content, hashes: &Hashes) -> String {
    let Content { size, depth, root } = content;
    let Hashes {
        git,
        sha256,
        is_binary,
    } = hashes;
    let text = format!("{root} {size} {depth} {git} {sha256} {is_binary}");
    let check = check(&text);
    format!("{text} {check}")
}

fn parse(line: &str) -> Option<(Content, Hashes)> {
    let (text, found) = line.rsplit_once(' ')?;
    let mut words = text.split(' ').filter(|_| check(text) == found);
    let content = Content {
        root: words.next()?.parse().ok()?,
        size: words.next()?.parse().ok()?,
        depth: words.next()?.parse().ok()?,
    };
    let hashes = Hashes {
        git: words.next().filter(|word| is_hex(word, 40))?.to_owned(),
        sha256: words.next().filter(|word| is_hex(word, 64))?.to_owned(),
        is_binary: words.next()?.parse().ok()?,
    };
    Some((content, hashes))
}

fn check(text: &str) -> String {
    let mut digits = hex(&Sha256::digest(text));
    digits.truncate(CHECK_DIGITS);
    digits
}

fn compute(reader: &Reader<'_>, content: &Content, numbers: &Numbers) -> Result<Hashes> {
    let size = content.size;
    let mut git = git_hash(size);
    let mut sha256 = Sha256::new();
    let mut head = None;
    reader.read_in_order(content, &(0..size), MEMORY_BYTES, &mut |bytes| {
        head.get_or_insert_with(|| is_binary_head(bytes));
        git.update(bytes);
        sha256.update(bytes);
        numbers.hashed_bytes.add(bytes.len() as u64);
        Ok(())
    })?;
    Ok(Hashes {
        git: hex(&git.finalize()),
        sha256: hex(&sha256.finalize()),
        is_binary: head.unwrap_or(false),
    })
}

/// Whether a file with these first bytes is binary.
pub(super) fn is_binary_head(head: &[u8]) -> bool {
    head.iter().take(HEAD_BYTES).any(|byte| *byte == 0)
}

/// Begins to compute git's blob id of a file of `size` bytes.
pub(super) fn git_hash(size: u64) -> Sha1 {
    Sha1::new().chain_update(format!("blob {size}\0"))
}

/// Git's blob id of a text.
pub(crate) fn git_name(text: &str) -> String {
    hex(&git_hash(text.len() as u64).chain_update(text).finalize())
}

/// Forty hex digits derived from `text`.
pub(crate) fn derived(text: &str) -> String {
    let mut digits = hex(&Sha256::digest(text));
    digits.truncate(40);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_back_and_a_torn_one_does_not() {
        let content = Content::empty();
        let hashes = Hashes {
            git: "a".repeat(40),
            sha256: "b".repeat(64),
            is_binary: true,
        };
        let line = line(&content, &hashes);
        assert_eq!(parse(&line), Some((content, hashes)));
        for end in 0..line.len() {
            assert_eq!(parse(&line[..end]), None, "{end}");
        }
        assert_eq!(parse(&line.replace('a', "c")), None);
    }

    #[test]
    fn names_are_those_of_git() {
        assert_eq!(git_name(""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(
            git_name("hello\n"),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
    }
}
