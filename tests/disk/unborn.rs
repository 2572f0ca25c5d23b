//! Directories that are removed and made again get the same inode number. Where the file system has no times of birth, only
//! what the directory itself holds tells them apart.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use support::{Finished, TestEnvironment, environment};

use crate::mounts::Mount;

const REF: &str = "project/night/cache";

/// A cache of nightly runs, on a file system of its own.
struct Nights {
    mount: Mount,
    env: TestEnvironment,
    /// The directory of the cache.
    place: PathBuf,
}

impl Nights {
    /// On ext4, made with these options.
    fn on(options: &[&str]) -> Self {
        let mount = Mount::ext4(64, options, "defaults");
        Self {
            place: mount.path().join("base/project"),
            mount,
            env: environment!(),
        }
    }

    fn run(&self, script: &str) -> Finished {
        let script = format!("cd $STORE_PROJECT_CACHE_DIR; {script}");
        let base = self.mount.path().join("base");
        let words = [
            "run",
            "--project",
            "night",
            "--base",
            base.to_str().unwrap(),
        ];
        let command = ["--", "/bin/sh", "-c", &script];
        self.env.store([&words[..], &command].concat())
    }

    fn newest(&self) -> String {
        newest(&self.env)
    }
}

fn newest(env: &TestEnvironment) -> String {
    env.ok(["ls", REF])
}

/// Removes the directory, and makes others beside it until one has its inode number. That one takes its place.
fn remake(place: &Path) {
    let wanted = place.metadata().unwrap().ino();
    fs::remove_dir_all(place).unwrap();
    for count in 0..2000 {
        let made = place.with_file_name(format!("made{count}"));
        fs::create_dir(&made).unwrap();
        if made.metadata().unwrap().ino() == wanted {
            fs::rename(made, place).unwrap();
            return;
        }
    }
    panic!("{}: no directory got the number {wanted}", place.display());
}

type Attributes = Vec<(String, Vec<u8>)>;

/// Our attributes of a directory.
fn attributes(dir: &Path) -> Attributes {
    let named = ["born", "record", "saved"].map(|name| {
        let name = format!("user.store.{name}");
        let mut text = [0; 1024];
        let len = rustix::fs::getxattr(dir, &name, &mut text[..]).unwrap_or_default();
        (name, text[..len].to_vec())
    });
    let is_there = |named: &(String, Vec<u8>)| !named.1.is_empty();
    named.into_iter().filter(is_there).collect()
}

fn set(dir: &Path, attributes: &Attributes) {
    for (name, text) in attributes {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(dir, name, text, flags).unwrap();
    }
}

#[test]
fn a_directory_with_the_number_of_another_one_is_not_taken_for_it() {
    let nights = Nights::on(&["-I", "128"]);
    // The first night the cache begins empty, so that no pool made it.
    assert_eq!(nights.run("echo 1 > f1").code, Some(0));
    remake(&nights.place);
    let night = nights.run("echo 2 > f2");
    assert_eq!(night.code, Some(0), "{night}");
    assert_eq!(nights.newest(), "f1\nf2\n", "{night}");

    // The same while the list has it.
    let killed = nights.run("echo 3 > f3; kill -9 $PPID");
    assert_ne!(killed.code, Some(0), "{killed}");
    remake(&nights.place);
    fs::write(nights.place.join("foreign"), "").unwrap();
    let pending = nights.env.store(["save", "--pending"]);
    assert_eq!(pending.code, Some(6), "{pending}");
    assert_eq!(nights.newest(), "f1\nf2\n", "{pending}");
}

