//! Directories that another pool took over, or that somebody filled with another tree.

use crate::records::versions;
use crate::world::{REF, World, assert_same, shell};

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
