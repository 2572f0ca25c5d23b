//! Compile caches that could not be pushed are on the list of pending saves, which pushes them.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use support::{Finished, TestEnvironment, environment};

use crate::cache::{PROJECT, module, neff};
use crate::run::{REF, line, newest, run, signal, start};
use crate::run_compiles::{CONFIG, compile};

const STORE: &str = "home/.local/share/store";

/// The script of a job that compiles a key with the shipped layout.
fn compiled(key: &str) -> String {
    compile(key).replace("$NEURON/", "$NEURON_COMPILE_CACHE_URL/")
}

fn pending(env: &TestEnvironment, more: &[&str]) -> Finished {
    env.store([&["save", "--pending"], more].concat())
}

fn is_there(env: &TestEnvironment, key: &str) -> bool {
    let key = format!("MODULE_{key}");
    env.store(["neff", "lookup", &key, PROJECT]).code == Some(0)
}

/// Checks that the list contains the entry, pushes it, and is empty afterwards.
fn settles(env: &TestEnvironment, key: &str) {
    let shown = pending(env, &["--dry-run"]);
    assert_eq!(shown.code, Some(0), "{shown}");
    assert!(!is_there(env, key), "{shown}");
    let done = pending(env, &["--json"]);
    assert_eq!(done.code, Some(0), "{done}");
    let told = String::from_utf8(done.stdout.clone()).unwrap();
    let told: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let pushed = told.iter().find(|told| told["ref"] == PROJECT);
    assert_eq!(pushed.unwrap()["pushed"], 1, "{done}");
    assert!(is_there(env, key), "{done}");
    is_empty(env);
}

fn is_empty(env: &TestEnvironment) {
    let none = pending(env, &[]);
    assert_eq!(none.code, Some(0), "{none}");
    assert!(none.stderr.contains("nothing is to be saved"), "{none}");
}

/// Runs a job that compiles and moves the store away.
fn run_without_store(env: &TestEnvironment) -> Finished {
    env.ok(["init"]);
    let (store, away) = (env.path(STORE), env.path("away"));
    let (store, away) = (store.display(), away.display());
    let script = format!("{}; mv {store} {away}", compiled("1+a"));
    let done = env.store(run(&[], &script));
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("`store save --pending`"), "{done}");
    done
}

fn store_is_back(env: &TestEnvironment) {
    fs::rename(env.path("away"), env.path(STORE)).unwrap();
}

#[test]
fn what_a_run_could_not_push_is_on_the_list_of_pending_saves() {
    let env = environment!();
    run_without_store(&env);
    let still = pending(&env, &[]);
    assert_eq!(still.code, Some(1), "{still}");
    store_is_back(&env);
    settles(&env, "1+a");
}

#[test]
fn the_next_run_in_a_base_settles_what_was_not_pushed() {
    let env = environment!();
    run_without_store(&env);
    store_is_back(&env);
    env.ok(run(&[], "true"));
    assert!(is_there(&env, "1+a"));
    is_empty(&env);
}

#[test]
fn what_a_killed_run_compiled_is_on_the_list() {
    let env = environment!();
    env.ok(["init"]);
    let script = format!("{}; echo ready; read go", compiled("1+a"));
    let mut job = start(&env, &[], &script);
    assert_eq!(line(&mut job), "ready\n");
    signal(&job, Signal::KILL);
    job.wait().unwrap();
    assert_eq!(env.store(["ls", REF]).code, Some(3));
    settles(&env, "1+a");
}

