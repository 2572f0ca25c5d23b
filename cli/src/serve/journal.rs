//! The access log: one JSON line for each request. Lines are written on a thread of their own and never delay answers.
//!
//! A line holds no token and no signature: it has the path without its query, and of the headers only the user agent.
//! What looks like a token of a Hub in a path is blanked.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use jiff::Timestamp;
use serde::Serialize;
use store::{Error, Precious, Result};

use crate::host::files;
use crate::serve::numbers::Numbers;

/// Maximum lines in the queue. Further lines are counted and dropped.
const LINES_WAITING_MAX: usize = 8192;
/// Maximum further lines that are written with one.
const LINES_AT_ONCE_MAX: usize = 255;
/// Maximum bytes of a path or a user agent in a line.
const TEXT_BYTES_MAX: usize = 1024;
/// The prefix of a Hub's tokens, and the minimum number of characters after it.
const TOKEN: (&str, usize) = ("hf_", 16);

/// The log line of a request.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) time: Timestamp,
    pub(crate) door: &'static str,
    pub(crate) client: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) status: u16,
    /// Bytes of the body that were handed to the connection.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Whether the whole answer was handed over.
    pub(crate) whole: bool,
    pub(crate) secs: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    /// The name of the request's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// A line that belongs to no request.
#[derive(Serialize)]
struct Event<'e> {
    time: Timestamp,
    door: &'static str,
    error: &'e str,
}

/// Writes the log.
pub(crate) struct Journal {
    lines: Option<SyncSender<Vec<u8>>>,
    writer: Option<JoinHandle<()>>,
    numbers: Arc<Numbers>,
}

impl Journal {
    /// Appends to `path`, or writes to standard error.
    pub(crate) fn open(
        path: Option<&Path>,
        precious: &Precious,
        numbers: Arc<Numbers>,
    ) -> Result<Self> {
        let mut to: Box<dyn Write + Send> = match path {
            None => Box::new(io::stderr()),
            Some(path) => Box::new(files::open_to_append(path, precious)?),
        };
        let (lines, waiting) = sync_channel::<Vec<u8>>(LINES_WAITING_MAX);
        let lost = Arc::clone(&numbers);
        let writer = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || {
                while let Ok(mut lines) = waiting.recv() {
                    let mut count = 1;
                    // What has come meanwhile is written along.
                    for line in waiting.try_iter().take(LINES_AT_ONCE_MAX) {
                        lines.extend(line);
                        count += 1;
                    }
                    if to.write_all(&lines).is_err() {
                        lost.lost_lines.add(count);
                    }
                }
            })
            .map_err(|source| Error::unavailable("a thread for the access log").because(source))?;
        Ok(Self {
            lines: Some(lines),
            writer: Some(writer),
            numbers,
        })
    }

    /// Queues the line of a request; never waits.
    pub(crate) fn tell(&self, line: &Line) {
        self.write(line);
    }

    /// Queues a failure that belongs to no request; never waits.
    pub(crate) fn event(&self, door: &'static str, error: &str) {
        self.write(&Event {
            time: Timestamp::now(),
            door,
            error: &told(error),
        });
    }

    fn write(&self, line: &impl Serialize) {
        let Ok(mut text) = serde_json::to_vec(line) else {
            return self.numbers.lost_lines.add(1);
        };
        text.push(b'\n');
        let taken = self.lines.as_ref().map(|lines| lines.try_send(text));
        if !matches!(taken, Some(Ok(()))) {
            self.numbers.lost_lines.add(1);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            // The writer has reported its own failures.
            let _ended = writer.join();
        }
    }
}

/// Truncates a text from a client, and blanks tokens in it.
pub(crate) fn told(text: &str) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut rest = text.get(..end).unwrap_or_default();
    let mut told = String::new();
    while let Some((before, after)) = rest.split_once(TOKEN.0) {
        let secret = after
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(after.len());
        let (shown, skipped) = match secret >= TOKEN.1 {
            true => ("hf_***", secret),
            false => (TOKEN.0, 0),
        };
        told.push_str(before);
        told.push_str(shown);
        rest = after.get(skipped..).unwrap_or_default();
    }
    told + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_in_paths_are_blanked_and_long_texts_are_cut() {
        assert_eq!(told("/a/hf_model/b"), "/a/hf_model/b");
        assert_eq!(
            told("/a/hf_qVzKxTfRbYvNmLpHsJdGcXrQ/hf_x/hf_qVzKxTfRbYvNmLpHsJdGcXrQ"),
            "/a/hf_***/hf_x/hf_***"
        );
        assert_eq!(told(&"\u{e9}".repeat(1000)).len(), TEXT_BYTES_MAX);
    }

    #[test]
    fn every_line_is_on_disk_when_the_journal_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let journal = Journal::open(Some(&path), &Precious::default(), Arc::default()).unwrap();
        for status in [200, 404] {
            journal.tell(&Line {
                time: Timestamp::UNIX_EPOCH,
                door: "hub",
                client: "127.0.0.1:1".to_owned(),
                method: "GET".to_owned(),
                path: "/x\"\n".to_owned(),
                status,
                sent: 1,
                received: 0,
                whole: true,
                secs: 0.5,
                agent: None,
                token: None,
                error: None,
            });
        }
        drop(journal);
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let statuses: Vec<_> = lines.iter().map(|line| &line["status"]).collect();
        assert_eq!(statuses, [200, 404]);
    }
}
