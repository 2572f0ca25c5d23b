//! Trees that match no single version, and files of jobs that look as if a pool had made them.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::records::{is_told_settled, killed, records, version, versions};
use crate::world::{REF, World, assert_same, conflicting, files_below, set_mode, shell};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A tree of version 1 that a job has saved as version 2; and version 3.
fn saved() -> World {
    let world = versions(301, &[&NAMES]);
    world.env.ok(["materialize", REF, "out"]);
    world.env.write("out/job", "a job's own");
    world.env.ok(["save", "out"]);
    version(&world, 3, &NAMES);
    world
}

#[test]
fn a_tree_whose_update_was_killed_is_not_saved_until_a_whole_one_has_set_it_right() {
    let mut unsettled = 0;
    for at in [10, 13, 16, 19] {
        let world = saved();
        if !killed(&world, &["materialize", REF, "out"], at) || records(&world) < 2 {
            continue;
        }
        unsettled += 1;
        for words in [vec!["save", "out"], vec!["put", "out", REF]] {
            let refused = world.env.store(words);
            assert_eq!(refused.code, Some(5), "{at}: {refused}");
            assert!(refused.stderr.contains("of no one version"), "{refused}");
        }
        assert_eq!(
            world.env.ok(["history", REF, "--json"]).lines().count(),
            3,
            "nothing was published"
        );
        world.env.ok(["materialize", REF, "out"]);
        world.env.ok(["save", "out"]);
        world.env.ok(["get", REF, "got"]);
        for name in NAMES {
            let [is, wanted] = ["got", "source-3"]
                .map(|dir| fs::read(world.path(&format!("{dir}/{name}"))).unwrap());
            assert_eq!(is, wanted, "{name}");
        }
    }
    assert!(unsettled > 1, "{unsettled}");
}

#[test]
fn an_update_that_failed_before_its_first_step_leaves_the_tree_what_it_was() {
    let world = saved();
    let full = world
        .env
        .store(["materialize", "--pool-free", "1000TB", REF, "out"]);
    assert_eq!(full.code, Some(1), "{full}");
    assert!(is_told_settled(&world), "{full}");
    world.env.write("out/more", "of the job");
    world.env.ok(["save", "out"]);
    assert!(world.env.ok(["ls", REF]).contains("more"));
}

#[test]
fn a_linked_file_in_the_place_of_another_is_a_job_s_and_named() {
    let world = versions(302, &[&["a", "x", "b", "y", "gone"], &["a", "x", "b", "y"]]);
    let first = format!("{REF}@1");
    world.env.ok(["materialize", &first, "out"]);
    let path = |name: &str| world.path(&format!("out/{name}"));
    assert_eq!(fs::metadata(path("a")).unwrap().nlink(), 2);
    // Linked files of the same size: two are swapped, and one takes the place of a file that the next version lacks.
    fs::rename(path("a"), path("swap")).unwrap();
    fs::rename(path("b"), path("a")).unwrap();
    fs::rename(path("swap"), path("b")).unwrap();
    fs::remove_file(path("gone")).unwrap();
    fs::hard_link(path("a"), path("gone")).unwrap();
    let swapped = fs::read(path("a")).unwrap();
    let changed = |path: &str| (path.to_owned(), "changed".to_owned());
    for _ in 0..2 {
        let report = world.partly(&first, "out", &[]);
        assert_eq!(conflicting(&report), ["a", "b", "gone"].map(changed));
        assert_eq!(fs::read(path("a")).unwrap(), swapped);
    }
    let report = world.partly(REF, "out", &[]);
    let dropped = ("gone".to_owned(), "dropped".to_owned());
    assert_eq!(conflicting(&report), [changed("a"), changed("b"), dropped]);
    world.make("out", &["--exact"]);
    assert_same(&world.path("source-2"), &world.path("out"));
    world.assert_sound();
}

#[test]
fn a_job_s_own_file_with_the_time_and_mode_of_a_pool_s_is_kept() {
    let world = versions(303, &[&["a", "x"], &["a", "x"]]);
    world.env.ok(["materialize", &format!("{REF}@1"), "out"]);
    let own = world.path("out/a");
    fs::remove_file(&own).unwrap();
    world.write("out/a", 20_000);
    shell(&format!("touch -d @315532800 '{}'", own.display()));
    set_mode(&own, 0o444);
    let bytes = fs::read(&own).unwrap();
    let report = world.partly(REF, "out", &[]);
    assert_eq!(
        conflicting(&report),
        [("a".to_owned(), "changed".to_owned())]
    );
    assert_eq!(fs::read(&own).unwrap(), bytes);
}

