//! Files of a Hugging Face cache that are not what their name says: a save leaves them out.

use std::fs;
use std::process::Command;

use support::{Random, TestEnvironment, environment};

const REF: &str = "project/demo/hf";
const REPO: &str = "hub/models--org--name";
const COMMIT: &str = "abcdabcdabcdabcdabcdabcdabcdabcdabcdabcd";

/// A cache with one file, and the name of its blob.
fn cache(env: &TestEnvironment) -> (String, Vec<u8>) {
    let bytes = Random::new(7).bytes(3_000_000);
    env.write("blob", &bytes);
    let sum = Command::new("sha256sum").arg(env.path("blob")).output();
    let sum = String::from_utf8(sum.unwrap().stdout).unwrap();
    let blob = format!("{REPO}/blobs/{}", &sum[..64]);
    env.write(format!("home-of-hf/{blob}"), &bytes);
    env.write(format!("home-of-hf/{REPO}/refs/main"), COMMIT);
    let snapshot = env.path(format!("home-of-hf/{REPO}/snapshots/{COMMIT}"));
    fs::create_dir_all(&snapshot).unwrap();
    let target = format!("../../blobs/{}", &sum[..64]);
    std::os::unix::fs::symlink(target, snapshot.join("model.bin")).unwrap();
    (blob, bytes)
}

#[test]
fn what_is_not_the_bytes_of_its_name_is_left_out_and_named() {
    let env = environment!();
    let (blob, bytes) = cache(&env);
    env.ok(["put", "home-of-hf", REF]);
    let mut flipped = bytes.clone();
    flipped[100] ^= 1;
    for (number, broken) in [&bytes[..1000], &bytes[..2_000_000], &[], &flipped]
        .into_iter()
        .enumerate()
    {
        let dir = format!("job{number}");
        env.ok(["materialize", REF, &dir]);
        let path = env.path(format!("{dir}/{blob}"));
        fs::remove_file(&path).unwrap();
        fs::write(&path, broken).unwrap();
        env.write(format!("{dir}/hub/new{number}"), "of the job");
        let saved = env.store(["save", &dir]);
        assert_eq!(saved.code, Some(6), "{saved}");
        assert!(saved.stderr.contains("expected its name, found"), "{saved}");
        let there = env.store(["cat", &format!("{REF}:{blob}")]);
        assert!(there.stdout == bytes, "{there}");
        env.ok(["cat", &format!("{REF}:hub/new{number}")]);
    }
    // The base of a run, which a power cut left with an empty blob.
    let run = [
        "run",
        "--project",
        "p",
        "--base",
        "base",
        "--layout",
        "plain",
        "--",
    ];
    let fill = "cp -a home-of-hf/. base/project";
    let done = env.store([&run[..], &["sh", "-c", fill]].concat());
    assert_eq!(done.code, Some(0), "{done}");
    let path = env.path(format!("base/project/{blob}"));
    fs::remove_file(&path).unwrap();
    fs::write(&path, "").unwrap();
    let done = env.store([&run[..], &["true"]].concat());
    assert!(done.stderr.contains("expected its name, found"), "{done}");
    let there = env.store(["cat", &format!("project/p/cache:{blob}")]);
    assert!(there.stdout == bytes, "{there}");
}
