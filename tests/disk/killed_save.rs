//! A save that is killed at any moment, after which the job goes on with its directory: what it deletes then stays
//! deleted, whether the killed save had added it to the ref or not.

use std::collections::BTreeMap;

use support::{Finished, TestEnvironment, effort, environment, under};

const REF: &str = "project/job/cache";
/// The calls by which a save makes something appear under its name, or disappear.
const CALLS: &str = "link,linkat,rename,renameat,renameat2,unlink,unlinkat,setxattr";
/// How many moments the ordinary suite tries, counted from the last one.
const ORDINARY: usize = 12;

/// A store, and a directory with a new file that is to be saved to it.
fn job(is_made_here: bool) -> TestEnvironment {
    let env = environment!();
    env.write("job/old", "1");
    if is_made_here {
        env.ok(["put", "job", REF]);
        std::fs::remove_dir_all(env.path("job")).unwrap();
        env.ok(["materialize", REF, "job"]);
    }
    env.write("job/new", "2");
    env
}

/// Saves under strace, and returns the result and what strace saw.
fn save(env: &TestEnvironment, option: &str) -> (Finished, String) {
    let report = env.path("strace.out");
    let save = env.command(["save", "job", REF]);
    let words = ["-f", "-qq", "-o", report.to_str().unwrap(), "-e", option];
    let finished = under("strace", words, &save).output();
    let finished = finished.expect("strace is installed (tests/run installs it)");
    (finished.into(), std::fs::read_to_string(&report).unwrap())
}

/// The calls of the thread that made the first one: the name of each, and how many of that name there were by then. strace
/// counts in the same way.
fn calls_of_one_thread(report: &str) -> Vec<(String, usize)> {
    let mut counts = BTreeMap::<&str, usize>::new();
    let all = report.lines().filter_map(|line| {
        let (thread, call) = line.split_once(' ')?;
        Some((thread, call.trim_start().split_once('(')?.0))
    });
    let all: Vec<_> = all.collect();
    let own = all.iter().filter(|(thread, _)| *thread == all[0].0);
    let counted = own.map(|(_, name)| {
        let count = counts.entry(*name).or_default();
        *count += 1;
        ((*name).to_owned(), *count)
    });
    counted.collect()
}

#[test]
fn what_is_deleted_after_a_killed_save_stays_deleted() {
    for is_made_here in [false, true] {
        let (whole, report) = save(&job(is_made_here), &format!("trace={CALLS}"));
        assert_eq!(whole.code, Some(0), "{whole}");
        let calls = calls_of_one_thread(&report);
        let first = calls.len().saturating_sub(effort(ORDINARY, calls.len()));
        let mut committed = 0;
        for (call, at) in &calls[first..] {
            let what = format!("made here: {is_made_here}, killed at {call} {at}");
            let env = job(is_made_here);
            let (killed, _) = save(&env, &format!("inject={call}:signal=SIGKILL:when={at}"));
            let listed = env.store(["ls", &format!("{REF}:")]);
            let is_committed = String::from_utf8_lossy(&listed.stdout).contains("new");
            committed += usize::from(is_committed && killed.code != Some(0));
            std::fs::remove_file(env.path("job/new")).unwrap();
            let again = env.store(["save", "job", REF]);
            assert_eq!(again.code, Some(0), "{what}: {again}");
            let listed = env.ok(["ls", &format!("{REF}:")]);
            assert!(!listed.contains("new"), "{what}: {listed}");
        }
        assert!(committed > 1, "no kill came between a commit and its note");
    }
}
