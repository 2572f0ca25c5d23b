//! Unmodified clients from PyPI, in short: `tests/run hub` and `tests/run s3-clients` test many more at length.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Map, Value};
use support::{Random, TestEnvironment, environment};

use crate::origin::Origin;
use crate::server::Server;

/// The steps of a client with a namespace that has one plain tree: it reads, and writes with Xet left on.
const FIRST: [&str; 7] = [
    "version", "whoami", "plain", "names", "upload", "commits", "command",
];

fn top() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn python(environment: &str) -> PathBuf {
    // Made by stock.sh.
    let python = top().join("target/stock").join(environment);
    python.join("bin/python")
}

/// Files that no client has seen: small, empty, with odd names, and larger than a request may contain inline.
fn sources(env: &TestEnvironment) {
    let mut random = Random::new(5);
    for (name, bytes) in [
        ("plain/README.md", b"# plain\n".to_vec()),
        ("plain/a b+c/d.txt", b"text\n".repeat(300)),
        ("plain/empty", Vec::new()),
        ("plain/large.bin", random.bytes(3_000_000)),
        (
            "upload/README.md",
            b"---\nlicense: mit\n---\n# ours\n".to_vec(),
        ),
        ("upload/gone.txt", b"goes".to_vec()),
        ("upload/a b/c+d.txt", b"deep\n".to_vec()),
        ("upload/large.bin", random.bytes(12_000_000)),
        ("upload/empty.txt", Vec::new()),
        ("upload/text.json", b"{}\n".repeat(4000)),
    ] {
        env.write(format!("source/{name}"), bytes);
    }
}

/// Runs steps of tests/hub/steps.py in a client's home. Asserts that each succeeds.
fn steps(env: &TestEnvironment, version: &str, home: &str, access: (&str, &str), steps: &[&str]) {
    let (endpoint, token) = access;
    let home = env.path(home);
    std::fs::create_dir_all(&home).unwrap();
    let done = Command::new(python(&format!("hub-{version}")))
        .arg("-B")
        .arg(top().join("tests/hub/steps.py"))
        .args(steps)
        .current_dir(&home)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .env("HOME", &home)
        .env("HF_HOME", &home)
        .env("HF_ENDPOINT", endpoint)
        .env("HF_TOKEN", token)
        .env("HF_HUB_DISABLE_TELEMETRY", "1")
        .env("HF_HUB_DISABLE_UPDATE_CHECK", "1")
        .env("CLIENT_VERSION", version)
        .env("SOURCE", env.path("source"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stdout);
    let results = serde_json::from_str::<Map<String, Value>>(&told);
    let results = results.unwrap_or_else(|_| {
        let failure = String::from_utf8_lossy(&done.stderr);
        panic!("{told}{failure}")
    });
    assert_eq!(results.len(), steps.len(), "{results:?}");
    for (step, result) in &results {
        assert_eq!(
            result,
            "ok",
            "{step}: {}",
            result.as_str().unwrap_or_default()
        );
    }
}

/// One generation of clients reads a tree and writes repositories. Its cache is then saved, and a client with an empty
/// home gets the same commits from it.
fn generation(version: &str) {
    let env = environment!();
    sources(&env);
    env.ok(["put", "source/plain", "project/demo/plain/files"]);
    let token = env.ok(["token", "add", "tester", "--role", "write"]);
    let token = token.trim();
    let server = Server::start(&env, &["--root", "project/demo"]);
    let address = format!("http://{}", server.address());
    steps(&env, version, "one", (&address, token), &FIRST);
    let versions = env.ok(["history", "project/demo/models/org/own-model"]);
    assert!(
        versions.contains("first") && versions.contains("third"),
        "{versions}"
    );
    env.ok(["put", "one", "project/saved/cache", "--profile", "hf"]);
    let saved = format!("{address}/project/saved");
    steps(&env, version, "two", (&saved, token), &["plain", "names"]);
    let commit = |home: &str| {
        let main = format!("{home}/hub/models--plain--files/refs/main");
        std::fs::read_to_string(env.path(main)).unwrap()
    };
    assert_eq!(commit("one"), commit("two"));
    // This repository was downloaded to a user's directory, so the cache has its ref and no files.
    let downloaded = server.ask(&format!(
        "GET /project/saved/api/models/org/by-command\nAuthorization: Bearer {token}"
    ));
    assert_eq!(downloaded.failure(), (404, Some("RevisionNotFound")));
    assert_eq!(server.stop(), Some(0));
    let log = std::fs::read_to_string(env.path("log")).unwrap();
    assert!(!log.contains(r#""status":5"#), "{log}");
    assert!(!log.contains(token));
    env.ok(["verify", "--read-data"]);
}

#[test]
fn the_oldest_client_of_the_hub_reads_and_writes() {
    generation("0.36.2");
}

#[test]
fn the_newest_client_of_the_hub_reads_and_writes() {
    generation("2.4.0");
}

#[test]
fn boto3_reads_and_cannot_write() {
    let env = environment!();
    let done = Command::new(python("boto"))
        .arg("-B")
        .arg(top().join("tests/s3-clients/suite.py"))
        .arg(env.command([""; 0]).get_program())
        .arg(top().join("target/stock"))
        .arg("boto")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stdout);
    let failure = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}{failure}");
}

/// A client that is told to ask for a file again does so: each generation hears it in its own words.
fn asks_again(version: &str, told: &str) {
    let env = environment!();
    env.ok(["init"]);
    let origin = Origin::start();
    let bytes = Random::new(8).bytes(200_000);
    origin.add("org/m", &[("x.bin", &bytes)]);
    origin.plan(|plan| plan.file_status = Some(503));
    let server = Server::start(&env, &["--upstream", &origin.url()]);
    let home = env.path("home");
    let client = Command::new(python(&format!("hub-{version}")))
        .args(["-B", "-c"])
        .arg("import huggingface_hub as h; print(h.hf_hub_download('org/m', 'x.bin'))")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", &home)
        .env("HF_HOME", &home)
        .env(
            "HF_ENDPOINT",
            format!("http://{}/project/demo", server.address()),
        )
        .env("HF_HUB_DISABLE_TELEMETRY", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_told = || {
        std::fs::read_to_string(env.path("log"))
            .unwrap()
            .contains(told)
    };
    // Much longer than it takes.
    for _ in 0..1200 {
        if is_told() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    origin.plan(|plan| plan.file_status = None);
    let done = client.wait_with_output().unwrap();
    let failure = String::from_utf8_lossy(&done.stderr);
    assert!(is_told() && done.status.success(), "{failure}");
    let path = String::from_utf8(done.stdout).unwrap();
    assert!(std::fs::read(path.trim()).unwrap() == bytes);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn the_oldest_client_of_the_hub_asks_again() {
    asks_again("0.36.2", r#""status":503"#);
}

#[test]
fn the_newest_client_of_the_hub_asks_again() {
    asks_again("2.4.0", r#""status":429"#);
}
