//! Jobs that fail: a replaced source, mistakes in names, and metrics that report it.

use support::TestEnvironment;

use crate::duplicate::{REF, json, two_stores};

/// A job `nightly` from the embedded store to `h200`, with additional lines.
fn nightly(env: &TestEnvironment, refs: &str, more: &str) {
    let path = env.path("home/.config/store/config.toml");
    let mut text = std::fs::read_to_string(&path).unwrap_or_default();
    text += &format!(
        "[job.nightly]\nfrom = \"../../.local/share/store\"\nto = \"h200\"\nrefs = {refs}\n{more}\n"
    );
    std::fs::write(&path, text).unwrap();
}

#[test]
fn a_job_whose_source_is_another_store_by_now_drops_nothing_with_or_without_its_journal() {
    let env = two_stores();
    env.write("other", "text");
    env.ok(["put", "other", "project/demo/other"]);
    nightly(
        &env,
        "[\"project/demo\"]",
        "delete = true\nversions = \"all\"",
    );
    let job = ["duplicate", "--job", "nightly"];
    env.ok(job);
    // The disk of the source is missing, and somebody creates a new embedded store in its place.
    std::fs::rename(env.path("home/.local/share/store"), env.path("away")).unwrap();
    env.ok(["init"]);
    env.ok(["put", "other", "project/demo/new"]);
    let before = env.ok(["ls", "--store", "h200", "project/demo"]);
    let refused = env.store(job);
    assert_eq!(refused.code, Some(5), "{refused}");
    for words in [
        "the last run took from store ",
        "project/demo/data@1, ",
        "--delete-all",
    ] {
        assert!(refused.stderr.contains(words), "{refused}");
    }
    // The refused run does not change what the next run compares with.
    assert_eq!(env.store(job).code, Some(5));
    let dry = env.store(job.into_iter().chain(["--dry-run"]));
    assert_eq!(dry.code, Some(5), "{dry}");
    std::fs::remove_dir_all(env.path("home/.local/state")).unwrap();
    let refused = env.store(job);
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(
        refused
            .stderr
            .contains("came from another store: project/demo/data@1"),
        "{refused}"
    );
    assert_eq!(env.ok(["ls", "--store", "h200", "project/demo"]), before);
    let all = json(&env.ok(["--json"].into_iter().chain(job).chain(["--delete-all"])));
    assert_eq!(all["dropped"].as_array().unwrap().len(), 3, "{all}");
    env.ok(job);
}

#[test]
fn a_typing_mistake_in_a_job_is_a_failure_also_beside_refs_that_make_it() {
    let env = two_stores();
    nightly(&env, "[\"project/demo\", \"project/typo\"]", "");
    let metrics = env.path("job.prom");
    let metrics = metrics.to_str().unwrap();
    let job = ["duplicate", "--job", "nightly", "--metrics-file", metrics];
    let partly = env.store(job);
    assert_eq!(partly.code, Some(6), "{partly}");
    let why = "failed: project/typo: the source has no ref in this namespace\n";
    assert!(partly.stderr.contains(why), "{partly}");
    let told = json(&env.ok(["--json", "duplicate", "--status", "nightly"]));
    assert_eq!(told["runs"][0]["outcome"], "partly", "{told}");
    assert_eq!(told["errors"][0]["ref"], "project/typo", "{told}");
    let measured = std::fs::read_to_string(metrics).unwrap();
    for line in [
        "failed_refs{job=\"nightly\"} 1\n",
        "last_exit_code{job=\"nightly\"} 6\n",
    ] {
        assert!(measured.contains(line), "{measured}");
    }
    assert!(!measured.contains("last_success"), "{measured}");
    let alone = env.store(["push", "project/typo", "h200"]);
    assert_eq!(alone.code, Some(3), "{alone}");
}

