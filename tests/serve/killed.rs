//! Servers that are killed at any time during an upload or after its answer: the old version or the new one is there.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use support::hub::sha256;
use support::{Random, TestEnvironment, environment};

use crate::server::Server;
use crate::write::{Client, REPO, file, header, lfs};

/// How often the server is killed.
const KILLS: u64 = 14;
const LARGE_BYTES: usize = 5_000_000;
const SMALL_BYTES: usize = 700_000;
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

type Tree = BTreeMap<String, Vec<u8>>;

/// A large file, and a commit that names it and contains a small file.
struct Upload {
    large: Vec<u8>,
    small: Vec<u8>,
}

impl Upload {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            large: random.bytes(LARGE_BYTES),
            small: random.text(SMALL_BYTES),
        }
    }

    fn tree(&self) -> Tree {
        BTreeMap::from([
            ("large.bin".to_owned(), self.large.clone()),
            ("small.txt".to_owned(), self.small.clone()),
        ])
    }

    fn commit(&self, parent: &str) -> String {
        let lines = [
            header(Some(parent)),
            file("small.txt", &self.small),
            lfs("large.bin", &sha256(&self.large)),
        ];
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Sends everything. Returns the number of requests that were answered with 200. The server may die at any time.
    fn send(&self, address: &str, parent: &str) -> usize {
        let oid = sha256(&self.large);
        let batch = json!({
            "operation": "upload", "transfers": ["basic"], "hash_algo": "sha256",
            "objects": [{"oid": oid, "size": self.large.len()}],
        });
        let path = "/project/demo/org/new.git/info/lfs/objects/batch";
        let Some(told) = ask(
            address,
            &format!("POST {path}"),
            batch.to_string().as_bytes(),
        ) else {
            return 0;
        };
        let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
        if let Some(href) = told["objects"][0]["actions"]["upload"]["href"].as_str() {
            let path = href.split_once("localhost").unwrap().1;
            if ask(address, &format!("PUT {path}"), &self.large).is_none() {
                return 1;
            }
        }
        let commit = self.commit(parent);
        let path = format!("POST {REPO}/commit/main");
        match ask(address, &path, commit.as_bytes()) {
            Some(_) => 3,
            None => 2,
        }
    }
}

/// The body of a complete answer with status 200.
fn ask(address: &str, line: &str, body: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let head = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(answer[..end].to_ascii_lowercase()).unwrap();
    let len = head.split_once("content-length: ")?.1;
    let len: usize = len.split_once("\r\n")?.0.parse().unwrap();
    let body = answer.split_off(end);
    (head.starts_with("http/1.1 200") && body.len() == len).then_some(body)
}

/// The commit of the repo, and all its files as a server sends them.
fn found(server: &Server) -> (String, Tree) {
    let info = server.json(REPO);
    let commit = info["sha"].as_str().unwrap().to_owned();
    let files = info["siblings"].as_array().unwrap().iter();
    let files = files.map(|file| {
        let path = file["rfilename"].as_str().unwrap().to_owned();
        let answer = server.get(&format!("/project/demo/org/new/resolve/{commit}/{path}"));
        assert_eq!(answer.status, 200, "{path}");
        (path, answer.body)
    });
    let files = files.collect();
    (commit, files)
}

/// Starts a server and kills it after a while. Returns the number of requests that were answered before.
fn killed(env: &TestEnvironment, upload: &Upload, parent: &str, after: Duration) -> usize {
    let server = Server::start(env, &[]);
    let address = server.address().to_owned();
    std::thread::scope(|scope| {
        let (begin, begun) = mpsc::channel();
        let sending = scope.spawn(move || {
            begin.send(()).unwrap();
            upload.send(&address, parent)
        });
        begun.recv().unwrap();
        std::thread::sleep(after);
        server.signal(Signal::KILL);
        assert_eq!(server.code(), None);
        sending.join().unwrap()
    })
}

#[test]
fn a_server_that_is_killed_at_any_moment_leaves_the_old_version_or_the_new_one() {
    let env = environment!();
    env.ok(["init"]);
    let witness = Server::start(&env, &[]);
    Client::new(&witness).create();
    let (mut commit, mut tree) = found(&witness);
    // The duration of an undisturbed upload limits the times of the kills.
    let whole = Upload::new(1000);
    let began = Instant::now();
    assert_eq!(whole.send(witness.address(), &commit), 3);
    let lasts = began.elapsed();
    (commit, tree) = {
        let (next, files) = found(&witness);
        assert!(next != commit && files == whole.tree() && tree.is_empty());
        (next, files)
    };
    let mut dice = Random::new(5);
    for seed in 0..KILLS {
        let upload = Upload::new(seed);
        let part = u32::try_from(dice.below(130)).unwrap();
        let answered = killed(&env, &upload, &commit, lasts * part / 100);
        let what = format!("kill {seed} at {part} %, {answered} answered");
        let (next, files) = found(&witness);
        let is_new = next != commit;
        assert_eq!(files, if is_new { upload.tree() } else { tree }, "{what}");
        assert!(is_new || answered < 3, "{what}: it was answered");
        // A repeated upload continues from what was acknowledged.
        let kept = Client::new(&witness).announce(&sha256(&upload.large), LARGE_BYTES);
        assert!(kept.is_none() || answered < 2, "{what}");
        assert_eq!(upload.send(witness.address(), &commit), 3, "{what}");
        (commit, tree) = found(&witness);
        assert_eq!(tree, upload.tree(), "{what}");
    }
    env.ok(["verify", "--read-data"]);
}
