//! Disks that are full, out of inodes or read-only: a clear error with a remedy, exit code 1, nothing partly published,
//! old refs readable, and the next put works once there is space.

use std::fs;
use std::io::Write;
use std::path::Path;

use store::log::reserve::{RESERVE_PIECE_BYTES, RESERVE_PIECES};
use store::remote::{Objects, Read};
use support::{Finished, effort, environment};

use crate::mounts::Mount;
use crate::witness::Witness;

const REF: &str = "project/full/data";
const TREE_BYTES: usize = 4_000_000;

#[test]
fn a_put_of_more_than_fits_on_ext4() {
    let mount = Mount::ext4(64, &[], "defaults");
    let mut witness = Witness::new(&mount.path().join("store"), 2, TREE_BYTES);
    witness.put_ok("0", REF);
    let ballast = mount.path().join("ballast");
    fs::write(&ballast, vec![1; 20 << 20]).unwrap();
    witness.env.write("large/file", noise(80 << 20));
    check_is_full(&witness.put("large", REF));
    assert_eq!(witness.check("full").len(), 1);
    fs::remove_file(ballast).unwrap();
    witness.put_ok("1", REF);
    assert_eq!(witness.check("with room again").len(), 2);
}

/// Various amounts of free space, so that the disk is full in the middle of a pack, at the segment, or at the log
/// entry.
#[test]
fn every_amount_of_room() {
    let mount = Mount::tmpfs("size=64M");
    let mut witness = Witness::without_store(&mount.path().join("store"), 2, TREE_BYTES);
    let step = effort(640 << 10, 64 << 10);
    let mut has_failed = false;
    for (at, room) in (0_u64..).step_by(step).enumerate() {
        let place = mount.path().join(at.to_string());
        witness.moved_to(&place);
        witness.env.ok(["init".as_ref(), place.as_os_str()]);
        let ballast = mount.path().join("ballast");
        fill(&ballast, room);
        let finished = witness.put("1", &format!("{REF}/{at}"));
        fs::remove_file(ballast).unwrap();
        if finished.code == Some(0) {
            assert!(has_failed);
            return;
        }
        has_failed = true;
        check_is_full(&finished);
        assert_eq!(witness.found("full").unwrap(), [""; 0]);
        let again: Finished = witness.command("1", REF).output().unwrap().into();
        assert_eq!(again.code, Some(0), "{again}");
        assert_eq!(witness.found("with room again").unwrap().len(), 1);
        fs::remove_dir_all(place).unwrap();
    }
}

/// Drops on a full disk free the space that the put had lacked, since condemning takes almost none.
#[test]
fn a_store_on_a_full_disk_is_collected() {
    let mount = Mount::tmpfs("size=64M");
    let store = mount.path().join("store");
    let mut witness = Witness::new(&store, 2, TREE_BYTES);
    witness.put_ok("0", REF);
    fill(&mount.path().join("ballast"), 256 << 10);
    witness.env.write("large/file", noise(2_000_000));
    check_is_full(&witness.put("large", "project/full/more"));
    let store = store.to_str().unwrap();
    witness.env.ok(["--store", store, "rm", REF]);
    witness.env.ok(["--store", store, "gc", "--grace", "0"]);
    let finished = witness.put("large", "project/full/more");
    assert_eq!(finished.code, Some(0), "{finished}");
    witness.env.ok(["--store", store, "verify", "--read-data"]);
}

