//! Commands with the caches of their project: directories, saves, signals, exit codes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::{Finished, TestEnvironment, environment};

pub(crate) const REF: &str = "project/llama/cache";

pub(crate) fn run<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let before = ["run", "--project", "llama", "--base", "base"];
    let command = ["--", "/bin/sh", "-c", script];
    [&before, options, &command].concat()
}

/// The files of the newest version, with their content.
pub(crate) fn newest(env: &TestEnvironment, name: &str) -> Vec<String> {
    let listed = env.ok(["ls", name, "--recursive", "--json"]);
    let entries = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let files = entries.filter(|entry| entry["type"] == "file" || entry["kind"] == "file");
    files
        .map(|entry| {
            let path = entry["path"].as_str().unwrap().to_owned();
            let text = env.ok(["cat", &format!("{name}:{path}")]);
            format!("{path}={}", text.trim_end())
        })
        .collect()
}

pub(crate) fn start(env: &TestEnvironment, options: &[&str], script: &str) -> Child {
    let mut command: Command = env.command(run(options, script));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Reads a line of the command's output.
pub(crate) fn line(child: &mut Child) -> String {
    let mut said = String::new();
    let out = child.stdout.as_mut().unwrap();
    BufReader::with_capacity(1, out)
        .read_line(&mut said)
        .unwrap();
    said
}

pub(crate) fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_new_project_begins_empty_and_the_next_job_finds_what_was_made() {
    let env = environment!();
    let made = env.store(run(
        &[],
        "echo made > $STORE_PROJECT_CACHE_DIR/file; echo out; echo err >&2",
    ));
    assert_eq!(made.code, Some(0), "{made}");
    assert_eq!(made.stdout, b"out\n");
    assert!(
        made.stderr.contains("err\n") && made.stderr.contains("project/llama/cache@1"),
        "{made}"
    );
    assert_eq!(newest(&env, REF), ["file=made"]);
}

#[test]
fn jobs_find_what_others_left_wherever_they_run() {
    let env = environment!();
    env.ok(run(&[], "echo one > $STORE_PROJECT_CACHE_DIR/one"));
    let elsewhere = [
        "run",
        "--project",
        "llama",
        "--base",
        "other",
        "--",
        "/bin/sh",
        "-c",
        "cat $STORE_PROJECT_CACHE_DIR/one; echo two > $STORE_PROJECT_CACHE_DIR/two",
    ];
    assert_eq!(env.ok(elsewhere), "one\n");
    // A directory that began empty is a tree of the ref from the second run on.
    let again = env.ok(run(&[], "cat $STORE_PROJECT_CACHE_DIR/one $STORE_PROJECT_CACHE_DIR/two; rm $STORE_PROJECT_CACHE_DIR/one"));
    assert_eq!(again, "one\ntwo\n");
    assert_eq!(newest(&env, REF), ["two=two"]);
    let third = env.ok(elsewhere.map(|word| {
        if word.starts_with("cat") {
            "ls $STORE_PROJECT_CACHE_DIR"
        } else {
            word
        }
    }));
    assert_eq!(third, "two\n");
}

#[test]
fn places_and_variables_are_those_of_the_layout() {
    let env = environment!();
    let told = env.ok(run(
        &["--team", "vision", "--layout", "baseten"],
        "echo $BT_PROJECT_CACHE_DIR $BT_TEAM_CACHE_DIR $BT_RW_CACHE_DIR $HF_HOME $HF_DATASETS_CACHE; \
         echo x > base/huggingface/x; echo y > $BT_TEAM_CACHE_DIR/y; readlink base/huggingface",
    ));
    let base = env.path("base").display().to_string();
    let project = format!("{base}/user_artifacts");
    let expected = format!(
        "{project} {base}/team_artifacts {base} {project}/huggingface {project}/huggingface/datasets\n{project}/huggingface\n"
    );
    assert_eq!(told, expected);
    assert_eq!(newest(&env, REF), ["huggingface/x=x"]);
    assert_eq!(newest(&env, "team/vision/cache"), ["y=y"]);
    env.write(
        "home/.config/store/config.toml",
        "[layout.ours]\nproject = \"p\"\nteam = \"t\"\nenv.CACHE = \"{project}/c\"\nenv.JOB = \"{job}\"\n",
    );
    let told = env.ok(run(
        &["--layout", "ours", "--job", "j7"],
        "echo $CACHE $JOB",
    ));
    assert_eq!(told, format!("{base}/p/c j7\n"));
    let none = env.store(run(&["--layout", "our"], "true"));
    assert_eq!(none.code, Some(2), "{none}");
    assert!(
        none.stderr
            .contains("there are plain, baseten, baseten-rw-project, ours"),
        "{none}"
    );
    env.write(
        "home/.config/store/config.toml",
        "[layout.ours]\nproject = \"../p\"\nteam = \"t\"\n",
    );
    let outside = env.store(run(&["--layout", "ours"], "true"));
    assert_eq!(outside.code, Some(2), "{outside}");
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let env = environment!();
    let failed = env.store(run(
        &[],
        "echo kept > $STORE_PROJECT_CACHE_DIR/kept; exit 7",
    ));
    assert_eq!(failed.code, Some(7), "{failed}");
    // Files that a job made before it failed are saved.
    assert_eq!(newest(&env, REF), ["kept=kept"]);
    let killed = env.store(run(&[], "kill -9 $$"));
    assert_eq!(killed.code, Some(137), "{killed}");
    let missing = env.store([
        "run",
        "--project",
        "llama",
        "--base",
        "base",
        "--",
        "/no/such/program",
    ]);
    assert_eq!(missing.code, Some(127), "{missing}");
    assert!(missing.stderr.contains("run /no/such/program"), "{missing}");
    // Nothing is saved of a command that could not be started, and its base starts the next one.
    env.write("text", "no program");
    for (program, code) in [("typo", 127), ("./text", 126)] {
        for _ in 0..2 {
            let new = ["run", "--project", "new", "--base", "new", "--", program];
            let missing = env.store(new);
            assert_eq!(missing.code, Some(code), "{missing}");
        }
    }
    let none = env.store(["ls", "project/new/cache"]);
    assert_eq!(none.code, Some(3), "{none}");
    let pending = env.store(["save", "--pending"]);
    assert!(
        pending.stderr.contains("nothing is to be saved"),
        "{pending}"
    );
    let wrong = env.store(["run", "--project", "no/pe", "--base", "base", "--", "true"]);
    assert_eq!(wrong.code, Some(2), "{wrong}");
}

#[test]
fn a_termination_reaches_the_command_and_what_it_made_is_saved() {
    let env = environment!();
    let script = "trap 'echo late > $STORE_PROJECT_CACHE_DIR/late; exit 3' TERM; \
                  echo early > $STORE_PROJECT_CACHE_DIR/early; echo ready; while :; do sleep 0.05; done";
    let mut child = start(&env, &[], script);
    assert_eq!(line(&mut child), "ready\n");
    signal(&child, rustix::process::Signal::TERM);
    let done = Finished::from(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(3), "{done}");
    assert_eq!(newest(&env, REF), ["early=early", "late=late"]);
}

/// A command that ignores the request to stop is saved while it runs, before everything is killed.
#[test]
fn a_command_that_will_not_end_is_saved_within_its_grace() {
    let env = environment!();
    let script = "trap '' TERM; echo early > $STORE_PROJECT_CACHE_DIR/early; echo ready; \
                  while [ ! -e go ]; do sleep 0.05; done";
    let mut child = start(&env, &["--grace", "0s"], script);
    assert_eq!(line(&mut child), "ready\n");
    signal(&child, rustix::process::Signal::TERM);
    let is_saved = || env.store(["ls", REF]).code == Some(0);
    while !is_saved() {
        assert!(child.try_wait().unwrap().is_none(), "ended too soon");
    }
    env.write("go", "");
    let done = Finished::from(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(0), "{done}");
}

#[test]
fn it_is_saved_meanwhile_where_that_is_asked_for() {
    let env = environment!();
    let script =
        "echo 1 > $STORE_PROJECT_CACHE_DIR/one; echo ready; while [ ! -e go ]; do sleep 0.05; done";
    let mut child = start(&env, &["--save-every", "1s"], script);
    assert_eq!(line(&mut child), "ready\n");
    while env.store(["ls", REF]).code != Some(0) {
        assert!(child.try_wait().unwrap().is_none(), "ended too soon");
    }
    // After the kill, the ref has what was saved; the next run saves the rest.
    env.write("base/project/two", "2");
    child.kill().unwrap();
    child.wait().unwrap();
    env.write("go", "");
    assert_eq!(newest(&env, REF), ["one=1"]);
    let next = env.store(run(&[], "true"));
    assert!(
        next.code == Some(0)
            && next
                .stderr
                .contains("what an earlier run left here was saved"),
        "{next}"
    );
    assert_eq!(newest(&env, REF), ["one=1", "two=2"]);
}

#[test]
fn a_cache_that_is_elsewhere_is_named_or_brought() {
    let env = environment!();
    env.ok(["init", "there"]);
    env.ok(["cluster", "add", "h200", "there"]);
    env.write("in/file", "far");
    env.ok(["put", "in", REF, "--store", "h200"]);
    let refused = env.store(run(&["--require-local"], "echo never"));
    assert_eq!(refused.code, Some(3), "{refused}");
    assert!(
        refused.stdout.is_empty() && refused.stderr.contains("h200 has it"),
        "{refused}"
    );
    env.ok(["put", "in", "team/vision/cache", "--store", "h200"]);
    // A cluster that has lost its log must not count as empty.
    fs::rename(env.path("there/log"), env.path("log")).unwrap();
    let unknown = env.store(run(&["--fallback", "h200"], "echo never"));
    assert!(
        unknown.code == Some(4) && unknown.stdout.is_empty(),
        "{unknown}"
    );
    fs::rename(env.path("log"), env.path("there/log")).unwrap();
    let brought = env.ok(run(
        &["--fallback", "h200", "--team", "vision"],
        "cat $STORE_PROJECT_CACHE_DIR/file $STORE_TEAM_CACHE_DIR/file",
    ));
    assert_eq!(brought, "farfar");
    assert_eq!(env.ok(run(&["--require-local"], "echo here")), "here\n");
}

#[test]
fn what_cannot_be_saved_is_kept_and_named() {
    let env = environment!();
    env.ok(run(&[], "true"));
    let store = env.path("home/.local/share/store");
    let (log, away) = (store.join("log"), env.path("log"));
    let script = format!(
        "echo new > $STORE_PROJECT_CACHE_DIR/new; mv {0} {1}; : > {0}",
        log.display(),
        away.display()
    );
    let failed = env.store(run(&[], &script));
    assert_eq!(failed.code, Some(1), "{failed}");
    assert!(
        failed.stderr.contains("project/llama/cache: not saved"),
        "{failed}"
    );
    assert!(
        failed.stderr.contains("`store save --pending` saves it"),
        "{failed}"
    );
    fs::remove_file(&log).unwrap();
    fs::rename(&away, &log).unwrap();
    env.ok(["save", "--pending"]);
    assert_eq!(newest(&env, REF), ["new=new"]);
}

#[test]
fn a_store_that_is_gone_when_a_job_ends_gets_what_it_made_later() {
    let env = environment!();
    env.ok(["init", "shared"]);
    let (store, away) = (env.path("shared"), env.path("away"));
    let script = format!(
        "echo new > $STORE_PROJECT_CACHE_DIR/new; mv {} {}",
        store.display(),
        away.display()
    );
    let store_text = store.display().to_string();
    let failed = env.store([&["--store", &store_text], &run(&[], &script)[..]].concat());
    assert_eq!(failed.code, Some(1), "{failed}");
    assert!(failed.stderr.contains("--pending` saves it"), "{failed}");
    fs::rename(&away, &store).unwrap();
    env.ok(["--store", &store_text, "save", "--pending"]);
    let found = env.ok(["--store", &store_text, "cat", &format!("{REF}:new")]);
    assert_eq!(found, "new\n");
}

#[test]
fn a_job_that_deletes_its_cache_leaves_a_fifo_or_a_token_loses_nothing_of_others() {
    let env = environment!();
    env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
    let emptied = env.store(run(&[], "rm $STORE_PROJECT_CACHE_DIR/*"));
    assert_eq!(emptied.code, Some(5), "{emptied}");
    assert!(
        emptied
            .stderr
            .contains("is empty, and project/llama/cache@1 is not"),
        "{emptied}"
    );
    // The options in a hint must exist.
    let hint = format!("`store save {} {REF}`", env.path("base/project").display());
    assert!(emptied.stderr.contains(&hint), "{emptied}");
    let next = env.ok(run(&[], "cat $STORE_PROJECT_CACHE_DIR/a"));
    assert_eq!(next, "a\n");
    assert_eq!(newest(&env, REF), ["a=a"]);
    fs::remove_dir_all(env.path("base")).unwrap();
    let gone = env.store(run(&[], "rm -r $STORE_PROJECT_CACHE_DIR"));
    assert_eq!(gone.code, Some(3), "{gone}");
    fs::remove_dir_all(env.path("base")).unwrap();
    let pipe = env.store(run(&[], "cd $STORE_PROJECT_CACHE_DIR; mkfifo pipe; echo b > b; mkdir huggingface; echo hf_x > huggingface/token; : > huggingface/x.lock"));
    assert_eq!(pipe.code, Some(6), "{pipe}");
    assert!(pipe.stderr.contains("pipe: expected a file"), "{pipe}");
    assert_eq!(newest(&env, REF), ["a=a", "b=b"]);
    // The exit code shows the job's own failure.
    let failed = env.store(run(&[], "rm -r $STORE_PROJECT_CACHE_DIR; exit 9"));
    assert_eq!(failed.code, Some(9), "{failed}");
}

#[test]
fn a_base_that_cannot_be_written_is_told_before_the_command() {
    let env = environment!();
    env.write("base", "a file");
    let refused = env.store(run(&[], "echo never"));
    assert!(
        refused.code != Some(0) && refused.stdout.is_empty(),
        "{refused}"
    );
    assert!(
        refused.stderr.contains("the command was not started"),
        "{refused}"
    );
}

#[test]
fn too_little_room_is_told_before_the_command() {
    let env = environment!();
    let refused = env.store(run(&["--free", "1000000TB"], "echo never"));
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(
        refused.stdout.is_empty() && refused.stderr.contains("are free, expected"),
        "{refused}"
    );
    assert_eq!(env.ok(run(&["--free", "1kB"], "echo ran")), "ran\n");
}

#[test]
fn a_team_cache_that_cannot_be_saved_is_a_warning() {
    let env = environment!();
    let script = "echo mine > $STORE_PROJECT_CACHE_DIR/mine; \
                  rm -r $STORE_TEAM_CACHE_DIR";
    let done = env.store(run(&["--team", "vision"], script));
    assert_eq!(done.code, Some(0), "{done}");
    assert!(
        done.stderr
            .contains("warning: team/vision/cache: not saved"),
        "{done}"
    );
    assert_eq!(newest(&env, REF), ["mine=mine"]);
    let none = env.store(["ls", "team/vision/cache"]);
    assert_eq!(none.code, Some(3), "{none}");
}

/// A change between two runs is neither lost nor mistaken for leftovers of a run.
#[test]
fn what_was_changed_between_runs_is_kept_and_saved_by_the_next() {
    let env = environment!();
    env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
    for round in ["begun empty", "a tree"] {
        fs::remove_file(env.path("base/project/a")).unwrap();
        env.write("base/project/a", round);
        assert_eq!(env.ok(run(&[], "cat $STORE_PROJECT_CACHE_DIR/a")), round);
        assert_eq!(newest(&env, REF), [format!("a={round}")]);
    }
}

#[test]
fn a_base_of_another_project_is_refused() {
    let env = environment!();
    env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
    for _ in 0..2 {
        let other = env.store([
            "run",
            "--project",
            "other",
            "--base",
            "base",
            "--",
            "echo",
            "never",
        ]);
        assert!(other.code == Some(5) && other.stdout.is_empty(), "{other}");
        assert!(
            other.stderr.contains("holds project/llama/cache"),
            "{other}"
        );
        // In the second round, the directory is a tree of the ref.
        env.ok(run(&[], "true"));
    }
}

/// The first run was killed before any save, and another job has created the ref meanwhile.
#[test]
fn what_a_killed_first_run_left_is_saved_into_what_others_made() {
    let env = environment!();
    let mut child = start(
        &env,
        &[],
        "echo one > $STORE_PROJECT_CACHE_DIR/one; echo ready; while [ ! -e go ]; do sleep 0.05; done",
    );
    assert_eq!(line(&mut child), "ready\n");
    child.kill().unwrap();
    child.wait().unwrap();
    env.write("go", "");
    let elsewhere = [
        "run",
        "--project",
        "llama",
        "--base",
        "other",
        "--",
        "/bin/sh",
        "-c",
        "echo two > $STORE_PROJECT_CACHE_DIR/two",
    ];
    env.ok(elsewhere);
    assert_eq!(newest(&env, REF), ["two=two"]);
    let next = env.ok(run(&[], "cat $STORE_PROJECT_CACHE_DIR/*"));
    assert_eq!(next, "one\ntwo\n");
    assert_eq!(newest(&env, REF), ["one=one", "two=two"]);
}

#[test]
fn locks_of_clients_stay_out_and_files_that_are_only_called_so_do_not() {
    let env = environment!();
    let script = "cd $STORE_PROJECT_CACHE_DIR && put() { mkdir -p $(dirname $1) && echo x > $1; }
        repo=huggingface/hub/models--a--b
        put code/Cargo.lock; put $repo/snapshots/c0/sub/poetry.lock; put $repo/snapshots/c0/.locks/in
        put $repo/.no_exist/c0/x.lock; put $repo/blobs/ab.lock; put $repo/blobs/ab.incomplete
        put huggingface/hub/.locks/models--a--b/ab.lock; put huggingface/datasets/_x_builder.lock
        put huggingface/datasets/x/y.lock.soft; put neuron/MODULE_1/model.lock; put inductor/locks/a.lock";
    env.ok(run(&[], script));
    let repo = "huggingface/hub/models--a--b";
    let saved = [
        "code/Cargo.lock=x".to_owned(),
        format!("{repo}/.no_exist/c0/x.lock=x"),
        format!("{repo}/snapshots/c0/.locks/in=x"),
        format!("{repo}/snapshots/c0/sub/poetry.lock=x"),
    ];
    assert_eq!(newest(&env, REF), saved);
}