/// Another user can read the attributes, and give them to a directory of their own.
#[test]
fn a_directory_of_another_user_with_the_same_attributes_is_not_taken_for_it() {
    let nights = Nights::on(&["-I", "128"]);
    for is_killed in [false, true] {
        let end = if is_killed { "kill -9 $PPID" } else { "true" };
        nights.run(&format!("echo 1 > f1; {end}"));
        let attributes = attributes(&nights.place);
        remake(&nights.place);
        set(&nights.place, &attributes);
        fs::write(nights.place.join("evil"), "").unwrap();
        chown(&nights.place, Some(1001), None).unwrap();
        let pending = nights.env.store(["save", "--pending"]);
        assert_eq!(
            pending.code,
            Some(if is_killed { 6 } else { 0 }),
            "{pending}"
        );
        let refused = nights.run("true");
        assert_eq!(refused.code, Some(5), "{refused}");
        assert_eq!(nights.newest(), "f1\n");
        fs::remove_dir_all(&nights.place).unwrap();
    }
}

/// A backup with its attributes may get the number that it had when it was made.
#[test]
fn a_backup_that_was_brought_back_is_not_taken_for_what_was_saved() {
    let nights = Nights::on(&["-I", "128"]);
    for is_by_hand in [false, true] {
        let ended = nights.run("echo 1 > f1");
        assert_eq!(ended.code, Some(0), "{ended}");
        let backup = attributes(&nights.place);
        let ended = nights.run("echo 2 > f2");
        assert_eq!(ended.code, Some(0), "{ended}");
        remake(&nights.place);
        set(&nights.place, &backup);
        fs::write(nights.place.join("f1"), "1\n").unwrap();
        fs::write(nights.place.join("f3"), "3\n").unwrap();
        let refused = match is_by_hand {
            false => nights.run("true"),
            true => nights
                .env
                .store(["save", nights.place.to_str().unwrap(), REF]),
        };
        assert_eq!(refused.code, Some(5), "{refused}");
        assert_eq!(nights.newest(), "f1\nf2\n", "{refused}");
        nights
            .env
            .ok(["save", nights.place.to_str().unwrap(), REF, "--base", "0"]);
        // Nothing that was noted before counts again.
        let night = nights.run("true");
        assert_eq!(night.code, Some(0), "{night}");
        assert_eq!(nights.newest(), "f1\nf2\nf3\n", "{night}");
        nights.env.ok(["rm", REF]);
        fs::remove_dir_all(&nights.place).unwrap();
    }
}

/// A file system that was set back has the same directories, with the same times of birth.
#[test]
fn a_directory_from_before_its_save_is_not_taken_for_what_was_saved() {
    let nights = Nights::on(&[]);
    fs::create_dir_all(&nights.place).unwrap();
    nights.mount.keep_copy();
    assert_eq!(nights.run("echo 1 > f1").code, Some(0));
    nights.mount.set_back();
    fs::write(nights.place.join("x"), "").unwrap();
    let refused = nights
        .env
        .store(["save", nights.place.to_str().unwrap(), REF]);
    assert_eq!(refused.code, Some(5), "{refused}");
    assert_eq!(nights.newest(), "f1\n");
}

/// The same of one that no run ever prepared.
#[test]
fn a_directory_from_before_a_save_by_hand_is_not_taken_for_what_was_saved() {
    let mount = Mount::ext4(64, &[], "defaults");
    let env = environment!();
    let place = mount.path().join("data");
    fs::create_dir(&place).unwrap();
    let save = || env.store(["save", place.to_str().unwrap(), REF]);
    fs::write(place.join("f1"), "1").unwrap();
    assert_eq!(save().code, Some(0));
    let other = ["save", place.to_str().unwrap(), "project/night/other"];
    env.ok(other);
    mount.keep_copy();
    fs::write(place.join("f2"), "2").unwrap();
    assert_eq!(save().code, Some(0));
    mount.set_back();
    fs::write(place.join("f3"), "3").unwrap();
    // It is what was saved there, which makes it no newer for others.
    env.ok(other);
    let refused = save();
    assert_eq!(refused.code, Some(5), "{refused}");
    assert_eq!(newest(&env), "f1\nf2\n", "{refused}");

    // It is of the first version, and is saved as that.
    let told = env.store(["save", place.to_str().unwrap(), REF, "--base", "1"]);
    assert_eq!(told.code, Some(0), "{told}");
    assert_eq!(newest(&env), "f1\nf2\nf3\n", "{told}");
    fs::remove_file(place.join("f1")).unwrap();
    assert_eq!(save().code, Some(0));
    assert_eq!(newest(&env), "f2\nf3\n");
}

