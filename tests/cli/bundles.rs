//! Transfers of refs in one file.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Stdio;

use support::{Finished, Random, TestEnvironment, assert_same_tree, check, environment};

fn two_refs(env: &TestEnvironment) {
    env.write("data/a/weights.bin", Random::new(1).bytes(300_000));
    env.write("data/b.txt", "text");
    env.ok(["put", "data", "project/demo/data"]);
    env.write("data/b.txt", "another text");
    env.ok(["put", "data", "project/demo/data"]);
    env.ok(["put", "data/a", "team/t/weights"]);
}

/// The arguments for a store at another place.
fn elsewhere<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &["--store", "elsewhere"]].concat()
}

#[test]
fn what_was_exported_comes_in_elsewhere() {
    let env = environment!();
    two_refs(&env);
    let exported = env.ok([
        "export",
        "all.bundle",
        "project/demo",
        "team/t/weights",
        "--versions",
        "all",
    ]);
    assert!(exported.contains("3 versions published"), "{exported}");
    env.ok(["init", "elsewhere"]);
    let imported = env.ok(elsewhere(&["import", "all.bundle"]));
    assert!(imported.contains("3 versions published"), "{imported}");
    for (n, spec) in [
        "project/demo/data@1",
        "project/demo/data@2",
        "team/t/weights",
    ]
    .iter()
    .enumerate()
    {
        let (here, there) = (format!("here{n}"), format!("there{n}"));
        env.ok(["get", spec, &here]);
        env.ok(elsewhere(&["get", spec, &there]));
        assert_same_tree(&env.path(here), &env.path(there));
    }
    // A second transfer copies nothing twice, and adds new versions.
    let again = env.ok(elsewhere(&["import", "all.bundle"]));
    assert!(again.contains("0 versions published"), "{again}");
    let size = std::fs::metadata(env.path("all.bundle")).unwrap().len();
    env.write("data/new.txt", "new");
    env.ok(["put", "data", "project/demo/data"]);
    env.ok(["export", "all.bundle", "project/demo/data"]);
    let grown = std::fs::metadata(env.path("all.bundle")).unwrap().len();
    assert!(grown > size && grown < size + 50_000, "{size}, {grown}");
    let last = env.ok(elsewhere(&["import", "all.bundle", "project/demo/data"]));
    assert!(last.contains("1 version published"), "{last}");
}

