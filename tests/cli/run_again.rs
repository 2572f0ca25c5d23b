//! A second run of a project whose first run filled an empty directory: what others removed since stays removed.

use std::fs;

use support::environment;

use crate::run::{REF, newest, run};

#[test]
fn what_others_removed_after_the_first_run_does_not_come_back() {
    let env = environment!();
    let first = run(
        &[],
        "cd $STORE_PROJECT_CACHE_DIR && echo a > a && echo b > b && echo c > c",
    );
    let made = env.store(first);
    assert_eq!(made.code, Some(0), "{made}");
    env.ok(["rm", &format!("{REF}:b"), "--yes"]);
    let dir = env.path("base/project");
    assert!(dir.join("b").exists());
    let second = run(&[], "cd $STORE_PROJECT_CACHE_DIR && echo d > d && ls");
    let again = env.store(second);
    assert_eq!(again.code, Some(0), "{again}");
    assert_eq!(
        String::from_utf8_lossy(&again.stdout),
        "a\nc\nd\n",
        "{again}"
    );
    assert_eq!(newest(&env, REF), ["a=a", "c=c", "d=d"]);
    assert!(!dir.join("b").exists());
}

#[test]
fn what_a_job_changed_between_the_runs_stays_nevertheless() {
    let env = environment!();
    let script = "cd $STORE_PROJECT_CACHE_DIR && echo a > a && echo b > b && echo c > c";
    let made = env.store(run(&[], script));
    assert_eq!(made.code, Some(0), "{made}");
    env.ok(["rm", &format!("{REF}:a"), &format!("{REF}:b"), "--yes"]);
    fs::write(env.path("base/project/a"), "changed").unwrap();
    let again = env.store(run(&[], "true"));
    assert_eq!(again.code, Some(0), "{again}");
    assert_eq!(newest(&env, REF), ["a=changed", "c=c"]);
}

/// The hint leads to a run with the new pool.
#[test]
fn a_run_with_another_pool_says_how_that_takes_the_cache_over() {
    let env = environment!();
    let night = |pool: &str, script: &str| {
        let script = format!("cd $STORE_PROJECT_CACHE_DIR; {script}");
        env.store(run(&["--pool", pool], &script))
    };
    for script in ["echo a > a", "echo b > b"] {
        let done = night("one", script);
        assert_eq!(done.code, Some(0), "{done}");
    }
    let refused = night("two", "true");
    assert_eq!(refused.code, Some(5), "{refused}");
    let dir = env.path("base/project").display().to_string();
    let ways = [
        "the pool that made this one with --pool".to_owned(),
        format!("`store save {dir} {REF} --base N`"),
        format!("`store materialize --force {REF} {dir}`"),
    ];
    assert!(
        ways.iter().all(|way| refused.stderr.contains(way)),
        "{refused}"
    );
    env.ok(["save", &dir, REF, "--base", "0"]);
    env.ok(["materialize", "--pool", "two", "--force", REF, &dir]);
    let done = night("two", "echo c > c");
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(newest(&env, REF), ["a=a", "b=b", "c=c"]);
}
