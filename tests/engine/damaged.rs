//! A store to be damaged, and tools to damage it and to examine the result.

use std::fs;
use std::path::{Path, PathBuf};

use store::GetRequest;
use store::check::{
    ReadData, RepairReport, RepairRequest, VerifyReport, VerifyRequest, repair, verify,
};
use store::format::{PackKind, Target, pack_key, segment_key};
use store::index::Location;
use store::read::Reader;
use store::replicate::{Forgetful, RefStatus};
use store::{ErrorKind, Store, Unwatched, get, replicate};

use crate::stores::{assert_same_tree, noise, put_tree, spec, store_in, text};

/// The ref of the store.
pub(crate) const REF: &str = "project/demo/data";

/// A store with one ref of a small tree.
pub(crate) struct Damaged {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) store: Store,
}

impl Damaged {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::create_dir_all(source.join("sub/deep")).unwrap();
        fs::write(source.join("large"), noise(1, 3 << 20)).unwrap();
        fs::write(source.join("text"), text(2, 1 << 20)).unwrap();
        fs::write(source.join("sub/small"), noise(3, 1000)).unwrap();
        fs::write(source.join("sub/deep/copy"), text(2, 1 << 20)).unwrap();
        let store = store_in(dir.path());
        put_tree(&store, &source, REF);
        Self { dir, store }
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    pub(crate) fn object(&self, key: &str) -> PathBuf {
        self.dir.path().join("store").join(key)
    }

    pub(crate) fn verify(&self, read: ReadData) -> VerifyReport {
        verify_target(&self.store, read, None).unwrap()
    }

    pub(crate) fn repair(&self, read_data: bool) -> RepairReport {
        let request = RepairRequest {
            read_data,
            dry_run: false,
            accept_loss: false,
        };
        repair(&self.store, request, &Unwatched).unwrap()
    }

    /// The key of a pack of this kind, from the live segments.
    pub(crate) fn pack(&self, kind: PackKind) -> String {
        let index = self.store.view().unwrap().index;
        let pack = index.packs().find(|pack| pack.kind == kind).unwrap();
        pack_key(pack.id)
    }

    pub(crate) fn segment(&self) -> String {
        let state = self.store.state().unwrap();
        segment_key(*state.segments.keys().next().unwrap())
    }

    /// The location of the first chunk of a file.
    pub(crate) fn first_chunk(&self, path: &str) -> Location {
        let reader = Reader::new(&self.store).unwrap();
        let found = reader.resolve(&spec(&format!("{REF}:{path}"))).unwrap();
        let store::format::Node::File { content, .. } = found.node else {
            panic!("a file");
        };
        let mut first = None;
        reader
            .chunks(&content, &mut |id, _| {
                first.get_or_insert(id);
                Ok(())
            })
            .unwrap();
        reader.locate(&first.unwrap()).unwrap()
    }

    /// Puts the original files, and asserts that everything is restored.
    pub(crate) fn heal(&self) {
        put_tree(&self.store, &self.source(), REF);
        let report = self.verify(ReadData::Everything);
        assert!(report.is_clean(), "{report:#?}");
        for version in 1..=self
            .store
            .state()
            .unwrap()
            .refs
            .all()
            .unwrap()
            .values()
            .next()
            .unwrap()
            .last
        {
            let out = self.dir.path().join(format!("out-{version}"));
            get(
                &self.store,
                &GetRequest::new(spec(&format!("{REF}@{version}")), &out),
                &Unwatched,
            )
            .unwrap();
            assert_same_tree(&self.source(), &out);
        }
    }
}

pub(crate) fn verify_target(
    store: &Store,
    read: ReadData,
    target: Option<&str>,
) -> store::Result<VerifyReport> {
    let request = VerifyRequest {
        target: target.map(|target| Target::parse(target.as_bytes()).unwrap()),
        read,
        now: store::log::Outside::now(&mut store::log::System),
    };
    verify(store, &request, &Unwatched)
}

pub(crate) fn flip(path: &Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[usize::try_from(at).unwrap()] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

pub(crate) fn truncate(path: &Path, len: u64) {
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(len)
        .unwrap();
}

pub(crate) fn objects(report: &VerifyReport) -> Vec<&str> {
    let findings = report.findings.iter();
    findings.map(|finding| finding.object.as_str()).collect()
}

pub(crate) fn hit_paths(report: &VerifyReport) -> Vec<String> {
    let hits = report.hits.iter();
    hits.map(|hit| String::from_utf8_lossy(&hit.path).into_owned())
        .collect()
}

pub(crate) fn pin_and_unpin(damaged: &Damaged) {
    let state = damaged.store.state().unwrap();
    let version = state.version(&REF.parse().unwrap(), None).unwrap();
    let pinned = !version.1.pinned;
    let name = REF.parse().unwrap();
    store::refs::pin(&damaged.store, &name, None, pinned).unwrap();
}

/// The error is not "not found", because nobody dropped the version.
#[test]
fn what_a_live_version_lacks_is_damage_for_a_replicator_too() {
    let damaged = Damaged::new();
    fs::remove_file(damaged.object(&damaged.pack(PackKind::Data))).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let to = store_in(elsewhere.path());
    for repairs in [false, true] {
        if repairs {
            damaged.repair(false);
        }
        let request = crate::replicate::latest(&[REF]);
        let report = replicate(&damaged.store, &to, &request, &Forgetful, &Unwatched).unwrap();
        let RefStatus::Failed(error) = &report.refs[0].status else {
            panic!("{report:?}");
        };
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}
