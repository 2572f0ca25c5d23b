//! Whether a directory looks like a Hugging Face cache. Looks only at names.
//!
//! A login does not make an HF_HOME: a file called `token` may be anywhere, beside directories that an HF_HOME would leave
//! out. Where there is no other sign, it is refused or named as credentials are in any directory.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::rules::{RootKind, is_repo};

/// What `root` looks like, if it is recognized. Unreadable directories are not recognized.
pub(super) fn detect(root: &Path) -> Option<RootKind> {
    if is_home(root) {
        Some(RootKind::Home)
    } else if is_hub(root) {
        Some(RootKind::Hub)
    } else if has_all(root, &["blobs", "refs", "snapshots"]) {
        Some(RootKind::Repo)
    } else if is_home(&root.join("huggingface")) {
        Some(RootKind::Above)
    } else {
        None
    }
}

fn is_home(dir: &Path) -> bool {
    let hub = dir.join("hub");
    let marks = ["CACHEDIR.TAG", ".locks", "version.txt"];
    is_hub(&hub)
        || marks.iter().any(|mark| hub.join(mark).exists())
        || any_name(&dir.join("datasets"), |name| {
            name.starts_with(b"_") && name.ends_with(b".lock")
        })
}

fn is_hub(dir: &Path) -> bool {
    let has_parts = |name: &[u8]| {
        let repo = dir.join(std::ffi::OsStr::from_bytes(name));
        ["blobs", "refs", "snapshots"]
            .iter()
            .any(|part| repo.join(part).is_dir())
    };
    any_name(dir, |name| is_repo(name) && has_parts(name))
}

fn has_all(dir: &Path, names: &[&str]) -> bool {
    names.iter().all(|name| dir.join(name).is_dir())
}

fn any_name(dir: &Path, is_it: impl Fn(&[u8]) -> bool) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| {
        entries.any(|entry| entry.is_ok_and(|entry| is_it(entry.file_name().as_bytes())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_known_by_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| fs::create_dir_all(dir.path().join(name)).unwrap();
        make("cache/huggingface/hub/models--org--name/blobs");
        make("cache/huggingface/hub/models--org--name/refs");
        make("cache/huggingface/hub/models--org--name/snapshots");
        make("tokens");
        make("prepared/datasets");
        make("other/hub/models--no--parts");
        make("restic/snapshots");
        fs::write(dir.path().join("tokens/token"), "hf_x").unwrap();
        fs::write(dir.path().join("prepared/datasets/_x_0.0.0.lock"), "").unwrap();
        fs::write(dir.path().join("tokens/stored_tokens"), "[x]").unwrap();
        let cases = [
            ("cache", Some(RootKind::Above)),
            ("cache/huggingface", Some(RootKind::Home)),
            ("cache/huggingface/hub", Some(RootKind::Hub)),
            (
                "cache/huggingface/hub/models--org--name",
                Some(RootKind::Repo),
            ),
            ("tokens", None),
            ("prepared", Some(RootKind::Home)),
            ("other", None),
            ("restic", None),
            ("none", None),
        ];
        for (name, expected) in cases {
            assert_eq!(detect(&dir.path().join(name)), expected, "{name}");
        }
    }
}
