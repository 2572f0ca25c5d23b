//! The profile of Hugging Face caches: what is stored, what is excluded, and what must be consistent.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use store::read::Reader;
use store::remote::{Objects, Write};
use store::{Class, ErrorKind, Host, ProfileChoice, PutReport, Remedy, Store, Unwatched, put};
use support::hub::{self, Generation, TOKEN};

use crate::stores::{bring, host, noise, put_tree, request, store_in};

/// The notes of a put, in the engine's words.
pub(crate) fn told(report: &PutReport) -> String {
    let notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
    notes.join("\n")
}

const GENERATIONS: [Generation; 3] = [Generation::Plain, Generation::Listed, Generation::Shared];

#[test]
fn what_a_machine_added_to_a_cache_stays_there() {
    for generation in GENERATIONS {
        let dir = tempfile::tempdir().unwrap();
        let (clean, dirty) = homes(dir.path(), generation);
        let store = store_in(dir.path());
        let report = put_tree(&store, &dirty, "project/demo/home");
        assert_eq!(report.skipped.len(), 0);
        let out = dir.path().join("out");
        bring(&store, "project/demo/home", &out);
        support::assert_same_tree(&clean, &out);
        assert_nowhere(&store, dir.path());
        let notes = told(&report);
        let added = ".git-credentials, stored_tokens, sub/.netrc, token";
        for note in [
            "looks like an HF_HOME",
            added,
            "the classes accelerate,assets,downloads,modules,trackio",
        ] {
            assert!(notes.contains(note), "{generation:?}: {notes}");
        }
        let is_plain = generation == Generation::Plain;
        assert_ne!(notes.contains("1 snapshots complete"), is_plain, "{notes}");
    }
}

#[test]
fn a_second_put_of_a_home_stores_nothing_and_is_the_same_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (clean, dirty) = homes(dir.path(), Generation::Shared);
    let store = store_in(dir.path());
    let first = put_tree(&store, &dirty, "project/a/home");
    let second = put_tree(&store, &dirty, "team/b/home");
    assert_eq!((second.new_bytes, second.stored_bytes), (0, 0));
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    bring(&store, "project/a/home", &a);
    bring(&store, "team/b/home", &b);
    support::assert_same_tree(&clean, &a);
    support::assert_same_tree(&a, &b);
    assert_eq!(first.files, second.files);
}

#[test]
fn a_repository_in_two_homes_is_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    for (name, generation) in [("one", Generation::Plain), ("two", Generation::Shared)] {
        homes(&dir.path().join(name), generation);
    }
    let first = put_tree(&store, &dir.path().join("one/dirty"), "project/one/home");
    let second = put_tree(&store, &dir.path().join("two/dirty"), "project/two/home");
    assert!(first.new_bytes > 1_600_000, "{}", first.new_bytes);
    assert!(
        second.new_bytes < 1_000,
        "{} new bytes, where only a listing and a tag are new",
        second.new_bytes
    );
}

#[test]
fn hubs_and_repositories_are_known_and_none_takes_all() {
    let dir = tempfile::tempdir().unwrap();
    let (clean, dirty) = homes(dir.path(), Generation::Listed);
    let store = store_in(dir.path());
    let repo = "models--org--tiny";
    for (path, kind) in [
        ("hub".to_owned(), "a hub cache"),
        (format!("hub/{repo}"), "a repository of a hub cache"),
    ] {
        let report = put_tree(&store, &dirty.join(&path), "project/demo/part");
        assert!(told(&report).contains(kind), "{:?}", report.notes);
        // The hub makes directories private. The version is not private, since everybody may read its files.
        assert!(!report.private, "{:?}", report.notes);
        let out = tempfile::tempdir_in(dir.path()).unwrap();
        let out = out.path().join("out");
        bring(&store, "project/demo/part", &out);
        support::assert_same_tree(&clean.join(&path), &out);
    }
    let mut all = request(&dirty, "project/demo/all");
    all.profile.choice = ProfileChoice::None;
    let report = put(&store, &all, &Unwatched).unwrap();
    let [note] = &report.notes[..] else {
        panic!("{:?}", report.notes);
    };
    assert_eq!(note.remedy, Some(Remedy::LetOthersRead), "{note}");
    let out = dir.path().join("out");
    bring(&store, "project/demo/all", &out);
    support::assert_same_tree(&dirty, &out);
}

#[test]
fn parts_come_along_when_they_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (_, dirty) = homes(dir.path(), Generation::Listed);
    let store = store_in(dir.path());
    let mut request = request(&dirty, "project/demo/home");
    request.profile.with = vec![Class::Modules, Class::Downloads];
    put(&store, &request, &Unwatched).unwrap();
    let out = dir.path().join("out");
    bring(&store, "project/demo/home", &out);
    for (path, expected) in [
        ("modules/transformers_modules/code.py", true),
        ("datasets/downloads/0123.json", true),
        ("trackio", false),
        ("xet", false),
    ] {
        assert_eq!(out.join(path).exists(), expected, "{path}");
    }
}

