//! A save that is killed at any moment, or cannot write down what it saved, after which the job goes on with its directory:
//! what it deletes then stays deleted, and so does what others delete, whether the killed save had added it to the ref
//! or not.

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
    env.ok(["put", "job", "project/other/data"]);
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

/// Whether the newest version has these files.
fn has<const N: usize>(env: &TestEnvironment, names: [&str; N]) -> [bool; N] {
    let listed = env.ok(["ls", &format!("{REF}:")]);
    names.map(|name| listed.lines().any(|line| line.contains(name)))
}

/// A save that is killed right after it has committed `new`.
fn killed_after_commit(is_made_here: bool) -> TestEnvironment {
    let env = job(is_made_here);
    // What the entry of the log was called before it was linked.
    save(&env, "inject=unlink:signal=SIGKILL:when=1");
    assert_eq!(has(&env, ["new"]), [true]);
    env.ok(["rm", &format!("{REF}:new")]);
    env.write("job/more", "3");
    env
}

#[test]
fn a_save_that_is_killed_before_its_commit_does_not_hide_one_that_was_killed_after_it() {
    for is_made_here in [false, true] {
        let env = killed_after_commit(is_made_here);
        save(&env, "inject=linkat:signal=SIGKILL:when=1");
        assert_eq!(has(&env, ["new", "more"]), [false, false]);
        env.ok(["save", "job", REF]);
        let found = has(&env, ["new", "more"]);
        assert_eq!(found, [false, true], "made here: {is_made_here}");
    }
}

#[test]
fn a_killed_save_whose_version_is_gone_is_not_taken_for_none() {
    for (is_made_here, version) in [(false, "@1"), (true, "@2")] {
        let env = killed_after_commit(is_made_here);
        env.ok(["rm", &format!("{REF}{version}")]);
        let refused = env.store(["save", "job", REF]);
        assert_eq!(refused.code, Some(5), "{refused}");
        assert!(refused.stderr.contains("--base"), "{refused}");
        assert_eq!(has(&env, ["new", "more"]), [false, false]);
    }
}

#[test]
fn a_draft_that_is_damaged_is_not_taken_for_none() {
    let env = killed_after_commit(true);
    let pool = env.path("home/.cache/store/pool/saved");
    let script = "find \"$0\" -name '*.draft.json' -exec sh -c 'tr 0-9 1-90 < $0 > $0.new && mv $0.new $0' {} ';' -print";
    let done = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(pool)
        .output();
    let done = done.unwrap();
    assert!(done.status.success() && !done.stdout.is_empty());
    assert_eq!(env.store(["save", "job", REF]).code, Some(5));
}

/// As on a full disk: the next save would know only what the directory was before.
#[test]
fn what_cannot_be_written_down_is_not_committed_if_something_older_is_known() {
    for is_made_here in [false, true] {
        let env = job(is_made_here);
        let (done, _) = save(&env, "inject=renameat:error=ENOSPC");
        // Nothing is known of a directory that was never saved: the next save asks for its base.
        let is_saved = !is_made_here;
        assert_eq!(done.code == Some(0), is_saved, "{done}");
        if is_saved {
            assert_eq!(env.store(["save", "job", REF]).code, Some(5));
            env.ok(["save", "job", REF, "--base", "1"]);
        } else {
            assert_eq!(has(&env, ["new"]), [false]);
        }
        env.write("job/more", "3");
        let (done, _) = save(&env, "inject=renameat:error=ENOSPC");
        assert_ne!(done.code, Some(0), "{done}");
        assert_eq!(has(&env, ["more"]), [false]);
        env.ok(["save", "job", REF]);
        assert_eq!(has(&env, ["new", "more"]), [true, true]);
    }
}