#[test]
fn a_run_that_fails_altogether_turns_its_metrics_red() {
    let env = two_stores();
    nightly(&env, "[\"project/demo\", \"team/x/y\"]", "");
    let metrics = env.path("job.prom");
    let metrics = metrics.to_str().unwrap();
    let read = || std::fs::read_to_string(metrics).unwrap();
    env.ok(["push", "project/demo", "h200"]);
    let from_to = ["--from", "home/.local/share/store", "--to", "far"];
    let unnamed = |refs: &'static str| {
        ["duplicate", refs, "--metrics-file", metrics]
            .into_iter()
            .chain(from_to)
    };
    env.ok(unnamed("project/demo"));
    let success = read().lines().last().unwrap().to_owned();
    std::fs::rename(env.path("far"), env.path("away")).unwrap();
    // Also without the journal, and if the job cannot be identified.
    std::fs::remove_dir_all(env.path("home/.local/state")).unwrap();
    for run in [
        unnamed("project/demo").collect(),
        vec!["duplicate", "--job", "nightly", "--metrics-file", metrics],
    ] {
        let failed = env.store(run);
        assert_eq!(failed.code, Some(3), "{failed}");
        let measured = read();
        assert!(
            measured.contains("store_duplicate_last_exit_code{job=\""),
            "{measured}"
        );
        assert!(measured.contains("\"} 3\n"), "{measured}");
        assert!(!measured.contains("job=\"\""), "{measured}");
        let failed = if measured.contains("nightly") { 2 } else { 1 };
        let failed = format!("\"}} {failed}\n# HELP store_duplicate_sent_bytes");
        assert!(measured.contains(&failed), "{measured}");
        let time = |line: &str| line.rsplit(' ').next().unwrap().to_owned();
        assert_eq!(time(measured.lines().last().unwrap()), time(&success));
    }
}

#[test]
fn a_limit_of_0_is_no_limit() {
    let env = two_stores();
    let report = json(&env.ok(["--json", "push", REF, "h200", "--bwlimit", "0"]));
    assert_eq!(report["refs"][0]["status"], "published", "{report}");
    env.ok(["push", REF, "h200", "--bwlimit", "0", "--dry-run"]);
}

#[test]
fn a_word_that_is_no_cluster_is_no_directory_of_a_job() {
    let env = two_stores();
    nightly(&env, "[\"project/demo\"]", "");
    let path = env.path("home/.config/store/config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"h200\"", "\"h20\"")).unwrap();
    std::fs::create_dir(env.path("h20")).unwrap();
    let finished = env.store(["duplicate", "--job", "nightly"]);
    assert_eq!(finished.code, Some(3), "{finished}");
    assert!(
        finished
            .stderr
            .contains("job nightly: h20: no such cluster"),
        "{finished}"
    );
    assert!(finished.stderr.contains("did you mean h200?"), "{finished}");
}

#[test]
fn a_run_that_never_began_has_a_name_in_its_metrics() {
    let env = two_stores();
    let metrics = env.path("new.prom");
    let mut run = vec![
        "duplicate",
        "project/demo",
        "--from",
        "nowhere/x",
        "--to",
        "far",
    ];
    run.extend(["--metrics-file", metrics.to_str().unwrap()]);
    assert_eq!(env.store(run).code, Some(3));
    let measured = std::fs::read_to_string(&metrics).unwrap();
    assert!(
        measured.contains("store_duplicate_last_exit_code{job=\""),
        "{measured}"
    );
    assert!(!measured.contains("job=\"\""), "{measured}");
    let gc = [
        "gc",
        "--store",
        "nowhere/x",
        "--metrics-file",
        metrics.to_str().unwrap(),
    ];
    std::fs::remove_file(&metrics).unwrap();
    assert_eq!(env.store(gc).code, Some(3));
    let measured = std::fs::read_to_string(&metrics).unwrap();
    assert!(measured.contains("{store=\"nowhere/x\"} 3"), "{measured}");
}
