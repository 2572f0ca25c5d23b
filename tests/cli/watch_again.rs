//! What is published again and what is not; and what a watch finds if none was running before.

use std::fs;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use support::{Finished, TestEnvironment, environment};

use crate::watch::{REF, age, checkpoint, end, line, once, published, start};

/// An empty pickle, as in a file of PyTorch.
const PICKLE: &[u8] = b"\x80\x02N.";

fn content(env: &TestEnvironment, number: u64, text: &str) {
    let dir = format!("out/checkpoint-{number}");
    env.write(format!("{dir}/weights"), text);
    env.write(format!("{dir}/trainer_state.json"), "{}");
}

fn out(done: &Finished) -> String {
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Names and reasons of unpublished checkpoints in the JSON output.
fn left_out(done: &Finished) -> Vec<(String, String)> {
    let said = out(done);
    let lines = said
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told = lines.filter_map(|line| {
        let why = line["not_published"].as_str()?.to_owned();
        Some((line["checkpoint"].as_str()?.to_owned(), why))
    });
    told.collect()
}

fn touch(env: &TestEnvironment, number: u64) {
    for file in ["weights", "trainer_state.json"] {
        let path = env.path(format!("out/checkpoint-{number}/{file}"));
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now()).unwrap();
    }
}

/// A script that keeps files from being purged touches all of them, also those whose versions were dropped.
#[test]
fn what_was_dropped_stays_dropped_until_its_content_changes() {
    let env = environment!();
    for (number, text) in [(1, "A"), (2, "B"), (3, "C")] {
        content(&env, number, text);
        assert_eq!(once(&env, &["--keep", "1"]).code, Some(0));
    }
    std::thread::sleep(Duration::from_millis(1100));
    for number in [1, 2] {
        touch(&env, number);
    }
    for _ in 0..2 {
        let done = once(&env, &["--keep", "1", "--json"]);
        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!(published(&env), ["checkpoint-3"], "{done}");
        let names: Vec<String> = left_out(&done).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["checkpoint-1", "checkpoint-2"], "{done}");
    }
    // The same in the watch that dropped the version.
    let mut watch = start(&env, &["--keep", "1"]);
    content(&env, 4, "D");
    assert!(line(&mut watch).contains("checkpoint-4"));
    touch(&env, 3);
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(published(&env), ["checkpoint-4"]);
    // A job that was rolled back writes other content.
    content(&env, 2, "E");
    assert!(line(&mut watch).contains("checkpoint-2"));
    let done = end(watch);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(published(&env), ["checkpoint-2"]);
    assert_eq!(env.ok(["cat", &format!("{REF}@latest:weights")]), "E");
}

/// Drops some versions, the newest version, and all of them.
#[test]
fn what_was_dropped_while_nobody_looked_stays_dropped() {
    let env = environment!();
    for (number, text) in [(1, "A"), (2, "B"), (3, "C"), (4, "D")] {
        content(&env, number, text);
        assert_eq!(once(&env, &[]).code, Some(0));
    }
    for number in [1, 2, 4] {
        env.ok(["rm", &format!("{REF}@{number}")]);
    }
    std::thread::sleep(Duration::from_millis(1100));
    for number in [2, 3] {
        touch(&env, number);
    }
    for _ in 0..2 {
        let done = once(&env, &["--json"]);
        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!(published(&env), ["checkpoint-3"], "{done}");
        let mut names: Vec<String> = left_out(&done).into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert_eq!(names, ["checkpoint-1", "checkpoint-2", "checkpoint-4"]);
        touch(&env, 4);
    }
    content(&env, 5, "E");
    assert_eq!(once(&env, &[]).code, Some(0));
    env.ok(["rm", REF, "--yes"]);
    std::thread::sleep(Duration::from_millis(1100));
    touch(&env, 5);
    let done = once(&env, &[]);
    assert_eq!((done.code, &*out(&done)), (Some(0), ""), "{done}");
    // New content is published, as in a running watch.
    content(&env, 2, "F");
    let done = once(&env, &[]);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(published(&env), ["checkpoint-2"], "{done}");
}

