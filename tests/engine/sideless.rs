//! Versions without times: each entry has the time of the put, and there is no warning.

use std::time::SystemTime;

use store::check::{ReadData, RepairRequest, repair};
use store::{Unwatched, put};

use crate::damaged::verify_target;
use crate::stores::{name, noise, request, spec};
use crate::strange::{commit, file, upload};
use crate::world::World;

const REF: &str = "project/a/file";

#[test]
fn a_version_without_times_has_none_and_nobody_misses_them() {
    let world = World::new();
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    let bytes = noise(1, 5000);
    let (added, _) = upload(&store, &[(&bytes, &[])]);
    commit(&world, &remote, &[added, file(REF, &bytes)]);
    let store = world.open(remote.clone()).unwrap();
    let target = world.tree("out");
    let request_of = store::GetRequest::new(spec(REF), &target);
    store::get(&store, &request_of, &Unwatched).unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), bytes);
    assert!(store.warnings().is_empty(), "{:?}", store.warnings());
    let state = store.state().unwrap();
    let put_at = state.version(&name(REF), None).unwrap().1.time;
    let modified = std::fs::metadata(&target).unwrap().modified().unwrap();
    let secs = modified
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    assert_eq!(i64::try_from(secs).unwrap(), put_at.as_second());
    let report = verify_target(&store, ReadData::Everything, None).unwrap();
    assert!(report.is_clean(), "{report:#?}");
    let repaired = repair(&store, RepairRequest::default(), &Unwatched).unwrap();
    assert_eq!((repaired.findings.len(), repaired.hits.len()), (0, 0));
    // The same file with times is another version of the same tree.
    let path = world.tree("file");
    std::fs::write(&path, &bytes).unwrap();
    let report = put(&store, &request(&path, REF), &Unwatched).unwrap();
    assert_eq!(report.new_bytes, 0, "{report:?}");
    assert!(store.warnings().is_empty(), "{:?}", store.warnings());
}
