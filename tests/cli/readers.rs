//! Who may read a store, and what comes out of it.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use support::environment;

#[test]
fn the_embedded_store_is_its_owners_alone() {
    let mode = |path: std::path::PathBuf| path.metadata().unwrap().permissions().mode() & 0o7777;
    let env = environment!();
    env.write("in", "text");
    env.ok(["put", "in", "project/demo/a"]);
    assert_eq!(mode(env.path("home/.local/share/store")), 0o700);
    let other = environment!();
    other.ok(["init"]);
    assert_eq!(mode(other.path("home/.local/share/store")), 0o700);
    // A store that is named explicitly gets the usual mode.
    other.ok(["init", "named"]);
    assert_ne!(mode(other.path("named")), 0o700);
}

#[test]
fn a_shared_store_is_read_by_its_group_whatever_the_umask() {
    for (shared, readers, others) in [("--shared", "group", 0), ("--shared=world", "world", 0o4)] {
        for umask in ["077", "000"] {
            check_shared(shared, readers, others, umask);
        }
    }
    let env = environment!();
    let finished = env.store(["init", "--shared", "s3://bucket/x"]);
    assert_eq!(finished.code, Some(2), "{finished}");
}

fn check_shared(shared: &str, readers: &str, others: u32, umask: &str) {
    let env = environment!();
    env.ok(["init", shared, "group"]);
    env.write("in", vec![7; 3000]);
    let program = env.command(["x"]).get_program().to_owned();
    let mut put = std::process::Command::new("sh");
    let script = format!("umask {umask}; exec \"$0\" put in project/demo/a --store group");
    put.args(["-c", &script])
        .arg(program)
        .current_dir(env.root())
        .env_clear()
        .env("HOME", env.path("home"));
    let finished: support::Finished = put.output().unwrap().into();
    assert_eq!(finished.code, Some(0), "{finished}");
    let mut pending = vec![env.path("group")];
    let (mut directories, mut files) = (0, 0);
    while let Some(path) = pending.pop() {
        let found = path.metadata().unwrap();
        let mode = found.permissions().mode();
        assert_eq!(
            mode & 0o004,
            others,
            "{readers} {umask} {}: {mode:o}",
            path.display()
        );
        if found.is_dir() {
            assert_eq!(mode & 0o2070, 0o2070, "{}: {mode:o}", path.display());
            directories += 1;
            pending.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            assert_eq!(mode & 0o040, 0o040, "{}: {mode:o}", path.display());
            files += 1;
        }
    }
    assert!(directories >= 5 && files >= 4, "{directories} {files}");
}

#[test]
fn a_store_wants_a_directory_of_its_own() {
    let env = environment!();
    env.write("data/a", "text");
    env.write("data/b", "text");
    let finished = env.store(["init", "data"]);
    assert_eq!(finished.code, Some(5), "{finished}");
    assert!(finished.stderr.contains("nothing was made"), "{finished}");
    assert_eq!(std::fs::read_dir(env.path("data")).unwrap().count(), 2);
    // The remains of a failed attempt do not count as other files.
    std::fs::create_dir_all(env.path("begun/reserve")).unwrap();
    env.ok(["init", "begun"]);
}

/// Whether another user can read a file of the test; `None` if the test is not root and cannot find out.
fn other_reads(path: &Path) -> Option<bool> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let mut other = std::process::Command::new("cat");
    other.arg(path).uid(1001).gid(1001);
    Some(other.output().unwrap().status.success())
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o777
}

/// Asserts that no other user can reach `file` in `root`.
fn assert_closed(root: &Path, file: &str) {
    assert_eq!(mode(root) & 0o077, 0, "{}", root.display());
    let file = root.join(file);
    assert_ne!(other_reads(&file), Some(true), "{}", file.display());
}

fn assert_open(root: &Path, file: &str) {
    assert_eq!(mode(root) & 0o044, 0o044, "{}", root.display());
    let file = root.join(file);
    assert_ne!(other_reads(&file), Some(false), "{}", file.display());
}

