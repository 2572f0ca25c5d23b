//! What a server fetches from an upstream: once, and never anything wrong.

use std::fs;

use rustix::process::Signal;
use serde_json::json;
use support::hub::{git_name, sha256};
use support::{Random, TestEnvironment, environment};

use crate::origin::Origin;
use crate::server::{Answer, Server};

pub(crate) const SMALL: &[u8] = b"{\"hidden_size\": 8}\n";
pub(crate) const API: &str = "/project/demo/api/models/org/m";
pub(crate) const FILES: &str = "/project/demo/org/m/resolve";
const REF: &str = "project/demo/models/org/m";

pub(crate) fn start(env: &TestEnvironment, origin: &Origin, options: &[&str]) -> Server {
    let url = origin.url();
    let words: Vec<&str> = ["--upstream", &url]
        .into_iter()
        .chain(options.iter().copied())
        .collect();
    Server::start(env, &words)
}

pub(crate) fn large() -> Vec<u8> {
    Random::new(11).bytes(3_000_000)
}

/// An upstream with one repo of a small and a large file. Also returns its commit.
pub(crate) fn origin() -> (Origin, String) {
    let origin = Origin::start();
    let commit = origin.add("org/m", &[("config.json", SMALL), ("sub/x.bin", &large())]);
    (origin, commit)
}

pub(crate) fn with_token(server: &Server, path: &str, token: &str) -> Answer {
    server.ask(&format!("GET {path}\nAuthorization: Bearer {token}"))
}

/// Whether a file is in the store: a server without an upstream has it.
fn is_kept(env: &TestEnvironment, path: &str, bytes: &[u8]) -> bool {
    let server = Server::start(env, &[]);
    let answer = server.get(&format!("{FILES}/main/{path}"));
    answer.status == 200 && answer.body == bytes
}

#[test]
fn what_is_not_here_is_fetched_once_and_kept_as_a_client_would_keep_it() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, commit) = origin();
    let server = start(&env, &origin, &[]);
    let info = server.json(API);
    assert_eq!(
        (&info["sha"], &info["id"]),
        (&json!(commit), &json!("org/m"))
    );
    let tree = server.json(&format!("{API}/tree/{commit}?recursive=true"));
    let paths: Vec<_> = tree
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["path"])
        .collect();
    assert_eq!(paths, ["config.json", "sub", "sub/x.bin"]);
    assert_eq!(tree[2]["lfs"]["oid"], json!(sha256(&large())));
    let head = server.head(&format!("{FILES}/main/sub/x.bin"));
    assert_eq!(
        head.header("etag"),
        Some(format!("\"{}\"", sha256(&large())).as_str())
    );
    assert_eq!(head.header("content-length"), Some("3000000"));
    assert!(origin.asked("/resolve/").is_empty());
    for _ in 0..2 {
        for rev in ["main", &commit] {
            let small = server.get(&format!("{FILES}/{rev}/config.json"));
            assert_eq!((small.status, small.body.as_slice()), (200, SMALL));
            assert_eq!(
                small.header("etag"),
                Some(format!("\"{}\"", git_name(SMALL)).as_str())
            );
            assert_eq!(small.header("x-repo-commit"), Some(commit.as_str()));
            let part = server.ask(&format!(
                "GET {FILES}/{rev}/sub/x.bin\nRange: bytes=1000-1999"
            ));
            assert!(part.status == 206 && part.body == large()[1000..2000]);
            assert!(server.get(&format!("{FILES}/{rev}/sub/x.bin")).body == large());
        }
    }
    let missing = server.get(&format!("{FILES}/main/none.json"));
    assert_eq!(missing.failure(), (404, Some("EntryNotFound")));
    assert_eq!(missing.header("x-repo-commit"), Some(commit.as_str()));
    let none = server.get(&format!("{API}/revision/none"));
    assert_eq!(none.failure(), (404, Some("RevisionNotFound")));
    let nowhere = server.get("/project/demo/api/models/org/none");
    assert_eq!(nowhere.failure(), (401, Some("RepoNotFound")));
    assert_eq!(origin.asked("/resolve/").len(), 2);
    assert_eq!(origin.asked("/tree/").len(), 1);
    assert_eq!(origin.asked("m/revision/main").len(), 1);
    assert_eq!(server.stop(), Some(0));

    // Everything is in the store, in the layout of a cache.
    env.ok(["get", REF, "out"]);
    let repo = env.path("out/models--org--m");
    let snapshot = repo.join("snapshots").join(&commit);
    assert_eq!(fs::read(snapshot.join("config.json")).unwrap(), SMALL);
    assert!(fs::read(snapshot.join("sub/x.bin")).unwrap() == large());
    assert_eq!(fs::read_to_string(repo.join("refs/main")).unwrap(), commit);
    assert!(repo.join("blobs").join(sha256(&large())).is_file());
    assert!(is_kept(&env, "config.json", SMALL) && is_kept(&env, "sub/x.bin", &large()));
    env.ok(["verify", "--read-data"]);
    assert_eq!(origin.asked("/resolve/").len(), 2);
}

