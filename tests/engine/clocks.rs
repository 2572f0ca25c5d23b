//! Clocks of a collector and of whoever keeps the objects that are apart.

use std::path::Path;
use std::sync::Arc;

use gc::collect;
use store::format::{Change, pack_key, segment_key};
use store::remote::testing::scripted::{Scripted, Step, When};
use support::trees;

use crate::between::{REF, commit, pack_of, segment_over, world};
use crate::collect::{eager, run};
use crate::stores::{name, noise};

/// This host's clock leaps two days ahead, and that of the remote does not. That must not end a grace.
#[test]
fn a_grace_does_not_end_by_a_clock_that_is_ahead() {
    use jiff::{SignedDuration, Timestamp};
    use std::time::{Duration, SystemTime};
    let world = world();
    let remote = world.directory("store");
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &name(REF), None).unwrap();
    let mut request = eager();
    request.options.grace_secs = 24 * 3600;
    let report = run(&world, &remote, &request).unwrap();
    assert_eq!(report.freed_bytes, 0, "{report:?}");
    // The clock of the process cannot be changed, so the time of the file that tells the remote's clock is set back.
    request.clock = || Timestamp::now() + SignedDuration::from_hours(48);
    let clock = world.tree("store").join("reserve/clock");
    let script = move |when, step, key: &str| {
        if when == When::After && step == Step::Put && key == store::format::CLOCK_KEY {
            let file = std::fs::File::open(&clock).unwrap();
            let behind = SystemTime::now() - Duration::from_hours(48);
            file.set_modified(behind).unwrap();
        }
    };
    let scripted = Arc::new(Scripted::new(remote.clone(), script));
    let store = world.open(scripted.clone()).unwrap();
    let report = collect(&store, scripted.as_ref(), &request).unwrap();
    assert_eq!(report.freed_bytes, 0, "{report:?}");
    let told = store.warnings();
    assert!(
        told.iter()
            .any(|told| told.text.contains("ahead of the store's")),
        "{told:?}"
    );
    // Both clocks say that two days are over.
    assert!(run(&world, &remote, &request).unwrap().freed_bytes > 400_000);
}

#[test]
fn a_clock_that_cannot_be_compared_is_told() {
    let world = world();
    let remote = world.directory("store");
    std::fs::create_dir_all(world.tree("store").join("reserve/clock/in-its-place")).unwrap();
    let store = world.open(remote.clone()).unwrap();
    collect(&store, remote.as_ref(), &eager()).unwrap();
    let told = store.warnings();
    assert!(
        told.iter()
            .any(|told| told.text.contains("the store's clock is not known")),
        "{told:?}"
    );
}

/// The clock of the remote is two days behind this host's. That must not make an object look old: an unfinished upload,
/// a pack that no segment names, or a segment that no entry names.
#[test]
fn objects_of_others_are_not_old_by_a_clock_that_is_ahead() {
    use jiff::{SignedDuration, Timestamp};
    use std::time::{Duration, SystemTime};
    // The clock of the process cannot be changed, so the times of files are set back.
    let old = SystemTime::now() - Duration::from_hours(48);
    let set_back = move |path: &Path| {
        let file = std::fs::File::open(path).unwrap();
        file.set_modified(old).unwrap();
    };
    for what in ["upload", "pack", "segment"] {
        let world = world();
        let remote = world.directory(what);
        let key = match what {
            "upload" => format!("packs/ab/{}#1", "ab".repeat(16)),
            "pack" => pack_key(pack_of(&remote, &[noise(1, 5_000)]).header.id),
            _ => {
                let packs = [1, 2].map(|seed| pack_of(&remote, &[noise(seed, 5_000)]));
                commit(&*remote, &[segment_over(&*remote, &[&packs[0], &packs[1]])]);
                let Change::AddSegment { segment, .. } = segment_over(&*remote, &[&packs[0]])
                else {
                    panic!("no segment");
                };
                segment_key(segment)
            }
        };
        let path = world.tree(what).join(key);
        if what == "upload" {
            trees::write(&path, b"half");
        }
        set_back(&path);
        let mut request = eager();
        request.options.min_age_secs = 24 * 3600;
        let clock = world.tree(what).join("reserve/clock");
        let script = move |when, step, key: &str| {
            if when == When::After && step == Step::Put && key == store::format::CLOCK_KEY {
                set_back(&clock);
            }
        };
        let scripted = Arc::new(Scripted::new(remote.clone(), script));
        let store = world.open(scripted.clone()).unwrap();
        collect(&store, scripted.as_ref(), &request).unwrap();
        assert!(path.exists(), "{what}: written a moment ago by that clock");
        // By a correct clock, the object is two days old.
        run(&world, &remote, &request).unwrap();
        assert!(!path.exists(), "{what}");
        request.clock = || Timestamp::now() + SignedDuration::from_hours(48);
        assert!(run(&world, &remote, &request).is_ok());
    }
}
