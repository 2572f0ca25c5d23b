//! Broken stores, each named for its defect: how verify, get, the collector and repair handle them. The collector
//! deletes nothing if it cannot be sure.
//!
//! `fixtures/broken/NAME` is the difference from the golden store: the files of `store/` replace its files, and
//! `removed` lists missing ones. Made once with `REGENERATE=1`, which writes only missing fixtures; never edited.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gc::{CollectReport, collect};
use jiff::{SignedDuration, Timestamp};
use store::GetRequest;
use store::check::{ReadData, RepairRequest, VerifyReport, repair};
use store::format::{
    Change, FORMAT_KEY, PackKind, State, checkpoint_key, log_key, pack_key, segment_key,
};
use store::remote::{Objects, Prune, Read, Write};
use store::{Error, ErrorKind, Result, Store, Unwatched, get, log, refs};

use crate::collect::{assert_idle, eager};
use crate::damaged::{objects, truncate, verify_target};
use crate::stores::{host, name, put_tree, shell, spec};

const VERSIONS: [&str; 3] = [
    "project/golden/tree@1",
    "project/golden/tree@3",
    "team/golden/file@1",
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures")
        .join(name)
}

/// A copy of the golden store, perhaps broken.
struct Broken {
    dir: tempfile::TempDir,
    remote: Arc<dyn Prune>,
    store: Store,
}

impl Broken {
    fn golden() -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy(&fixture("v2/store"), dir.path());
        Self::open(dir)
    }

    /// The golden store with the defect `name`. If the fixture is missing, `make` makes it.
    fn new(name: &str, make: fn(&Self)) -> Self {
        let overlay = fixture("broken").join(name);
        if std::env::var_os("REGENERATE").is_some() && !overlay.exists() {
            let broken = Self::golden();
            make(&broken);
            write_overlay(&broken.dir.path().join("store"), &overlay);
        }
        let dir = tempfile::tempdir().unwrap();
        copy(&fixture("v2/store"), dir.path());
        if overlay.join("store").exists() {
            copy(&overlay.join("store"), dir.path());
        }
        let removed = fs::read_to_string(overlay.join("removed")).unwrap_or_default();
        for key in removed.lines() {
            fs::remove_file(dir.path().join("store").join(key)).unwrap();
        }
        Self::open(dir)
    }

    fn open(dir: tempfile::TempDir) -> Self {
        let remote = Arc::new(Objects::directory(&dir.path().join("store")).unwrap());
        let mut host = host(dir.path());
        host.cache_dir = None;
        let store = Store::open(remote.clone(), host).unwrap();
        Self { dir, remote, store }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.dir.path().join("store").join(key)
    }

    fn state(&self) -> State {
        self.store.state().unwrap()
    }

    /// The key of the pack with the data of the file `team/golden/file`.
    fn data_pack(&self) -> String {
        let index = self.store.view().unwrap().index;
        let mut packs = index.packs().filter(|pack| pack.kind == PackKind::Data);
        pack_key(packs.next().unwrap().id)
    }

    fn keys(&self) -> Vec<String> {
        let listed = self.remote.list("").unwrap();
        listed.into_iter().map(|info| info.key).collect()
    }

    fn verify(&self) -> VerifyReport {
        verify_target(&self.store, ReadData::Everything, None).unwrap()
    }

    fn get(&self, version: &str) -> Result<()> {
        let out = tempfile::tempdir().unwrap();
        get(
            &self.store,
            &GetRequest::new(spec(version), out.path().join("out")),
            &Unwatched,
        )
        .map(drop)
    }

    /// Asserts that everything is clean and can be got.
    fn assert_whole(&self) {
        let report = self.verify();
        assert!(report.is_clean(), "{report:#?}");
        for version in VERSIONS {
            self.get(version).unwrap();
        }
    }

    fn collect(&self) -> Result<CollectReport> {
        collect(&self.store, self.remote.as_ref(), &eager())
    }

    /// Asserts that a collector fails and changes nothing. Returns its error.
    fn collect_fails(&self) -> Error {
        let orphan = format!("packs/ab/{}", "ab".repeat(16));
        self.remote.put(&orphan, vec![1; 1000].into()).unwrap();
        let (before, state) = (self.keys(), self.state());
        let error = self.collect().unwrap_err();
        assert_eq!((self.keys(), self.state()), (before, state), "{error:?}");
        self.remote.delete(&[orphan]).unwrap();
        error
    }

    fn repair(&self) -> store::check::RepairReport {
        let request = RepairRequest {
            read_data: false,
            dry_run: false,
            accept_loss: false,
        };
        repair(&self.store, request, &Unwatched).unwrap()
    }
}

