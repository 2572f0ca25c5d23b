//! Watching a training job: each checkpoint is published once, completely and in order, whatever is killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Finished, Random, TestEnvironment, effort, environment, under};

pub(crate) const REF: &str = "project/demo/ckpt";

/// The arguments of `store watch`.
pub(crate) fn words<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [
        &["watch", "out", REF, "--every", "100ms", "--nice", "0"],
        options,
    ]
    .concat()
}

pub(crate) fn start(env: &TestEnvironment, options: &[&str]) -> Child {
    let mut command = env.command(words(options));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

pub(crate) fn end(child: Child) -> Finished {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    child.wait_with_output().unwrap().into()
}

/// Writes a checkpoint as a trainer does, the marker last.
pub(crate) fn checkpoint(env: &TestEnvironment, number: u64, seed: u64) {
    let dir = format!("out/checkpoint-{number}");
    let weights = Random::new(seed).bytes(100_000);
    env.write(format!("{dir}/optimizer.bin"), weights);
    env.write(format!("{dir}/rank-0/state"), format!("{number}"));
    env.write(format!("{dir}/trainer_state.json"), "{}");
}

/// The names of the checkpoints of all versions, oldest first.
pub(crate) fn published(env: &TestEnvironment) -> Vec<String> {
    let listed = env.store(["history", REF, "--json"]);
    let text = String::from_utf8(listed.stdout).unwrap();
    let versions = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let message = |version: Value| version["message"].as_str().unwrap().to_owned();
    let mut all: Vec<String> = versions.map(message).collect();
    all.reverse();
    all.iter()
        .map(|text| text.split(' ').next().unwrap().to_owned())
        .collect()
}

pub(crate) fn line(child: &mut Child) -> String {
    let mut said = String::new();
    let out = child.stdout.as_mut().unwrap();
    BufReader::with_capacity(1, out)
        .read_line(&mut said)
        .unwrap();
    said
}

#[test]
fn each_checkpoint_is_a_version_and_the_last_one_is_the_latest() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    let once = env.store(words(&["--once"]));
    assert_eq!(once.code, Some(0), "{once}");
    assert!(
        String::from_utf8_lossy(&once.stdout).contains("ckpt@1"),
        "{once}"
    );
    let mut watch = start(&env, &[]);
    checkpoint(&env, 2, 1);
    assert!(line(&mut watch).contains("ckpt@2"));
    checkpoint(&env, 3, 2);
    assert!(line(&mut watch).contains("ckpt@3"));
    env.write("out/checkpoint-4/optimizer.bin", "half");
    let done = end(watch);
    assert_eq!(done.code, Some(6), "{done}");
    let why = "checkpoint-4: not finished: there is no whole trainer_state.json in it";
    assert!(done.stderr.contains(why), "{done}");
    assert_eq!(
        published(&env),
        ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    );
    env.ok(["materialize", &format!("{REF}@latest:rank-0"), "rank"]);
    assert_eq!(fs::read_to_string(env.path("rank/state")).unwrap(), "3");
    // A new watch continues. A checkpoint that is written after a rollback becomes the newest.
    let again = env.store(words(&["--once"]));
    assert_eq!(again.code, Some(6), "{again}");
    fs::remove_dir_all(env.path("out/checkpoint-4")).unwrap();
    fs::remove_dir_all(env.path("out/checkpoint-2")).unwrap();
    checkpoint(&env, 2, 9);
    let again = env.store(words(&["--once", "--json"]));
    assert_eq!(again.code, Some(0), "{again}");
    let all = [
        "checkpoint-1",
        "checkpoint-2",
        "checkpoint-3",
        "checkpoint-2",
    ];
    assert_eq!(published(&env), all);
}

