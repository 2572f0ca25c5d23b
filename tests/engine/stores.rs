//! Stores, hosts and trees for the tests of the engine.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use store::format::{RefName, RefSpec, Who};
use store::remote::{Objects, Write};
use store::{GetRequest, Host, Portions, PutReport, PutRequest, Store, Unwatched, get, put};

/// A host with a cache of its own under `dir`.
pub(crate) fn host(dir: &Path) -> Host {
    Host {
        cache_dir: Some(dir.join("cache")),
        who: Who {
            host: "test".into(),
            user: "test".into(),
            program: "test".into(),
        },
        memory_bytes: 128 << 20,
        threads: 2,
        stop: Arc::default(),
    }
}

/// A new store in `dir/store`.
pub(crate) fn store_in(dir: &Path) -> Store {
    let remote: Arc<dyn Write> =
        Arc::new(Objects::directory(&dir.join("store")).expect("a directory"));
    // The tests examine data and metadata in separate packs.
    let portions = Portions {
        together_bytes: 0,
        ..Portions::default()
    };
    let store = Store::open_or_init(remote, host(dir)).expect("a store");
    store.in_portions(portions)
}

/// A request to put `source` as `target`.
pub(crate) fn request(source: &Path, target: &str) -> PutRequest {
    PutRequest {
        verify_writes: true,
        // The tests expect a version for each put.
        always: true,
        ..PutRequest::new(source, name(target))
    }
}

/// Puts `source` as `target`.
pub(crate) fn put_tree(store: &Store, source: &Path, target: &str) -> PutReport {
    put(store, &request(source, target), &Unwatched).expect("put")
}

pub(crate) fn name(target: &str) -> RefName {
    target.parse().expect("a ref name")
}

pub(crate) fn spec(spec: &str) -> RefSpec {
    spec.parse().expect("a ref spec")
}

/// Incompressible bytes, the same for the same seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

/// Bytes that compress like text.
pub(crate) fn text(seed: u64, len: usize) -> Vec<u8> {
    noise(seed, len)
        .into_iter()
        .map(|byte| b"etaoin shrdlu\n\"{}:,0"[usize::from(byte) % 20])
        .collect()
}

/// A tree with everything that this host's file system can hold.
pub(crate) fn odd_tree(dir: &Path) {
    fs::create_dir_all(dir.join("sub/empty")).unwrap();
    fs::create_dir_all(dir.join("sub/deep/er")).unwrap();
    for (at, len) in [
        0,
        1,
        100,
        16 << 10,
        (16 << 10) + 1,
        256 << 10,
        (1 << 20) + 3,
        9 << 20,
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(dir.join(format!("noise-{len}")), noise(at as u64, len)).unwrap();
        fs::write(dir.join(format!("sub/text-{len}")), text(at as u64, len)).unwrap();
    }
    let odd = [
        &b"not \xff\xfe utf-8"[..],
        b"new\nline",
        b" space ",
        b"-dash",
        &[b'n'; 255],
    ];
    odd.iter().for_each(|name| {
        fs::write(
            dir.join("sub/deep/er")
                .join(std::ffi::OsStr::from_bytes(name)),
            name,
        )
        .unwrap()
    });
    fs::write(dir.join("run.sh"), b"#!/bin/sh\n").unwrap();
    shell(&format!(
        "cd '{}' && chmod 755 run.sh && ln -s run.sh link && ln -s nowhere/at/all dangling && ln -s . loop \
         && truncate -s 40M sparse && printf end >> sparse && printf mid | dd of=sparse bs=1 seek=20000000 conv=notrunc \
         && truncate -s 3M hole && touch -d '2001-02-03 04:05:06.789' run.sh sub/deep && touch -h -d 1999-01-01 link",
        dir.display()
    ));
}

/// Runs a shell command, which must succeed. Returns its output.
pub(crate) fn shell(command: &str) -> String {
    let output = Command::new("sh")
        .arg("-c")
        .arg(command)
        .output()
        .expect("sh");
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compares names, bytes, modes, times and links of two trees with standard tools.
pub(crate) fn assert_same_tree(a: &Path, b: &Path) {
    let list = |dir: &Path| {
        shell(&format!(
            "cd '{}' && find . -printf '%P %y %04m %T@ %l\\n' | LC_ALL=C sort",
            dir.display()
        ))
    };
    assert_eq!(list(a), list(b));
    shell(&format!(
        "diff -r --no-dereference '{}' '{}'",
        a.display(),
        b.display()
    ));
}

/// Gets `what` to the path `to`.
pub(crate) fn bring(store: &Store, what: &str, to: &Path) {
    get(store, &GetRequest::new(spec(what), to), &Unwatched).unwrap();
}
