//! Files that are written through a mapping. Their times do not show a store to a page that is already dirty. A put
//! after each change must still see the new bytes, on file systems that write back and on one that never does.

use std::path::Path;
use std::time::Duration;

use store::host::stat_cache::SETTLED_SECS;
use support::{Script, TestEnvironment, environment};

use crate::mounts::Mount;

/// Maps the given files, and fills them with the digit in each line that it reads; `s` writes them back.
const WRITER: &str = "
import mmap, os, sys
maps = []
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDWR)
    maps.append((fd, mmap.mmap(fd, 0)))
print('mapped', flush=True)
for line in sys.stdin:
    for fd, map in maps:
        if line[0] == 's':
            map.flush()
            os.fsync(fd)
        else:
            map[:] = line[0].encode() * len(map)
    print(line.strip(), flush=True)
";
const REF: &str = "project/demo/mapped";
/// A small file, which one worker reads whole after the other small files, and a large file, which is read in blocks.
const FILES: [(&str, usize); 2] = [("b-small", 8192), ("large", 3 << 20)];

/// Waits until earlier writes have settled.
fn settle() {
    std::thread::sleep(Duration::from_secs(SETTLED_SECS) + Duration::from_millis(100));
}

/// Puts the directory. Returns how many files looked unchanged.
fn put(env: &TestEnvironment, dir: &Path) -> u64 {
    let args = ["--store", "store", "put", "--json"];
    let path = dir.to_str().unwrap();
    let said = env.ok(args.into_iter().chain([path, REF]));
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    report["unchanged_files"].as_u64().unwrap()
}

#[track_caller]
fn assert_newest(env: &TestEnvironment, digit: u8) {
    for (name, len) in FILES {
        let spec = format!("{REF}:{name}");
        let bytes = env.store(["--store", "store", "cat", &spec]).stdout;
        assert_eq!(bytes.len(), len, "{name}");
        let wrong = bytes.iter().filter(|byte| **byte != digit).count();
        assert_eq!(wrong, 0, "{name}: bytes that are not {}", char::from(digit));
    }
}

/// `is_remembered` says whether unchanged files are remembered on this file system.
fn each_put_sees_what_was_stored(place: &Path, is_remembered: bool) {
    // Alone, and beside so many files that the whole file system is written back.
    for others in [0, 40] {
        each_put_beside(place, is_remembered, others);
    }
}

fn each_put_beside(place: &Path, is_remembered: bool, others: u64) {
    let env = environment!();
    env.ok(["init", "store"]);
    let dir = place.join(format!("tree-{others}"));
    std::fs::create_dir(&dir).unwrap();
    for number in 0..others {
        std::fs::write(dir.join(format!("a{number}")), format!("{number}")).unwrap();
    }
    for (name, len) in FILES {
        std::fs::write(dir.join(name), vec![b'0'; len]).unwrap();
    }
    let files = FILES.map(|(name, _)| dir.join(name));
    let mut writer = Script::start(WRITER, files, "mapped");
    writer.tell("1");
    settle();
    put(&env, &dir);
    assert_newest(&env, b'1');
    // Stores to pages that were dirty when they were read.
    writer.tell("2");
    settle();
    put(&env, &dir);
    assert_newest(&env, b'2');
    // The same, but written back before the put.
    writer.tell("3");
    writer.tell("s");
    settle();
    put(&env, &dir);
    assert_newest(&env, b'3');
    writer.tell("4");
    writer.tell("s");
    writer.end();
    settle();
    put(&env, &dir);
    assert_newest(&env, b'4');
    // A positive control: the next put does use the stat cache.
    let unchanged = put(&env, &dir);
    assert_eq!(unchanged, if is_remembered { 2 + others } else { 0 });
    assert_newest(&env, b'4');
}

#[test]
fn a_put_sees_what_was_stored_through_a_mapping_on_ext4() {
    each_put_sees_what_was_stored(&Mount::ext4(64, &[], "defaults").path(), true);
}

#[test]
fn a_put_sees_what_was_stored_through_a_mapping_on_xfs() {
    each_put_sees_what_was_stored(&Mount::xfs("defaults").path(), true);
}

#[test]
fn a_put_sees_what_was_stored_through_a_mapping_on_btrfs() {
    each_put_sees_what_was_stored(&Mount::btrfs("defaults").path(), true);
}

#[test]
fn a_put_sees_what_was_stored_through_a_mapping_on_tmpfs() {
    each_put_sees_what_was_stored(&Mount::tmpfs("size=64M").path(), false);
}
