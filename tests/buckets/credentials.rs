//! Credentials never appear in output, errors, process lists, files of this host or objects of the store.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use store::remote::{Options, Prune, open};
use support::proxy::{Fault, Proxy, Schedule, Slowness};
use support::servers::Server;
use support::{Finished, trees};

use crate::bucket::{Bucket, GREEDY};

const KEY: &str = "PLANTEDACCESSKEY";
const SECRET: &str = "planted/secret+that/nobody+gave/out";
const TOKEN: &str = "planted-token-of-a-session";
const PLANTED: [&str; 3] = [KEY, SECRET, TOKEN];

#[test]
fn a_secret_shows_nowhere() {
    // moto accepts every key.
    let server = Server {
        key: KEY.to_owned(),
        secret: SECRET.to_owned(),
        ..Server::moto()
    };
    let proxy = Proxy::new(&server.endpoint, Slowness::default());
    let bucket = Bucket::without_store("credentials", server.behind(&proxy));
    trees::version(&bucket.env.path("tree"), 3, 1, 300_000);
    for words in [
        &["init"][..],
        &["put", "tree", "project/a/b"],
        &["get", "project/a/b", "out"],
        &["materialize", "project/a/b", "linked"],
        &["info", "--json"],
        &GREEDY,
        &["verify", "--read-data"],
    ] {
        let finished = run(&bucket, words);
        assert_eq!(finished.code, Some(0), "{finished}");
    }
    proxy.set(Schedule::From(1, Fault::Expired));
    for words in [
        &["put", "tree", "project/a/c"][..],
        &["get", "project/a/b", "out-2"],
        &["verify"],
    ] {
        let finished = run(&bucket, words);
        assert_eq!(finished.code, Some(1), "{finished}");
    }
    for fault in [
        Fault::Expired,
        Fault::Reset,
        Fault::Broken,
        Fault::Truncated,
    ] {
        proxy.set(Schedule::From(1, fault));
        let error = opened(&bucket, Duration::from_millis(300)).get("format");
        let told = format!("{fault:?}: {error:?} {:?}", error.as_ref().unwrap_err());
        shows_nothing("an error", told.as_bytes());
    }
    proxy.set(Schedule::Fine);
    no_file_shows(&bucket.env.root());
    no_object_shows(&bucket);
}

/// Runs the command with the secrets in its environment, and checks everything that others can see of it.
fn run(bucket: &Bucket, words: &[&str]) -> Finished {
    let mut command = bucket.command(words.iter().copied());
    command
        .env("AWS_SESSION_TOKEN", TOKEN)
        .env("RUST_BACKTRACE", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let shown = fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
    let finished: Finished = child.wait_with_output().unwrap().into();
    let told = [
        &shown,
        finished.stdout.as_slice(),
        finished.stderr.as_bytes(),
    ];
    for text in told {
        shows_nothing(&format!("{words:?}"), text);
    }
    finished
}

fn no_file_shows(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            no_file_shows(&path);
        } else {
            shows_nothing(&path.display().to_string(), &fs::read(&path).unwrap());
        }
    }
}

/// Opens the bucket without the command, with retries for this long.
fn opened(bucket: &Bucket, deadline: Duration) -> Arc<dyn Prune> {
    let settings = bucket.server.variables();
    let settings = settings.map(|(name, value)| (name.to_owned(), value));
    let options = Options {
        settings: settings.into_iter().collect(),
        deadline,
        ..Options::default()
    };
    open(&bucket.url, &options).unwrap()
}

fn no_object_shows(bucket: &Bucket) {
    let remote = opened(bucket, Duration::from_secs(60));
    let objects = remote.list("").unwrap();
    assert!(objects.len() > 4, "{objects:?}");
    for object in objects {
        shows_nothing(&object.key, &remote.get(&object.key).unwrap());
    }
}

fn shows_nothing(what: &str, bytes: &[u8]) {
    for planted in PLANTED {
        let shown = bytes
            .windows(planted.len())
            .any(|window| window == planted.as_bytes());
        assert!(!shown, "{what}: {planted} in {}", bytes.escape_ascii());
    }
}
