//! put, then get: identical trees.

use std::fs;

use store::GetRequest;
use store::{ErrorKind, Unwatched, get};

use crate::stores::{assert_same_tree, noise, odd_tree, put_tree, request, shell, spec, store_in};

#[test]
fn a_tree_of_odd_things_comes_back_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    odd_tree(&source);
    let store = store_in(dir.path());
    let report = put_tree(&store, &source, "project/demo/odd");
    assert_eq!(
        (report.version, report.files, report.symlinks),
        (Some(1), 24, 3)
    );
    let out = dir.path().join("out");
    let got = get(
        &store,
        &GetRequest::new(spec("project/demo/odd"), &out),
        &Unwatched,
    )
    .unwrap();
    assert_eq!(
        (got.files, got.directories, got.bytes),
        (report.files, report.directories, report.bytes)
    );
    assert_same_tree(&source, &out);
    let blocks = shell(&format!(
        "du -k '{}' | cut -f1",
        out.join("sparse").display()
    ));
    assert!(
        blocks.trim().parse::<u64>().unwrap() < 2_000,
        "{blocks} KiB for three bytes in 40 MB of zeros"
    );
}

#[test]
fn a_second_put_of_the_same_stores_nothing_new() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    odd_tree(&source);
    let store = store_in(dir.path());
    put_tree(&store, &source, "project/demo/odd");
    let second = put_tree(&store, &source, "team/other/odd");
    assert_eq!(
        (second.new_bytes, second.stored_bytes, second.version),
        (0, 0, Some(1))
    );
}

#[test]
fn a_path_inside_a_ref_comes_with_its_own_times() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    odd_tree(&source);
    let store = store_in(dir.path());
    put_tree(&store, &source, "project/demo/odd");
    let out = dir.path().join("out");
    get(
        &store,
        &GetRequest::new(spec("project/demo/odd:sub/deep"), &out),
        &Unwatched,
    )
    .unwrap();
    assert_same_tree(&source.join("sub/deep"), &out);
}

#[test]
fn a_single_file_is_a_ref_too() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("one.bin");
    fs::write(&source, noise(7, 5 << 20)).unwrap();
    let store = store_in(dir.path());
    put_tree(&store, &source, "project/demo/one");
    let out = dir.path().join("out");
    get(
        &store,
        &GetRequest::new(spec("project/demo/one"), &out),
        &Unwatched,
    )
    .unwrap();
    assert_eq!(fs::read(out).unwrap(), fs::read(source).unwrap());
}

#[test]
fn an_edit_in_the_middle_stores_little() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("one.bin");
    let mut bytes = noise(8, 20 << 20);
    fs::write(&source, &bytes).unwrap();
    let store = store_in(dir.path());
    put_tree(&store, &source, "project/demo/one");
    bytes.splice(9_000_000..9_000_010, *b"something else");
    fs::write(&source, &bytes).unwrap();
    let second = put_tree(&store, &source, "project/demo/one");
    assert_eq!(second.version, Some(2));
    assert!(
        (1..600_000).contains(&second.new_bytes),
        "{} new bytes",
        second.new_bytes
    );
    let out = dir.path().join("out");
    get(
        &store,
        &GetRequest::new(spec("project/demo/one@2"), &out),
        &Unwatched,
    )
    .unwrap();
    assert_eq!(fs::read(out).unwrap(), bytes);
}

#[test]
fn a_destination_that_exists_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("out/mine")).unwrap();
    fs::create_dir_all(dir.path().join("source")).unwrap();
    let store = store_in(dir.path());
    put_tree(&store, &dir.path().join("source"), "project/demo/x");
    let error = get(
        &store,
        &GetRequest::new(spec("project/demo/x"), dir.path().join("out")),
        &Unwatched,
    )
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().starts_with(".store-get")),
        "{left:?}"
    );
}

#[test]
fn a_socket_fails_the_put_and_publishes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(source.join("socket")).unwrap();
    let store = store_in(dir.path());
    let error = store::put(&store, &request(&source, "project/demo/x"), &Unwatched).unwrap_err();
    assert!(error.to_string().contains("source/socket"), "{error}");
    assert!(store.state().unwrap().refs.is_empty());
}
