//! What `store watch` is told and finds there: the directory itself, a marker alone, and what its rule dropped.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use support::environment;

use crate::watch::{REF, checkpoint, end, once, published, start};

/// Nothing in a checkpoint is a checkpoint, so a watch of one would be silent for ever.
#[test]
fn a_checkpoint_itself_is_no_directory_of_checkpoints() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    env.write("torch/final/.metadata", b"\x80\x02.");
    env.write("orbax/7/_CHECKPOINT_METADATA", "{}");
    env.write("orbax/7/state/manifest.ocdbt", "x");
    symlink("out/checkpoint-1", env.path("newest")).unwrap();
    for (dir, expected) in [
        ("out/checkpoint-1", "watch "),
        ("newest", "out/checkpoint-1: is a checkpoint itself"),
        ("torch/final", "torch/final: is a checkpoint itself"),
        ("orbax/7", "orbax/7: is a checkpoint itself"),
    ] {
        for options in [&["--once"][..], &["--settled", "1s"]] {
            let done = env.store([&["watch", dir, REF][..], options].concat());
            assert_eq!(done.code, Some(2), "{dir}: {done}");
            assert!(done.stderr.contains(expected), "{dir}: {done}");
        }
    }
    // A run may have the name of a checkpoint, and parts may be checkpoints.
    fs::rename(env.path("out"), env.path("global_step_1")).unwrap();
    env.ok(["watch", "global_step_1", REF, "--once"]);
    env.write("global_step_1/checkpoint-1/rank-0/DONE", "");
    let parts = [
        "global_step_1/checkpoint-1",
        REF,
        "--once",
        "--done",
        "DONE",
    ];
    env.ok([&["watch"][..], &parts].concat());
    assert_eq!(published(&env), ["checkpoint-1", "rank-0"]);
}

/// `touch DONE` in a directory to which nothing was written yet publishes nothing.
#[test]
fn a_marker_alone_is_no_checkpoint() {
    let env = environment!();
    env.write("out/checkpoint-1/trainer_state.json", "{}");
    env.write("out/7/_CHECKPOINT_METADATA", "{}");
    let done = once(&env, &[]);
    assert_eq!(done.code, Some(6), "{done}");
    for told in [
        "checkpoint-1: not finished: there is no file in it but trainer_state.json",
        "7: not finished: there is no file in it but _CHECKPOINT_METADATA",
    ] {
        assert!(done.stderr.contains(told), "{done}");
    }
    assert_eq!(env.store(["history", REF]).code, Some(3));
    env.write("out/7/state", "all");
    env.write("out/7/_CHECKPOINT_METADATA", "{}");
    fs::remove_dir_all(env.path("out/checkpoint-1")).unwrap();
    let done = once(&env, &[]);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(published(&env), ["7"]);
}

/// `undo` takes back what somebody did, and not what a rule does again at its next turn.
#[test]
fn what_a_rule_dropped_comes_back_only_when_it_is_named() {
    let env = environment!();
    env.write("in/file", "text");
    env.ok(["put", "in", "project/demo/own"]);
    env.ok(["rm", "project/demo/own", "--yes"]);
    for number in 1..=3 {
        checkpoint(&env, number, number);
        let done = once(&env, &["--keep", "2"]);
        assert_eq!(done.code, Some(0), "{done}");
    }
    env.ok(["gc", "--keep-last", "1", "--grace", "1d"]);
    assert_eq!(published(&env), ["checkpoint-3"]);
    let back = env.ok(["undo"]);
    assert!(back.contains("project/demo/own@1 is back"), "{back}");
    assert_eq!(published(&env), ["checkpoint-3"]);
    for number in 1..=2 {
        env.ok(["undo", &format!("{REF}@{number}")]);
        let back = format!("checkpoint-{number}");
        assert!(published(&env).contains(&back), "{number}");
        assert_eq!(published(&env).last().unwrap(), "checkpoint-3");
    }
}

/// A loss that diverged is `NaN` in what Python calls JSON.
#[test]
fn a_diverged_loss_is_no_reason_not_to_publish() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    let state = r#"{"log_history": [{"loss": NaN, "grad_norm": -Infinity, "note": "Infin \" NaN"}], "best": Infinity}"#;
    env.write("out/checkpoint-1/trainer_state.json", state);
    let done = once(&env, &[]);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(published(&env), ["checkpoint-1"]);
    // What is cut off is still not whole.
    checkpoint(&env, 2, 2);
    env.write(
        "out/checkpoint-2/trainer_state.json",
        &state[..state.len() - 3],
    );
    let done = once(&env, &[]);
    assert_eq!(done.code, Some(6), "{done}");
    assert!(
        done.stderr.contains("no whole trainer_state.json"),
        "{done}"
    );
}

#[test]
fn a_link_to_a_checkpoint_elsewhere_is_named() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    checkpoint(&env, 2, 2);
    fs::create_dir(env.path("scratch")).unwrap();
    fs::rename(env.path("out/checkpoint-2"), env.path("scratch/moved")).unwrap();
    symlink("../scratch/moved", env.path("out/checkpoint-2")).unwrap();
    // Another name of one beside it, and what is no checkpoint.
    symlink("checkpoint-1", env.path("out/latest-one")).unwrap();
    symlink("/", env.path("out/root")).unwrap();
    let done = once(&env, &[]);
    assert_eq!(done.code, Some(6), "{done}");
    assert!(
        done.stderr
            .contains("checkpoint-2: not published: it is a symlink to ")
            && !done.stderr.contains("latest-one")
            && !done.stderr.contains("root:"),
        "{done}"
    );
    assert_eq!(published(&env), ["checkpoint-1"]);
}

#[test]
fn what_a_put_notes_of_a_checkpoint_is_told() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    symlink("/etc/hostname", env.path("out/checkpoint-1/outside")).unwrap();
    let done = once(&env, &[]);
    let told = "warning: checkpoint-1: 1 symlink (outside): led out of ";
    assert!(done.stderr.contains(told), "{done}");
}

/// How long a checkpoint was unchanged is told by its times, so that a watch that looks once ends soon.
#[test]
fn a_watch_that_looks_once_does_not_wait_for_what_is_not_settled() {
    let env = environment!();
    env.write("out/old/w", "old");
    std::thread::sleep(Duration::from_secs(20));
    env.write("out/new/w", "new");
    let done = once(&env, &["--settled", "15s"]);
    assert_eq!(done.code, Some(6), "{done}");
    assert!(done.stderr.contains("new: not finished"), "{done}");
    assert_eq!(published(&env), ["old"], "{done}");
    // Without that, this would take a day; a signal ends it at once.
    for is_asked in [false, true] {
        let watch = start(&env, &["--once", "--settled", "1d"]);
        let done = match is_asked {
            true => {
                std::thread::sleep(Duration::from_millis(500));
                end(watch)
            }
            false => watch.wait_with_output().unwrap().into(),
        };
        assert_eq!(done.code, Some(6), "{done}");
        assert!(done.stderr.contains("new: not finished"), "{done}");
    }
}
