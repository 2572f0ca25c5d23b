//! The golden store of format version 2: what was written once must be read for ever.
//!
//! Made once with `REGENERATE=1`, which writes only where there is nothing; never edited.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::GetRequest;
use store::format::{Change, Who};
use store::remote::{Objects, Write};
use store::{Portions, Store, Unwatched, get, log};
use support::{Random, Seen, seen, trees};

use crate::stores::{host, name, put_tree, shell, spec};

const VERSIONS: [&str; 3] = [
    "project/golden/tree@1",
    "project/golden/tree@3",
    "team/golden/file@1",
];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/v2")
}

#[test]
fn the_store_of_version_2_reads_as_it_was_written() {
    if std::env::var_os("REGENERATE").is_some() && !fixture().exists() {
        make(&fixture());
    }
    let dir = tempfile::tempdir().unwrap();
    shell(&format!(
        "cp -r '{}' '{}'",
        fixture().join("store").display(),
        dir.path().display()
    ));
    let remote: Arc<dyn Write> = Arc::new(Objects::directory(&dir.path().join("store")).unwrap());
    let store = Store::open(remote, host(dir.path())).unwrap();
    assert_eq!(store.format().version, 2);
    for (at, version) in VERSIONS.into_iter().enumerate() {
        let out = dir.path().join(format!("out{at}"));
        get(&store, &GetRequest::new(spec(version), &out), &Unwatched).unwrap();
        let expected = fs::read_to_string(fixture().join(format!("expected-{at}.txt"))).unwrap();
        assert_eq!(listing(&out), expected, "{version}");
        assert!(!expected.is_empty());
    }
    let state = store.state().unwrap();
    let versions = &state.refs.all().unwrap()[&name("project/golden/tree")].versions;
    let pinned: Vec<_> = versions
        .iter()
        .map(|(number, version)| (*number, version.pinned))
        .collect();
    assert_eq!(pinned, [(1, true), (3, false)]);
}

/// Every entry of a tree: path, kind, hash of its bytes (or of its target), time.
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

    let remote: Arc<dyn Write> = Arc::new(Objects::directory(&fixture.join("store")).unwrap());
    let mut host = host(dir.path());
    host.who = Who {
        host: "golden".into(),
        user: "golden".into(),
        program: "store".into(),
    };
    let store = Store::open_or_init(remote, host).unwrap();
    put_tree(&store, &tree, "project/golden/tree");
    write_listing(&tree, fixture, 0);
    put_tree(&store, &tree, "project/golden/tree");
    text.splice(1_000_000..1_000_000, *b"an insertion");
    trees::write(&tree.join("text"), &text);
    trees::settle_times(&tree, 2);
    put_tree(&store, &tree, "project/golden/tree");
    write_listing(&tree, fixture, 1);
    // Two small segments become one.
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

fn write_listing(tree: &Path, fixture: &Path, at: usize) {
    fs::write(fixture.join(format!("expected-{at}.txt")), listing(tree)).unwrap();
}
