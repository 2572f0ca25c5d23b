//! The size of a pool and what it frees: correct numbers, limits that hold, and files of trees that stay.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

use crate::world::{REF, World, assert_same, files_below};

fn status(world: &World) -> serde_json::Value {
    serde_json::from_str(&world.env.ok(["pool", "status", "--json"])).unwrap()
}

#[test]
fn status_says_what_deleting_would_free() {
    let world = World::with_tree(80);
    world.make("one", &[]);
    let before = status(&world);
    assert_eq!(
        (
            &before["files"],
            &before["linked_files"],
            &before["unlinked_files"]
        ),
        (&5.into(), &4.into(), &1.into())
    );
    assert_eq!(before["trees"].as_array().unwrap().len(), 1);
    fs::remove_dir_all(world.path("one")).unwrap();
    let after = status(&world);
    assert_eq!(
        (&after["linked_bytes"], &after["unlinked_bytes"]),
        (&0.into(), &before["bytes"])
    );
    assert!(after["trees"].as_array().unwrap().is_empty());
    let evicted: serde_json::Value =
        serde_json::from_str(&world.env.ok(["pool", "evict", "--to", "0", "--json"])).unwrap();
    assert_eq!(
        (&evicted["files"], &evicted["bytes"]),
        (&5.into(), &before["bytes"])
    );
    assert!(world.pool_files().is_empty());
}

/// A file that was written through is set aside while trees link it. It takes space once they are gone.
#[test]
fn what_was_set_aside_is_counted_and_goes_first() {
    let world = World::with_tree(86);
    let hurt = || {
        world.make("one", &[]);
        let mut file = fs::File::options()
            .append(true)
            .open(world.path("one/big"))
            .unwrap();
        file.write_all(b"more").unwrap();
        assert_eq!(
            world.make("two", &[])["damaged"].as_array().unwrap().len(),
            1
        );
    };
    let set_aside = || {
        let said = status(&world);
        let bytes = said["damaged_bytes"].as_u64().unwrap();
        (said["damaged_files"].as_u64().unwrap(), bytes)
    };
    let evicted = || -> (u64, u64) {
        let said = world.env.ok(["pool", "evict", "--to", "1TB", "--json"]);
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        (
            said["files"].as_u64().unwrap(),
            said["bytes"].as_u64().unwrap(),
        )
    };
    assert_eq!(set_aside(), (0, 0));
    hurt();
    assert_eq!(set_aside(), (1, 0), "a tree links it");
    assert_eq!(evicted(), (1, 0), "taking its name away frees nothing");
    assert_eq!(set_aside(), (0, 0));
    fs::remove_dir_all(world.path("one")).unwrap();
    hurt();
    let taken = fs::metadata(world.path("one/big")).unwrap().blocks() * 512;
    fs::remove_dir_all(world.path("one")).unwrap();
    assert_eq!(set_aside(), (1, taken));
    assert_eq!(evicted(), (1, taken));
    assert_eq!(set_aside(), (0, 0));
    assert_same(&world.path("source"), &world.path("two"));
    world.assert_sound();
}

#[test]
fn eviction_takes_the_least_recently_used_and_nothing_of_a_tree() {
    let world = World::new(81);
    for n in 0..6 {
        world.write(&format!("source/{n}"), 100_000);
    }
    world.put();
    world.make("one", &["--include", "0"]);
    for n in 1..6 {
        world.env.ok([
            "materialize",
            "--prefetch",
            "--include",
            &n.to_string(),
            REF,
        ]);
    }
    // Linked and unlinked: it was fetched first but used last.
    world.make("two", &["--include", "1"]);
    fs::remove_dir_all(world.path("two")).unwrap();
    world.env.ok(["pool", "evict", "--to", "330kB"]);
    assert_eq!(world.pool_files().len(), 3);
    assert_eq!(world.make("three", &["--include", "[015]"])["fetched"], 0);
    assert_eq!(world.make("four", &["--include", "[234]"])["fetched"], 3);
    world.assert_sound();
}

