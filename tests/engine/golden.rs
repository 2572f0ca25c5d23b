//! The golden stores of format version 2: later programs must read, extend and collect them.
//!
//! `fixtures/v2/store` has odd trees. `fixtures/v2/weights` has models, whose frames are planes and deltas, and a
//! directory with modes. Made once with `REGENERATE=1`, which writes only missing fixtures; never edited.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gc::collect;
use store::check::ReadData;
use store::format::{Change, Who};
use store::remote::{Objects, Prune, Write};
use store::{GetRequest, Keep, Portions, PutRequest, Store, Unwatched, get, log, put, refs};
use support::{Random, Seen, seen, trees};

use crate::collect::eager;
use crate::damaged::verify_target;
use crate::deltas::{count_deltas, model, safetensors};
use crate::stores::{host, name, put_tree, shell, spec};

const VERSIONS: [&str; 3] = [
    "project/golden/tree@1",
    "project/golden/tree@3",
    "team/golden/file@1",
];

/// The versions in `weights`: a model, a further trained one, and a directory with modes.
const WEIGHTS: [&str; 3] = [
    "project/golden/model@1",
    "project/golden/model@2",
    "team/golden/shared@1",
];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/v2")
}

/// A copy of a golden store.
pub(crate) struct Copy {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) remote: Arc<dyn Prune>,
    pub(crate) store: Store,
}

impl Copy {
    pub(crate) fn of(which: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        shell(&format!(
            "cp -r '{}' '{}'",
            fixture().join(which).display(),
            dir.path().join("store").display()
        ));
        let remote = Arc::new(Objects::directory(&dir.path().join("store")).unwrap());
        let store = Store::open(remote.clone(), host(dir.path())).unwrap();
        assert_eq!(store.format().version, 2);
        Self { dir, remote, store }
    }

    /// Asserts that these versions match the fixture's listings, numbered from `first` on.
    pub(crate) fn reads(&self, versions: &[&str], first: usize) {
        for (at, version) in versions.iter().enumerate() {
            let at = first + at;
            let out = self.dir.path().join("out");
            get(
                &self.store,
                &GetRequest::new(spec(version), &out),
                &Unwatched,
            )
            .unwrap();
            let expected =
                fs::read_to_string(fixture().join(format!("expected-{at}.txt"))).unwrap();
            assert_eq!(listing(&out), expected, "{version}");
            assert!(!expected.is_empty());
            shell(&format!("rm -r '{}'", out.display()));
        }
    }

    /// Opens the store again without cached state.
    pub(crate) fn anew(self) -> Self {
        let mut host = host(self.dir.path());
        host.cache_dir = None;
        let store = Store::open(self.remote.clone(), host).unwrap();
        Self { store, ..self }
    }

    pub(crate) fn is_clean(&self) {
        let report = verify_target(&self.store, ReadData::Everything, None).unwrap();
        assert!(report.is_clean(), "{report:#?}");
    }
}

#[test]
fn the_store_of_version_2_reads_as_it_was_written() {
    make_where_missing("store", make);
    let golden = Copy::of("store");
    golden.reads(&VERSIONS, 0);
    let state = golden.store.state().unwrap();
    let versions = &state.refs.all().unwrap()[&name("project/golden/tree")].versions;
    let pinned: Vec<_> = versions
        .iter()
        .map(|(number, version)| (*number, version.pinned))
        .collect();
    assert_eq!(pinned, [(1, true), (3, false)]);
    golden.is_clean();
}

#[test]
fn the_models_of_version_2_read_as_they_were_written() {
    make_where_missing("weights", make_weights);
    let golden = Copy::of("weights");
    golden.reads(&WEIGHTS, VERSIONS.len());
    let state = golden.store.state().unwrap();
    assert_eq!(state.features.incompatible, ["delta-frames"]);
    assert_eq!(count_deltas(&golden.store, WEIGHTS[0]), 0);
    assert!(count_deltas(&golden.store, WEIGHTS[1]) >= 2);
    let mut request = GetRequest::new(spec(WEIGHTS[2]), golden.dir.path().join("out"));
    request.keep = vec![Keep::Modes];
    get(&golden.store, &request, &Unwatched).unwrap();
    let mode = |path: &str| {
        let found = fs::metadata(request.destination.join(path)).unwrap();
        found.mode() & 0o7777
    };
    assert_eq!(
        [mode(""), mode("open"), mode("tool")],
        [0o2770, 0o666, 0o775]
    );
    golden.is_clean();
}

/// The old data is deduplicated against, can still be read, and survives a collector.
#[test]
fn the_store_of_version_2_is_written_to_and_collected() {
    let golden = Copy::of("store");
    let tree = golden.dir.path().join("tree");
    get(
        &golden.store,
        &GetRequest::new(spec(VERSIONS[1]), &tree),
        &Unwatched,
    )
    .unwrap();
    let mut noise = fs::read(tree.join("noise")).unwrap();
    noise.truncate(500_000);
    fs::write(tree.join("noise"), noise).unwrap();
    let report = put_tree(&golden.store, &tree, "project/golden/tree");
    assert_eq!(report.version, Some(4));
    assert!(report.new_bytes < 200_000, "{report:?}");
    let golden = golden.anew();
    golden.reads(&VERSIONS, 0);
    refs::drop_versions(&golden.store, &name("project/golden/tree"), Some(3)).unwrap();
    let report = collect(&golden.store, golden.remote.as_ref(), &eager()).unwrap();
    assert!(report.freed_objects > 0, "{report:?}");
    let golden = golden.anew();
    golden.reads(&VERSIONS[..1], 0);
    golden.reads(&VERSIONS[2..], 2);
    golden.is_clean();
}

