//! Power cuts during and after materialize, with pool and destination on a separate file system: whatever the cut
//! leaves, the next run makes the right bytes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use support::{Random, effort, environment};

use crate::mounts::Mount;

const REF: &str = "project/power/data";

#[test]
fn the_next_materialize_is_right_after_power_cuts_on_ext4() {
    cut_again_and_again(&Mount::ext4(512, &[], "commit=1"), 21);
}

#[test]
fn the_next_materialize_is_right_after_power_cuts_on_ext4_that_never_writes_by_itself() {
    cut_again_and_again(&Mount::ext4(512, &[], "commit=600"), 22);
}

#[test]
fn the_next_materialize_is_right_after_power_cuts_on_xfs() {
    cut_again_and_again(&Mount::xfs("defaults"), 23);
}

fn cut_again_and_again(mount: &Mount, seed: u64) {
    let env = environment!();
    let mut random = Random::new(seed);
    for number in 0..300 {
        // Empty, copied, linked, of several chunks, and large files.
        let len = [0, 50, 900, 9_000, 40_000, 150_000, 700_000][number % 7];
        env.write(
            format!("source/{}/{number}", number % 11),
            random.bytes(len),
        );
    }
    let mut sparse = random.bytes(4_000_000);
    sparse[500_000..3_500_000].fill(0);
    env.write("source/sparse", sparse);
    env.ok(["put", "source", REF]);
    let pool = mount.path().join("pool");
    let make = |name: &str, more: &[&str]| {
        let out = mount.path().join(name);
        let arguments = ["materialize", "--json", "--pool", pool.to_str().unwrap()];
        let place = [REF, out.to_str().unwrap()];
        env.command([&arguments, more, &place].concat())
    };
    let began = Instant::now();
    assert!(make("first", &[]).status().unwrap().success());
    let typical = began.elapsed();
    for number in 0..effort(4, 60) {
        let what = format!("seed {seed}, round {number}");
        let more: &[&str] = if number % 2 == 0 {
            &[]
        } else {
            &["--copy-below", "0"]
        };
        if number % 3 == 0 {
            for name in ["pool", "out", "first"] {
                drop(std::fs::remove_dir_all(mount.path().join(name)));
            }
        } else {
            std::fs::remove_dir_all(mount.path().join("pool/files")).unwrap();
            std::fs::create_dir(mount.path().join("pool/files")).unwrap();
        }
        let mut job = make("out", more).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(typical * u32::try_from(random.below(130)).unwrap() / 100);
        mount.cut_power();
        println!("{what}: {}", job.wait().unwrap());
        mount.again();
        boot(&pool);
        for name in ["out", "first", "fresh"] {
            let next = make(name, more).output().unwrap();
            let said = String::from_utf8_lossy(&next.stderr);
            assert!(next.status.success(), "{what}: {name}: {said}");
            // A file without its bytes would look as if somebody had written to it.
            let report: serde_json::Value = serde_json::from_slice(&next.stdout).unwrap();
            assert_eq!(report["damaged"], serde_json::json!([]), "{what}: {name}");
            assert_same(&env.path("source"), &mount.path().join(name), &what);
        }
        std::fs::remove_dir_all(mount.path().join("fresh")).unwrap();
        env.ok(["pool", "verify", "--pool", pool.to_str().unwrap()]);
        for (dir, prefix) in [
            ("", ".store"),
            ("pool/tmp", ""),
            ("pool/claims", ""),
            ("pool/rooms", ""),
        ] {
            let left = std::fs::read_dir(mount.path().join(dir)).unwrap();
            let mut names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let found = names.find(|name| name.starts_with(prefix));
            assert_eq!(found, None, "{what}: left in {dir:?}");
        }
    }
}

/// Compares names and bytes; linked files do not have the times of the source.
fn assert_same(source: &Path, found: &Path, what: &str) {
    let diff = Command::new("diff")
        .arg("-r")
        .args([source, found])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&diff.stdout);
    assert!(diff.status.success(), "{what}: {said}");
}

/// Simulates a reboot after hours. Marks and owners name the previous boot, which proves nothing; their writers have
/// been silent for long, which proves that they are dead.
pub(crate) fn boot(pool: &Path) {
    let long_ago = SystemTime::now() - Duration::from_secs(2 * 3600);
    let now = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for dir in ["trees", "owners"] {
        let Ok(entries) = std::fs::read_dir(pool.join(dir)) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            // In place, since claims are links to owners.
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, text.replace(now.trim(), "before")).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(long_ago).unwrap();
        }
    }
}
