//! A team's cache that cannot be made, copied or saved causes a warning, and the command has everything else.

use std::fs;

use support::{Finished, Random, TestEnvironment, environment, with_mounts};

use crate::run::{REF, newest, run};
use crate::run_compiles::CONFIG;

const TEAM: &str = "team/vision/cache";

/// Adds a file to the team's cache.
fn add(env: &TestEnvironment, file: &str) {
    let script = format!("echo {file} > $STORE_TEAM_CACHE_DIR/{file}");
    let before = [
        "run",
        "--project",
        "other",
        "--team",
        "vision",
        "--base",
        "other",
    ];
    env.ok([&before[..], &["--", "/bin/sh", "-c", &script]].concat());
}

/// The cache is a read-only mount or inside of one; with files of an earlier run, and without.
#[test]
fn a_team_cache_that_is_mounted_read_only_is_a_warning() {
    for (mounted, is_empty) in [
        ("base/shared/team", false),
        ("base/shared/team", true),
        ("base/shared", false),
        ("base/shared", true),
    ] {
        let env = environment!();
        env.write(
            CONFIG,
            "[layout.shared]\nproject = \"project\"\nteam = \"shared/team\"\n\
             [layout.shared.env]\nSTORE_PROJECT_CACHE_DIR = \"{project}\"\nSTORE_TEAM_CACHE_DIR = \"{team}\"\n",
        );
        let options = ["--team", "vision", "--layout", "shared"];
        add(&env, "one");
        fs::create_dir_all(env.path("base/shared/team")).unwrap();
        if !is_empty {
            env.ok(run(&options, "true"));
        }
        add(&env, "two");
        let script = "/bin/ls $STORE_TEAM_CACHE_DIR; echo mine > $STORE_PROJECT_CACHE_DIR/mine";
        let plain = env.command(run(&options, script));
        let mounts =
            format!("mount --bind {mounted} {mounted} && mount -o remount,ro,bind {mounted}");
        let done: Finished = with_mounts(&mounts, &plain).output().unwrap().into();
        assert_eq!(done.code, Some(0), "{mounted}: {done}");
        let told = done.stderr.contains("warning: team/vision/cache: ");
        assert!(told, "{mounted}: {done}");
        let seen = if is_empty { "" } else { "one\n" };
        assert_eq!(String::from_utf8_lossy(&done.stdout), seen, "{done}");
        assert_eq!(newest(&env, REF), ["mine=mine"]);
        // Once it is writable again, everything works.
        let next = env.store(run(&options, "/bin/ls $STORE_TEAM_CACHE_DIR"));
        let all = (next.code, &next.stdout[..]);
        assert_eq!(all, (Some(0), &b"one\ntwo\n"[..]), "{mounted}: {next}");
        assert!(!next.stderr.contains("warning"), "{mounted}: {next}");
    }
}

#[test]
fn a_team_whose_quota_is_full_keeps_no_command_from_running() {
    let env = environment!();
    let config = "home/.config/store/config.toml";
    env.write(
        config,
        "[[keep]]\nrefs = \"team/vision\"\nquota = \"400kB\"\n",
    );
    env.write("large", Random::new(2).bytes(600_000));
    let fills = "cp large $STORE_TEAM_CACHE_DIR/large";
    for (round, script) in [
        fills,
        "ls $STORE_TEAM_CACHE_DIR",
        "echo more > $STORE_TEAM_CACHE_DIR/more",
    ]
    .iter()
    .enumerate()
    {
        let mut command = env.command(run(&["--team", "vision"], script));
        let done: Finished = command
            .env("PATH", "/usr/bin:/bin")
            .output()
            .unwrap()
            .into();
        assert_eq!(done.code, Some(0), "{round}: {done}");
        for words in ["warning: team/vision/cache: ", "its quota is 400 kB"] {
            assert!(done.stderr.contains(words), "{round}: {done}");
        }
        if round == 1 {
            assert_eq!(done.stdout, b"large\n", "{done}");
        }
    }
    assert_eq!(env.store(["ls", TEAM]).code, Some(3));
    // Once there is space again, the next run saves it.
    env.write(config, "");
    let done = env.store(run(&["--team", "vision"], "true"));
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(env.ok(["ls", TEAM]).matches("large").count(), 1);
    assert_eq!(env.ok(["cat", &format!("{TEAM}:more")]), "more\n");
}

#[test]
fn a_team_cache_that_is_no_directory_or_cannot_be_brought_is_a_warning() {
    let env = environment!();
    env.write("file", "a file");
    env.ok(["put", "file", TEAM]);
    let script = "echo ran; echo ${STORE_TEAM_CACHE_DIR-none}";
    let done = env.store(run(&["--team", "vision"], script));
    assert_eq!(
        (done.code, &done.stdout[..]),
        (Some(0), &b"ran\nnone\n"[..]),
        "{done}"
    );
    assert!(done.stderr.contains("is a file"), "{done}");
    env.ok(["rm", "--yes", TEAM]);
    // The project's cache is in the store, and the cluster with the team's is missing.
    env.ok(["init", "there"]);
    env.ok(["cluster", "add", "h200", "there"]);
    fs::rename(env.path("there"), env.path("away")).unwrap();
    let done = env.store(run(&["--team", "vision", "--fallback", "h200"], "echo ran"));
    assert_eq!(
        (done.code, &done.stdout[..]),
        (Some(0), &b"ran\n"[..]),
        "{done}"
    );
    assert!(
        done.stderr.contains("warning: team/vision/cache: "),
        "{done}"
    );
}

#[test]
fn a_variable_of_a_run_that_is_empty_is_told() {
    let env = environment!();
    for variable in ["STORE_PROJECT", "STORE_TEAM", "STORE_LAYOUT"] {
        let mut command = env.command(["run", "--base", "cache", "--", "true"]);
        command.env("STORE_PROJECT", "p").env(variable, "");
        let refused: Finished = command.output().unwrap().into();
        assert_eq!(refused.code, Some(2), "{refused}");
        let why = "expected a name, found nothing: set the variable";
        assert!(refused.stderr.contains(why), "{refused}");
    }
}
