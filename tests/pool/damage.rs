//! Root writes through a hard link: the next materialize notices, and no other tree gets the bytes.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::world::{REF, World, assert_same, conflicting, set_mode, shell};

/// Damages one tree, materializes another, and returns the report.
fn after(seed: u64, hurt: impl FnOnce(&World)) -> (World, serde_json::Value) {
    let world = World::with_tree(seed);
    world.make("one", &[]);
    world.make("two", &[]);
    hurt(&world);
    let report = world.make("three", &[]);
    assert_same(&world.path("source"), &world.path("three"));
    (world, report)
}

fn assert_noticed(world: &World, report: &serde_json::Value) {
    let damaged = report["damaged"].as_array().unwrap();
    assert_eq!(damaged.len(), 1, "{report}");
    let root = world.env.root();
    let named = ["one/big", "two/big"].map(|name| root.join(name).to_str().unwrap().to_owned());
    let mut shared: Vec<_> = damaged[0]["shared_with"].as_array().unwrap().clone();
    shared.sort_by_key(ToString::to_string);
    assert_eq!(shared, named);
    // The same command updates trees that share the damaged file.
    world.make("one", &[]);
    assert_same(&world.path("source"), &world.path("one"));
    world.assert_sound();
}

#[test]
fn an_append_is_noticed() {
    let (world, report) = after(20, |world| {
        let mut file = OpenOptions::new()
            .append(true)
            .open(world.path("one/big"))
            .unwrap();
        file.write_all(b"more").unwrap();
    });
    assert_noticed(&world, &report);
    assert_eq!(report["fetched_bytes"], 0, "all chunks are still right");
}

#[test]
fn a_write_in_the_middle_costs_one_chunk() {
    let (world, report) = after(21, |world| {
        let file = OpenOptions::new()
            .write(true)
            .open(world.path("one/big"))
            .unwrap();
        file.write_all_at(b"x", 1_500_000).unwrap();
    });
    assert_noticed(&world, &report);
    let fetched = report["fetched_bytes"].as_u64().unwrap();
    assert!(
        (1..=256 << 10).contains(&fetched),
        "{fetched} bytes fetched of 3,000,000"
    );
}

#[test]
fn a_truncation_is_noticed() {
    let (world, report) = after(22, |world| {
        let file = OpenOptions::new()
            .write(true)
            .open(world.path("one/big"))
            .unwrap();
        file.set_len(1_000_000).unwrap();
    });
    assert_noticed(&world, &report);
}

#[test]
fn a_write_through_a_map_is_noticed() {
    let (world, report) = after(23, |world| {
        shell(&format!(
            "python3 -c 'import mmap; f = open(\"{}\", \"r+b\"); m = mmap.mmap(f.fileno(), 0); m[5] ^= 1; m.flush()'",
            world.path("one/big").display()
        ));
    });
    assert_noticed(&world, &report);
}

#[test]
fn another_mode_is_noticed() {
    let (world, report) = after(24, |world| set_mode(&world.path("one/big"), 0o644));
    assert_noticed(&world, &report);
}

#[test]
fn another_time_is_noticed() {
    let (world, report) = after(25, |world| {
        drop(shell(&format!(
            "touch '{}'",
            world.path("one/big").display()
        )))
    });
    assert_noticed(&world, &report);
}

#[test]
fn a_rename_over_a_link_hurts_nobody_else() {
    let (world, report) = after(26, |world| {
        fs::write(world.path("one/own"), "a job's own").unwrap();
        fs::rename(world.path("one/own"), world.path("one/big")).unwrap();
    });
    assert!(report["damaged"].as_array().unwrap().is_empty(), "{report}");
    assert_same(&world.path("source"), &world.path("two"));
    let report = world.partly(REF, "one", &[]);
    assert_eq!(conflicting(&report), [("big".into(), "changed".into())]);
    assert_eq!(fs::read(world.path("one/big")).unwrap(), b"a job's own");
    world.make("one", &["--force"]);
    assert_same(&world.path("source"), &world.path("one"));
    world.assert_sound();
}

