//! Failed saves on the list: the next save of the same directory removes the entry, however it names the ref.

use std::fs;

use support::{TestEnvironment, environment};

const REF: &str = "project/demo/cache";

fn is_settled(env: &TestEnvironment) -> bool {
    let pending = env.store(["save", "--pending"]);
    assert_eq!(pending.code, Some(0), "{pending}");
    pending.stderr.contains("nothing is to be saved")
}

/// A tree with a new file, whose save failed because the store was missing.
fn failed(words: &[&str]) -> TestEnvironment {
    let env = environment!();
    env.write("in/a", "a");
    env.ok(["put", "in", REF]);
    env.ok(["materialize", REF, "job"]);
    env.write("job/new", "new");
    let store = env.path("home/.local/share/store");
    fs::rename(&store, env.path("away")).unwrap();
    let failed = env.store(words);
    assert_eq!(failed.code, Some(1), "{failed}");
    assert!(failed.stderr.contains("--pending` saves it"), "{failed}");
    fs::rename(env.path("away"), &store).unwrap();
    env
}

#[test]
fn the_next_save_settles_what_was_kept_for_later() {
    let named = &["save", "job", REF][..];
    let unnamed = &["save", "job"][..];
    for (failing, next) in [
        (named, named),
        (named, unnamed),
        (unnamed, named),
        (unnamed, unnamed),
    ] {
        let env = failed(failing);
        // A dry run removes nothing from the list.
        env.ok([next, &["--dry-run"]].concat());
        let pending = fs::read_dir(env.path("home/.local/state/store/pending"));
        assert_eq!(pending.unwrap().count(), 1, "{failing:?}");
        env.ok(next);
        assert_eq!(env.ok(["cat", &format!("{REF}:new")]), "new");
        assert!(is_settled(&env), "{failing:?}, then {next:?}");
    }
}

#[test]
fn a_directory_that_is_missing_is_named_with_the_words_of_a_save() {
    let env = environment!();
    env.ok(["init"]);
    for words in [&["save", "none"][..], &["save", "none", REF]] {
        let done = env.store(words);
        assert_eq!(done.code, Some(3), "{done}");
        assert!(done.stderr.contains("`store save DIR [REF]`"), "{done}");
    }
}

#[test]
fn a_save_to_another_ref_settles_nothing() {
    let env = failed(&["save", "job", REF]);
    env.ok(["save", "job", "project/demo/other"]);
    assert_eq!(env.store(["cat", &format!("{REF}:new")]).code, Some(3));
    assert!(!is_settled(&env));
    assert_eq!(env.ok(["cat", &format!("{REF}:new")]), "new");
}

/// A list that cannot be read may stand for a directory that nobody saves any more.
#[test]
fn what_cannot_be_read_of_the_list_is_told() {
    let env = failed(&["save", "job", REF]);
    let list = env.path("home/.local/state/store/pending");
    let entry = fs::read_dir(&list).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&entry).unwrap();
    let damages: [&dyn Fn(); 4] = [
        &|| fs::write(&entry, &whole[..whole.len() / 2]).unwrap(),
        &|| fs::write(&entry, r#"{"pending": 99}"#).unwrap(),
        &|| fs::create_dir(&entry).unwrap(),
        &|| {
            rustix::fs::mknodat(
                rustix::fs::CWD,
                &entry,
                rustix::fs::FileType::Fifo,
                0o600.into(),
                0,
            )
            .unwrap()
        },
    ];
    for damage in damages {
        fs::remove_file(&entry).unwrap();
        damage();
        let told = env.store(["save", "--pending"]);
        assert_eq!(told.code, Some(6), "{told}");
        let name = entry.file_name().unwrap().to_str().unwrap();
        assert!(told.stderr.contains(name), "{told}");
        assert!(!told.stderr.contains("nothing is to be saved"), "{told}");
        if entry.is_dir() {
            fs::remove_dir(&entry).unwrap();
            fs::write(&entry, "").unwrap();
        }
    }
    fs::remove_file(&entry).unwrap();
    fs::write(&entry, &whole).unwrap();
    env.ok(["save", "--pending"]);
    assert!(is_settled(&env));
}

/// The store is named by a relative path, and it is away.
#[test]
fn a_store_that_is_away_has_the_same_name() {
    let env = environment!();
    env.write("in/a", "a");
    let store = ["--store", "./st"];
    env.ok(["init", "./st"]);
    env.ok([&["put", "in", REF], &store[..]].concat());
    env.ok([&["materialize", REF, "job"], &store[..]].concat());
    env.write("job/new", "new");
    fs::rename(env.path("st"), env.path("away")).unwrap();
    let failed = env.store([&["save", "job", REF], &store[..]].concat());
    assert_eq!(failed.code, Some(1), "{failed}");
    let pending = env.store([&["save", "--pending"], &store[..]].concat());
    assert_eq!(pending.code, Some(1), "{pending}");
    assert!(
        !pending.stderr.contains("nothing is to be saved"),
        "{pending}"
    );
    fs::rename(env.path("away"), env.path("st")).unwrap();
    env.ok([&["save", "--pending"], &store[..]].concat());
    env.ok([&["cat", "project/demo/cache:new"], &store[..]].concat());
}

/// A volume that is not mounted yet, or a directory that has another name for a while.
#[test]
fn what_is_not_there_stays_on_the_list() {
    let env = failed(&["save", "job", REF]);
    fs::rename(env.path("job"), env.path("elsewhere")).unwrap();
    for options in [&["--dry-run"][..], &[], &["--dry-run"]] {
        let done = env.store([&["save", "--pending"], options].concat());
        assert_eq!(done.code, Some(6), "{done}");
        let said = format!("{}: is not there", env.path("job").display());
        assert!(done.stderr.contains(&said), "{done}");
        assert!(done.stderr.contains("`store save --forget "), "{done}");
    }
    fs::rename(env.path("elsewhere"), env.path("job")).unwrap();
    env.ok(["save", "--pending"]);
    assert_eq!(env.ok(["cat", &format!("{REF}:new")]), "new");
    assert!(is_settled(&env));
}

#[test]
fn what_was_deleted_for_good_is_forgotten_by_its_name() {
    let env = failed(&["save", "job", REF]);
    fs::remove_dir_all(env.path("job")).unwrap();
    let other = env.store(["save", "--forget", "in"]);
    assert_eq!(other.code, Some(3), "{other}");
    for options in [&["--dry-run"][..], &[]] {
        assert_eq!(env.store(["save", "--pending"]).code, Some(6));
        let done = env.store([&["save", "--forget", "job"], options].concat());
        assert_eq!(done.code, Some(0), "{done}");
        assert!(
            done.stderr.contains("job: its save to project/demo/cache"),
            "{done}"
        );
    }
    assert!(is_settled(&env));
}