#[test]
fn many_clients_of_one_cold_file_are_one_of_the_upstream() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, _) = origin();
    let server = start(&env, &origin, &[]);
    origin.plan(|plan| plan.hold_bytes = Some(1_000_000));
    let (bytes, url) = (large(), format!("{FILES}/main/sub/x.bin"));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..200)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = server.connect();
                    connection
                        .send(format!("GET {url} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
                    assert_eq!(connection.head().status, 200);
                    let mut begun = vec![0; 500_000];
                    connection.read(&mut begun);
                    assert!(bytes.starts_with(&begun));
                    connection
                })
            })
            .collect();
        // All clients receive the beginning before the upstream has sent everything.
        let connections: Vec<_> = clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .collect();
        origin.plan(|plan| plan.hold_bytes = None);
        for mut connection in connections {
            let bytes = &bytes;
            scope.spawn(move || {
                let mut rest = vec![0; 2_500_000];
                connection.read(&mut rest);
                assert!(bytes.ends_with(&rest));
            });
        }
    });
    assert_eq!(origin.asked("/resolve/").len(), 1);
    assert_eq!(server.stop(), Some(0));
    assert!(is_kept(&env, "sub/x.bin", &bytes));
}

/// Clients that take nothing of a file that arrives keep what they were sent, and others go on.
#[test]
fn slow_clients_of_a_cold_file_do_not_stop_others() {
    let env = environment!();
    env.ok(["init"]);
    let bytes = Random::new(12).bytes(8_000_000);
    let origin = Origin::start();
    origin.add("org/m", &[("x.bin", &bytes)]);
    origin.plan(|plan| plan.hold_bytes = Some(7_500_000));
    let server = start(&env, &origin, &["--memory", "16MiB"]);
    let url = format!("{FILES}/main/x.bin");
    let mut slow: Vec<_> = (0..200).map(|_| server.begin(&url)).collect();
    assert_eq!(slow[199].head().status, 200);
    let mut quick = server.begin(&url);
    assert_eq!(quick.head().status, 200);
    let mut begun = vec![0; 7_000_000];
    quick.read(&mut begun);
    assert!(bytes.starts_with(&begun));
    origin.plan(|plan| plan.hold_bytes = None);
    assert!(bytes.ends_with(&quick.rest()));
    let mut first = slow.swap_remove(0);
    assert_eq!(first.head().status, 200);
    assert!(first.rest() == bytes);
}