#[test]
fn what_a_quota_keeps_out_is_on_the_list_until_there_is_room() {
    let env = environment!();
    env.ok(["init"]);
    let config = "[[keep]]\nrefs = \"project/*\"\nquota = \"1kB\"\n";
    env.write(CONFIG, config);
    let large = compiled("1+a").replace("seq 99", "seq 99999");
    let done = env.store(run(&[], &large));
    assert_eq!(done.code, Some(0), "{done}");
    for said in ["quota", "`store save --pending`"] {
        assert!(done.stderr.contains(said), "{said}: {done}");
    }
    module(&env.path("near"), "2+a", 2);
    let done = env.store(["neff", "push", "near", PROJECT]);
    assert_eq!(done.code, Some(1), "{done}");
    assert!(done.stderr.contains("`store save --pending`"), "{done}");
    let full = pending(&env, &[]);
    assert_eq!(full.code, Some(6), "{full}");
    assert_eq!(full.stderr.matches("quota is").count(), 2, "{full}");
    fs::remove_file(env.path(CONFIG)).unwrap();
    let done = pending(&env, &[]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(is_there(&env, "1+a") && is_there(&env, "2+a"));
    is_empty(&env);
}

#[test]
fn a_push_to_a_store_that_is_away_is_on_the_list() {
    let env = environment!();
    // A store that was used before is not created again.
    module(&env.path("other"), "0+a", 1);
    neff(&env, &["push", "other", PROJECT], 0);
    module(&env.path("near"), "1+a", 1);
    fs::rename(env.path(STORE), env.path("away")).unwrap();
    let failed = env.store(["neff", "push", "near", PROJECT]);
    assert_eq!(failed.code, Some(1), "{failed}");
    assert!(failed.stderr.contains("`store save --pending`"), "{failed}");
    store_is_back(&env);
    settles(&env, "1+a");
    // The same push settles it as well.
    module(&env.path("near"), "2+a", 2);
    fs::rename(env.path(STORE), env.path("away")).unwrap();
    assert_eq!(env.store(["neff", "push", "near", PROJECT]).code, Some(1));
    store_is_back(&env);
    neff(&env, &["push", "near", PROJECT], 0);
    is_empty(&env);
}

/// As where a volume is not mounted.
#[test]
fn entries_whose_directory_is_away_stay_on_the_list_beside_an_empty_one() {
    let env = environment!();
    module(&env.path("other"), "0+a", 1);
    neff(&env, &["push", "other", PROJECT], 0);
    module(&env.path("near"), "1+a", 1);
    fs::rename(env.path(STORE), env.path("away")).unwrap();
    assert_eq!(env.store(["neff", "push", "near", PROJECT]).code, Some(1));
    store_is_back(&env);
    fs::rename(env.path("near"), env.path("unmounted")).unwrap();
    fs::create_dir(env.path("near")).unwrap();
    for _ in 0..2 {
        let gone = pending(&env, &[]);
        assert_eq!(gone.code, Some(6), "{gone}");
        assert!(gone.stderr.contains("another directory"), "{gone}");
    }
    // A push of what is there says nothing of the one that is away.
    module(&env.path("near"), "2+a", 1);
    neff(&env, &["push", "near", PROJECT], 0);
    assert!(is_there(&env, "2+a"));
    let gone = pending(&env, &[]);
    assert_eq!(gone.code, Some(6), "{gone}");
    fs::remove_dir_all(env.path("near")).unwrap();
    fs::rename(env.path("unmounted"), env.path("near")).unwrap();
    settles(&env, "1+a");
}

/// The same of the next run there.
#[test]
fn a_run_beside_entries_that_are_away_leaves_them_on_the_list() {
    let env = environment!();
    run_without_store(&env);
    store_is_back(&env);
    let compiled = env.path("base/project/neuron");
    fs::rename(&compiled, env.path("unmounted")).unwrap();
    fs::create_dir(&compiled).unwrap();
    for _ in 0..2 {
        let night = env.store(["run", "--project", "llama", "--base", "base", "--", "true"]);
        assert_eq!(night.code, Some(0), "{night}");
        let gone = pending(&env, &[]);
        assert_eq!(gone.code, Some(6), "{gone}");
    }
    fs::remove_dir_all(&compiled).unwrap();
    fs::rename(env.path("unmounted"), &compiled).unwrap();
    assert_eq!(pending(&env, &[]).code, Some(0));
    is_empty(&env);
}

/// A mistake does not go away by waiting.
#[test]
fn a_push_that_is_wrong_is_not_on_the_list() {
    let env = environment!();
    env.ok(["init"]);
    module(&env.path("near"), "1+a", 1);
    for words in [
        &["neff", "push", "near", "team/vision/neff"][..],
        &["neff", "push", "none", PROJECT],
    ] {
        let done = env.store(words);
        assert!(matches!(done.code, Some(2 | 3)), "{done}");
        is_empty(&env);
    }
    // A conflict was reported, and would stay the same.
    neff(&env, &["push", "near", PROJECT], 0);
    module(&env.path("other"), "1+a", 2);
    neff(&env, &["push", "other", PROJECT], 6);
    is_empty(&env);
}

#[test]
fn what_is_not_there_stays_on_the_list_until_it_is_forgotten() {
    let env = environment!();
    run_without_store(&env);
    store_is_back(&env);
    fs::remove_dir_all(env.path("base")).unwrap();
    let neuron = env.path("base/project/neuron").display().to_string();
    for _ in 0..2 {
        let gone = pending(&env, &[]);
        assert_eq!(gone.code, Some(6), "{gone}");
        let said = format!("{neuron}: is not there");
        assert!(gone.stderr.contains(&said), "{gone}");
    }
    env.ok(["save", "--forget", "base"]);
    is_empty(&env);
    // Without compiled entries nothing is lost.
    let mut job = start(&env, &[], "echo ready; read go");
    assert_eq!(line(&mut job), "ready\n");
    signal(&job, Signal::KILL);
    job.wait().unwrap();
    fs::remove_dir_all(env.path("base")).unwrap();
    let gone = pending(&env, &[]);
    assert_eq!(gone.code, Some(6), "{gone}");
    assert!(!gone.stderr.contains("neuron"), "{gone}");
    env.ok(["save", "--forget", "base"]);
    is_empty(&env);
    // As on a volume that is mounted later.
    let script = format!("{}; echo ready; read go", compiled("2+a"));
    let mut job = start(&env, &[], &script);
    assert_eq!(line(&mut job), "ready\n");
    signal(&job, Signal::KILL);
    job.wait().unwrap();
    fs::rename(env.path("base"), env.path("base-away")).unwrap();
    assert_eq!(pending(&env, &[]).code, Some(6));
    fs::rename(env.path("base-away"), env.path("base")).unwrap();
    settles(&env, "2+a");
}

/// What a pending save has saved of a running job is not all that the job makes.
#[test]
fn a_running_job_stays_on_the_list() {
    let env = environment!();
    env.ok(["init"]);
    let script = format!(
        "{}; echo 1 > $STORE_PROJECT_CACHE_DIR/one; echo ready; while [ ! -e go ]; do sleep 0.02; done; \
         {}; echo 2 > $STORE_PROJECT_CACHE_DIR/two; echo made; read more",
        compiled("1+a"),
        compiled("2+a")
    );
    let mut job = start(&env, &[], &script);
    assert_eq!(line(&mut job), "ready\n");
    let done = pending(&env, &[]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(is_there(&env, "1+a"), "{done}");
    let listed = || fs::read_dir(env.path("home/.local/state/store/pending")).unwrap();
    // One for each compile cache, and one for the cache of the project.
    let began = Instant::now();
    while listed().count() < 6 {
        assert!(job.try_wait().unwrap().is_none(), "ended too soon");
        assert!(began.elapsed() < Duration::from_secs(60), "is off the list");
        std::thread::sleep(Duration::from_millis(20));
    }
    env.write("go", "");
    assert_eq!(line(&mut job), "made\n");
    signal(&job, Signal::KILL);
    job.wait().unwrap();
    let done = pending(&env, &[]);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(newest(&env, REF), ["one=1", "two=2"], "{done}");
    assert!(is_there(&env, "2+a"), "{done}");
    is_empty(&env);
}

/// A push stores what is there once, and keeps nothing of it on this host.
#[test]
fn a_push_needs_no_cache_directory_of_this_host() {
    let env = environment!();
    module(&env.path("here"), "1+2", 1);
    env.ok(["put", "here", "project/other/made"]);
    fs::remove_dir_all(env.path("home/.cache")).unwrap();
    env.write("home/.cache", "no directory");
    neff(&env, &["push", "here", PROJECT], 0);
    assert!(is_there(&env, "1+2"));
}
