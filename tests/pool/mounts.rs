//! Other file systems and other users: each refusal names the option to set. If a mount cannot be made, the test fails.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use crate::world::{Mount, REF, World, assert_same, inode, shell};

/// The link by which a pool knows its tree.
const PROOF: &str = ".store-nonce";

#[test]
fn a_full_inode_gets_a_successor() {
    let world = World::with_tree(40);
    world.make("one", &[]);
    // ext4 allows 65,000 links; two exist.
    let links = world.path("links");
    fs::create_dir(&links).unwrap();
    let big = world.path("one/big");
    let full = (0..70_000).find(|n| fs::hard_link(&big, links.join(n.to_string())).is_err());
    assert_eq!(full, Some(65_000 - 2), "the temporary directory is on ext4");
    let report = world.make("two", &[]);
    assert_eq!(
        (&report["linked"], &report["fetched"]),
        (&4.into(), &0.into())
    );
    assert_ne!(inode(&world.path("two/big")), inode(&big));
    assert_same(&world.path("source"), &world.path("two"));
    world.make("three", &[]);
    assert_eq!(
        inode(&world.path("two/big")),
        inode(&world.path("three/big"))
    );
    world.assert_sound();
}

#[test]
fn between_two_mounts_of_one_file_system_there_are_no_links() {
    let world = World::with_tree(41);
    fs::create_dir(world.path("behind")).unwrap();
    let mount = Mount::new(
        world.path("mount"),
        &format!("--bind '{}'", world.path("behind").display()),
    );
    let pool = world.pool();
    let pool = pool.to_str().unwrap();
    let refused = world.env.store([
        "materialize",
        "--pool",
        pool,
        "--link-mode",
        "hardlink",
        REF,
        &mount.path("out"),
    ]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(
        refused.stderr.contains("makes no hard links from it"),
        "{refused}"
    );
    assert!(
        refused
            .stderr
            .contains("set --pool or $STORE_POOL to a directory on the same file system and mount"),
        "{refused}"
    );
    assert!(!mount.0.join("out").exists());
    // By default the file is copied, with a note.
    let copied = world
        .env
        .store(["materialize", "--pool", pool, REF, &mount.path("out")]);
    assert_eq!(copied.code, Some(0), "{copied}");
    assert!(
        copied.stderr.contains("note: files are not hard-linked"),
        "{copied}"
    );
    assert_same(&world.path("source"), &mount.0.join("out"));
    assert_eq!(
        fs::metadata(mount.0.join("out/big")).unwrap().mode() & 0o777,
        0o644
    );
    let again: serde_json::Value = serde_json::from_str(&world.env.ok([
        "materialize",
        "--json",
        "--pool",
        pool,
        REF,
        &mount.path("out"),
    ]))
    .unwrap();
    assert_eq!(again["copied"], 0, "{again}");
    // Without a named pool, a pool on the same mount is created.
    let report = world.make(&mount.path("linked"), &[]);
    assert_eq!(report["linked"], 4, "{report}");
    assert!(
        report["pool"]
            .as_str()
            .unwrap()
            .starts_with(mount.0.to_str().unwrap()),
        "{report}"
    );
    // The pools that were created above it for a test of links are gone.
    let tried = fs::read_dir(world.env.root()).unwrap();
    let is_pool = |name: &str| name.starts_with(".store-pool");
    assert!(
        !tried
            .flatten()
            .any(|entry| is_pool(entry.file_name().to_str().unwrap()))
    );
}

#[test]
fn no_pool_is_made_in_the_root_directory() {
    let world = World::with_tree(49);
    let name = format!("/store-test-{}", std::process::id());
    let mut command = world.env.command(["materialize", REF, &name]);
    command.env_remove("HOME");
    command.env("STORE_URL", world.path("home/.local/share/store"));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("no pool is named, and there is no home directory")
            && said.contains("name one with --pool"),
        "{said}"
    );
    assert!(!std::path::Path::new(&name).exists());
    assert!(!std::path::Path::new("/.store-pool-0").exists());
}

