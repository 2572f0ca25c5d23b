//! cli/JSON.md is a contract: with `--json`, each verb prints the fields of its sample, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::Value;
use support::{Random, TestEnvironment, environment};

use crate::listing::two_kept;

const DOCUMENT: &str = include_str!("../../cli/JSON.md");
/// Fields that need damage, delay, a race or other users, so that no run here prints them.
const RARE: [(&str, &str); 26] = [
    ("diff", ".after.group: number"),
    ("diff", ".after.user: number"),
    ("diff", ".before.group: number"),
    ("diff", ".before.user: number"),
    ("duplicate", ".stopped: text"),
    ("gc", ".plan.claims: list"),
    ("gc", ".plan.claims[]: text"),
    ("materialize", ".damaged[].file: text"),
    ("materialize", ".damaged[].set_aside: text"),
    ("materialize", ".damaged[].shared_with: list"),
    ("materialize", ".damaged[].shared_with[]: text"),
    ("materialize", ".damaged[]: object"),
    ("pool verify", ".damaged[].file: text"),
    ("pool verify", ".damaged[].set_aside: text"),
    ("pool verify", ".damaged[].shared_with: list"),
    ("pool verify", ".damaged[].shared_with[]: text"),
    ("pool verify", ".damaged[]: object"),
    ("put", ".skipped[].error: text"),
    ("put", ".skipped[].path: text"),
    ("put", ".skipped[]: object"),
    ("rm", ".warnings: list"),
    ("rm", ".warnings[]: text"),
    ("undo", ".failed[].error: text"),
    ("undo", ".failed[].from_version: number"),
    ("undo", ".failed[].ref: text"),
    ("undo", ".failed[]: object"),
];

/// A path of field names, and the type at its end.
type Shape = BTreeSet<String>;

/// The output of verbs, by name.
#[derive(Default)]
struct Said(BTreeMap<String, Vec<Value>>);

impl Said {
    /// Runs a verb, with any exit code, and keeps the objects that it prints.
    fn run(&mut self, env: &TestEnvironment, verb: &str, arguments: &[&str]) {
        let words = verb.split(' ').chain(arguments.iter().copied());
        let done = env.store(words.chain(["--json"]));
        let objects: Vec<Value> = String::from_utf8_lossy(&done.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{verb}: {done}")))
            .collect();
        assert!(!objects.is_empty(), "{verb} {arguments:?}: {done}");
        self.0.entry(verb.to_owned()).or_default().extend(objects);
        self.errors(&done.stderr);
    }

    /// Starts a verb that runs until it is stopped, and keeps the first object that it prints.
    fn start(&mut self, env: &TestEnvironment, verb: &str, arguments: &[&str]) {
        let words = [verb].into_iter().chain(arguments.iter().copied());
        let mut command = env.command(words.chain(["--json"]));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let object = serde_json::from_str(&line).unwrap();
        self.0.entry(verb.to_owned()).or_default().push(object);
    }

    /// Runs a verb that prints to standard error.
    fn fail(&mut self, env: &TestEnvironment, arguments: &[&str]) {
        let done = env.store(arguments.iter().chain(&["--json"]));
        assert!(!done.stderr.is_empty(), "{arguments:?}");
        self.errors(&done.stderr);
    }

    fn errors(&mut self, stderr: &str) {
        for line in stderr.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let what = if line.get("error").is_some() {
                "error"
            } else {
                "warning"
            };
            self.0.entry(what.to_owned()).or_default().push(line);
        }
    }
}