#[test]
fn wrong_bytes_are_cut_and_not_kept_and_nobody_goes_on_from_them() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, commit) = origin();
    let server = start(&env, &origin, &[]);
    origin.plan(|plan| plan.is_wrong = true);
    for path in ["config.json", "sub/x.bin"] {
        let url = format!("{FILES}/main/{path}");
        let mut connection = server.connect();
        connection.send(format!("GET {url} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        let head = connection.head();
        if head.status == 200 {
            let size: usize = head.header("content-length").unwrap().parse().unwrap();
            assert!(connection.rest().len() < size, "{path}");
        } else {
            assert_eq!(head.status, 502, "{path}");
        }
    }
    assert!(!is_kept(&env, "config.json", SMALL));
    origin.plan(|plan| plan.is_wrong = false);
    let url = format!("{FILES}/{commit}/sub/x.bin");
    let resumed = || server.ask(&format!("GET {url}\nRange: bytes=2000000-"));
    assert_eq!(resumed().status, 502);
    assert!(server.get(&url).body == large());
    assert_eq!(
        resumed().status,
        502,
        "what somebody has of it may be wrong"
    );
    assert_eq!(server.stop(), Some(0));
    let log = fs::read_to_string(env.path("log")).unwrap();
    assert!(log.contains("announced were 3000000 with"), "{log}");
}

#[test]
fn an_upstream_that_breaks_off_is_asked_for_the_rest() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, _) = origin();
    let server = start(&env, &origin, &[]);
    origin.plan(|plan| (plan.cuts, plan.cut_bytes) = (2, 700_000));
    assert!(server.get(&format!("{FILES}/main/sub/x.bin")).body == large());
    let ranges: Vec<_> = origin
        .asked("/resolve/")
        .into_iter()
        .map(|asked| asked.range)
        .collect();
    let from = |at: usize| Some(format!("bytes={at}-"));
    assert_eq!(ranges, [None, from(700_000), from(1_400_000)]);
    assert_eq!(server.stop(), Some(0));
    assert!(is_kept(&env, "sub/x.bin", &large()));
}

#[test]
fn what_the_upstream_refuses_is_told_as_it_says_it() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, _) = origin();
    for (at, (status, code, expected)) in [
        (401, "", (401, None)),
        (403, "GatedRepo", (403, Some("GatedRepo"))),
        (404, "RepoNotFound", (404, Some("RepoNotFound"))),
        (404, "RevisionNotFound", (404, Some("RevisionNotFound"))),
        (429, "", (429, None)),
        (500, "", (503, None)),
        (503, "", (503, None)),
    ]
    .into_iter()
    .enumerate()
    {
        let server = start(&env, &origin, &[]);
        origin.plan(|plan| plan.status = Some((status, code)));
        let answer = server.get(&format!("/project/demo{at}/org/m/resolve/main/config.json"));
        assert_eq!(answer.failure(), expected, "{status} {code}");
        if status == 429 {
            assert_eq!(answer.header("retry-after"), Some("7"));
        }
    }
    // The upstream lists a file but refuses to send it.
    origin.plan(|plan| (plan.status, plan.file_status) = (None, Some(403)));
    let server = start(&env, &origin, &[]);
    let url = format!("{FILES}/main/config.json");
    assert_eq!(server.get(&url).failure(), (403, None));
    origin.plan(|plan| plan.file_status = None);
    assert_eq!(server.get(&url).status, 200);
}