/// Puts a delta of the old data. The base of a remaining delta outlives its own version.
#[test]
fn the_models_of_version_2_are_written_to_and_collected() {
    let golden = Copy::of("weights");
    let tree = golden.dir.path().join("tree");
    trees::write(&tree.join("model.safetensors"), &safetensors(&model(2)));
    let report = put_tree(&golden.store, &tree, "project/golden/model");
    assert_eq!(report.version, Some(3));
    assert!(count_deltas(&golden.store, "project/golden/model@3") >= 2);
    let golden = golden.anew();
    golden.reads(&WEIGHTS, VERSIONS.len());
    refs::drop_versions(&golden.store, &name("project/golden/model"), Some(1)).unwrap();
    for _ in 0..2 {
        collect(&golden.store, golden.remote.as_ref(), &eager()).unwrap();
    }
    let golden = golden.anew();
    golden.reads(&WEIGHTS[1..], VERSIONS.len() + 1);
    golden.is_clean();
}

/// Makes a missing fixture if the environment asks for it.
pub(crate) fn make_where_missing(which: &str, make: fn(&Path)) {
    if std::env::var_os("REGENERATE").is_some() && !fixture().join(which).exists() {
        make(&fixture());
    }
}

/// Lists every entry of a tree: path, kind, hash of its bytes or target, and time.
fn listing(root: &Path) -> String {
    let line = |(path, seen): (OsString, Seen)| {
        let path = path.as_encoded_bytes().escape_ascii().to_string();
        format!(
            "{path}\t{}\t{}\t{:?}\n",
            seen.kind,
            blake3::hash(&seen.bytes),
            seen.mtime
        )
    };
    seen(root).into_iter().map(line).collect()
}

fn make(fixture: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    let mut random = Random::new(1);
    trees::odd_names(&tree.join("odd-names"), 1);
    trees::kinds(&tree.join("kinds"), 1);
    let mut text = random.text(3 << 20);
    trees::write(&tree.join("noise"), &random.bytes(600_000));
    trees::write(&tree.join("text"), &text);
    trees::write(&tree.join("empty"), b"");
    let holes = fs::File::create(tree.join("holes")).unwrap();
    holes.set_len(1_000_000).unwrap();
    shell(&format!(
        "cd '{}' && ln -s text link && mkdir -p no/thing/here",
        tree.display()
    ));
    trees::settle_times(&tree, 1);

    let store = new_store(&fixture.join("store"), dir.path());
    put_tree(&store, &tree, "project/golden/tree");
    write_listing(&tree, fixture, 0);
    put_tree(&store, &tree, "project/golden/tree");
    text.splice(1_000_000..1_000_000, *b"an insertion");
    trees::write(&tree.join("text"), &text);
    trees::settle_times(&tree, 2);
    put_tree(&store, &tree, "project/golden/tree");
    write_listing(&tree, fixture, 1);
    // Folds two small segments into one.
    let store = store.in_portions(Portions {
        fold: 2,
        ..Portions::default()
    });
    put_tree(&store, &tree.join("noise"), "team/golden/file");
    write_listing(&tree.join("noise"), fixture, 2);
    let name = name("project/golden/tree");
    let changes = vec![
        Change::Pin {
            name: name.clone(),
            version: 1,
            pinned: true,
        },
        Change::DropRef { name, version: 2 },
    ];
    let mut state = store.state().unwrap();
    log::commit(
        store.remote().as_ref(),
        &mut state,
        &store.host().who,
        &mut |_, _| Ok(changes.clone()),
    )
    .unwrap();
}

/// A store at `place`, whose writer always has the same host name.
pub(crate) fn new_store(place: &Path, dir: &Path) -> Store {
    let remote: Arc<dyn Write> = Arc::new(Objects::directory(place).unwrap());
    let mut host = host(dir);
    host.who = Who {
        host: "golden".into(),
        user: "golden".into(),
        program: "store".into(),
    };
    Store::open_or_init(remote, host).unwrap()
}

pub(crate) fn write_listing(tree: &Path, fixture: &Path, at: usize) {
    fs::write(fixture.join(format!("expected-{at}.txt")), listing(tree)).unwrap();
}

/// Makes a model, a further trained one, and a directory with modes.
fn make_weights(fixture: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(&fixture.join("weights"), dir.path());
    let tree = dir.path().join("tree");
    for steps in 0..2 {
        trees::write(&tree.join("model.safetensors"), &safetensors(&model(steps)));
        trees::settle_times(&tree, steps);
        put_tree(&store, &tree, "project/golden/model");
        write_listing(
            &tree,
            fixture,
            VERSIONS.len() + usize::try_from(steps).unwrap(),
        );
    }
    let shared = dir.path().join("shared");
    trees::write(&shared.join("open"), b"open");
    trees::write(&shared.join("tool"), b"tool");
    shell(&format!(
        "cd '{}' && chmod 666 open && chmod 2775 tool && chmod 2770 .",
        shared.display()
    ));
    trees::settle_times(&shared, 1);
    let request = PutRequest {
        keep: Keep::ALL.to_vec(),
        message: "with modes and owners".into(),
        expires: Some("9000-01-01T00:00:00Z".parse().unwrap()),
        ..PutRequest::new(&shared, name("team/golden/shared"))
    };
    put(&store, &request, &Unwatched).unwrap();
    write_listing(&shared, fixture, VERSIONS.len() + 2);
}
