//! Project caches with compiled files that were saved file by file do not harm newer entries.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;
use support::{TestEnvironment, environment, trees};

use crate::cache::{COMPILER, modules};
use crate::run::{REF, line, run, signal, start};

/// Saves a cache with a complete entry that has a log, a failed entry, and a truncated one.
fn saved(env: &TestEnvironment) {
    let place = |key: &str| format!("old/neuron/{COMPILER}/MODULE_{key}");
    for (key, bytes) in [("1+a", 11_000), ("3+a", 5_000)] {
        env.write(
            format!("{}/model.neff", place(key)),
            &trees::neff(1, 11_000)[..bytes],
        );
        env.write(format!("{}/model.done", place(key)), "");
    }
    for key in ["1+a", "2+a", "3+a"] {
        env.write(format!("{}/model.log", place(key)), "no memory");
    }
    env.write("old/data", "data");
    env.ok(["put", "old", REF, "--profile", "none"]);
    env.write("whole.neff", trees::neff(9, 11_000));
}

/// The script of a job that compiles these keys.
fn compiled(env: &TestEnvironment, keys: &[&str]) -> String {
    let whole = env.path("whole.neff").display().to_string();
    let compile = keys.iter().map(|key| {
        format!(
            "d=$NEURON_COMPILE_CACHE_URL/{COMPILER}/MODULE_{key}; mkdir -p $d; rm -f $d/*; cp {whole} $d/model.neff; : > $d/model.done; "
        )
    });
    compile.collect()
}

/// Runs a job. Returns the counts `there` and `pulled`, and standard error.
fn job(env: &TestEnvironment, script: &str) -> (Value, Value, String) {
    let done = env.store([&["--json"], &run(&[], script)[..]].concat());
    assert_eq!(done.code, Some(0), "{done}");
    let lines = done.stderr.lines();
    let told = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut told = told.filter(|told| told["profile"] == "neff");
    let report = told.next().unwrap();
    (
        report["there"].clone(),
        report["pulled"].clone(),
        done.stderr,
    )
}

/// Checks that all entries are complete and have the newest bytes and no log.
fn are_whole(env: &TestEnvironment) {
    let root = env.path("base/project/neuron");
    assert_eq!(modules(&root), ["MODULE_1+a", "MODULE_2+a", "MODULE_3+a"]);
    for key in modules(&root) {
        let dir = root.join(COMPILER).join(&key);
        assert!(!dir.join("model.log").exists(), "{key}");
        let seed = if key == "MODULE_1+a" { 1 } else { 9 };
        let found = fs::read(dir.join("model.neff")).unwrap();
        assert!(found == trees::neff(seed, 11_000), "{key}");
    }
}

#[test]
fn what_failed_in_an_old_cache_does_not_come_back_run_by_run() {
    let env = environment!();
    saved(&env);
    let (there, pulled, _) = job(&env, &compiled(&env, &["2+a", "3+a"]));
    assert_eq!((there, pulled), (1.into(), 0.into()));
    are_whole(&env);
    for _ in 0..3 {
        let (there, pulled, said) = job(&env, "true");
        assert_eq!((there, pulled), (3.into(), 0.into()), "{said}");
        // Old files that the update skips are not changes of the job.
        assert!(!said.contains("as a job left it"), "{said}");
        are_whole(&env);
    }
}

#[test]
fn what_a_killed_run_compiled_outlives_what_was_cut_off_in_an_old_cache() {
    let env = environment!();
    saved(&env);
    let script = compiled(&env, &["2+a", "3+a"]) + "echo ready; read go";
    let mut killed = start(&env, &[], &script);
    assert_eq!(line(&mut killed), "ready\n");
    signal(&killed, Signal::KILL);
    killed.wait().unwrap();
    for _ in 0..2 {
        let (there, _, said) = job(&env, "true");
        assert_eq!(there, 3, "{said}");
        are_whole(&env);
    }
}
