//! Which checkpoint is the latest if content repeats or clocks are ahead.

use std::fs;
use std::time::{Duration, SystemTime};

use support::{Finished, TestEnvironment, environment};

use crate::watch::{REF, checkpoint, end, line, once, published, start};

/// Writes a checkpoint with this content. All checkpoints have the same files.
fn content(env: &TestEnvironment, number: u64, content: &str) {
    let dir = format!("out/checkpoint-{number}");
    env.write(format!("{dir}/weights"), content);
    env.write(format!("{dir}/trainer_state.json"), "{}");
}

fn out(done: &Finished) -> String {
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// A job that was rolled back, or whose loss did not change.
#[test]
fn a_checkpoint_with_the_content_of_an_older_one_is_the_latest() {
    let env = environment!();
    for (number, text) in [(1, "A"), (2, "B"), (3, "A")] {
        content(&env, number, text);
        let done = once(&env, &[]);
        assert_eq!(done.code, Some(0), "{done}");
        assert!(!out(&done).contains("unchanged"), "{done}");
    }
    assert_eq!(env.ok(["cat", &format!("{REF}@latest:weights")]), "A");
    let all = ["checkpoint-1", "checkpoint-2", "checkpoint-3"];
    assert_eq!(published(&env), all);
    // A repeated watch changes nothing. Each checkpoint has a version, even if the newest version has the same content.
    assert_eq!(out(&once(&env, &[])), "");
    content(&env, 4, "A");
    let done = once(&env, &["--keep", "1"]);
    assert!(
        out(&done).contains("ckpt@4 ") && out(&done).contains("checkpoint-4, "),
        "{done}"
    );
    assert_eq!(published(&env), ["checkpoint-4"]);
    content(&env, 5, "B");
    let done = once(&env, &["--keep", "1"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(published(&env), ["checkpoint-5"]);
    assert_eq!(env.ok(["cat", &format!("{REF}@latest:weights")]), "B");
}

/// A script that keeps files from being purged touches all of them.
#[test]
fn an_older_checkpoint_that_was_touched_does_not_come_back() {
    let env = environment!();
    for (number, text) in [(1, "A"), (2, "B"), (3, "C")] {
        content(&env, number, text);
        assert_eq!(once(&env, &[]).code, Some(0));
    }
    let all = ["checkpoint-1", "checkpoint-2", "checkpoint-3"];
    for touched in [2, 1] {
        std::thread::sleep(Duration::from_millis(1100));
        for name in ["weights", "trainer_state.json"] {
            let path = env.path(format!("out/checkpoint-{touched}/{name}"));
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::now()).unwrap();
        }
        for _ in 0..2 {
            let done = once(&env, &[]);
            assert_eq!(done.code, Some(0), "{done}");
            assert_eq!(published(&env), all, "{done}");
        }
    }
    assert_eq!(env.ok(["cat", &format!("{REF}@latest:weights")]), "C");
}

#[test]
fn two_watches_of_one_directory_publish_each_once() {
    let env = environment!();
    env.ok(["init"]);
    fs::create_dir(env.path("out")).unwrap();
    let both = [start(&env, &[]), start(&env, &[])];
    for (number, text) in [(1, "A"), (2, "B"), (3, "A")] {
        content(&env, number, text);
        std::thread::sleep(Duration::from_millis(1600));
    }
    for watch in both {
        let done = end(watch);
        assert_eq!(done.code, Some(0), "{done}");
    }
    let all = ["checkpoint-1", "checkpoint-2", "checkpoint-3"];
    assert_eq!(published(&env), all);
}

/// A loss that does not change: each checkpoint counts as published, now and in a new watch.
#[test]
fn checkpoints_with_one_content_are_all_published() {
    let env = environment!();
    fs::create_dir(env.path("out")).unwrap();
    let mut watch = start(&env, &[]);
    for (number, text) in [(1, "A"), (2, "A"), (3, "A"), (4, "B")] {
        content(&env, number, text);
        let told = line(&mut watch);
        assert!(
            told.contains(&format!("ckpt@{number} ")) && !told.contains("unchanged"),
            "{told}"
        );
    }
    let done = end(watch);
    assert_eq!((done.code, out(&done)), (Some(0), String::new()), "{done}");
    let all = [
        "checkpoint-1",
        "checkpoint-2",
        "checkpoint-3",
        "checkpoint-4",
    ];
    assert_eq!(published(&env), all);
    for _ in 0..2 {
        let done = once(&env, &[]);
        assert_eq!((done.code, out(&done)), (Some(0), String::new()), "{done}");
        assert_eq!(done.stderr, "", "{done}");
    }
    // A checkpoint that was only touched counts as the same.
    content(&env, 4, "B");
    let done = once(&env, &[]);
    assert!(
        out(&done).contains("ckpt@4 ") && out(&done).contains("(unchanged)"),
        "{done}"
    );
    assert_eq!(published(&env), all);
}

/// A clock was ahead when the files were written, and was set back: ctimes are ahead, too.
#[test]
fn a_clock_that_was_set_back_keeps_nothing_back() {
    for keep in [&[][..], &["--keep", "1"]] {
        let env = environment!();
        env.ok(["init"]);
        for number in 1..=3 {
            content(&env, number, &number.to_string());
            // Within the same second, the order would be that of the names.
            std::thread::sleep(Duration::from_millis(20));
            let mut store = env.command(crate::watch::words(&[&["--once"], keep].concat()));
            // Not with the wrapper of faketime: if it is killed, it blocks later processes with the same number.
            let library = "/usr/$LIB/faketime/libfaketime.so.1";
            store.env("LD_PRELOAD", library).env("FAKETIME", "-2h");
            let done: Finished = store.output().unwrap().into();
            assert_eq!(done.code, Some(0), "{done}");
            assert!(!done.stderr.contains("preload"), "{done}");
            let told = format!("checkpoint-{number}, ");
            assert!(out(&done).contains(&told), "{done}");
            assert_eq!(out(&done).lines().count(), 1, "{done}");
        }
        // Once the clock is right again, nothing is published twice.
        let done = once(&env, keep);
        assert_eq!((done.code, out(&done)), (Some(0), String::new()), "{done}");
        content(&env, 4, "4");
        let done = once(&env, keep);
        assert!(out(&done).contains("checkpoint-4, "), "{done}");
        let last = published(&env).pop();
        assert_eq!(last.as_deref(), Some("checkpoint-4"));
    }
}

/// Sets the times of a checkpoint's files to an hour from now.
fn ahead(env: &TestEnvironment, number: u64) {
    let time = SystemTime::now() + Duration::from_secs(3600);
    for file in ["optimizer.bin", "rank-0/state", "trainer_state.json"] {
        let path = env.path(format!("out/checkpoint-{number}/{file}"));
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(time).unwrap();
    }
}

#[test]
fn a_time_in_the_future_keeps_nothing_back() {
    for keep in [&[][..], &["--keep", "1"]] {
        let env = environment!();
        for number in 1..=3 {
            checkpoint(&env, number, number);
            if number == 1 {
                ahead(&env, number);
            }
            let done = once(&env, keep);
            assert_eq!(done.code, Some(0), "{done}");
            assert!(
                out(&done).contains(&format!("checkpoint-{number}")),
                "{done}"
            );
        }
        // Checkpoints of both clocks that exist when a watch begins.
        checkpoint(&env, 4, 4);
        ahead(&env, 4);
        // The clock of a file system has ticks of some milliseconds: within one, both would have the same age.
        std::thread::sleep(Duration::from_millis(50));
        checkpoint(&env, 5, 5);
        let done = once(&env, keep);
        assert_eq!(done.code, Some(0), "{done}");
        let last = published(&env).pop().unwrap();
        assert_eq!(last, "checkpoint-5", "{done}");
        // Dropped versions are not published again, and are reported.
        let done = once(&env, keep);
        assert_eq!((done.code, out(&done)), (Some(0), String::new()), "{done}");
        for number in 1..=4 {
            let told = format!(
                "note: checkpoint-{number}: was published, and dropped since; not published again"
            );
            assert_eq!(done.stderr.contains(&told), !keep.is_empty(), "{done}");
        }
    }
}

#[test]
fn a_watch_goes_on_behind_a_time_in_the_future() {
    let env = environment!();
    fs::create_dir(env.path("out")).unwrap();
    let mut watch = start(&env, &[]);
    for number in 1..=3 {
        checkpoint(&env, number, number);
        if number == 1 {
            ahead(&env, number);
        }
        assert!(line(&mut watch).contains(&format!("checkpoint-{number}")));
    }
    let done = end(watch);
    assert_eq!(done.code, Some(0), "{done}");
}
