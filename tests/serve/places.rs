//! Turns for uploads, files in place of folders, and a store that is unreachable or full.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use support::hub::sha256;
use support::{Random, TestEnvironment, environment};

use crate::server::{Connection, Server};
use crate::write::{Client, REPO, file, header, lfs};

fn token(env: &TestEnvironment, name: &str) -> String {
    env.ok(["token", "add", name, "--role", "write"])
        .trim()
        .to_owned()
}

fn delete(path: &str, key: &str) -> Value {
    json!({"key": key, "value": {"path": path}})
}

/// Begins an upload, which takes a turn, and does not continue it.
fn begun(server: &Server, client: &mut Client, bytes: &[u8]) -> Connection {
    let href = client.announce(&sha256(bytes), bytes.len()).unwrap();
    let mut connection = server.connect();
    let length = bytes.len();
    let head =
        format!("PUT {href} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    connection.send(head.as_bytes());
    connection.send(&bytes[..200_000]);
    connection
}

#[test]
fn slow_uploads_of_one_token_leave_turns_to_others() {
    let env = environment!();
    env.ok(["init"]);
    let (slow, other) = (token(&env, "slow"), token(&env, "other"));
    // Memory for two uploads at the same time.
    let server = Server::start(&env, &["--memory", "32MiB"]);
    let mut client = Client::with_token(&server, &slow);
    client.create();
    let files: Vec<Vec<u8>> = (0..3)
        .map(|seed| Random::new(seed).bytes(400_000))
        .collect();
    let mut connections: Vec<Connection> = files
        .iter()
        .map(|bytes| begun(&server, &mut client, bytes))
        .collect();
    let mut client = Client::with_token(&server, &other);
    let done = client.commit(&[header(None), file("a", &Random::new(9).text(500_000))]);
    assert_eq!(done.status, 200, "{done:?}");
    // No upload had to be cut off for that.
    for (connection, bytes) in connections.iter_mut().zip(&files) {
        connection.send(&bytes[200_000..]);
        assert_eq!(connection.answer(false).status, 200);
    }
}

#[test]
fn a_file_takes_the_place_of_a_folder_only_where_the_commit_deletes_it() {
    let env = environment!();
    env.write("in/dir/one", "1");
    env.write("in/dir/two", "2");
    env.write("in/file", "f");
    env.ok(["put", "in", "project/demo/models/org/new"]);
    let server = Server::start(&env, &[]);
    let mut client = Client::new(&server);
    let head = client.head();
    for lines in [
        vec![file("dir", b"x")],
        vec![file("dir", b"x"), delete("dir/one", "deletedFile")],
        vec![file("file/below", b"x")],
    ] {
        let refused = client.commit(&[vec![header(None)], lines].concat());
        assert_eq!(refused.status, 422, "{refused:?}");
        assert!(
            refused.json()["error"]
                .as_str()
                .unwrap()
                .contains("delete it within the commit")
        );
        assert_eq!(client.head(), head);
    }
    let taken = [
        header(None),
        file("dir", b"x"),
        delete("dir/", "deletedFolder"),
        delete("file", "deletedFile"),
        file("file/below", b"y"),
    ];
    assert_eq!(client.commit(&taken).status, 200);
    let answer = server.get("/project/demo/org/new/resolve/main/dir");
    assert_eq!(answer.body, b"x");
    let back = [
        header(None),
        delete("dir", "deletedFile"),
        file("dir/one", b"1"),
    ];
    assert_eq!(client.commit(&back).status, 200);
}

#[test]
fn what_a_commit_adds_stays_in_whatever_order_its_lines_come() {
    let env = environment!();
    env.write("in/a", "old");
    env.ok(["put", "in", "project/demo/models/org/new"]);
    let server = Server::start(&env, &[]);
    let mut client = Client::new(&server);
    let (add, gone) = (
        |text: &str| file("a", text.as_bytes()),
        delete("a", "deletedFile"),
    );
    for (lines, expected) in [
        ([add("one"), gone.clone()], "one"),
        ([gone, add("two")], "two"),
    ] {
        let lines = [vec![header(None)], lines.to_vec()].concat();
        assert_eq!(client.commit(&lines).status, 200);
        let answer = server.get("/project/demo/org/new/resolve/main/a");
        assert_eq!(answer.body, expected.as_bytes());
    }
}

#[test]
fn sizes_that_are_said_are_those_of_the_bytes() {
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    let mut client = Client::new(&server);
    client.create();
    let bytes = Random::new(3).bytes(50_000);
    let oid = sha256(&bytes);
    let href = client.announce(&oid, bytes.len()).unwrap();
    assert_eq!(client.send(&href, &bytes).status, 200);
    let batch = json!({"operation": "upload", "objects": [{"oid": oid, "size": 49_999}]});
    let told = client.post(
        "/project/demo/org/new.git/info/lfs/objects/batch",
        batch.to_string(),
    );
    assert_eq!(told.json()["objects"][0]["error"]["code"], 422);
    let verify = |client: &mut Client, size: u64| {
        let body = json!({"oid": oid, "size": size}).to_string();
        client
            .post(&format!("{REPO}/lfs-verify/{oid}"), body)
            .status
    };
    assert_eq!(
        (verify(&mut client, 50_000), verify(&mut client, 1)),
        (200, 422)
    );
    let mut line = lfs("x.bin", &oid);
    line["value"]["size"] = json!(49_999);
    assert_eq!(client.commit(&[header(None), line.clone()]).status, 400);
    line["value"]["size"] = json!(50_000);
    assert_eq!(client.commit(&[header(None), line]).status, 200);
}

#[test]
fn a_request_says_once_who_asks() {
    let env = environment!();
    env.ok(["init"]);
    let (one, other) = (token(&env, "one"), token(&env, "other"));
    let server = Server::start(&env, &[]);
    let twice = format!(
        "GET /project/demo/api/whoami-v2\nAuthorization: Bearer {one}\nAuthorization: Bearer {other}"
    );
    assert_eq!(server.ask(&twice).status, 400);
    let once = format!("GET /project/demo/api/whoami-v2\nAuthorization: Bearer {one}");
    assert_eq!(server.ask(&once).status, 200);
}

#[test]
fn a_store_that_is_away_is_no_store_without_repos() {
    let env = environment!();
    env.write("in/a.txt", "inside");
    env.ok(["put", "in", "project/demo/org/data"]);
    let server = Server::start(&env, &[]);
    let place = env.path("home/.local/share/store");
    let known = "/project/demo/org/data/resolve/main/a.txt";
    let unknown = "/project/demo/api/models/org/none";
    assert_eq!(
        (server.get(known).status, server.get(unknown).status),
        (200, 404)
    );
    fs::rename(&place, env.path("away")).unwrap();
    for path in [unknown, known, "/healthz"] {
        // A recent check of the store remains valid for a moment.
        let mut answers = std::iter::repeat_with(|| server.get(path).status);
        let away = answers.find(|status| *status == 503 || !matches!(status, 200 | 404));
        assert_eq!(away, Some(503), "{path}");
    }
    fs::rename(env.path("away"), &place).unwrap();
    assert_eq!(
        (server.get(known).status, server.get(unknown).status),
        (200, 404)
    );
    assert_eq!(server.get("/healthz").status, 200);
}

/// A small file system, unmounted when the value is dropped.
pub(crate) struct Small(PathBuf);

impl Small {
    pub(crate) fn new(path: &Path) -> Self {
        fs::create_dir_all(path).unwrap();
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=16M", "tmpfs"])
            .arg(path));
        Self(path.to_owned())
    }
}