#[test]
fn what_was_fetched_stays_without_the_upstream() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, commit) = origin();
    let server = start(&env, &origin, &[]);
    assert_eq!(server.get(&format!("{FILES}/main/config.json")).body, SMALL);
    assert_eq!(server.stop(), Some(0));
    // The upstream has a new commit, and is unreachable.
    origin.add("org/m", &[("config.json", b"other\n")]);
    origin.plan(|plan| plan.status = Some((503, "")));
    fs::write(env.path("log"), "").unwrap();
    for options in [&[][..], &["--offline"]] {
        let before = origin.asked("").len();
        let server = start(&env, &origin, options);
        assert_eq!(server.json(API)["sha"], json!(commit));
        assert_eq!(server.get(&format!("{FILES}/main/config.json")).body, SMALL);
        // The file is missing here, but it exists, so the answer is not "not found".
        assert_eq!(server.get(&format!("{FILES}/main/sub/x.bin")).status, 503);
        let is_asked = origin.asked("").len() > before;
        assert_eq!(is_asked, options.is_empty());
        let unknown = server.get(&format!("{API}/revision/{}", "0".repeat(40)));
        assert_eq!(unknown.status, if options.is_empty() { 503 } else { 404 });
        let nowhere = server.get("/project/demo/api/models/org/none");
        assert_eq!(nowhere.status, if options.is_empty() { 503 } else { 404 });
        assert_eq!(server.stop(), Some(0));
        let log = fs::read_to_string(env.path("log")).unwrap();
        assert!(log.contains("the upstream: it answers 503"), "{log}");
    }
    let before = origin.asked("/resolve/").len();
    origin.plan(|plan| plan.status = None);
    let server = start(&env, &origin, &[]);
    assert_eq!(
        server.get(&format!("{FILES}/main/config.json")).body,
        b"other\n"
    );
    assert_eq!(
        server.get(&format!("{FILES}/{commit}/config.json")).body,
        SMALL
    );
    assert_eq!(origin.asked("/resolve/").len(), before + 1);
}

#[test]
fn two_servers_on_one_store_fetch_a_file_once() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, _) = origin();
    let servers = [start(&env, &origin, &[]), start(&env, &origin, &[])];
    let url = format!("{FILES}/main/sub/x.bin");
    for server in &servers {
        server.ask(&format!("HEAD {url}"));
    }
    origin.plan(|plan| plan.hold_bytes = Some(1_000_000));
    let bytes = large();
    std::thread::scope(|scope| {
        for server in &servers {
            for _ in 0..4 {
                scope.spawn(|| {
                    // A server that waits for the other one may answer 503.
                    let answers = std::iter::repeat_with(|| server.get(&url));
                    let answer = answers.take(20).find(|answer| answer.status != 503);
                    assert!(answer.is_some_and(|answer| answer.body == bytes));
                });
            }
        }
        // By now both have asked, or the second one will find the file in the store.
        std::thread::sleep(std::time::Duration::from_millis(700));
        origin.plan(|plan| plan.hold_bytes = None);
    });
    assert_eq!(origin.asked("/resolve/").len(), 1);
}

#[test]
fn a_server_that_is_killed_while_it_fetches_leaves_nothing_wrong() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, _) = origin();
    let server = start(&env, &origin, &[]);
    origin.plan(|plan| plan.hold_bytes = Some(2_000_000));
    let url = format!("{FILES}/main/sub/x.bin");
    let mut connection = server.connect();
    connection.send(format!("GET {url} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    assert_eq!(connection.head().status, 200);
    connection.read(&mut vec![0; 1_000_000]);
    server.signal(Signal::KILL);
    assert_eq!(server.code(), None);
    origin.plan(|plan| plan.hold_bytes = None);
    assert!(!is_kept(&env, "sub/x.bin", &large()));
    let server = start(&env, &origin, &[]);
    // The server waits for the claim of the killed one, and clients retry.
    let answer = std::iter::repeat_with(|| server.get(&url)).find(|answer| answer.status != 503);
    assert!(answer.unwrap().body == large());
    assert_eq!(server.stop(), Some(0));
    assert!(is_kept(&env, "sub/x.bin", &large()));
    env.ok(["verify", "--read-data"]);
}

#[test]
fn what_the_namespace_has_itself_is_not_asked_for() {
    let env = environment!();
    env.write("in/a.txt", "ours");
    env.ok(["put", "in", "project/demo/org/m"]);
    let (origin, _) = origin();
    let server = start(&env, &origin, &[]);
    assert_eq!(server.get(&format!("{FILES}/main/a.txt")).body, b"ours");
    assert_eq!(server.get(&format!("{FILES}/main/config.json")).status, 404);
    assert!(origin.asked("").is_empty());
}
