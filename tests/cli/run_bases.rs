//! Base directories of runs: what they hold, who owns them, and what happens when refs, stores or bases are removed.

use std::fs;
use std::process::{Command, Stdio};

use support::{TestEnvironment, environment};

use crate::run::{REF, line, newest, run};
use crate::run_compiles::{CONFIG, compile, neuron_layout};

/// Two bases change the same path: each gets the other's change in its next run, and reverts nothing.
#[test]
fn what_a_run_saved_is_not_taken_back_from_others_later() {
    let env = environment!();
    let of = |base: &str, script: &str| {
        let before = ["run", "--project", "llama", "--base"];
        let args = [&before[..], &[base, "--", "/bin/sh", "-c", script]].concat();
        let done = env.store(args);
        assert_eq!(done.code, Some(0), "{done}");
        (String::from_utf8(done.stdout.clone()).unwrap(), done.stderr)
    };
    of("one", "echo base > $STORE_PROJECT_CACHE_DIR/f");
    of("two", "true");
    for base in ["one", "two", "one"] {
        of(base, &format!("echo {base} > $STORE_PROJECT_CACHE_DIR/f"));
        assert_eq!(newest(&env, REF), [format!("f={base}")]);
    }
    for base in ["two", "one", "two"] {
        let (seen, told) = of(base, "cat $STORE_PROJECT_CACHE_DIR/f");
        assert_eq!(seen, "one\n");
        assert!(
            told.contains("unchanged") && !told.contains("conflict"),
            "{told}"
        );
        assert_eq!(newest(&env, REF), ["f=one"]);
    }
}

#[test]
fn no_store_is_made_in_the_place_of_one_that_is_away() {
    let env = environment!();
    env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
    let (store, away) = (env.path("home/.local/share/store"), env.path("away"));
    fs::rename(&store, &away).unwrap();
    let seed = [
        "run",
        "--seed",
        "project/llama/seed",
        "--base",
        "seed",
        "--",
        "touch",
        "ran",
    ];
    for words in [
        &run(&[], "touch ran")[..],
        &seed,
        &["save", "base/project", REF],
        &["put", "base/project", "project/llama/other"],
    ] {
        let refused = env.store(words);
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(
            refused.stderr.contains("is missing now") && refused.stderr.contains("store init"),
            "{refused}"
        );
        assert!(!store.exists() && !env.path("ran").exists(), "{refused}");
    }
    // Another store does not get the files of the first one either.
    env.ok(["init"]);
    let refused = env.store(run(&[], "touch ran"));
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(
        refused.stderr.contains("--base 0") && !env.path("ran").exists(),
        "{refused}"
    );
    fs::remove_dir_all(&store).unwrap();
    fs::rename(&away, &store).unwrap();
    env.ok(run(&[], "echo b > $STORE_PROJECT_CACHE_DIR/b"));
    assert_eq!(newest(&env, REF), ["a=a", "b=b"]);
}

/// What a killed run left belongs to the store that it used.
#[test]
fn another_store_does_not_get_what_a_killed_run_left() {
    let env = environment!();
    env.ok(["init", "shared"]);
    let shared = |words: &[&str]| env.store([&["--store", "shared"], words].concat());
    let mut command: Command = env.command(
        [
            &["--store", "shared"],
            &run(
                &[],
                "echo new > $STORE_PROJECT_CACHE_DIR/new; echo ready; while [ ! -e go ]; do sleep 0.05; done",
            )[..],
        ]
        .concat(),
    );
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    assert_eq!(line(&mut child), "ready\n");
    child.kill().unwrap();
    child.wait().unwrap();
    env.write("go", "");
    fs::rename(env.path("shared"), env.path("away")).unwrap();
    env.ok(["init", "shared"]);
    let refused = shared(&run(&[], "touch ran"));
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(
        refused.stderr.contains("there is another one by now"),
        "{refused}"
    );
    let refused = shared(&["save", "--pending"]);
    assert_eq!(refused.code, Some(6), "{refused}");
    assert!(
        refused.stderr.contains("there is another one by now"),
        "{refused}"
    );
    assert_eq!(shared(&["ls", REF]).code, Some(3));
    fs::remove_dir_all(env.path("shared")).unwrap();
    fs::rename(env.path("away"), env.path("shared")).unwrap();
    assert_eq!(shared(&["save", "--pending"]).code, Some(0));
    assert_eq!(shared(&["cat", &format!("{REF}:new")]).stdout, b"new\n");
}

