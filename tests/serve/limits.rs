//! What applies to every connection: limits, the log, and a graceful end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use support::{Finished, Random, check, environment};

use crate::server::Server;

#[test]
fn machines_ask_how_it_goes() {
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    assert_eq!(server.get("/healthz").body, b"ok\n");
    assert!(server.get("/").body.starts_with(b"store serve"));
    server.get("/none");
    let metrics = server.get("/metrics");
    let text = String::from_utf8(metrics.body.clone()).unwrap();
    assert!(
        metrics
            .header("content-type")
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    assert!(
        text.contains("store_serve_requests_total{status=\"4xx\"} 1\n"),
        "{text}"
    );
    assert!(
        text.contains("store_serve_running 1\n") && text.ends_with("# EOF\n"),
        "{text}"
    );
}

#[test]
fn what_clients_that_speak_xet_need_is_told_where_people_look() {
    let env = environment!();
    env.write("in/a.txt", "a");
    env.ok(["put", "in", "project/demo/org/data"]);
    let told = |words: &[&str]| {
        let start = ["serve", "--listen", "127.0.0.1:0", "--access-log", "log"];
        let mut command = env.command(start.iter().chain(words));
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with("listening on "), "{line}");
        child.kill().unwrap();
        let done: Finished = child.wait_with_output().unwrap().into();
        done.stderr
    };
    let at_start = told(&[]);
    assert!(
        at_start.starts_with("note: huggingface_hub 1.20 ")
            && at_start.contains("set HF_HUB_DISABLE_XET=1"),
        "{at_start}"
    );
    assert_eq!(told(&["--quiet"]), "");
    let server = Server::start(&env, &[]);
    let page = server.ask("GET /-/project/demo/org/data\nAccept: text/html");
    let page = String::from_utf8(page.body).unwrap();
    assert!(page.contains("set HF_HUB_DISABLE_XET=1"), "{page}");
}