/// There is not a byte for the entry of an `rm` or for a lock: the store gives up its reserve, and refills it when
/// there is space.
#[test]
fn a_disk_that_is_full_to_the_last_byte_is_cleaned() {
    for mount in [
        Mount::tmpfs("size=64M"),
        Mount::ext4(64, &[], "defaults"),
        Mount::xfs("defaults"),
    ] {
        let place = mount.path().join("store");
        let mut witness = Witness::new(&place, 2, TREE_BYTES);
        witness.put_ok("0", REF);
        let reserve = || -> u64 {
            let pieces = fs::read_dir(place.join("reserve")).unwrap();
            pieces
                .map(|piece| piece.unwrap().metadata().unwrap().len())
                .sum()
        };
        let whole = RESERVE_PIECES * RESERVE_PIECE_BYTES as u64;
        assert_eq!(reserve(), whole);
        fill(&mount.path().join("ballast"), 1 << 20);
        fill_to_the_last_byte(&mount.path().join("last"));
        check_is_full(&witness.put("1", REF));
        assert_eq!(
            reserve(),
            whole,
            "a put does not take what a cleaning needs"
        );
        let run = at_home_on(&mount, &place);
        run(&["rm", REF]);
        assert!(reserve() < whole);
        // Another process takes the freed space before the collector.
        fill_to_the_last_byte(&mount.path().join("more"));
        run(&["gc", "--grace", "0"]);
        assert_eq!(reserve(), whole);
        run(&["verify"]);
        witness.env.write("less/file", noise(1_000_000));
        witness.put_ok("less", "project/full/less");
        run(&["verify", "--read-data"]);
    }
}

/// The live half of a pack cannot be copied for lack of space. The collector does everything else and leaves no partial
/// copy, and the next run with space continues.
#[test]
fn a_copy_that_does_not_fit_waits() {
    let mount = Mount::tmpfs("size=64M");
    let place = mount.path().join("store");
    let witness = Witness::new(&place, 1, TREE_BYTES);
    witness.env.write("both/one", noise(3_000_000));
    witness.env.write("both/two", vec![7; 3_000_000]);
    witness.env.write("half/one", noise(3_000_000));
    witness
        .env
        .write("dead/file", &noise(9_000_000)[8_000_000..]);
    let store = place.to_str().unwrap();
    let run = |words: &[&str]| witness.env.ok([&["--store", store], words].concat());
    for (tree, name) in [("dead", "c"), ("0", "b"), ("both", "a"), ("half", "d")] {
        run(&["put", tree, &format!("project/full/{name}")]);
    }
    for name in ["a", "c"] {
        run(&["rm", &format!("project/full/{name}")]);
    }
    let ballast = mount.path().join("ballast");
    fill(&ballast, 512 << 10);
    let collect = || -> serde_json::Value {
        let told = run(&["gc", "--grace", "0", "--max-unused", "0", "--json"]);
        serde_json::from_str(&told).unwrap()
    };
    let report = collect();
    assert_eq!(report["disk_full"], true, "{report}");
    assert!(
        report["freed_bytes"].as_u64().unwrap() > 1_000_000,
        "{report}"
    );
    fs::remove_file(ballast).unwrap();
    let report = collect();
    assert_eq!(report["disk_full"], false, "{report}");
    assert_eq!(report["held"]["by_age"]["bytes"], 0, "{report}");
    run(&["verify", "--read-data"]);
    witness
        .env
        .ok(["--store", store, "get", "project/full/d", "out"]);
    support::assert_same_tree(&witness.env.path("half"), &witness.env.path("out"));
}

/// The copy of the live chunks fits, but the objects after it do not, or almost do not. Then the copy is removed, and
/// the disk is as before. Nothing is ever lost.
#[test]
fn a_copy_that_almost_fits_is_taken_back() {
    let mount = Mount::tmpfs("size=64M");
    let place = mount.path().join("store");
    let mut witness = Witness::without_store(&place, 1, 0);
    // The copy consists of one pack.
    witness.env = witness.env.in_full_portions();
    witness.env.write("both/one", noise(3_000_000));
    witness
        .env
        .write("both/two", &noise(7_000_000)[3_000_000..]);
    witness.env.write("half/one", noise(3_000_000));
    let store = place.to_str().unwrap();
    let run = |words: &[&str]| witness.env.ok([&["--store", store], words].concat());
    run(&["init"]);
    run(&["put", "both", "project/full/both"]);
    run(&["put", "half", "project/full/half"]);
    run(&["rm", "project/full/both"]);
    let collect = |more: &[&str]| -> serde_json::Value {
        let words = ["gc", "--grace", "0", "--max-unused", "0", "--json"];
        serde_json::from_str(&run(&[&words[..], more].concat())).unwrap()
    };
    collect(&["--no-repack"]);
    let objects = Objects::existing_directory(&place).unwrap();
    let there = || -> Vec<String> {
        let found = ["packs", "segments"].map(|prefix| objects.list(prefix).unwrap());
        found.into_iter().flatten().map(|info| info.key).collect()
    };
    let before = there();
    let mut ended = 0;
    // A page each for the table of the copy, other packs, the segment, and the entry.
    for room in (2_990_000..3_200_000).step_by(4096) {
        let ballast = mount.path().join("ballast");
        fill(&ballast, room);
        let report = collect(&[]);
        fs::remove_file(ballast).unwrap();
        if report["disk_full"] == false {
            ended = room;
            break;
        }
        assert_eq!(there(), before, "{room} bytes free");
    }
    assert!(ended > 3_000_000, "{ended}");
    run(&["verify", "--read-data"]);
    run(&["get", "project/full/half", "out"]);
    support::assert_same_tree(&witness.env.path("half"), &witness.env.path("out"));
}

