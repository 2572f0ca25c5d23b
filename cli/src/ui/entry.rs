//! Output of one entry of a tree, for people and for machines.

use jiff::Timestamp;
use serde::Serialize;
use store::Time;
use store::inspect::Entry;

use crate::ui::{human, names};

/// The JSON form of an entry.
#[derive(Serialize)]
pub(crate) struct ShownEntry {
    pub(crate) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    executable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl From<&Entry> for ShownEntry {
    fn from(entry: &Entry) -> Self {
        let told = |kind| Self {
            kind,
            size: None,
            executable: false,
            target: None,
        };
        match entry {
            Entry::File { size, executable } => Self {
                size: Some(*size),
                executable: *executable,
                ..told("file")
            },
            Entry::Symlink { target } => Self {
                target: Some(names::shown(target)),
                ..told("symlink")
            },
            Entry::Directory => told("directory"),
        }
    }
}

/// `name`, `name/` or `name -> target`, as `ls -F` prints them.
pub(crate) fn name(path: &[u8], entry: &Entry) -> String {
    let path = if path.is_empty() {
        ".".to_owned()
    } else {
        names::shown(path)
    };
    match entry {
        Entry::File { .. } => path,
        Entry::Symlink { target } => format!("{path} -> {}", names::shown(target)),
        Entry::Directory => path + "/",
    }
}

/// The calendar time, or `None` if it is out of range.
pub(crate) fn timestamp(time: Time) -> Option<Timestamp> {
    Timestamp::new(time.secs, i32::try_from(time.nanos).ok()?).ok()
}

/// The kind of an entry, for use in a sentence.
pub(crate) fn kind(entry: &Entry) -> &'static str {
    match entry {
        Entry::File { .. } => "a file",
        Entry::Symlink { .. } => "a link",
        Entry::Directory => "a directory",
    }
}

/// `12.3 MB` for a file, or the kind of any other entry.
pub(crate) fn size(entry: &Entry) -> String {
    match entry {
        Entry::File { size, .. } => human::bytes(*size),
        Entry::Symlink { .. } => "link".to_owned(),
        Entry::Directory => "dir".to_owned(),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !flag
}