/// Linked files have the mode of the pool, so the directory above them must be private.
#[test]
fn what_a_link_leads_to_in_a_private_tree_stays_private() {
    let env = environment!();
    let secret = env.write("in/data/secret", vec![7; 40_000]);
    set_mode(&secret, 0o600);
    env.ok(["put", "in", "project/demo/a"]);
    env.ok(["materialize", "project/demo/a", "tree"]);
    assert_eq!(mode(&env.path("tree/data/secret")), 0o444);
    assert_eq!(mode(&env.path("tree/data")), 0o700);
    for (name, target) in [("dir", "tree/data"), ("file", "tree/data/secret")] {
        std::fs::create_dir(env.path(name)).unwrap();
        std::os::unix::fs::symlink(env.path(target), env.path(name).join("link")).unwrap();
        let target = format!("project/demo/{name}");
        env.ok(["put", name, &target, "--dereference"]);
        let told = env.ok(["history", &target]);
        assert!(told.contains("private"), "{name}: {told}");
    }
}

#[test]
fn a_closed_directory_of_which_all_is_left_out_closes_nothing() {
    let env = environment!();
    env.write("in/open", "text");
    env.write("in/.aws/deep/credentials", "text");
    for dir in ["in/.aws", "in/.aws/deep"] {
        set_mode(&env.path(dir), 0o700);
    }
    let is_private = |name: &str| env.ok(["history", name]).contains("private");
    env.ok([
        "put",
        "in",
        "project/demo/a",
        "--exclude",
        "credentials",
        "--allow-secrets",
    ]);
    assert!(!is_private("project/demo/a"));
    // The files themselves are open, and only the directory above hides them.
    let finished = env.store(["put", "in", "project/demo/b", "--allow-secrets"]);
    assert!(
        finished.stderr.contains("its user alone: .aws, .aws/deep;"),
        "{finished}"
    );
    assert!(is_private("project/demo/b"));
    std::fs::remove_file(env.path("in/.aws/deep/credentials")).unwrap();
    std::os::unix::fs::symlink("../../open", env.path("in/.aws/deep/link")).unwrap();
    env.ok(["put", "in", "project/demo/c", "--allow-secrets"]);
    assert!(is_private("project/demo/c"));
}

#[test]
fn what_only_its_owner_could_read_comes_out_for_one_person_alone() {
    let env = environment!();
    set_mode(&env.root(), 0o755);
    let secret = env.write("in/data/secret", vec![7; 40_000]);
    env.write("in/small", "small");
    set_mode(&secret, 0o600);
    let finished = env.store(["put", "in", "project/demo/a"]);
    assert!(
        finished
            .stderr
            .contains("comes out for its user alone: data/secret; --readable lets others read it"),
        "{finished}"
    );
    assert!(env.ok(["history", "project/demo/a"]).contains("private"));
    assert!(
        env.ok(["info", "--json"])
            .contains("\"private_versions\":1")
    );

    env.ok(["get", "project/demo/a", "got"]);
    assert_closed(&env.path("got"), "data/secret");
    assert_eq!(mode(&env.path("got/data/secret")), 0o600);
    assert_eq!(mode(&env.path("got/data")), 0o700);
    // Also in an existing directory, which cannot be replaced.
    std::fs::create_dir(env.path("here")).unwrap();
    set_mode(&env.path("here"), 0o755);
    let mut inside = env.command(["get", "project/demo/a", "."]);
    let inside: support::Finished = inside
        .current_dir(env.path("here"))
        .output()
        .unwrap()
        .into();
    assert_eq!(inside.code, Some(0), "{inside}");
    assert_closed(&env.path("here"), "data/secret");
    env.ok(["get", "project/demo/a:data/secret", "file"]);
    assert_closed(&env.path("file"), "");
    env.ok(["get", "project/demo/a", "open", "--readable"]);
    assert_open(&env.path("open"), "data/secret");

    env.ok(["materialize", "project/demo/a", "tree"]);
    assert_closed(&env.path("tree"), "data/secret");
    env.ok(["materialize", "project/demo/a:data/secret", "link"]);
    assert_closed(&env.path("link"), "");
    env.ok(["materialize", "project/demo/a", "open-tree", "--readable"]);
    assert_open(&env.path("open-tree"), "data/secret");
    // A tree that an earlier program left open is closed by the next run.
    for made in ["tree", "link"] {
        set_mode(&env.path(made), if made == "tree" { 0o755 } else { 0o644 });
        env.ok([
            "materialize",
            if made == "tree" {
                "project/demo/a"
            } else {
                "project/demo/a:data/secret"
            },
            made,
        ]);
        assert_closed(
            &env.path(made),
            if made == "tree" { "data/secret" } else { "" },
        );
    }

    // It stays private, since a copy has other modes. The same tree makes no new version.
    set_mode(&secret, 0o644);
    assert!(
        env.ok(["put", "in", "project/demo/a"])
            .contains("unchanged")
    );
    env.ok(["put", "in", "project/demo/a", "--readable"]);
    env.ok(["get", "project/demo/a", "again"]);
    assert_open(&env.path("again"), "data/secret");
    // A tree of an open version is closed before an update to a private version.
    env.ok(["materialize", "project/demo/a", "later"]);
    assert_open(&env.path("later"), "data/secret");
    env.ok(["materialize", "project/demo/a@1", "later"]);
    assert_closed(&env.path("later"), "data/secret");

    env.ok(["init", "away"]);
    env.ok(["cluster", "add", "away", env.path("away").to_str().unwrap()]);
    env.ok(["push", "project/demo/a@1", "away"]);
    env.ok(["get", "project/demo/a", "from-away", "--store", "away"]);
    assert_closed(&env.path("from-away"), "data/secret");
}

