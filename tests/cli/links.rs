//! Symlinks in puts and gets: which are kept, which are followed, and which are refused so that nothing is silently
//! empty.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::{TestEnvironment, environment};

const REF: &str = "project/demo/links";

fn link(env: &TestEnvironment, target: impl AsRef<Path>, at: &str) {
    let at = env.path(at);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    symlink(target, at).unwrap();
}

/// A hub cache with one snapshot of links.
fn hub(env: &TestEnvironment) -> String {
    env.write("hub/models--a--b/blobs/one", "first");
    env.write("hub/models--a--b/blobs/two", "second");
    let snapshot = "hub/models--a--b/snapshots/0123".to_owned();
    link(env, "../../blobs/one", &format!("{snapshot}/one.txt"));
    link(
        env,
        "../../../blobs/two",
        &format!("{snapshot}/sub/two.txt"),
    );
    snapshot
}

#[test]
fn a_tree_of_links_that_lead_out_is_refused_or_followed() {
    let env = environment!();
    let snapshot = hub(&env);
    let refused = env.store(["put", &snapshot, REF]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(
        refused.stderr.contains(
            "2 of its 2 files are symlinks that lead out of it, like one.txt, sub/two.txt"
        ),
        "{refused}"
    );
    assert!(refused.stderr.contains("--dereference"), "{refused}");
    assert!(refused.stderr.contains("the whole repository"), "{refused}");
    assert_eq!(env.store(["ls", REF]).code, Some(3));
    let followed = env.store(["put", "--dereference", &snapshot, REF]);
    assert_eq!(followed.code, Some(0), "{followed}");
    assert!(
        followed.stderr.contains("note: 2 symlinks: followed"),
        "{followed}"
    );
    env.ok(["get", REF, "out"]);
    assert!(!env.path("out/one.txt").is_symlink());
    assert_eq!(
        fs::read_to_string(env.path("out/one.txt")).unwrap(),
        "first"
    );
    assert_eq!(
        fs::read_to_string(env.path("out/sub/two.txt")).unwrap(),
        "second"
    );
    // On request, links are kept as they are.
    env.ok(["put", "--no-check", &snapshot, "project/demo/as-it-is"]);
    assert!(
        env.ok(["ls", "-r", "project/demo/as-it-is:"])
            .contains("../../blobs/one")
    );
    // The whole repository needs no special treatment.
    env.ok([
        "put",
        "--profile",
        "none",
        "hub/models--a--b",
        "project/demo/repo",
    ]);
}

#[test]
fn single_links_that_lead_out_are_kept_and_counted() {
    let env = environment!();
    env.write("source/file", "x");
    env.write("beside", "y");
    link(&env, "../beside", "source/a/out");
    link(&env, "../beside", "source/out");
    link(&env, "/nowhere/at/all", "source/dead");
    link(&env, "file", "source/in");
    let put = env.store(["put", "source", REF]);
    assert_eq!(put.code, Some(0), "{put}");
    assert!(
        put.stderr.contains("note: 2 symlinks (dead, out): led out of source, kept as links; --dereference takes what they lead to"),
        "{put}"
    );
    // `a/out` leads to the missing `source/beside`, which would be inside.
    assert!(!put.stderr.contains("a/out"), "{put}");
}

#[test]
fn absolute_links_into_the_source_let_the_tree_move() {
    let env = environment!();
    // The layout of a Neuron cache: a registry of absolute links into the same tree.
    let module = "data/cache/neuronxcc-2.1/MODULE_1/model.neff";
    env.write(module, "neff");
    symlink("data", env.path("alias")).unwrap();
    let registry = "data/cache/neuronxcc-2.1/0_REGISTRY/inference";
    link(&env, env.path(module), &format!("{registry}/model.neff"));
    link(
        &env,
        env.path("alias/cache/neuronxcc-2.1/MODULE_1"),
        &format!("{registry}/module"),
    );
    link(&env, env.path("alias/cache"), "data/cache/self");
    for source in ["data/cache", "alias/cache"] {
        let put = env.store(["put", source, REF]);
        assert_eq!(put.code, Some(0), "{put}");
        assert!(
            put.stderr
                .contains("note: 3 symlinks (neuronxcc-2.1/0_REGISTRY/inference/model.neff, "),
            "{put}"
        );
        assert!(
            put.stderr
                .contains("stored relative; --keep-absolute-links"),
            "{put}"
        );
        assert_eq!(env.ok(["diff", REF, source]), "");
    }
    env.ok(["get", REF, "elsewhere"]);
    env.ok(["materialize", REF, "tree"]);
    fs::rename(env.path("data"), env.path("moved")).unwrap();
    for tree in ["elsewhere", "tree"] {
        let at = env.path(format!("{tree}/neuronxcc-2.1/0_REGISTRY/inference"));
        assert_eq!(
            fs::read_link(at.join("model.neff")).unwrap(),
            Path::new("../../MODULE_1/model.neff")
        );
        assert_eq!(fs::read_to_string(at.join("model.neff")).unwrap(), "neff");
        assert_eq!(
            fs::read_to_string(at.join("module/model.neff")).unwrap(),
            "neff"
        );
        assert_eq!(
            fs::read_link(env.path(format!("{tree}/self"))).unwrap(),
            Path::new(".")
        );
    }
    fs::rename(env.path("moved"), env.path("data")).unwrap();
    let kept = env.store([
        "put",
        "--keep-absolute-links",
        "data/cache",
        "project/demo/kept",
    ]);
    assert_eq!(kept.code, Some(0), "{kept}");
    assert_eq!(kept.stderr, "");
    env.ok(["get", "project/demo/kept", "kept"]);
    assert_eq!(
        fs::read_link(env.path("kept/self")).unwrap(),
        env.path("alias/cache")
    );
    // A tree with its links kept has no differences either.
    assert_eq!(env.ok(["diff", "project/demo/kept", "data/cache"]), "");
}

#[test]
fn directories_are_followed_but_not_for_ever() {
    let env = environment!();
    env.write("shared/data/file", "shared");
    link(&env, "../../beside", "shared/data/again");
    env.write("beside", "beside");
    env.write("source/own", "own");
    link(&env, "../shared/data", "source/sub");
    link(&env, "../../shared/data", "source/deep/sub");
    env.ok(["put", "--dereference", "source", REF]);
    env.ok(["get", REF, "out"]);
    for dir in ["out/sub", "out/deep/sub"] {
        assert_eq!(
            fs::read_to_string(env.path(format!("{dir}/file"))).unwrap(),
            "shared"
        );
        assert_eq!(
            fs::read_to_string(env.path(format!("{dir}/again"))).unwrap(),
            "beside"
        );
    }
    // A directory that contains the store is not followed.
    link(&env, "..", "source/up");
    let refused = env.store(["put", "--dereference", "source", REF]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(
        refused.stderr.contains("this program itself writes there"),
        "{refused}"
    );
    fs::remove_file(env.path("source/up")).unwrap();
    // A cycle.
    link(&env, "../source", "ring/back");
    link(&env, "../ring", "source/up");
    let refused = env.store(["put", "--dereference", "source", REF]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(
        refused
            .stderr
            .contains("leads back to a directory that contains it"),
        "{refused}"
    );
    fs::remove_file(env.path("source/up")).unwrap();
    // Links that double at each level.
    for level in 0..20 {
        for name in ["a", "b"] {
            link(
                &env,
                format!("../{}", level + 1),
                &format!("levels/{level}/{name}"),
            );
        }
    }
    fs::create_dir(env.path("levels/20")).unwrap();
    link(&env, "../levels/0", "source/levels");
    let refused = env.store(["put", "--dereference", "source", REF]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(
        refused.stderr.contains("links lead to that directory"),
        "{refused}"
    );
    fs::remove_file(env.path("source/levels")).unwrap();
    // A link with a missing target.
    link(&env, "../gone", "source/gone");
    let refused = env.store(["put", "--dereference", "source", REF]);
    assert_eq!(refused.code, Some(3), "{refused}");
    assert!(refused.stderr.contains("source/gone"), "{refused}");
}

#[test]
fn an_exclude_that_leaves_nothing_is_a_mistake() {
    let env = environment!();
    env.write("source/sub/a", "a");
    let refused = env.store(["put", "--exclude", "*", "source", REF]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(
        refused
            .stderr
            .contains("what is excluded leaves no file of it"),
        "{refused}"
    );
    let refused = env.store(["put", "--exclude", "a", "source", REF]);
    assert_eq!(refused.code, Some(2), "{refused}");
    // An empty directory is stored as it is.
    fs::create_dir(env.path("empty")).unwrap();
    env.ok(["put", "--exclude", "*", "empty", REF]);
}

#[test]
fn what_is_not_there_is_said_with_what_to_do() {
    let env = environment!();
    env.write("source/train/1.tar", "x");
    env.ok(["put", "source", "project/demo/imagenet"]);
    let said = env.store(["put", "nosuch", REF]);
    assert_eq!(said.code, Some(3), "{said}");
    assert!(
        said.stderr
            .starts_with("error: nosuch: there is no such file or directory\nhint: "),
        "{said}"
    );
    let said = env.store(["diff", "project/demo/imagenet", "nodir"]);
    assert_eq!(said.code, Some(3), "{said}");
    assert!(
        said.stderr
            .starts_with("error: nodir: there is no such directory or file\nhint: "),
        "{said}"
    );
    let said = env.store(["cat", "project/demo/imagenet/train/1.tar"]);
    assert_eq!(said.code, Some(3), "{said}");
    let spec = "project/demo/imagenet:train/1.tar";
    assert!(
        said.stderr
            .contains(&format!("a path inside of it is spelled {spec}")),
        "{said}"
    );
    let said = env.store(["get", spec, "r/"]);
    assert_eq!(said.code, Some(5), "{said}");
    assert!(said.stderr.contains("hint: leave the slash out"), "{said}");
    let said = env.store(["get", "project/demo/imagenet", "."]);
    assert_eq!(said.code, Some(5), "{said}");
    assert!(
        said.stderr
            .contains("hint: name another destination, like a new directory"),
        "{said}"
    );
}

#[test]
fn a_ref_that_is_being_rewritten_is_read_again() {
    let env = environment!();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let main = env.write("hub/models--a--b/refs/main", commit);
    env.write(format!("hub/models--a--b/snapshots/{commit}/file"), "x");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Some clients truncate the file before they write it.
            while !over.load(Ordering::Relaxed) {
                let file = fs::File::create(&main).unwrap();
                std::thread::sleep(Duration::from_millis(5));
                std::io::Write::write_all(&mut &file, commit.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let puts: Vec<_> = (0..10)
            .map(|_| env.store(["put", "--read-all", "--profile", "hf", "hub", REF]))
            .collect();
        over.store(true, Ordering::Relaxed);
        for put in puts {
            assert_eq!(put.code, Some(0), "{put}");
        }
    });
    fs::write(&main, "no commit").unwrap();
    let refused = env.store(["put", "--profile", "hf", "hub", REF]);
    assert_eq!(refused.code, Some(4), "{refused}");
}

/// In a directory that everybody may write to, another user plants links with predictable names.
#[test]
fn a_planted_link_says_nothing_of_what_is_written() {
    let env = environment!();
    env.ok(["init"]);
    let all = env.path("all");
    fs::create_dir(&all).unwrap();
    fs::set_permissions(&all, PermissionsExt::from_mode(0o1777)).unwrap();
    let names = [
        "x.prom",
        "store-gc.service",
        "store-gc.timer",
        "store-put.1",
    ];
    env.write("mine", "kept");
    for name in names {
        symlink("../mine", all.join(name)).unwrap();
        if std::os::unix::fs::lchown(all.join(name), Some(1001), Some(1001)).is_err() {
            return;
        }
    }
    // A failed run keeps the rest of the file.
    let failed = env.store(["gc", "--store", "nowhere", "--metrics-file", "all/x.prom"]);
    assert_ne!(failed.code, Some(0), "{failed}");
    let told = fs::read_to_string(all.join("x.prom")).unwrap();
    assert!(
        told.contains("exit_code") && !told.contains("kept"),
        "{told}"
    );
    fs::remove_file(all.join("x.prom")).unwrap();
    symlink("../mine", all.join("x.prom")).unwrap();
    std::os::unix::fs::lchown(all.join("x.prom"), Some(1001), Some(1001)).unwrap();
    env.ok(["gc", "--metrics-file", "all/x.prom"]);
    env.ok(["gc", "--systemd", "all"]);
    env.ok(["man", "all"]);
    for name in names {
        assert!(!all.join(name).is_symlink(), "{name}");
    }
    assert_eq!(fs::read_to_string(env.path("mine")).unwrap(), "kept");
    // The user's own link is intentional.
    env.write("mine", "# HELP store_refs Refs of before\n");
    symlink("../mine", all.join("own.prom")).unwrap();
    env.ok(["gc", "--metrics-file", "all/own.prom"]);
    assert!(
        fs::read_to_string(env.path("mine"))
            .unwrap()
            .contains("store_refs")
    );
}