/// Writes a checkpoint whose files are this many seconds old.
fn aged(env: &TestEnvironment, number: u64, text: &str, secs: u64) {
    let dir = format!("aside/checkpoint-{number}");
    env.write(format!("{dir}/weights"), text);
    env.write(format!("{dir}/trainer_state.json"), "{}");
    for file in ["weights", "trainer_state.json"] {
        age(env, &format!("{dir}/{file}"), secs);
    }
    let to = env.path(format!("out/checkpoint-{number}"));
    fs::rename(env.path(dir), to).unwrap();
}

#[test]
fn a_later_step_is_published_whatever_the_clock_says() {
    for keep in [&[][..], &["--keep", "1"]] {
        let env = environment!();
        fs::create_dir(env.path("out")).unwrap();
        for number in [1, 2] {
            aged(&env, number, &number.to_string(), 100 - number);
            assert_eq!(once(&env, keep).code, Some(0));
        }
        // The clock was set back: without a running watch, and with one.
        aged(&env, 9, "9", 3600);
        let done = once(&env, keep);
        assert_eq!(done.code, Some(0), "{done}");
        assert!(out(&done).contains("checkpoint-9, "), "{done}");
        let mut watch = start(&env, keep);
        aged(&env, 10, "10", 7200);
        assert!(line(&mut watch).contains("checkpoint-10, "));
        assert_eq!(end(watch).code, Some(0));
        // One from before the clock was set back, and one from after.
        aged(&env, 12, "12", 9000);
        aged(&env, 11, "11", 50);
        let done = once(&env, keep);
        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!(env.ok(["cat", &format!("{REF}@latest:weights")]), "12");
        // A checkpoint with a lower number is reported in JSON.
        aged(&env, 3, "3", 10_000);
        let done = once(&env, &[keep, &["--json"]].concat());
        let told = left_out(&done);
        assert!(
            told.iter().any(|(name, _)| name == "checkpoint-3"),
            "{done}"
        );
        assert_eq!(env.ok(["cat", &format!("{REF}@latest:weights")]), "12");
    }
}