#[test]
fn nobody_else_is_let_in_by_accident() {
    let env = environment!();
    env.ok(["init"]);
    check!(env, env.store(["serve", "--listen", "0.0.0.0:0"]), @"
    exit code: 1
    --- stdout
    --- stderr
    error: 0.0.0.0:0: others would reach the store there, and the server lets everybody in
    hint: say who may with `store token add`, or listen on a loopback address, like 127.0.0.1:8710
    ");
    check!(env, env.store(["serve", "--listen", "nowhere"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: invalid value 'nowhere' for '--listen <ADDRESS>': expected an IP address and a port, like 127.0.0.1:8710 or [::]:8710

    For more information, try '--help'.
    ");
}

#[test]
fn the_body_of_a_refused_request_is_no_part_of_the_next_one() {
    let env = environment!();
    env.write("in/a.txt", "a");
    env.ok(["put", "in", "project/demo/org/data"]);
    let server = Server::start(&env, &[]);
    let mut connection = server.connect();
    for body in [&b"{}"[..], &[b'x'; 300_000]] {
        let refused = connection.ask_with("POST /project/demo/none", body);
        assert_eq!(refused.status, 404);
        let answer = connection.ask("GET /project/demo/org/data/resolve/main/a.txt");
        assert_eq!((answer.status, answer.body.as_slice()), (200, &b"a"[..]));
    }
}

#[test]
fn heads_have_a_limit() {
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    let mut connection = server.connect();
    connection.send(format!("GET / HTTP/1.1\r\nX: {}\r\n", "x".repeat(80_000)).as_bytes());
    assert_eq!(connection.head().status, 431);
    let many: String = (0..200).map(|number| format!("\nX-{number}: x")).collect();
    assert_eq!(server.ask(&format!("GET /healthz{many}")).status, 431);
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn a_large_body_that_nobody_wants_does_not_hide_why() {
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    for _ in 0..3 {
        let mut connection = server.connect();
        let said = "POST /project/demo/none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n";
        connection.send(said.as_bytes());
        // Like most clients, sends everything before it reads the answer.
        let part = vec![b'x'; 1_000_000];
        for _ in 0..100 {
            connection.send(&part);
        }
        let refused = connection.answer(false);
        assert_eq!(refused.status, 404, "{refused:?}");
        assert_eq!(refused.header("connection"), Some("close"));
        assert_eq!(connection.rest(), b"");
    }
}

/// The client sends more than a gigabyte before it reads the answer.
#[test]
fn an_upload_of_gigabytes_that_is_refused_hears_why() {
    const PART: usize = 1 << 20;
    const PARTS: usize = 1200;
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    let mut connection = server.connect();
    let oid = "0".repeat(64);
    let length = PART * PARTS;
    connection.send(
        format!(
            "PUT /project/demo/api/models/org/data/lfs-upload/{oid}?size={length} HTTP/1.1\r\nHost: localhost\r\n\
             Content-Length: {length}\r\n\r\n"
        )
        .as_bytes(),
    );
    let part = vec![b'x'; PART];
    for _ in 0..PARTS {
        connection.send(&part);
    }
    let refused = connection.answer(false);
    assert_eq!(refused.status, 403, "{refused:?}");
}

/// A client that sends `Expect: 100-continue` gets the refusal instead, before it sends the body.
#[test]
fn who_asks_whether_to_send_is_refused_before() {
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    let oid = "0".repeat(64);
    let upload = format!("PUT /project/demo/api/models/org/data/lfs-upload/{oid}?size=5");
    for (asked, status) in [
        ("POST /project/demo/none", 404),
        ("PUT /project/demo/none", 404),
        (&*upload, 403),
    ] {
        let mut connection = server.connect();
        let head = format!(
            "{asked} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\nExpect: 100-continue\r\n\r\n"
        );
        connection.send(head.as_bytes());
        let refused = connection.answer(false);
        assert_eq!(refused.status, status, "{asked}: {refused:?}");
        assert_eq!(refused.header("connection"), Some("close"), "{asked}");
    }
    // A request that is accepted gets `100 Continue`.
    let mut connection = server.connect();
    let head = "POST /project/demo/api/validate-yaml HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\
                Expect: 100-continue\r\n\r\n";
    connection.send(head.as_bytes());
    assert_eq!(connection.head().status, 100);
    connection.send(b"{}");
    assert!(connection.answer(false).status >= 200);
}

#[test]
fn questions_that_are_too_long_are_refused_and_the_connection_goes_on() {
    let env = environment!();
    env.write("in/a.txt", "a");
    env.ok(["put", "in", "project/demo/org/data"]);
    let server = Server::start(&env, &[]);
    let mut connection = server.connect();
    let repo = "/project/demo/api/models/org/data";
    for (path, bytes) in [
        (format!("{repo}/preupload/main"), 4 << 20),
        (format!("{repo}/paths-info/main"), 4 << 20),
        ("/project/demo/api/repos/create".to_owned(), 4 << 20),
        ("/project/demo/api/validate-yaml".to_owned(), 4 << 20),
        (
            "/project/demo/org/data.git/info/lfs/objects/batch".to_owned(),
            1 << 20,
        ),
    ] {
        let body = format!("{{\"a\": \"{}\"}}", "x".repeat(bytes));
        let refused = connection.ask_with(&format!("POST {path}"), body.as_bytes());
        assert_eq!(refused.failure(), (400, None), "{path}");
        let told = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(
            told.contains(&format!("more than {bytes} bytes")),
            "{path}: {told}"
        );
        let answer = connection.ask("GET /project/demo/org/data/resolve/main/a.txt");
        assert_eq!(answer.body, b"a", "{path}");
    }
}

#[test]
fn a_stop_lets_what_runs_end_and_takes_nothing_new() {
    let env = environment!();
    let bytes = Random::new(3).bytes(24_000_000);
    env.write("in/x.bin", &bytes);
    env.ok(["put", "in", "project/demo/org/data"]);
    let server = Server::start(&env, &[]);
    let mut running = server.connect();
    running
        .send(b"GET /project/demo/org/data/resolve/main/x.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(running.head().status, 200);
    let mut idle = server.connect();
    idle.ask("GET /healthz");
    server.signal(Signal::TERM);
    // The server has seen the signal once it closes an idle connection.
    assert_eq!(idle.rest(), b"");
    let mut found = vec![0; bytes.len()];
    running.read(&mut found);
    assert!(found == bytes);
    assert_eq!(server.code(), Some(0));
}

#[test]
fn clients_that_do_not_take_what_they_asked_for_do_not_keep_it_from_others() {
    let env = environment!();
    let bytes = Random::new(3).bytes(24_000_000);
    env.write("in/x.bin", &bytes);
    env.ok(["put", "in", "project/demo/org/data"]);
    let server = Server::start(&env, &["--memory", "16MiB"]);
    let url = "/project/demo/org/data/resolve/main/x.bin";
    server.ask(&format!("HEAD {url}"));
    let idle: Vec<_> = (0..40)
        .map(|_| {
            let mut connection = server.connect();
            connection.send(format!("GET {url} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
            assert_eq!(connection.head().status, 200);
            connection
        })
        .collect();
    assert!(server.get(url).body == bytes);
    // No client had to be cut off for that.
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    assert!(
        metrics.contains("store_serve_broken_off_total 0\n"),
        "{metrics}"
    );
    drop(idle);
}

#[test]
fn the_log_tells_of_each_request_and_keeps_secrets() {
    let env = environment!();
    env.write("in/a.txt", "a");
    env.ok(["put", "in", "project/demo/org/data"]);
    let server = Server::start(&env, &[]);
    let token = "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";
    let path = "/project/demo/org/data/resolve/main/a.txt";
    server.ask(&format!(
        "GET {path}?X-Amz-Signature={token}\nAuthorization: Bearer {token}\nUser-Agent: hub/1 {token}\nCookie: {token}"
    ));
    server.get(&format!("/project/demo/{token}/{token}"));
    assert_eq!(server.stop(), Some(0));
    let log = fs::read_to_string(env.path("log")).unwrap();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert_eq!(
        (&lines[0]["path"], &lines[0]["status"]),
        (&path.into(), &200.into())
    );
    assert_eq!(
        (&lines[0]["sent"], &lines[0]["agent"]),
        (&1.into(), &"hub/1 hf_***".into())
    );
    assert!(
        !log.contains("VzKxTf") && !log.contains("Signature"),
        "{log}"
    );
}

/// Clients that take nothing keep what they were sent, and others go on with a little memory of their own.
#[test]
fn slow_clients_do_not_stop_others() {
    let env = environment!();
    let bytes = Random::new(9).bytes(8_000_000);
    env.write("in/file.bin", &bytes);
    env.ok(["put", "in", "project/demo/org/data"]);
    let server = Server::start(&env, &["--memory", "16MiB"]);
    let url = "/project/demo/org/data/resolve/main/file.bin";
    let mut slow: Vec<_> = (0..200).map(|_| server.begin(url)).collect();
    assert_eq!(slow[199].head().status, 200);
    assert!(server.get(url).body == bytes);
    // They were not cut off meanwhile.
    let mut first = slow.swap_remove(0);
    assert_eq!(first.head().status, 200);
    assert!(first.rest() == bytes);
}