#[test]
fn what_is_finished_when_it_is_asked_to_end_is_published() {
    let env = environment!();
    fs::create_dir(env.path("out")).unwrap();
    let mut command = env.command(["watch", "out", REF, "--every", "1h", "--nice", "19"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let watch = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    checkpoint(&env, 7, 1);
    let done = end(watch);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(published(&env), ["checkpoint-7"]);
}

/// If the kernel schedules sessions as groups, a process's niceness has no effect on other sessions.
#[test]
fn a_session_of_its_own_stands_back_as_a_whole() {
    let env = environment!();
    let group = |pid: u32| fs::read_to_string(format!("/proc/{pid}/autogroup")).unwrap();
    let before = group(std::process::id());
    let mut watch = start(&env, &["--nice", "19"]);
    checkpoint(&env, 1, 1);
    line(&mut watch);
    assert_eq!(group(watch.id()), before, "the session of these tests");
    end(watch);

    let plain = env.command(["watch", "out", REF, "--every", "100ms", "--nice", "17"]);
    let mut alone = under("setsid", [""; 0], &plain);
    let mut watch = alone.stdout(Stdio::piped()).spawn().unwrap();
    checkpoint(&env, 2, 1);
    line(&mut watch);
    assert!(group(watch.id()).trim().ends_with("nice 17"));
    end(watch);
}

/// As for a process that was sent into a container: its session has the number 0 there.
#[test]
fn a_session_that_began_outside_of_the_container_is_no_reason_to_stop() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    let plain = env.command(["watch", "out", REF, "--once"]);
    let flags = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    let done = under("unshare", flags, &plain).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(published(&env), ["checkpoint-1"]);
}

#[test]
fn a_directory_that_the_training_makes_later_is_waited_for() {
    let env = environment!();
    let mut watch = start(&env, &[]);
    std::thread::sleep(Duration::from_millis(300));
    checkpoint(&env, 1, 1);
    assert!(line(&mut watch).contains("ckpt@1"));
    let done = end(watch);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("waits until there is out"), "{done}");
    // A directory that never appears does not keep the watch from ending.
    fs::remove_dir_all(env.path("out")).unwrap();
    let watch = start(&env, &[]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(end(watch).code, Some(0));
}

#[test]
fn old_versions_go_and_pinned_and_other_ones_stay() {
    let env = environment!();
    env.write("in/file", "by hand");
    env.ok(["put", "in", REF, "--message", "by hand"]);
    for number in 1..=5 {
        checkpoint(&env, number, number);
        let done = env.store(words(&["--once", "--keep", "2"]));
        assert_eq!(done.code, Some(0), "{done}");
        if number == 1 {
            env.ok(["pin", &format!("{REF}@2")]);
        }
    }
    assert_eq!(
        published(&env),
        ["by", "checkpoint-1", "checkpoint-4", "checkpoint-5"]
    );
    // A dropped version is not published again, although its directory exists.
    let done = env.store(words(&["--once", "--keep", "2"]));
    assert_eq!(done.stdout, b"", "{done}");
    assert_eq!(env.store(words(&["--once", "--keep", "0"])).code, Some(2));
}

#[test]
fn what_came_back_is_dropped_as_the_oldest() {
    let env = environment!();
    for number in 1..=3 {
        checkpoint(&env, number, number);
        once(&env, &[]);
    }
    env.ok(["rm", &format!("{REF}@1")]);
    env.ok(["undo"]);
    checkpoint(&env, 4, 4);
    let done = once(&env, &["--keep", "2"]);
    assert_eq!(done.code, Some(0), "{done}");
    // checkpoint-3 is there twice, since `undo` put it on top of the restored version.
    assert_eq!(
        published(&env),
        ["checkpoint-3", "checkpoint-3", "checkpoint-4"]
    );
}

#[test]
fn what_cannot_be_published_is_named_and_keeps_nothing_else_back() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        env.path("out/checkpoint-1/pipe"),
        0o600.into(),
    )
    .unwrap();
    checkpoint(&env, 2, 2);
    env.write("out/other/file", "who wrote it?");
    let done = env.store(words(&["--once"]));
    assert_eq!(done.code, Some(6), "{done}");
    assert!(
        done.stderr.contains("pipe") && done.stderr.contains("other: nothing says"),
        "{done}"
    );
    assert_eq!(published(&env), ["checkpoint-2"]);
    let done = env.store(words(&["--once", "--settled", "1s"]));
    assert_eq!(done.code, Some(6), "{done}");
    assert_eq!(published(&env), ["checkpoint-2", "other"]);
    checkpoint(&env, 3, 3);
    let full = env.store(words(&["--once", "--free", "1000PB"]));
    assert_eq!(full.code, Some(6), "{full}");
    assert_eq!(published(&env), ["checkpoint-2", "other"]);
    let missing = env.store(["watch", "no-such", REF, "--once"]);
    assert_eq!(missing.code, Some(3), "{missing}");
}

