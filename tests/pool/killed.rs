//! What killed gets leave, beside a destination or in it: the next get removes it, and nothing else.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use support::{Finished, under};

use crate::world::{Mount, REF, World, assert_same, shell};

/// Runs a get to a destination, from a directory, and kills it at the `nth` call of a system call.
fn killed(world: &World, (dir, destination): (&Path, &str), (call, nth): (&str, u32)) {
    let get = world.env.command(["get", REF, destination]);
    let (trace, inject) = (
        format!("trace={call}"),
        format!("inject={call}:signal=SIGKILL:when={nth}"),
    );
    let words = ["-f", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let mut traced = under("strace", words, &get);
    assert!(!traced.current_dir(dir).status().unwrap().success());
}

fn get(world: &World, (dir, destination): (&Path, &str)) -> Finished {
    let mut get = world.env.command(["get", REF, destination]);
    get.current_dir(dir).output().unwrap().into()
}

/// The rooms in a directory, and its other entries.
fn parts(dir: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let paths = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    paths.partition(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(".store-get-")
    })
}

fn emptied(dir: &Path) {
    shell(&format!("find '{}' -mindepth 1 -delete", dir.display()));
}

/// Lists a directory with all properties that show a change.
fn listed(dir: &Path) -> String {
    shell(&format!(
        "cd '{}' && find . -mindepth 1 -printf '%P %y %s %T@ %C@ %i\\n' | LC_ALL=C sort",
        dir.display()
    ))
}

#[test]
fn what_a_killed_get_left_is_removed_by_the_next_one() {
    let world = World::with_tree(87);
    let root = world.env.root();
    let left = || parts(&root).0;
    let killed = || killed(&world, (&root, "killed"), ("renameat2", 1));
    killed();
    assert_eq!(left().len(), 1);
    world.env.ok(["get", REF, "one"]);
    assert!(left().is_empty(), "{:?}", left());
    // A room of another user is not removed, nor is a directory that only has the name of a room.
    killed();
    shell(&format!("chown -R 1002 '{}'", left()[0].display()));
    world.env.write(".store-get-0123/mine", "mine");
    world.env.ok(["get", REF, "two"]);
    assert_eq!(left().len(), 2, "{:?}", left());
}

/// Before the room has a note; before anything is built; before the first entry is moved out of the room; after some of
/// them; after all of them, and at each step of the room's removal.
const KILLS: [(&str, u32); 10] = [
    ("linkat", 1),
    ("mkdirat", 2),
    ("renameat2", 1),
    ("renameat2", 3),
    ("renameat2", 6),
    ("unlinkat", 1),
    ("renameat2", 7),
    ("unlinkat", 2),
    ("unlinkat", 3),
    ("unlinkat", 4),
];

/// Kills a get inside of its destination at each of these points, and checks the next get.
fn goes_on(world: &World, dest: &Path, named: (&Path, &str)) {
    let mut out = Vec::new();
    for kill in KILLS {
        killed(world, named, kill);
        let (rooms, others) = parts(dest);
        out.push((rooms.len(), others.len()));
        let finished = get(world, named);
        assert_eq!(finished.code, Some(0), "{kill:?}: {finished}");
        assert_same(&world.path("source"), dest);
        emptied(dest);
    }
    let begun = [(1, 0), (1, 0), (1, 0), (1, 2), (1, 5), (1, 6)];
    assert_eq!(
        out,
        [&begun[..], &[(1, 6), (2, 6), (2, 6), (1, 6)]].concat()
    );
}

#[test]
fn a_mount_point_in_which_a_get_was_killed_is_free() {
    let world = World::with_tree(95);
    let mount = Mount::new(world.path("volume"), "-t tmpfs tmpfs");
    goes_on(&world, &mount.0, (&world.env.root(), "volume"));
}

