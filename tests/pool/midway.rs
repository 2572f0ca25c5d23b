//! Updates that are killed in the middle of a step: nothing half written passes for a job's, and the tree stays ours.

use std::fs;
use std::path::Path;

use support::under;

use crate::records::{records, version};
use crate::world::{REF, World, assert_same, files_below};

/// Updates `out` and kills that at the `nth` of these calls that a thread makes. Returns whether it was killed.
fn killed(world: &World, options: &[&str], calls: &str, nth: u32) -> bool {
    let plain = world.quiet(&[&["materialize", REF, "out"], options].concat());
    let inject = format!("inject={calls}:signal=SIGKILL:when={nth}");
    let trace = format!("trace={calls}");
    let words = ["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    !under("strace", words, &plain).status().unwrap().success()
}

/// Asserts that every file in `made` is whole: as in `source`.
fn assert_whole(made: &Path, source: &Path, nth: u32) {
    for file in files_below(made) {
        let name = file.strip_prefix(made).unwrap();
        let same = fs::read(&file).unwrap() == fs::read(source.join(name)).unwrap();
        assert!(same, "write {nth}: {} is half written", name.display());
    }
}

#[test]
fn a_file_of_a_new_directory_is_never_there_half_written() {
    for options in [&[][..], &["--link-mode", "copy"]] {
        let world = World::new(401);
        version(&world, 1, &["keep", "other"]);
        let names: Vec<String> = (0..16).map(|at| format!("new/{}/{at}", at / 8)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        version(&world, 2, &[&["keep"], &names[..]].concat());
        let first = format!("{REF}@1");
        // The pool has all files before, so that every write is one into a tree, or near its end.
        world.env.ok(["materialize", "--prefetch", REF]);
        let (mut unfinished, mut nth) = (0, 0);
        loop {
            nth += 1;
            assert!(nth < 200, "it never ends");
            world
                .env
                .ok([&["materialize", &first, "out"], options].concat());
            let is_killed = killed(&world, options, "pwrite64,copy_file_range", nth);
            if world.path("out/new").exists() {
                assert_whole(&world.path("out/new"), &world.path("source-2/new"), nth);
                unfinished += u32::from(is_killed && records(&world) > 1);
            }
            // The next one finds nothing that it takes for a job's: it ends with 0.
            world
                .env
                .ok([&["materialize", REF, "out"], options].concat());
            assert_same(&world.path("source-2"), &world.path("out"));
            fs::remove_dir_all(world.path("out")).unwrap();
            if !is_killed {
                break;
            }
        }
        assert!(unfinished > 1, "{unfinished} of {nth}");
    }
}

#[test]
fn an_update_that_was_killed_before_it_wrote_its_mark_can_be_taken_back() {
    let world = World::new(402);
    version(&world, 1, &["a", "b"]);
    version(&world, 2, &["a", "b", "c"]);
    let first = format!("{REF}@1");
    let stamp = || {
        let mut text = [0; 64];
        let len = rustix::fs::getxattr(world.path("out"), "user.store.record", &mut text[..]);
        text[..len.unwrap()].to_vec()
    };
    let (mut stamped, mut nth) = (0, 0);
    loop {
        nth += 1;
        world.env.ok(["materialize", &first, "out"]);
        let before = stamp();
        let is_killed = killed(&world, &[], "renameat", nth);
        stamped += u32::from(is_killed && records(&world) > 1 && stamp() != before);
        // Back to what it was; then the tree must still be known as ours.
        for _ in 0..2 {
            let finished = world.env.store(["materialize", &first, "out"]);
            assert_eq!(finished.code, Some(0), "{nth}: {finished}");
            assert_same(&world.path("source-1"), &world.path("out"));
        }
        world.env.ok(["materialize", REF, "out"]);
        fs::remove_dir_all(world.path("out")).unwrap();
        if !is_killed {
            break;
        }
    }
    assert!(stamped > 0, "{nth}");
}