/// Sets the modification time of a file to this many seconds ago.
pub(crate) fn age(env: &TestEnvironment, path: &str, secs: u64) {
    let file = fs::File::options()
        .append(true)
        .open(env.path(path))
        .unwrap();
    let time = std::time::SystemTime::now() - Duration::from_secs(secs);
    file.set_modified(time).unwrap();
}

pub(crate) fn once(env: &TestEnvironment, options: &[&str]) -> Finished {
    env.store(words(&[&["--once"], options].concat()))
}

/// The marker is that of the previous content. A later watch has nothing else to go by.
#[test]
fn what_was_written_anew_and_broken_off_is_not_published() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    assert_eq!(once(&env, &[]).code, Some(0));
    age(&env, "out/checkpoint-1/trainer_state.json", 60);
    env.write("out/checkpoint-1/optimizer.bin", "half");
    for _ in 0..2 {
        let done = once(&env, &[]);
        assert_eq!(done.code, Some(6), "{done}");
        let why = "checkpoint-1: not finished: trainer_state.json is older than optimizer.bin";
        assert!(done.stderr.contains(why), "{done}");
        assert_eq!(published(&env), ["checkpoint-1"]);
    }
    let done = once(&env, &["--settled", "1s"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(published(&env), ["checkpoint-1", "checkpoint-1"]);
}

#[test]
fn a_store_that_is_away_gets_every_checkpoint_later_and_in_order() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    let mut watch = start(&env, &[]);
    assert!(line(&mut watch).contains("ckpt@1"));
    let store = env.path("home/.local/share/store");
    fs::rename(&store, env.path("away")).unwrap();
    checkpoint(&env, 2, 2);
    std::thread::sleep(Duration::from_secs(3));
    checkpoint(&env, 3, 3);
    std::thread::sleep(Duration::from_secs(2));
    fs::rename(env.path("away"), &store).unwrap();
    assert!(line(&mut watch).contains("checkpoint-2"));
    assert!(line(&mut watch).contains("checkpoint-3"));
    let done = end(watch);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(
        published(&env),
        ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    );
}

/// A skipped checkpoint can only be published by hand: the latest version stays the latest.
#[test]
fn nothing_old_becomes_the_latest() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    env.write(
        "out/checkpoint-1/.netrc",
        "machine host login me password secret",
    );
    let done = once(&env, &[]);
    assert_eq!(done.code, Some(6), "{done}");
    let hint = "if it holds none, --allow-secret /.netrc takes it";
    assert!(done.stderr.contains(hint), "{done}");
    for number in 2..=4 {
        checkpoint(&env, number, number);
        once(&env, &["--keep", "2"]);
    }
    let all = ["checkpoint-3", "checkpoint-4"];
    assert_eq!(published(&env), all);
    // One whose marker was touched, one whose version was dropped, and a copy of an existing one.
    for number in [2, 3] {
        env.write(format!("out/checkpoint-{number}/trainer_state.json"), "{}");
    }
    let copy = std::process::Command::new("cp")
        .args(["-r", "checkpoint-3", "checkpoint-30"])
        .current_dir(env.path("out"))
        .status();
    assert!(copy.unwrap().success());
    for name in ["out/checkpoint-1/.netrc", "out/checkpoint-1/optimizer.bin"] {
        age(&env, name, 60);
    }
    let done = once(&env, &["--allow-secret", "**"]);
    // The copy is new, although its original is not the newest: it becomes the newest.
    let all = ["checkpoint-3", "checkpoint-4", "checkpoint-30"];
    assert_eq!(published(&env), all, "{done}");
    for older in ["checkpoint-1", "checkpoint-2"] {
        let why =
            format!("{older}: older than checkpoint-4, which is published; taken for dropped");
        assert_eq!(done.stderr.matches(&why).count(), 1, "{done}");
    }
    assert!(!done.stderr.contains("checkpoint-3: older"), "{done}");
}