#[test]
fn a_missing_pack() {
    let broken = Broken::new("missing-pack", |golden| {
        fs::remove_file(golden.path(&golden.data_pack())).unwrap();
    });
    let golden = Broken::golden();
    let key = golden.data_pack();
    assert!(!broken.path(&key).exists());
    let report = broken.verify();
    assert_eq!(objects(&report), [key.as_str()]);
    assert_eq!(report.findings[0].what, "is missing");
    for version in VERSIONS {
        let error = broken.get(version).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{version}: {error:?}");
        assert!(format!("{error:?}").contains(&key), "{version}: {error:?}");
    }
    let error = broken.collect_fails();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(error.to_string().contains(&key), "{error:?}");
    // A repair records what is lost. The collector treats that as damage until the versions are dropped.
    let repaired = broken.repair();
    assert_eq!(
        (repaired.packs_condemned.len(), repaired.chunks_saved),
        (1, 0)
    );
    let error = broken.collect_fails();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    for version in VERSIONS {
        let spec = spec(version);
        let number = refs::number(&broken.store, &spec).unwrap();
        refs::pin(&broken.store, &spec.name, number, false).unwrap();
        refs::drop_versions(&broken.store, &spec.name, number).unwrap();
    }
    broken.collect().unwrap();
    assert!(broken.verify().is_clean());
}

#[test]
fn duplicate_chunks() {
    let broken = Broken::new("duplicate-chunks", |golden| {
        // Puts what a writer without knowledge of the damage would put.
        let other = tempfile::tempdir().unwrap();
        let tree = other.path().join("tree");
        let whole = spec("project/golden/tree@1:odd-names");
        get(
            &golden.store,
            &GetRequest::new(whole.clone(), &tree),
            &Unwatched,
        )
        .unwrap();
        let remote: Arc<dyn Write> =
            Arc::new(Objects::directory(&other.path().join("store")).unwrap());
        let format = golden.remote.get(FORMAT_KEY).unwrap();
        remote.put(FORMAT_KEY, format).unwrap();
        let store = Store::open(remote.clone(), host(other.path())).unwrap();
        put_tree(&store, &tree, "project/other/tree");
        for key in remote.list("").unwrap().into_iter().map(|info| info.key) {
            if key.starts_with("packs/") || key.starts_with("segments/") {
                golden.remote.put(&key, remote.get(&key).unwrap()).unwrap();
            }
        }
        let added: Vec<Change> = store
            .state()
            .unwrap()
            .segments
            .into_iter()
            .map(|(segment, info)| Change::AddSegment { segment, info })
            .collect();
        let mut state = golden.state();
        let who = &golden.state().refs.all().unwrap()[&name("team/golden/file")].versions[&1].who;
        log::commit(golden.remote.as_ref(), &mut state, who, &mut |_, _| {
            Ok(added.clone())
        })
        .unwrap();
    });
    let before = broken.state();
    assert_eq!(before.segments.len(), 3);
    broken.assert_whole();
    let report = broken.collect().unwrap();
    let gone: Vec<_> = report.plan.condemn.iter().map(|pack| pack.pack).collect();
    let kept = Broken::golden();
    let named: Vec<_> = kept.store.view().unwrap().index.packs().collect();
    assert!(!gone.is_empty(), "{:?}", report.plan);
    assert!(named.iter().all(|pack| !gone.contains(&pack.id)));
    broken.assert_whole();
    assert_idle(&broken.collect().unwrap().plan, "again");
}

#[test]
fn orphan_packs() {
    let broken = Broken::new("orphan-packs", |golden| {
        let data = fs::read(golden.path(&log_key(1))).unwrap();
        for id in ["0f", "f0"] {
            let key = format!("packs/{id}/{}", id.repeat(16));
            golden.remote.put(&key, data.clone().into()).unwrap();
        }
    });
    let orphans = ["0f", "f0"].map(|id| format!("packs/{id}/{}", id.repeat(16)));
    broken.assert_whole();
    assert_eq!(broken.repair(), store::check::RepairReport::default());
    let mut young = eager();
    young.options.min_age_secs = 24 * 3600;
    let report = collect(&broken.store, broken.remote.as_ref(), &young).unwrap();
    assert!(report.plan.condemn.is_empty() && report.held.by_age.bytes > 0);
    assert!(orphans.iter().all(|key| broken.path(key).exists()));
    let report = broken.collect().unwrap();
    assert_eq!(report.plan.condemn.len(), 2);
    assert!(!orphans.iter().any(|key| broken.path(key).exists()));
    broken.assert_whole();
}