/// The samples of the document, by the verb in their heading.
fn samples() -> BTreeMap<String, Vec<Value>> {
    let mut samples = BTreeMap::new();
    for section in DOCUMENT.split("\n## ").skip(1) {
        let heading = section.lines().next().unwrap();
        let Some(name) = heading.split('`').nth(1) else {
            continue;
        };
        let name = name.trim_start_matches("store ").to_owned();
        let blocks = section.split("```json\n").skip(1);
        let blocks = blocks.map(|block| block.split("```").next().unwrap());
        let objects = blocks.flat_map(|block| {
            let objects = serde_json::Deserializer::from_str(block).into_iter();
            objects.map(move |object| {
                object.unwrap_or_else(|error| panic!("{heading}: {error}\n{block}"))
            })
        });
        samples.insert(name, objects.collect());
    }
    samples
}

fn shape<'v>(objects: impl IntoIterator<Item = &'v Value>) -> Shape {
    let mut shape = Shape::new();
    objects
        .into_iter()
        .for_each(|object| add(object, "", &mut shape));
    shape
}

fn add(value: &Value, path: &str, shape: &mut Shape) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(items) => {
            items
                .iter()
                .for_each(|item| add(item, &format!("{path}[]"), shape));
            "list"
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                // A name with a slash is not a field but a ref.
                let name = if name.contains('/') { "REF" } else { name };
                add(field, &format!("{path}.{name}"), shape);
            }
            "object"
        }
    };
    shape.insert(format!("{path}: {kind}"));
}

fn look(env: &TestEnvironment, said: &mut Said) {
    let run = |said: &mut Said, verb: &str, arguments: &[&str]| said.run(env, verb, arguments);
    for arguments in [
        &[] as &[&str],
        &["project/demo"],
        &["project/demo/data", "--recursive", "--long"],
    ] {
        run(said, "ls", arguments);
    }
    run(said, "diff", &["project/demo/data@1", "project/demo/data"]);
    run(said, "summarize", &["project/demo"]);
    run(said, "summarize", &["project/demo/data"]);
    run(said, "history", &["project/demo/data"]);
    run(said, "du", &[]);
    run(said, "info", &[]);
    run(said, "info", &["--bench"]);
    run(said, "help", &[]);
    run(said, "help", &["space"]);
    run(said, "policy", &[]);
}

