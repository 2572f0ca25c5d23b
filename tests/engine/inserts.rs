//! Inserts: entries are added to a ref if it has none with their names, each as a whole; the first one stays.

use std::collections::BTreeMap;

use store::inspect::{self, ListOptions};
use store::{Case, Content, Node, Onto, PutReport, PutRequest, Reader, RefSpec, Unwatched, put};
use support::trees::write;

use crate::saves::{REF, Site};
use crate::stores::name;

/// Inserts a directory with these files.
fn insert(site: &Site, files: &[(&str, &str)], entries: &[(&str, Option<Content>)]) -> PutReport {
    let dir = site.path("insert");
    drop(std::fs::remove_dir_all(&dir));
    for (path, text) in files {
        write(&dir.join(path), text.as_bytes());
    }
    let entries = entries.iter();
    let entries = entries.map(|(path, instead)| (path.as_bytes().to_vec(), *instead));
    let request = PutRequest {
        onto: Onto::Insert,
        entries: entries.collect(),
        ..PutRequest::new(dir, name(REF))
    };
    put(&site.store(), &request, &Unwatched).unwrap()
}

/// The existing entries that kept others out, by path.
fn kept_out(report: &PutReport) -> Vec<(String, Case)> {
    let clashes = report.saved.as_ref().unwrap().clashes.iter();
    let told = clashes.map(|clash| (String::from_utf8(clash.path.clone()).unwrap(), clash.case));
    told.collect()
}

/// The nodes of the newest version, by path.
fn nodes(site: &Site) -> BTreeMap<String, Node> {
    let store = site.store();
    let reader = Reader::new(&store).unwrap();
    let mut found = BTreeMap::new();
    let options = ListOptions {
        recursive: true,
        times: false,
        lost: false,
    };
    inspect::ls(
        &reader,
        &RefSpec::newest(name(REF)),
        options,
        &mut |listed| {
            found.insert(String::from_utf8(listed.path).unwrap(), listed.node);
            Ok(())
        },
    )
    .unwrap();
    found
}

fn files(site: &Site) -> Vec<String> {
    let nodes = nodes(site).into_iter();
    let files = nodes.filter(|(_, node)| matches!(node, Node::File { .. }));
    files.map(|(path, _)| path).collect()
}

fn tree_at(site: &Site, path: &str) -> Content {
    match nodes(site).remove(path) {
        Some(Node::Tree { content, .. }) => content,
        other => panic!("{path}: {other:?}"),
    }
}

#[test]
fn an_entry_goes_in_whole_or_not_at_all() {
    let site = Site::new();
    let first = insert(
        &site,
        &[("c/1/neff", "one"), ("c/1/done", "")],
        &[("c/1", None)],
    );
    assert_eq!(first.version, Some(1));
    let same = insert(
        &site,
        &[("c/1/neff", "one"), ("c/1/done", "")],
        &[("c/1", None)],
    );
    assert!(same.unchanged && kept_out(&same).is_empty());
    // A merge by files would mix both entries.
    let other = [
        ("c/1/neff", "two"),
        ("c/1/log", "two"),
        ("c/2/neff", "two"),
        ("d/3/neff", "three"),
    ];
    let report = insert(
        &site,
        &other,
        &[("c/1", None), ("c/2", None), ("d/3", None)],
    );
    assert_eq!(kept_out(&report), [("c/1".to_owned(), Case::ThereFirst)]);
    assert_eq!(
        files(&site),
        ["c/1/done", "c/1/neff", "c/2/neff", "d/3/neff"]
    );
    let again = insert(
        &site,
        &other,
        &[("c/1", None), ("c/2", None), ("d/3", None)],
    );
    assert!(again.unchanged, "{again:?}");
    assert_eq!(again.version, Some(2));
}

#[test]
fn only_the_tree_that_was_seen_is_replaced() {
    let site = Site::new();
    insert(
        &site,
        &[("c/1/log", "failed"), ("c/2/log", "failed")],
        &[("c/1", None), ("c/2", None)],
    );
    let seen = tree_at(&site, "c/1");
    assert_eq!(seen, tree_at(&site, "c/2"));
    // Another writer replaces one of the broken entries first.
    insert(&site, &[("c/2/neff", "theirs")], &[("c/2", Some(seen))]);
    let mended = tree_at(&site, "c/2");
    let both = [("c/1/neff", "ours"), ("c/2/neff", "ours")];
    let report = insert(&site, &both, &[("c/1", Some(seen)), ("c/2", Some(seen))]);
    assert_eq!(kept_out(&report), [("c/2".to_owned(), Case::ThereFirst)]);
    assert_eq!(files(&site), ["c/1/neff", "c/2/neff"]);
    assert_eq!(tree_at(&site, "c/2"), mended);
}

#[test]
fn what_lies_where_an_entry_would_go_stays() {
    let site = Site::with(&[("c", "a file"), ("d/1", "a file")]);
    let report = insert(
        &site,
        &[("c/1/neff", "x"), ("d/1/neff", "y")],
        &[("c/1", None), ("d/1", None)],
    );
    let expected = ["c", "d/1"].map(|path| (path.to_owned(), Case::ThereFirst));
    assert_eq!(kept_out(&report), expected);
    assert_eq!(files(&site), ["c", "d/1"]);
    assert!(report.unchanged);
}
