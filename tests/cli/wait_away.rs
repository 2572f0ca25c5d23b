//! Waiting for a store that is away when the wait begins.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use support::environment;

use crate::seed::{REF, ended, signal, start, until_caught};

/// A file system may be mounted after the job starts.
#[test]
fn a_known_store_that_is_away_when_a_wait_begins_is_waited_for() {
    let env = environment!();
    for store in ["disk", "home/.local/share/store"] {
        let there = env.path(store);
        env.ok(["init", there.to_str().unwrap()]);
        let of = |words: &[&'static str]| {
            let store = ["--store".into(), there.display().to_string()];
            let named = if store[1].ends_with("disk") { 2 } else { 0 };
            let words = words.iter().map(|word| (*word).to_owned());
            let words = store.into_iter().take(named).chain(words);
            words.collect::<Vec<String>>()
        };
        env.ok(of(&["ls"]));
        let away = env.path("away");
        fs::rename(&there, &away).unwrap();
        let late = env.store(of(&["wait", REF, "--timeout", "200ms"]));
        assert_eq!(late.code, Some(1), "{late}");
        assert!(
            late.stderr.contains("cannot be reached")
                && late
                    .stderr
                    .contains("hint: restore it, or mount its file system")
                && late.stderr.contains("is missing now")
                && late.stderr.contains("asked again"),
            "{late}"
        );
        env.write("steps/checkpoint-1/model", "weights");
        env.write("steps/checkpoint-1/trainer_state.json", "{}");
        let once = env.store(of(&["watch", "steps", "project/demo/steps", "--once"]));
        assert_ne!(once.code, Some(0), "{once}");
        let stopped = start(&mut env.command(of(&["wait", REF])));
        until_caught(&stopped, Signal::INT);
        signal(&stopped, Signal::INT);
        assert_eq!(ended(stopped).code, Some(130));
        let waiting = start(&mut env.command(of(&["wait", REF])));
        let watching = start(&mut env.command(of(&["watch", "steps", "project/demo/steps"])));
        std::thread::sleep(Duration::from_millis(300));
        fs::rename(&away, &there).unwrap();
        env.write("in/file", "one");
        env.ok(of(&["put", "in", REF]));
        let done = ended(waiting);
        assert_eq!(done.code, Some(0), "{done}");
        env.ok(of(&["wait", "project/demo/steps", "--timeout", "60s"]));
        signal(&watching, Signal::TERM);
        let done = ended(watching);
        assert_eq!(done.code, Some(0), "{done}");
    }
    // Nobody knows what this is.
    let unknown = env.store(["--store", "dick", "wait", REF, "--timeout", "1h"]);
    assert_eq!(unknown.code, Some(3), "{unknown}");
}
