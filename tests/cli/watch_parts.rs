//! Checkpoints that lack files: published versions stay, and an incomplete directory is not published.

use std::fs;
use std::time::Duration;

use support::{Random, TestEnvironment, environment};

use crate::watch::{REF, age, checkpoint, end, line, once, published, start};

/// Damages the directory of a published checkpoint.
fn spoil(env: &TestEnvironment, dir: &str, how: &str) {
    match how {
        "torn" => drop(env.write(format!("{dir}/m1.pt"), b"PK\x03\x04 half")),
        "no marker" => fs::remove_file(env.path(format!("{dir}/trainer_state.json"))).unwrap(),
        "gone" => fs::remove_dir_all(env.path(dir)).unwrap(),
        "a file less" => fs::remove_file(env.path(format!("{dir}/m1.pt"))).unwrap(),
        "the marker alone" => {
            for file in 0..3 {
                fs::remove_file(env.path(format!("{dir}/m{file}.pt"))).unwrap();
            }
            // As if everything had been copied here just now.
            let marker = env.path(format!("{dir}/trainer_state.json"));
            let rights = fs::metadata(&marker).unwrap().permissions();
            fs::set_permissions(&marker, rights).unwrap();
        }
        _ => drop(env.write(
            format!("{dir}/.netrc"),
            "machine host login me password secret",
        )),
    }
}

/// Writes three files and the marker, all more than `secs` old.
fn three_files(env: &TestEnvironment, number: u64, secs: u64) {
    let dir = format!("out/checkpoint-{number}");
    for file in 0..3 {
        let bytes = Random::new(10 * number + file).bytes(1000);
        env.write(format!("{dir}/m{file}.pt"), bytes);
        age(env, &format!("{dir}/m{file}.pt"), secs);
    }
    env.write(format!("{dir}/trainer_state.json"), "{}");
    age(env, &format!("{dir}/trainer_state.json"), secs);
}

/// The ref records the age of its newest checkpoint, whatever happened to the directory since.
#[test]
fn the_only_whole_version_stays_whatever_became_of_its_directory() {
    for how in [
        "torn",
        "no marker",
        "gone",
        "a file less",
        "the marker alone",
        "a secret",
    ] {
        let env = environment!();
        three_files(&env, 1, 60);
        three_files(&env, 2, 30);
        // Either the watch or a collector drops the older version.
        let keep: &[&str] = if how == "torn" { &[] } else { &["--keep", "1"] };
        assert_eq!(once(&env, keep).code, Some(0));
        if keep.is_empty() {
            env.ok(["gc", "--keep-last", "1", "--grace", "0"]);
        }
        spoil(&env, "out/checkpoint-2", how);
        let before = env.ok(["history", REF, "--json"]);
        let done = once(&env, keep);
        assert_eq!(done.stdout, b"", "{how}: {done}");
        let expected = if how == "gone" { 0 } else { 6 };
        assert_eq!(done.code, Some(expected), "{how}: {done}");
        let after = env.ok(["history", REF, "--json"]);
        assert_eq!(after, before, "{how}");
    }
}

/// An interrupted deletion or rewrite leaves fewer files than were published.
#[test]
fn what_lost_files_is_not_published_again() {
    let env = environment!();
    three_files(&env, 1, 60);
    let mut watch = start(&env, &["--keep", "1"]);
    assert!(line(&mut watch).contains("ckpt@1"));
    for file in 0..3 {
        fs::remove_file(env.path(format!("out/checkpoint-1/m{file}.pt"))).unwrap();
        std::thread::sleep(Duration::from_millis(1500));
    }
    let ended = end(watch);
    for done in [ended, once(&env, &["--keep", "1"])] {
        assert_eq!(done.code, Some(6), "{done}");
        assert_eq!(done.stdout, b"", "{done}");
        assert!(done.stderr.contains("checkpoint-1: "), "{done}");
    }
    // A new marker says that fewer files are intended.
    env.write("out/checkpoint-1/trainer_state.json", "{}");
    let done = once(&env, &["--keep", "1"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(published(&env), ["checkpoint-1"]);
}

/// A NumPy array of 12 bytes in its file format.
fn array() -> Vec<u8> {
    let head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1), }\n";
    let len = u16::try_from(head.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], head, &[7; 12]].concat()
}