#[test]
fn a_bundle_is_looked_at_as_a_store_and_only_added_to() {
    let env = environment!();
    two_refs(&env);
    env.ok(["export", "one.bundle", "project/demo/data"]);
    let before = std::fs::read(env.path("one.bundle")).unwrap();
    let listed = env.ok(["ls", "-r", "project/demo/data", "--store", "one.bundle"]);
    assert!(listed.contains("a/weights.bin"), "{listed}");
    env.ok(["verify", "--read-data", "--store", "one.bundle"]);
    let text = env.ok(["cat", "project/demo/data:b.txt", "--store", "one.bundle"]);
    assert_eq!(text, "another text");
    assert_eq!(std::fs::read(env.path("one.bundle")).unwrap(), before);
    check!(env, env.store(["gc", "--store", "one.bundle"]), @"
    exit code: 1
    --- stdout
    --- stderr
    error: bundle:[ROOT]/one.bundle: a bundle is only added to, and gives nothing back
    hint: export what is wanted into a new one, and remove this file
    ");
    assert_eq!(std::fs::read(env.path("one.bundle")).unwrap(), before);
}

#[test]
fn a_bundle_is_a_file_and_no_stream() {
    let env = environment!();
    two_refs(&env);
    check!(env, env.store(["export", "-", "project/demo/data"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: -: expected a file, since a bundle cannot be streamed
    hint: name a file and send that; for a file that is called so, say `./-`
    ");
    assert!(!env.path("-").exists());
    assert_eq!(env.store(["import", "-"]).code, Some(2));
    env.ok(["export", "./-", "project/demo/data"]);
    assert!(env.path("-").exists());
    env.ok(["import", "./-", "--dry-run"]);
}

#[test]
fn damaged_cut_and_other_files_are_told() {
    let env = environment!();
    two_refs(&env);
    env.ok(["export", "one.bundle", "project/demo/data"]);
    let whole = std::fs::read(env.path("one.bundle")).unwrap();
    env.ok(["init", "elsewhere"]);
    let expect = |name: &str, code: i32, words: &str| {
        let finished = env.store(elsewhere(&["import", name]));
        assert_eq!(finished.code, Some(code), "{name}: {}", finished.stderr);
        assert!(
            finished.stderr.contains(words),
            "{name}: {}",
            finished.stderr
        );
    };
    env.write("cut.bundle", &whole[..whole.len() - 1]);
    expect("cut.bundle", 4, "cut short");
    expect("cut.bundle", 4, "or export to a new file");
    let refused = env.store(["export", "cut.bundle", "project/demo/data"]);
    assert_eq!(refused.code, Some(4), "{refused}");
    let mut flipped = whole.clone();
    let at = whole.len() / 2;
    flipped[at] ^= 1;
    env.write("flipped.bundle", flipped);
    let finished = env.store(elsewhere(&["import", "flipped.bundle"]));
    assert!(
        [Some(4), Some(6)].contains(&finished.code),
        "{}",
        finished.stderr
    );
    // Hints name the file, and not the store.
    for at in (0..whole.len()).step_by(whole.len() / 50) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        env.write("flipped.bundle", flipped);
        let told = env.store(elsewhere(&["import", "flipped.bundle", "--dry-run"]));
        let hints: Vec<_> = told.stderr.split("`store repair").skip(1).collect();
        let is_named =
            |hint: &&str| hint.starts_with(" --store") && hint.contains("flipped.bundle");
        assert!(hints.iter().all(is_named), "{at}: {told}");
        assert!(!told.stderr.contains("--accept-loss"), "{at}: {told}");
    }
    env.write("begun.bundle", &whole[..5]);
    expect("begun.bundle", 4, "export to a new file");
    env.write("text.bundle", "somebody's notes");
    expect("text.bundle", 2, "expected a bundle");
    env.write("empty.bundle", "");
    expect("empty.bundle", 4, "too short");
    expect("none.bundle", 3, "none.bundle");
    let refused = env.store(["export", "text.bundle", "project/demo/data"]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stderr.contains("it is no bundle"), "{refused}");
    let notes = std::fs::read(env.path("text.bundle")).unwrap();
    assert_eq!(notes, b"somebody's notes");
    let nothing = env.ok(elsewhere(&["ls"]));
    assert!(!nothing.contains("project/demo"), "{nothing}");
    std::fs::create_dir(env.path("dir")).unwrap();
    let refused = env.store(["export", "dir", "project/demo/data"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    // Nothing may be created inside of a store.
    let refused = env.store([
        "export",
        "elsewhere/log/000000/00000009",
        "project/demo/data",
    ]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(!env.path("elsewhere/log/000000/00000009").exists());
    // A dry run creates no file.
    env.ok(["export", "dry.bundle", "project/demo", "--dry-run"]);
    assert!(!env.path("dry.bundle").exists());
}

#[test]
fn an_export_of_nothing_makes_no_file() {
    let env = environment!();
    two_refs(&env);
    for nothing in ["project/demo/none", "project/none", "project/demo/data@7"] {
        let failed = env.store(["export", "new.bundle", nothing]);
        assert_eq!(failed.code, Some(3), "{failed}");
        assert!(!env.path("new.bundle").exists(), "{nothing}");
    }
}

/// The file exists before there is a store in it.
#[test]
fn of_two_first_exports_one_is_told_that_the_other_writes() {
    let env = environment!();
    two_refs(&env);
    let mut refused = 0;
    // On a busy host the first one may have ended before the second one begins, so this tries often.
    for round in 0..100 {
        if round >= 10 && refused > 0 {
            break;
        }
        let file = format!("{round}.bundle");
        let start = |name: &str| {
            let mut command = env.command(["export", &file, name]);
            let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let both = ["project/demo/data", "team/t/weights"].map(start);
        for child in both {
            let done: Finished = child.wait_with_output().unwrap().into();
            let is_told = done.stderr.contains("another process is writing to it");
            assert!(
                done.code == Some(0) || (done.code == Some(5) && is_told),
                "{done}"
            );
            refused += u32::from(is_told);
        }
        let listed = env.ok(["ls", "--store", &file]);
        assert!(!listed.is_empty());
    }
    assert!(refused > 0);
}

/// A bundle is a store, perhaps the only one with its data, so no copy may replace it.
#[test]
fn a_bundle_gives_way_to_no_copy() {
    let env = environment!();
    two_refs(&env);
    env.ok(["export", "one.bundle", "project/demo/data"]);
    let whole = std::fs::read(env.path("one.bundle")).unwrap();
    for words in [
        &["get", "project/demo/data:b.txt", "one.bundle"][..],
        &["materialize", "project/demo/data:b.txt", "one.bundle"],
        &[
            "materialize",
            "--force",
            "project/demo/data:b.txt",
            "one.bundle",
        ],
        &[
            "materialize",
            "--force",
            "--exact",
            "project/demo/data",
            "one.bundle",
        ],
    ] {
        let refused = env.store(words);
        assert_eq!(refused.code, Some(5), "{refused}");
        assert!(
            refused.stderr.contains("is a store in one file"),
            "{refused}"
        );
        assert_eq!(std::fs::read(env.path("one.bundle")).unwrap(), whole);
    }
}

#[test]
fn nothing_is_added_to_a_bundle_of_another_user() {
    let env = environment!();
    two_refs(&env);
    env.ok(["export", "planted.bundle", "team/t/weights"]);
    let bundle = env.path("planted.bundle");
    let mode = |mode| std::fs::set_permissions(&bundle, Permissions::from_mode(mode)).unwrap();
    mode(0o666);
    chown(&bundle, Some(4242), None).unwrap();
    let before = std::fs::read(&bundle).unwrap();
    let owned = "belongs to user 4242";
    env.write("secret/file", "of one user");
    std::fs::set_permissions(env.path("secret/file"), Permissions::from_mode(0o600)).unwrap();
    env.ok(["put", "secret", "project/demo/secret"]);
    for name in ["project/demo/secret", "project/demo/data"] {
        let refused = env.store(["export", "planted.bundle", name]);
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(refused.stderr.contains(owned), "{refused}");
        assert_eq!(std::fs::read(&bundle).unwrap(), before);
    }
    // It can still be read, and what is the caller's own takes what others may read.
    env.ok(["ls", "--store", "planted.bundle"]);
    chown(&bundle, Some(0), None).unwrap();
    env.ok(["export", "planted.bundle", "project/demo/data"]);
    let refused = env.store(["export", "planted.bundle", "project/demo"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    let told = "others may read it, and project/demo/secret@1 is private";
    assert!(refused.stderr.contains(told), "{refused}");
    mode(0o600);
    env.ok(["export", "planted.bundle", "project/demo"]);
}

/// A bundle drops nothing, so a version that cannot be put below a later one is not in it, and whoever relies on the
/// file is told.
#[test]
fn a_version_that_a_bundle_cannot_take_is_told() {
    let env = environment!();
    two_refs(&env);
    env.ok(["export", "all.bundle", "project/demo/data"]);
    let words = [
        "export",
        "all.bundle",
        "project/demo/data",
        "--versions",
        "all",
    ];
    let quiet = env.store([&["--quiet"], &words[..]].concat());
    assert_eq!(quiet.code, Some(6), "{quiet}");
    let line = "failed: project/demo/data@1: a later version is already there, as version 1";
    assert!(quiet.stderr.contains(line), "{quiet}");
    for more in [&["--json"][..], &["--json", "--dry-run"]] {
        let told = env.store([&words[..], more].concat());
        assert_eq!(told.code, Some(6), "{told}");
        let report: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        let refs = report["refs"].as_array().unwrap();
        let status = |one: &serde_json::Value| {
            (
                one["from_version"].as_u64(),
                one["status"].as_str().map(str::to_owned),
            )
        };
        let mut found: Vec<_> = refs.iter().map(status).collect();
        found.sort();
        let failed = (Some(1), Some("failed".to_owned()));
        let unchanged = (Some(2), Some("unchanged".to_owned()));
        assert_eq!(found, [failed, unchanged], "{report}");
    }
    // By its name it is copied, as the error says.
    env.ok(["export", "all.bundle", "project/demo/data@1"]);
    env.ok(words);
}

/// The trees of a version are read where it was lost, which must not hide what else is damaged there.
#[test]
fn one_verified_import_heals_what_has_lost_its_trees() {
    let env = environment!();
    env.write("data/a/weights.bin", Random::new(1).bytes(300_000));
    env.write("data/b.txt", "text");
    env.ok(["put", "data", "project/demo/data"]);
    env.ok(["export", "all.bundle", "project/demo/data"]);
    let packs = std::fs::read_dir(env.path("home/.local/share/store/packs")).unwrap();
    for pack in packs.flat_map(|dir| std::fs::read_dir(dir.unwrap().path()).unwrap()) {
        let path = pack.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let len = bytes.len();
        bytes[64..len - 64].fill(7);
        std::fs::write(path, bytes).unwrap();
    }
    let healed = env.ok(["import", "all.bundle", "--verify"]);
    assert!(healed.contains("1 healed"), "{healed}");
    env.ok(["get", "project/demo/data", "out"]);
    assert_same_tree(&env.path("data"), &env.path("out"));
}

/// Changes a byte of the last segment in a file.
fn damage_segment(env: &TestEnvironment, name: &str) {
    const TRAILER: &[u8] = b"STORESGE";
    let path = env.path(name);
    let mut bytes = std::fs::read(&path).unwrap();
    let mut windows = bytes.windows(TRAILER.len());
    let at = windows.rposition(|window| window == TRAILER).unwrap();
    bytes[at] ^= 1;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, bytes).unwrap();
}

/// Two stores take part in a transfer, and a hint about the other one leads astray.
#[test]
fn a_hint_names_the_store_that_is_damaged() {
    let env = environment!();
    two_refs(&env);
    env.ok(["export", "one.bundle", "project/demo/data"]);
    env.ok(["init", "elsewhere"]);
    env.ok(elsewhere(&["import", "one.bundle"]));
    damage_segment(&env, "one.bundle");
    let at = "store repair --store one.bundle";
    let told = |args: &[&str], at: &str| {
        let finished = env.store(args);
        assert_eq!(finished.code, Some(4), "{args:?}: {finished}");
        assert!(finished.stderr.contains(at), "{args:?}: {finished}");
    };
    told(&["export", "one.bundle", "project/demo/data"], at);
    told(
        &["export", "one.bundle", "project/demo/data", "--verify"],
        at,
    );
    env.ok(["push", "project/demo/data", "elsewhere"]);
    let segments = std::fs::read_dir(env.path("elsewhere/segments")).unwrap();
    for segment in segments.flatten() {
        let name = segment.file_name().into_string().unwrap();
        damage_segment(&env, &format!("elsewhere/segments/{name}"));
    }
    let at = "store repair --store elsewhere";
    told(&["push", "project/demo/data", "elsewhere"], at);
    told(&["push", "project/demo/data", "elsewhere", "--verify"], at);
}

/// As far as each ref is concerned, too.
#[test]
fn a_hint_about_a_ref_names_the_store_that_is_damaged() {
    for is_missing in [true, false] {
        let env = environment!();
        two_refs(&env);
        env.ok(["init", "other"]);
        env.ok(["push", "project/demo/data", "other"]);
        for entry in std::fs::read_dir(env.path("other/packs"))
            .unwrap()
            .flatten()
        {
            for pack in std::fs::read_dir(entry.path()).unwrap().flatten() {
                match is_missing {
                    true => std::fs::remove_file(pack.path()).unwrap(),
                    false => {
                        let mut bytes = std::fs::read(pack.path()).unwrap();
                        let at = bytes.len() / 3;
                        bytes[at] ^= 1;
                        let writable = Permissions::from_mode(0o600);
                        std::fs::set_permissions(pack.path(), writable).unwrap();
                        std::fs::write(pack.path(), bytes).unwrap();
                    }
                }
            }
        }
        env.ok(["init", "third"]);
        let mut pull = vec!["--store", "third", "pull", "other", "project/demo/data"];
        for _ in 0..2 {
            let finished = env.store(&pull);
            assert_eq!(finished.code, Some(4), "{pull:?}: {finished}");
            let at = "`store verify --store other --read-data`";
            assert!(finished.stderr.contains(at), "{pull:?}: {finished}");
            pull = vec![
                "duplicate",
                "project/demo/data",
                "--from",
                "other",
                "--to",
                "third",
            ];
        }
    }
}
