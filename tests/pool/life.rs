//! Trees that end with a process: they stay while it lives, wherever it runs, and are removed after it has died. A
//! process that cannot be observed counts as alive until it has been silent for long.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

use support::under;

use crate::world::{Mount, REF, World, assert_same, files_below, set_mode, shell};

/// Starts a process that holds `out`, through the command `prefix`.
fn hold(world: &World, prefix: &[&str]) -> Child {
    let plain = world
        .env
        .command(["materialize", "--ephemeral", "--json", REF, "out"]);
    let mut command = match prefix {
        [program, arguments @ ..] => under(program, arguments, &plain),
        [] => plain,
    };
    let mut holder = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(holder.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    assert_same(&world.path("source"), &world.path("out"));
    holder
}

/// The holder's files: its owner file, and the mark that says that the tree ends with it.
fn written(world: &World) -> Vec<PathBuf> {
    let owners = files_below(&world.pool().join("owners"));
    let marks = files_below(&world.pool().join("trees"));
    let marks = marks.into_iter().filter(|mark| mark.extension().is_none());
    owners.into_iter().chain(marks).collect()
}

/// Makes the files two hours old, as if their owner had been silent since.
fn backdate(world: &World) {
    for path in written(world) {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(7200))
            .unwrap();
    }
}

