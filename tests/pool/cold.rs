//! First materializations: the new tree, and many processes that want the same one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Child;
use std::time::Duration;

use crate::world::{REF, World, assert_same, files_below, inode, shell};

#[test]
fn a_tree_is_whole_and_shares_its_large_files() {
    let world = World::with_tree(1);
    let report = world.make("one", &[]);
    assert_eq!(
        (&report["linked"], &report["copied"], &report["files"]),
        (&4.into(), &2.into(), &6.into())
    );
    assert_eq!(report["fetched"], 5, "all but the empty one");
    assert_same(&world.path("source"), &world.path("one"));
    let again = world.make("two", &[]);
    assert_eq!(
        (&again["linked"], &again["fetched"]),
        (&4.into(), &0.into())
    );
    assert_eq!(inode(&world.path("one/big")), inode(&world.path("two/big")));
    assert_ne!(
        inode(&world.path("one/sub/deep/tiny")),
        inode(&world.path("two/sub/deep/tiny"))
    );
    for (name, mode) in [
        ("big", 0o444),
        ("exe", 0o555),
        ("sub/deep/tiny", 0o644),
        ("sub", 0o755),
    ] {
        let found = fs::metadata(world.path("two").join(name)).unwrap();
        assert_eq!(found.mode() & 0o7777, mode, "{name}");
    }
    assert_eq!(
        fs::metadata(world.path("two/big")).unwrap().mtime(),
        315_532_800
    );
    world.assert_sound();
}

#[test]
fn a_mask_of_modes_changes_nothing_in_the_pool() {
    let world = World::with_tree(12);
    let plain = world.env.command(["materialize", REF, "one"]);
    let masked = std::process::Command::new("sh")
        .args(["-c", "umask 077 && exec \"$0\" \"$@\""])
        .arg(plain.get_program())
        .args(plain.get_args())
        .current_dir(world.env.root())
        .env("HOME", world.path("home"))
        .status();
    assert!(masked.unwrap().success());
    let mode = |name: &str| fs::metadata(world.path(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("one/big"), mode("one/exe")), (0o444, 0o555));
    assert_eq!((mode("one/sub/deep/tiny"), mode("one/sub")), (0o600, 0o700));
    assert_eq!(world.make("two", &[])["fetched"], 0);
    assert_same(&world.path("source"), &world.path("two"));
    world.assert_sound();
}

#[test]
fn one_file_is_a_destination_too() {
    let world = World::with_tree(2);
    world
        .env
        .ok(["materialize", "project/demo/data:sub/middle", "alone"]);
    assert_eq!(
        fs::read(world.path("alone")).unwrap(),
        fs::read(world.path("source/sub/middle")).unwrap()
    );
    world.write("source/sub/middle", 90_000);
    world.put();
    world
        .env
        .ok(["materialize", "project/demo/data:sub/middle", "alone"]);
    assert_eq!(
        fs::read(world.path("alone")).unwrap(),
        fs::read(world.path("source/sub/middle")).unwrap()
    );
    world.assert_sound();
}

#[test]
fn a_prefetch_leaves_links_to_be_made() {
    let world = World::with_tree(3);
    world.env.ok(["materialize", "--prefetch", REF]);
    assert_eq!(world.pool_files().len(), 5);
    assert_eq!(world.make("one", &[])["fetched"], 0);
    assert_same(&world.path("source"), &world.path("one"));
}

#[test]
fn globs_choose_what_is_there() {
    let world = World::with_tree(4);
    world.make("some", &["--include", "sub/deep/**", "--exclude", "tiny"]);
    let names: Vec<_> = files_below(&world.path("some"));
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(
        fs::read(world.path("some/sub/deep/other")).unwrap(),
        fs::read(world.path("source/sub/deep/other")).unwrap()
    );
    // A larger part of the tree adds the rest.
    world.make("some", &[]);
    assert_same(&world.path("source"), &world.path("some"));
}