/// One that is saved to two refs, and is set back: whatever is saved of it to one makes it no newer for the other.
#[test]
fn many_saves_to_another_ref_make_a_directory_no_newer() {
    let mount = Mount::ext4(64, &[], "defaults");
    let env = environment!();
    let place = mount.path().join("data");
    fs::create_dir(&place).unwrap();
    let save = |target: &str| env.store(["save", place.to_str().unwrap(), target]);
    let hourly = "project/night/hourly";
    fs::write(place.join("f1"), "1").unwrap();
    assert_eq!(save(hourly).code, Some(0));
    mount.keep_copy();
    assert_eq!(save(REF).code, Some(0));
    fs::write(place.join("f2"), "2").unwrap();
    assert_eq!(save(REF).code, Some(0));
    mount.set_back();
    for hour in 0..30 {
        fs::write(place.join("hour"), hour.to_string()).unwrap();
        assert_eq!(save(hourly).code, Some(0));
    }
    let refused = save(REF);
    assert_eq!(refused.code, Some(5), "{refused}");
    assert_eq!(newest(&env), "f1\nf2\n", "{refused}");
    // Many honest ones do not hinder either.
    env.ok(["save", place.to_str().unwrap(), REF, "--base", "0"]);
    for hour in 0..30 {
        fs::write(place.join("hour"), hour.to_string()).unwrap();
        assert_eq!(save(hourly).code, Some(0));
    }
    let saved = save(REF);
    assert_eq!(saved.code, Some(0), "{saved}");
    assert_eq!(newest(&env), "f1\nf2\nhour\n");
}

/// A directory that several stores, refs and users have notes of: each knows it by its own.
#[test]
fn every_note_of_a_directory_holds() {
    // Blocks of 1 KiB have no room for all of them.
    let mount = Mount::ext4(64, &["-b", "4096"], "defaults");
    let env = environment!();
    let path = mount.path().join("data");
    let path = path.to_str().unwrap();
    env.write("source/f0", "0");
    for store in ["one", "two"] {
        env.ok(["init", store]);
        env.ok(["--store", store, "put", "source", REF]);
    }
    env.ok(["--store", "one", "materialize", REF, path]);
    let home = env.path("other");
    let others: Vec<String> = (0..40)
        .map(|n| format!("project/night/other-{n}"))
        .collect();
    for night in 1..4 {
        env.write(format!("{path}/f{night}"), night.to_string());
        for store in ["one", "two"] {
            // The second store knows it after a first save.
            let known = match store == "two" && night == 1 {
                true => &["--base", "1"][..],
                false => &[],
            };
            env.ok([&["--store", store, "save", path, REF], known].concat());
            for home in [env.path("home"), home.clone()] {
                let mut command =
                    env.command(["--store", store, "save", path, "project/night/homes"]);
                let known = if night == 1 {
                    &["--base", "0"][..]
                } else {
                    &[]
                };
                let saved = command.args(known).env("HOME", &home).output().unwrap();
                let saved = Finished::from(saved);
                assert_eq!(saved.code, Some(0), "{night} {store} {home:?}: {saved}");
            }
        }
        for other in &others {
            let known = if night == 1 {
                &["--base", "0"][..]
            } else {
                &[]
            };
            env.ok([&["--store", "one", "save", path, other], known].concat());
        }
    }
    let listed = env.ok(["--store", "two", "ls", REF]);
    assert_eq!(listed, "f0\nf1\nf2\nf3\n");
}