#[test]
fn what_a_later_one_came_after_is_not_called_unfinished() {
    let env = environment!();
    for number in [1, 2] {
        env.write(format!("out/global_step{number}/w"), format!("{number}"));
        env.write("out/latest", format!("global_step{number}"));
        let done = once(&env, &[]);
        assert_eq!(done.code, Some(0), "{done}");
        assert!(!done.stderr.contains("global_step"), "{done}");
    }
    env.write("out/global_step3/other", "3");
    env.write("out/global_step4/w", "4");
    env.write("out/latest", "global_step4");
    let done = once(&env, &[]);
    assert_eq!(done.code, Some(6), "{done}");
    assert!(
        done.stderr.contains("global_step3: not published"),
        "{done}"
    );
    assert_eq!(
        published(&env),
        ["global_step1", "global_step2", "global_step4"]
    );
}

#[test]
fn names_tell_the_terminal_nothing() {
    let env = environment!();
    env.write("out/a\n\u{1b}[2J/w", "");
    env.write("out/a\n\u{1b}[2J/DONE", "");
    env.write("out/b\n/w", "");
    let done = once(&env, &["--done", "DONE"]);
    assert_eq!(done.code, Some(6), "{done}");
    let out = String::from_utf8(done.stdout.clone()).unwrap();
    assert!(
        out.contains("a\\n\\u{1b}[2J") && out.lines().count() == 1,
        "{done}"
    );
    assert!(done.stderr.contains("b\\n: not finished"), "{done}");
    // Refs, messages and names must not change the direction of the text beside them.
    env.write("in/a\u{202e}txt", "text");
    env.ok([
        "put",
        "in",
        "project/demo/o\u{2066}",
        "--message",
        "m\u{2028}n",
    ]);
    let said = ["ls", "history", "ls -r"].map(|verb| {
        let words = verb.split(' ').chain(["project/demo/o\u{2066}"]);
        env.ok(words.collect::<Vec<_>>())
    });
    assert!(said[0].contains("a\\u{202e}txt"), "{said:?}");
    assert!(said[1].contains("m\\u{2028}n"), "{said:?}");
    let all = env.ok(["ls", "project/demo"]);
    assert!(all.contains("o\\u{2066}"), "{all}");
    let torn = env.path("out/c");
    fs::create_dir(&torn).unwrap();
    fs::write(torn.join("w.npz"), b"PK\x03\x04").unwrap();
    let done = once(&env, &["--settled", "1s"]);
    assert!(
        done.stderr.contains("c: not finished: w.npz is cut off"),
        "{done}"
    );
}

/// A writer overwrites checkpoints in place all the time and is sometimes killed; so is the watch. All files of a
/// complete checkpoint have the same content, and incomplete ones are never published.
#[test]
fn no_version_is_torn_whoever_dies() {
    let env = environment!();
    env.ok(["init"]);
    let out = env.path("out");
    fs::create_dir(&out).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(7);
            for round in 0_u64.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                write_step(
                    &out.join(format!("checkpoint-{}", random.below(4))),
                    round,
                    &mut random,
                );
                std::thread::sleep(Duration::from_millis(random.below(2500)));
            }
        });
        let mut random = Random::new(8);
        for _ in 0..effort(6, 100) {
            let mut watch = start(&env, &["--keep", "50", "--done", "DONE"]);
            std::thread::sleep(Duration::from_millis(500 + random.below(4000)));
            watch.kill().unwrap();
            watch.wait().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    let versions = published(&env).len();
    assert!(versions > 0);
    for number in 1..=versions {
        let copy = env.path(format!("copy-{number}"));
        env.ok(["get", &format!("{REF}@{number}"), copy.to_str().unwrap()]);
        let said: Vec<String> = (0..6)
            .map(|file| fs::read_to_string(copy.join(format!("part-{file}"))).unwrap())
            .collect();
        assert!(
            said.iter().all(|text| *text == said[0]),
            "{number}: {said:?}"
        );
    }
}

/// Overwrites a step, the marker last; one in three attempts dies on the way.
fn write_step(dir: &Path, round: u64, random: &mut Random) {
    fs::create_dir_all(dir).unwrap();
    let marker = dir.join("DONE");
    let _none = fs::remove_file(&marker);
    let dies_at = random.below(18);
    for file in 0..6 {
        if dies_at == file {
            return;
        }
        fs::write(dir.join(format!("part-{file}")), format!("round {round}")).unwrap();
        std::thread::sleep(Duration::from_millis(random.below(20)));
    }
    fs::write(marker, "{}").unwrap();
}
