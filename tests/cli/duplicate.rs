//! Push, pull and duplicate between directories: what is transferred and reported, and exit codes.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Finished, Random, TestEnvironment, assert_same_tree, check, environment, trees};

pub(crate) const REF: &str = "project/demo/data";
/// Slow enough that a run lasts until the test has looked at it.
pub(crate) const SLOW: [&str; 2] = ["--bwlimit", "50k"];

/// A store with two versions of a ref, and an empty cluster `h200`.
pub(crate) fn two_stores() -> TestEnvironment {
    let env = environment!();
    for number in 0..2 {
        let tree = number.to_string();
        trees::version(&env.path(&tree), 5, number, 1_000_000);
        env.ok(["put", &tree, REF]);
    }
    env.ok(["init", "far"]);
    env.ok(["cluster", "add", "h200", "far"]);
    env
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

pub(crate) fn status(env: &TestEnvironment) -> Value {
    json(&env.ok(["--json", "duplicate", "--status"]))
}

pub(crate) fn spawn(env: &TestEnvironment, arguments: &[&str]) -> Child {
    let mut command = env.command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

pub(crate) fn finish(child: Child) -> Finished {
    child.wait_with_output().unwrap().into()
}

/// Waits until `ready` returns true.
pub(crate) fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !ready() {
        assert!(Instant::now() < deadline, "there never was {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the status of the only job is running.
pub(crate) fn wait_until_it_runs(env: &TestEnvironment) {
    wait_until("a run", || {
        let told = env.store(["--json", "duplicate", "--status"]).stdout;
        serde_json::from_slice::<Value>(&told).is_ok_and(|status| {
            status["runs"][0]["outcome"] == "running" && !status["stores"].is_null()
        })
    });
}

#[test]
fn a_push_brings_the_newest_version_and_the_next_one_brings_nothing() {
    let env = two_stores();
    let report = json(&env.ok(["--json", "push", REF, "h200"]));
    let line = &report["refs"][0];
    assert_eq!(
        (&line["status"], &line["from_version"], &line["version"]),
        (&"published".into(), &2.into(), &1.into())
    );
    assert!(report["sent_bytes"].as_u64().unwrap() > 0, "{report}");
    env.ok(["get", "--store", "h200", REF, "out"]);
    assert_same_tree(&env.path("1"), &env.path("out"));
    env.ok(["verify", "--store", "h200", "--read-data"]);
    let again = json(&env.ok(["--json", "push", REF, "h200"]));
    assert_eq!(
        (&again["refs"][0]["status"], &again["sent_bytes"]),
        (&"unchanged".into(), &0.into())
    );
    let one = json(&env.ok(["--json", "push", &format!("{REF}@1"), "h200"]));
    assert_eq!(one["refs"][0]["from_version"], 1);
}

#[test]
fn a_pull_fetches_versions_and_makes_the_embedded_store() {
    let env = two_stores();
    env.ok([
        "duplicate",
        "project/demo",
        "--from",
        "home/.local/share/store",
        "--to",
        "h200",
        "--versions",
        "all",
    ]);
    let mut pull = env.command(["--json", "pull", "h200", &format!("{REF}@1")]);
    let output: Finished = pull
        .env("XDG_DATA_HOME", env.path("data"))
        .output()
        .unwrap()
        .into();
    assert_eq!(output.code, Some(0), "{output}");
    let mut get = env.command(["get", REF, "out"]);
    let got = get.env("XDG_DATA_HOME", env.path("data")).output().unwrap();
    assert!(got.status.success());
    assert_same_tree(&env.path("0"), &env.path("out"));
}

/// `here` is the selected store, as in `store where`.
#[test]
fn here_is_the_store_of_all_other_verbs() {
    let env = two_stores();
    env.ok(["duplicate", REF, "--from", "here", "--to", "h200"]);
    env.ok(["--store", "h200", "get", REF, "out"]);
    env.ok(["rm", REF, "--yes"]);
    env.ok(["duplicate", REF, "--from", "h200", "--to", "here"]);
    env.ok(["get", REF, "back"]);
    let same = env.store(["duplicate", REF, "--from", "here", "--to", "here"]);
    assert_eq!(same.code, Some(2), "{same}");
}

#[test]
fn what_does_not_exist_is_3_and_one_store_is_not_two() {
    let env = two_stores();
    check!(env, env.store(["push", REF, "b200"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: b200: no such cluster
    hint: did you mean h200? list them with `store cluster ls`, or say where it is with `store cluster add b200 URL`
    ");
    let missing = env.store(["push", "project/demo/nothing", "h200"]);
    assert_eq!(missing.code, Some(3), "{missing}");
    assert!(
        missing
            .stderr
            .contains("error: project/demo/nothing: no such ref"),
        "{missing}"
    );
    check!(env, env.store(["duplicate", REF, "--from", "h200", "--to", "far"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: file://[ROOT]/far and file://[ROOT]/far are the same store, [ID]
    hint: name two stores; a store that was copied as a directory keeps its id
    ");
    let nowhere = env.store(["duplicate", "--job", "nightly"]);
    assert_eq!(nowhere.code, Some(3), "{nowhere}");
    assert_eq!(
        env.store(["duplicate", "--status", "nightly"]).code,
        Some(3)
    );
    assert_eq!(
        env.store(["duplicate", REF, "--from", "h200"]).code,
        Some(2)
    );
}

#[test]
fn refs_that_do_not_make_it_are_named_with_their_reason() {
    let env = two_stores();
    let finished = env.store(["push", "project/demo/nothing", REF, "h200"]);
    assert_eq!(finished.code, Some(6), "{finished}");
    assert!(
        finished
            .stderr
            .contains("failed: project/demo/nothing: no such ref"),
        "{finished}"
    );
    assert!(
        finished
            .stderr
            .contains("error: 1 of 2 refs did not make it"),
        "{finished}"
    );
    env.ok(["get", "--store", "h200", REF, "out"]);
    let told = status(&env);
    assert_eq!(told["runs"][0]["outcome"], "partly");
    let machine = env.store([
        "--json",
        "duplicate",
        "project/demo/nothing",
        REF,
        "--from",
        "home/.local/share/store",
        "--to",
        "h200",
        "--metrics-file",
        "job.prom",
    ]);
    assert_eq!(machine.code, Some(6), "{machine}");
    let report = json(str::from_utf8(&machine.stdout).unwrap());
    let lines = report["refs"].as_array().unwrap();
    let failed = lines
        .iter()
        .find(|line| line["status"] == "failed")
        .unwrap();
    assert_eq!(failed["error"], "project/demo/nothing: no such ref");
    let error = json(machine.stderr.lines().last().unwrap());
    assert_eq!(
        (&error["kind"], &error["exit_code"]),
        (&"Partial".into(), &6.into())
    );
    let measured = std::fs::read_to_string(env.path("job.prom")).unwrap();
    assert!(
        measured.contains("\nstore_duplicate_failed_refs{job="),
        "{measured}"
    );
    assert!(!measured.contains("last_success"), "{measured}");
    assert_eq!(told["errors"][0]["ref"], "project/demo/nothing");
    let job = told["job"].as_str().unwrap();
    let text = env.ok(["duplicate", "--status", job]);
    assert!(text.contains("\nfailed: project/demo/nothing: "), "{text}");
}

#[test]
fn a_job_of_the_configuration_is_run_told_of_and_measured() {
    let env = two_stores();
    let path = env.path("home/.config/store/config.toml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    // A relative path starts at the directory of the configuration, wherever a command runs.
    text += "[job.nightly]\nfrom = \"../../.local/share/store\"\nto = \"h200\"\nrefs = [\"project/demo\"]\n\
             versions = \"all\"\nbwlimit = \"200MB\"\nverify = true\n";
    std::fs::write(&path, &text).unwrap();
    let never = env.ok(["duplicate", "--status"]);
    let words: Vec<&str> = never.split_whitespace().collect();
    assert!(
        words.ends_with(&[
            "nightly",
            "never",
            env.path("home/.config/store/../../.local/share/store")
                .to_str()
                .unwrap(),
            "h200",
            "project/demo"
        ]),
        "{never}"
    );
    let never = env.ok(["duplicate", "--status", "nightly"]);
    assert!(never.ends_with("\nnever run on this host\n"), "{never}");
    let metrics = env.path("job.prom");
    let run = [
        "--json",
        "duplicate",
        "--job",
        "nightly",
        "--metrics-file",
        metrics.to_str().unwrap(),
    ];
    let report = json(&env.ok(run));
    assert_eq!(report["refs"].as_array().unwrap().len(), 2, "{report}");
    let measured = std::fs::read_to_string(&metrics).unwrap();
    for line in [
        "\nstore_duplicate_published_versions{job=\"nightly\"} 2\n",
        "\n# TYPE store_duplicate_last_success_timestamp_seconds gauge\nstore_duplicate_last",
    ] {
        assert!(measured.contains(line), "{measured}");
    }
    let told = json(&env.ok(["--json", "duplicate", "--status", "nightly"]));
    assert_eq!(
        (&told["to"], &told["runs"][0]["outcome"]),
        (&"h200".into(), &"done".into())
    );
    // The destination is missing: the journal records that too, and the metrics keep the last success.
    std::fs::rename(env.path("far"), env.path("away")).unwrap();
    assert_eq!(env.store(run).code, Some(3));
    let told = json(&env.ok(["--json", "duplicate", "--status", "nightly"]));
    assert_eq!(told["runs"][0]["outcome"], "failed");
    let later = std::fs::read_to_string(&metrics).unwrap();
    let success = |text: &str| text.lines().last().unwrap().to_owned();
    assert!(success(&measured).starts_with("store_duplicate_last_success_timestamp_seconds{"));
    assert_eq!(success(&later), success(&measured));
    let crontab = env.ok(["duplicate", "--job", "nightly", "--crontab"]);
    assert!(crontab.starts_with("17 3 * * * /"), "{crontab}");
    assert!(crontab.ends_with(" duplicate --job nightly\n"), "{crontab}");
    let unit = env.ok(["duplicate", "--job", "nightly", "--systemd"]);
    assert!(unit.contains("/store-duplicate-nightly.timer\n"), "{unit}");
    text = text.replace("\"project/demo\"", "\"nonsense\"");
    std::fs::write(&path, &text).unwrap();
    let wrong = env.store(["duplicate", "--job", "nightly"]);
    assert_eq!(wrong.code, Some(2), "{wrong}");
    assert!(wrong.stderr.contains("error: job nightly: "), "{wrong}");
}

#[test]
fn a_dry_run_tells_the_time_where_it_can_and_does_nothing() {
    let env = two_stores();
    let text = env.ok(["push", REF, "h200", "--dry-run"]);
    assert!(text.contains("1 version would be published, "), "{text}");
    assert!(
        text.ends_with("nothing is done, estimated time: unknown\n"),
        "{text}"
    );
    let dry = json(&env.ok([
        "--json",
        "push",
        REF,
        "h200",
        "--dry-run",
        "--bwlimit",
        "1k",
    ]));
    let (bytes, secs) = (dry["sent_bytes"].as_u64().unwrap(), &dry["estimated_secs"]);
    assert!(bytes > 0 && dry["chunks"].as_u64().unwrap() > 0, "{dry}");
    assert_eq!(
        secs.as_f64().unwrap(),
        f64::from(u32::try_from(bytes).unwrap()) / 1000.0
    );
    assert_eq!(env.store(["history", "--store", "h200", REF]).code, Some(3));
    assert!(!env.path("home/.local/state").exists());
    // The dry run predicted what is sent, except for a chunk or two of metadata.
    let done = json(&env.ok(["--json", "push", REF, "h200"]));
    let sent = done["sent_bytes"].as_u64().unwrap();
    assert!(sent.abs_diff(bytes) < bytes / 50, "{dry}\n{done}");
}

#[test]
fn a_dry_run_tells_the_time_by_the_rate_of_earlier_runs() {
    let env = two_stores();
    env.write("large/file", Random::new(3).bytes(3_000_000));
    env.ok(["put", "large", "project/demo/large"]);
    env.ok(["push", "project/demo/large", "h200"]);
    let dry = json(&env.ok(["--json", "push", REF, "h200", "--dry-run"]));
    assert!(dry["estimated_secs"].as_f64().is_some(), "{dry}");
}

#[test]
fn two_runs_of_one_job_do_not_meet() {
    let env = two_stores();
    let path = env.path("home/.config/store/config.toml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text += "[job.nightly]\nfrom = \"../../.local/share/store\"\nto = \"h200\"\nrefs = [\"project/demo\"]\n";
    std::fs::write(&path, text).unwrap();
    let first = spawn(&env, &["duplicate", "--job", "nightly", SLOW[0], SLOW[1]]);
    wait_until_it_runs(&env);
    let second = env.ok(["duplicate", "--job", "nightly"]);
    let said = format!("nothing done: process {} runs this job since ", first.id());
    assert!(second.starts_with(&said), "{second}");
    let told = env.ok(["duplicate", "--status", "nightly"]);
    assert!(
        told.contains(&format!("now   process {} runs it since", first.id())),
        "{told}"
    );
    kill_process(Pid::from_child(&first), Signal::KILL).unwrap();
    assert_eq!(finish(first).code, None);
    assert_eq!(status(&env)["runs"][0]["outcome"], "killed");
    env.ok(["duplicate", "--job", "nightly"]);
    env.ok(["get", "--store", "h200", REF, "out"]);
    // For a job without a name, the second run fails.
    env.write("more", Random::new(8).bytes(900_000));
    env.ok(["put", "more", "project/demo/more"]);
    let first = spawn(
        &env,
        &["push", "project/demo/more", "h200", SLOW[0], SLOW[1]],
    );
    let second = || env.store(["push", "project/demo/more", "h200", "--bwlimit", "60k"]);
    wait_until("a second run", || {
        let told = env.ok(["duplicate", "--status"]);
        told.contains(" running ")
    });
    let refused = second();
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(
        refused.stderr.contains("error: nothing done: process "),
        "{refused}"
    );
    kill_process(Pid::from_child(&first), Signal::KILL).unwrap();
    assert_eq!(finish(first).code, None);
    env.ok(["push", "project/demo/more", "h200"]);
}

#[test]
fn what_the_source_no_longer_has_goes_with_delete_but_for_pins() {
    let env = two_stores();
    let all = [
        "duplicate",
        "project/demo",
        "--from",
        "home/.local/share/store",
        "--to",
        "h200",
        "--versions",
        "all",
    ];
    env.write("other", "text");
    env.ok(["put", "other", "project/demo/other"]);
    env.ok(all);
    env.ok(["pin", "--store", "h200", &format!("{REF}@1")]);
    for gone in ["project/demo/other", &format!("{REF}@1")] {
        env.ok(["rm", gone]);
    }
    let report = json(&env.ok(["--json"].into_iter().chain(all)));
    assert_eq!(
        (&report["dropped"], &report["kept_pinned"]),
        (&json("[]"), &json("[]"))
    );
    let deleted = || {
        let options = ["--json", "--delete", "--verify"];
        all.into_iter().chain(options)
    };
    let dry = json(&env.ok(deleted().chain(["--dry-run"])));
    assert_eq!(dry["dropped"][0], "project/demo/other@1", "{dry}");
    env.ok(["history", "--store", "h200", "project/demo/other"]);
    let report = json(&env.ok(deleted()));
    assert_eq!(report["dropped"], dry["dropped"]);
    assert_eq!(report["kept_pinned"], json(&format!("[\"{REF}@1\"]")));
    assert_eq!(
        env.store(["history", "--store", "h200", "project/demo/other"])
            .code,
        Some(3)
    );
}

#[test]
fn where_nothing_can_be_remembered_a_push_works_all_the_same() {
    let env = two_stores();
    let file = env.write("file", "no directory");
    let mut push = env.command(["push", REF, "h200"]);
    let finished: Finished = push.env("XDG_STATE_HOME", file).output().unwrap().into();
    assert_eq!(finished.code, Some(0), "{finished}");
    assert!(
        finished
            .stderr
            .contains("note: there is no journal, and this run is not remembered: "),
        "{finished}"
    );
}

/// A rule that keeps one version drops what the other source transferred; afterwards nothing shows that it existed.
#[test]
fn who_takes_the_place_of_what_another_source_brought_is_told() {
    let env = environment!();
    env.ok(["init", "central"]);
    env.ok([
        "--store",
        "central",
        "policy",
        "keep",
        "project/*",
        "--last",
        "1",
    ]);
    let bring = |source: &str| {
        let words = [
            "duplicate",
            "--quiet",
            REF,
            "--from",
            source,
            "--to",
            "central",
        ];
        let done = env.store(words);
        assert_eq!(done.code, Some(0), "{done}");
        env.ok(["--store", "central", "gc", "--grace", "0"]);
        done.stderr
    };
    for source in ["one", "two"] {
        env.ok(["init", source]);
        env.write("in/file", source);
        env.ok(["--store", source, "put", "in", REF]);
    }
    assert_eq!(bring("one"), "");
    for (source, newest) in [("two", 1), ("one", 2), ("two", 3)] {
        let told = bring(source);
        let expected = format!(
            "becomes the newest there, on top of version {newest}, which came from the store"
        );
        assert!(told.contains(&expected), "{source}: {told}");
        assert!(told.contains("two writers share this ref"), "{told}");
    }
    // A single source causes no message, whatever its own rules dropped.
    assert_eq!(bring("two"), "");
    env.write("in/file", "three");
    env.ok(["--store", "two", "put", "in", REF]);
    env.ok(["--store", "two", "rm", "--yes", &format!("{REF}@1")]);
    assert_eq!(bring("two"), "");
    // A version that was put at the destination is somebody's work, too.
    env.write("in/file", "mine");
    env.ok(["--store", "central", "put", "in", REF]);
    env.write("in/file", "four");
    env.ok(["--store", "two", "put", "in", REF]);
    assert!(bring("two").contains("which was put there"));
}
