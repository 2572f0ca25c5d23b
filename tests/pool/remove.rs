//! Removing a namespace removes its files from the host's pools, and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::world::{REF, World, assert_same, files_below, shell};

/// The names of a pool's files.
fn names(pool: &Path) -> BTreeSet<String> {
    let files = files_below(&pool.join("files"));
    let name = |file: &std::path::PathBuf| file.file_name().unwrap().to_str().unwrap().to_owned();
    files.iter().map(name).collect()
}

#[test]
fn the_end_of_a_namespace_takes_its_pool_files() {
    let world = World::with_tree(80);
    world.write("shared/data", 50_000);
    fs::copy(world.path("shared/data"), world.path("source/shared")).unwrap();
    world.put();
    world.env.ok(["put", "shared", "team/other/data"]);
    world.write("kept/data", 60_000);
    world.env.ok(["put", "kept", "project/demo/kept"]);
    world.env.ok(["pin", "project/demo/kept"]);
    for name in ["team/other/data", "project/demo/kept"] {
        world.env.ok(["materialize", "--prefetch", name]);
    }
    let theirs = names(&world.pool());
    assert_eq!(theirs.len(), 2);
    world.env.ok(["materialize", "--prefetch", REF]);
    world.make("job", &["--include", "big"]);
    let linked = names(&world.pool())
        .into_iter()
        .find(|name| name.ends_with("-3000000"))
        .unwrap();
    // A file that somebody wrote to was the namespace's, too.
    world.make("edited", &["--include", "exe"]);
    shell(&format!(
        "chmod u+w '{0}' && echo more >>'{0}'",
        world.path("edited/exe").display()
    ));

    world.make("edited", &["--include", "exe"]);
    fs::remove_dir_all(world.path("edited")).unwrap();

    let said = world.env.ok(["rm", "--yes", "--json", "project/demo"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let pool = &said["pools"][0];
    assert_eq!(pool["pool"], world.pool().to_str().unwrap());
    assert_eq!(pool["linked_files"], 1, "{said}");
    assert_eq!(pool["files"], 5, "four of the tree, one set aside: {said}");
    assert!(pool["bytes"].as_u64().unwrap() >= 2 * 40_000 + 200_000 + 70_000);
    let mut expected = theirs;
    expected.insert(linked);
    assert_eq!(names(&world.pool()), expected);
    assert_eq!(
        fs::read_dir(world.pool().join("damaged")).unwrap().count(),
        0
    );
    assert_eq!(
        fs::read(world.path("job/big")).unwrap(),
        fs::read(world.path("source/big")).unwrap()
    );
    world.env.ok(["materialize", "team/other/data", "theirs"]);
    assert_same(&world.path("shared"), &world.path("theirs"));
    world.assert_sound();
}

#[test]
fn every_pool_that_was_used_is_cleaned_unless_one_is_named() {
    let world = World::with_tree(81);
    for pool in ["a", "b"] {
        world
            .env
            .ok(["materialize", "--prefetch", "--pool", pool, REF]);
    }
    world.env.ok(["materialize", "--prefetch", REF]);
    world.env.ok(["put", "source", "team/other/data"]);
    // Another namespace has all of it, so nothing is removed.
    let said = world.env.ok(["rm", "--yes", "project/demo"]);
    assert!(!said.contains("removed"), "{said}");
    assert_eq!(names(&world.path("a")).len(), 5);
    world.put();
    world.env.ok(["rm", "--yes", "team/other"]);
    world.env.ok(["put", "source", "team/other/data"]);
    world.env.ok(["rm", "--yes", "--pool", "a", "project/demo"]);
    world.env.ok(["rm", "--yes", "--pool", "a", "team/other"]);
    assert_eq!(
        (names(&world.path("a")).len(), names(&world.path("b")).len()),
        (0, 5)
    );
    world.put();
    let said = world.env.ok(["rm", "--yes", "project/demo"]);
    assert!(said.contains("5 files removed"), "{said}");
    assert_eq!(names(&world.path("b")).len(), 0);
    assert_eq!(world.pool_files().len(), 0);
    world.put();
    let said = world
        .env
        .store(["rm", "--yes", "--pool", "nowhere", "project/demo"]);
    assert_eq!(said.code, Some(0), "{said}");
    assert!(said.stderr.contains("nowhere: there is none"), "{said}");
    assert!(!world.path("nowhere").exists());
    // A pool that was used once and is gone is not created again.
    fs::remove_dir_all(world.path("a")).unwrap();
    world.put();
    world.env.ok(["rm", "--yes", "project/demo"]);
    assert!(!world.path("a").exists());
}

#[test]
fn the_configuration_names_a_pool_and_its_limits() {
    let world = World::with_tree(82);
    world.env.write(
        "home/.config/store/config.toml",
        format!(
            "[pool]\npath = {:?}\nmax = \"3MB\"\nfree = \"1MB\"\n",
            world.path("configured")
        ),
    );
    world
        .env
        .ok(["materialize", "--prefetch", "--exclude", "big", REF]);
    assert_eq!(names(&world.path("configured")).len(), 4);
    // The limit evicts the others.
    world
        .env
        .ok(["materialize", "--prefetch", "--include", "big", REF]);
    assert_eq!(names(&world.path("configured")).len(), 1);
    let mut command = world.env.command(["materialize", "--prefetch", REF]);
    command.env("STORE_POOL", "of-the-environment");
    command.env("STORE_POOL_MAX", "1GB");
    assert!(command.status().unwrap().success());
    assert_eq!(names(&world.path("of-the-environment")).len(), 5);
    let mut command = world
        .env
        .command(["materialize", "--prefetch", "--pool", "flag", REF]);
    command.env("STORE_POOL", "nobody");
    command.env("STORE_POOL_MAX", "1GB");
    assert!(command.status().unwrap().success());
    assert_eq!(names(&world.path("flag")).len(), 5);
    assert!(!world.path("nobody").exists());
}
