//! Exports and imports that are killed: existing content stays complete, and the next attempt continues.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{Random, TestEnvironment, assert_same_tree, effort, environment};

const REFS: u64 = 8;
const FILE: &str = "one.bundle";
const STORE: &str = "elsewhere";

fn name(number: u64) -> String {
    format!("project/demo/ref-{number}")
}

fn with_refs() -> TestEnvironment {
    let env = environment!();
    for number in 0..REFS {
        let dir = format!("in-{number}");
        env.write(format!("{dir}/own"), Random::new(number).bytes(500_000));
        env.write(format!("{dir}/shared"), Random::new(99).bytes(500_000));
        env.ok(["put", &dir, &name(number)]);
    }
    env
}

/// The refs of a store, which may not exist yet.
fn listed(env: &TestEnvironment, store: &str) -> BTreeSet<String> {
    let done = env.store(["ls", "project/demo", "--store", store]);
    match done.code {
        Some(0) => {
            let said = String::from_utf8(done.stdout).unwrap();
            let all = (0..REFS).map(name);
            all.filter(|name| said.contains(name.as_str())).collect()
        }
        // The export was killed before there was a store or a ref.
        _ => {
            assert_eq!(done.code, Some(3), "{done}");
            BTreeSet::new()
        }
    }
}

/// Repeatedly kills a command that fills `store` with refs, at various points from its start to its end.
fn kill(env: &TestEnvironment, words: &[&str], store: &str, anew: impl Fn()) {
    let mut random = Random::new(5);
    // The duration of the last complete run. Kills come before that.
    let mut least = Duration::from_millis(400);
    let mut kills = effort(12, 300);
    let mut before = BTreeSet::new();
    let mut most = 0;
    anew();
    while kills > 0 {
        let mut command = env.command(words);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let limit = least.mul_f64(random.below(1000) as f64 / 1000.0);
        let began = Instant::now();
        let ended = loop {
            if let Some(ended) = child.try_wait().unwrap() {
                break ended;
            }
            if began.elapsed() >= limit {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(ended.success() || ended.code().is_none(), "{ended}");
        let now = listed(env, store);
        assert!(now.is_superset(&before), "{before:?}, then {now:?}");
        if !now.is_empty() {
            env.ok(["verify", "--store", store]);
        }
        most = most.max(now.len());
        before = now;
        if ended.success() {
            assert_eq!(before.len() as u64, REFS);
            least = began.elapsed();
            before.clear();
            anew();
        } else {
            kills -= 1;
        }
    }
    println!("{most} refs at most when it was killed");
    env.ok(words);
}

fn check(env: &TestEnvironment, store: &str) {
    env.ok(["verify", "--read-data", "--store", store]);
    for number in 0..REFS {
        let out = format!("out-{number}");
        env.ok(["get", &name(number), &out, "--store", store]);
        assert_same_tree(&env.path(format!("in-{number}")), &env.path(out));
    }
}

#[test]
fn an_export_that_is_killed_goes_on() {
    let env = with_refs();
    let words = ["export", FILE, "project/demo"];
    kill(&env, &words, FILE, || drop(fs::remove_file(env.path(FILE))));
    check(&env, FILE);
    // Unfinished data does not accumulate: it was overwritten, or is after the end.
    env.ok(["export", "clean.bundle", "project/demo"]);
    let len = |file: &str| fs::metadata(env.path(file)).unwrap().len();
    let (clean, killed) = (len("clean.bundle"), len(FILE));
    assert!(killed < 2 * clean, "{clean}, {killed}");
}

#[test]
fn an_import_that_is_killed_goes_on() {
    let env = with_refs();
    env.ok(["export", FILE, "project/demo"]);
    let whole = fs::read(env.path(FILE)).unwrap();
    let words = ["import", FILE, "--store", STORE];
    kill(&env, &words, STORE, || {
        let _none = fs::remove_dir_all(env.path(STORE));
        env.ok(["init", STORE]);
    });
    check(&env, STORE);
    assert!(
        fs::read(env.path(FILE)).unwrap() == whole,
        "it is only read"
    );
}
