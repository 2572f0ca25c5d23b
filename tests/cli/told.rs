//! The command's output is true, complete, and harmless to the terminal.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use support::{TestEnvironment, check, environment};

#[test]
fn the_usage_names_the_command() {
    let env = environment!();
    for arguments in [&["put", "--version"][..], &["version"], &["--version"]] {
        let expected = concat!("store ", env!("CARGO_PKG_VERSION"), "\n");
        assert_eq!(env.ok(arguments), expected, "{arguments:?}");
    }
    assert_eq!(env.ok(["help", "put"]), env.ok(["put", "--help"]));
    assert_eq!(
        env.ok(["help", "cluster", "add"]),
        env.ok(["cluster", "add", "--help"])
    );
    assert!(
        env.ok(["put", "--help"])
            .contains("Usage: store put [OPTIONS] <PATH> <REF>")
    );
    check!(env, env.store(["delete", "x"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: unrecognized subcommand 'delete'

      tip: a similar subcommand exists: 'rm'

    Usage: store [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    let finished = env.store(["put", "--nope", "a", "b"]);
    assert!(!finished.stderr.contains("--no-check"), "{finished}");
    let finished = env.store(["put", "--exclud", "a", "b", "c"]);
    assert!(finished.stderr.contains("'--exclude'"), "{finished}");
}

#[test]
fn machines_read_wrong_usage_as_json() {
    let env = environment!();
    for arguments in [
        &["--json", "histroy"][..],
        &["history", "--json"],
        &["info", "--json", "--memory", "lots"],
    ] {
        let finished = env.store(arguments);
        assert_eq!(finished.code, Some(2), "{finished}");
        let told: serde_json::Value = serde_json::from_str(&finished.stderr).unwrap();
        assert_eq!(
            (&told["kind"], &told["exit_code"]),
            (&"InvalidInput".into(), &2.into())
        );
        assert!(!told["error"].as_str().unwrap().is_empty(), "{told}");
    }
}

#[test]
fn an_empty_name_of_a_store_is_not_the_default_one() {
    let env = environment!();
    env.ok(["init"]);
    for (arguments, variable) in [(&["info", "--store", ""][..], None), (&["info"], Some(""))] {
        let mut command = env.command(arguments);
        command.envs(variable.map(|value| ("STORE_URL", value)));
        let finished: support::Finished = command.output().unwrap().into();
        assert_eq!(finished.code, Some(2), "{finished}");
        assert!(finished.stderr.contains("empty"), "{finished}");
    }
}

#[test]
fn a_kind_of_store_is_written_in_small_letters() {
    let env = environment!();
    check!(env, env.store(["info", "--store", "S3://bucket/x"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: store S3://bucket/x: unknown kind of store
    hint: write it in small letters, as s3://bucket/x
    ");
    let finished = env.store(["info", "--store", "s4://key:hunter2@bucket/x"]);
    assert!(!finished.to_string().contains("hunter2"), "{finished}");
}

#[test]
fn a_name_that_is_nearly_right_is_told() {
    let env = stored();
    for (arguments, hint) in [
        (
            &["history", "project/demo/imagent"][..],
            "did you mean project/demo/imagenet?",
        ),
        (&["ls", "project/dmeo"], "did you mean project/demo?"),
        (
            &["history", "project/dmeo/x"],
            "did you mean project/demo? `store ls project/demo`",
        ),
        (
            &["cat", "project/demo/imagenet/train/1.tar:x"],
            "is spelled project/demo/imagenet:train/1.tar",
        ),
        (
            &["history", "team/other/x"],
            "`store ls` lists the namespaces",
        ),
        (
            &["history", "project/demo/other"],
            "`store ls project/demo`",
        ),
        (
            &["push", "h200", "project/demo"],
            "`store push project/demo h200`",
        ),
        (
            &["pull", "project/demo", "h200"],
            "`store pull h200 project/demo`",
        ),
    ] {
        let finished = env.store(arguments);
        assert_ne!(finished.code, Some(0), "{finished}");
        assert!(finished.stderr.contains(hint), "{arguments:?}: {finished}");
    }
    env.ok(["init", "there"]);
    env.ok(["cluster", "add", "h200", "there"]);
    let finished = env.store(["push", "project/demo", "h20"]);
    assert!(finished.stderr.contains("did you mean h200?"), "{finished}");
    // The hint for a ref that the source lacks lists the source.
    let finished = env.store(["pull", "h200", "project/none/x"]);
    assert_eq!(finished.code, Some(3), "{finished}");
    assert!(
        finished.stderr.contains("`store ls --store h200`"),
        "{finished}"
    );
}

#[test]
fn a_ref_of_another_cluster_names_that_cluster() {
    let env = stored();
    env.ok(["init", "there"]);
    env.ok(["cluster", "add", "h200", "there"]);
    env.ok(["init", "away"]);
    env.ok(["cluster", "add", "away", "away"]);
    std::fs::remove_dir_all(env.path("away")).unwrap();
    env.ok(["put", "in", "project/demo/far", "--store", "h200"]);
    check!(env, env.store(["history", "project/demo/far"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/demo/far: no such ref
    hint: cluster h200 has it: `store pull h200 project/demo/far`, or name it with --store h200
    ");
}

#[test]
fn control_characters_of_a_tree_do_not_reach_the_terminal() {
    let env = environment!();
    std::fs::create_dir(env.path("in")).unwrap();
    symlink(
        "/etc/\u{1b}[2J\nerror: all is lost",
        env.path("in/l\u{1b}]0;x\u{7}"),
    )
    .unwrap();
    env.write("in/plain", "text");
    env.ok(["put", "in", "project/demo/a"]);
    for arguments in [
        &["materialize", "project/demo/a", "out"][..],
        &["cat", "project/demo/a:l\u{1b}]0;x\u{7}"],
        &["get", "project/demo/a:no\u{1b}[2Jthing", "out"],
        &["ls", "-r", "project/demo/a"],
    ] {
        let finished = env.store(arguments);
        let text = finished.to_string();
        let is_harmless = |c: char| c == '\n' || !c.is_control();
        assert!(text.chars().all(is_harmless), "{arguments:?}: {text:?}");
        assert!(
            !text.lines().any(|line| line == "error: all is lost"),
            "{text}"
        );
    }
}

#[test]
fn names_of_places_reach_the_terminal_as_harmless() {
    let env = environment!();
    env.write("in", "x");
    let place = "\u{1b}]0;planted\u{7}s";
    for words in [
        &["init", place][..],
        &["--store", place, "info"],
        &["--store", place, "put", "in", "project/a/x"],
        &[
            "--store",
            place,
            "export",
            "\u{1b}]0;planted\u{7}b",
            "project/a/x",
        ],
        &["pool", "status", "--pool", "\u{1b}]0;planted\u{7}p"],
    ] {
        let finished = env.store(words);
        assert_eq!(finished.code, Some(0), "{finished}");
        let told = [
            &String::from_utf8_lossy(&finished.stdout),
            finished.stderr.as_str(),
        ]
        .concat();
        let is_bare = |c: char| c.is_control() && c != '\n';
        assert!(!told.contains(is_bare), "{words:?}: {told:?}");
    }
}

#[test]
fn a_password_in_a_place_is_not_repeated() {
    let env = environment!();
    for words in [
        &["--store", "file://ana:secret@/x", "ls"][..],
        &["export", "s3://ana:secret@bucket/x", "project/a/x"],
        &["import", "https://ana:secret@host/x"],
    ] {
        let refused = env.store(words);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(!refused.stderr.contains("secret"), "{refused}");
    }
}

#[test]
fn json_is_whole_whatever_a_path_holds() {
    let env = environment!();
    let odd = OsStr::from_bytes(b"odd\xff");
    let from = env.path(odd);
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join(odd), "text").unwrap();
    let put = env.store([
        OsStr::new("put"),
        odd,
        "project/demo/a".as_ref(),
        "--json".as_ref(),
    ]);
    assert_eq!(put.code, Some(0), "{put}");
    let made = OsStr::from_bytes(b"made\xff");
    let pool = OsStr::from_bytes(b"--pool=pool\xff");
    let told = env.store([
        OsStr::new("materialize"),
        "project/demo/a".as_ref(),
        made,
        pool,
        "--json".as_ref(),
    ]);
    assert_eq!(told.code, Some(0), "{told}");
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert!(
        told["destination"].as_str().unwrap().ends_with("made\\xff"),
        "{told}"
    );
    assert!(
        told["destination_hex"]
            .as_str()
            .unwrap()
            .ends_with("6d616465ff"),
        "{told}"
    );
    assert!(
        told["pool_hex"].as_str().unwrap().ends_with("706f6f6cff"),
        "{told}"
    );
    std::fs::rename(env.path(made), env.path("diffed")).unwrap();
    std::fs::write(env.path("diffed").join(OsStr::from_bytes(b"new\xfe")), "x").unwrap();
    for arguments in [
        &["diff", "project/demo/a", "diffed", "--json"][..],
        &["verify", "--json"],
        &["ls", "-r", "project/demo/a", "--json"],
        &["rm", "project/demo/a", "--json"],
    ] {
        let finished = env.store(arguments);
        let text = String::from_utf8(finished.stdout).unwrap();
        assert!(!text.is_empty(), "{arguments:?}");
        for line in text.lines() {
            assert!(
                serde_json::from_str::<serde_json::Value>(line).is_ok(),
                "{line}"
            );
        }
    }
}

#[test]
fn quiet_is_not_silent_about_what_failed() {
    let env = stored();
    env.ok(["init", "there"]);
    let finished = env.store([
        "push",
        "-q",
        "project/demo/imagenet",
        "project/demo/nothing",
        "there",
    ]);
    assert_eq!(finished.code, Some(6), "{finished}");
    assert!(
        finished.stderr.contains("failed: project/demo/nothing: "),
        "{finished}"
    );
    assert_eq!(finished.stdout, b"", "{finished}");
}

#[test]
fn what_rm_would_drop_is_told_first() {
    let env = stored();
    env.write("in/train/2.tar", vec![1; 5000]);
    env.ok(["put", "in", "project/demo/imagenet"]);
    let told = env.ok(["rm", "-n", "project/demo/imagenet"]);
    assert!(
        told.starts_with(
            "nothing is done; this would drop 2 versions, and `store gc` would give back "
        ),
        "{told}"
    );
    assert!(
        told.contains("would be dropped: project/demo/imagenet@1\n"),
        "{told}"
    );
    let told = env.ok(["rm", "-n", "project/demo", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["dry_run"], true);
    assert!(told["unique_bytes"].as_u64().unwrap() > 0, "{told}");
    assert_eq!(
        env.ok(["history", "project/demo/imagenet", "--json"])
            .lines()
            .count(),
        2
    );
    // Without a terminal there is no question.
    let told = env.ok(["rm", "project/demo/imagenet"]);
    assert_eq!(
        told,
        "dropped 2 versions; `store undo project/demo/imagenet` brings that back until `store gc` has given back the space\n"
    );
}

#[test]
fn a_cause_is_told_once() {
    let env = environment!();
    env.ok(["init", "s"]);
    // A file is in place of a directory.
    env.write("s/packs", "");
    env.write("in", "text");
    let finished = env.store(["put", "in", "project/demo/a", "--store", "s"]);
    assert_ne!(finished.code, Some(0), "{finished}");
    let causes: Vec<&str> = finished
        .stderr
        .lines()
        .filter(|line| line.contains("caused by"))
        .collect();
    assert_eq!(causes.len(), 1, "{finished}");
}

fn stored() -> TestEnvironment {
    let env = environment!();
    env.write("in/train/1.tar", vec![0; 2000]);
    env.ok(["put", "in", "project/demo/imagenet"]);
    env
}