/// Files of all kinds, names that are not UTF-8, and private files.
fn put(env: &TestEnvironment, said: &mut Said) {
    said.run(env, "init", &[]);
    env.write("in/data.bin", Random::new(1).bytes(400_000));
    env.write("in/gone.txt", "gone");
    env.write("in/tool", "#!/bin/sh\n");
    env.write(std::ffi::OsStr::new("in/caf"), "x");
    let odd: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"in/caf\xe9");
    env.write(odd, "odd");
    std::os::unix::fs::symlink("tool", env.path("in/link")).unwrap();
    said.run(env, "put", &["in", "project/demo/data", "--dry-run"]);
    said.run(env, "put", &["in", "project/demo/data", "--ttl", "30d"]);
    std::fs::remove_file(env.path("in/gone.txt")).unwrap();
    env.write("in/new/file", "new");
    for (name, mode) in [("in/tool", 0o755), ("in/data.bin", 0o600)] {
        std::fs::set_permissions(env.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    said.run(
        env,
        "put",
        &["in", "project/demo/data", "--message", "with a patch"],
    );
    said.run(
        env,
        "policy keep",
        &[
            "project/*",
            "--last",
            "3",
            "--within",
            "30d",
            "--daily",
            "7",
            "--weekly",
            "4",
            "--monthly",
            "2",
            "--quota",
            "5TB",
        ],
    );
    said.run(env, "policy max-size", &["10TB"]);
}

/// Numbers, and a slightly changed version of them.
fn deltas(env: &TestEnvironment, said: &mut Said) {
    for steps in 0..2 {
        env.write("in/weights", crate::deltas::weights(steps));
        env.ok(["put", "in", "project/demo/weights"]);
    }
    env.ok(["rm", "project/demo/weights@1"]);
    said.run(env, "summarize", &["project/demo/weights"]);
    said.run(env, "info", &[]);
}

fn trees(env: &TestEnvironment, said: &mut Said) {
    said.run(env, "get", &["project/demo/data", "out"]);
    said.run(env, "materialize", &["project/demo/data@1", "tree"]);
    env.write("tree/tool2", "ours");
    std::fs::remove_file(env.path("tree/gone.txt")).unwrap();
    env.write("tree/tool", "changed");
    said.run(
        env,
        "materialize",
        &["project/demo/data", "tree", "--dry-run"],
    );
    said.run(env, "materialize", &["project/demo/data", "tree"]);
    for options in [&["--exact", "--dry-run"][..], &["--exact"]] {
        let words = [&["project/demo/data", "tree"], options].concat();
        said.run(env, "materialize", &words);
    }
    env.write("full/file", "full");
    env.write("job/tool", "base");
    env.ok(["put", "job", "project/demo/jobs"]);
    for tree in ["mine", "theirs"] {
        env.ok(["materialize", "project/demo/jobs", tree]);
        env.write(format!("{tree}/tool"), tree);
    }
    let owners = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(env.path("mine/tool"), owners).unwrap();
    let pipe = env.path("mine/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    said.run(env, "save", &["theirs"]);
    said.run(env, "save", &["mine"]);
    env.ok(["rm", "project/demo/jobs", "--yes"]);
    said.run(
        env,
        "materialize",
        &["project/demo/data", "full", "--force"],
    );
    said.run(env, "pool status", &[]);
    said.run(env, "pool verify", &[]);
    said.run(env, "pool evict", &["--to", "0"]);
}

fn clusters(env: &TestEnvironment, said: &mut Said) {
    env.ok(["init", "there"]);
    said.run(env, "cluster add", &["h200", "there"]);
    said.run(
        env,
        "cluster add",
        &["far", "s3://bucket/p", "--profile", "eu", "--no-check"],
    );
    said.run(env, "cluster ls", &[]);
    said.run(env, "push", &["project/demo", "h200", "--versions", "all"]);
    said.run(env, "push", &["project/demo", "h200", "--dry-run"]);
    said.run(env, "history", &["project/demo/data", "--store", "h200"]);
    said.run(env, "pull", &["h200", "project/demo/data"]);
    said.run(env, "export", &["demo.bundle", "project/demo"]);
    said.run(env, "import", &["demo.bundle"]);
    let from = env.path("home/.local/share/store");
    let from = from.to_str().unwrap();
    let config = env.path("home/.config/store/config.toml");
    let mut text = std::fs::read_to_string(&config).unwrap();
    text += &format!("[job.nightly]\nfrom = {from:?}\nto = \"h200\"\nrefs = [\"project/demo\"]\n");
    std::fs::write(&config, text).unwrap();
    said.run(env, "duplicate", &["--job", "nightly"]);
    said.run(
        env,
        "duplicate",
        &[
            "project/demo/data",
            "project/demo/none",
            "--from",
            from,
            "--to",
            "h200",
        ],
    );
    said.run(env, "duplicate", &["--status"]);
    said.run(env, "duplicate", &["--status", "nightly"]);
    said.run(env, "cluster rm", &["far"]);
    said.run(env, "where", &["project/demo/data"]);
    env.write("broken/format", "no store");
    env.ok(["cluster", "add", "broken", "broken", "--no-check"]);
    said.run(env, "where", &["project/demo/data"]);
    env.ok(["cluster", "rm", "broken"]);
    said.run(env, "wait", &["project/demo/data"]);
    for (step, text) in [("1", "one"), ("2", "two")] {
        env.write(format!("steps/{step}/weights"), text);
        env.write(format!("steps/{step}/DONE"), "");
        said.run(
            env,
            "watch",
            &[
                "steps",
                "project/demo/steps",
                "--done",
                "DONE",
                "--once",
                "--keep",
                "1",
            ],
        );
    }
    // The directory of a dropped checkpoint still exists.
    let again = ["steps", "project/demo/steps", "--done", "DONE", "--once"];
    said.run(env, "watch", &again);
}

/// A local cache of kernels and one in a ref: entries in all states, and one key with different entries in both.
fn compile_caches(env: &TestEnvironment, said: &mut Said) {
    let text = "about = \"\"\nstale = \"1h\"\n[[entry]]\npath = \"cache-{kind}/{key}\"\n\
                needs = [{ files = [\"ok\"], bytes = 0 }]\nfailed = [\"log\"]\nlocks = [\"*.lock\"]\nkeys = [\"flags\"]\n";
    env.write("home/.config/store/profiles/own.toml", text);
    for (file, text) in [
        ("far/cache-a/both/ok", ""),
        ("far/cache-a/both/flags", "[\"-O1\"]"),
        ("far/cache-a/busy/ok", ""),
        ("near/cache-a/busy/x.lock", ""),
        ("far/cache-a/failed/log", "no memory"),
        ("far/cache-a/half/code", "half"),
        ("near/cache-a/both/ok", "another"),
        ("near/cache-a/new/ok", ""),
        ("near/cache-a/key/ok", "glpat-qVzKxTfRbYvNmLpHsJdG"),
        ("near/cache-a/new/flags", "[\"-O2\"]"),
        ("near/cache-a/failed/log", "no memory"),
        ("near/cache-a/half/x.lock", ""),
        ("near/cache-a/open/code", "half"),
        ("near/mine", "mine"),
    ] {
        env.write(file, text);
    }
    env.ok(["put", "far", "project/own/cache"]);
    let near = |said: &mut Said, verb: &str, more: &[&str]| {
        let words = [&["--profile", "own", "near"], more].concat();
        said.run(env, &format!("cache {verb}"), &words);
    };
    near(said, "status", &["project/own/cache", "project/own/none"]);
    near(said, "pull", &["project/own/cache", "project/own/none"]);
    near(said, "push", &["project/own/none", "--dry-run"]);
    near(said, "push", &["project/own/cache"]);
    let of_ref = |said: &mut Said, verb: &str, keys: &[&str]| {
        let words = [&["--profile", "own", "project/own/cache"], keys].concat();
        said.run(env, &format!("cache {verb}"), &words);
    };
    of_ref(said, "lookup", &["both", "nothing"]);
    let (own, places) = (["--profile", "own"], ["near", "project/own/cache"]);
    for key in ["both", "new", "failed"] {
        said.run(env, "cache why", &[&own, &[key][..], &places].concat());
    }
    env.write("near/cache-a/new/x.lock", "");
    said.run(env, "cache clean", &["--profile", "own", "near"]);
    near(said, "clean", &["--stale", "0s"]);
}

fn soundness(env: &TestEnvironment, said: &mut Said) {
    said.run(env, "verify", &["--read-data"]);
    said.run(env, "repair", &["--dry-run"]);
    let dirs = std::fs::read_dir(env.path("there/packs")).unwrap();
    let files = dirs.flat_map(|dir| std::fs::read_dir(dir.unwrap().path()).unwrap());
    let files = files.map(|file| file.unwrap().path());
    let largest = files
        .max_by_key(|file| std::fs::metadata(file).unwrap().len())
        .unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    bytes[1000] ^= 4;
    std::fs::write(&largest, bytes).unwrap();
    said.run(env, "verify", &["--read-data", "--store", "h200"]);
    said.run(env, "repair", &["--store", "h200"]);
}

fn space(env: &TestEnvironment, said: &mut Said) {
    said.run(env, "gc", &["--dry-run", "--max-size", "1kB"]);
    said.run(env, "gc", &["--dry-run", "--keep-last", "1"]);
    said.run(env, "pin", &["project/demo/data@2"]);
    said.run(env, "rm", &["project/demo/data@1", "--dry-run"]);
    said.run(env, "rm", &["project/demo/data@1"]);
    said.run(env, "undo", &["--dry-run"]);
    said.run(env, "undo", &[]);
    said.run(env, "undo", &[]);
    said.run(
        env,
        "rm",
        &["project/demo/data", "--glob", "tool", "--dry-run"],
    );
    said.run(env, "rm", &["project/demo/data", "--glob", "tool"]);
    said.run(env, "rm", &["project/demo", "--yes"]);
    said.run(env, "unpin", &["project/demo/data@2"]);
    said.run(env, "policy rm", &["project/*"]);
    env.write("policy.toml", "max-size = \"1TB\"\n");
    said.run(env, "policy set", &["policy.toml"]);
    said.run(env, "policy clear", &[]);
    env.write("small/file", "small");
    env.ok(["put", "small", "project/other/small"]);
    env.ok(["rm", "project/demo", "--yes"]);
    // Condemned first, then deleted.
    said.run(env, "gc", &["--min-age", "0"]);
    said.run(env, "gc", &["--min-age", "0"]);
    said.run(env, "gc", &["--min-age", "0", "--grace", "0"]);
}

#[test]
fn every_verb_prints_what_the_document_says() {
    let env = environment!();
    let mut said = Said::default();
    put(&env, &mut said);
    trees(&env, &mut said);
    look(&env, &mut said);
    clusters(&env, &mut said);
    let kept = environment!();
    two_kept(&kept);
    said.run(&kept, "diff", &["project/demo/data@1", "project/demo/data"]);
    compile_caches(&environment!(), &mut said);
    deltas(&environment!(), &mut said);
    soundness(&env, &mut said);
    let any = "127.0.0.1:0";
    said.start(&env, "serve", &["--listen", any, "--s3-listen", any]);
    said.run(&env, "token add", &["ci", "--expires", "90d"]);
    said.run(&env, "token ls", &[]);
    said.run(&env, "token rm", &["ci"]);
    space(&env, &mut said);
    said.fail(&env, &["put", "--nope"]);
    said.fail(&env, &["ls", "project/none"]);
    said.fail(&env, &["get", "project/demo/data", "out"]);
    let samples = samples();
    let mut offences = Vec::new();
    for (verb, objects) in &said.0 {
        for object in objects.iter().filter(|object| object["schema"] != 1) {
            offences.push(format!("{verb}: an object has no schema: {object}"));
        }
        let expected = shape(samples.get(verb).into_iter().flatten());
        let found = shape(objects);
        let rare: Shape = RARE
            .iter()
            .filter(|(of, _)| of == verb)
            .map(|(_, path)| (*path).to_owned())
            .collect();
        offences.extend(
            found
                .difference(&expected)
                .map(|path| format!("{verb}: {path}: is not in the document")),
        );
        let missing: Shape = expected.difference(&found).cloned().collect();
        offences.extend(
            missing
                .symmetric_difference(&rare)
                .map(|path| format!("{verb}: {path}: is in the document, and no run has it")),
        );
    }
    let known: BTreeSet<&String> = said.0.keys().collect();
    let documented: BTreeSet<&String> = samples.keys().collect();
    offences.extend(
        documented
            .symmetric_difference(&known)
            .map(|verb| format!("{verb}: has a sample, or a run, but not both")),
    );
    assert!(offences.is_empty(), "\n{}", offences.join("\n"));
}

/// These print raw bytes, or text in the format of another program.
const WITHOUT_JSON: [&str; 4] = ["cat", "completions", "man", "run"];

#[test]
fn every_verb_has_a_sample() {
    let env = environment!();
    let told: Value = serde_json::from_str(&env.ok(["help", "--json"])).unwrap();
    let samples = samples();
    for verb in told["verbs"].as_array().unwrap() {
        let verb = verb["verb"].as_str().unwrap();
        let has = samples
            .keys()
            .any(|name| name.split(' ').next() == Some(verb));
        assert_eq!(has, !WITHOUT_JSON.contains(&verb), "{verb}");
        assert!(DOCUMENT.contains(&format!("`store {verb}")), "{verb}");
    }
}
