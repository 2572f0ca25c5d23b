//! Compares trees: they are the same if all names, types, bytes, executable bits, link targets and times are.
//!
//! Uses only the standard library, and nothing of the engine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The observable properties of an entry.
#[derive(Clone, PartialEq, Eq)]
pub struct Seen {
    /// `file`, `file+x`, `link`, `dir` or `special`.
    pub kind: &'static str,
    /// Bytes of the file, or the target of the link.
    pub bytes: Vec<u8>,
    /// Modification time in seconds and nanoseconds; `None` for links, whose times are not kept.
    pub mtime: Option<(i64, i64)>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head = self.bytes.get(..40).unwrap_or(&self.bytes).escape_ascii();
        write!(
            out,
            "{} of {} bytes \"{head}\" at {:?}",
            self.kind,
            self.bytes.len(),
            self.mtime
        )
    }
}

/// All entries below `root` by relative path; the root itself has the empty path.
pub fn seen(root: &Path) -> BTreeMap<OsString, Seen> {
    let mut entries = BTreeMap::new();
    look(root, &OsString::new(), &mut entries);
    entries
}

fn look(path: &Path, name: &OsString, entries: &mut BTreeMap<OsString, Seen>) {
    let metadata =
        fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file_type = metadata.file_type();
    let mtime = Some((metadata.mtime(), metadata.mtime_nsec()));
    let (kind, bytes) = if file_type.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            let mut below = name.clone();
            below.push("/");
            below.push(entry.file_name());
            look(&entry.path(), &below, entries);
        }
        ("dir", Vec::new())
    } else if file_type.is_symlink() {
        (
            "link",
            fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec(),
        )
    } else if file_type.is_file() {
        let kind = if metadata.mode() & 0o100 == 0 {
            "file"
        } else {
            "file+x"
        };
        (kind, fs::read(path).unwrap())
    } else {
        assert!(
            file_type.is_fifo() || file_type.is_socket(),
            "{}",
            path.display()
        );
        ("special", Vec::new())
    };
    let mtime = mtime.filter(|_| kind != "link");
    entries.insert(name.clone(), Seen { kind, bytes, mtime });
}

/// Panics if the trees differ, with the first differences.
pub fn assert_same_tree(expected: &Path, found: &Path) {
    assert_same_entries(&seen(expected), &seen(found));
}

/// Compares with a tree of hard links, whose files share one time.
pub fn assert_same_but_file_times(expected: &Path, found: &Path) {
    let [before, after] = [expected, found].map(|root| {
        let mut entries = seen(root);
        let files = entries
            .values_mut()
            .filter(|seen| seen.kind.starts_with("file"));
        files.for_each(|seen| seen.mtime = None);
        entries
    });
    assert_same_entries(&before, &after);
}

fn assert_same_entries(before: &BTreeMap<OsString, Seen>, after: &BTreeMap<OsString, Seen>) {
    let names = before
        .keys()
        .chain(after.keys().filter(|name| !before.contains_key(*name)));
    let differences: Vec<String> = names
        .filter(|name| before.get(*name) != after.get(*name))
        .map(|name| {
            format!(
                "{name:?}: expected {:?}, found {:?}",
                before.get(name),
                after.get(name)
            )
        })
        .collect();
    let shown = differences
        .iter()
        .take(10)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n  ");
    assert!(
        differences.is_empty(),
        "{} differences:\n  {shown}",
        differences.len()
    );
}
