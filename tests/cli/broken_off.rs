//! Transfers that end early: by a signal, by a kill, and with a journal that is lost afterwards.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Random, TestEnvironment, assert_same_tree, environment};

use crate::duplicate::{
    REF, SLOW, finish, json, spawn, status, two_stores, wait_until, wait_until_it_runs,
};

/// Waits until the running job reports at least this progress.
fn wait_until_it_is_far(env: &TestEnvironment, least: u64) {
    wait_until("so much", || {
        let told = env.store(["--json", "duplicate", "--status"]).stdout;
        let told = told.split(|byte| *byte == b'\n');
        let far = |line: &[u8]| {
            let status: Value = serde_json::from_slice(line).ok()?;
            let runs = status["runs"][0]["outcome"] == "running";
            status["progress"]["bytes"].as_u64().filter(|_| runs)
        };
        told.filter_map(far).any(|bytes| bytes > least)
    });
}

#[test]
fn a_signal_ends_a_push_which_says_so_and_is_taken_up() {
    for signal in [Signal::INT, Signal::TERM] {
        let env = two_stores();
        let child = spawn(&env, &["push", REF, "h200", SLOW[0], SLOW[1]]);
        wait_until_it_runs(&env);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let finished = finish(child);
        assert_eq!(finished.code, Some(130), "{finished}");
        assert_eq!(status(&env)["runs"][0]["outcome"], "interrupted");
        env.ok(["push", REF, "h200"]);
        env.ok(["get", "--store", "h200", REF, "out"]);
        assert_same_tree(&env.path("1"), &env.path("out"));
    }
}

/// All refs are in one batch. Their order is random; fewer than ten are read at the same time.
#[test]
fn a_signal_ends_a_push_which_publishes_what_is_complete() {
    const REFS: u64 = 30;
    let env = environment!();
    for number in 0..REFS {
        env.write("file", Random::new(number).bytes(4_000_000));
        env.ok(["put", "file", &format!("project/demo/{number}")]);
    }
    env.ok(["init", "far"]);
    let all = ["--json", "push", "project/demo", "far"];
    let child = spawn(
        &env,
        &[&all[..], &["--bwlimit", "10M", "--progress"]].concat(),
    );
    wait_until_it_is_far(&env, 60_000_000);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let finished = finish(child);
    assert_eq!(finished.code, Some(130), "{finished}");
    assert!(finished.stderr.contains("0 of 30 versions, "), "{finished}");
    let report = json(str::from_utf8(&finished.stdout).unwrap());
    let told = report["refs"].as_array().unwrap();
    assert!((1..REFS).contains(&(told.len() as u64)), "{report}");
    for number in 0..REFS {
        let name = format!("project/demo/{number}");
        let line = told.iter().find(|line| line["ref"] == *name);
        assert!(
            line.is_none_or(|line| line["status"] == "published"),
            "{report}"
        );
        let there = env.store(["cat", "--store", "far", &name]);
        let expected = if line.is_some() { 0 } else { 3 };
        assert_eq!(there.code, Some(expected), "{name}: {report}");
        let bytes = Random::new(number).bytes(4_000_000);
        assert!(line.is_none() || there.stdout == bytes, "{name}");
    }
    env.ok(["verify", "--store", "far", "--read-data"]);
    let again = json(&env.ok(all));
    let sent = again["sent_bytes"].as_u64().unwrap();
    assert!(sent < 80_000_000, "it goes on: {again}");
}

/// The whole push writes two packs, and the link is slow enough to kill it during the second.
#[test]
fn a_push_that_is_killed_sends_nothing_twice_but_what_was_in_flight() {
    // Only packs that are in no segment yet can be adopted.
    let env = environment!().in_full_portions();
    env.write("in/file", Random::new(4).bytes(150_000_000));
    env.ok(["put", "in", REF]);
    for place in ["unbroken", "killed"] {
        env.ok(["init", place]);
    }
    let whole = json(&env.ok(["--json", "push", REF, "unbroken"]))["sent_bytes"]
        .as_u64()
        .unwrap();
    let child = spawn(&env, &["push", REF, "killed", "--bwlimit", "20M"]);
    wait_until_it_is_far(&env, 80_000_000);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    assert_eq!(finish(child).code, None);
    let dry = json(&env.ok(["--json", "push", REF, "killed", "--dry-run"]));
    let report = json(&env.ok(["--json", "push", REF, "killed"]));
    assert_eq!(dry["resumed_bytes"], report["resumed_bytes"], "{dry}");
    let (said, sent) = (&dry["sent_bytes"], &report["sent_bytes"]);
    let apart = said.as_u64().unwrap().abs_diff(sent.as_u64().unwrap());
    assert!(apart < whole / 100, "{dry}\n{report}");
    let (sent, resumed) = (
        report["sent_bytes"].as_u64().unwrap(),
        report["resumed_bytes"].as_u64().unwrap(),
    );
    assert!(resumed >= 60 << 20, "{report}");
    assert!(
        sent + resumed <= whole + whole / 50 && sent < whole,
        "{whole} unbroken: {report}"
    );
    env.ok(["verify", "--store", "killed", "--read-data"]);
    env.ok(["get", "--store", "killed", REF, "out"]);
    assert_same_tree(&env.path("in"), &env.path("out"));
}

/// What a person or a disk may do to a journal between a killed run and the next one.
#[test]
fn a_journal_that_is_lost_or_damaged_costs_time_only() {
    type Damage = fn(&[u8]) -> Option<Vec<u8>>;
    let damages: [(&str, Damage); 5] = [
        ("deleted", |_| None),
        ("empty", |_| Some(Vec::new())),
        ("half", |bytes| Some(bytes[..bytes.len() / 2].to_vec())),
        ("garbage", |bytes| Some(Random::new(1).bytes(bytes.len()))),
        ("zeros", |bytes| Some(vec![0; bytes.len()])),
    ];
    for (what, damage) in damages {
        let env = two_stores();
        let child = spawn(&env, &["push", REF, "h200", SLOW[0], SLOW[1]]);
        wait_until_it_runs(&env);
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        finish(child);
        spoil(&env.path("home/.local/state/store/jobs"), damage);
        let finished = env.store(["--json", "push", REF, "h200"]);
        assert_eq!(finished.code, Some(0), "{what}: {finished}");
        assert!(!finished.stderr.contains("panicked"), "{what}: {finished}");
        for store in ["home/.local/share/store", "far"] {
            env.ok(["verify", "--store", store, "--read-data"]);
        }
        env.ok(["get", "--store", "h200", REF, "out"]);
        assert_same_tree(&env.path("1"), &env.path("out"));
        assert_eq!(status(&env)["runs"][0]["outcome"], "done", "{what}");
    }
}

/// Damages every file below `dir`.
fn spoil(dir: &std::path::Path, damage: fn(&[u8]) -> Option<Vec<u8>>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            spoil(&path, damage);
            continue;
        }
        match damage(&std::fs::read(&path).unwrap()) {
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
    }
}