/// There is no inode for the entry of an `rm`, except that of a piece of the reserve.
#[test]
fn a_file_system_without_inodes_is_cleaned() {
    for mount in [
        Mount::tmpfs("size=64M,nr_inodes=100"),
        Mount::ext4(64, &["-N", "100"], "defaults"),
    ] {
        let place = mount.path().join("store");
        let mut witness = Witness::new(&place, 2, TREE_BYTES);
        witness.put_ok("0", REF);
        witness.put_ok("1", "project/full/other");
        let reserve = || {
            let found = fs::read_dir(place.join("reserve")).unwrap();
            // The file by which a collector compares the clocks is no piece.
            let pieces = found.filter(|entry| entry.as_ref().unwrap().file_name() != "clock");
            pieces.count() as u64
        };
        let ballast = mount.path().join("ballast");
        fs::create_dir(&ballast).unwrap();
        take_inodes(&ballast);
        witness.env.write("more/file", noise(100_000));
        check_is_full(&witness.put("more", "project/full/more"));
        assert_eq!(reserve(), RESERVE_PIECES);
        let run = at_home_on(&mount, &place);
        run(&["rm", REF]);
        assert!(reserve() < RESERVE_PIECES);
        // Another process takes the freed inodes before the collector.
        take_inodes(&ballast);
        run(&["gc", "--grace", "0"]);
        run(&["verify", "--read-data"]);
        fs::remove_dir_all(ballast).unwrap();
        run(&["gc"]);
        assert_eq!(reserve(), RESERVE_PIECES);
        witness.put_ok("more", "project/full/more");
        run(&["verify", "--read-data"]);
    }
}

#[test]
fn no_inode_is_left() {
    let mount = Mount::tmpfs("size=64M,nr_inodes=60");
    let mut witness = Witness::new(&mount.path().join("store"), 2, TREE_BYTES);
    witness.put_ok("0", REF);
    let ballast = mount.path().join("ballast");
    fs::create_dir(&ballast).unwrap();
    take_inodes(&ballast);
    check_is_full(&witness.put("1", REF));
    assert_eq!(witness.check("without inodes").len(), 1);
    fs::remove_dir_all(ballast).unwrap();
    witness.put_ok("1", REF);
    assert_eq!(witness.check("with inodes again").len(), 2);
}

#[test]
fn a_read_only_file_system() {
    let mount = Mount::ext4(64, &[], "defaults");
    let mut witness = Witness::new(&mount.path().join("store"), 2, TREE_BYTES);
    witness.put_ok("0", REF);
    mount.remount("ro");
    let finished = witness.put("1", REF);
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(
        finished
            .stderr
            .contains("the file system is mounted read-only;"),
        "{finished}"
    );
    assert_eq!(witness.check("read-only").len(), 1);
    let store = mount.path().join("store");
    witness
        .env
        .ok(["--store", store.to_str().unwrap(), "get", REF, "out"]);
    let made = ["--store", store.to_str().unwrap(), "materialize", REF];
    let told = witness.env.store([&made[..], &["made"]].concat());
    assert_eq!((told.code, told.stderr.as_str()), (Some(0), ""), "{told}");
    mount.remount("rw");
    assert!(!store.join("uses").exists());
    witness.put_ok("1", REF);
}

