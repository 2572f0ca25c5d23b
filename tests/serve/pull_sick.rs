//! An upstream that is silent, or speaks without an end: what it holds, and for how long.

use std::time::Duration;

use support::{Random, environment};

use crate::origin::{Endless, Origin};
use crate::server::Server;

/// More files than the server fetches at once; their clients have left.
#[test]
fn files_whose_upstream_is_silent_do_not_keep_others_waiting() {
    let env = environment!();
    env.ok(["init"]);
    let origin = Origin::start();
    let names: Vec<String> = (0..40).map(|number| format!("slow-{number}.bin")).collect();
    let bytes: Vec<Vec<u8>> = names
        .iter()
        .map(|name| name.repeat(50).into_bytes())
        .collect();
    let files = names.iter().zip(&bytes);
    let files: Vec<(&str, &[u8])> = files
        .map(|(name, bytes)| (name.as_str(), &bytes[..]))
        .collect();
    origin.add("org/slow", &files);
    origin.add("org/quick", &[("x.bin", b"quick")]);
    origin.plan(|plan| (plan.hold_bytes, plan.hold_path) = (Some(100), Some("slow-")));
    let server = Server::start(&env, &["--upstream", &origin.url()]);
    let started: Vec<_> = names
        .iter()
        .map(|name| server.begin(&format!("/project/demo/org/slow/resolve/main/{name}")))
        .collect();
    let is_asked = || origin.asked("slow-").len() >= 32;
    while !is_asked() {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(started);
    let answer = server.get("/project/demo/org/quick/resolve/main/x.bin");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"quick"[..]));
    origin.plan(|plan| plan.hold_bytes = None);
}

/// A minute of next to nothing; then the rest is asked for, from the byte that is missing.
#[test]
fn a_file_that_drips_is_asked_for_once_more() {
    let env = environment!();
    env.ok(["init"]);
    let origin = Origin::start();
    let bytes = Random::new(5).bytes(300_000);
    origin.add("org/m", &[("x.bin", &bytes)]);
    origin.plan(|plan| plan.drip = Some(Duration::from_millis(500)));
    let server = Server::start(&env, &["--upstream", &origin.url()]);
    let answer = server.get("/project/demo/org/m/resolve/main/x.bin");
    assert_eq!(answer.status, 200);
    assert!(answer.body == bytes);
    let asked = origin.asked("/resolve/");
    let ranges: Vec<bool> = asked.iter().map(|asked| asked.range.is_some()).collect();
    assert_eq!(ranges, [false, true]);
}

#[test]
fn a_listing_without_an_end_is_no_listing() {
    let env = environment!();
    env.ok(["init"]);
    let origin = Origin::start();
    origin.add("org/m", &[("x.bin", b"bytes")]);
    let server = Server::start(&env, &["--upstream", &origin.url()]);
    for (number, (endless, pages)) in [(Endless::Same, 1), (Endless::Counted, 101)]
        .into_iter()
        .enumerate()
    {
        origin.plan(|plan| plan.endless = Some(endless));
        let before = origin.asked("/tree/").len();
        let answer = server.get(&format!("/project/demo{number}/api/models/org/m"));
        assert_eq!(answer.failure(), (503, None));
        assert_eq!(origin.asked("/tree/").len() - before, pages);
    }
    assert_eq!(server.stop(), Some(0));
    let log = std::fs::read_to_string(env.path("log")).unwrap();
    assert!(log.contains("its listing has no end"), "{log}");
}