/// A tree whose pool was not set back with it.
#[test]
fn a_tree_from_before_its_save_is_not_taken_for_what_was_saved() {
    let mount = Mount::ext4(64, &[], "defaults");
    let env = environment!();
    let pool = env.path("pool");
    let store = |words: &[&str]| {
        let mut command = env.command(words);
        Finished::from(command.env("STORE_POOL", &pool).output().unwrap())
    };
    let place = mount.path().join("data");
    let path = place.to_str().unwrap();
    env.write("source/f1", "1");
    env.ok(["put", "source", REF]);
    for is_saved_before in [true, false] {
        let made = store(&["materialize", "--force", "--exact", REF, path]);
        assert_eq!(made.code, Some(0), "{made}");
        if is_saved_before {
            fs::write(place.join("f2"), "2").unwrap();
            assert_eq!(store(&["save", path]).code, Some(0));
        }
        mount.keep_copy();
        fs::write(place.join("f3"), "3").unwrap();
        assert_eq!(store(&["save", path]).code, Some(0));
        let saved = newest(&env);
        mount.set_back();
        fs::write(place.join("f4"), "4").unwrap();
        let again = store(&["save", path]);
        assert_ne!(again.code, Some(1), "{again}");
        assert!(newest(&env).contains(&saved), "{again}");
        env.ok(["put", "source", REF]);
        fs::remove_dir_all(&place).unwrap();
    }
}

/// The backup of a tree also has the version that the tree was made from, which is not what it was saved as last.
#[test]
fn a_tree_whose_note_does_not_hold_is_not_taken_for_what_it_was_made_from() {
    let mount = Mount::ext4(64, &[], "defaults");
    let env = environment!();
    let [tree, other] = ["tree", "other"].map(|name| mount.path().join(name));
    for store in ["near", "far"] {
        env.ok(["init", store]);
    }
    let in_store = |store: &str, words: &[&str]| env.store([&["--store", store], words].concat());
    let ok = |store: &str, words: &[&str]| {
        let done = in_store(store, words);
        assert_eq!(done.code, Some(0), "{done}");
    };
    let (path, other_path) = (tree.to_str().unwrap(), other.to_str().unwrap());
    env.write("source/a", "0");
    env.write("source/b", "0");
    ok("near", &["put", "source", REF]);
    ok("near", &["materialize", REF, path]);
    ok("far", &["save", path, REF]);
    fs::remove_file(tree.join("a")).unwrap();
    fs::remove_file(tree.join("b")).unwrap();
    fs::write(tree.join("b"), "1").unwrap();
    ok("far", &["save", path, REF]);
    // A program that brings the tree without its attributes; and somebody goes back to the first version.
    rustix::fs::removexattr(&tree, "user.store.born").unwrap();
    ok("far", &["put", "source", REF]);
    let refused = in_store("far", &["save", path, REF]);
    assert_eq!(refused.code, Some(5), "{refused}");
    let listed = || env.ok(["--store", "far", "ls", REF]);
    assert_eq!(listed(), "a\nb\n");
    // One that was never saved there is known by its tree.
    ok("near", &["materialize", REF, other_path]);
    fs::write(other.join("c"), "0").unwrap();
    ok("far", &["save", other_path, REF]);
    assert_eq!(listed(), "a\nb\nc\n");
}