#[test]
fn thirty_two_processes_fetch_each_byte_once() {
    let world = World::new(5);
    (0..40).for_each(|n| world.write(&format!("source/{}/{n}", n % 7), 60_000 + 4_000 * n));
    world.put();
    let children: Vec<_> = (0..32)
        .map(|n| {
            let mut command =
                world
                    .env
                    .command(["materialize", "--json", REF, &format!("out/{n}")]);
            command
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let reports = children.into_iter().map(|child| {
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    });
    let fetched: u64 = reports
        .map(|report| report["fetched"].as_u64().unwrap())
        .sum();
    assert_eq!(fetched, 40, "each file is built by one process");
    (0..32).for_each(|n| assert_same(&world.path("source"), &world.path(&format!("out/{n}"))));
    world.assert_sound();
}

#[test]
fn the_rest_goes_on_when_some_are_killed() {
    let world = World::new(6);
    (0..60).for_each(|n| world.write(&format!("source/{}/{n}", n % 7), 100_000 + 10_000 * n));
    world.put();
    let start = |n: usize| {
        world
            .quiet(&["materialize", REF, &format!("out/{n}")])
            .spawn()
            .unwrap()
    };
    let mut children: Vec<Child> = (0..32).map(start).collect();
    // Zombies are not waited for here: a killed process whose parent is busy stays one.
    for (n, child) in children.iter_mut().enumerate().filter(|(n, _)| n % 3 == 0) {
        std::thread::sleep(Duration::from_millis(10 + n as u64));
        child.kill().unwrap();
    }
    let mut finished = 0;
    for (n, mut child) in children.into_iter().enumerate().rev() {
        let is_done = child.wait().unwrap().success();
        let out = world.path(&format!("out/{n}"));
        assert!(is_done || n % 3 == 0, "{n}");
        if is_done || out.exists() {
            assert_same(&world.path("source"), &out);
            finished += 1;
        }
    }
    assert!(finished >= 21, "{finished} trees are there");
    world.make("after", &[]);
    let left: Vec<_> = fs::read_dir(world.path("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    world.assert_sound();
}

#[test]
fn what_a_dead_owner_left_is_taken() {
    let world = World::with_tree(7);
    let pool = world.pool();
    plant(&world, "0123", &identity_of_the_dead());
    fs::create_dir(pool.join("tmp/0123")).unwrap();
    fs::write(pool.join("tmp/0123/half"), "half a file").unwrap();
    let room = world.path(".store-materialize-feed");
    fs::create_dir_all(room.join("tree/half")).unwrap();
    std::os::unix::fs::symlink("cafe", room.join(".store-nonce")).unwrap();
    std::os::unix::fs::symlink(&room, pool.join("rooms/0123.feed.cafe")).unwrap();
    // Killed before the room said its nonce.
    let mute = world.path(".store-materialize-mute");
    fs::create_dir(&mute).unwrap();
    std::os::unix::fs::symlink(&mute, pool.join("rooms/0123.mute.cafe")).unwrap();
    // Killed after the note of a room and before the room.
    std::os::unix::fs::symlink(
        world.path(".store-materialize-none"),
        pool.join("rooms/0123.face.cafe"),
    )
    .unwrap();
    let report = world.make("one", &[]);
    assert_eq!(report["fetched"], 5);
    assert_same(&world.path("source"), &world.path("one"));
    assert!(!pool.join("tmp/0123").exists());
    assert!(!room.exists() && !mute.exists());
    world.assert_sound();
}

#[test]
fn claims_without_an_owner_that_dies_are_taken_while_somebody_waits() {
    let world = World::with_tree(8);
    // Planted after the sweep: the process that waits for the owner finds it dead.
    let names = pool_names(&world);
    let pool = world.pool();
    fs::write(pool.join("gone"), identity_of_the_dead().to_string()).unwrap();
    for name in &names {
        fs::hard_link(pool.join("gone"), pool.join("claims").join(name)).unwrap();
    }
    fs::remove_file(pool.join("gone")).unwrap();
    assert_eq!(world.make("one", &[])["fetched"], 5);
    assert_same(&world.path("source"), &world.path("one"));
    world.assert_sound();
}

#[test]
fn who_is_stopped_or_cannot_be_seen_is_waited_for_only_so_long() {
    let world = World::with_tree(9);
    let mut stopped = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    shell(&format!("kill -STOP {}", stopped.id()));
    let started = shell(&format!(
        "sed 's/.*)//' /proc/{}/stat | cut -d' ' -f21",
        stopped.id()
    ));
    let started: u64 = started.trim().parse().unwrap();
    let alive = serde_json::json!({"pid": stopped.id(), "started": started, "boot": boot(), "namespace": namespace(), "host": host()});
    let elsewhere = serde_json::json!({"pid": 1, "started": 1, "boot": boot(), "namespace": "pid:[1]", "host": host()});
    let names = pool_names(&world);
    let pool = world.pool();
    for (id, identity) in [("0123", &alive), ("4567", &elsewhere)] {
        fs::write(pool.join("owners").join(id), identity.to_string()).unwrap();
    }
    for (at, name) in names.iter().enumerate() {
        let owner = ["owners/0123", "owners/4567"][at % 2];
        fs::hard_link(pool.join(owner), pool.join("claims").join(name)).unwrap();
    }
    assert_eq!(world.make("one", &[])["fetched"], 5);
    assert_same(&world.path("source"), &world.path("one"));
    stopped.kill().unwrap();
    stopped.wait().unwrap();
    fs::remove_file(pool.join("owners/4567")).unwrap();
    world.make("two", &[]);
    world.assert_sound();
}

#[test]
fn nothing_rests_on_flock() {
    for (seed, fault) in [(10, "retval=0"), (11, "error=ENOSYS")] {
        let world = World::new(seed);
        (0..20).for_each(|n| world.write(&format!("source/{}/{n}", n % 5), 9_000 * n));
        world.put();
        let traced = |n: u64, prefix: &[&str]| {
            let out = format!("out/{n}");
            let plain = world.env.command(["materialize", "--json", REF, &out]);
            let mut command = std::process::Command::new(prefix[0]);
            command
                .args(&prefix[1..])
                .args([
                    "strace",
                    "-f",
                    "-qq",
                    "-o",
                    "/dev/null",
                    "-e",
                    "trace=flock",
                    "-e",
                ])
                .arg(format!("inject=flock:{fault}"))
                .arg(plain.get_program())
                .args(plain.get_args())
                .current_dir(world.env.root())
                .env("HOME", world.path("home"))
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped());
            command
                .spawn()
                .expect("strace is installed (tests/run installs it)")
        };
        // Half of them are in PID namespaces of their own, where process numbers mean nothing to others. They are not
        // in mount namespaces, which would hold what other tests unmount.
        let jobs: Vec<Child> = (0..10)
            .map(|n| match n % 2 {
                0 => traced(n, &["env"]),
                _ => traced(n, &["unshare", "--pid", "--fork"]),
            })
            .collect();
        let fetched: u64 = jobs.into_iter().map(fetched).sum();
        assert_eq!(fetched, 19, "{fault}: each file is built by one process");
        (0..10).for_each(|n| assert_same(&world.path("source"), &world.path(&format!("out/{n}"))));
        world.assert_sound();
    }
}

/// The bytes that a job reports as fetched. Asserts that it succeeded.
fn fetched(job: Child) -> u64 {
    let output = job.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report["fetched"].as_u64().unwrap()
}

/// The names of the pool files of [`REF`], which are then removed from the pool.
fn pool_names(world: &World) -> Vec<String> {
    world.env.ok(["materialize", "--prefetch", REF]);
    let files = world.pool_files();
    let name = |path: &std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    world.env.ok(["pool", "evict", "--to", "0"]);
    assert_eq!((files.len(), world.pool_files().len()), (5, 0));
    files.iter().map(name).collect()
}

/// Plants an owner with claims for all files of [`REF`].
fn plant(world: &World, id: &str, identity: &serde_json::Value) {
    let names = pool_names(world);
    let owner = world.pool().join("owners").join(id);
    fs::write(&owner, identity.to_string()).unwrap();
    for name in names {
        fs::hard_link(&owner, world.pool().join("claims").join(name)).unwrap();
    }
}

fn identity_of_the_dead() -> serde_json::Value {
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    let pid = gone.id();
    gone.wait().unwrap();
    serde_json::json!({"pid": pid, "started": 1, "boot": boot(), "namespace": namespace(), "host": host()})
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap()
        .trim()
        .to_owned()
}

fn namespace() -> String {
    fs::read_link("/proc/self/ns/pid")
        .unwrap()
        .display()
        .to_string()
}

fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
