//! What is checked of a Hugging Face cache before it is published, and what is only odd.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use store::{Error, ErrorKind, PutReport, PutRequest, Store, Unwatched, put};
use support::hub::{self, Generation};

use crate::profile::{snapshot, told};
use crate::stores::{bring, put_tree, request, store_in};

/// A defect: its name, how to make it, and what the error says.
type Break = (&'static str, fn(&hub::Cache), &'static str);

/// A target outside of any cache.
const FAR_UP: &str = "../../../../../../../etc/hostname";

#[test]
fn a_cache_that_does_not_fit_together_is_not_published() {
    let breaks: [Break; 8] = [
        (
            "newline in a ref",
            |cache| fs::write(cache.repo.join("refs/main"), format!("{}\n", cache.commit)).unwrap(),
            "refs/main: expected the 40 digits of a commit and no more",
        ),
        (
            "snapshots lost",
            |cache| fs::remove_dir_all(cache.repo.join("snapshots")).unwrap(),
            "refs/main: it names commit ",
        ),
        (
            "dangling link",
            |cache| fs::remove_file(cache.repo.join("blobs").join(&cache.names[0])).unwrap(),
            "config.json: its link leads to",
        ),
        (
            "small file damaged",
            |cache| damage(&cache.repo.join("blobs").join(&cache.names[0])),
            "git's SHA-1 of its 600 bytes: expected its name, found",
        ),
        (
            "large file damaged",
            |cache| damage(&cache.repo.join("blobs").join(&cache.names[1])),
            "SHA-256 of its 16",
        ),
        (
            "link out of the tree",
            |cache| symlink(FAR_UP, snapshot(cache).join("x")).unwrap(),
            "x: its link leads out of the tree, to",
        ),
        (
            "absolute link",
            |cache| symlink("/etc/hostname", cache.repo.join("x")).unwrap(),
            "x: its link leads out of the tree, to /etc/hostname",
        ),
        (
            "file elsewhere, by no hash",
            |cache| symlink("/etc/hostname", cache.repo.join("blobs/etag-1")).unwrap(),
            "blobs/etag-1: its link leads out of the tree",
        ),
    ];
    for (what, break_it, expected) in breaks {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let cache = hub::cache(&home, 5, Generation::Listed);
        break_it(&cache);
        let store = store_in(dir.path());
        let error = put(&store, &request(&home, "project/demo/home"), &Unwatched).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
        assert!(error.to_string().contains(expected), "{what}: {error}");
        assert!(error.remedy().is_some(), "{what}");
        assert!(store.state().unwrap().refs.is_empty(), "{what}");
        let is_taken = unchecked(&store, &home).is_ok();
        assert_ne!(is_taken, what.contains("elsewhere"), "{what}");
    }
}

#[test]
fn what_is_odd_but_right_is_taken_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let cache = hub::cache(&home, 6, Generation::Listed);
    let snapshot = snapshot(&cache);
    // Clients that download to a user's directory leave a newer commit, and a ref of another repository.
    fs::write(cache.repo.join("refs/main"), "1".repeat(40)).unwrap();
    hub::ref_alone(&home, "models--org--elsewhere");
    fs::remove_file(snapshot.join("poetry.lock")).unwrap();
    fs::remove_file(snapshot.join("config.json")).unwrap();
    let absolute = cache.repo.join("blobs").join(&cache.names[0]);
    symlink(
        absolute.canonicalize().unwrap(),
        snapshot.join("config.json"),
    )
    .unwrap();
    fs::write(
        cache.repo.join("blobs/etag-1"),
        "mirrors have etags of their own",
    )
    .unwrap();
    let store = store_in(dir.path());
    let report = put_tree(&store, &home, "project/demo/home");
    let notes = told(&report);
    for note in [
        "models--org--tiny/refs/main: nothing of its commit is here",
        "models--org--elsewhere/refs/main: nothing of its commit is here",
        ".json: 2 of 3 files are here",
        "1 files in blobs/ not checked",
    ] {
        assert!(notes.contains(note), "{notes}");
    }
    let out = dir.path().join("out");
    bring(&store, "project/demo/home", &out);
    let inside = snapshot.strip_prefix(&home).unwrap().join("config.json");
    let target = fs::read_link(out.join(inside)).unwrap();
    assert_eq!(target, Path::new("../../blobs").join(&cache.names[0]));
}

fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}

fn unchecked(store: &Store, home: &Path) -> Result<PutReport, Error> {
    let mut request: PutRequest = request(home, "project/demo/as-it-is");
    request.profile.check = false;
    request.profile.check_hashes = false;
    put(store, &request, &Unwatched)
}