#[test]
fn a_token_in_a_file_fails_the_put_and_is_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let (_, dirty) = homes(dir.path(), Generation::Plain);
    let notes = dirty.join("datasets/notes.txt");
    fs::write(&notes, format!("export HF_TOKEN={TOKEN}\n")).unwrap();
    let store = store_in(dir.path());
    let refused = |target: &str| {
        let error = put(&store, &request(&dirty, target), &Unwatched).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert_eq!(
            error.details(),
            ["datasets/notes.txt: an access token of Hugging Face"]
        );
        let glob = "/datasets/notes.txt".to_owned();
        assert_eq!(error.remedy(), Some(&Remedy::AllowSecret { glob }));
    };
    refused("project/demo/home");
    assert!(store.state().unwrap().refs.is_empty());
    assert_nowhere(&store, dir.path());
    let mut allowed = request(&dirty, "project/demo/allowed");
    allowed.profile.allow_secrets = true;
    put(&store, &allowed, &Unwatched).unwrap();
    // The file is known by now, but was accepted under other rules.
    refused("project/demo/home");
}

/// The rest of the tree is only searched.
#[test]
fn what_follows_a_credential_is_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join(".env"), format!("HF_TOKEN={TOKEN}\n")).unwrap();
    let host = Host {
        threads: 1,
        ..host(dir.path())
    };
    let remote: Arc<dyn Write> = Arc::new(Objects::directory(&dir.path().join("store")).unwrap());
    let store = Store::open_or_init(remote.clone(), host).unwrap();
    let stored = |name: &str| {
        let error = put(&store, &request(&tree, name), &Unwatched).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        let packs = remote.list("packs").unwrap();
        packs.iter().map(|pack| pack.size).sum::<u64>()
    };
    for number in 0..8 {
        fs::write(tree.join(format!("small-{number}")), noise(number, 500_000)).unwrap();
    }
    fs::write(tree.join("large"), noise(9, 96 << 20)).unwrap();
    assert!(stored("project/demo/tree") < 1 << 20);
}

#[test]
fn files_that_the_environment_names_as_secret_stay_out() {
    let dir = tempfile::tempdir().unwrap();
    let (_, dirty) = homes(dir.path(), Generation::Plain);
    let store = store_in(dir.path());
    let secret = dirty.join("datasets/own-secret");
    fs::write(&secret, "no known form").unwrap();
    symlink("own-secret", dirty.join("datasets/link")).unwrap();
    let mut request = request(&dirty, "project/demo/home");
    request.profile.secret_paths = vec![dirty.join("datasets/link")];
    let report = put(&store, &request, &Unwatched).unwrap();
    let notes = told(&report);
    assert!(
        notes.contains("datasets/link, datasets/own-secret"),
        "{notes}"
    );
}

#[test]
fn private_credentials_are_refused_in_any_tree() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("home/.ssh")).unwrap();
    fs::write(tree.join("munge.key"), "key").unwrap();
    let store = store_in(dir.path());
    let mode = |path: &str, mode| {
        fs::set_permissions(tree.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("munge.key", 0o644);
    mode("home/.ssh", 0o755);
    put_tree(&store, &tree, "project/demo/source-code");
    for path in ["munge.key", "home/.ssh"] {
        mode(path, 0o700);
        let mut request = request(&tree, "project/demo/tree");
        let error = put(&store, &request, &Unwatched).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        let details = error.details();
        assert!(
            details.len() == 1 && details[0].starts_with(path),
            "{error:?}"
        );
        request.profile.allow_secrets = true;
        put(&store, &request, &Unwatched).unwrap();
        mode(path, 0o755);
    }
}

#[test]
fn all_credentials_of_a_plain_tree_are_named_at_once_and_none_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    let store = store_in(dir.path());
    let found = plant_all(&tree);
    let mut request = request(&tree, "project/demo/tree");
    let error = put(&store, &request, &Unwatched).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    let paths = error.details().iter();
    let paths: Vec<&str> = paths.filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(paths, found, "{error:?}");
    assert!(!format!("{error:?} {:?}", error.remedy()).contains("qVzKxT"));
    assert!(store.state().unwrap().refs.is_empty());
    assert_nowhere(&store, dir.path());

    // If one is allowed, the others are still found. Then all of them are allowed by name.
    request.profile.allow_secret = vec!["/b/.env".to_owned(), "hf_home/".to_owned()];
    let error = put(&store, &request, &Unwatched).unwrap_err();
    assert_eq!(error.details().len(), found.len() - 3, "{error:?}");
    request
        .profile
        .allow_secret
        .extend(["c".to_owned(), ".aws/".to_owned(), "*.pem".to_owned()]);
    let report = put(&store, &request, &Unwatched).unwrap();
    let notes = told(&report);
    assert!(notes.contains("site-packages/x/test.key"), "{notes}");
    assert!(
        notes.contains("for its user alone: a/hf_home/stored_tokens"),
        "{notes}"
    );
    // A run without these names does not know the allowed files.
    request.profile.allow_secret.clear();
    let error = put(&store, &request, &Unwatched).unwrap_err();
    assert_eq!(error.details().len(), found.len(), "{error:?}");
}

