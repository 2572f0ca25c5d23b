//! Files of tensors: they round-trip, are cut the same way however they are read, and a tensor keeps its chunks at any
//! offset.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use store::format::{FORMAT_KEY, Format};
use store::remote::{Objects, Write};
use store::{
    GetRequest, Host, LinkMode, MaterializeRequest, Pool, PoolLimits, Precious, Store, Unwatched,
    get, materialize, put,
};
use support::assert_same_tree;

use crate::stores::{host, noise, put_tree, request, spec};

const REF: &str = "project/models/one";

type Tensors = Vec<(&'static str, Vec<u8>)>;

fn tensors() -> Tensors {
    vec![
        ("embed", noise(1, 3 << 20)),
        ("norm", noise(2, 4096)),
        ("up", noise(3, 700_001)),
        ("bias", noise(4, 16 << 10)),
        ("down", noise(5, 2_000_000)),
    ]
}

fn safetensors(tensors: &Tensors, by: &str) -> Vec<u8> {
    let (mut header, mut at) = (serde_json::json!({ "__metadata__": { "by": by } }), 0);
    for (name, bytes) in tensors {
        let end = at + bytes.len();
        header[name] =
            serde_json::json!({ "dtype": "U8", "shape": [bytes.len()], "data_offsets": [at, end] });
        at = end;
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    tensors.iter().for_each(|(_, bytes)| file.extend(bytes));
    file
}

/// A large file, a small one, a truncated one, and one whose tensor is a hole.
fn tree(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let large = safetensors(&tensors(), "large");
    fs::write(dir.join("large"), &large).unwrap();
    fs::write(dir.join("short"), &large[..large.len() - 1]).unwrap();
    let small = vec![("bias", noise(6, 100_000)), ("norm", noise(7, 100))];
    fs::write(dir.join("small"), safetensors(&small, "small")).unwrap();
    let holed = safetensors(
        &vec![("zeros", vec![0; 4 << 20]), ("end", noise(8, 20_000))],
        "",
    );
    let file = File::create(dir.join("holed")).unwrap();
    let (head, tail) = (&holed[..200], &holed[holed.len() - 20_000..]);
    file.write_all_at(head, 0).unwrap();
    file.write_all_at(tail, (holed.len() - tail.len()) as u64)
        .unwrap();
}

/// A new store with this rule for tensors.
fn store_by(rule: u32, host: Host) -> Store {
    let remote: Arc<dyn Write> = Arc::new(Objects::memory());
    let format = Store::init(remote.clone(), host.clone())
        .unwrap()
        .format()
        .clone();
    let mut format: Format = format;
    format.chunker.tensors = rule;
    remote
        .put(FORMAT_KEY, format.encode().unwrap().into())
        .unwrap();
    Store::open(remote, host).unwrap()
}

#[test]
fn files_of_tensors_come_back_and_are_cut_alike_on_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    tree(&source);
    let mut ids = Vec::new();
    for threads in [1, 2, 7] {
        let host = Host {
            threads,
            cache_dir: None,
            ..host(dir.path())
        };
        let store = store_by(1, host);
        ids.push(put_tree(&store, &source, REF).id);
        let out = dir.path().join(format!("out-{threads}"));
        get(&store, &GetRequest::new(spec(REF), &out), &Unwatched).unwrap();
        assert_same_tree(&source, &out);
        // A pool finds the same cuts when it checks a file against its name.
        let pool = Pool::open(&dir.path().join("pool"), PoolLimits::default()).unwrap();
        let linked = dir.path().join(format!("linked-{threads}"));
        let wanted = MaterializeRequest {
            spec: spec(REF),
            destination: Some(linked),
            link_mode: LinkMode::Auto,
            copy_below_bytes: 0,
            include: Vec::new(),
            exclude: Vec::new(),
            exact: false,
            force: false,
            flatten: false,
            ephemeral: false,
            allow_outside_symlinks: false,
            is_begun: false,
            readable: false,
            precious: Precious::default(),
        };
        materialize(&store, &pool, &wanted, &Unwatched).unwrap();
        assert!(pool.verify(&Unwatched).unwrap().damaged.is_empty());
    }
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}");
}

#[test]
fn a_tensor_keeps_its_chunks_in_another_place_order_and_file() {
    let dir = tempfile::tempdir().unwrap();
    let (all, mut turned) = (tensors(), tensors());
    turned.reverse();
    let (first, second) = (turned[..2].to_vec(), turned[2..].to_vec());
    let later = [
        vec![(
            "turned",
            safetensors(&turned, "another program, another header"),
        )],
        vec![
            ("1", safetensors(&first, "of 2")),
            ("2", safetensors(&second, "of 2")),
        ],
    ];
    for (number, files) in later.iter().enumerate() {
        let added = [0, 1].map(|rule| {
            let host = Host {
                cache_dir: None,
                ..host(dir.path())
            };
            let store = store_by(rule, host);
            let source = dir.path().join(format!("{number}-{rule}"));
            fs::create_dir(&source).unwrap();
            fs::write(source.join("model"), safetensors(&all, "")).unwrap();
            put_tree(&store, &source, REF);
            fs::remove_file(source.join("model")).unwrap();
            for (name, bytes) in files {
                fs::write(source.join(name), bytes).unwrap();
            }
            let report = put(&store, &request(&source, REF), &Unwatched).unwrap();
            report.new_bytes
        });
        // Headers and the one small tensor; when cut by content alone, also the bytes around the tensors' ends.
        assert!(added[1] < 10_000, "{number}: {added:?}");
        assert!(added[0] > 100_000, "{number}: {added:?}");
    }
}