/// The requested space stays free after a checkpoint, too. Bytes that the store already has take no space.
#[test]
fn a_watch_leaves_the_room_that_it_was_told_to() {
    const CKPT: &str = "project/llama/ckpt";
    let mount = Mount::tmpfs("size=64M");
    let (env, place) = (environment!(), mount.path().join("store"));
    env.write("out/checkpoint-1/weights.bin", noise(20 << 20));
    env.write("out/checkpoint-1/trainer_state.json", "{}");
    let store = |words: &[&str]| env.store([&["--store", place.to_str().unwrap()], words].concat());
    let ok = |words: &[&str]| {
        let done = store(words);
        assert_eq!(done.code, Some(0), "{done}");
    };
    ok(&["init"]);
    let watch = |free: u64| {
        let free = free.to_string();
        store(&["watch", "out", CKPT, "--once", "--free", &free])
    };
    fill(&mount.path().join("ballast"), 50 << 20);
    for (free, takes) in [(40_u64 << 20, "takes 21"), (55 << 20, "takes up to 21")] {
        let refused = watch(free);
        assert_eq!(refused.code, Some(6), "{refused}");
        let (_, last) = refused.stderr.split_once("error: ").unwrap();
        let takes = format!("checkpoint-1: not published: {takes}");
        let place = place.to_str().unwrap();
        for said in [&*takes, "are free at", place, "(--free)", "store gc"] {
            assert!(last.contains(said), "{said}: {refused}");
        }
    }
    assert_eq!(store(&["history", CKPT]).code, Some(3));
    // Once the same bytes are in the store under another name, the checkpoint takes only a version.
    ok(&["put", "out/checkpoint-1", "project/llama/other"]);
    let done = watch(25 << 20);
    assert_eq!(done.code, Some(0), "{done}");
    env.write("out/checkpoint-2/weights.bin", &noise(25 << 20)[..21 << 20]);
    env.write("out/checkpoint-2/trainer_state.json", "{}");
    env.write("out/checkpoint-3/weights.bin", "few");
    env.write("out/checkpoint-3/trainer_state.json", "{}");
    let refused = watch(29 << 20);
    assert_eq!(refused.code, Some(6), "{refused}");
    let behind = "checkpoint-3: not published: it comes after checkpoint-2";
    assert!(refused.stderr.contains(behind), "{refused}");
    let done = watch(25 << 20);
    assert_eq!(done.code, Some(0), "{done}");
}

fn check_is_full(finished: &Finished) {
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(
        finished.stderr.contains("No space left on device"),
        "{finished}"
    );
    assert!(finished.stderr.contains("free some space"), "{finished}");
}

/// Incompressible bytes.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

/// Creates files until there are no more inodes.
fn take_inodes(dir: &Path) {
    let name = |number: u32| dir.join(number.to_string());
    let files = (0..).map(name).filter(|path| !path.exists());
    files.map(fs::File::create).find(Result::is_err);
}

/// Creates a file that takes all free space.
fn fill_to_the_last_byte(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    let mut len = 1 << 20;
    while len > 0 {
        match file.write(&noise(len)) {
            Ok(written) => assert!(written > 0),
            Err(_) => len /= 2,
        }
    }
    file.sync_all().unwrap();
}

/// Creates a file that leaves about `room` bytes free on its file system.
fn fill(path: &Path, room: u64) {
    let file = fs::File::create(path).unwrap();
    let disk = rustix::fs::fstatvfs(&file).unwrap();
    let free = disk.f_bavail * disk.f_frsize;
    rustix::fs::fallocate(
        &file,
        rustix::fs::FallocateFlags::empty(),
        0,
        free.saturating_sub(room).max(1),
    )
    .unwrap();
}

/// Runs the command with the store at `place`, and with a home on the same full disk. Asserts that it succeeds.
fn at_home_on(mount: &Mount, place: &Path) -> impl Fn(&[&str]) {
    let (env, home) = (environment!(), mount.path().join("home"));
    let store = place.to_str().unwrap().to_owned();
    move |words| {
        let mut command = env.command([&["--store", &store], words].concat());
        let finished: Finished = command.env("HOME", &home).output().unwrap().into();
        assert_eq!(finished.code, Some(0), "{finished}");
    }
}