/// More updates than are read at the same time.
#[test]
fn very_many_interrupted_updates_are_set_right_by_a_whole_one() {
    let world = World::new(111);
    let last = 21;
    for number in 1..=last {
        let own = format!("only-{number}/x");
        // The path is a file in some versions and a directory in others.
        let kind = ["kind", "kind/below"][number % 2];
        version(&world, number, &["keep", kind, "same/a", "same/b", &own]);
    }
    world.env.ok(["materialize", &format!("{REF}@1"), "out"]);
    world.write("out/of-a-job", 10);
    for number in 2..last {
        let arguments = ["materialize", &format!("{REF}@{number}"), "out"];
        assert!(killed(&world, &arguments, 17), "{number}");
    }
    assert!(records(&world) > 17, "{} records", records(&world));
    world.make("out", &[]);
    assert_eq!(fs::read(world.path("out/of-a-job")).unwrap().len(), 10);
    let source = world.path(&format!("source-{last}"));
    shell(&format!(
        "diff -r --exclude=of-a-job '{}' '{}'",
        source.display(),
        world.path("out").display()
    ));
    world.make("out", &["--exact"]);
    assert_same(&source, &world.path("out"));
    assert_eq!(records(&world), 1);
    world.assert_sound();
}

/// A file that a job changed counts as its own, with its own time, even if it gets its old bytes back.
#[test]
fn a_changed_file_that_a_job_brings_back_itself_has_its_own_time() {
    let world = versions(112, &[&NAMES, &NAMES]);
    let first = format!("{REF}@1");
    world.env.ok(["materialize", &first, "out"]);
    fs::remove_file(world.path("out/a")).unwrap();
    fs::write(world.path("out/a"), "a job's own").unwrap();
    let report = world.partly(REF, "out", &[]);
    assert_eq!(conflicting(&report), [("a".into(), "changed".into())]);
    fs::copy(world.path("source-1/a"), world.path("out/a")).unwrap();
    shell(&format!(
        "touch -d 2011-12-13 '{}'",
        world.path("out/a").display()
    ));
    world.env.ok(["put", "out", "project/demo/other"]);
    world.env.ok(["get", "project/demo/other", "back"]);
    let time = |path: &str| fs::metadata(world.path(path)).unwrap().mtime();
    assert_eq!(time("back/a"), time("out/a"));
    assert_eq!(time("back/b"), time("source-2/b"));
}

#[test]
fn what_is_of_no_known_version_is_no_change_of_a_job() {
    let world = versions(336, &[&["a", "b", "c", "deep/d"]]);
    world.make("out", &[]);
    world.write("out/added", 10);
    // Others change one and delete two; then the record is lost.
    version(&world, 2, &["a", "c"]);
    let made = files_below(&world.pool().join("made"));
    for record in made.iter().filter(|path| !path.ends_with("at")) {
        fs::write(record, "lost").unwrap();
    }
    let out = |name: &str| world.path(&format!("out/{name}"));
    // A copy has no inode of a pool that would tell where it is from.
    for name in ["b", "deep/d"] {
        fs::copy(world.path("source-1").join(name), world.path("copy")).unwrap();
        fs::rename(world.path("copy"), out(name)).unwrap();
    }
    let report = world.partly(REF, "out", &[]);
    let unknown: Vec<String> = conflicting(&report)
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(unknown, ["added", "b", "deep"]);
    world.write("out/new", 20);
    fs::remove_file(out("c")).unwrap();
    for _ in 0..2 {
        let saved = world.env.store(["save", "out"]);
        assert_eq!(saved.code, Some(6), "{saved}");
        for path in &unknown {
            let told = format!("{path}: not saved: the record of the tree was lost");
            assert!(saved.stderr.contains(&told), "{saved}");
        }
        let hint = format!("`store save out {REF} --base N` saves it");
        assert!(saved.stderr.contains(&hint), "{saved}");
        let listed = world.env.ok(["ls", REF]);
        let is_there = |name: &str| listed.lines().any(|line| line.trim_end().ends_with(name));
        assert!(is_there("new") && is_there("a"), "{listed}");
        for name in ["added", "b", "c", "deep/"] {
            assert!(!is_there(&format!(" {name}")), "{name}: {listed}");
        }
    }
    let based = world.env.store(["save", "out", REF, "--base", "1", "-n"]);
    assert_eq!(based.code, Some(0), "{based}");
    // Set right, it is known again what a job does.
    world.make("out", &["--exact"]);
    world.write("out/more", 20);
    world.env.ok(["save", "out"]);
}

