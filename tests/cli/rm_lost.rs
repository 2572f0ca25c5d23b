//! What was dropped comes back after a pack was lost or damaged, if its bytes were stored again.

use std::fs;

use support::{Random, TestEnvironment, environment};

const REF: &str = "project/demo/cache";

/// A version and a later one that has all of it, both dropped, and the pack that holds most of them.
fn dropped_with_pack(env: &TestEnvironment) -> std::path::PathBuf {
    env.write("one/a", Random::new(8).bytes(200_000));
    env.ok(["put", "one", REF]);
    env.write("two/a", Random::new(8).bytes(200_000));
    env.write("two/top", "500");
    env.ok(["put", "two", REF]);
    env.ok(["rm", REF, "--yes"]);
    let packs = fs::read_dir(env.path("home/.local/share/store/packs")).unwrap();
    let files = packs.flat_map(|dir| fs::read_dir(dir.unwrap().path()).unwrap());
    files
        .map(|file| file.unwrap().path())
        .max_by_key(|file| fs::metadata(file).unwrap().len())
        .unwrap()
}

#[test]
fn versions_come_back_from_what_was_stored_again() {
    for is_tried_early in [true, false] {
        let env = environment!();
        fs::remove_file(dropped_with_pack(&env)).unwrap();
        if is_tried_early {
            assert_ne!(env.store(["undo", REF]).code, Some(0));
        }
        env.ok(["put", "one", "project/other/one"]);
        env.ok(["put", "two", "project/other/two"]);
        let back = env.ok(["undo", REF]);
        for line in ["@1 is back, as @3", "@2 is back, as @4"] {
            assert!(back.contains(line), "{back}");
        }
        for (version, tree) in [("@3", "one"), ("@4", "two")] {
            let out = format!("out{version}");
            env.ok(["get", &format!("{REF}{version}"), &out]);
            support::assert_same_tree(&env.path(tree), &env.path(&out));
        }
        env.ok(["verify", "--read-data"]);
    }
}

/// Metadata is read from what is live, too, and not from a damaged pack of then.
#[test]
fn versions_come_back_although_their_old_pack_is_damaged() {
    let env = environment!();
    let pack = dropped_with_pack(&env);
    let mut bytes = fs::read(&pack).unwrap();
    let len = bytes.len();
    bytes[64..len - 64].fill(7);
    fs::write(&pack, bytes).unwrap();
    assert_eq!(env.store(["verify", "--read-data"]).code, Some(4));
    env.ok(["put", "one", "project/other/one"]);
    env.ok(["put", "two", "project/other/two"]);
    env.ok(["undo", REF]);
    env.ok(["get", &format!("{REF}@4"), "out"]);
    support::assert_same_tree(&env.path("two"), &env.path("out"));
}

#[test]
fn an_undo_names_the_pack_that_is_lost() {
    let env = environment!();
    let pack = dropped_with_pack(&env);
    fs::remove_file(&pack).unwrap();
    let lost = env.store(["undo", REF]);
    assert_eq!(lost.code, Some(4), "{lost}");
    let name = pack.file_name().unwrap().to_string_lossy();
    let told = String::from_utf8_lossy(&lost.stdout);
    for version in ["@1", "@2"] {
        let line = format!("{REF}{version} is not back: its bytes are lost: packs/");
        assert!(told.contains(&line) && told.contains(&*name), "{lost}");
    }
    assert!(!told.contains("given the space back"), "{lost}");
    assert!(
        lost.stderr.contains("put the original files again"),
        "{lost}"
    );
}