/// The mark of a deleted tree is removed when it is old; other marks stay.
#[test]
fn marks_of_deleted_trees_are_forgotten() {
    let world = World::with_tree(85);
    for name in ["stays", "deleted", "replaced", "young"] {
        world.make(name, &[]);
        if name != "young" {
            for mark in files_below(&world.pool().join("trees")) {
                let two_days_ago = SystemTime::now() - Duration::from_secs(48 * 3600);
                let file = fs::File::options().write(true).open(mark).unwrap();
                file.set_modified(two_days_ago).unwrap();
            }
        }
    }
    for name in ["deleted", "replaced", "young"] {
        fs::rename(world.path(name), world.path(format!("old-{name}").as_str())).unwrap();
    }
    fs::create_dir(world.path("replaced")).unwrap();
    let evicted: serde_json::Value =
        serde_json::from_str(&world.env.ok(["pool", "evict", "--to", "1TB", "--json"])).unwrap();
    assert_eq!(evicted["marks"], 2);
    assert_eq!(files_below(&world.pool().join("trees")).len(), 2);
    world.make("stays", &[]);
    let again: serde_json::Value =
        serde_json::from_str(&world.env.ok(["pool", "evict", "--to", "1TB", "--json"])).unwrap();
    assert_eq!(again["marks"], 0);
    world.assert_sound();
}

#[test]
fn a_limit_holds_while_trees_come_and_go() {
    let world = World::new(82);
    for n in 0..5 {
        world.write("source/data", 1_000_000 + n);
        world.put();
        world.make("out", &["--pool-max", "2200kB"]);
        assert_same(&world.path("source"), &world.path("out"));
        assert!(
            status(&world)["bytes"].as_u64().unwrap() <= 2_200_000,
            "{}",
            status(&world)
        );
    }
    world.assert_sound();
}

#[test]
fn a_floor_that_cannot_be_kept_is_named() {
    let world = World::with_tree(83);
    let refused = world
        .env
        .store(["materialize", "--pool-free", "900TB", REF, "out"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("and a rest of 900 TB"), "{refused}");
    assert!(!world.path("out").exists());
}

#[test]
fn linking_while_evicting_always_ends_with_the_tree() {
    let world = World::with_tree(84);
    let evicting: Vec<_> = (0..3)
        .map(|_| {
            let mut command = std::process::Command::new("sh");
            let store = world.env.command::<&str>([]).get_program().to_owned();
            command.arg("-c").arg("i=0; while [ $i -lt 40 ]; do \"$0\" pool evict --to 0 >/dev/null || exit 1; i=$((i+1)); done");
            command.arg(store).env("HOME", world.path("home")).current_dir(world.env.root()).spawn().unwrap()
        })
        .collect();
    for n in 0..15 {
        let out = format!("out-{n}");
        world.make(&out, &[]);
        assert_same(&world.path("source"), &world.path(&out));
        fs::remove_dir_all(world.path(&out)).unwrap();
    }
    for mut child in evicting {
        assert!(child.wait().unwrap().success());
    }
    world.make("last", &[]);
    assert_same(&world.path("source"), &world.path("last"));
    world.assert_sound();
}

#[test]
fn holes_take_no_room() {
    let world = World::new(86);
    world.write("source/data", 100_000);
    let file = fs::File::create(world.path("source/sparse")).unwrap();
    file.set_len(1_000_000_000_000).unwrap();
    drop(file);
    world.put();
    world.make("out", &["--pool-max", "2MB"]);
    assert!(status(&world)["bytes"].as_u64().unwrap() <= 2_000_000);
}

#[test]
fn a_status_is_json_whatever_trees_are_called() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::with_tree(87);
    let name = std::ffi::OsStr::from_bytes(b"out\xff\n");
    let mut command = world.env.command(["materialize", REF]);
    assert!(command.arg(name).status().unwrap().success());
    let status = status(&world);
    let tree = &status["trees"][0];
    assert!(
        tree["path"].as_str().unwrap().ends_with("out\\xff\\n"),
        "{tree}"
    );
    assert!(
        tree["path_hex"].as_str().unwrap().ends_with("6f7574ff0a"),
        "{tree}"
    );
    let shown = world.env.ok(["pool", "status"]);
    assert!(
        shown.contains("out\\xff\\n is project/demo/data"),
        "{shown}"
    );
}

#[test]
fn few_open_files_are_enough() {
    let world = World::new(88);
    for n in 0..300 {
        world.write(&format!("source/{}/{n}", n % 7), 17_000 + n);
    }
    world.put();
    let store = world.env.command::<&str>([]).get_program().to_owned();
    let mut command = std::process::Command::new("sh");
    command
        .arg("-c")
        .arg("ulimit -n 64; exec \"$0\" materialize \"$1\" out");
    command.arg(store).arg(REF).env("HOME", world.path("home"));
    let done = command.current_dir(world.env.root()).output().unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert_same(&world.path("source"), &world.path("out"));
}
