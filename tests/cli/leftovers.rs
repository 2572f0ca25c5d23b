//! What a job leaves in a cache of `store run` never stops the next run; a directory that is not a cache is refused.

use std::fs;

use support::{Finished, TestEnvironment, environment, under};

const REF: &str = "project/llama/cache";

fn words<'w>(base: &'w str, command: &[&'w str]) -> Vec<&'w str> {
    let run = [
        "run",
        "--project",
        "llama",
        "--team",
        "vision",
        "--base",
        base,
        "--",
    ];
    [&run[..], command].concat()
}

fn run_in(env: &TestEnvironment, base: &str, script: &str) -> Finished {
    env.store(words(base, &["/bin/sh", "-c", script]))
}

/// The paths of the newest version.
fn newest(env: &TestEnvironment, name: &str) -> Vec<String> {
    let listed = env.ok(["ls", name, "--recursive", "--json"]);
    let entries = listed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let paths = entries.map(|entry: serde_json::Value| entry["path"].as_str().unwrap().to_owned());
    paths.collect()
}

#[test]
fn a_link_out_of_a_cache_stays_a_link_and_the_next_job_starts() {
    let env = environment!();
    env.write("data/file", "far");
    let far = env.path("data").display().to_string();
    let script = format!(
        "for dir in $STORE_PROJECT_CACHE_DIR $STORE_TEAM_CACHE_DIR; do \
         ln -s {far} $dir/out; ln -s ../../up $dir/up; ln -s loop $dir/loop; echo x > $dir/x; done"
    );
    let left = run_in(&env, "base", &script);
    assert_eq!(left.code, Some(0), "{left}");
    assert!(
        left.stderr.contains("2 symlinks (out, up): led out of")
            && left.stderr.contains("needs --allow-outside-symlinks")
            && !left.stderr.contains("--dereference"),
        "{left}"
    );
    for base in ["base", "other"] {
        let next = run_in(
            &env,
            base,
            "cat $STORE_PROJECT_CACHE_DIR/out/file; readlink $STORE_TEAM_CACHE_DIR/up",
        );
        assert_eq!(next.code, Some(0), "{next}");
        assert_eq!(next.stdout, b"far../../up\n", "{next}");
        assert!(
            next.stderr
                .contains("2 symlinks lead out of the destination: out, up"),
            "{next}"
        );
    }
}

/// A cache of a hub's client links to its files. A link with a missing target is left out alone.
#[test]
fn a_payload_that_leads_nowhere_is_left_out_and_named() {
    let env = environment!();
    let hub = "hub=$STORE_PROJECT_CACHE_DIR/hub/models--a--b; mkdir -p $hub/blobs $hub/refs $hub/snapshots; \
               ln -s /no/such/file $hub/blobs/x; echo y > $STORE_PROJECT_CACHE_DIR/y";
    let left = run_in(&env, "base", hub);
    assert_eq!(left.code, Some(6), "{left}");
    assert!(left.stderr.contains("blobs/x"), "{left}");
    assert!(newest(&env, REF).contains(&"y".to_owned()));
    for base in ["base", "other"] {
        let next = run_in(&env, base, "cat $STORE_PROJECT_CACHE_DIR/y");
        assert_eq!(next.stdout, b"y\n", "{next}");
    }
}

#[test]
fn what_looks_like_credentials_is_left_out_by_itself_and_the_next_job_starts() {
    let env = environment!();
    let script = "cd $STORE_PROJECT_CACHE_DIR; echo kept > a; echo kept > z; mkdir -m 700 sub .ssh; \
                  echo 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 > sub/notes; echo x > .ssh/known; \
                  printf 'machine h login u password zT7kQ92mLp\\n' > .netrc; chmod 600 .netrc";
    let left = run_in(&env, "base", script);
    assert_eq!(left.code, Some(6), "{left}");
    for named in ["project/sub/notes", "project/.netrc", "project/.ssh"] {
        let named = format!("{named}: looks like credentials");
        assert!(left.stderr.contains(&named), "{named}: {left}");
    }
    let hint = format!(
        "`store save {} {REF} --allow-secret ",
        env.path("base/project").display()
    );
    assert!(left.stderr.contains(&hint), "{left}");
    assert_eq!(newest(&env, REF), ["a", "sub", "z"]);
    // The exit code shows the job's own failure.
    let own = run_in(&env, "base", "exit 7");
    assert_eq!(own.code, Some(7), "{own}");
    let next = run_in(
        &env,
        "base",
        "cat $STORE_PROJECT_CACHE_DIR/a; echo more > $STORE_PROJECT_CACHE_DIR/more",
    );
    assert_eq!(
        (next.code, &next.stdout[..]),
        (Some(6), &b"kept\n"[..]),
        "{next}"
    );
    assert!(newest(&env, REF).contains(&"more".to_owned()));
    assert!(
        env.path("base/project/.netrc").exists() && env.path("base/project/.ssh/known").exists()
    );
    // The command in the hint works.
    let dir = env.path("base/project").display().to_string();
    let taken = env.store([
        "save",
        &dir,
        REF,
        "--allow-secret",
        "/sub/notes",
        "--allow-secret",
        "/.netrc",
        "--allow-secret",
        "/.ssh",
    ]);
    assert_eq!(taken.code, Some(0), "{taken}");
    assert!(newest(&env, REF).contains(&"sub/notes".to_owned()));
}

/// Whatever the version has in place of a file that was left out, the job's file stays.
#[test]
fn what_was_left_out_is_not_replaced_by_what_the_version_has() {
    let env = environment!();
    let made = run_in(&env, "base", "echo plain > $STORE_PROJECT_CACHE_DIR/notes");
    assert_eq!(made.code, Some(0), "{made}");
    let tree = run_in(&env, "base", "true");
    assert_eq!(tree.code, Some(0), "{tree}");
    let notes = env.path("base/project/notes");
    let secret = "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";
    let script = format!(
        "rm $STORE_PROJECT_CACHE_DIR/notes; echo {secret} > $STORE_PROJECT_CACHE_DIR/notes; kill -9 $PPID"
    );
    let killed = run_in(&env, "base", &script);
    assert_eq!(killed.code, None, "{killed}");
    let next = run_in(&env, "base", "true");
    assert!(
        next.stderr.contains("not saved, and left as it is"),
        "{next}"
    );
    assert_eq!(fs::read_to_string(notes).unwrap().trim_end(), secret);
}

/// A cache that began empty is not a tree yet. There, too, unsaved files stay.
#[test]
fn what_was_left_out_of_a_begun_cache_is_not_replaced_either() {
    let env = environment!();
    let secret = "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";
    let left = run_in(
        &env,
        "base",
        &format!("echo {secret} > $STORE_PROJECT_CACHE_DIR/notes"),
    );
    assert_eq!(left.code, Some(6), "{left}");
    let other = run_in(&env, "other", "echo plain > $STORE_PROJECT_CACHE_DIR/notes");
    assert_eq!(other.code, Some(0), "{other}");
    let next = run_in(&env, "base", "cat $STORE_PROJECT_CACHE_DIR/notes");
    assert_eq!(
        String::from_utf8_lossy(&next.stdout).trim_end(),
        secret,
        "{next}"
    );
    assert!(
        next.stderr.contains("is not updated to the newest version"),
        "{next}"
    );
    assert_eq!(env.ok(["cat", &format!("{REF}:notes")]), "plain\n");
}

/// Root can write to read-only files: here to a pool file, which other trees share.
#[test]
fn what_was_written_through_a_link_is_left_out_and_the_next_job_starts() {
    let env = environment!();
    let big = "cd $STORE_PROJECT_CACHE_DIR; head -c 100000 /dev/zero > big";
    // In another base, the tree is made of links.
    for (base, script) in [("base", big), ("other", "true")] {
        let done = run_in(&env, base, script);
        assert_eq!(done.code, Some(0), "{done}");
    }
    let written = "cd $STORE_PROJECT_CACHE_DIR; chmod u+w big; echo more >> big; echo x > new";
    let left = run_in(&env, "other", written);
    assert_eq!(left.code, Some(6), "{left}");
    assert!(
        left.stderr.contains("big") && left.stderr.contains("--take-written-through"),
        "{left}"
    );
    assert!(newest(&env, REF).contains(&"new".to_owned()));
    for base in ["base", "other"] {
        let next = run_in(&env, base, "wc -c < $STORE_PROJECT_CACHE_DIR/big");
        assert!(!next.stdout.is_empty(), "{base}: {next}");
    }
}

/// A job whose home is its cache leaves the usual files of a home directory.
#[test]
fn a_cache_that_looks_like_a_home_is_a_cache() {
    let env = environment!();
    for script in [
        "echo x > $STORE_PROJECT_CACHE_DIR/.bashrc",
        "true",
        "cat $STORE_PROJECT_CACHE_DIR/.bashrc",
    ] {
        let done = run_in(&env, "base", script);
        assert_eq!(done.code, Some(0), "{done}");
    }
}

/// A base that `materialize` would refuse, or that has other files, is refused for a new project, too.
#[test]
fn a_base_that_is_something_else_is_refused_before_anything_is_made() {
    let env = environment!();
    env.write("in/file", "x");
    env.ok(["put", "in", "project/llama/data"]);
    env.ok(["init", "other"]);
    env.ok(["materialize", "project/llama/data", "tree/project"]);
    env.write("own/project/notes", "mine");
    env.ok([
        "run",
        "--project",
        "llama",
        "--base",
        "elsewhere",
        "--store",
        "other",
        "--",
        "/bin/sh",
        "-c",
        "echo a > $STORE_PROJECT_CACHE_DIR/a",
    ]);
    let pool = "home/.cache/store/pool/base";
    for (base, told) in [
        ("other/base", "lies in a store"),
        (pool, "lies in a pool"),
        ("home/.local/share/store/packs", "belongs to this program"),
        (
            "tree",
            "holds project/llama/data, and project/llama/cache is asked for",
        ),
        (
            "own",
            "is not empty, and no run of yours here made it for project/llama/cache",
        ),
        (
            "elsewhere",
            "is not empty, and no run of yours here made it for project/llama/cache",
        ),
    ] {
        let before = env.path(base).exists();
        let refused = env.store([
            "run",
            "--project",
            "llama",
            "--base",
            base,
            "--",
            "echo",
            "never",
        ]);
        assert!(
            refused.code == Some(5) && refused.stdout.is_empty(),
            "{base}: {refused}"
        );
        assert!(
            refused.stderr.contains(told) && refused.stderr.contains("--base"),
            "{base}: {refused}"
        );
        assert_eq!(env.path(base).exists(), before, "{base}");
    }
    // Follows the hint.
    let own = env.path("own/project").display().to_string();
    env.ok(["save", &own, REF, "--base", "0"]);
    let taken = env.ok([
        "run",
        "--project",
        "llama",
        "--base",
        "own",
        "--",
        "/bin/sh",
        "-c",
        "cat $STORE_PROJECT_CACHE_DIR/notes",
    ]);
    assert_eq!(taken, "mine");
}

/// A run that is killed during the update of its cache leaves a tree that matches no version. The next run finishes the
/// update before it saves what was left.
#[test]
fn a_run_that_was_killed_on_its_way_to_the_newest_version_keeps_no_other_out() {
    let env = environment!();
    let many = |text: &str| {
        format!(
            "cd $STORE_PROJECT_CACHE_DIR; for n in 1 2 3 4 5 6 7 8 9; do echo {text} > shared$n; done; echo {text} > {text}"
        )
    };
    assert_eq!(run_in(&env, "base", &many("one")).code, Some(0));
    let mut broken_off = 0;
    for at in [12, 16, 20, 24, 28] {
        let text = format!("other{at}");
        assert_eq!(run_in(&env, "other", &many(&text)).code, Some(0));
        // The next run saves what a job made before it was killed.
        let own = format!("echo own > $STORE_PROJECT_CACHE_DIR/own{at}; kill -9 $PPID");
        assert_eq!(run_in(&env, "base", &own).code, None);
        assert_eq!(
            run_in(&env, "other", &many(&format!("later{at}"))).code,
            Some(0)
        );
        let inject = format!("inject=renameat,renameat2,unlinkat:signal=SIGKILL:when={at}");
        let tracer = ["-f", "-qq", "-o", "/dev/null", "-e", &inject];
        under("strace", tracer, &env.command(words("base", &["true"])))
            .output()
            .unwrap();
        broken_off += u32::from(env.ok(["pool", "status"]).contains("not settled"));
        let next = run_in(&env, "base", "cat $STORE_PROJECT_CACHE_DIR/shared1");
        assert_eq!(next.code, Some(0), "{at}: {next}");
        assert_eq!(
            next.stdout,
            format!("later{at}\n").as_bytes(),
            "{at}: {next}"
        );
        let newest = newest(&env, REF);
        for file in [format!("own{at}"), text, format!("later{at}")] {
            assert!(newest.contains(&file), "{at}: {file}: {newest:?}");
        }
    }
    assert!(broken_off > 0);
}

#[test]
fn what_was_written_through_a_link_is_named_when_it_is_replaced() {
    let env = environment!();
    let make = "head -c 100000 /dev/zero > $STORE_PROJECT_CACHE_DIR/file";
    assert_eq!(run_in(&env, "first", make).code, Some(0));
    let scribble =
        "chmod u+w $STORE_PROJECT_CACHE_DIR/file; echo mine >> $STORE_PROJECT_CACHE_DIR/file";
    let left = run_in(&env, "base", scribble);
    assert_eq!(left.code, Some(6), "{left}");
    let next = run_in(&env, "base", "wc -c < $STORE_PROJECT_CACHE_DIR/file");
    assert_eq!(next.code, Some(0), "{next}");
    assert_eq!(next.stdout, b"100000\n", "{next}");
    let told = "is not as it was made (its bytes, mode or time) and is set aside as ";
    let aside = next.stderr.split(told).nth(1).unwrap_or_default();
    let aside = aside.split_whitespace().next().unwrap_or_default();
    let kept = fs::read(aside).unwrap_or_default();
    assert!(kept.ends_with(b"mine\n"), "{next}");
}
