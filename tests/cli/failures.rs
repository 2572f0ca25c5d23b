//! The output and exit codes of failures.

use std::process::Stdio;

use support::{TestEnvironment, check, environment};

#[test]
fn a_usage_that_makes_no_sense_is_2() {
    let env = environment!();
    check!(env, env.store(["histroy"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: unrecognized subcommand 'histroy'

      tip: a similar subcommand exists: 'history'

    Usage: store [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    check!(env, env.store(["history"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: the following required arguments were not provided:
      <REF>

    Usage: store history <REF>

    For more information, try '--help'.
    ");
    check!(env, env.store(["history", "no-namespace"]), @r#"
    exit code: 2
    --- stdout
    --- stderr
    error: ref "no-namespace": expected team/ or project/ first, found "no-namespace"
    hint: a ref is a namespace and a path below it, for example project/llama-ft/imagenet
    "#);
    check!(env, env.store(["info", "--memory", "lots"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: invalid value 'lots' for '--memory <SIZE>': expected a size like 4096, 64k, 10MB or 1.5GiB

    For more information, try '--help'.
    ");
}

#[test]
fn a_missing_store_is_3() {
    let env = environment!();
    check!(env, env.store(["info"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: [ROOT]/home/.local/share/store: there is no store
    hint: `store init` or the first `store put` makes it; another one is named with --store or $STORE_URL
    ");
    check!(env, env.store(["info", "--store", "elsewhere"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: elsewhere: there is no store
    hint: make one there with `store init elsewhere`
    ");
}

/// If a store existed before, no hint says to create a new one.
#[test]
fn a_store_that_is_away_is_told_from_one_that_never_was() {
    let env = environment!();
    env.write("in/file", "text");
    env.ok(["init", "disk/store"]);
    env.ok(["--store", "disk/store", "ls"]);
    std::fs::rename(env.path("disk"), env.path("away")).unwrap();
    let verbs = [
        &["ls"][..],
        &["put", "in", "project/demo/in"],
        &["gc"],
        &["get", "project/demo/in", "out"],
    ];
    // First the mount point is missing, then it is an empty directory.
    for _ in 0..2 {
        for words in verbs {
            let failed = env.store([&["--store", "disk/store"], words].concat());
            assert_eq!(failed.code, Some(3), "{failed}");
            assert!(
                failed.stderr.contains("was there and is missing now"),
                "{failed}"
            );
            assert!(!failed.stderr.contains("init"), "{failed}");
        }
        std::fs::create_dir_all(env.path("disk/store")).unwrap();
    }
    // A store that is only named in the configuration may have been created on another host.
    env.write(
        "home/.config/store/config.toml",
        "store = \"/nowhere/store\"\n",
    );
    let failed = env.store(["ls"]);
    assert_eq!(failed.code, Some(3), "{failed}");
    assert!(
        failed.stderr.contains("if it was made before, restore it")
            && failed.stderr.contains("`store init /nowhere/store`"),
        "{failed}"
    );
}

#[test]
fn a_directory_that_is_no_store_is_3() {
    let env = environment!();
    env.write("here/some.txt", "text");
    check!(env, env.store(["info", "--store", "here"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: file://[ROOT]/here: there is no store
    hint: make one with `store init --store here`, or name another with --store
    ");
}

#[test]
fn a_missing_ref_is_3() {
    let env = environment!();
    env.ok(["init"]);
    check!(env, env.store(["history", "project/demo/nothing"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/demo/nothing: no such ref
    hint: there is no namespace project/demo; `store ls` lists the namespaces
    ");
    check!(env, env.store(["rm", "--yes", "project/demo"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/demo: no such namespace
    hint: `store ls` lists the namespaces
    ");
}

#[test]
fn a_damaged_store_is_4() {
    let env = environment!();
    env.ok(["init", "s"]);
    let format = env.path("s/format");
    let text = std::fs::read_to_string(&format).unwrap();
    std::fs::write(&format, text.replace("fastcdc", "fastbdc")).unwrap();
    check!(env, env.store(["info", "--store", "s"]), @r"
    exit code: 4
    --- stdout
    --- stderr
    error: file://[ROOT]/s: format: checksum of its first line is `blake3 [CHUNK-ID]`, its second line is `blake3 [CHUNK-ID]\n`
    hint: restore `format` from a copy of the store: nothing else in it says what was in there; make no new store in its place
    ");
}

#[test]
fn what_can_be_no_store_is_2() {
    let env = environment!();
    env.write("file", "text");
    check!(env, env.store(["info", "--store", "file"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: file: expected a bundle or the directory of a store, found another file
    hint: name the file that refs were exported to, or the directory of a store
    ");
    env.write("dir/file", "text");
    for named in ["bundle:file", "bundle:dir", "/dev/null"] {
        let refused = env.store(["info", "--store", named]);
        assert_eq!(refused.code, Some(2), "{named}: {refused}");
    }
    check!(env, env.store(["info", "--store", "gopher://host/x"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: store gopher://host/x: unknown kind of store
    hint: name a directory, as a path or as file:///path, a bundle, as bundle:path, or a bucket: s3://, gs:// or az://
    ");
}

#[test]
fn machines_read_failures_as_json() {
    let env = environment!();
    env.ok(["init"]);
    check!(env, env.store(["--json", "history", "project/demo/nothing"]), @r#"
    exit code: 3
    --- stdout
    --- stderr
    {"error":"project/demo/nothing: no such ref","kind":"NotFound","causes":[],"hint":"there is no namespace project/demo; `store ls` lists the namespaces","exit_code":3}
    "#);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let env = environment!();
    let mut child = env
        .command(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}

#[test]
fn a_full_standard_output_is_a_failure() {
    let env = environment!();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = env
        .command(["completions", "bash"])
        .stdout(full)
        .output()
        .unwrap();
    let finished = support::Finished::from(output);
    check!(env, finished, @"
    exit code: 1
    --- stdout
    --- stderr
    error: write to standard output
      caused by: No space left on device (os error 28)
    hint: free some space there, or name another place
    ");
}

#[test]
fn words_in_the_wrong_order_are_answered_with_the_right_one() {
    let env = environment!();
    env.write("dir/file", "text");
    env.ok(["put", "dir", "project/demo/data"]);
    env.ok(["export", "one.bundle", "project/demo/data"]);
    for (words, right) in [
        (
            ["get", "dir", "project/demo/data"].as_slice(),
            "store get project/demo/data dir",
        ),
        (
            &["get", "./none", "project/demo/data"],
            "store get project/demo/data ./none",
        ),
        (
            &["get", "none", "project/demo/data"],
            "store get project/demo/data none",
        ),
        (
            &["materialize", "dir", "project/demo/data"],
            "store materialize project/demo/data dir",
        ),
        (
            &["diff", "dir", "project/demo/data"],
            "store diff project/demo/data dir",
        ),
        (
            &["export", "project/demo/data", "f.bundle"],
            "store export f.bundle project/demo/data",
        ),
        (
            &["import", "project/demo/data", "one.bundle"],
            "store import one.bundle project/demo/data",
        ),
        (
            &["cluster", "add", "s3://bucket/x", "far"],
            "store cluster add far s3://bucket/x",
        ),
        (
            &["put", "project/demo/data", "dir"],
            "store put dir project/demo/data",
        ),
        (
            &["watch", "project/demo/data", "dir", "--once"],
            "store watch dir project/demo/data",
        ),
    ] {
        let refused = env.store(words);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains(&format!("`{right}`")), "{refused}");
    }
    // A mistyped ref is none of that, and what may be a password is not shown.
    let refused = env.store(["get", "projekt/demo/data", "project/demo/data"]);
    assert!(!refused.stderr.contains("second"), "{refused}");
    let refused = env.store(["cluster", "add", "s3://me:secret@bucket/x", "far"]);
    assert!(!refused.stderr.contains("secret"), "{refused}");
}

#[test]
fn a_version_behind_the_path_is_answered_with_the_one_before_it() {
    let env = environment!();
    env.write("dir/file", "text");
    env.ok(["put", "dir", "project/demo/data"]);
    for verb in ["cat", "ls"] {
        let missing = env.store([verb, "project/demo/data:file@1"]);
        assert_eq!(missing.code, Some(3), "{missing}");
        assert!(
            missing
                .stderr
                .contains("before the path: project/demo/data@1:file\n"),
            "{missing}"
        );
    }
    let missing = env.store(["cat", "project/demo/data:file@home"]);
    assert!(
        missing.stderr.contains("store ls project/demo/data"),
        "{missing}"
    );
    env.write("dir/file@1", "odd");
    env.ok(["put", "dir", "project/demo/data"]);
    assert_eq!(env.ok(["cat", "project/demo/data:file@1"]), "odd");
}

/// Globs match any bytes, and are text themselves.
#[test]
fn a_glob_that_is_no_text_is_named() {
    use std::os::unix::ffi::OsStrExt;
    let env = environment!();
    let bytes = |bytes: &'static [u8]| std::ffi::OsStr::from_bytes(bytes);
    let name = bytes(b"dir/caf\xe9");
    std::fs::create_dir(env.path("dir")).unwrap();
    std::fs::write(env.path(name), "x").unwrap();
    env.write("dir/other", "y");
    env.ok(["put", "dir", "project/demo/data"]);
    let words = ["get", "project/demo/data", "out", "--include"].map(|word| bytes(word.as_bytes()));
    check!(env, env.store([&words[..], &[bytes(b"caf\xe9")]].concat()), @r#"
    exit code: 2
    --- stdout
    --- stderr
    error: expected text in UTF-8, found "caf\xe9"

      tip: in a glob, `?` stands for each byte that is not UTF-8; paths and REF:PATH may hold any bytes
    "#);
    env.ok([&words[..], &[bytes(b"caf?")]].concat());
    assert!(env.path(bytes(b"out/caf\xe9")).exists() && !env.path("out/other").exists());
    env.ok(["rm", "project/demo/data", "--glob", "caf?", "--yes"]);
    assert!(!env.ok(["ls", "-r", "project/demo/data"]).contains("caf"));
}

/// With `--json`, every line of standard error is JSON, and the last one is the error with its exit code.
#[test]
fn the_last_line_of_json_is_the_error() {
    let env = versions_of_two();
    let last = |words: &[&str], code: i32| {
        let done = env.store(["--json"].iter().chain(words));
        assert_eq!(done.code, Some(code), "{words:?}: {done}");
        let lines: Vec<serde_json::Value> = done
            .stderr
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{words:?}: {done}")))
            .collect();
        let last = lines.last().unwrap().clone();
        assert!(last["error"].is_string(), "{words:?}: {done}");
        assert_eq!(last["exit_code"], code, "{words:?}: {done}");
        for line in &lines {
            let said = line["warning"].as_str().unwrap_or_default();
            assert!(!said.contains("error:"), "{words:?}: {done}");
        }
        last
    };
    last(&["rm", "project/p"], 2);
    last(&["-q", "rm", "project/p"], 2);
    let seed = ["run", "--base", "b", "--seed", "project/p/s", "--"];
    let failed = last(&[&seed[..], &["false"]].concat(), 1);
    assert!(failed["error"].as_str().unwrap().contains("exit code 1"));
    last(&[&seed[..], &["/bin/sh", "-c", "exit 7"]].concat(), 7);
    let missing = last(&[&seed[..], &["./none"]].concat(), 127);
    assert!(
        missing["causes"].to_string().contains("./none"),
        "{missing}"
    );
    let run = ["run", "--base", "b", "--project", "q", "--"];
    let missing = last(&[&run[..], &["./none"]].concat(), 127);
    assert!(missing["error"].to_string().contains("./none"), "{missing}");
    // The save fails as well as the command: its error has the exit code of the command.
    let script =
        "printf 'machine a login b password c0ffee' > $STORE_PROJECT_CACHE_DIR/.netrc; exit 9";
    let failed = last(&[&run[..], &["/bin/sh", "-c", script]].concat(), 9);
    assert_eq!(failed["kind"], "Partial", "{failed}");
}

fn versions_of_two() -> TestEnvironment {
    let env = environment!();
    for text in ["a", "b"] {
        env.write("d/a", text);
        env.ok(["put", "d", "project/p/a"]);
    }
    env
}

#[test]
fn a_rhythm_without_a_pause_is_2() {
    let env = environment!();
    let run = [
        "run",
        "--project",
        "demo",
        "--save-every",
        "0s",
        "--",
        "true",
    ];
    let refused = env.store(run);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(refused.stderr.contains("like 10m"), "{refused}");
}

/// A hint says what helps, and for whom.
#[test]
fn what_may_not_be_opened_is_told_with_what_would_help() {
    let env = environment!();
    env.ok(["init"]);
    env.write("closed/in/here/file", "text");
    std::fs::create_dir(env.path("closed/in/here/dir")).unwrap();
    let shell = |text: &str| {
        let mut command = std::process::Command::new("sh");
        let done = command.arg("-c").arg(text).current_dir(env.root()).status();
        assert!(done.unwrap().success(), "{text}");
    };
    shell("chmod -R a+rX . && chmod 755 . && chown -R 65534 home closed");
    let of_another = |words: &[&str]| -> support::Finished {
        // The shell is in the directory before nobody may search the one above.
        let script = "cd closed/in/here && chmod 0 ../../../closed/in && exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
        let mut command = env.command([""; 0]);
        let program = command.get_program().to_owned();
        let inner = ["sh", "-c", script, "sh"].map(std::ffi::OsString::from);
        let rest = words.iter().map(std::ffi::OsString::from);
        let all: Vec<_> = inner.into_iter().chain([program]).chain(rest).collect();
        let mut wrapped = std::process::Command::new(&all[0]);
        wrapped.args(&all[1..]).current_dir(env.root());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(key, value),
                None => wrapped.env_remove(key),
            };
        }
        command = wrapped;
        let done = command.output().unwrap().into();
        shell("chmod 755 closed/in");
        done
    };
    for words in [
        &["put", "file", "project/demo/a"][..],
        &["watch", "dir", "project/demo/a", "--once"],
        &["import", "file"],
        &["save", "dir"],
    ] {
        let refused = of_another(words);
        assert_eq!(refused.code, Some(1), "{refused}");
        let hint =
            "hint: give yourself the right to open it, and to search the directories above it";
        assert!(refused.stderr.contains(hint), "{words:?}: {refused}");
    }
    let seeded = of_another(&["run", "--seed", "project/demo/a", "--", "true"]);
    assert_eq!(seeded.code, Some(1), "{seeded}");
    assert!(
        seeded.stderr.contains("closed/in/here/cache\n") && !seeded.stderr.contains("NAME"),
        "{seeded}"
    );
    // A mode does not help against another owner.
    env.ok(["token", "add", "one"]);
    shell("chown 65533 home/.config/store/tokens.json");
    let refused = env.store(["token", "ls"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(
        refused
            .stderr
            .contains("hint: run this as user 65533, or let it be yours: as root, chown 0 ")
            && !refused.stderr.contains("chmod"),
        "{refused}"
    );
}

#[test]
fn a_file_in_the_place_of_a_directory_of_a_store_is_told() {
    let env = environment!();
    env.ok(["init", "store"]);
    drop(std::fs::remove_dir_all(env.path("store/reserve")));
    env.write("store/reserve", "a file");
    let refused = env.store(["--store", "store", "gc"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    let hint = "hint: a directory is expected at reserve, and a file is in its place: move that out of the store";
    assert!(refused.stderr.contains(hint), "{refused}");
}