#[test]
fn what_lacks_a_part_that_it_names_is_not_finished() {
    let env = environment!();
    let dir = "out/checkpoint-1";
    let index = r#"{"weight_map": {"a": "model-1.safetensors", "b": "deep/model-2.bin"}}"#;
    let whole = array();
    for len in [0, 9, 40, whole.len() - 1, whole.len()] {
        env.write(format!("{dir}/state.npy"), &whole[..len]);
        env.write(format!("{dir}/trainer_state.json"), "{}");
        let done = once(&env, &[]);
        let is_whole = len == whole.len();
        assert_eq!(
            done.code,
            Some(if is_whole { 0 } else { 6 }),
            "{len}: {done}"
        );
        assert_eq!(done.stderr.contains("state.npy is cut off"), !is_whole);
    }
    for name in [
        "model.safetensors.index.json",
        "pytorch_model.bin.index.json",
    ] {
        let dir = format!("out/{name}");
        env.write(format!("{dir}/{name}"), index);
        env.write(
            format!("{dir}/model-1.safetensors"),
            b"\x02\0\0\0\0\0\0\0{}",
        );
        env.write(format!("{dir}/DONE"), "");
        let done = once(&env, &["--done", "DONE"]);
        let why = format!("not finished: {name} names deep/model-2.bin, which is not there");
        assert!(done.stderr.contains(&why), "{done}");
        env.write(format!("{dir}/deep/model-2.bin"), "w");
        env.write(format!("{dir}/{name}"), "{\"weight_map");
        env.write(format!("{dir}/DONE"), "");
        let done = once(&env, &["--done", "DONE"]);
        let why = format!("{name} is cut off");
        assert!(done.stderr.contains(&why), "{done}");
        env.write(format!("{dir}/{name}"), index);
        env.write(format!("{dir}/DONE"), "");
        let done = once(&env, &["--done", "DONE"]);
        assert!(!done.stderr.contains(name), "{done}");
    }
    assert_eq!(published(&env).len(), 3);
}

/// A checkpoint that is being deleted before any watch has seen it complete.
#[test]
fn what_is_being_deleted_is_not_published() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    std::thread::sleep(Duration::from_millis(1500));
    fs::remove_file(env.path("out/checkpoint-1/rank-0/state")).unwrap();
    for _ in 0..2 {
        let done = once(&env, &[]);
        assert_eq!(done.code, Some(6), "{done}");
        let why = "checkpoint-1: not finished: a file of it was removed after trainer_state.json";
        assert!(done.stderr.contains(why), "{done}");
        // Reported when it is seen, and in the list at the end.
        assert_eq!(done.stderr.matches(why).count(), 2, "{done}");
    }
    env.write("out/checkpoint-1/trainer_state.json", "{}");
    assert_eq!(once(&env, &[]).code, Some(0));
}

/// An overwritten file cannot be recognized from outside.
#[test]
fn a_watch_that_ends_names_what_was_broken_off_while_it_ran() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    let mut watch = start(&env, &[]);
    assert!(line(&mut watch).contains("ckpt@1"));
    std::thread::sleep(Duration::from_millis(1500));
    env.write("out/checkpoint-1/optimizer.bin", "half");
    let done = end(watch);
    assert_eq!(done.code, Some(6), "{done}");
    let why = "checkpoint-1: not finished: trainer_state.json is older than optimizer.bin";
    assert!(done.stderr.contains(why), "{done}");
    assert_eq!(published(&env), ["checkpoint-1"]);
}

/// A job that went back writes a published checkpoint again, in place, and another rank is late.
#[test]
fn what_is_written_again_in_place_is_published_once_all_of_it_is() {
    let files = [
        "config.json",
        "model.bin",
        "rng_state_0.bin",
        "scheduler.bin",
    ];
    for (marker, options) in [
        ("trainer_state.json", &["--keep", "1"][..]),
        ("DONE", &["--keep", "1", "--done", "DONE"]),
    ] {
        let env = environment!();
        let write =
            |name: &str, text: &str| drop(env.write(format!("out/checkpoint-8/{name}"), text));
        let write_all = |text: &str| {
            files.iter().for_each(|name| write(name, text));
            write(marker, "{}");
        };
        write("optimizer.bin", "A");
        write_all("A");
        let mut watch = start(&env, options);
        assert!(line(&mut watch).contains("ckpt@1"));
        write_all("B");
        std::thread::sleep(Duration::from_secs(8));
        assert_eq!(env.ok(["cat", &format!("{REF}@latest:model.bin")]), "A");
        write("optimizer.bin", "B");
        assert!(line(&mut watch).contains("ckpt@2"));
        for name in files.iter().chain(&["optimizer.bin"]) {
            assert_eq!(env.ok(["cat", &format!("{REF}@latest:{name}")]), "B");
        }
        // It is broken off.
        write_all("C");
        std::thread::sleep(Duration::from_secs(7));
        for done in [end(watch), once(&env, options)] {
            assert_eq!((done.code, &*done.stdout), (Some(6), &b""[..]), "{done}");
            let why = "checkpoint-8: not finished: other files were written since it was published, and optimizer.bin was not";
            assert!(done.stderr.contains(why), "{done}");
        }
        // A trainer that leaves a file as it is.
        let done = once(&env, &[options, &["--settled", "2s"]].concat());
        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!(published(&env), ["checkpoint-8"]);
    }
}