#[test]
fn a_pool_that_is_used_instead_of_the_usual_one_is_told() {
    let world = World::with_tree(50);
    fs::create_dir_all(world.path("home/.cache/store")).unwrap();
    fs::write(world.path("home/.cache/store/pool"), "no directory").unwrap();
    let mount = Mount::new(world.path("mount"), "-t tmpfs tmpfs");
    let made = world.env.store(["materialize", REF, &mount.path("out")]);
    assert_eq!(made.code, Some(0), "{made}");
    assert!(
        made.stderr
            .contains("is used instead of the usual one: open pool"),
        "{made}"
    );
    assert!(mount.0.join(".store-pool-0").is_dir());
}

#[test]
fn a_pool_without_its_mount_is_not_made() {
    let world = World::with_tree(51);
    let missing = world.path("nvme/store-pool");
    let missing = missing.to_str().unwrap();
    world.env.write(
        "home/.config/store/config.toml",
        format!("[pool]\npath = {missing:?}\n"),
    );
    for options in [&[][..], &["--pool", missing]] {
        let refused = world
            .env
            .store([&["materialize", REF, "out"], options].concat());
        assert_eq!(refused.code, Some(3), "{refused}");
        assert!(
            refused.stderr.contains("there is no directory")
                && refused.stderr.contains("hint: mount its file system"),
            "{refused}"
        );
    }
    assert!(!world.path("nvme").exists());
    fs::create_dir(world.path("nvme")).unwrap();
    world.make("out", &[]);
    assert!(world.path("nvme/store-pool/files").is_dir());
}

fn reflinks(seed: u64, make: &str) {
    let world = World::with_tree(seed);
    let mount = Mount::image(world.path("mount"), make, "400M");
    let (pool, out) = (mount.path("pool"), mount.path("out"));
    let make = || world.make(&out, &["--pool", &pool, "--link-mode", "reflink"]);
    let report = make();
    assert_eq!(
        (&report["reflinked"], &report["copied"]),
        (&4.into(), &2.into())
    );
    assert_eq!(
        report["bytes_not_copied"],
        3_000_000 + 200_000 + 70_000 + 40_000
    );
    assert_same(&world.path("source"), &mount.0.join("out"));
    let out = mount.0.join("out/big");
    assert_eq!(fs::metadata(&out).unwrap().mode() & 0o777, 0o644);
    // A write separates it from the pool file.
    fs::write(&out, "a job writes").unwrap();
    world.env.ok(["pool", "verify", "--pool", &pool]);
    let options = ["--pool", &pool, "--link-mode", "reflink"];
    let kept = world.partly(REF, mount.path("out").as_str(), &options);
    assert_eq!(kept["conflicting"][0]["path"], "big");
    let report = world.make(&mount.path("out"), &[&options[..], &["--force"]].concat());
    assert_eq!(
        (&report["reflinked"], &report["fetched"]),
        (&1.into(), &0.into())
    );
    assert_same(&world.path("source"), &mount.0.join("out"));
}

#[test]
fn reflinks_on_xfs() {
    reflinks(42, "mkfs.xfs -q -m reflink=1");
}

#[test]
fn reflinks_on_btrfs() {
    reflinks(43, "mkfs.btrfs -q");
}

