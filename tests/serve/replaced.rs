//! A store that was put back from an older copy while a door serves it: the door follows, as one that begins then.

use std::process::Command;

use support::{TestEnvironment, environment};

use crate::server::Server;

const STORE: &str = "home/.local/share/store";
const REF: &str = "project/demo/org/data";

fn put(env: &TestEnvironment, text: &str) {
    env.write("in/file", text);
    env.ok(["put", "in", REF]);
}

/// A store of six versions and a copy of it that has three, and a door that has seen all six.
fn served(env: &TestEnvironment) -> Server {
    for number in 1..=6 {
        put(env, &format!("version {number}"));
        if number == 3 {
            let (from, to) = (env.path(STORE), env.path("copy"));
            let copied = Command::new("cp").arg("-a").args([from, to]).status();
            assert!(copied.unwrap().success());
        }
    }
    let server = Server::start(env, &[]);
    assert_eq!(asked(&server), "200 version 6");
    std::fs::rename(env.path(STORE), env.path("newer")).unwrap();
    std::fs::rename(env.path("copy"), env.path(STORE)).unwrap();
    let repaired = env.store(["repair", "--accept-loss"]);
    assert_eq!(repaired.code, Some(0), "{repaired}");
    server
}

fn asked(server: &Server) -> String {
    let answer = server.get("/project/demo/org/data/resolve/main/file");
    let text = String::from_utf8_lossy(&answer.body);
    format!("{} {text}", answer.status)
}

#[test]
fn a_log_that_grew_past_what_was_seen_is_read_anew() {
    let env = environment!();
    let server = served(&env);
    for number in 4..=8 {
        put(&env, &format!("another version {number}"));
    }
    assert_eq!(asked(&server), "200 another version 8");
    put(&env, "the last");
    assert_eq!(asked(&server), "200 the last");
}

#[test]
fn a_log_that_is_shorter_than_what_was_seen_is_read_anew() {
    let env = environment!();
    let server = served(&env);
    assert_eq!(asked(&server), "200 version 3");
    put(&env, "another version 4");
    assert_eq!(asked(&server), "200 another version 4");
}
