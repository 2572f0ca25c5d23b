//! How the store is found: a flag overrides the environment, which overrides the configuration, which overrides the
//! home.

use support::{TestEnvironment, check, environment};

fn url(env: &TestEnvironment, output: &str) -> String {
    let info: serde_json::Value = serde_json::from_str(output).unwrap();
    let url = info.get("url").unwrap().as_str().unwrap();
    url.strip_prefix(&format!("file://{}/", env.root().display()))
        .unwrap()
        .to_owned()
}

#[test]
fn init_makes_a_store_once() {
    let env = environment!();
    check!(env, env.store(["init", "a/store"]), @"
    exit code: 0
    --- stdout
    store [ID] is at file://[ROOT]/a/store
    --- stderr
    ");
    check!(env, env.store(["init", "a/store"]), @"
    exit code: 5
    --- stdout
    --- stderr
    error: file://[ROOT]/a/store: there is a store already
    hint: use it as it is, or name an empty place
    ");
    check!(env, env.store(["--store", "a/store", "info"]), @"
    exit code: 0
    --- stdout
    store        [ID] at file://[ROOT]/a/store
    format       2, fastcdc-v2020 16/64/256 KiB
    log          at entry 0
    refs         0 versions of 0 refs in 0 namespaces
    objects      0 chunks in 0 packs and 0 segments; 0 packs condemned
    logical      0 B
    distinct     0 B
    stored       0 B
    --- stderr
    ");
}

#[test]
fn init_for_machines() {
    let env = environment!();
    check!(env, env.store(["init", "--json"]), @r#"
    exit code: 0
    --- stdout
    {"url":"file://[ROOT]/home/.local/share/store","id":"[ID]"}
    --- stderr
    "#);
    check!(env, env.store(["info", "--json"]), @r#"
    exit code: 0
    --- stdout
    {"url":"file://[ROOT]/home/.local/share/store","id":"[ID]","format":2,"chunker":{"algorithm":"fastcdc-v2020","min":16384,"avg":65536,"max":262144,"normalization":2,"seed":0,"tensors":1},"features":{"compatible":[],"read_only":[],"incompatible":[]},"log_entry":0,"namespaces":0,"refs":0,"versions":0,"logical_bytes":0,"segments":0,"chunks":0,"packs":0,"distinct_bytes":0,"stored_bytes":[SIZE],"condemned_packs":0}
    --- stderr
    "#);
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_configuration() {
    let env = environment!();
    for place in ["flag", "variable", "configured"] {
        env.ok(["init", place]);
    }
    env.ok(["init"]);
    let info = |arguments: &[&str], variable: Option<&str>| {
        let mut command = env.command(["info", "--json"]);
        command.args(arguments);
        if let Some(variable) = variable {
            command.env("STORE_URL", variable);
        }
        let output = command.output().unwrap();
        url(&env, &String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(info(&[], None), "home/.local/share/store");
    let configuration = format!("store = {:?}\n", env.path("configured"));
    env.write("home/.config/store/config.toml", configuration);
    assert_eq!(info(&[], None), "configured");
    assert_eq!(info(&[], Some("variable")), "variable");
    assert_eq!(info(&["--store", "flag"], Some("variable")), "flag");
}

#[test]
fn the_directories_of_xdg_are_honoured() {
    let env = environment!();
    let mut init = env.command(["init", "--json"]);
    let output = init
        .env("XDG_DATA_HOME", env.path("data"))
        .output()
        .unwrap();
    assert_eq!(
        url(&env, &String::from_utf8(output.stdout).unwrap()),
        "data/store"
    );
    env.write(
        "configuration/store/config.toml",
        format!("store = {:?}\n", env.path("data/store")),
    );
    let mut info = env.command(["info", "--json"]);
    let output = info
        .env("XDG_CONFIG_HOME", env.path("configuration"))
        .output()
        .unwrap();
    assert_eq!(
        url(&env, &String::from_utf8(output.stdout).unwrap()),
        "data/store"
    );
}

#[test]
fn a_mistake_in_the_configuration_is_named() {
    let env = environment!();
    env.write("home/.config/store/config.toml", "# mine\nstroe = \"/x\"\n");
    check!(env, env.store(["info"]), @r#"
    exit code: 2
    --- stdout
    --- stderr
    error: configuration [ROOT]/home/.config/store/config.toml
      caused by: line 2, column 1: unknown field `stroe`, expected one of `store`, `store-profile`, `memory`, `deadline`, `pool`, `gc`, `keep`, `cluster`, `job`, `layout`, `profile`
    "#);
}

#[test]
fn a_configuration_that_is_not_utf8_is_named_with_its_line() {
    let env = environment!();
    env.write(
        "home/.config/store/config.toml",
        b"# mine\nstore = \"caf\xe9\"\n",
    );
    check!(env, env.store(["info"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: read the configuration [ROOT]/home/.config/store/config.toml
      caused by: line 2: expected UTF-8, found other bytes
    ");
    env.write("home/.config/store/config.toml", "");
    env.ok(["init"]);
    env.write("policy.toml", b"# caf\xe9\n");
    let refused = env.store(["policy", "set", "policy.toml"]);
    assert_eq!(refused.code, Some(2), "{refused}");
}

/// A shell writes `~` out, but not in `--store=~/x`, and nobody does it in the configuration.
#[test]
fn a_tilde_is_the_home_wherever_a_store_is_named() {
    let env = environment!();
    env.ok(["--store=~/data/mine", "init"]);
    assert!(env.path("home/data/mine/format").exists());
    assert!(!env.path("~").exists());
    env.write("in/file", "text");
    let config =
        "store = \"~/data/mine\"\n[pool]\npath = \"~/pool\"\n[cluster.far]\nurl = \"~/far\"\n";
    env.write("home/.config/store/config.toml", config);
    env.ok(["init", "~/far"]);
    env.ok(["put", "in", "project/demo/in"]);
    env.ok(["push", "project/demo/in", "far"]);
    env.ok(["--store", "~/far", "materialize", "project/demo/in", "out"]);
    assert!(env.path("home/pool").is_dir() && env.path("home/far/format").exists());
    let named = env.command(["ls"]).env("STORE_URL", "~/far").output();
    assert!(named.unwrap().status.success());
    env.ok(["cluster", "add", "again", "~/far"]);
    let text = env.ok(["cluster", "ls", "--json"]);
    assert!(!text.contains('~'), "{text}");
    env.ok(["run", "--project", "demo", "--base", "~/job", "--", "true"]);
    assert!(env.path("home/job").is_dir());
    // A directory that is called so.
    env.ok(["--store", "./~/data", "init"]);
    assert!(env.path("~/data/format").exists());
}

#[test]
fn without_a_home_a_store_must_be_named() {
    let env = environment!();
    let finished = env
        .command(["info"])
        .env_remove("HOME")
        .output()
        .unwrap()
        .into();
    let finished: support::Finished = finished;
    check!(env, finished, @"
    exit code: 3
    --- stdout
    --- stderr
    error: no store is named, and there is no home directory to keep one in
    hint: name one with --store or $STORE_URL, or set HOME
    ");
}

#[test]
fn an_unknown_profile_is_a_mistake_also_for_a_directory() {
    let env = environment!();
    env.ok(["init", "there"]);
    env.ok(["init"]);
    for store in [&["--store", "there"][..], &[]] {
        let finished = env.store([&["ls", "--store-profile", "nope"], store].concat());
        assert_eq!(finished.code, Some(2), "{finished}");
        let said = "profile nope is not in the configuration";
        assert!(finished.stderr.contains(said), "{finished}");
    }
}

#[test]
fn a_hint_says_what_to_run_on_the_store_that_was_named() {
    let env = environment!();
    env.write("in", "text");
    env.ok(["init", "far"]);
    env.ok(["init"]);
    env.ok(["put", "in", "project/demo/a", "--store", "far"]);
    for (arguments, hint) in [
        (
            &["get", "project/demo/a@7", "out", "--store", "far"][..],
            "`store history --store far project/demo/a`",
        ),
        (
            &["ls", "project/none", "--store", "far"],
            "`store ls --store far`",
        ),
        (&["pull", "far", "project/none"], "`store ls --store far`"),
        (
            &["pull", "far", "project/demo/a@7"],
            "`store history --store far project/demo/a`",
        ),
        (&["push", "project/none", "far"], "`store ls`"),
    ] {
        let finished = env.store(arguments);
        assert_eq!(finished.code, Some(3), "{finished}");
        assert!(finished.stderr.contains(hint), "{hint}: {finished}");
    }
}

#[test]
fn a_proxy_that_is_not_there_is_named_in_the_error() {
    let env = environment!();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut command = env.command(["ls", "--store", "s3://bucket/x", "--deadline", "1s"]);
    command
        .env("AWS_ACCESS_KEY_ID", "id")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ENDPOINT_URL", "https://storage.invalid")
        .env("HTTPS_PROXY", format!("http://ana:planted@{dead}"));
    let finished: support::Finished = command.output().unwrap().into();
    assert_eq!(finished.code, Some(1), "{finished}");
    let said = format!("no connection to https://storage.invalid (HTTPS_PROXY is set to {dead})");
    assert!(finished.stderr.contains(&said), "{finished}");
    assert!(!finished.stderr.contains("planted"), "{finished}");
}
