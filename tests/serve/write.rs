//! What the Hub door accepts from clients that write, and what it refuses: complete versions, or nothing.

use std::fs;

use serde_json::{Value, json};
use support::hub::{git_name, sha256};
use support::{Random, TestEnvironment, environment};

use crate::server::{Answer, Connection, Server};

pub(crate) const REPO: &str = "/project/demo/api/models/org/new";

/// A client that speaks like Hub clients.
pub(crate) struct Client {
    connection: Connection,
    agent: &'static str,
    token: Option<String>,
}

impl Client {
    pub(crate) fn new(server: &Server) -> Self {
        Self {
            connection: server.connect(),
            agent: "unknown/None; hf_hub/0.36.2",
            token: None,
        }
    }

    pub(crate) fn with_token(server: &Server, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..Self::new(server)
        }
    }

    /// The Authorization header.
    fn known(&self) -> String {
        let token = self.token.as_ref();
        token.map_or_else(String::new, |token| {
            format!("\nAuthorization: Bearer {token}")
        })
    }

    pub(crate) fn post(&mut self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        let (agent, known) = (self.agent, self.known());
        let head = format!("POST {path}\nUser-Agent: {agent}{known}");
        self.connection.ask_with(&head, body.as_ref())
    }

    pub(crate) fn create(&mut self) -> Answer {
        let body = json!({"name": "new", "organization": "org", "private": true});
        self.post("/project/demo/api/repos/create", body.to_string())
    }

    /// Announces a file. Returns the upload URL, if the file is to be sent.
    pub(crate) fn announce(&mut self, oid: &str, size: usize) -> Option<String> {
        let body = json!({
            "operation": "upload", "transfers": ["basic", "multipart"], "objects": [{"oid": oid, "size": size}], "hash_algo": "sha256",
        });
        let answer = self.post(
            "/project/demo/org/new.git/info/lfs/objects/batch",
            body.to_string(),
        );
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["transfer"], "basic");
        let href = answer.json()["objects"][0]["actions"]["upload"]["href"].clone();
        let href = href
            .as_str()?
            .strip_prefix("http://hub.localhost:80")?
            .to_owned();
        Some(href)
    }

    pub(crate) fn send(&mut self, href: &str, bytes: &[u8]) -> Answer {
        self.connection.ask_with(&format!("PUT {href}"), bytes)
    }

    pub(crate) fn commit(&mut self, lines: &[Value]) -> Answer {
        let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.post(&format!("{REPO}/commit/main"), body)
    }

    pub(crate) fn head(&mut self) -> String {
        let known = self.known();
        let info = self.connection.ask(&format!("GET {REPO}{known}")).json();
        info["sha"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn header(parent: Option<&str>) -> Value {
    let mut value = json!({"summary": "a commit", "description": "of a test"});
    if let Some(parent) = parent {
        value["parentCommit"] = json!(parent);
    }
    json!({"key": "header", "value": value})
}

/// A file within a commit, with base64 written by hand to be independent of the server's code.
pub(crate) fn file(path: &str, bytes: &[u8]) -> Value {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut content = String::new();
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
            content.push(if place <= group.len() {
                digit.into()
            } else {
                '='
            });
        }
    }
    json!({"key": "file", "value": {"content": content, "path": path, "encoding": "base64"}})
}

pub(crate) fn lfs(path: &str, oid: &str) -> Value {
    json!({"key": "lfsFile", "value": {"path": path, "algo": "sha256", "oid": oid}})
}

fn versions(env: &TestEnvironment) -> usize {
    let history = env.ok(["history", "project/demo/models/org/new", "--json"]);
    history.lines().count()
}

