//! Runs on hosts that cannot remember: without a home, or where nothing can be written to it.

use std::fs;
use std::process::Command;

use support::{Finished, TestEnvironment, environment};

use crate::run::{newest, run};

const REF: &str = "project/llama/cache";

/// The program without a home of its own, and with a store outside of it.
fn homeless(env: &TestEnvironment, words: &[&str]) -> Command {
    let mut command = env.command(words);
    for variable in [
        "HOME",
        "XDG_CACHE_HOME",
        "XDG_STATE_HOME",
        "XDG_DATA_HOME",
        "XDG_CONFIG_HOME",
    ] {
        command.env_remove(variable);
    }
    command.env("STORE_URL", env.path("st"));
    command
}

fn finished(mut command: Command) -> Finished {
    command.output().unwrap().into()
}

#[test]
fn without_a_home_the_hint_of_a_failed_save_works() {
    let env = environment!();
    env.ok(["init", "st"]);
    let lose = "echo 1 > $STORE_PROJECT_CACHE_DIR/f; mv st away";
    let lost = finished(homeless(&env, &run(&[], lose)));
    assert_eq!(lost.code, Some(1), "{lost}");
    assert!(!lost.stderr.contains("--pending"), "{lost}");
    let hint = lost
        .stderr
        .split('`')
        .find(|part| part.starts_with("store save"));
    let words: Vec<&str> = hint.unwrap().split(' ').skip(1).collect();
    fs::rename(env.path("away"), env.path("st")).unwrap();
    let saved = finished(homeless(&env, &words));
    assert_eq!(saved.code, Some(0), "{lost}{saved}");
    env.ok(["--store", "st", "get", REF, "out"]);
    assert_eq!(fs::read(env.path("out/f")).unwrap(), b"1\n");
}

#[test]
fn a_run_that_could_not_be_saved_is_not_started() {
    let env = environment!();
    env.ok(["init"]);
    env.write("file", "");
    let mut command = env.command(run(&[], "touch started"));
    command.env("XDG_CACHE_HOME", env.path("file"));
    let refused = finished(command);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("XDG_CACHE_HOME"), "{refused}");
    assert!(!env.path("started").exists(), "{refused}");
    env.ok(run(&[], "echo 1 > $STORE_PROJECT_CACHE_DIR/f"));
    assert_eq!(newest(&env, REF), ["f=1"]);
}