#[test]
fn reflinks_that_the_file_system_does_not_make_are_refused() {
    let world = World::with_tree(44);
    let refused = world
        .env
        .store(["materialize", "--link-mode", "reflink", REF, "out"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(
        refused.stderr.contains("reflinks need XFS or btrfs"),
        "{refused}"
    );
    assert!(!world.path("out").exists());
    world.assert_sound();
}

#[test]
fn overlayfs_links_within_itself() {
    let world = World::with_tree(45);
    // tmpfs, since the tests' file system may itself be an overlayfs.
    let base = Mount::new(world.path("base"), "-t tmpfs tmpfs");
    for name in ["lower", "upper", "work"] {
        fs::create_dir(base.0.join(name)).unwrap();
    }
    let options = format!(
        "-t overlay overlay -o lowerdir='{}',upperdir='{}',workdir='{}'",
        base.path("lower"),
        base.path("upper"),
        base.path("work")
    );
    let overlay = Mount::new(world.path("overlay"), &options);
    let said = world.env.ok([
        "materialize",
        "--json",
        "--pool",
        &overlay.path("pool"),
        REF,
        &overlay.path("out"),
    ]);
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["linked"], 4, "{report}");
    assert_same(&world.path("source"), &overlay.0.join("out"));
    world.env.ok([
        "materialize",
        "--pool",
        &overlay.path("pool"),
        REF,
        &overlay.path("out"),
    ]);
    assert_same(&world.path("source"), &overlay.0.join("out"));
}

#[test]
fn a_read_only_destination_says_so() {
    let world = World::with_tree(46);
    let mount = Mount::new(world.path("mount"), "-t tmpfs -o ro tmpfs");
    let refused = world.env.store(["materialize", REF, &mount.path("out")]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("read-only"), "{refused}");
    world.assert_sound();
}

#[test]
fn a_full_pool_says_so_and_leaves_nothing() {
    let world = World::with_tree(47);
    let mount = Mount::new(world.path("mount"), "-t tmpfs -o size=1M tmpfs");
    let pool = mount.path("pool");
    let refused = world
        .env
        .store(["materialize", "--pool", &pool, REF, &mount.path("out")]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(
        refused
            .stderr
            .contains("hint: free some space with `store pool evict`"),
        "{refused}"
    );
    assert!(!mount.0.join("out").exists());
    // With a pool elsewhere, the destination is what is full.
    let refused = world.env.store([
        "materialize",
        "--link-mode",
        "copy",
        "--pool",
        "elsewhere",
        REF,
        &mount.path("out"),
    ]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(
        refused.stderr.contains("No space left on device"),
        "{refused}"
    );
    let left: Vec<_> = fs::read_dir(&mount.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["pool"]);
    world.env.ok([
        "materialize",
        "--pool",
        &pool,
        "--include",
        "exe",
        REF,
        &mount.path("out"),
    ]);
}

#[test]
fn the_pool_of_another_user_is_refused() {
    let world = World::with_tree(48);
    world.make("roots", &[]);
    // A pool that is open to others, and a user who may write to it.
    let root = world.env.root();
    shell(&format!(
        "chmod -R a+rX '{}' && chmod 1777 '{}'",
        root.display(),
        root.display()
    ));
    let as_nobody = |arguments: &[&str]| {
        let mut command = world.env.command(arguments);
        command.uid(65534).gid(65534).env("HOME", "/nonexistent");
        let output = command
            .env("STORE_URL", world.path("home/.local/share/store"))
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let pool = world.pool();
    let pool = pool.to_str().unwrap();
    let (code, said) = as_nobody(&["materialize", "--pool", pool, REF, "out"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("belongs to user 0, expected user 65534") && said.contains("one of your own"),
        "{said}"
    );
    assert!(!world.path("out").exists());
    let (code, said) = as_nobody(&["materialize", "--pool", "own", REF, "linked"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(fs::metadata(world.path("linked/big")).unwrap().nlink() == 2);
}

/// ramfs tells no size and keeps no extended attributes. So do some file systems that are mounted with FUSE.
#[test]
fn on_a_file_system_without_sizes_and_attributes_trees_stay_what_they_are() {
    let world = World::with_tree(42);
    let mount = Mount::new(world.path("mount"), "-t ramfs ramfs");
    let (pool, tree) = (mount.path("pool"), mount.path("tree"));
    let make = ["materialize", "--pool", &pool, REF, &tree];
    let mut holder = world
        .env
        .command([&make[..], &["--ephemeral", "--json"]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut out = BufReader::new(holder.stdout.take().unwrap());
    out.read_line(&mut said).unwrap();
    let status = world.env.ok(["pool", "status", "--pool", &pool]);
    assert!(status.contains("file system: unknown"), "{status}");
    // The proof of the pool lies in the tree, but it is no part of it.
    let proof = Path::new(&tree).join(PROOF);
    let nonce = fs::read_link(&proof).unwrap();
    world.env.ok(["diff", REF, &tree]);
    world.env.ok(["put", &tree, "project/demo/again"]);
    world.env.ok(["diff", REF, "project/demo/again"]);
    world.env.ok([&make[..], &["--exact"]].concat());
    assert_eq!(fs::read_link(&proof).unwrap(), nonce);
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    // The second run made the tree to stay.
    world.env.ok(["diff", REF, &tree]);
    // What is merely named like it is a user's.
    fs::write(world.path("source").join(PROOF), "").unwrap();
    fs::create_dir(world.path("source/a")).unwrap();
    std::os::unix::fs::symlink("b", world.path("source/a").join(PROOF)).unwrap();
    world.put();
    assert_eq!(world.env.ok(["ls", "-r", REF]).matches(PROOF).count(), 2);
}
