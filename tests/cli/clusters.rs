//! Names for stores: the configuration keeps what people wrote, and a name works wherever a URL does.

use support::{TestEnvironment, check, environment};

const WRITTEN: &str = "\
# Ours; ask before you change it.
store = \"/shared/store\"   # the usual one

[gc]
grace = \"2h\"

[[keep]] # of projects
refs = \"project/*\"
last = 3
";

fn configuration(env: &TestEnvironment) -> String {
    std::fs::read_to_string(env.path("home/.config/store/config.toml")).unwrap()
}

#[test]
fn a_name_is_added_and_taken_away_and_all_else_stays() {
    let env = environment!();
    env.write("home/.config/store/config.toml", WRITTEN);
    env.ok(["init", "there"]);
    check!(env, env.store(["cluster", "add", "h200", "there"]), @"
    exit code: 0
    --- stdout
    h200 is store [ID] at [ROOT]/there
    --- stderr
    ");
    env.ok([
        "cluster",
        "add",
        "eu-2",
        "s3://bucket/p",
        "--profile",
        "eu",
        "--no-check",
    ]);
    let written = configuration(&env);
    assert!(written.starts_with(WRITTEN), "{written}");
    let added = format!(
        "[cluster.h200]\nurl = \"{}\"\n",
        env.path("there").display()
    );
    assert!(written.contains(&added), "{written}");
    let listed = env.ok(["cluster", "ls"]);
    let words: Vec<&str> = listed.split_whitespace().collect();
    let there = env.path("there");
    let expected = [
        "name",
        "url",
        "profile",
        "eu-2",
        "s3://bucket/p",
        "eu",
        "h200",
    ];
    assert_eq!(words, [&expected[..], &[there.to_str().unwrap()]].concat());
    check!(env, env.store(["cluster", "ls", "--json"]), @r#"
    exit code: 0
    --- stdout
    {"name":"eu-2","url":"s3://bucket/p","profile":"eu"}
    {"name":"h200","url":"[ROOT]/there","profile":null}
    --- stderr
    "#);
    check!(env, env.store(["cluster", "rm", "h200"]), @"
    exit code: 0
    --- stdout
    h200 is no cluster any more
    --- stderr
    ");
    env.ok(["cluster", "rm", "eu-2"]);
    assert_eq!(configuration(&env), WRITTEN);
}

#[test]
fn a_name_is_not_given_twice_nor_taken_twice() {
    let env = environment!();
    for place in ["one", "two"] {
        env.ok(["init", place]);
    }
    env.ok(["cluster", "add", "c", "one"]);
    check!(env, env.store(["cluster", "add", "c", "two"]), @"
    exit code: 5
    --- stdout
    --- stderr
    error: c: this cluster already exists
    hint: replace it with --force, or choose another name
    ");
    env.ok(["cluster", "add", "c", "two", "--force"]);
    assert!(env.ok(["cluster", "ls"]).ends_with("/two\n"));
    // `where` and `duplicate` call the store of this host so.
    let refused = env.store(["cluster", "add", "here", "one"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    env.ok(["cluster", "rm", "c"]);
    check!(env, env.store(["cluster", "rm", "c"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: c: no such cluster
    hint: list them with `store cluster ls`, or say where it is with `store cluster add c URL`
    ");
}

#[test]
fn a_place_without_a_store_is_refused_unless_nobody_looks() {
    let env = environment!();
    check!(env, env.store(["cluster", "add", "c", "nowhere"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: [ROOT]/nowhere: there is no store
    hint: make a store there with `store init [ROOT]/nowhere`, or write the name down all the same with --no-check
    ");
    check!(env, env.store(["cluster", "add", "c", "nowhere", "--profile", "none"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: none: no such profile
    hint: write [profile.none] into the configuration first, or say --no-check
    ");
    check!(env, env.store(["cluster", "add", "c", "nowhere", "--no-check"]), @"
    exit code: 0
    --- stdout
    c is [ROOT]/nowhere, not looked at
    --- stderr
    ");
    check!(env, env.store(["cluster", "add", "a/b", "nowhere"]), @r#"
    exit code: 2
    --- stdout
    --- stderr
    error: name "a/b": expected letters, digits, `-` and `_`, a letter or digit first
    hint: name it first and say where it is second: `store cluster add nowhere a/b`
    "#);
}

#[test]
fn a_password_is_neither_written_nor_told() {
    let env = environment!();
    let url = "s3://key:hunter2@bucket/prefix";
    for arguments in [
        &["cluster", "add", "c", url, "--no-check"][..],
        &["push", "project/a/b", url],
    ] {
        env.store(["init"]);
        let finished = env.store(arguments);
        assert_eq!(finished.code, Some(2), "{finished}");
        assert!(finished.stderr.contains("holds credentials"), "{finished}");
        assert!(finished.stderr.contains("[profile.NAME]"), "{finished}");
        assert!(!finished.to_string().contains("hunter2"), "{finished}");
    }
    assert!(!env.path("home/.config/store/config.toml").exists());
}

#[test]
fn a_password_that_stands_in_the_configuration_all_the_same_is_told_nowhere() {
    let env = environment!();
    let url = "s3://key:hunter2@bucket/prefix";
    let text = format!(
        "store = {url:?}\n[cluster.c]\nurl = {url:?}\n\
         [job.nightly]\nfrom = {url:?}\nto = \"c\"\nrefs = [\"project/a\"]\n"
    );
    env.write("home/.config/store/config.toml", text);
    for (arguments, code) in [
        (&["cluster", "ls"][..], 0),
        (&["cluster", "ls", "--json"], 0),
        (&["ls"], 2),
        (&["ls", "--store", url], 2),
        (&["ls", "--store", "c"], 2),
        (&["info", "--json"], 2),
        (&["init", url], 2),
        (&["push", "project/a/b", "c"], 2),
        (&["duplicate", "--job", "nightly"], 2),
        (&["duplicate", "--job", "nightly", "--dry-run"], 2),
        (&["duplicate", "--status"], 0),
        (&["duplicate", "--status", "nightly", "--json"], 0),
        (
            &[
                "duplicate",
                "project/a",
                "--from",
                url,
                "--to",
                "c",
                "--crontab",
            ],
            2,
        ),
        (&["gc", "--store", url, "--systemd"], 2),
    ] {
        let finished = env.store(arguments);
        assert_eq!(finished.code, Some(code), "{arguments:?}: {finished}");
        assert!(!finished.to_string().contains("hunter2"), "{finished}");
    }
    let listed = env.ok(["cluster", "ls"]);
    assert!(listed.contains("s3://***@bucket/prefix"), "{listed}");
    let state = env.path("home/.local/state/store/jobs/nightly/status.json");
    let state = std::fs::read_to_string(state).unwrap();
    assert!(!state.contains("hunter2"), "{state}");
}

#[test]
fn a_name_does_where_a_url_does_and_comes_first() {
    let env = environment!();
    for place in ["there", "c"] {
        env.ok(["init", place]);
    }
    env.ok(["cluster", "add", "c", "there"]);
    env.write("in", "text");
    env.ok(["put", "in", "project/demo/a", "--store", "c"]);
    assert!(env.ok(["ls", "--store", "there"]).contains("project/demo"));
    assert_eq!(env.ok(["ls", "--store", "./c", "--json"]), "");
    let listed = env.command(["ls"]).env("STORE_URL", "c").output().unwrap();
    assert!(
        String::from_utf8(listed.stdout)
            .unwrap()
            .contains("project/demo")
    );
}

#[test]
fn a_configuration_with_a_mistake_is_not_written_over() {
    let env = environment!();
    env.ok(["init", "there"]);
    for text in [
        "cluster = 3\n",
        "[cluster.c]\nurl = 3\n",
        "[cluster.\"a/b\"]\nurl = \"x\"\n",
    ] {
        env.write("home/.config/store/config.toml", text);
        let finished = env.store(["cluster", "add", "c", "there", "--force"]);
        assert_eq!(finished.code, Some(2), "{finished}");
        assert_eq!(configuration(&env), text);
    }
}

#[test]
fn here_is_the_store_of_this_host_for_jobs_too() {
    let env = environment!();
    env.write("in", "x");
    env.ok(["put", "in", "project/a/x"]);
    env.ok(["init", "there"]);
    let config = "home/.config/store/config.toml";
    let job = "[job.nightly]\nfrom = \"here\"\nto = \"../../../there\"\nrefs = [\"project/a\"]\n";
    env.write(config, job);
    env.ok(["duplicate", "--job", "nightly"]);
    assert!(env.ok(["ls", "--store", "there"]).contains("project/a"));
    for (cluster, why) in [
        (
            "[cluster.here]\nurl = \"../../../there\"\n",
            "cluster here: ",
        ),
        ("[cluster.e]\nurl = \"\"\n", "cluster e: its url is empty"),
    ] {
        env.write(config, cluster);
        let refused = env.store(["ls"]);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains(why), "{refused}");
    }
}

#[test]
fn a_cluster_that_was_forgotten_is_asked_for() {
    let env = environment!();
    env.write("in/file", "text");
    env.ok(["put", "in", "project/demo/a"]);
    check!(env, env.store(["push", "project/demo/a", "project/demo/b"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: push: project/demo/b is a ref, expected a cluster in its place
    hint: the cluster is missing: `store push project/demo/a project/demo/b CLUSTER`; `store cluster ls` lists those that have a name
    ");
    check!(env, env.store(["pull", "team/v/a", "project/demo/a"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: pull: team/v/a is a ref, expected a cluster in its place
    hint: the cluster is missing: `store pull CLUSTER team/v/a project/demo/a`; `store cluster ls` lists those that have a name
    ");
    // A store may be at such a path.
    env.ok(["init", "project/demo/b"]);
    env.ok(["push", "project/demo/a", "project/demo/b"]);
}