/// A run saves to the store that it began with.
#[test]
fn a_store_that_takes_the_place_of_another_meanwhile_gets_nothing() {
    let env = environment!();
    env.ok(["init", "shared"]);
    env.ok(["init", "other"]);
    let shared = |words: &[&str]| env.store([&["--store", "shared"], words].concat());
    let script = "echo work > $STORE_PROJECT_CACHE_DIR/work; mv shared away; mv other shared";
    let failed = shared(&run(&[], script));
    assert_eq!(failed.code, Some(5), "{failed}");
    for words in [
        "there is another one by now",
        "`store save --store shared --pending` saves it",
    ] {
        assert!(failed.stderr.contains(words), "{failed}");
    }
    assert_eq!(shared(&["ls", REF]).code, Some(3));
    fs::rename(env.path("shared"), env.path("other")).unwrap();
    fs::rename(env.path("away"), env.path("shared")).unwrap();
    assert_eq!(shared(&["save", "--pending"]).code, Some(0));
    let found = shared(&["cat", &format!("{REF}:work")]);
    assert_eq!(found.stdout, b"work\n");
}

/// The other store does not get compiled entries either, with or without a cache of the project to save.
#[test]
fn what_was_compiled_goes_to_no_other_store_either() {
    let env = environment!();
    env.ok(["init", "shared"]);
    env.ok(["init", "other"]);
    env.write(CONFIG, neuron_layout("project/llama/neff", ""));
    let shared = |words: &[&str]| env.store([&["--store", "shared"], words].concat());
    let script = format!("{}; mv shared away; mv other shared", compile("1+a"));
    let failed = shared(&run(&["--layout", "trn"], &script));
    assert_eq!(failed.code, Some(5), "{failed}");
    assert!(
        failed.stderr.contains("1 added by it, 0 pushed")
            && failed.stderr.contains("base/neuron: the store")
            && failed.stderr.contains("there is another one by now"),
        "{failed}"
    );
    assert_eq!(shared(&["ls", "project/llama"]).code, Some(3));
    fs::rename(env.path("shared"), env.path("other")).unwrap();
    fs::rename(env.path("away"), env.path("shared")).unwrap();
    // The next run with the right store pushes them.
    let next = shared(&run(&["--layout", "trn"], "true"));
    assert_eq!(next.code, Some(0), "{next}");
    assert!(next.stderr.contains("0 added by it, 1 pushed"), "{next}");
}

/// Two versions of a file: one that a killed run left, and one that was saved after that.
fn left_and_saved(leaves: &str, saves: &str) -> TestEnvironment {
    let env = environment!();
    env.ok(run(
        &[],
        "echo 0 > $STORE_PROJECT_CACHE_DIR/f; echo 0 > $STORE_PROJECT_CACHE_DIR/g",
    ));
    env.ok(run(&[], "true"));
    let script = format!("cd $STORE_PROJECT_CACHE_DIR; {leaves}; kill -9 $PPID");
    let killed = env.store(run(&["--job", "killed"], &script));
    assert_eq!(killed.code, None, "{killed}");
    let other = [
        "run",
        "--project",
        "llama",
        "--base",
        "other",
        "--job",
        "b",
        "--",
        "/bin/sh",
        "-c",
        saves,
    ];
    env.ok(other);
    env
}