#[test]
fn a_half_written_segment() {
    let broken = Broken::new("half-written-segment", |golden| {
        let path = golden.path(&segment_key(
            *golden.state().segments.keys().next().unwrap(),
        ));
        truncate(&path, fs::metadata(&path).unwrap().len() / 2);
    });
    let key = segment_key(*broken.state().segments.keys().next().unwrap());
    let report = broken.verify();
    assert!(objects(&report).contains(&key.as_str()), "{report:#?}");
    for version in VERSIONS {
        let error = broken.get(version).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{version}: {error:?}");
        assert!(format!("{error:?}").contains(&key), "{version}: {error:?}");
    }
    let error = broken.collect_fails();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(format!("{error:?}").contains(&key), "{error:?}");
    let repaired = broken.repair();
    assert_eq!(repaired.segments_dropped.len(), 1);
    assert!(repaired.hits.is_empty());
    broken.assert_whole();
    assert!(broken.collect().unwrap().freed_objects > 0);
    assert!(!broken.path(&key).exists());
    broken.assert_whole();
}

/// A process that dies while it writes a segment leaves an upload without its final name.
#[test]
fn a_half_uploaded_segment() {
    let upload = format!("segments/{}#1", "cd".repeat(16));
    let broken = Broken::new("half-uploaded-segment", |golden| {
        let whole = segment_key(*golden.state().segments.keys().next().unwrap());
        let bytes = fs::read(golden.path(&whole)).unwrap();
        let upload = format!("segments/{}#1", "cd".repeat(16));
        fs::write(golden.path(&upload), &bytes[..bytes.len() / 2]).unwrap();
    });
    broken.assert_whole();
    // An open file counts as being written.
    let open = fs::File::open(broken.path(&upload)).unwrap();
    broken.collect().unwrap();
    assert!(broken.path(&upload).exists(), "it may be in progress");
    drop(open);
    let mut later = eager();
    later.clock = || Timestamp::now() + SignedDuration::from_hours(2);
    let report = collect(&broken.store, broken.remote.as_ref(), &later).unwrap();
    assert_eq!(report.plan.nameless.stale_uploads.len(), 1);
    assert!(!broken.path(&upload).exists());
    broken.assert_whole();
}

#[test]
fn a_stale_checkpoint() {
    let broken = Broken::new("stale-checkpoint", |golden| {
        let mut state = State::default();
        for number in 1..=3 {
            let entry = log::entry(golden.remote.as_ref(), number).unwrap().unwrap();
            state.apply(&entry).unwrap();
        }
        let key = checkpoint_key(5);
        let bytes = state.encode().unwrap();
        golden.remote.put(&key, bytes.into()).unwrap();
    });
    assert_eq!(broken.state(), Broken::golden().state());
    let report = broken.verify();
    assert_eq!(objects(&report), [checkpoint_key(5)]);
    assert_eq!(report.hits, []);
    for version in VERSIONS {
        broken.get(version).unwrap();
    }
    broken.collect().unwrap();
    for version in VERSIONS {
        broken.get(version).unwrap();
    }
    let versions = &broken.state().refs.all().unwrap()[&name("project/golden/tree")].versions;
    assert_eq!(versions.keys().copied().collect::<Vec<_>>(), [1, 3]);
    assert_eq!(broken.repair().checkpoints, [5]);
    broken.assert_whole();
}

fn copy(from: &Path, to: &Path) {
    shell(&format!("cp -r '{}' '{}'", from.display(), to.display()));
}

/// Writes the difference between the golden store and `store`.
fn write_overlay(store: &Path, overlay: &Path) {
    let golden = Broken::golden();
    let made = Objects::directory(store).unwrap();
    // A listing does not show unfinished uploads.
    let mut keys: Vec<String> = made
        .list("")
        .unwrap()
        .into_iter()
        .map(|it| it.key)
        .collect();
    for prefix in ["packs", "segments"] {
        let uploads = made.stale_uploads(prefix).unwrap();
        keys.extend(uploads.into_iter().map(|upload| upload.key));
    }
    for key in &keys {
        let bytes = fs::read(store.join(key)).unwrap();
        if fs::read(golden.path(key)).ok().as_ref() != Some(&bytes) {
            support::trees::write(&overlay.join("store").join(key), &bytes);
        }
    }
    let removed: String = golden
        .keys()
        .iter()
        .filter(|key| !keys.contains(key))
        .map(|key| format!("{key}\n"))
        .collect();
    if !removed.is_empty() {
        support::trees::write(&overlay.join("removed"), removed.as_bytes());
    }
}
