//! Trees that try to write elsewhere, and destinations that lead elsewhere.

use std::fs;
use std::os::unix::fs::symlink;

use crate::world::{REF, World, assert_same, files_below, shell};

fn refused(world: &World, destination: &str, options: &[&str]) -> String {
    let finished = world
        .env
        .store([&["materialize", REF, destination], options].concat());
    assert_ne!(finished.code, Some(0), "{finished}");
    assert!(!world.path(destination).exists());
    finished.stderr
}

#[test]
fn symlinks_that_lead_out_are_refused() {
    for (at, (dir, target)) in [
        ("source", "/etc/passwd"),
        ("source", ".."),
        ("source/a/b", "../../../x"),
        // Through another symlink; as text the target seems to stay inside.
        ("source/a/b", "home/../../x"),
        ("source/a", "b/home/.."),
    ]
    .into_iter()
    .enumerate()
    {
        let world = World::new(60 + at as u64);
        world.write("source/a/b/file", 20_000);
        symlink("../..", world.path("source/a/b/home")).unwrap();
        symlink(target, world.path(dir).join("evil")).unwrap();
        world.put();
        let said = refused(&world, "out", &[]);
        assert!(
            said.contains("leads out of the destination"),
            "{target}: {said}"
        );
        assert!(said.contains("--allow-outside-symlinks"), "{said}");
        world.make("without", &["--exclude", "evil"]);
        world.make("allowed", &["--allow-outside-symlinks"]);
        assert_same(&world.path("source"), &world.path("allowed"));
    }
}

#[test]
fn symlinks_that_only_look_like_it_are_not() {
    let world = World::new(70);
    world.write("source/a/b/file", 20_000);
    symlink("b/../b/file", world.path("source/a/round")).unwrap();
    symlink("nowhere/../at/all", world.path("source/a/dangling")).unwrap();
    symlink("circle", world.path("source/circle")).unwrap();
    symlink(".", world.path("source/self")).unwrap();
    world.put();
    world.make("out", &[]);
    assert_same(&world.path("source"), &world.path("out"));
}

#[test]
fn a_job_cannot_lead_an_update_elsewhere() {
    let world = World::with_tree(71);
    world.make("out", &[]);
    // The job replaces a directory of the tree by a symlink.
    fs::create_dir(world.path("victim")).unwrap();
    fs::rename(world.path("out/sub/deep"), world.path("aside")).unwrap();
    symlink(world.path("victim"), world.path("out/sub/deep")).unwrap();
    world.write("source/sub/deep/other", 90_000);
    world.put();
    let report = world.partly(REF, "out", &[]);
    let named = [("sub/deep".into(), "changed".into())];
    assert_eq!(crate::world::conflicting(&report), named);
    assert!(files_below(&world.path("victim")).is_empty());
    world.make("out", &["--force"]);
    assert!(files_below(&world.path("victim")).is_empty());
    assert_same(&world.path("source"), &world.path("out"));
}

#[test]
fn a_snapshot_becomes_real_files() {
    let world = World::new(72);
    let repo = "source/hub/models--a--b";
    world.write(&format!("{repo}/blobs/1111"), 100_000);
    world.write(&format!("{repo}/blobs/2222"), 300);
    world.env.write(format!("{repo}/refs/main"), "0123");
    fs::create_dir_all(world.path(&format!("{repo}/snapshots/0123/onnx"))).unwrap();
    symlink(
        "../../blobs/2222",
        world.path(&format!("{repo}/snapshots/0123/config.json")),
    )
    .unwrap();
    symlink(
        "../../../blobs/1111",
        world.path(&format!("{repo}/snapshots/0123/onnx/model")),
    )
    .unwrap();
    symlink("onnx", world.path(&format!("{repo}/snapshots/0123/also"))).unwrap();
    world.env.ok(["put", "--profile", "none", "source", REF]);
    let snapshot = format!("{REF}:hub/models--a--b/snapshots/0123");
    world
        .env
        .ok(["materialize", "--flatten", &snapshot, "flat"]);
    crate::world::shell(&format!(
        "diff -r '{}' '{}' && test -z \"$(find '{1}' -type l)\"",
        world.path(&format!("{repo}/snapshots/0123")).display(),
        world.path("flat").display()
    ));
    // Kept as a link, it would lead out of the destination.
    let said = world.env.store(["materialize", &snapshot, "links"]);
    assert!(
        said.stderr.contains("leads out of the destination") && said.stderr.contains("--flatten"),
        "{said}"
    );
    // Files in `refs/` of a hub cache are never shared, whatever the options.
    world.make("all", &["--copy-below", "0"]);
    let main = fs::metadata(world.path("all/hub/models--a--b/refs/main")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&main), 1);
    let circle = World::new(73);
    circle.write("source/a/file", 20_000);
    symlink("..", circle.path("source/a/up")).unwrap();
    circle.put();
    let said = refused(&circle, "flat", &["--flatten"]);
    assert!(
        said.contains("leads to nothing that could take its place"),
        "{said}"
    );
}

/// Makes `name` with `depth` nested directories, and a file in the last one.
fn nested(world: &World, name: &str, depth: usize) {
    let file = world.env.write("leaf", [7; 30_000]);
    // The path is longer than the limit, so it is made step by step.
    shell(&format!(
        "python3 -c '\nimport os, shutil, sys\nroot, depth, leaf = sys.argv[1:]\nos.mkdir(root), os.chdir(root)\n\
         for _ in range(int(depth)): os.mkdir(\"d\"), os.chdir(\"d\")\nshutil.copy(leaf, \"leaf\")' '{}' {depth} '{}'",
        world.path(name).display(),
        file.display()
    ));
}

#[test]
fn trees_are_deeper_than_any_path_can_say() {
    let world = World::new(65);
    nested(&world, "source", 1_900);
    world.put();
    let found = || {
        shell(&format!(
            "find '{}' -name leaf | wc -l",
            world.path("out").display()
        ))
    };
    assert_eq!(world.make("out", &[])["linked"], 1);
    assert_eq!(found(), "1\n");
    assert_eq!(world.make("out", &[])["unchanged"], 1_901);
    world.env.ok(["materialize", "--prefetch", REF]);
    shell(&format!("rm -r '{}'", world.path("source").display()));
    nested(&world, "source", 100);
    world.put();
    assert_eq!(world.make("out", &[])["linked"], 1);
    assert_eq!(
        found(),
        "1\n",
        "what the version does not have any more is gone"
    );
    nested(&world, "deeper", 2_100);
    world.env.ok(["put", "deeper", "project/demo/deeper"]);
    for _ in 0..2 {
        world
            .env
            .ok(["materialize", "project/demo/deeper", "deeper-out"]);
    }
    nested(&world, "too-deep", 4_200);
    world.env.ok(["put", "too-deep", "project/demo/too-deep"]);
    for more in ["nothing", "--prefetch"] {
        let refused = world
            .env
            .store(["materialize", "project/demo/too-deep", more]);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(
            refused
                .stderr
                .contains("nested deeper than the 4096 directories"),
            "{refused}"
        );
    }
    world.assert_sound();
    shell(&format!(
        "cd '{}' && rm -rf source deeper deeper-out too-deep out",
        world.env.root().display()
    ));
}
