//! Seeding a ref: of many processes with the same script, one runs it and the others wait. A dead one is replaced.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::{Finished, Random, TestEnvironment, effort, environment};

pub(crate) const REF: &str = "project/demo/seeded";
/// Records each run in a line, and takes a moment.
const SCRIPT: &str = "echo $$ >> runs; echo half > $STORE_SEED_DIR/file; sleep ${SLOW:-0.3}; echo made > $STORE_SEED_DIR/file";

fn seed<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let before = ["run", "--seed", REF, "--base", "base"];
    let command = ["--", "/bin/sh", "-c", script];
    [&before, options, &command].concat()
}

pub(crate) fn start(command: &mut Command) -> Child {
    let quiet = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    quiet.spawn().unwrap()
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Waits until the child catches the signal.
pub(crate) fn until_caught(child: &Child, signal: Signal) {
    let status = format!("/proc/{}/status", child.id());
    let bit = 1 << (signal.as_raw() - 1);
    loop {
        let status = fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        if u64::from_str_radix(caught.unwrap().trim(), 16).unwrap() & bit != 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn ended(child: Child) -> Finished {
    child.wait_with_output().unwrap().into()
}

fn runs(env: &TestEnvironment) -> usize {
    let text = fs::read_to_string(env.path("runs")).unwrap_or_default();
    text.lines().count()
}

/// Waits until the script was started this many times.
fn until_runs(env: &TestEnvironment, wanted: usize) {
    while runs(env) < wanted {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_ref_that_is_there_needs_no_script() {
    let env = environment!();
    let made = env.store(seed(&[], SCRIPT));
    assert_eq!(made.code, Some(0), "{made}");
    assert!(
        made.stderr.contains("project/demo/seeded@1") && made.stderr.contains("made in"),
        "{made}"
    );
    assert_eq!(env.ok(["cat", "project/demo/seeded:file"]), "made\n");
    let again = env.store(seed(&["--json"], SCRIPT));
    assert!(
        again.stderr.contains(r#""version":1"#) && again.stderr.contains(r#""made":false"#),
        "{again}"
    );
    assert_eq!(runs(&env), 1);
    assert_eq!(fs::read_dir(env.path("base")).unwrap().count(), 0);
    // A dropped ref is made again.
    env.ok(["rm", REF, "--yes"]);
    env.ok(seed(&[], SCRIPT));
    assert_eq!(runs(&env), 2);
}

/// `false` prints nothing itself.
#[test]
fn a_script_that_fails_is_named_with_its_code() {
    let env = environment!();
    for options in [&[][..], &["--json"]] {
        for (script, code, how) in [
            ("exit 7", 7, "failed with exit code 7"),
            ("kill -9 $$", 137, "was ended by signal 9"),
        ] {
            let done = env.store(seed(options, script));
            assert_eq!(done.code, Some(code), "{done}");
            let said = format!("{REF}: not made: the script {how}; nothing was published");
            assert!(done.stderr.contains(&said), "{done}");
        }
    }
    assert_eq!(env.store(["ls", REF]).code, Some(3));
}

#[test]
fn of_32_one_runs_the_script() {
    let env = environment!();
    env.ok(["init"]);
    let children: Vec<Child> = (0..32)
        .map(|_| start(&mut env.command(seed(&[], SCRIPT))))
        .collect();
    for child in children {
        let done = ended(child);
        assert_eq!(done.code, Some(0), "{done}");
        assert!(done.stderr.contains("project/demo/seeded@1"), "{done}");
    }
    assert_eq!(runs(&env), 1);
    assert_eq!(env.ok(["cat", "project/demo/seeded:file"]), "made\n");
}

/// Killed or stopped in the middle of its script; the waiting processes notice that.
#[test]
fn a_seeder_that_is_killed_or_stopped_is_replaced() {
    let mut random = Random::new(u64::from(std::process::id()));
    for round in 0..effort(1, 20) {
        let env = environment!();
        env.ok(["init"]);
        let slow = |options: &[&'static str]| {
            let mut command = env.command(seed(options, SCRIPT));
            start(command.env("SLOW", "600"))
        };
        let mut killed = slow(&[]);
        until_runs(&env, 1);
        let mut stopped = slow(&["--patience", "4s"]);
        signal(&killed, Signal::KILL);
        killed.wait().unwrap();
        until_runs(&env, 2);
        signal(&stopped, Signal::STOP);
        let waiting = 2 + random.below(6);
        let waiting: Vec<Child> = (0..waiting)
            .map(|_| start(&mut env.command(seed(&["--patience", "4s"], SCRIPT))))
            .collect();
        for child in waiting {
            let done = ended(child);
            assert_eq!(done.code, Some(0), "round {round}: {done}");
        }
        assert_eq!(runs(&env), 3, "round {round}");
        // After a stopped process continues, its result changes nothing.
        signal(&stopped, Signal::CONT);
        signal(&stopped, Signal::TERM);
        stopped.wait().unwrap();
        assert_eq!(env.ok(["cat", "project/demo/seeded:file"]), "made\n");
        assert_eq!(env.ok(["history", REF, "--json"]).lines().count(), 1);
    }
}

#[test]
fn two_that_both_finish_are_both_right() {
    let env = environment!();
    env.ok(["init"]);
    let script =
        "echo $$ >> runs; echo same > $STORE_SEED_DIR/file; while [ ! -e go ]; do sleep 0.02; done";
    let first = start(&mut env.command(seed(&[], script)));
    until_runs(&env, 1);
    signal(&first, Signal::STOP);
    let second = start(&mut env.command(seed(&["--patience", "4s"], script)));
    until_runs(&env, 2);
    signal(&first, Signal::CONT);
    env.write("go", "");
    let done = [ended(first), ended(second)];
    for done in &done {
        assert_eq!(done.code, Some(0), "{done}");
        assert!(done.stderr.contains("project/demo/seeded@1"), "{done}");
    }
    assert!(
        done.iter().any(|done| done.stderr.contains("meanwhile")),
        "{} {}",
        done[0],
        done[1]
    );
    assert_eq!(env.ok(["history", REF, "--json"]).lines().count(), 1);
}

#[test]
fn one_that_is_asked_to_end_is_replaced_at_once() {
    let env = environment!();
    env.ok(["init"]);
    let first = start(&mut env.command(seed(&[], "echo > begun; exec sleep 600")));
    // Whose script runs has the claim.
    while !env.path("begun").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let waiting = start(&mut env.command(seed(&["--patience", "1h"], SCRIPT)));
    std::thread::sleep(Duration::from_millis(300));
    signal(&first, Signal::TERM);
    assert_eq!(ended(first).code, Some(143));
    let done = ended(waiting);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(runs(&env), 1);
}

#[test]
fn a_script_that_fails_fails_for_those_who_waited_and_is_tried_anew_by_who_comes() {
    let env = environment!();
    env.ok(["init"]);
    // `sys.exit(-1)` ends with 255, which is no signal.
    let script = "echo $$ >> runs; while [ ! -e go ]; do sleep 0.02; done; exit 255";
    let first = start(&mut env.command(seed(&[], script)));
    until_runs(&env, 1);
    let mut others: Vec<Child> = (0..3)
        .map(|_| start(&mut env.command(seed(&[], script))))
        .collect();
    for other in &mut others {
        // It prints what it waits for.
        let mut said = [0; 1];
        std::io::Read::read_exact(other.stderr.as_mut().unwrap(), &mut said).unwrap();
    }
    env.write("go", "");
    assert_eq!(ended(first).code, Some(255));
    for other in others {
        let done = ended(other);
        assert_eq!(done.code, Some(1), "{done}");
        assert!(done.stderr.contains("exit code 255"), "{done}");
    }
    assert_eq!(runs(&env), 1);
    assert_eq!(env.store(["ls", REF]).code, Some(3));
    env.ok(seed(&[], SCRIPT));
    assert_eq!(runs(&env), 2);
}

#[test]
fn what_cannot_be_a_seed_is_refused() {
    let env = environment!();
    for (options, script, code, said) in [
        (&[][..], "true", 1, "left nothing in $STORE_SEED_DIR"),
        (&["--patience", "1s"][..], SCRIPT, 2, "too short"),
        (
            &["--save-every", "1m"][..],
            SCRIPT,
            2,
            "cannot be used with",
        ),
        (&["--free", "1000PB"][..], SCRIPT, 1, "are free, expected"),
    ] {
        let done = env.store(seed(options, script));
        assert_eq!(done.code, Some(code), "{script}: {done}");
        assert!(done.stderr.contains(said), "{script}: {done}");
    }
    // Nothing of them stays.
    assert_eq!(fs::read_dir(env.path("base")).unwrap().count(), 0);
    assert_eq!(env.store(["run", "--", "true"]).code, Some(2));
    let missing = env.store(["run", "--seed", REF, "--base", "base", "--", "./no-such"]);
    assert_eq!(missing.code, Some(127), "{missing}");
    assert_eq!(runs(&env), 0);
}

#[test]
fn credentials_stay_out_of_a_seed_and_nothing_is_lost() {
    let env = environment!();
    let script = "echo data > $STORE_SEED_DIR/data; mkfifo $STORE_SEED_DIR/pipe; \
                  echo 'machine a login b password c0ffee' > $STORE_SEED_DIR/.netrc";
    let done = env.store(seed(&[], script));
    assert_eq!(done.code, Some(6), "{done}");
    assert!(
        done.stderr.contains(".netrc") && done.stderr.contains("pipe"),
        "{done}"
    );
    let listed = env.ok(["ls", "-r", REF]);
    assert!(
        listed.contains("data") && !listed.contains(".netrc"),
        "{listed}"
    );
    let kept = done.stderr.split("what the script made is in ").nth(1);
    let kept = std::path::PathBuf::from(kept.unwrap().lines().next().unwrap());
    assert!(kept.join(".netrc").exists(), "{}", kept.display());
    // The ref exists, so later processes do not run the script.
    let again = env.store(seed(&[], "exit 9"));
    assert_eq!(again.code, Some(0), "{again}");
    assert!(again.stderr.contains("is there"), "{again}");
}

#[test]
fn a_seed_of_which_everything_is_left_out_is_none() {
    let env = environment!();
    let script = "echo 'machine a login b password c0ffee' > $STORE_SEED_DIR/.netrc";
    let done = env.store(seed(&[], script));
    assert_eq!(done.code, Some(6), "{done}");
    assert!(
        done.stderr.contains("everything in ") && done.stderr.contains(".netrc"),
        "{done}"
    );
    assert_eq!(env.store(["ls", REF]).code, Some(3));
    // If it holds no credentials, it is published as the hint says.
    let hint = done
        .stderr
        .split('`')
        .find(|part| part.starts_with("store put"));
    let words: Vec<&str> = hint.unwrap().split(' ').skip(1).collect();
    env.ok(words);
    assert!(env.ok(["ls", REF]).contains(".netrc"));
    env.ok(["rm", REF, "--yes"]);
    // So the next one makes it.
    env.ok(seed(&[], SCRIPT));
}

#[test]
fn waiting_ends_when_there_is_a_version_or_the_time_is_over() {
    let env = environment!();
    env.ok(["init"]);
    let none = env.store(["wait", REF, "--timeout", "100ms"]);
    assert_eq!(none.code, Some(3), "{none}");
    assert!(
        none.stderr.contains("no version after") && none.stderr.contains("--timeout"),
        "{none}"
    );
    let waiting = start(&mut env.command(["wait", REF, "--json"]));
    env.write("in/file", "one");
    env.ok(["put", "in", REF]);
    let done = ended(waiting);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(
        String::from_utf8_lossy(&done.stdout).contains(r#""version":1"#),
        "{done}"
    );
    assert!(env.ok(["wait", REF]).starts_with("project/demo/seeded@1"));
    assert_eq!(
        env.store(["wait", REF, "--after", "1", "--timeout", "10ms"])
            .code,
        Some(3)
    );
    let waiting = start(&mut env.command(["wait", REF, "--after", "1"]));
    env.write("in/file", "two");
    env.ok(["put", "in", REF]);
    let done = ended(waiting);
    assert!(
        String::from_utf8_lossy(&done.stdout).starts_with("project/demo/seeded@2"),
        "{done}"
    );
    let stopped = start(&mut env.command(["wait", REF, "--after", "2"]));
    until_caught(&stopped, Signal::INT);
    signal(&stopped, Signal::INT);
    assert_eq!(ended(stopped).code, Some(130));
}

#[test]
fn a_base_in_a_store_is_refused_before_anything_is_made() {
    let env = environment!();
    env.ok(["init", "other"]);
    let refused = env.store([
        "run",
        "--seed",
        REF,
        "--base",
        "other/base",
        "--",
        "echo",
        "never",
    ]);
    assert!(
        refused.code == Some(5) && refused.stdout.is_empty(),
        "{refused}"
    );
    assert!(refused.stderr.contains("lies in a store"), "{refused}");
    assert!(!env.path("other/base").exists());
}

/// What makes a directory look like an HF_HOME.
const HUB: &str = "cd $STORE_SEED_DIR; R=hub/models--a--b; mkdir -p $R/refs $R/blobs $R/snapshots/0123456789012345678901234567890123456789; \
                   printf 0123456789012345678901234567890123456789 > $R/refs/main; \
                   echo {} > $R/snapshots/0123456789012345678901234567890123456789/config.json; ";

/// A client's locks are empty and where clients make them. All else is somebody's file.
#[test]
fn locks_and_parts_of_the_users_own_are_in_a_seed() {
    let env = environment!();
    let own = [
        "repo/Cargo.lock",
        "repo/poetry.lock",
        "repo/empty.lock",
        "repo/table.incomplete",
        "repo/notes.tmp",
        "hub/models--a--b/blobs/held.lock",
        "datasets/x/flake.lock",
        "own.lock",
    ];
    let of_client = [
        "hub/.locks/models--a--b/12.lock",
        "hub/models--a--b/blobs/12.lock",
        "hub/models--a--b/blobs/12.incomplete",
        "datasets/x/builder.lock",
        "token",
    ];
    let make = |dir: &str| {
        format!(
            "mkdir -p repo datasets/x hub/.locks/models--a--b; for F in {}; do echo deps > $F; done; for F in {}; do : > $F; done; \
             : > repo/empty.lock; printf hf_abcdefghijklmnopqrstuvwxyzabcdefgh > token; true {dir}",
            own.join(" "),
            of_client.join(" ")
        )
    };
    let done = env.store(seed(&[], &format!("{HUB}{}", make(""))));
    assert_eq!(done.code, Some(0), "{done}");
    // What is left out is named.
    for path in of_client {
        let shown = path.strip_suffix("/models--a--b/12.lock").unwrap_or(path);
        assert!(done.stderr.contains(shown), "{path}: {done}");
    }
    let listed = env.ok(["ls", "-r", REF]);
    for path in own {
        assert!(listed.contains(path), "{path}: {listed}");
    }
    for path in of_client {
        assert!(!listed.contains(path), "{path}: {listed}");
    }
    assert_eq!(fs::read_dir(env.path("base")).unwrap().count(), 0);
}

/// What is not put and may be nowhere else stays, with a code that says so.
#[test]
fn what_a_profile_leaves_out_of_a_seed_is_not_deleted() {
    for (script, path) in [
        ("mkdir assets; echo data > assets/data", "assets/data"),
        (
            "mkdir downloads; echo data > downloads/data",
            "downloads/data",
        ),
        ("mkdir repo; echo data > repo/token", "repo/token"),
    ] {
        let env = environment!();
        let done = env.store(seed(&["--json"], &format!("{HUB}{script}")));
        assert_eq!(done.code, Some(6), "{done}");
        let last: serde_json::Value =
            serde_json::from_str(done.stderr.lines().last().unwrap()).unwrap();
        assert_eq!(last["exit_code"], 6, "{done}");
        let dir = path.split('/').next().unwrap();
        assert!(done.stderr.contains(dir), "{done}");
        let left = fs::read_dir(env.path("base")).unwrap().next().unwrap();
        assert!(left.unwrap().path().join(path).exists(), "{path}");
    }
}

/// The script, or another user, put something else in the place of the directory.
#[test]
fn a_seed_directory_that_was_exchanged_is_not_published() {
    let env = environment!();
    env.write("private/notes", "of root");
    for other in [
        "mkdir $STORE_SEED_DIR; echo forged > $STORE_SEED_DIR/file",
        "ln -s $PWD/private $STORE_SEED_DIR",
        "true",
    ] {
        let script = format!("echo own > $STORE_SEED_DIR/file; mv $STORE_SEED_DIR away; {other}");
        let done = env.store(seed(&[], &script));
        assert_eq!(done.code, Some(5), "{other}: {done}");
        assert!(done.stderr.contains("is not the directory"), "{done}");
        assert_eq!(env.store(["ls", REF]).code, Some(3));
        assert_eq!(
            fs::read_to_string(env.path("private/notes")).unwrap(),
            "of root"
        );
        fs::remove_dir_all(env.path("away")).unwrap();
    }
}
