//! What is refused to clients of the Hub door, and in which words: who reads them knows what to do.

use std::fs;

use serde_json::{Value, json};
use support::{TestEnvironment, environment};

use crate::server::{Answer, Server};
use crate::write::{Client, REPO, file, header};

fn world() -> (TestEnvironment, Server) {
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    Client::new(&server).create();
    (env, server)
}

fn told(answer: &Answer) -> (u16, String) {
    let told: Value = answer.json();
    (
        answer.status,
        told["error"].as_str().unwrap_or_default().to_owned(),
    )
}

/// Clients take a conflict for a reason to try again.
#[test]
fn a_ref_that_is_a_file_takes_no_commit() {
    let (env, server) = world();
    env.write("one.txt", "one");
    env.ok(["put", "one.txt", "project/demo/org/single"]);
    let mut client = Client::new(&server);
    let body = format!("{}\n{}\n", header(None), file("a", b"a"));
    let path = REPO.replace("org/new", "org/single") + "/commit/main";
    let (status, why) = told(&client.post(&path, body));
    assert!(
        status == 403 && why.contains("a single file"),
        "{status} {why}"
    );
}

#[test]
fn the_first_seven_digits_name_a_parent() {
    let (_env, server) = world();
    let mut client = Client::new(&server);
    for (digits, status) in [(7, 200), (39, 200), (40, 200), (6, 412), (0, 412)] {
        let head = client.head();
        let parent = &head[..digits];
        let text = format!("{digits}");
        let answer = client.commit(&[header(Some(parent)), file("a", text.as_bytes())]);
        assert_eq!(answer.status, status, "{digits}: {answer:?}");
        let is_empty = told(&answer).1.contains("an empty parent");
        assert_eq!(is_empty, digits == 0, "{answer:?}");
    }
    let unknown = client.commit(&[header(Some("0123456")), file("a", b"b")]);
    assert_eq!(unknown.status, 412);
}

#[test]
fn what_is_wrong_with_a_commit_is_said() {
    let (_env, server) = world();
    let mut client = Client::new(&server);
    let before = client.head();
    let mut encoded = file("a", b"a");
    encoded["value"]["encoding"] = json!("utf-8");
    let copied = json!({"key": "copyFile", "value": {"path": "b", "srcPath": "a"}});
    for (lines, why) in [
        (
            vec![json!({"key": "header"}), file("a", b"a")],
            "which has a summary",
        ),
        (
            vec![header(None), encoded],
            "in the encoding base64, found \"utf-8\"",
        ),
        (
            vec![header(None), copied],
            "\"copyFile\" of the commit, which this endpoint does not take",
        ),
        (
            vec![header(None), file("x/.GIT/config", b"a")],
            "called .git",
        ),
        (
            vec![header(None), json!({"key": 1})],
            "not the JSON of a line of a commit: invalid type",
        ),
    ] {
        let (status, found) = told(&client.commit(&lines));
        assert!(status == 400 && found.contains(why), "{status} {found}");
    }
    let endless = json!([{"oid": "a".repeat(64), "size": 1_u64 << 63}]);
    for (operation, objects) in [("download", json!([])), ("upload", endless)] {
        let body = json!({"operation": operation, "objects": objects}).to_string();
        let batch = client.post("/project/demo/org/new.git/info/lfs/objects/batch", body);
        let (status, found) = told(&batch);
        assert!(
            status == 400 && found.contains("the operation upload"),
            "{status} {found}"
        );
    }
    assert_eq!(client.head(), before);
}

#[test]
fn what_the_server_does_not_do_is_not_blamed_on_the_endpoint() {
    let (_env, server) = world();
    for path in [
        "/project/demo/api/repos/move",
        "/project/demo/api/models/org/new/discussions",
    ] {
        let (status, why) = told(&server.get(path));
        assert!(
            status == 404 && why.contains("this server does not do that"),
            "{status} {why}"
        );
    }
    // Clients print addresses that a Hub shows to browsers.
    for shown in ["", "/tree/main", "/blob/main/a", "/commit/0123"] {
        let path = format!("/project/demo/org/new{shown}");
        let answer = server.ask(&format!("GET {path}\nAccept: text/html"));
        let place = answer.header("location").unwrap_or_default();
        let is_page = place == "/-/project/demo/models/org/new";
        assert!(answer.status == 303 && is_page, "{path}: {answer:?}");
        // Two slashes begin the name of a host.
        let asked = format!("GET {path}\nAccept: text/html\nX-Forwarded-Prefix: //elsewhere");
        assert_eq!(server.ask(&asked).header("location"), Some(place));
        assert_eq!(server.get(&path).status, 404, "{path}");
    }
    assert_eq!(
        server
            .ask("GET /project/demo/org/none\nAccept: text/html")
            .status,
        404
    );
    let (status, why) = told(&server.get("/project/demo/nothing/of/the/kind"));
    assert!(
        status == 404 && why.contains("the endpoint is"),
        "{status} {why}"
    );
}

#[test]
fn a_refusal_has_its_reason_in_the_log() {
    let (env, server) = world();
    env.write("in/a", "bytes");
    env.ok(["put", "in", "project/demo/org/data"]);
    let long = "Range: bytes=99-";
    let asked = [
        (
            "GET /-/none\nAccept: text/html".to_owned(),
            404,
            "no such namespace",
        ),
        ("POST /-/space".to_owned(), 405, "Pages are read with GET"),
        (
            format!("GET /project/demo/org/data/resolve/main/a\n{long}"),
            416,
            "which has 5",
        ),
        (
            format!("GET /-/project/demo/org/data@1/a?download\n{long}"),
            416,
            "which has 5",
        ),
    ];
    for (request, status, _) in &asked {
        assert_eq!(server.ask(request).status, *status, "{request}");
    }
    let create = "POST /project/demo/api/repos/create";
    let again = server.connect().ask_with(create, br#"{"name": "org/new"}"#);
    assert_eq!(again.status, 409);
    // A proxy and this server may take such a request for different hosts.
    let mut connection = server.connect();
    connection.send(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(connection.answer(false).status, 400);
    connection.send(b"GET / HTTP/1.0\r\n\r\n");
    assert_eq!(connection.answer(false).status, 200);
    assert_eq!(server.stop(), Some(0));
    let log = fs::read_to_string(env.path("log")).unwrap();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let more = [(409, "already created"), (400, "one Host header")];
    let asked = asked.iter().map(|(_, status, why)| (*status, *why));
    for (status, why) in asked.chain(more) {
        let is_told = |line: &Value| {
            let error = line["error"].as_str().unwrap_or_default();
            line["status"] == status && error.contains(why)
        };
        assert!(lines.iter().any(is_told), "{status} {why}: {log}");
    }
}
