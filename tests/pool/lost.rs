//! A store that lost packs, and a host whose pool still has every byte: trees of links heal what was lost.

use std::path::PathBuf;

use crate::world::{REF, World, assert_same, files_below};

/// A tree, made by this host; after that, the store loses the packs of more than `over` bytes.
fn lost(seed: u64, over: u64) -> World {
    let world = World::new(seed);
    world.write("source/large", 900_000);
    world.write("source/sub/small", 30_000);
    world.put();
    world.make("tree", &[]);
    for pack in packs(&world, over) {
        std::fs::remove_file(pack).unwrap();
    }
    world
}

fn packs(world: &World, over: u64) -> Vec<PathBuf> {
    let mut packs = files_below(&world.path("home/.local/share/store/packs"));
    packs.retain(|pack| pack.metadata().unwrap().len() > over);
    packs
}

/// Asserts that the store is whole, and that `name` is the tree `expected`.
fn assert_healed(world: &World, name: &str, expected: &str) {
    world.env.ok(["verify", "--read-data"]);
    world.env.ok(["get", name, "out"]);
    assert_same(&world.path(expected), &world.path("out"));
}

#[test]
fn a_put_of_a_tree_of_links_heals_whatever_ref_it_goes_to() {
    for (name, options) in [
        ("project/demo/new", [].as_slice()),
        (REF, &[]),
        (REF, &["--always"]),
    ] {
        let world = lost(600, 500_000);
        world.env.ok([&["put", "tree", name], options].concat());
        assert_healed(&world, name, "source");
        assert_healed_first(&world);
    }
}

fn assert_healed_first(world: &World) {
    let first = format!("{REF}@1");
    world.env.ok(["get", &first, "first"]);
    assert_same(&world.path("source"), &world.path("first"));
}

/// A copy that was broken off, or a file system after a power cut, leaves a pack that is too short.
#[test]
fn a_pack_that_was_cut_off_heals_like_one_that_is_missing() {
    type Heal<'h> = &'h [&'h [&'h str]];
    let heals: [Heal<'_>; 6] = [
        &[&["put", "source", REF, "--always"]],
        &[&["put", "source", "project/demo/new"]],
        &[&["put", "tree", REF, "--always"]],
        &[&["save", "tree"]],
        &[
            &["rm", "project/demo/data:sub/small"],
            &["put", "tree", REF],
        ],
        &[&[
            "put",
            "source",
            REF,
            "--read-all",
            "--verify-writes",
            "--always",
        ]],
    ];
    for heal in heals {
        let world = World::new(609);
        world.write("source/large", 900_000);
        world.write("source/sub/small", 30_000);
        world.put();
        world.make("tree", &[]);
        world.write("tree/more", 1_000);
        for pack in packs(&world, 500_000) {
            let file = std::fs::File::options().write(true).open(pack).unwrap();
            file.set_len(1000).unwrap();
        }
        for words in heal {
            let done = world.env.store(words.iter().copied());
            let expected = if words[0] == "rm" { 6 } else { 0 };
            assert_eq!(done.code, Some(expected), "{words:?}: {done}");
        }
        world.env.ok(["verify", "--read-data"]);
        assert_healed_first(&world);
    }
}

#[test]
fn a_put_of_a_tree_of_links_heals_what_a_repair_gave_up() {
    let world = lost(601, 500_000);
    let repaired = world.env.store(["repair"]);
    assert_eq!(repaired.code, Some(6), "{repaired}");
    world.env.ok(["put", "tree", "project/demo/new"]);
    assert_healed(&world, "project/demo/new", "source");
}

#[test]
fn a_put_of_a_tree_of_links_heals_a_pack_that_was_found_damaged() {
    let world = World::new(602);
    world.write("source/large", 900_000);
    world.write("source/sub/small", 30_000);
    world.put();
    world.make("tree", &[]);
    for pack in packs(&world, 500_000) {
        let mut bytes = std::fs::read(&pack).unwrap();
        bytes[5000] ^= 1;
        std::fs::write(&pack, bytes).unwrap();
    }
    let verified = world.env.store(["verify", "--read-data"]);
    assert_eq!(verified.code, Some(4), "{verified}");
    world.env.ok(["put", "tree", "project/demo/new"]);
    assert_healed(&world, "project/demo/new", "source");
}