/// Exchanges two directories of a tree. The files in them are not touched.
fn exchange(world: &World, one: &str, other: &str) {
    let path = |name: &str| world.path("out").join(name);
    fs::rename(path(one), world.path("aside")).unwrap();
    fs::rename(path(other), path(one)).unwrap();
    fs::rename(world.path("aside"), path(other)).unwrap();
}

/// Starts a job that exchanges `g1` and `g2` and saves that, then exchanges `g1` and another directory.
fn exchanged_after_a_save(seed: u64, (size, third): (usize, usize), with: &str) -> World {
    let world = World::new(seed);
    for (dir, size) in [("g1", size), ("g2", size), ("g3", third)] {
        world.write(&format!("source/{dir}/w"), size);
    }
    shell(&format!(
        "find '{}' -type f -exec touch -d 2001-02-03 {{}} +",
        world.path("source").display()
    ));
    world.put();
    world.make("out", &[]);
    exchange(&world, "g1", "g2");
    world.env.ok(["save", "out"]);
    // Somebody else adds a file.
    world.env.ok(["get", REF, "theirs"]);
    world.write("theirs/new", 10);
    world.env.ok(["put", "theirs", REF]);
    exchange(&world, "g1", with);
    world
}

#[test]
fn directories_that_a_job_exchanged_after_a_save_stay_so() {
    let changed = |dir: &str| (format!("{dir}/w"), "changed".to_owned());
    // Linked files all have one time; private copies may.
    for (seed, size) in [(337, 20_000), (338, 200)] {
        for with in ["g2", "g3"] {
            let world = exchanged_after_a_save(seed, (size, size), with);
            let read = |dir: &str| fs::read(world.path("out").join(dir).join("w")).unwrap();
            let before = ["g1", with].map(read);
            let report = world.partly(REF, "out", &[]);
            assert_eq!(conflicting(&report), ["g1", with].map(changed), "{size}");
            assert_eq!(["g1", with].map(read), before, "{size}");
            assert!(world.path("out/new").exists());
            world.env.ok(["save", "out"]);
            world.env.ok(["get", REF, "got"]);
            for dir in ["g1", "g2", "g3"] {
                assert_eq!(
                    fs::read(world.path(&format!("got/{dir}/w"))).unwrap(),
                    read(dir)
                );
            }
        }
    }
}

#[test]
fn directories_that_a_job_exchanged_after_a_save_and_others_removed_stay() {
    let world = exchanged_after_a_save(339, (20_000, 20_000), "g2");
    world.env.ok(["rm", "-y", &format!("{REF}:g1")]);
    let before = fs::read(world.path("out/g1/w")).unwrap();
    let report = world.partly(REF, "out", &[]);
    let named = [("g1/w", "dropped"), ("g2/w", "changed")];
    assert_eq!(
        conflicting(&report),
        named.map(|(path, why)| (path.to_owned(), why.to_owned()))
    );
    assert_eq!(fs::read(world.path("out/g1/w")).unwrap(), before);
}

#[test]
fn a_file_of_another_content_is_not_taken_for_a_torn_one_after_a_boot() {
    // Linked files, then private copies.
    for (seed, sizes) in [(341, (20_000, 19_000)), (342, (200, 190))] {
        let world = exchanged_after_a_save(seed, sizes, "g3");
        crate::torn::boot(&world);
        let before = fs::read(world.path("out/g1/w")).unwrap();
        let report = world.partly(REF, "out", &[]);
        let changed = |dir: &str| (format!("{dir}/w"), "changed".to_owned());
        assert_eq!(conflicting(&report), ["g1", "g3"].map(changed), "{sizes:?}");
        assert_eq!(fs::read(world.path("out/g1/w")).unwrap(), before);
    }
}

#[test]
fn private_copies_that_moved_with_their_directory_are_no_untouched_ones() {
    let world = World::new(340);
    for dir in ["deep/g1", "deep/g2"] {
        world.write(&format!("source/{dir}/sub/w"), 200);
    }
    shell(&format!(
        "find '{}' -type f -exec touch -d 2001-02-03 {{}} +",
        world.path("source").display()
    ));
    world.put();
    world.make("out", &[]);
    exchange(&world, "deep/g1", "deep/g2");
    let report = world.partly(REF, "out", &[]);
    let changed = |dir: &str| (format!("deep/{dir}/sub/w"), "changed".to_owned());
    assert_eq!(conflicting(&report), ["g1", "g2"].map(changed));
}
