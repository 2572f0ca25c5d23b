//! Ways to a destination in which another user has symlinks, or exchanges directories: nothing is made or replaced
//! where these lead.

use std::fs;
use std::os::unix::fs::{lchown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::users::{Host, MALLORY, VICTIMS};
use crate::world::{REF, set_mode};

#[test]
fn a_symlink_of_another_user_leads_no_tree_elsewhere() {
    for (seed, victim) in (324..).zip(VICTIMS) {
        let host = Host::new(seed, victim);
        fs::create_dir(host.at("job/real")).unwrap();
        host.give(&host.at("job/real"), victim);
        for (name, maker) in [("theirs", MALLORY), ("own", victim)] {
            symlink(host.at("job/real"), host.at(name)).unwrap();
            lchown(host.at(name), Some(maker), Some(maker)).unwrap();
        }
        for verb in ["materialize", "get"] {
            let through = host.at("theirs").join(verb);
            let done = host.run(&[verb, REF, through.to_str().unwrap()]);
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.code(), Some(5), "{said}");
            let expected = format!("leads through {}, a symlink", host.at("theirs").display());
            assert!(said.contains(&expected), "{said}");
        }
        assert_eq!(fs::read_dir(host.at("job/real")).unwrap().count(), 0);
        host.makes("own/tree");
        assert!(host.at("job/real/tree").is_dir());
    }
}

/// A directory above the destination is exchanged repeatedly: the tree is made in one of the two places, and the
/// command removes nothing that it did not make.
#[test]
fn a_tree_whose_way_is_exchanged_takes_nothing_elsewhere() {
    let host = Host::new(328, 1001);
    for place in ["ours", "theirs"] {
        fs::create_dir(host.at(place)).unwrap();
        host.give(&host.at(place), 1001);
    }
    host.makes("theirs/job");
    let kept = host.at("ours/job");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("mine"), "mine").unwrap();
    host.give(&kept, 1001);
    let (ours, theirs) = (host.at("ours"), host.at("theirs"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    &ours,
                    rustix::fs::CWD,
                    &theirs,
                    rustix::fs::RenameFlags::EXCHANGE,
                )
                .unwrap();
            }
        });
        for round in 0..24 {
            let verb = if round % 2 == 0 {
                "--exact"
            } else {
                "--verify"
            };
            // Any exit code is fine; only the remaining files count.
            let done = host.run(&[
                "materialize",
                verb,
                REF,
                theirs.join("job").to_str().unwrap(),
            ]);
            assert_ne!(done.status.code(), None, "round {round}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mine = [&ours, &theirs].map(|place| fs::read(place.join("job/mine")).ok());
    assert!(mine.contains(&Some(b"mine".to_vec())), "{mine:?}");
}

/// A directory of another user is exchanged repeatedly with that user's symlink to a directory of the victim: whatever
/// is checked before, nothing is made or replaced where the symlink leads.
#[test]
fn a_way_that_becomes_a_symlink_of_another_user_leads_nowhere() {
    for (seed, victim) in (330..).zip(VICTIMS) {
        let host = Host::new(seed, victim);
        let private = host.at("job/private");
        fs::create_dir_all(private.join("tree")).unwrap();
        fs::write(private.join("tree/mine"), "mine").unwrap();
        host.give(&host.at("job"), victim);
        let theirs = host.at("theirs");
        fs::create_dir_all(theirs.join("way")).unwrap();
        symlink(&private, theirs.join("link")).unwrap();
        host.give(&theirs, MALLORY);
        set_mode(&theirs.join("way"), 0o777);
        let is_over = AtomicBool::new(false);
        let (way, link) = (theirs.join("way"), theirs.join("link"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let (at, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
                    rustix::fs::renameat_with(at, &way, at, &link, flags).unwrap();
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            for round in 0..20 {
                let tree = way.join("tree");
                let other = way.join(format!("other{round}"));
                let [tree, other] = [&tree, &other].map(|path| path.to_str().unwrap());
                // Any exit code is fine; only what is left counts.
                host.run(&["materialize", "--force", "--exact", REF, tree]);
                host.run(&["get", REF, other]);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let names = |dir: &Path| -> Vec<_> {
            let entries = fs::read_dir(dir).unwrap();
            entries.map(|entry| entry.unwrap().file_name()).collect()
        };
        assert_eq!(names(&private), ["tree"]);
        assert_eq!(names(&private.join("tree")), ["mine"]);
    }
}