/// The note of a save that was brought back from a backup says less than the directory.
#[test]
fn an_earlier_note_does_not_count_for_what_was_saved_since() {
    let env = environment!();
    let place = env.path("data");
    let path = place.to_str().unwrap();
    env.write("data/f1", "1");
    env.write("data/f2", "1");
    env.ok(["save", path, REF]);
    let mut host = std::process::Command::new("sh");
    let host = host.arg("-c").current_dir(env.root());
    assert!(
        host.arg("mkdir away; for of in home cache state; do [ ! -e $of ] || cp -a $of away; done")
            .status()
            .unwrap()
            .success()
    );
    env.write("data/f2", "2");
    env.ok(["save", path, REF]);
    // Somebody else removes a file.
    env.ok(["materialize", REF, "theirs"]);
    fs::remove_file(env.path("theirs/f1")).unwrap();
    env.ok(["save", "theirs", REF]);
    let mut host = std::process::Command::new("sh");
    let host = host.arg("-c").current_dir(env.root());
    assert!(host.arg("cp -a away/. .").status().unwrap().success());
    let refused = env.store(["save", path, REF]);
    assert_eq!(refused.code, Some(5), "{refused}");
    assert_eq!(newest(&env), "f2\n", "{refused}");
}

/// `cp -a other/. cache/` does this, and `tar --xattrs`.
#[test]
fn a_directory_with_the_attributes_of_another_one_is_still_the_same() {
    let nights = Nights::on(&[]);
    let at = |name: &str| nights.mount.path().join(name);
    let save = |dir: &Path, target: &str| nights.env.store(["save", dir.to_str().unwrap(), target]);
    // One that was saved by hand, and one that a pool made.
    fs::create_dir(at("saved")).unwrap();
    fs::write(at("saved/other"), "").unwrap();
    let other = "project/other/data";
    assert_eq!(save(&at("saved"), other).code, Some(0));
    let made = at("made");
    nights
        .env
        .ok(["materialize", other, made.to_str().unwrap()]);
    fs::write(at("made/more"), "").unwrap();
    assert_eq!(save(&made, other).code, Some(0));
    let (saved, made) = (attributes(&at("saved")), attributes(&made));
    assert_eq!((saved.len(), made.len()), (1, 3));

    // A cache that begins empty, one that a run was given, and one that is saved by hand.
    let hand = at("hand");
    fs::create_dir(&hand).unwrap();
    for (count, copied) in [&saved, &made, &saved, &made].into_iter().enumerate() {
        let killed = nights.run(&format!("echo > f{count}; kill -9 $PPID"));
        assert_ne!(killed.code, Some(0), "{killed}");
        set(&nights.place, copied);
        if count % 2 == 0 {
            let pending = nights.env.store(["save", "--pending"]);
            assert_eq!(pending.code, Some(0), "{pending}");
            let none = nights.env.store(["save", "--pending"]);
            assert!(none.stderr.contains("nothing is to be saved"), "{none}");
        }
        let night = nights.run("true");
        assert_eq!(night.code, Some(0), "{night}");
        let files: Vec<_> = (0..=count).map(|count| format!("f{count}\n")).collect();
        assert_eq!(nights.newest(), files.concat(), "{night}");

        fs::write(hand.join(format!("f{count}")), "").unwrap();
        set(&hand, copied);
        let by_hand = save(&hand, "project/hand/data");
        assert_eq!(by_hand.code, Some(0), "{by_hand}");
        assert_eq!(nights.env.ok(["ls", "project/hand/data"]), files.concat());
    }
}

/// Without attributes, an empty directory may be a new one.
#[test]
fn an_empty_directory_without_attributes_is_no_deletion() {
    let nights = Nights::on(&["-I", "128"]);
    fs::create_dir_all(&nights.place).unwrap();
    // There is room for no other one.
    for name in ["user.one", "user.two"] {
        let set = |len: &usize| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&nights.place, name, &vec![1; *len], flags).is_ok()
        };
        (1..1000).rev().find(set);
    }
    assert_eq!(nights.run("echo 1 > f1").code, Some(0));
    assert_eq!(nights.run("echo 2 > f2").code, Some(0));
    remake(&nights.place);
    let night = nights.run("echo 3 > f3");
    assert_eq!(night.code, Some(0), "{night}");
    assert_eq!(nights.newest(), "f1\nf2\nf3\n", "{night}");
}