#[test]
fn what_a_killed_run_left_names_what_others_changed_too() {
    let write = |text: &str| format!("rm -f f; echo {text} > f");
    let theirs = format!("cd $STORE_PROJECT_CACHE_DIR; {}", write("B"));
    let env = left_and_saved(&write("A"), &theirs);
    let told = env.store(run(&["--job", "next"], "true"));
    assert_eq!(told.code, Some(0), "{told}");
    for words in [
        "what an earlier run left here was saved as project/llama/cache@3",
        "conflict: f: both changed it; yours is in the new version, theirs in @2",
    ] {
        assert!(told.stderr.contains(words), "{told}");
    }
    assert_eq!(newest(&env, REF), ["f=A", "g=0"]);
    let history = env.ok(["history", REF]);
    assert!(
        history.contains("job killed; changed here and in @2: f"),
        "{history}"
    );
    // The same report in JSON.
    let env = left_and_saved(&write("A"), &theirs);
    let told = env.store([&["--json"], &run(&[], "true")[..]].concat());
    assert!(
        told.stderr
            .contains(r#""conflicting":[{"path":"f","case":"both-changed"}]"#),
        "{told}"
    );
}

#[test]
fn what_a_killed_run_deleted_and_others_changed_is_named() {
    let env = left_and_saved("rm f", "cd $STORE_PROJECT_CACHE_DIR; rm f; echo B > f");
    let told = env.store(run(&[], "cat $STORE_PROJECT_CACHE_DIR/f"));
    assert_eq!(
        (told.code, &told.stdout[..]),
        (Some(0), &b"B\n"[..]),
        "{told}"
    );
    assert!(
        told.stderr
            .contains("conflict: f: deleted here, changed in @2; theirs stays"),
        "{told}"
    );
}

#[test]
fn what_is_pending_is_saved_under_the_name_of_its_job() {
    let env = left_and_saved("echo new > new", "true");
    env.ok(["save", "--pending"]);
    let history = env.ok(["history", REF]);
    assert!(history.contains("job killed"), "{history}");
}

#[test]
fn versions_name_the_job_that_made_them() {
    let env = environment!();
    env.ok(run(
        &["--job", "night-7"],
        "echo a > $STORE_PROJECT_CACHE_DIR/a",
    ));
    let told = env.ok(["history", REF]);
    assert!(told.contains("job night-7"), "{told}");
}

#[test]
fn a_ref_that_was_removed_comes_back_with_a_word() {
    let env = environment!();
    env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
    env.ok(["rm", REF, "--yes"]);
    let told = env.store(run(&[], "true"));
    assert_eq!(told.code, Some(0), "{told}");
    for words in [
        "project/llama/cache was removed",
        "`store undo project/llama/cache`",
    ] {
        assert!(told.stderr.contains(words), "{told}");
    }
    assert_eq!(newest(&env, REF), ["a=a"]);
    // There is also no message when the base is new.
    env.ok(["rm", REF, "--yes"]);
    fs::remove_dir_all(env.path("base")).unwrap();
    let told = env.store(run(&[], "true"));
    assert!(!told.stderr.contains("was removed"), "{told}");
}

#[test]
fn a_command_that_removes_its_cache_leaves_the_ref() {
    let env = environment!();
    env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
    let told = env.store(run(&[], "rm -rf $STORE_PROJECT_CACHE_DIR"));
    assert_eq!(told.code, Some(3), "{told}");
    assert!(
        told.stderr.contains("the command removed its cache"),
        "{told}"
    );
    let none = env.store(["save", "--pending"]);
    assert!(none.stderr.contains("nothing is to be saved"), "{none}");
    assert_eq!(env.ok(run(&[], "cat $STORE_PROJECT_CACHE_DIR/a")), "a\n");
}

#[test]
fn a_command_that_moves_its_cache_is_told_where_it_is() {
    let env = environment!();
    env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
    let script = "echo b > $STORE_PROJECT_CACHE_DIR/b; mv $STORE_PROJECT_CACHE_DIR elsewhere";
    let told = env.store(run(&[], script));
    assert_eq!(told.code, Some(3), "{told}");
    let (from, to) = (env.path("elsewhere"), env.path("base/project"));
    let way = format!("`mv -T {} {}`", from.display(), to.display());
    assert!(told.stderr.contains(&way), "{told}");
    fs::rename(&from, &to).unwrap();
    env.ok(["save", "--pending"]);
    assert_eq!(newest(&env, REF), ["a=a", "b=b"]);
    // The same if there is another directory in its place.
    let script = "echo c > $STORE_PROJECT_CACHE_DIR/c; mv $STORE_PROJECT_CACHE_DIR elsewhere; mkdir $STORE_PROJECT_CACHE_DIR";
    let told = env.store(run(&[], script));
    assert_ne!(told.code, Some(0), "{told}");
    assert!(told.stderr.contains(&way), "{told}");
    assert!(told.stderr.contains("move away what is in"), "{told}");
    // What is in its place is not the command's.
    fs::write(to.join("other"), "").unwrap();
    let told = env.store(["save", "--pending"]);
    assert_eq!(told.code, Some(6), "{told}");
    assert_eq!(newest(&env, REF), ["a=a", "b=b"]);
    fs::remove_file(to.join("other")).unwrap();
    // A run in between says what is missing.
    fs::remove_dir(&to).unwrap();
    let told = env.store(run(&[], "true"));
    assert!(told.stderr.contains("is not here any more"), "{told}");
}

#[test]
fn a_base_that_no_variable_can_name_is_refused_before_the_command() {
    use std::os::unix::ffi::OsStrExt;
    let env = environment!();
    let base = std::ffi::OsStr::from_bytes(b"b\xff");
    let mut command = env.command(["run", "--project", "llama", "--base"]);
    command.arg(base).args(["--", "touch", "started"]);
    let refused: support::Finished = command.output().unwrap().into();
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(!env.path("started").exists(), "{refused}");
}

#[test]
fn a_cluster_that_has_nothing_either_is_named() {
    let env = environment!();
    env.ok(["init", "there"]);
    env.ok(["cluster", "add", "h200", "there"]);
    for other in [false, true] {
        // In the first round the cluster has nothing, in the second only the project's cache.
        let options = ["--fallback", "h200", "--team", "vision"];
        if other {
            env.write("in/file", "far");
            env.ok(["put", "in", REF, "--store", "h200"]);
        }
        let told = env.store(run(&options, "true"));
        assert_eq!(told.code, Some(0), "{told}");
        let says = |name: &str| {
            told.stderr
                .contains(&format!("h200 does not have {name} either"))
        };
        assert_eq!(
            (says(REF), says("team/vision/cache")),
            (!other, true),
            "{told}"
        );
        fs::remove_dir_all(env.path("base")).unwrap();
        for name in [REF, "team/vision/cache"] {
            drop(env.store(["rm", name, "--yes"]));
        }
    }
}

#[test]
fn what_is_no_directory_is_told_before_the_command() {
    let env = environment!();
    env.write("file", "a file");
    env.ok(["put", "file", REF]);
    let refused = env.store(run(&[], "echo started"));
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(
        refused.stdout.is_empty() && refused.stderr.contains("is a file"),
        "{refused}"
    );
    // Another base would not help.
    assert!(!refused.stderr.contains("--base"), "{refused}");
    let advice = format!("`store rm {REF}@1`");
    assert!(refused.stderr.contains(&advice), "{refused}");
    env.ok(["rm", "--yes", REF]);
    let replaced = run(
        &[],
        "rmdir $STORE_PROJECT_CACHE_DIR; echo 1 > $STORE_PROJECT_CACHE_DIR",
    );
    env.store(replaced);
    let next = env.store(run(&[], "echo started"));
    assert_eq!(next.code, Some(5), "{next}");
    assert!(
        next.stdout.is_empty() && next.stderr.contains("move "),
        "{next}"
    );
}

/// Somebody removes the whole ref while a run or a tree of it is there: its save makes it again, and says so.
#[test]
fn a_save_that_brings_a_removed_ref_back_says_so() {
    let env = environment!();
    let told = format!("note: {REF} was removed, and is made again from what is in ");
    let first = env.store(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
    assert!(!first.stderr.contains("was removed"), "{first}");
    env.ok(["materialize", REF, "job"]);
    let program = env!("CARGO_BIN_EXE_store-under-test");
    let script = format!("echo b > $STORE_PROJECT_CACHE_DIR/b; '{program}' rm -y {REF}");
    let done = env.store(run(&[], &script));
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains(&told), "{done}");
    assert_eq!(newest(&env, REF), ["a=a", "b=b"]);
    env.ok(["rm", "-y", REF]);
    for words in [vec!["save", "job", "-n"], vec!["save", "job"]] {
        let saved = env.store(words);
        assert_eq!(saved.code, Some(0), "{saved}");
        assert!(saved.stderr.contains(&told), "{saved}");
        let hint = format!("`store rm {REF}` removes it once more");
        assert!(saved.stderr.contains(&hint), "{saved}");
    }
    let again = env.store(["save", "job"]);
    assert!(!again.stderr.contains("was removed"), "{again}");
}