#[test]
fn the_directory_that_one_is_in_is_free_after_a_kill() {
    let world = World::with_tree(96);
    let here = world.path("here");
    fs::create_dir(&here).unwrap();
    goes_on(&world, &here, (&here, "."));
    // Also if the destination is named, so that it is replaced as a whole.
    killed(&world, (&here, "."), ("renameat2", 3));
    world.env.ok(["get", REF, "here"]);
    assert_same(&world.path("source"), &here);
}

#[test]
fn a_taking_back_that_is_killed_itself_goes_on() {
    let world = World::with_tree(100);
    let here = world.path("here");
    fs::create_dir(&here).unwrap();
    // Before the room is made anew, before its note, before the list is in it, and with some entries back in it.
    for kill in [
        ("mkdirat", 1),
        ("linkat", 1),
        ("renameat2", 1),
        ("renameat2", 4),
    ] {
        killed(&world, (&here, "."), ("unlinkat", 4));
        killed(&world, (&here, "."), kill);
        let finished = get(&world, (&here, "."));
        assert_eq!(finished.code, Some(0), "{kill:?}: {finished}");
        assert_same(&world.path("source"), &here);
        emptied(&here);
    }
}

/// Changes a file and puts its size and time back.
fn edited_unseen(path: &Path) {
    let time = fs::metadata(path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(b"mine", 0).unwrap();
    file.set_modified(time).unwrap();
}

#[test]
fn what_somebody_did_after_the_kill_stays() {
    let world = World::with_tree(97);
    let here = world.path("here");
    fs::create_dir(&here).unwrap();
    let edits: [&dyn Fn(); 7] = [
        &|| fs::write(here.join("mine"), "mine").unwrap(),
        &|| fs::write(here.join("hollow/mine"), "mine").unwrap(),
        // The change has no visible sign in size and modification time.
        &|| edited_unseen(&here.join("sub/deep/tiny")),
        &|| edited_unseen(&here.join("big")),
        &|| {
            drop(shell(&format!(
                "chmod 700 '{}'",
                here.join("big").display()
            )))
        },
        &|| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(here.join("sub"), "user.note", b"mine", flags).unwrap();
        },
        &|| {
            fs::remove_file(here.join("big")).unwrap();
            fs::write(here.join("big"), "mine").unwrap();
        },
    ];
    let kills = [("unlinkat", 1), ("unlinkat", 4)];
    let all = kills
        .into_iter()
        .flat_map(|kill| edits.iter().map(move |edit| (kill, edit)));
    for (at, (kill, edit)) in all.enumerate() {
        killed(&world, (&here, "."), kill);
        // Longer than the times of one move may differ.
        std::thread::sleep(Duration::from_millis(500));
        edit();
        let before = listed(&here);
        let finished = get(&world, (&here, "."));
        assert_eq!(finished.code, Some(5), "{at}: {finished}");
        assert!(
            finished.stderr.contains("a killed get left"),
            "{at}: {finished}"
        );
        // A get beside it does not remove it either.
        let finished = get(&world, (&here, "beside"));
        assert_eq!(finished.code, Some(0), "{at}: {finished}");
        fs::remove_dir_all(here.join("beside")).unwrap();
        assert_eq!(listed(&here), before, "{at}");
        emptied(&here);
    }
    // A file system that was mounted there meanwhile stays, too.
    killed(&world, (&here, "."), ("unlinkat", 1));
    let kept = world.path("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "mine").unwrap();
    let bound = Mount::new(
        here.join("sub/deep"),
        &format!("--bind '{}'", kept.display()),
    );
    let finished = get(&world, (&here, "."));
    assert_eq!(finished.code, Some(5), "{finished}");
    drop(bound);
    assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "mine");
}