/// In trainings with transformers, each rank writes its own files, perhaps late.
#[test]
fn files_that_come_after_the_marker_are_published() {
    let env = environment!();
    let files = || env.ok(["ls", "-r", &format!("{REF}@latest")]);
    env.ok(["init"]);
    checkpoint(&env, 1, 1);
    let mut watch = start(&env, &[]);
    assert!(line(&mut watch).contains("ckpt@1 "));
    std::thread::sleep(Duration::from_millis(1500));
    env.write("out/checkpoint-1/rng_state_1.pth", PICKLE);
    std::thread::sleep(Duration::from_millis(1500));
    env.write("out/checkpoint-1/scheduler.pt", PICKLE);
    let told = line(&mut watch);
    assert!(
        told.contains("ckpt@2 ") && told.contains("checkpoint-1, "),
        "{told}"
    );
    assert!(files().contains("rng_state_1.pth") && files().contains("scheduler.pt"));
    let done = end(watch);
    assert_eq!((done.code, &*done.stderr), (Some(0), ""), "{done}");
    // A rank overwrites one, as if all of it were rewritten.
    std::thread::sleep(Duration::from_millis(1500));
    env.write("out/checkpoint-1/rng_state_1.pth", b"\x80\x02K\x01.");
    let done = once(&env, &[]);
    assert_eq!((done.code, &*out(&done)), (Some(6), ""), "{done}");
    let done = once(&env, &["--settled", "2s"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(out(&done).contains("ckpt@3 "), "{done}");
    // Files of any name that come while no watch is running.
    std::thread::sleep(Duration::from_millis(1500));
    env.write("out/checkpoint-1/rank-0/more", "more");
    let done = once(&env, &[]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(out(&done).contains("ckpt@4 "), "{done}");
    assert!(files().contains("rank-0/more"));
    let done = once(&env, &[]);
    assert_eq!((done.code, &*out(&done)), (Some(0), ""), "{done}");
    // A file that was copied with its times.
    env.write("aside", "older");
    age(&env, "aside", 600);
    let copied = std::process::Command::new("cp")
        .args(["-p", "aside", "out/checkpoint-1/rank-0/copied"])
        .current_dir(env.path("."))
        .status();
    assert!(copied.unwrap().success());
    let done = once(&env, &[]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(out(&done).contains("ckpt@5 "), "{done}");
    // If one file goes and another comes, nothing was added.
    std::thread::sleep(Duration::from_millis(1500));
    fs::remove_file(env.path("out/checkpoint-1/rank-0/state")).unwrap();
    env.write("out/checkpoint-1/rng_state_2.pth", PICKLE);
    let done = once(&env, &[]);
    assert_eq!((done.code, &*out(&done)), (Some(6), ""), "{done}");
}

/// The watch sees a checkpoint with its marker, and without what other ranks write.
#[test]
fn a_new_checkpoint_is_not_published_before_what_comes_after_its_marker() {
    let env = environment!();
    fs::create_dir(env.path("out")).unwrap();
    let mut watch = start(&env, &[]);
    env.write(
        "out/checkpoint-1/model.safetensors",
        b"\x02\0\0\0\0\0\0\0{}",
    );
    env.write("out/checkpoint-1/trainer_state.json", "{}");
    std::thread::sleep(Duration::from_secs(3));
    env.write("out/checkpoint-1/optimizer.bin", "one");
    std::thread::sleep(Duration::from_secs(3));
    env.write("out/checkpoint-1/rng_state_1.pth", PICKLE);
    assert!(line(&mut watch).contains("ckpt@1 "));
    let files = env.ok(["ls", "-r", REF]);
    for name in ["optimizer.bin", "rng_state_1.pth"] {
        assert!(files.contains(name), "{files}");
    }
    // A watch that ends waits as long.
    env.write("out/checkpoint-2/model.bin", "2");
    env.write("out/checkpoint-2/trainer_state.json", "{}");
    let ending = std::thread::spawn(move || end(watch));
    std::thread::sleep(Duration::from_secs(3));
    env.write("out/checkpoint-2/optimizer.bin", "two");
    let done = ending.join().unwrap();
    let has_all = env.store(["cat", &format!("{REF}@2:optimizer.bin")]).code == Some(0);
    let is_named = done.code == Some(6) && done.stderr.contains("files may come after its marker");
    assert!(has_all || is_named, "{done}");
}

/// No watch was running between the marker and the later files.
#[test]
fn files_of_other_ranks_keep_no_checkpoint_from_being_published() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    std::thread::sleep(Duration::from_millis(1500));
    env.write("out/checkpoint-1/scheduler.pt", PICKLE);
    env.write("out/checkpoint-1/rng_state_1.pth", PICKLE);
    let mut watch = start(&env, &[]);
    // While other ranks write, the marker alone is not enough.
    std::thread::sleep(Duration::from_millis(2500));
    env.write("out/checkpoint-1/optimizer_1/rank", "one");
    env.write("out/checkpoint-1/rng_state_2.pth", PICKLE);
    assert!(line(&mut watch).contains("ckpt@1 "));
    let files = env.ok(["ls", "-r", &format!("{REF}@latest")]);
    assert!(files.contains("rng_state_2.pth"), "{files}");
    let done = end(watch);
    assert_eq!((done.code, &*out(&done)), (Some(0), ""), "{done}");
    assert_eq!(published(&env), ["checkpoint-1"]);
}

/// Of the passed steps, only those that record their own completion are published; others may be partly overwritten.
#[test]
fn steps_that_were_passed_unseen_are_published_if_they_are_whole_or_named() {
    for (name, marker, latest, file) in [
        ("global_step", "latest", "global_step", "model.pt"),
        (
            "iter_000000",
            "latest_checkpointed_iteration.txt",
            "",
            "model.pt",
        ),
        (
            "iter_000000",
            "latest_checkpointed_iteration.txt",
            "",
            ".metadata",
        ),
    ] {
        let env = environment!();
        for number in 1..=4 {
            let dir = format!("out/{name}{number}");
            let shard = env.write(format!("{dir}/__0_0.distcp"), number.to_string());
            let written = env.write(format!("{dir}/{file}"), PICKLE);
            // A part of the second step was written again.
            let time = SystemTime::now() - Duration::from_secs(if number == 2 { 10 } else { 0 });
            fs::File::open(written).unwrap().set_modified(time).unwrap();
            fs::File::open(shard)
                .unwrap()
                .set_modified(SystemTime::now())
                .unwrap();
            env.write(format!("out/{marker}"), format!("{latest}{number}"));
            std::thread::sleep(Duration::from_millis(20));
        }
        let expected: (&[u64], &[u64]) = match file {
            ".metadata" => (&[1, 3, 4], &[2]),
            _ => (&[4], &[1, 2, 3]),
        };
        let (all, left) = expected;
        let named = |numbers: &[u64]| -> Vec<String> {
            numbers
                .iter()
                .map(|number| format!("{name}{number}"))
                .collect()
        };
        let done = once(&env, &["--json"]);
        assert_eq!(done.code, Some(6), "{done}");
        assert_eq!(published(&env), named(all), "{done}");
        let mut told: Vec<String> = left_out(&done).into_iter().map(|(name, _)| name).collect();
        told.sort_unstable();
        assert_eq!(told, named(left), "{done}");
        let done = once(&env, &[]);
        let why = format!("{name}2: not published: a later one was finished");
        assert!(done.stderr.contains(&why), "{done}");
    }
}

#[test]
fn what_is_published_is_not_called_unfinished_when_a_trainer_goes_back() {
    let env = environment!();
    for number in 1..=3 {
        env.write(format!("out/global_step{number}/model.pt"), PICKLE);
        env.write("out/latest", format!("global_step{number}"));
        assert_eq!(once(&env, &[]).code, Some(0));
    }
    env.write("out/latest", "global_step1");
    let done = once(&env, &[]);
    assert_eq!(done.code, Some(0), "{done}");
    env.write("out/global_step3/model.pt", "half");
    let done = once(&env, &[]);
    assert_eq!(done.code, Some(6), "{done}");
    assert_eq!(
        published(&env),
        ["global_step1", "global_step2", "global_step3"]
    );
}

#[test]
fn a_directory_without_a_file_is_not_published() {
    let env = environment!();
    fs::create_dir_all(env.path("out/epoch-1/deep/deeper")).unwrap();
    fs::create_dir_all(env.path("out/iter_0000001")).unwrap();
    env.write("out/latest_checkpointed_iteration.txt", "1");
    for _ in 0..2 {
        let done = once(&env, &["--settled", "1s", "--json"]);
        assert_eq!(done.code, Some(6), "{done}");
        let told = left_out(&done);
        let why = "not finished: there is no file in it";
        let expected = ["epoch-1", "iter_0000001"].map(|name| (name.to_owned(), why.to_owned()));
        assert_eq!(told, expected, "{done}");
    }
    env.write("out/epoch-1/deep/w", "w");
    once(&env, &["--settled", "1s"]);
    assert_eq!(published(&env), ["epoch-1"]);
}

#[test]
fn fewer_versions_stay_as_soon_as_a_watch_that_keeps_fewer_begins() {
    let env = environment!();
    for number in 1..=4 {
        checkpoint(&env, number, number);
        assert_eq!(once(&env, &["--keep", "4"]).code, Some(0));
    }
    let done = once(&env, &["--keep", "3", "--json"]);
    assert_eq!(done.code, Some(0), "{done}");
    let told: Value = serde_json::from_str(out(&done).trim()).unwrap();
    assert_eq!(told["dropped"], serde_json::json!([1]), "{done}");
    let mut watch = start(&env, &["--keep", "2"]);
    assert_eq!(
        line(&mut watch),
        format!("{REF}: dropped 1 older version\n")
    );
    assert_eq!(published(&env), ["checkpoint-3", "checkpoint-4"]);
    assert_eq!(end(watch).code, Some(0));
}
