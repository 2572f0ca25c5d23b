//! Uploads that wait for their commit: how long they stay, and who may send them.

use jiff::{Timestamp, ToSpan};
use serde_json::Value;
use support::hub::sha256;
use support::{Random, TestEnvironment, environment};

use crate::server::Server;
use crate::write::{Client, header, lfs};

fn token(env: &TestEnvironment, name: &str) -> String {
    let words = ["token", "add", name, "--role", "write"];
    env.ok(words).trim().to_owned()
}

#[test]
fn one_that_is_about_to_go_is_sent_again_and_stays() {
    let env = environment!();
    env.ok(["init"]);
    let bytes = Random::new(6).bytes(100_000);
    let oid = sha256(&bytes);
    let kept = format!("project/demo/.uploads/{oid}");
    env.write("x.bin", &bytes);
    env.ok(["put", "x.bin", &kept, "--ttl", "1h"]);
    let server = Server::start(&env, &[]);
    let mut client = Client::new(&server);
    client.create();
    let href = client.announce(&oid, bytes.len());
    let href = href.expect("it would be gone before its commit");
    assert_eq!(client.send(&href, &bytes).status, 200);
    assert_eq!(client.announce(&oid, bytes.len()), None);
    let history = env.ok(["history", &kept, "--json"]);
    let newest: Value = serde_json::from_str(history.lines().next().unwrap()).unwrap();
    let expires: Timestamp = newest["expires"].as_str().unwrap().parse().unwrap();
    assert!(expires > Timestamp::now() + 20.hours(), "{newest}");
    // A repeated upload makes no new version.
    assert_eq!(client.send(&href, &bytes).status, 200);
    assert_eq!(env.ok(["history", &kept, "--json"]), history);
    let done = client.commit(&[header(None), lfs("x.bin", &oid)]);
    assert_eq!(done.status, 200, "{done:?}");
}

#[test]
fn an_announced_upload_depends_on_its_own_token_alone() {
    let env = environment!();
    env.ok(["init"]);
    let (first, second) = (token(&env, "first"), token(&env, "second"));
    let server = Server::start(&env, &[]);
    let mut client = Client::with_token(&server, &first);
    client.create();
    let files: Vec<Vec<u8>> = (0..3).map(|seed| Random::new(seed).bytes(70_000)).collect();
    let mut announce = |bytes: &[u8]| client.announce(&sha256(bytes), bytes.len()).unwrap();
    let hrefs: Vec<String> = files.iter().map(|bytes| announce(bytes)).collect();
    let mut other = Client::with_token(&server, &second);
    let of_other = Random::new(9).bytes(70_000);
    let href = other.announce(&sha256(&of_other), of_other.len()).unwrap();
    // Other tokens are added and removed.
    token(&env, "third");
    assert_eq!(client.send(&hrefs[0], &files[0]).status, 200);
    env.ok(["token", "rm", "second"]);
    assert_eq!(client.send(&hrefs[1], &files[1]).status, 200);
    assert_eq!(other.send(&href, &of_other).status, 403);
    let as_first = href.replace("by=second", "by=first");
    assert_ne!(as_first, href);
    assert_eq!(other.send(&as_first, &of_other).status, 403);
    // A removed token's upload URL is invalid, also after a token of the same name was added.
    env.ok(["token", "rm", "first"]);
    assert_eq!(client.send(&hrefs[2], &files[2]).status, 403);
    token(&env, "first");
    assert_eq!(client.send(&hrefs[2], &files[2]).status, 403);
}