#[test]
fn a_get_that_works_in_a_destination_is_left_in_peace() {
    let world = World::with_tree(98);
    let mount = Mount::new(world.path("volume"), "-t tmpfs tmpfs");
    let root = world.env.root();
    killed(&world, (&root, "volume"), ("renameat2", 1));
    let (rooms, _) = parts(&mount.0);
    let note = fs::File::open(rooms[0].join("room")).unwrap();
    rustix::fs::flock(&note, FlockOperation::NonBlockingLockExclusive).unwrap();
    let before = listed(&mount.0);
    let finished = get(&world, (&root, "volume"));
    assert_eq!(finished.code, Some(5), "{finished}");
    assert!(finished.stderr.contains("another get"), "{finished}");
    assert_eq!(listed(&mount.0), before);
    drop(note);
    world.env.ok(["get", REF, "volume"]);
    assert_same(&world.path("source"), &mount.0);
}

#[test]
fn a_removal_that_ends_midway_leaves_its_proof() {
    let world = World::with_tree(99);
    let root = world.env.root();
    killed(&world, (&root, "killed"), ("renameat2", 1));
    let made = parts(&root).0.remove(0);
    let nonce = made
        .to_str()
        .unwrap()
        .rsplit('-')
        .next()
        .unwrap()
        .to_owned();
    let mut mounts = Vec::new();
    for at in 0..8 {
        let room = world.path(format!(".store-get-{at}").as_str());
        shell(&format!(
            "cp -a '{0}' '{1}' && sed -i 's/{nonce}/{at}/' '{1}/room'",
            made.display(),
            room.display()
        ));
        mounts.push(Mount::new(room.join(format!("in-{at}")), "-t tmpfs tmpfs"));
    }
    world.env.ok(["get", REF, "one"]);
    let (rooms, _) = parts(&root);
    assert_eq!(rooms.len(), 8, "{rooms:?}");
    for room in rooms {
        assert!(room.join("room").exists(), "{}", room.display());
    }
    drop(mounts);
    world.env.ok(["get", REF, "two"]);
    assert!(parts(&root).0.is_empty(), "{:?}", parts(&root).0);
}

#[test]
fn what_is_being_built_in_a_source_is_no_part_of_it() {
    let world = World::with_tree(102);
    let here = world.path("here");
    fs::create_dir_all(here.join("deep")).unwrap();
    fs::write(here.join("mine"), "mine").unwrap();
    killed(&world, (&here.join("deep"), "copy"), ("renameat2", 1));
    let room = here.join(".store-materialize-0123");
    fs::create_dir(&room).unwrap();
    std::os::unix::fs::symlink("4567", room.join(".store-nonce")).unwrap();
    fs::write(room.join("sub"), "not whole").unwrap();
    // What is only called like one is somebody's.
    fs::create_dir(here.join(".store-get-mine")).unwrap();
    fs::write(here.join(".store-get-mine/room"), "mine").unwrap();
    let rooms = shell(&format!(
        "cd '{}' && find . -type d -name '.store-*'",
        here.display()
    ));
    assert_eq!(rooms.lines().count(), 3, "{rooms}");
    let target = "project/here/tree";
    let finished = world.env.store(["put", "here", target]);
    assert_eq!(finished.code, Some(0), "{finished}");
    assert!(
        finished
            .stderr
            .contains(" and 1 more: left out, since a copy or a tree is being built there"),
        "{finished}"
    );
    let listed = world.env.ok(["ls", "-r", target]);
    assert!(!listed.contains("sub"), "{listed}");
    assert!(listed.contains(".store-get-mine/room"), "{listed}");
    // Nor is it a difference.
    let finished = world.env.store(["diff", target, "here"]);
    assert_eq!(
        (finished.code, &*finished.stdout),
        (Some(0), &b""[..]),
        "{finished}"
    );
    // A copy that is whole, but that its room is still going.
    let inside = world.path("inside");
    fs::create_dir(&inside).unwrap();
    killed(&world, (&inside, "."), ("unlinkat", 4));
    assert_eq!(parts(&inside).0.len(), 1);
    world.env.ok(["put", "inside", "project/here/copy"]);
    let listed = world.env.ok(["ls", "-r", "project/here/copy"]);
    assert!(!listed.contains(".store-get"), "{listed}");
}
