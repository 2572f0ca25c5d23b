//! What runs of commands found in their compile caches on this host: a line of JSON for each, for whoever wants to know how
//! well a cache does. Disposable: what cannot be written or read is missing from a sum, and nothing else.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config;

/// Bytes of lines that are read: the newest.
const BYTES_READ_MAX: u64 = 1 << 20;
/// A larger file is started again, and the old one stays beside it.
const BYTES_KEPT_MAX: u64 = 4 << 20;

/// What a run found.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) time: Timestamp,
    /// Which store, as it is called on this host.
    pub(crate) store: String,
    pub(crate) profile: String,
    /// Where the cache is pulled from and pushed to, each once.
    pub(crate) refs: Vec<String>,
    /// Entries that were there when the command began, the pulled ones too.
    #[serde(alias = "hits")]
    pub(crate) there: u64,
    /// Of these: entries that were pulled.
    #[serde(alias = "avoided")]
    pub(crate) pulled: u64,
    /// Of those that were there: entries that the command read, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) read: Option<u64>,
    /// Entries that it added.
    #[serde(alias = "misses")]
    pub(crate) added: u64,
}

/// The runs of one cache together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) profile: String,
    pub(crate) refs: Vec<String>,
    pub(crate) runs: u64,
    pub(crate) there: u64,
    pub(crate) pulled: u64,
    pub(crate) added: u64,
    /// Of runs of which it is known what they read: how much that is, and how much they added.
    pub(crate) told: Option<(u64, u64)>,
    pub(crate) last: Timestamp,
}

/// Adds a line.
pub(crate) fn add(line: &Line) {
    let written = place().map(|path| write(&path, line));
    // A command that did its work does not fail for it.
    drop(written);
}

/// The caches of a store, by their refs.
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
        std::fs::create_dir_all(dir)?;
    }
    if path
        .metadata()
        .is_ok_and(|found| found.len() > BYTES_KEPT_MAX)
    {
        std::fs::rename(path, path.with_extension("old.jsonl"))?;
    }
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    // In one piece: others write, too.
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
    // What is none of ours is the rest of a line, or of a newer program.
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
        // One of an earlier program does not know what was read.
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