fn status(world: &World) -> usize {
    let said = world.env.ok(["pool", "status", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    said["trees"].as_array().unwrap().len()
}

/// Kills the holder, and the process that it started in a namespace.
fn kill(mut holder: Child) {
    let below = fs::read_to_string(format!("/proc/{0}/task/{0}/children", holder.id())).unwrap();
    for pid in below.split_ascii_whitespace() {
        shell(&format!("kill -KILL {pid}"));
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
}

fn assert_given_back(world: &World) {
    assert_eq!(status(world), 0);
    assert!(!world.path("out").exists());
    assert!(files_below(&world.pool().join("trees")).is_empty());
    world.assert_sound();
}

#[test]
fn a_tree_stays_while_its_holder_lives() {
    let world = World::with_tree(330);
    let holder = hold(&world, &[]);
    assert_eq!(status(&world), 1);
    // The process is seen to live, whatever the clock says; so is a stopped one.
    shell(&format!("kill -STOP {}", holder.id()));
    backdate(&world);
    assert_eq!(status(&world), 1);
    assert_same(&world.path("source"), &world.path("out"));
    kill(holder);
    assert_given_back(&world);
}

#[test]
fn a_holder_of_another_namespace_is_gone_when_it_was_silent_for_long() {
    let world = World::with_tree(331);
    let holder = hold(&world, &["unshare", "--pid", "--fork"]);
    assert_eq!(status(&world), 1);
    // After a jump of the clock, the process beats before anybody believes that it was silent.
    backdate(&world);
    assert_eq!(status(&world), 1);
    assert_same(&world.path("source"), &world.path("out"));
    kill(holder);
    assert_eq!(status(&world), 1, "it was heard of just now");
    backdate(&world);
    assert_given_back(&world);
}

#[test]
fn another_boot_proves_no_death() {
    let world = World::with_tree(332);
    let holder = hold(&world, &[]);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for path in written(&world) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(boot.trim()));
        fs::write(path, text.replace(boot.trim(), "another")).unwrap();
    }
    assert_eq!(status(&world), 1);
    assert_same(&world.path("source"), &world.path("out"));
    assert_eq!(files_below(&world.pool().join("owners")).len(), 1);
    kill(holder);
    assert_eq!(status(&world), 1, "it was heard of just now");
    backdate(&world);
    assert_given_back(&world);
}

#[test]
fn what_was_there_before_does_not_end_with_a_process() {
    let world = World::with_tree(334);
    let refused = |options: &[&str]| {
        let ephemeral = [&["materialize", "--ephemeral", REF, "out"], options].concat();
        let finished = world.env.store(ephemeral);
        assert_eq!(finished.code, Some(5), "{finished}");
        assert!(
            finished.stderr.contains("remove this one first"),
            "{finished}"
        );
    };
    // A permanent tree with a file of a job.
    world.make("out", &[]);
    world.write("out/of-a-job", 100);
    refused(&[]);
    refused(&["--force"]);
    refused(&["--exact"]);
    assert!(world.path("out/of-a-job").exists() && world.path("out/big").exists());
    // A directory of the user.
    fs::remove_dir_all(world.path("out")).unwrap();
    world.write("out/mine", 100);
    refused(&["--force"]);
    assert!(world.path("out/mine").exists());
    // The same for a single file.
    let file = format!("{REF}:big");
    world.env.ok(["materialize", &file, "file"]);
    let finished = world
        .env
        .store(["materialize", "--ephemeral", &file, "file"]);
    assert_eq!(finished.code, Some(5), "{finished}");
    assert!(world.path("file").exists());
}

/// A file has an attribute that says that it is held, or it is another link to a pool file.
#[test]
fn a_file_ends_with_its_process_unless_a_job_made_another_in_its_place() {
    let world = World::with_tree(338);
    let (file, big) = (world.path("file"), format!("{REF}:big"));
    let of_a_job = |mode, time: &str| {
        fs::remove_file(&file).unwrap();
        fs::write(&file, "a job's own").unwrap();
        set_mode(&file, mode);
        shell(&format!("touch -d '{time}' '{}'", file.display()));
    };
    for link_mode in ["hardlink", "copy"] {
        for own in [
            None,
            Some((0o644, "now")),
            Some((0o444, "1980-01-01 00:00:00 UTC")),
        ] {
            let options = ["--ephemeral", "--json", "--link-mode", link_mode];
            let arguments = [&["materialize"], &options[..], &[&big, "file"]].concat();
            let mut command = world.env.command(arguments);
            let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut holder = pipes.spawn().unwrap();
            let mut said = String::new();
            let mut told = BufReader::new(holder.stdout.take().unwrap());
            told.read_line(&mut said).unwrap();
            assert!(fs::read(&file).unwrap() == fs::read(world.path("source/big")).unwrap());
            if let Some((mode, time)) = own {
                of_a_job(mode, time);
            }
            kill(holder);
            // The next command removes what is left.
            world.env.ok(["pool", "status"]);
            assert_eq!(file.exists(), own.is_some(), "{link_mode}, {own:?}");
            if own.is_some() {
                assert_eq!(fs::read(&file).unwrap(), b"a job's own");
                fs::remove_file(&file).unwrap();
            }
        }
    }
}

#[test]
fn a_tree_that_another_process_took_over_does_not_end_with_the_first() {
    let world = World::with_tree(335);
    let mut first = hold(&world, &[]);
    let mut second = hold(&world, &[]);
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
    assert_same(&world.path("source"), &world.path("out"));
    assert_eq!(status(&world), 1);
    drop(second.stdin.take());
    assert!(second.wait().unwrap().success());
    assert_given_back(&world);
    // A tree that was made permanent meanwhile stays.
    let mut third = hold(&world, &[]);
    world.make("out", &[]);
    drop(third.stdin.take());
    assert!(third.wait().unwrap().success());
    assert_same(&world.path("source"), &world.path("out"));
}

#[test]
fn a_tree_of_an_older_program_is_left_to_people() {
    let world = World::with_tree(333);
    let holder = hold(&world, &[]);
    kill(holder);
    for mark in files_below(&world.pool().join("trees")) {
        let text = fs::read_to_string(&mark).unwrap();
        let Some((before, rest)) = text.split_once(",\"owner\":") else {
            continue;
        };
        let (_, after) = rest.split_once('}').unwrap();
        fs::write(mark, format!("{before}}}{after}")).unwrap();
    }
    assert_eq!(status(&world), 1);
    assert_same(&world.path("source"), &world.path("out"));
    fs::remove_dir_all(world.path("out")).unwrap();
    assert_given_back(&world);
}

/// Starts a process that holds `out`, with readable standard error.
fn hold_quietly(world: &World, reference: &str) -> Child {
    let mut holder = world
        .env
        .command(["materialize", "--ephemeral", "--json", reference, "out"]);
    holder.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(holder.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    assert!(world.path("out").exists(), "{said}");
    holder
}

fn end(mut holder: Child) -> support::Finished {
    drop(holder.stdin.take());
    holder.wait_with_output().unwrap().into()
}

#[test]
fn a_store_that_a_job_made_in_its_tree_does_not_end_with_it() {
    let world = World::with_tree(336);
    let holder = hold_quietly(&world, REF);
    world.env.ok(["init", "out/sub/store"]);
    world.env.ok([
        "--store",
        "out/sub/store",
        "put",
        "out/exe",
        "project/job/found",
    ]);
    let ended = end(holder);
    assert_eq!(ended.code, Some(5), "{ended}");
    assert!(ended.stderr.contains("holds a store, at "), "{ended}");
    assert!(ended.stderr.contains("out/sub/store"), "{ended}");
    // The next user of the pool keeps it, too, and says so.
    let status = world.env.store(["pool", "status"]);
    assert!(status.stderr.contains("holds a store, at "), "{status}");
    world
        .env
        .ok(["--store", "out/sub/store", "verify", "--read-data"]);
    assert!(world.path("out/big").exists());
    fs::rename(world.path("out/sub/store"), world.path("mine")).unwrap();
    assert_given_back(&world);
}

#[test]
fn a_store_that_is_part_of_a_version_ends_with_its_tree() {
    let world = World::with_tree(337);
    world.env.ok(["init", "stores/one/deep"]);
    world.env.ok(["put", "stores", "project/demo/stores"]);
    let ended = end(hold_quietly(&world, "project/demo/stores"));
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_given_back(&world);
}

#[test]
fn a_mount_in_a_tree_keeps_it_until_it_is_gone() {
    let world = World::with_tree(338);
    let holder = hold_quietly(&world, REF);
    let mount = Mount::new(world.path("out/sub/mount"), "-t tmpfs none");
    fs::write(mount.path("mine"), "mine").unwrap();
    kill(holder);
    for _ in 0..2 {
        let status = world.env.store(["pool", "status"]);
        assert!(
            status.stderr.contains("something that is mounted, at "),
            "{status}"
        );
        assert_eq!(fs::read_to_string(mount.path("mine")).unwrap(), "mine");
    }
    drop(mount);
    assert_given_back(&world);
}
