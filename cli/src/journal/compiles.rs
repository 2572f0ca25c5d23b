//! How well compile caches did on this host: one JSON line for each run of a command. The file is disposable: a line
//! that cannot be written or read is only missing from a sum.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config;
use crate::host::state;

/// How many of the newest bytes are read.
const BYTES_READ_MAX: u64 = 1 << 20;
/// When the file reaches this size, a new one is started. The old file is kept beside it.
const BYTES_KEPT_MAX: u64 = 4 << 20;

/// What one run found in a cache.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) time: Timestamp,
    /// The store, as named on this host.
    pub(crate) store: String,
    pub(crate) profile: String,
    /// The refs that the cache is pulled from and pushed to, without duplicates.
    pub(crate) refs: Vec<String>,
    /// Entries that existed when the command began, pulled ones included.
    #[serde(alias = "hits")]
    pub(crate) there: u64,
    /// How many of these were pulled.
    #[serde(alias = "avoided")]
    pub(crate) pulled: u64,
    /// How many of the existing entries the command read, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) read: Option<u64>,
    /// Entries that the command added.
    #[serde(alias = "misses")]
    pub(crate) added: u64,
}

/// The sums of all runs of one cache.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) profile: String,
    pub(crate) refs: Vec<String>,
    pub(crate) runs: u64,
    pub(crate) there: u64,
    pub(crate) pulled: u64,
    pub(crate) added: u64,
    /// Entries read and entries added, over the runs whose reads are known.
    pub(crate) told: Option<(u64, u64)>,
    pub(crate) last: Timestamp,
}

/// Adds a line.
pub(crate) fn add(line: &Line) {
    let written = place().map(|path| write(&path, line));
    // A command that succeeded does not fail because of this line.
    drop(written);
}

/// The sums for each cache of a store, by refs.
pub(crate) fn tallies(store: &str) -> Vec<Tally> {
    let text = place().and_then(|path| read(&path).ok());
    sums(&text.unwrap_or_default(), store)
}

/// `$XDG_STATE_HOME/store/compiles.jsonl`.
fn place() -> Option<PathBuf> {
    Some(config::state_dir()?.join("compiles.jsonl"))
}

fn write(path: &Path, line: &Line) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        state::make(dir)?;
    }
    if path
        .metadata()
        .is_ok_and(|found| found.len() > BYTES_KEPT_MAX)
    {
        std::fs::rename(path, path.with_extension("old.jsonl"))?;
    }
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut file = store::open_regular_with(OpenOptions::new().append(true).create(true), path)?;
    // One write, since other processes append to the same file.
    file.write_all(&text)
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file: File = store::open_regular(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(BYTES_READ_MAX)))?;
    let mut text = Vec::new();
    file.take(BYTES_READ_MAX).read_to_end(&mut text)?;
    Ok(text)
}

fn sums(text: &[u8], store: &str) -> Vec<Tally> {
    let mut tallies: BTreeMap<(Vec<String>, String), Tally> = BTreeMap::new();
    let lines = text.split(|byte| *byte == b'\n');
    // Lines that do not parse are cut off, or come from a newer program.
    for line in lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok()) {
        if line.store != store {
            continue;
        }
        let key = (line.refs.clone(), line.profile.clone());
        let tally = tallies.entry(key).or_insert_with(|| Tally {
            profile: line.profile.clone(),
            refs: line.refs.clone(),
            runs: 0,
            there: 0,
            pulled: 0,
            added: 0,
            told: None,
            last: line.time,
        });
        tally.runs += 1;
        tally.there = tally.there.saturating_add(line.there);
        tally.pulled = tally.pulled.saturating_add(line.pulled);
        tally.added = tally.added.saturating_add(line.added);
        if let Some(more) = line.read {
            let (read, added) = tally.told.unwrap_or_default();
            tally.told = Some((read.saturating_add(more), added.saturating_add(line.added)));
        }
        tally.last = tally.last.max(line.time);
    }
    tallies.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(store: &str, name: &str, secs: i64, read: u64) -> Line {
        Line {
            time: Timestamp::from_second(secs).unwrap(),
            store: store.to_owned(),
            profile: "neff".to_owned(),
            refs: vec![name.to_owned()],
            there: 5,
            pulled: 1,
            read: Some(read),
            added: 2,
        }
    }

    #[test]
    fn runs_of_one_cache_add_up_and_broken_lines_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/compiles.jsonl");
        for one in [
            line("/s", "project/a/c", 5, 3),
            line("/s", "project/a/c", 9, 4),
            line("/s", "project/b/c", 1, 1),
            line("/other", "project/a/c", 99, 100),
        ] {
            write(&path, &one).unwrap();
        }
        // A line of an older program does not say what was read.
        let mut text = b"{\"half\": a line\n{\"time\":\"1970-01-01T00:00:02Z\",\"store\":\"/s\",\"profile\":\"neff\",\
            \"refs\":[\"project/a/c\"],\"avoided\":1,\"hits\":30,\"misses\":7}\n"
            .to_vec();
        text.extend(read(&path).unwrap());
        let found = sums(&text, "/s");
        let told: Vec<_> = found
            .iter()
            .map(|tally| {
                let counts = (tally.runs, tally.there, tally.added);
                (tally.refs.concat(), counts, tally.told)
            })
            .collect();
        assert_eq!(
            told,
            [
                ("project/a/c".to_owned(), (3, 40, 11), Some((7, 4))),
                ("project/b/c".to_owned(), (1, 5, 2), Some((1, 2)))
            ]
        );
        assert_eq!(found.first().unwrap().last.as_second(), 9);
    }
}