#[test]
fn verify_finds_also_who_set_the_time_back() {
    let world = World::with_tree(27);
    world.make("one", &[]);
    let path = world.path("one/big");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"x", 1_500_000).unwrap();
    file.set_modified(time).unwrap();
    assert_eq!(
        world.make("one", &[])["damaged"].as_array().unwrap().len(),
        0,
        "nothing shows"
    );
    let found = world.env.store(["pool", "verify"]);
    assert_eq!(found.code, Some(4), "{found}");
    assert!(
        found.stderr.contains("it was also") && found.stderr.contains("one/big"),
        "{found}"
    );
    world.make("one", &[]);
    assert_same(&world.path("source"), &world.path("one"));
    world.assert_sound();
    world.env.ok(["materialize", REF, "two"]);
    assert_same(&world.path("source"), &world.path("two"));
}

#[test]
fn verify_finds_also_what_a_look_shows() {
    let world = World::with_tree(28);
    world.make("one", &[]);
    set_mode(&world.path("one/big"), 0o644);
    let mut file = OpenOptions::new()
        .append(true)
        .open(world.path("one/sub/middle"))
        .unwrap();
    file.write_all(b"more").unwrap();
    let found = world.env.store(["pool", "verify"]);
    assert_eq!(found.code, Some(4), "{found}");
    for name in ["one/big", "one/sub/middle"] {
        assert!(found.stderr.contains(name), "{found}");
    }
    world.make("one", &[]);
    assert_same(&world.path("source"), &world.path("one"));
    world.assert_sound();
}

#[test]
fn bytes_are_compared_before_they_are_linked_where_that_is_asked_for() {
    let world = World::with_tree(29);
    world.make("one", &[]);
    let path = world.path("one/big");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"x", 1_500_000).unwrap();
    file.set_modified(time).unwrap();
    let verified = world.make("two", &["--verify"]);
    let damaged = verified["damaged"].as_array().unwrap();
    assert_eq!(damaged.len(), 1, "{verified}");
    assert_eq!(damaged[0]["shared_with"].as_array().unwrap().len(), 1);
    assert_eq!(verified["fetched"], 1);
    assert_same(&world.path("source"), &world.path("two"));
    let again = world.make("three", &["--verify", "--link-mode", "copy"]);
    assert_eq!(
        (&again["fetched"], &again["copied"]),
        (&0.into(), &6.into())
    );
    assert_same(&world.path("source"), &world.path("three"));
}

#[test]
fn a_link_whose_mode_a_job_changed_is_replaced_at_once() {
    let world = World::with_tree(30);
    fs::copy(world.path("source/big"), world.path("source/twin")).unwrap();
    world.put();
    for (mode, options) in [(0o600, &[][..]), (0o755, &["--force"])] {
        for tree in ["one", "two"] {
            world.make(tree, &["--exact"]);
        }
        set_mode(&world.path("one/big"), mode);
        // Another content, so that one of two linked paths changes.
        world.write("source/twin", 50_000);
        world.put();
        world.make("one", options);
        assert_same(&world.path("source"), &world.path("one"));
        let (own, others) = (stat(&world, "one/big"), stat(&world, "two/big"));
        assert_ne!(
            own.ino(),
            others.ino(),
            "the other tree has the changed file"
        );
        assert_eq!(own.mode() & 0o777, 0o444);
        assert_eq!(
            own.mtime(),
            others.mtime(),
            "nobody sets times of what others share"
        );
    }
}

fn stat(world: &World, name: &str) -> fs::Metadata {
    fs::metadata(world.path(name)).unwrap()
}

#[test]
fn a_dry_run_exits_as_the_run_does() {
    let world = World::with_tree(31);
    world.make("one", &[]);
    fs::remove_file(world.path("one/exe")).unwrap();
    for options in [&["--dry-run"][..], &[]] {
        let arguments = [&["materialize", REF, "one"], options].concat();
        let finished = world.env.store(arguments);
        assert_eq!(finished.code, Some(6), "{options:?}: {finished}");
    }
    world
        .env
        .ok(["materialize", REF, "one", "--dry-run", "--force"]);
    assert!(!world.path("one/exe").exists());
}
