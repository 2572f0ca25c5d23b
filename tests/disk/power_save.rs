//! Power cuts after a save or a materialize on a separate file system: what the next save finds there is no older than what
//! it takes it for, and what was cut short is not taken for a job's work.

use std::fs;

use support::{Finished, Random, TestEnvironment, environment};

use crate::mounts::Mount;
use crate::power_pool::boot;

const REF: &str = "project/job/cache";
/// ext4 then writes by itself so rarely that a missing sync is not hidden by chance.
const LAZY: &str = "commit=600";

#[test]
fn what_was_saved_is_there_for_the_next_save_on_ext4() {
    save_and_cut(&Mount::ext4(256, &[], LAZY));
}

#[test]
fn what_was_saved_is_there_for_the_next_save_on_xfs() {
    save_and_cut(&Mount::xfs("defaults"));
}

fn newest(env: &TestEnvironment) -> String {
    env.ok(["ls", "-r", REF])
}

/// The store and this host's notes are on another disk.
fn save_and_cut(mount: &Mount) {
    let env = environment!();
    let dir = mount.path().join("job");
    let write = |name: &str, bytes: &[u8]| fs::write(dir.join(name), bytes).unwrap();
    fs::create_dir(&dir).unwrap();
    write("keep", b"first");
    write("edited", b"old");
    let save = || env.ok(["save", dir.to_str().unwrap(), REF]);
    save();
    write("model", &Random::new(7).bytes(50_000));
    fs::create_dir(dir.join("sub")).unwrap();
    write("sub/file", b"text");
    write("edited.new", b"newer");
    fs::rename(dir.join("edited.new"), dir.join("edited")).unwrap();
    fs::remove_file(dir.join("keep")).unwrap();
    save();
    let saved = newest(&env);
    mount.cut_power();
    mount.again();
    save();
    assert_eq!(newest(&env), saved);
    assert_eq!(env.ok(["cat", &format!("{REF}:edited")]), "newer");
}

#[test]
fn copies_that_were_cut_short_are_not_saved() {
    let env = environment!();
    env.write("in/small", "text of others");
    env.write("in/linked", Random::new(8).bytes(60_000));
    env.ok(["put", "in", REF]);
    let mount = Mount::ext4(256, &[], LAZY);
    let (pool, tree) = (mount.path().join("pool"), mount.path().join("tree"));
    let place = tree.to_str().unwrap();
    let run = |verb: &str, words: [&str; 2]| -> Finished {
        let mut command = env.command([verb, words[0], words[1]]);
        command.env("STORE_POOL", &pool).output().unwrap().into()
    };
    let made = run("materialize", [REF, place]);
    assert_eq!(made.code, Some(0), "{made}");
    fs::write(tree.join("added"), "by a job").unwrap();
    fs::File::open(tree.join("added"))
        .unwrap()
        .sync_all()
        .unwrap();
    mount.cut_power();
    mount.again();
    boot(&pool);
    assert_eq!(fs::read(tree.join("small")).unwrap(), b"");

    let named = "small: has 0 of the 14 bytes that were written before this host was started again";
    for verb in ["put", "save"] {
        let refused = run(verb, [place, REF]);
        assert_eq!(refused.code, Some(4), "{refused}");
        assert!(refused.stderr.contains(named), "{refused}");
    }
    // What the hint says.
    let made = run("materialize", [REF, place]);
    assert_eq!(made.code, Some(0), "{made}");
    assert_eq!(fs::read(tree.join("small")).unwrap(), b"text of others");
    // A job may make it shorter then.
    fs::write(tree.join("small"), "mine").unwrap();
    boot(&pool);
    let saved = run("save", [place, REF]);
    assert_eq!(saved.code, Some(0), "{saved}");
    assert_eq!(env.ok(["cat", &format!("{REF}:small")]), "mine");
    assert_eq!(env.ok(["cat", &format!("{REF}:added")]), "by a job");
}
