//! A kill at every step that changes a directory: the destination is the old tree or the new one, and the next run
//! completes.

use std::process::Stdio;

use support::{effort, under};

use crate::world::{REF, World, assert_same, files_below};

/// More calls of any kind than these runs make. A sweep ends when a kill hits no call.
const CALLS_MAX: u32 = 200;

/// Kills `arguments` at its first `call`, its second, and so on, with `prepare` before and `check` after each. Returns
/// the number of kills.
fn sweep(
    world: &World,
    call: &str,
    arguments: &[&str],
    prepare: impl Fn(),
    check: impl Fn(u32),
) -> u32 {
    for at in (1..CALLS_MAX).step_by(effort(5, 1)) {
        prepare();
        let plain = world.env.command(arguments);
        let inject = format!("inject={call}:signal=SIGKILL:when={at}");
        let words = ["-f", "-qq", "-o", "/dev/null", "-e", &inject];
        let mut traced = under("strace", words, &plain);
        traced.stdout(Stdio::null()).stderr(Stdio::null());
        let is_hit = !traced
            .status()
            .expect("strace is installed (tests/run installs it)")
            .success();
        check(at);
        if !is_hit {
            return at - 1;
        }
    }
    panic!("{call}: still hit after {CALLS_MAX} calls");
}

/// Every call that changes a directory.
const CHANGES: [&str; 7] = [
    "linkat",
    "renameat",
    "renameat2",
    "mkdirat",
    "unlinkat",
    "symlinkat",
    "mkdir",
];

#[test]
fn a_new_tree_is_there_whole_or_not_at_all() {
    let world = World::with_tree(50);
    let out = world.path("out");
    let mut hits = 0;
    for call in CHANGES {
        let prepare = || {
            // Each run starts with an empty pool and no tree.
            drop(std::fs::remove_dir_all(&out));
            drop(std::fs::remove_dir_all(world.pool()));
        };
        hits += sweep(&world, call, &["materialize", REF, "out"], prepare, |at| {
            if out.exists() {
                assert_same(&world.path("source"), &out);
            }
            world.make("out", &[]);
            assert_same(&world.path("source"), &out);
            assert_nothing_left(&world, &format!("{call} {at}"));
        });
    }
    assert!(hits > 40, "{hits} calls were hit");
}

#[test]
fn an_update_leaves_each_file_old_or_new() {
    let world = World::with_tree(51);
    world.make("old", &[]);
    world.write("source/big", 100_000);
    world.write("source/sub/deep/tiny", 100);
    world.write("source/new/file", 50_000);
    std::fs::remove_file(world.path("source/sub/middle")).unwrap();
    std::fs::remove_file(world.path("source/link")).unwrap();
    std::os::unix::fs::symlink("exe", world.path("source/link")).unwrap();
    world.put();
    world.make("new", &[]);
    let out = world.path("out");
    let mut hits = 0;
    for call in CHANGES {
        let prepare = || {
            world
                .env
                .ok(["materialize", "--exact", &format!("{REF}@1"), "out"]);
            std::fs::write(world.path("out/sub/mine"), "a job's own").unwrap();
        };
        hits += sweep(&world, call, &["materialize", REF, "out"], prepare, |at| {
            for file in files_below(&out) {
                let name = file.strip_prefix(&out).unwrap();
                let candidates =
                    ["old", "new"].map(|tree| std::fs::read(world.path(tree).join(name)).ok());
                let found = std::fs::read(&file).ok();
                assert!(
                    name.ends_with("mine") || candidates.contains(&found),
                    "{call} {at}: {}",
                    name.display()
                );
            }
            world.make("out", &[]);
            std::fs::remove_file(world.path("out/sub/mine")).expect("a job's own file stays");
            world.make("out", &[]);
            assert_same(&world.path("source"), &out);
            assert_nothing_left(&world, &format!("{call} {at}"));
        });
    }
    assert!(hits > 25, "{hits} calls were hit");
}

#[test]
fn an_eviction_breaks_no_tree() {
    let world = World::with_tree(52);
    world.make("out", &["--exclude", "big"]);
    let mut hits = 0;
    for call in ["renameat", "unlinkat", "linkat"] {
        let prepare = || drop(world.env.ok(["materialize", "--prefetch", REF]));
        hits += sweep(
            &world,
            call,
            &["pool", "evict", "--to", "0"],
            prepare,
            |at| {
                world.env.ok(["pool", "verify"]);
                world.make("again", &["--exact"]);
                assert_same(&world.path("source"), &world.path("again"));
                std::fs::remove_dir_all(world.path("again")).unwrap();
                assert_nothing_left(&world, &format!("{call} {at}"));
            },
        );
    }
    assert!(hits > 4, "{hits} calls were hit");
}

fn assert_nothing_left(world: &World, what: &str) {
    let beside: Vec<_> = std::fs::read_dir(world.env.root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".store"))
        .collect();
    assert!(beside.is_empty(), "{what}: {beside:?}");
    for left in ["tmp", "owners", "claims", "rooms"] {
        let count = std::fs::read_dir(world.pool().join(left)).unwrap().count();
        assert_eq!(count, 0, "{what}: {left}");
    }
}