#[test]
fn a_repo_is_made_filled_and_read_back() {
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    let mut client = Client::new(&server);
    let made = client.create();
    assert_eq!(
        (made.status, &made.json()["url"]),
        (200, &json!("http://hub.localhost:80/project/demo/org/new"))
    );
    let again = client.create();
    assert_eq!(
        (again.status, &again.json()["name"]),
        (409, &json!("org/new"))
    );
    let yaml = client.post(
        "/project/demo/api/validate-yaml",
        r#"{"content": "---", "repoType": "model"}"#,
    );
    assert_eq!(yaml.json(), json!({"errors": [], "warnings": []}));

    let large = Random::new(4).bytes(3_000_000);
    let oid = sha256(&large);
    let href = client.announce(&oid, large.len()).unwrap();
    assert_eq!(client.send(&href, &large).status, 200);
    assert_eq!(client.announce(&oid, large.len()), None);
    let verify = client.post(
        &format!("{REPO}/lfs-verify/{oid}"),
        json!({"oid": oid, "size": 3_000_000}).to_string(),
    );
    assert_eq!(verify.status, 200);
    let small = Random::new(5).text(200_001);
    let done = client.commit(&[
        header(None),
        file("a/b c.txt", &small),
        file("empty", b""),
        lfs("x.bin", &oid),
    ]);
    assert_eq!(
        (done.status, &done.json()["success"]),
        (200, &json!(true)),
        "{done:?}"
    );
    let commit = client.head();
    assert_eq!(done.json()["commitOid"], json!(commit));
    assert_eq!(
        done.json()["commitUrl"],
        json!(format!(
            "http://hub.localhost:80/project/demo/org/new/commit/{commit}"
        ))
    );
    for (path, bytes) in [
        ("a/b%20c.txt", &small),
        ("x.bin", &large),
        ("empty", &Vec::new()),
    ] {
        let answer = server.get(&format!("/project/demo/org/new/resolve/{commit}/{path}"));
        assert!(answer.status == 200 && answer.body == *bytes, "{path}");
    }
    // A copy inside of the repo, and deletions.
    let copied = [
        header(Some(&commit)),
        lfs("copy.bin", &oid),
        json!({"key": "deletedFile", "value": {"path": "empty"}}),
        json!({"key": "deletedFolder", "value": {"path": "a/"}}),
    ];
    assert_eq!(client.commit(&copied).status, 200);
    env.ok(["get", "project/demo/models/org/new", "out"]);
    let names: Vec<_> = support::seen(&env.path("out")).into_keys().collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(fs::read(env.path("out/copy.bin")).unwrap() == large);
    let history = env.ok(["history", "project/demo/models/org/new"]);
    assert!(history.contains("a commit"), "{history}");
    let commits = server.json(&format!("{REPO}/commits/main"));
    assert_eq!(commits.as_array().unwrap().len(), 3);
    env.ok(["verify", "--read-data"]);
}

#[test]
fn what_is_there_is_known_before_it_is_sent() {
    let env = environment!();
    env.write("in/same.txt", "same\n");
    env.write("in/x.bin", "data");
    env.ok(["put", "in", "project/demo/models/org/new"]);
    let server = Server::start(&env, &[]);
    let mut client = Client::new(&server);
    let ask = |client: &mut Client, size: u64| {
        let files = json!({"files": [
            {"path": "same.txt", "size": 5, "sample": ""}, {"path": "x.bin", "size": 4, "sample": ""}, {"path": "new.txt", "size": size, "sample": ""},
        ]});
        client
            .post(&format!("{REPO}/preupload/main"), files.to_string())
            .json()["files"]
            .clone()
    };
    let mode = |told: &Value, at: usize| told[at]["uploadMode"].as_str().unwrap().to_owned();
    let told = ask(&mut client, 20_000_000);
    assert_eq!(
        [0, 1, 2].map(|at| mode(&told, at)),
        ["regular", "lfs", "lfs"]
    );
    assert_eq!(
        (&told[0]["oid"], &told[1]["oid"]),
        (&json!(git_name(b"same\n")), &json!(sha256(b"data")))
    );
    assert_eq!(told[2].get("oid"), None);
    // Clients that send large files only by Xet send files up to a limit within the commit.
    client.agent = "unknown/None; hf_hub/2.4.0; python/3.11.2";
    let told = ask(&mut client, 20_000_000);
    assert_eq!([0, 1, 2].map(|at| mode(&told, at)), ["regular"; 3]);
    assert_eq!(told[1]["oid"], json!(git_name(b"data")));
    let told = ask(&mut client, 64 << 20);
    assert_eq!(mode(&told, 2), "lfs");
    let token = server.get(&format!("{REPO}/xet-write-token/main"));
    assert!(token.status == 404 && token.header("x-xet-cas-url").is_none());
}