#[test]
fn a_tree_made_of_a_private_version_stays_private_when_it_is_put() {
    let env = environment!();
    set_mode(&env.root(), 0o755);
    // Too large to be copied: a link has the mode of the pool file, which others may read.
    let secret = env.write("in/data/secret", vec![7; 40_000]);
    set_mode(&secret, 0o600);
    env.ok(["put", "in", "project/demo/a"]);
    env.ok(["materialize", "project/demo/a", "around/tree"]);
    env.write("around/own", "own");
    assert_eq!(mode(&env.path("around/tree/data/secret")), 0o444);
    let put = |source: &str, name: &str, options: &[&str]| {
        env.ok([&["put", source, name][..], options].concat());
        env.ok(["history", name]).contains("private")
    };
    for (number, source) in ["around/tree", "around/tree/data/secret", "around"]
        .into_iter()
        .enumerate()
    {
        let name = format!("project/other/{number}");
        assert!(put(source, &name, &[]), "{source}");
        let out = format!("out-{number}");
        env.ok(["get", &name, &out]);
        assert_eq!(mode(&env.path(&out)) & 0o077, 0, "{source}");
    }
    let without = ["--exclude", "tree"];
    assert!(!put("around", "project/other/without", &without));
    assert!(!put("around", "project/other/open", &["--readable"]));
    env.ok(["materialize", "project/demo/a", "open", "--readable"]);
    assert!(!put("open", "project/other/opened", &[]));

    // A mark of an earlier program does not say that the tree is private; the tree's mode does.
    let trees = env.path("home/.cache/store/pool/trees");
    for entry in std::fs::read_dir(trees).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, text.replace("\"private\":true,", "")).unwrap();
        }
    }
    assert!(put("around/tree", "project/other/older", &[]));
}

#[test]
fn a_private_root_or_an_empty_file_makes_no_private_version() {
    let env = environment!();
    env.write("in/data/file", "text");
    for (at, is_private) in [("in", false), ("in/empty", false), ("in/data", true)] {
        let path = match at {
            "in/empty" => env.write(at, ""),
            at => env.path(at),
        };
        set_mode(&path, if path.is_dir() { 0o700 } else { 0o600 });
        env.ok(["put", "in", "project/demo/a"]);
        let history = env.ok(["history", "project/demo/a"]);
        assert_eq!(history.contains("private"), is_private, "{at}: {history}");
    }
}