#[test]
fn a_file_of_a_cache_that_is_excluded_takes_its_links_along() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let cache = hub::cache(&home, 6, Generation::Listed);
    let store = store_in(dir.path());
    let name = &cache.names[0];
    let mut request = request(&home, "project/demo/home");
    request.exclude = vec![format!("/hub/models--org--tiny/blobs/{name}")];
    let report = put(&store, &request, &Unwatched).unwrap();
    let notes = told(&report);
    assert!(
        notes.contains("links left out, since what they lead to is excluded"),
        "{notes}"
    );
    let out = dir.path().join("out");
    bring(&store, "project/demo/home", &out);
    let inside = snapshot(&cache).strip_prefix(&home).unwrap().to_path_buf();
    assert!(!out.join(&inside).join("config.json").is_symlink());
    assert!(out.join(&inside).is_dir());
}

/// Plants credentials of all kinds, and files that only resemble them. Returns the paths of the former.
fn plant_all(tree: &Path) -> [&'static str; 8] {
    let plant = |path: &str, text: &str, mode| {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let key = "qVzKxTfRbYvNmLpHsJdGcXrQkVtBnZwMfPwDyCgSjLxRaUeIoT6k4Q2w8E1z5R7t";
    let pem = format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{key}\n");
    plant("a/hf_home/token", TOKEN, 0o600);
    plant(
        "a/hf_home/stored_tokens",
        &format!("[x]\nhf_token = {TOKEN}\n"),
        0o600,
    );
    plant(
        "b/.aws/credentials",
        "[default]\naws_secret_access_key = short\n",
        0o600,
    );
    plant("b/.env", &format!("HF_TOKEN={TOKEN}\n"), 0o644);
    plant(
        "c/.docker/config.json",
        "{\"auths\":{\"r\":{\"auth\":\"bWU6aHVudGVyMg==\"}}}",
        0o644,
    );
    plant(
        "c/.netrc.bak",
        "machine a login b password hunter2\n",
        0o644,
    );
    plant(
        "c/kaggle.json",
        "{\"key\":\"4f9d02c1b8e67a35d0412fce98b3a761\"}",
        0o600,
    );
    plant("d/server.pem", &pem, 0o644);
    // None of these is a credential.
    plant(
        "docs/README.md",
        "login with hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        0o644,
    );
    plant(
        "docs/.env.example",
        &format!("HF_TOKEN=hf_{}\n", "x".repeat(34)),
        0o600,
    );
    plant(
        "tokenizer.json",
        "{\"vocab\": {\"token\": 1, \"password\": 2}}",
        0o600,
    );
    plant(
        "cacert.pem",
        &pem.replace("PRIVATE KEY", "CERTIFICATE"),
        0o644,
    );
    plant("venv/lib/python3.11/site-packages/x/test.key", &pem, 0o644);
    [
        "a/hf_home/stored_tokens",
        "a/hf_home/token",
        "b/.aws/credentials",
        "b/.env",
        "c/.docker/config.json",
        "c/.netrc.bak",
        "c/kaggle.json",
        "d/server.pem",
    ]
}

fn homes(dir: &Path, generation: Generation) -> (std::path::PathBuf, std::path::PathBuf) {
    let (clean, dirty) = (dir.join("clean"), dir.join("dirty"));
    hub::cache(&clean, 4, generation);
    hub::clutter(&clean, &dirty, 40, generation);
    (clean, dirty)
}

pub(crate) fn snapshot(cache: &hub::Cache) -> std::path::PathBuf {
    cache.repo.join("snapshots").join(&cache.commit)
}

/// Asserts that the planted token is in no chunk, and in no file of the store or of the host's caches.
fn assert_nowhere(store: &Store, dir: &Path) {
    let view = store.view().unwrap();
    let reader = Reader::at(store, view.clone());
    let mut chunks = 0;
    for segment in view.index.segments() {
        for position in 0..segment.layout().chunks() {
            let (id, _) = segment.located(position).unwrap();
            let bytes = reader.meta_chunk(&id).unwrap();
            assert!(!holds(&bytes), "the token is in chunk {id}");
            chunks += 1;
        }
    }
    assert!(chunks > 0 || store.state().unwrap().refs.is_empty());
    for place in ["store", "cache", "out"] {
        scan(&dir.join(place));
    }
}

fn scan(path: &Path) {
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            scan(&entry.unwrap().path());
        }
    } else if path.is_file() {
        assert!(!holds(&fs::read(path).unwrap()), "{}", path.display());
    }
}

fn holds(bytes: &[u8]) -> bool {
    bytes
        .windows(TOKEN.len())
        .any(|window| window == TOKEN.as_bytes())
}