#[test]
fn of_commits_with_one_parent_the_first_is_taken_and_may_be_sent_again() {
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    let mut client = Client::new(&server);
    client.create();
    let parent = client.head();
    let line = |text: &str| [header(Some(&parent)), file("a", text.as_bytes())];
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..4)
            .map(|number| {
                let (server, line) = (&server, &line);
                scope.spawn(move || {
                    Client::new(server)
                        .commit(&line(&number.to_string()))
                        .status
                })
            })
            .collect();
        jobs.into_iter().map(|job| job.join().unwrap()).collect()
    });
    let count = |status| statuses.iter().filter(|found| **found == status).count();
    assert_eq!((count(200), count(412)), (1, 3), "{statuses:?}");
    let winner = statuses.iter().position(|status| *status == 200).unwrap();
    let head = client.head();
    let again = client.commit(&line(&winner.to_string()));
    assert_eq!(
        (again.status, &again.json()["commitOid"]),
        (200, &json!(head))
    );
    assert_eq!((client.head(), versions(&env)), (head, 2));
    let unknown = client.commit(&[header(Some(&"0".repeat(40))), file("a", b"x")]);
    assert_eq!(unknown.status, 412);
}

#[test]
fn a_commit_that_is_wrong_leaves_nothing() {
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    let mut client = Client::new(&server);
    client.create();
    let head = client.head();
    let good = file("good", b"good");
    for bad in [
        lfs("x", &"0".repeat(64)),
        lfs("x", "../x"),
        file("../x", b"x"),
        file("/x", b"x"),
        file("a//b", b"x"),
        file("a/./b", b"x"),
        file("a\u{0}b", b"x"),
        file("good/x", b"x"),
        file(".git/config", b"x"),
        lfs("sub/.git", &"0".repeat(64)),
        file(&"a/".repeat(1000), b"x"),
        json!({"key": "file", "value": {"content": "a", "path": "x", "encoding": "base64"}}),
        json!({"key": "file", "value": {"content": "text", "path": "x", "encoding": "utf-8"}}),
        json!({"key": "file", "value": {"path": "x", "encoding": "base64"}}),
        json!({"key": "unheard", "value": {}}),
        json!({"key": "header", "value": {}}),
        json!([]),
    ] {
        let answer = client.commit(&[header(None), good.clone(), bad.clone()]);
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
        assert!(answer.json()["error"].is_string());
    }
    for body in ["", "{", "\n", "{\"key\": \"file\"}", &good.to_string()] {
        assert_eq!(
            client.post(&format!("{REPO}/commit/main"), body).status,
            400,
            "{body}"
        );
    }
    let elsewhere = client.post(&format!("{REPO}/commit/other"), header(None).to_string());
    assert_eq!(elsewhere.failure(), (404, Some("RevisionNotFound")));
    let pull = client.post(
        &format!("{REPO}/commit/main?create_pr=1"),
        header(None).to_string(),
    );
    assert_eq!(pull.status, 403);
    // A commit that is truncated inside of a file.
    let body = format!("{}\n{}", header(None), file("cut", &[b'x'; 100_000]));
    let cut = &body.as_bytes()[..body.len() / 2];
    let mut connection = server.connect();
    let said = format!(
        "POST {REPO}/commit/main HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    connection.send(said.as_bytes());
    connection.send(cut);
    drop(connection);
    assert_eq!((client.head(), versions(&env)), (head, 1));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn an_upload_is_what_was_announced_or_nothing() {
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    let mut client = Client::new(&server);
    client.create();
    let bytes = Random::new(6).bytes(100_000);
    let oid = sha256(&bytes);
    let href = client.announce(&oid, bytes.len()).unwrap();
    let mut other = bytes.clone();
    other[5] ^= 1;
    assert_eq!(client.send(&href, &other).status, 400);
    assert_eq!(client.send(&href, &bytes[1..]).status, 400);
    assert_eq!(client.send(&href, &[&bytes[..], b"x"].concat()).status, 400);
    for (part, instead) in [
        (oid.as_str(), sha256(b"other").as_str()),
        ("signature=", "signature=0"),
        ("until=", "until=9"),
        ("size=1", "size=2"),
        ("org/new", "org/newer"),
    ] {
        let forged = href.replace(part, instead);
        assert_ne!(forged, href);
        assert_eq!(client.send(&forged, &bytes).status, 403, "{forged}");
    }
    // An upload that breaks off, and a chunked one that is longer than announced.
    let mut connection = server.connect();
    connection.send(
        format!("PUT {href} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nabc")
            .as_bytes(),
    );
    drop(connection);
    let mut connection = server.connect();
    connection.send(
        format!(
            "PUT {href} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n"
        )
        .as_bytes(),
    );
    connection.send(&[b'x'; 0x20000]);
    connection.send(b"\r\n0\r\n\r\n");
    assert_eq!(connection.head().status, 400);
    assert!(client.announce(&oid, bytes.len()).is_some());
    assert_eq!(client.send(&href, &bytes).status, 200);
    assert_eq!(client.announce(&oid, bytes.len()), None);
    env.ok(["verify", "--read-data"]);
}

#[test]
fn who_may_write_is_asked_by_a_branch_that_is_not_there() {
    let env = environment!();
    support::hub::cache(&env.path("hf"), 7, support::hub::Generation::Listed);
    env.ok(["put", "hf", "project/demo/hf"]);
    let server = Server::start(&env, &[]);
    let mut client = Client::new(&server);
    client.create();
    let probe = server.ask(&format!("DELETE {REPO}/branch/probe-1"));
    assert_eq!(probe.failure(), (404, Some("RevisionNotFound")));
    let saved = server.ask("DELETE /project/demo/api/models/org/tiny/branch/probe-1");
    assert_eq!(saved.failure(), (403, None));
    assert_eq!(
        server.ask("DELETE /project/demo/api/repos/delete").status,
        403
    );
}

#[test]
fn a_server_that_is_killed_leaves_the_old_version_and_another_one_goes_on() {
    let env = environment!();
    env.ok(["init"]);
    let first = Server::start(&env, &[]);
    let mut client = Client::new(&first);
    client.create();
    let bytes = Random::new(9).bytes(9_000_000);
    let oid = sha256(&bytes);
    let href = client.announce(&oid, bytes.len()).unwrap();
    for half in [1_000_000, 8_500_000] {
        let server = Server::start(&env, &[]);
        let mut connection = server.connect();
        let said = format!(
            "PUT {href} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            bytes.len()
        );
        connection.send(said.as_bytes());
        connection.send(&bytes[..half]);
        server.signal(rustix::process::Signal::KILL);
        assert_eq!(server.code(), None);
    }
    let body = [header(None), file("a", &Random::new(2).text(2_000_000))];
    let body: String = body.iter().map(|line| format!("{line}\n")).collect();
    let server = Server::start(&env, &[]);
    let mut connection = server.connect();
    let said = format!(
        "POST {REPO}/commit/main HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    connection.send(said.as_bytes());
    connection.send(&body.as_bytes()[..body.len() - 20]);
    server.signal(rustix::process::Signal::KILL);
    assert_eq!((server.code(), versions(&env)), (None, 1));

    // Another server knows the upload at once.
    assert_eq!(client.send(&href, &bytes).status, 200);
    let second = Server::start(&env, &[]);
    let mut other = Client::new(&second);
    assert_eq!(other.announce(&oid, bytes.len()), None);
    assert_eq!(
        other
            .commit(&[header(Some(&client.head())), lfs("x", &oid)])
            .status,
        200
    );
    assert_eq!(client.head(), other.head());
    assert!(first.get("/project/demo/org/new/resolve/main/x").body == bytes);
    env.ok(["verify", "--read-data"]);
}

#[test]
fn a_commit_with_two_files_of_one_name_is_refused_and_one_that_says_a_file_twice_is_not() {
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    let mut client = Client::new(&server);
    client.create();
    let large = Random::new(3).bytes(200_000);
    let oid = sha256(&large);
    let href = client.announce(&oid, large.len()).unwrap();
    assert_eq!(client.send(&href, &large).status, 200);
    let head = client.head();
    for (one, other) in [
        (file("a/x", b"one"), file("a/x", b"two")),
        (file("x", b"one"), lfs("x", &oid)),
        (lfs("x", &oid), file("x", b"")),
    ] {
        let answer = client.commit(&[header(None), one, file("y", b"y"), other.clone()]);
        assert_eq!(answer.status, 400, "{other}: {answer:?}");
        let told = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(told.contains("two files of this name"), "{told}");
    }
    assert_eq!((client.head(), versions(&env)), (head, 1));
    let same = [
        header(None),
        file("x", b"one"),
        file("x", b"one"),
        lfs("z", &oid),
        file("z", &large),
    ];
    assert_eq!(client.commit(&same).status, 200);
    assert_eq!(env.ok(["cat", "project/demo/models/org/new:x"]), "one");
    assert_eq!(server.stop(), Some(0));
}
