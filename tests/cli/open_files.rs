//! With a low limit of open files, work that needs more is done in turns.

use support::{Finished, TestEnvironment, environment};

/// Runs the command with this soft and hard limit of open files.
fn with_limit(env: &TestEnvironment, limit: u32, arguments: &str) -> Finished {
    let program = env.command(["x"]).get_program().to_owned();
    let script = format!("ulimit -Sn {limit} && ulimit -Hn {limit} && exec \"$0\" {arguments}");
    let mut command = std::process::Command::new("sh");
    command.arg("-c").arg(script).arg(program);
    command.current_dir(env.root()).env_clear();
    command.env("HOME", env.path("home"));
    command.output().unwrap().into()
}

#[test]
fn a_tree_with_more_levels_than_files_may_be_open_says_which_limit() {
    let env = environment!();
    let deep: String = (0..100).map(|_| "d/").collect();
    env.write(format!("in/{deep}f"), "deep");
    env.ok(["put", "in", "project/demo/a"]);
    let finished = with_limit(&env, 64, "materialize project/demo/a out");
    assert_eq!(finished.code, Some(1), "{finished}");
    let hint = "hint: raise the limit on open files (`ulimit -n`), which is 64 now";
    assert!(finished.stderr.contains(hint), "{finished}");
    assert!(!env.path("out").exists());
    let finished = with_limit(&env, 200, "materialize project/demo/a out");
    assert_eq!(finished.code, Some(0), "{finished}");
}

#[test]
fn fifteen_hundred_files_are_put_and_got_with_few_descriptors() {
    let env = environment!();
    for number in 0..1_500 {
        env.write(format!("in/flat/{number}"), format!("flat {number}"));
        env.write(format!("in/apart/{number}/f"), format!("apart {number}"));
    }
    let deep: String = (0..100).map(|_| "d/").collect();
    env.write(format!("in/{deep}f"), "deep");
    env.write("in/large", vec![3; 3_000_000]);
    for limit in [1024, 64] {
        let finished = with_limit(&env, limit, "put in project/demo/a --always");
        assert_eq!(finished.code, Some(0), "{limit}: {finished}");
        let finished = with_limit(&env, limit, &format!("get project/demo/a out-{limit}"));
        assert_eq!(finished.code, Some(0), "{limit}: {finished}");
        support::assert_same_tree(&env.path("in"), &env.path(format!("out-{limit}")));
    }
}

/// What is short is named: an evicted pool would be no help.
#[test]
fn a_pool_without_descriptors_says_which_limit() {
    let env = environment!();
    env.write("in/file", "f");
    env.ok(["put", "in", "project/demo/a"]);
    let mut is_seen = false;
    for limit in 8..32 {
        let finished = with_limit(
            &env,
            limit,
            &format!("materialize project/demo/a to-{limit}"),
        );
        if finished.code == Some(0) {
            continue;
        }
        is_seen |= finished.stderr.contains("ulimit -n");
        assert!(!finished.stderr.contains("evict"), "{limit}: {finished}");
    }
    assert!(is_seen);
}
