//! Marks and notes that another user planted or redirected: nothing is deleted because of them. What a process of the
//! user left is still deleted if it says so itself.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use crate::users::{Host, MALLORY, VICTIMS};
use crate::world::{REF, World, files_below, set_mode, shell};

/// Makes a held tree as the victim, kills its process, and replaces the tree by something else, with the mark
/// redirected. Returns the pool.
fn abandon(host: &Host, destination: &Path) -> PathBuf {
    let pool = host.at("job/pool");
    let arguments = ["materialize", "--ephemeral", "--json", "--pool"];
    let options = [pool.to_str().unwrap(), REF, destination.to_str().unwrap()];
    let mut holder = host
        .command(&[&arguments[..], &options[..]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(holder.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    assert!(destination.join("big").exists(), "{said}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    pool
}

/// Replaces the tree at `destination` by a directory of the victim's own, and redirects the mark.
fn precious(host: &Host, destination: &Path, pool: &Path) {
    let identity = |path: &Path| {
        let said = shell(&format!("stat -c '%i %.9W' '{}'", path.display()));
        let (number, born) = said.trim().split_once(' ').unwrap();
        let (secs, nanos) = born.split_once('.').unwrap();
        let parsed = |text: &str| text.trim_start_matches('0').parse().unwrap_or(0);
        [parsed(number), parsed(secs), parsed(nanos)]
    };
    let names = ["number", "born_secs", "born_nanos"];
    let fields = |values: [u64; 3]| -> Vec<String> {
        names
            .iter()
            .zip(values)
            .map(|(name, value)| format!("\"{name}\":{value}"))
            .collect()
    };
    let old = fields(identity(destination));
    fs::rename(destination, destination.with_extension("aside")).unwrap();
    fs::create_dir(destination).unwrap();
    fs::write(destination.join("thesis"), "years").unwrap();
    host.give(destination, host.victim);
    let new = fields(identity(destination));
    let marks = files_below(&pool.join("trees"));
    let mark = marks
        .iter()
        .find(|mark| mark.extension().is_none())
        .unwrap();
    let mut text = fs::read_to_string(mark).unwrap();
    for (old, new) in old.iter().zip(&new) {
        assert!(text.contains(old), "{text}: {old}");
        text = text.replace(old, new);
    }
    fs::write(mark, text).unwrap();
}

#[test]
fn a_mark_deletes_nothing_that_does_not_say_so_itself() {
    for (seed, victim) in (310..).zip(VICTIMS) {
        let host = Host::new(seed, victim);
        let destination = host.at("job/precious");
        let pool = abandon(&host, &destination);
        precious(&host, &destination, &pool);
        // In the victim's own pool, which others could once write to.
        host.run(&["pool", "status", "--pool", pool.to_str().unwrap()]);
        assert!(destination.join("thesis").exists());
        // In a planted pool.
        fs::rename(&pool, host.beside()).unwrap();
        host.give(&host.beside(), MALLORY);
        host.makes("job/out");
        assert!(destination.join("thesis").exists());
        // In a pool in which only the marks were planted.
        host.give(&host.beside(), victim);
        for mark in files_below(&host.beside().join("trees")) {
            host.give(&mark, MALLORY);
        }
        host.makes("job/again");
        assert!(destination.join("thesis").exists());
    }
}

#[test]
fn a_tree_that_ends_with_a_process_is_given_back_after_its_death() {
    for (seed, victim) in (312..).zip(VICTIMS) {
        let host = Host::new(seed, victim);
        let destination = host.at("job/held");
        let pool = abandon(&host, &destination);
        let status = || host.run(&["pool", "status", "--pool", pool.to_str().unwrap()]);
        // A directory with the same nonce but another inode stays.
        shell(&format!("cp -a '{0}' '{0}.copy'", destination.display()));
        fs::rename(&destination, host.at("job/moved")).unwrap();
        fs::rename(host.at("job/held.copy"), &destination).unwrap();
        status();
        assert!(destination.join("big").exists());
        // The tree itself and its mark are removed.
        shell(&format!("rm -r '{}'", destination.display()));
        status();
        let again = abandon(&host, &destination);
        assert_eq!(again, pool);
        status();
        assert!(!destination.exists());
        assert!(files_below(&pool.join("trees")).is_empty());
        let hidden: Vec<_> = fs::read_dir(host.at("job"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with('.'))
            .collect();
        assert!(hidden.is_empty(), "{hidden:?}");
    }
}

#[test]
fn a_note_of_a_room_deletes_nothing_that_does_not_say_so_itself() {
    for (seed, victim) in (314..).zip(VICTIMS) {
        let host = Host::new(seed, victim);
        host.makes("job/first");
        let pool = host.beside();
        let room = host.at("job/.store-materialize-precious");
        let other = host.at("job/thesis");
        for directory in [&room, &other] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("thesis"), "years").unwrap();
            host.give(directory, victim);
        }
        // Empty, and without the name of a room.
        let empty = host.at("job/empty");
        fs::create_dir(&empty).unwrap();
        host.give(&empty, victim);
        // A room of another user, even with the right nonce.
        let theirs = host.at(".store-materialize-theirs");
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("file"), "theirs").unwrap();
        symlink("cafe", theirs.join(".store-nonce")).unwrap();
        host.give(&theirs, MALLORY);
        let owner = "0123456789abcdef0123456789abcdef";
        // A process that never existed: its number is too large.
        let dead = format!(
            "{{\"pid\":2147483647,\"started\":1,\"boot\":{:?},\"namespace\":{:?},\"host\":{:?}}}",
            fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .unwrap()
                .trim(),
            fs::read_link("/proc/self/ns/pid")
                .unwrap()
                .to_str()
                .unwrap(),
            rustix::system::uname().nodename().to_str().unwrap(),
        );
        fs::write(pool.join("owners").join(owner), dead).unwrap();
        for (name, led) in [("a", &room), ("b", &other), ("c", &theirs), ("d", &empty)] {
            for nonce in ["", ".", ".cafe"] {
                symlink(led, pool.join(format!("rooms/{owner}.{name}{nonce}"))).unwrap();
            }
        }
        host.give(&pool, victim);
        host.makes("job/second");
        assert!(!pool.join("owners").join(owner).exists(), "it was swept");
        assert!(room.join("thesis").exists());
        assert!(other.join("thesis").exists());
        assert!(theirs.join("file").exists());
        assert!(empty.exists());
    }
}

#[test]
fn a_tree_that_cannot_be_looked_at_is_not_gone() {
    let host = Host::new(320, 1001);
    fs::create_dir(host.at("job/above")).unwrap();
    host.give(&host.at("job/above"), 1001);
    host.makes("job/above/out");
    for mark in files_below(&host.beside().join("trees")) {
        let file = fs::File::options().write(true).open(mark).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(48 * 3600))
            .unwrap();
    }
    let pool = host.beside();
    let evict = || {
        let arguments = ["pool", "evict", "--to", "1TB", "--json", "--pool"];
        let done = host.run(&[&arguments[..], &[pool.to_str().unwrap()]].concat());
        let said: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        said["marks"].clone()
    };
    host.give(&host.at("job/above"), 0);
    set_mode(&host.at("job/above"), 0o700);
    assert_eq!(evict(), 0);
    shell(&format!("rm -r '{}'", host.at("job/above").display()));
    assert_eq!(evict(), 1);
}

/// As many as the kernel follows, and no more.
#[test]
fn a_pool_may_lie_behind_forty_links() {
    let world = World::with_tree(334);
    fs::create_dir(world.path("pool-0")).unwrap();
    for number in 1..=41 {
        let target = format!("pool-{}", number - 1);
        symlink(target, world.path(&format!("pool-{number}"))).unwrap();
    }
    world.make("out", &["--pool", "pool-40"]);
    assert!(world.path("pool-0/files").is_dir());
    let refused = world
        .env
        .store(["materialize", REF, "other", "--pool", "pool-41"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("symbolic links"), "{refused}");
}