impl Small {
    /// One that reserves no room for files.
    pub(crate) fn ext2(path: &Path) -> Self {
        fs::create_dir_all(path).unwrap();
        let image = path.with_extension("image");
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        run(Command::new("mkfs.ext2").arg("-q").arg(&image));
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(path));
        Self(path.to_owned())
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

#[test]
fn a_disk_that_is_full_in_the_middle_leaves_nothing_half() {
    let env = environment!();
    let small = Small::new(&env.path("small"));
    let place = small.0.join("store").display().to_string();
    env.ok(["init", &place]);
    let server = Server::start(&env, &["--store", &place]);
    let mut client = Client::new(&server);
    client.create();
    let head = client.head();
    // The file is too large for the disk, but small enough that the server reads it to its end.
    let large = Random::new(4).bytes(18_000_000);
    let oid = sha256(&large);
    let href = client.announce(&oid, large.len()).unwrap();
    assert_eq!(
        client.send(&href, &large).failure(),
        (507, Some("InsufficientStorage"))
    );
    assert!(client.announce(&oid, large.len()).is_some());
    let body = [header(None), file("a", &large)];
    assert_eq!(
        client.commit(&body).failure(),
        (507, Some("InsufficientStorage"))
    );
    assert_eq!(client.head(), head);
    assert_eq!(
        server.get("/project/demo/org/new/resolve/main/a").status,
        404
    );
    env.ok(["--store", &place, "gc", "--grace", "0", "--min-age", "0"]);
    let fits = client.commit(&[header(None), file("b", &large[..4_000_000])]);
    assert_eq!(fits.status, 200, "{fits:?}");
    env.ok(["--store", &place, "verify", "--read-data"]);
    assert_eq!(server.stop(), Some(0));
    drop(small);
}

#[test]
fn several_servers_and_a_collector_without_grace_share_a_store() {
    let env = environment!();
    env.ok(["init"]);
    let servers = [Server::start(&env, &[]), Server::start(&env, &[])];
    Client::new(&servers[0]).create();
    let rounds = support::effort(6, 40) as u64;
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|number| {
                let server = &servers[(number % 2) as usize];
                scope.spawn(move || {
                    for round in 0..rounds {
                        let bytes = Random::new(number * 1000 + round).bytes(300_000);
                        let path = format!("{number}/{round}");
                        // Collected uploads and faster writers have answers of their own, after which the client
                        // retries.
                        let sent = std::iter::repeat_with(|| {
                            let mut client = Client::new(server);
                            let answer = client.commit(&[header(None), file(&path, &bytes)]);
                            assert!([200, 409, 412, 503].contains(&answer.status), "{answer:?}");
                            answer.status
                        });
                        assert!(sent.take(100).any(|status| status == 200));
                    }
                })
            })
            .collect();
        let collector = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let collected = env.store(["gc", "--grace", "0", "--min-age", "0"]);
                assert!(matches!(collected.code, Some(0 | 5)), "{collected}");
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        // Ends the collector even if a writer failed.
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        collector.join().unwrap();
        assert!(ended.iter().all(Result::is_ok));
    });
    for number in 0..4_u64 {
        for round in 0..rounds {
            let url = format!("/project/demo/org/new/resolve/main/{number}/{round}");
            for server in &servers {
                let answer = server.get(&url);
                let expected = Random::new(number * 1000 + round).bytes(300_000);
                assert!(answer.status == 200 && answer.body == expected, "{url}");
            }
        }
    }
    env.ok(["verify", "--read-data"]);
}