#[test]
fn a_save_of_a_tree_of_links_heals() {
    let world = lost(603, 500_000);
    for job in 1..=3 {
        world.write(&format!("tree/job{job}"), 2_000);
        world.env.ok(["save", "tree"]);
    }
    assert_healed(&world, REF, "tree");
    assert_healed_first(&world);
}

/// The tree of the first version is not what the directory is by then, so only the original files bring it back.
#[test]
fn a_save_of_a_tree_of_links_needs_nothing_of_what_is_lost() {
    let world = World::new(605);
    world.write("other/file", 200_000);
    world.env.ok(["put", "other", "project/demo/other"]);
    let others = packs(&world, 0);
    world.write("source/large", 900_000);
    world.write("source/sub/small", 30_000);
    world.put();
    world.make("tree", &[]);
    for pack in packs(&world, 0) {
        if !others.contains(&pack) {
            std::fs::remove_file(pack).unwrap();
        }
    }
    for job in ["job1", "job2", "job3"] {
        world.write(&format!("tree/{job}"), 2_000);
        world.env.ok(["save", "tree"]);
        world.env.ok(["get", REF, job]);
        assert_same(&world.path("tree"), &world.path(job));
    }
    world.env.ok(["put", "source", "project/demo/again"]);
    assert_healed_first(&world);
}

#[test]
fn a_run_heals_what_its_caches_lost() {
    let world = World::new(604);
    world.write("source/weights", 900_000);
    world.env.ok(["put", "source", "project/demo/cache"]);
    let run = |script: &str| {
        let run = ["run", "--project", "demo", "--base", "job", "--"];
        world.env.ok([&run[..], &["sh", "-c", script]].concat());
    };
    run("true");
    for pack in packs(&world, 500_000) {
        std::fs::remove_file(pack).unwrap();
    }
    run("echo two > \"$STORE_PROJECT_CACHE_DIR/two\"");
    world.env.ok(["verify", "--read-data"]);
    world.env.ok(["get", "project/demo/cache", "out"]);
    let out = |name: &str| std::fs::read(world.path(name)).unwrap();
    assert_eq!(out("out/weights"), out("source/weights"));
    assert_eq!(out("out/two"), b"two\n");
}

/// The removed path is whole, another one is not.
#[test]
fn who_removes_a_path_is_told_that_a_part_of_the_rest_is_lost() {
    for is_repaired in [false, true] {
        let world = lost(606, 500_000);
        if is_repaired {
            world.env.store(["repair"]);
        }
        let removed = world.env.store(["rm", &format!("{REF}:sub/small")]);
        assert_eq!(removed.code, Some(6), "{removed}");
        let told = format!("{REF}@2: what it took over from @1 is lost in part");
        assert!(removed.stderr.contains(&told), "{removed}");
        // The tree has every byte, and the version does not vouch for any.
        world.env.ok(["put", "tree", "project/demo/new"]);
        assert_healed(&world, "project/demo/new", "source");
    }
}

#[test]
fn who_removes_what_is_lost_is_told_nothing() {
    let world = World::new(607);
    world.write("source/sub/small", 30_000);
    world.put();
    world.write("source/large", 900_000);
    world.put();
    for pack in packs(&world, 500_000) {
        std::fs::remove_file(pack).unwrap();
    }
    world.env.ok(["rm", &format!("{REF}:large")]);
    world.env.ok(["get", REF, "out"]);
    assert!(world.path("out/sub/small").exists());
}

/// Two jobs add to a version, and what the first one added is lost.
#[test]
fn who_saves_is_told_that_a_part_of_what_others_saved_is_lost() {
    for is_repaired in [false, true] {
        let world = lost(608, 1_000_000);
        world.make("other", &[]);
        world.write("other/theirs", 700_000);
        let before = packs(&world, 0);
        world.env.ok(["save", "other"]);
        std::fs::remove_dir_all(world.path("other")).unwrap();
        for pack in packs(&world, 500_000) {
            if !before.contains(&pack) {
                std::fs::remove_file(pack).unwrap();
            }
        }
        if is_repaired {
            world.env.store(["repair"]);
        }
        world.write("tree/mine", 2_000);
        let saved = world.env.store(["save", "tree"]);
        assert_eq!(saved.code, Some(6), "{saved}");
        let told = format!("{REF}@3: what it took over from @2 is lost in part");
        assert!(saved.stderr.contains(&told), "{saved}");
        world.write("tree/mine2", 2_000);
        let again = world.env.store(["save", "tree"]);
        assert_eq!(again.code, Some(6), "no later version hides it: {again}");
    }
}
