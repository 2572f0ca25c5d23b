//! A server without tokens, and requests to it from a browser on its host.

use serde_json::json;
use support::{TestEnvironment, environment};

use crate::s3::{OPEN, ask, texts};
use crate::server::Server;
use crate::write::{Client, REPO, file, header};

const FOREIGN: [&str; 7] = [
    "Sec-Fetch-Site: cross-site",
    "Sec-Fetch-Site: same-site",
    "Origin: http://evil.example",
    "Origin: http://127.0.0.1:8888",
    "Origin: null",
    "Host: evil.example:8710",
    "Host: localhost.evil.example",
];

/// The lines of a commit that adds a file.
fn commit() -> Vec<u8> {
    let lines = [header(None), file("a.txt", b"text")];
    lines
        .iter()
        .map(|line| format!("{line}\n"))
        .collect::<String>()
        .into_bytes()
}

fn tree(env: &TestEnvironment) {
    env.write("in/a.txt", "inside");
    env.ok(["put", "in", "project/demo/org/data"]);
}

#[test]
fn without_tokens_no_page_of_another_site_writes_or_reads() {
    let env = environment!();
    tree(&env);
    let server = Server::start(&env, &OPEN);
    assert_eq!(Client::new(&server).create().status, 200);
    let before = env.ok(["history", "project/demo/models/org/new"]);
    let href = Client::new(&server).announce(&support::hub::sha256(b"x"), 1);
    let href = href.unwrap();
    for line in FOREIGN {
        let head = format!("POST {REPO}/commit/main\n{line}\nContent-Type: text/plain");
        let answer = server.connect().ask_with(&head, &commit());
        assert_eq!(answer.status, 403, "{line}");
        let told = answer.header("x-error-message").unwrap();
        assert!(told.contains("`store token add`"), "{told}");
        let sent = server
            .connect()
            .ask_with(&format!("PUT {href}\n{line}"), b"x");
        assert_eq!(sent.status, 403, "{line}");
        for path in [
            "/project/demo/org/data/resolve/main/a.txt",
            "/project/demo/api/models",
            "/",
            "/metrics",
            "/healthz",
            "/-/space",
        ] {
            let answer = server.ask(&format!("GET {path}\n{line}"));
            let body = String::from_utf8(answer.body).unwrap();
            assert_eq!(answer.status, 403, "{path} {line}");
            assert!(body.contains("store token add"), "{path} {line}: {body}");
        }
        for path in ["/", "/project.demo/org/data/a.txt"] {
            let answer = ask(&server, &format!("GET {path}\n{line}"));
            assert_eq!(answer.status, 403, "{path} {line}");
            assert_eq!(texts(&answer, "Code"), ["AccessDenied"]);
        }
    }
    assert_eq!(env.ok(["history", "project/demo/models/org/new"]), before);
}

#[test]
fn without_tokens_clients_of_this_host_and_its_browser_are_answered() {
    let env = environment!();
    tree(&env);
    let server = Server::start(&env, &OPEN);
    let (own, own_s3) = (server.address(), server.s3_address());
    for (line, line_s3) in [
        (format!("Host: {own}"), format!("Host: {own_s3}")),
        (
            format!("Host: {own}\nOrigin: http://{own}\nSec-Fetch-Site: same-origin"),
            format!("Host: {own_s3}\nOrigin: http://{own_s3}\nSec-Fetch-Site: same-origin"),
        ),
        (
            "Host: [::1]:8710\nSec-Fetch-Site: none".to_owned(),
            "Host: project.demo.localhost:8711".to_owned(),
        ),
    ] {
        let answer = server.ask(&format!(
            "GET /project/demo/org/data/resolve/main/a.txt\n{line}"
        ));
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (200, &b"inside"[..]),
            "{line}"
        );
        let answer = ask(
            &server,
            &format!("GET /project.demo/org/data/a.txt\n{line_s3}"),
        );
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (200, &b"inside"[..]),
            "{line_s3}"
        );
    }
}

#[test]
fn with_tokens_any_name_of_the_server_will_do() {
    let env = environment!();
    tree(&env);
    let token = env.ok(["token", "add", "ci", "--namespace", "project/demo"]);
    let server = Server::start(&env, &[]);
    let answer = server.ask(&format!(
        "GET /project/demo/api/models\nHost: hub.example\nOrigin: https://page.example\nAuthorization: Bearer {}",
        token.trim()
    ));
    assert_eq!((answer.status, answer.json() == json!([])), (200, false));
}
