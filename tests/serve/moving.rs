//! A branch that moves while a client downloads: it gets the bytes of the commit that it was told of, or nothing.

use support::environment;

use crate::server::Server;

const FILE: &str = "/project/demo/org/data/resolve/main/sub/a%20b.bin";

/// Clients ask by `HEAD` for commit and etag, and keep under these names what they get afterwards.
#[test]
fn a_client_is_led_to_the_commit_that_it_is_told_of() {
    let env = environment!();
    let put = |bytes: &str| {
        env.write("in/sub/a b.bin", bytes);
        env.ok(["put", "in", "project/demo/org/data"]);
    };
    put("first");
    let server = Server::start(&env, &[]);
    let head = server.ask(&format!("HEAD {FILE}"));
    assert_eq!(head.status, 307);
    let commit = head.header("x-repo-commit").unwrap().to_owned();
    let place = head.header("location").unwrap().to_owned();
    assert_eq!(place, FILE.replace("main", &commit));
    put("other");
    let fixed = server.ask(&format!("HEAD {place}"));
    assert_eq!(fixed.status, 200);
    assert_eq!(fixed.header("x-repo-commit"), Some(commit.as_str()));
    for header in ["etag", "x-linked-etag", "x-linked-size"] {
        assert_eq!(fixed.header(header), head.header(header), "{header}");
    }
    assert_eq!(server.get(&place).body, b"first");
    let rest = server.ask(&format!("GET {place}\nRange: bytes=2-"));
    assert_eq!((rest.status, rest.body.as_slice()), (206, &b"rst"[..]));
    // Who only gets the file gets one version of it, at once.
    assert_eq!(server.get(FILE).body, b"other");
}

#[test]
fn a_client_is_led_by_a_path_that_a_proxy_understands() {
    let env = environment!();
    env.write("in/a.txt", "text");
    env.ok(["put", "in", "project/demo/models/org/m"]);
    let server = Server::start(&env, &["--root", "project/demo"]);
    for (path, headers, place) in [
        ("/org/m", "", "/org/m"),
        ("/project/demo/org/m", "", "/project/demo/org/m"),
        ("/org/m", "\nX-Forwarded-Prefix: /hub", "/hub/org/m"),
    ] {
        let head = server.ask(&format!("HEAD {path}/resolve/v1/a.txt{headers}"));
        let commit = head.header("x-repo-commit").unwrap();
        let place = format!("{place}/resolve/{commit}/a.txt");
        assert_eq!(head.header("location"), Some(place.as_str()));
    }
    // What is missing is missing at once.
    let head = server.ask("HEAD /org/m/resolve/main/none");
    assert_eq!(head.failure(), (404, Some("EntryNotFound")));
}
