//! Directories that another pool took over, even in the middle of an update, or that were filled with another tree.

use std::fs;

use crate::records::versions;
use crate::stopped::Stopped;
use crate::world::{Mount, REF, World, assert_same, shell};

const FIRST: &[&str] = &["a", "x", "only-1"];
const SECOND: &[&str] = &["a", "x", "only-2"];
const THIRD: &[&str] = &["a", "x", "only-3"];

fn made(world: &World, pool: &str, version: u32, options: &[&str]) -> Option<i32> {
    let spec = format!("{REF}@{version}");
    let words = ["materialize", "--pool", pool, &spec, "out"];
    world.env.store([&words[..], options].concat()).code
}

#[test]
fn a_tree_that_another_pool_took_over_is_no_tree_of_the_first_one() {
    let world = versions(311, &[FIRST, SECOND, THIRD]);
    assert_eq!(made(&world, "one", 1, &[]), Some(0));
    assert_ne!(made(&world, "two", 2, &[]), Some(0));
    assert_eq!(made(&world, "two", 2, &["--force", "--exact"]), Some(0));
    assert_same(&world.path("source-2"), &world.path("out"));
    assert_ne!(made(&world, "one", 3, &[]), Some(0), "of the second pool");
    assert_same(&world.path("source-2"), &world.path("out"));
    assert_eq!(made(&world, "two", 3, &[]), Some(0));
    assert_same(&world.path("source-3"), &world.path("out"));
}

#[test]
fn a_tree_that_was_put_back_from_a_copy_is_not_taken_for_what_it_was() {
    let world = versions(312, &[FIRST, SECOND, THIRD]);
    let root = world.env.root().display().to_string();
    assert_eq!(made(&world, "one", 1, &[]), Some(0));
    shell(&format!("cd '{root}' && cp -a out copy"));
    assert_eq!(made(&world, "one", 2, &[]), Some(0));
    shell(&format!("cd '{root}' && rm -rf out/* && cp -a copy/. out/"));
    assert_ne!(made(&world, "one", 3, &[]), Some(0), "it is of version 1");
    assert_same(&world.path("source-1"), &world.path("out"));
    assert_eq!(made(&world, "one", 3, &["--force", "--exact"]), Some(0));
    assert_same(&world.path("source-3"), &world.path("out"));
}

/// Starts an update of `out` with a pool, and stops it at the `nth` call of a kind.
fn stopped(world: &World, pool: &str, inject: &str) -> Stopped {
    let spec = format!("{REF}@2");
    Stopped::at(
        world,
        &["materialize", "--pool", pool, &spec, "out"],
        inject,
    )
}

/// Names in directories that both versions have, or that only the second one has.
fn many(of: &str) -> Vec<String> {
    let names = (0..300).map(|n| format!("dir-{}/{of}-{n}", n % 3));
    names
        .chain(["dir-0/x", "dir-1/x", "dir-2/x"].map(str::to_owned))
        .collect()
}

#[test]
fn an_update_that_another_pool_overtook_notices_and_stops() {
    let all = ["first", "second", "third"].map(many);
    let all = all
        .each_ref()
        .map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
    let world = versions(314, &all.each_ref().map(Vec::as_slice));
    // In the middle of the new files, of the removals, and before anything.
    for (at, inject) in [
        "renameat2:when=100",
        "unlinkat:when=150",
        "renameat2:when=1",
    ]
    .iter()
    .enumerate()
    {
        let one = format!("one-{at}");
        assert_eq!(made(&world, &one, 1, &["--force", "--exact"]), Some(0));
        let prefetch = ["materialize", "--prefetch", "--pool", &one];
        world
            .env
            .ok([&prefetch[..], &[&format!("{REF}@2")]].concat());
        let update = stopped(&world, &one, inject);
        assert_eq!(made(&world, "two", 3, &["--force", "--exact"]), Some(0));
        assert_same(&world.path("source-3"), &world.path("out"));
        let finished = update.goes_on();
        assert_eq!(finished.code, Some(5), "{inject}: {finished}");
        assert!(
            finished.stderr.contains("took the destination over"),
            "{inject}: {finished}"
        );
        assert_same(&world.path("source-3"), &world.path("out"));
        assert_ne!(made(&world, &one, 2, &[]), Some(0), "it is of pool two");
        assert_eq!(made(&world, "two", 3, &[]), Some(0));
        assert_same(&world.path("source-3"), &world.path("out"));
    }
}

#[test]
fn an_update_that_was_overtaken_by_another_path_notices_and_stops() {
    let all = ["first", "second", "third"].map(many);
    let all = all
        .each_ref()
        .map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
    let world = versions(315, &all.each_ref().map(Vec::as_slice));
    assert_eq!(made(&world, "one", 1, &[]), Some(0));
    world.env.ok([
        "materialize",
        "--prefetch",
        "--pool",
        "one",
        &format!("{REF}@2"),
    ]);
    let update = stopped(&world, "one", "renameat2:when=100");
    let root = world.env.root().display().to_string();
    let bound = Mount::new(world.path("bound"), &format!("--bind '{root}'"));
    let third = format!("{REF}@3");
    let other = ["materialize", "--pool", "one", "--force", "--exact"];
    let other = [&other[..], &[&third, "bound/out"]].concat();
    world.env.ok(other);
    assert_same(&world.path("source-3"), &world.path("out"));
    let finished = update.goes_on();
    drop(bound);
    assert_eq!(finished.code, Some(5), "{finished}");
    assert_same(&world.path("source-3"), &world.path("out"));
}

/// The hint says what is lost there, and names no option that would be refused.
#[test]
fn what_force_destroys_is_said_before() {
    let world = versions(318, &[FIRST, SECOND]);
    fs::write(world.path("file"), "mine").unwrap();
    fs::create_dir(world.path("dir")).unwrap();
    fs::write(world.path("dir/own"), "mine").unwrap();
    fs::write(world.path("dir/a"), "mine").unwrap();
    let told = |place: &str, options: &[&str], expected: &str| {
        let words = [&["materialize", REF, place], options].concat();
        let refused = world.env.store(words);
        assert_eq!(refused.code, Some(5), "{refused}");
        let hint = refused.stderr.lines().last().unwrap().to_owned();
        assert!(hint.contains(expected), "{hint}");
        hint
    };
    told("file", &[], "--force deletes what is there");
    told(
        "dir",
        &[],
        "overwrites files of the same names, and keeps the others",
    );
    told("dir", &["--exact"], "and deletes the others");
    for place in ["file", "dir"] {
        let hint = told(place, &["--ephemeral"], "or remove this one first");
        assert!(!hint.contains("--force"), "{hint}");
    }
    // It is as the hints say.
    world.env.ok(["materialize", REF, "file", "--force"]);
    assert_same(&world.path("source-2"), &world.path("file"));
    world.env.ok(["materialize", REF, "dir", "--force"]);
    assert_eq!(fs::read(world.path("dir/own")).unwrap(), b"mine");
    assert_ne!(fs::read(world.path("dir/a")).unwrap(), b"mine");
    fs::remove_dir_all(world.path("dir")).unwrap();
    fs::create_dir(world.path("dir")).unwrap();
    fs::write(world.path("dir/own"), "mine").unwrap();
    world
        .env
        .ok(["materialize", REF, "dir", "--force", "--exact"]);
    assert_same(&world.path("source-2"), &world.path("dir"));
}
