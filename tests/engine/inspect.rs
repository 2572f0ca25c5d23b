//! Listings, differences and sums, compared with the file system and standard tools.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use store::format::{Node, RefSpec, Target};
use store::host::walk::WalkOptions;
use store::inspect::{
    Aspect, Difference, Event, ListOptions, diff, diff_with_directory, growth, ls, summarize, usage,
};
use store::read::Reader;
use store::{ErrorKind, Store};

use crate::stores::{noise, odd_tree, put_tree, shell, spec, store_in};

const REF: &str = "project/demo/data";

fn paths(store: &Store, spec: &RefSpec, recursive: bool) -> Vec<(Vec<u8>, Option<i64>)> {
    let reader = Reader::new(store).unwrap();
    let mut paths = Vec::new();
    let options = ListOptions {
        recursive,
        times: true,
        lost: false,
    };
    ls(&reader, spec, options, &mut |listed| {
        paths.push((listed.path, listed.time.map(|time| time.secs)));
        Ok(())
    })
    .unwrap();
    paths
}

/// The output of `find` for a directory: path and modification time, in byte order.
fn found(dir: &Path, depth: &str) -> Vec<(Vec<u8>, Option<i64>)> {
    let command = format!(
        "cd '{}' && find . -mindepth 1 {depth} -printf '%P\\t%T@\\0' | tr '\\n' '\\001'",
        dir.display()
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &command])
        .output()
        .unwrap();
    let mut paths: Vec<_> = output
        .stdout
        .split(|byte| *byte == 0)
        .filter(|line| !line.is_empty())
        .map(|line| {
            let at = line.iter().rposition(|byte| *byte == b'\t').unwrap();
            let path = line[..at]
                .iter()
                .map(|byte| if *byte == 1 { b'\n' } else { *byte });
            let secs = String::from_utf8_lossy(&line[at + 1..]);
            let secs = secs.split('.').next().unwrap().parse().unwrap();
            (path.collect::<Vec<u8>>(), Some(secs))
        })
        .collect();
    paths.sort_by(|a, b| store::host::walk::compare_paths(&a.0, &b.0));
    paths
}

#[test]
fn a_listing_has_every_entry_with_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    odd_tree(&source);
    let store = store_in(dir.path());
    put_tree(&store, &source, REF);
    assert_eq!(paths(&store, &spec(REF), true), found(&source, ""));
    assert_eq!(
        paths(&store, &spec(REF), false),
        found(&source, "-maxdepth 1")
    );
    let inside = spec(&format!("{REF}:sub/deep"));
    assert_eq!(
        paths(&store, &inside, true),
        found(&source.join("sub/deep"), "")
    );
    let file = paths(&store, &spec(&format!("{REF}:run.sh")), true);
    assert_eq!(file, [(Vec::new(), Some(981_173_106))]);
}

fn events(store: &Store, before: &str, after: &str) -> Vec<String> {
    let reader = Reader::new(store).unwrap();
    let mut lines = Vec::new();
    let count = diff(&reader, &spec(before), &spec(after), &mut |event| {
        lines.push(line(&event));
        Ok(())
    });
    assert_eq!(count.unwrap(), lines.len() as u64);
    lines
}

fn events_with(store: &Store, before: &str, after: &Path) -> Vec<String> {
    let reader = Reader::new(store).unwrap();
    let mut lines = Vec::new();
    let options = WalkOptions::default();
    diff_with_directory(&reader, &spec(before), after, options, &mut |event| {
        lines.push(line(&event));
        Ok(())
    })
    .unwrap();
    lines
}

fn line(event: &Event) -> String {
    let what = match &event.difference {
        Difference::Added(_) => "+".to_owned(),
        Difference::Removed(_) => "-".to_owned(),
        Difference::Changed { aspects, .. } => aspects
            .iter()
            .map(|aspect| match aspect {
                Aspect::Kind => 'k',
                Aspect::Content => 'c',
                Aspect::Executable => 'x',
                Aspect::Target => 't',
                Aspect::Modes | Aspect::Owners | Aspect::Xattrs => panic!("nothing is kept"),
            })
            .collect(),
    };
    format!("{what} {}", event.path.escape_ascii())
}

/// Changes a copy of the odd tree in every possible way.
fn edit(tree: &Path) {
    fs::write(tree.join("sub/deep/er/added"), "new").unwrap();
    fs::remove_file(tree.join("noise-100")).unwrap();
    let file = tree.join("noise-9437184");
    let mut bytes = fs::read(&file).unwrap();
    bytes[5_000_000] ^= 1;
    fs::write(&file, bytes).unwrap();
    fs::set_permissions(tree.join("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(tree.join("link")).unwrap();
    symlink("elsewhere", tree.join("link")).unwrap();
    fs::remove_file(tree.join("hole")).unwrap();
    fs::create_dir_all(tree.join("hole/now a/directory")).unwrap();
    fs::remove_dir_all(tree.join("sub/empty")).unwrap();
    fs::write(tree.join("sub-"), "sorts between sub and what is in it").unwrap();
    shell(&format!(
        "cd '{}' && printf x | dd of=sparse bs=1 seek=30000000 conv=notrunc 2>/dev/null",
        tree.display()
    ));
}

const EDITS: [&str; 11] = [
    "k hole",
    "+ hole/now a",
    "+ hole/now a/directory",
    "t link",
    "- noise-100",
    "c noise-9437184",
    "x run.sh",
    "c sparse",
    "+ sub/deep/er/added",
    "- sub/empty",
    "+ sub-",
];

#[test]
fn two_versions_differ_in_what_was_edited() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    odd_tree(&source);
    let store = store_in(dir.path());
    put_tree(&store, &source, REF);
    put_tree(&store, &source, "team/other/copy");
    edit(&source);
    put_tree(&store, &source, REF);
    assert_eq!(events(&store, REF, REF), [""; 0]);
    assert_eq!(
        events(&store, &format!("{REF}@1"), "team/other/copy"),
        [""; 0]
    );
    assert_eq!(events(&store, &format!("{REF}@1"), REF), EDITS);
    let back = events(&store, REF, &format!("{REF}@1"));
    assert_eq!(back.len(), EDITS.len());
    assert!(back.contains(&"- sub/deep/er/added".to_owned()), "{back:?}");
}

#[test]
fn a_directory_differs_from_a_ref_in_what_was_edited() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    odd_tree(&source);
    let store = store_in(dir.path());
    put_tree(&store, &source, REF);
    assert_eq!(events_with(&store, REF, &source), [""; 0]);
    shell(&format!("touch '{}/run.sh'", source.display()));
    assert_eq!(
        events_with(&store, REF, &source),
        [""; 0],
        "times are not compared"
    );
    edit(&source);
    assert_eq!(events_with(&store, REF, &source), EDITS);
    let deep = events_with(&store, &format!("{REF}:sub/deep"), &source.join("sub/deep"));
    assert_eq!(deep, ["+ er/added"]);
    let file = events_with(&store, &format!("{REF}:run.sh"), &source.join("noise-1"));
    assert_eq!(file, ["cx "]);
}

#[test]
fn a_diff_of_equal_trees_reads_neither() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    odd_tree(&source);
    let store = store_in(dir.path());
    put_tree(&store, &source, REF);
    put_tree(&store, &source, REF);
    fs::remove_dir_all(dir.path().join("store/packs")).unwrap();
    assert_eq!(events(&store, &format!("{REF}@1"), REF), [""; 0]);
}

fn summary(store: &Store, target: &str) -> store::inspect::Summary {
    let reader = Reader::new(store).unwrap();
    summarize(&reader, &Target::parse(target.as_bytes()).unwrap()).unwrap()
}

#[test]
fn sums_are_exact_under_deduplication() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let (common, own) = (noise(1, 3 << 20), noise(2, 1 << 20));
    for tree in [&one, &two] {
        fs::create_dir_all(tree.join("dir")).unwrap();
        fs::write(tree.join("dir/common"), &common).unwrap();
        fs::write(tree.join("dir/again"), &common).unwrap();
    }
    fs::write(two.join("own"), &own).unwrap();
    let store = store_in(dir.path());
    put_tree(&store, &one, "project/a/data");
    let alone = summary(&store, "project/a");
    assert_eq!((alone.refs, alone.versions, alone.entries), (1, 1, 3));
    assert_eq!((alone.bytes, alone.version_bytes), (6 << 20, 6 << 20));
    assert_eq!(alone.shared.chunks, 0);
    put_tree(&store, &two, "project/b/data");
    put_tree(&store, &two, "project/b/data");
    let (a, b) = (summary(&store, "project/a"), summary(&store, "project/b"));
    assert_eq!((b.refs, b.versions), (1, 2));
    assert_eq!((b.bytes, b.version_bytes), (7 << 20, 14 << 20));
    let data = |bytes: u64| bytes..bytes + 20_000;
    assert!(data(0).contains(&a.unique.bytes), "{a:?}");
    assert!(data(3 << 20).contains(&a.shared.bytes), "{a:?}");
    assert!(data(1 << 20).contains(&b.unique.bytes), "{b:?}");
    assert_eq!(a.shared, b.shared);
    // Every chunk of the store belongs to one of these groups, and so does every part of a frame.
    let index = store.view().unwrap().index;
    let all: u64 = index.segments().map(|one| one.layout().chunks()).sum();
    assert_eq!(all, a.unique.chunks + b.unique.chunks + b.shared.chunks);
    let stored: u64 = store
        .state()
        .unwrap()
        .segments
        .values()
        .map(|info| info.pack_bytes)
        .sum();
    let told = a.unique.stored_bytes + b.unique.stored_bytes + b.shared.stored_bytes;
    assert!(
        (told..told + 20_000).contains(&stored),
        "{told} of {stored}"
    );
    let first = summary(&store, "project/b/data@1");
    assert!(
        first.unique.chunks <= 1,
        "only its times may be its own: {first:?}"
    );
}

#[test]
fn a_file_that_is_the_bytes_of_a_tree_hides_no_tree() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("file"), noise(3, 100_000)).unwrap();
    let store = store_in(dir.path());
    put_tree(&store, &inner, "project/a/inner");
    let reader = Reader::new(&store).unwrap();
    let Node::Tree { content, .. } = reader.resolve(&spec("project/a/inner")).unwrap().node else {
        panic!("a tree");
    };
    let outer = dir.path().join("outer");
    fs::create_dir_all(outer.join("zzz")).unwrap();
    fs::write(outer.join("aaa"), reader.meta(&content).unwrap()).unwrap();
    fs::copy(inner.join("file"), outer.join("zzz/file")).unwrap();
    put_tree(&store, &outer, "project/b/outer");
    let b = summary(&store, "project/b");
    assert!(b.shared.bytes > 100_000, "{b:?}");
}

#[test]
fn nothing_of_a_name_is_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let reader = Reader::new(&store).unwrap();
    for target in [
        "project/none",
        "project/none/at-all",
        "project/none/at-all@3",
    ] {
        let target = Target::parse(target.as_bytes()).unwrap();
        let error = summarize(&reader, &target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    }
}

#[test]
fn growth_follows_time_and_adds_up_to_what_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let store = store_in(dir.path());
    let put = |seed: u64, target: &str| {
        fs::write(tree.join(format!("file-{seed}")), noise(seed, 1 << 20)).unwrap();
        put_tree(&store, &tree, target);
    };
    // The order by name is the reverse.
    put(1, "project/a/z");
    put(2, "project/a/y");
    put(3, "project/a/z");
    put(4, "project/b/x");
    let reader = Reader::new(&store).unwrap();
    let grown = growth(&reader).unwrap();
    let usages: Vec<_> = grown.iter().map(|one| one.usage.clone()).collect();
    assert_eq!(usages, usage(&reader).unwrap());
    let [a, b] = grown.as_slice() else {
        panic!("{grown:?}");
    };
    let logical: Vec<u64> = a
        .steps
        .iter()
        .map(|step| step.version_bytes >> 20)
        .collect();
    assert_eq!(logical, [1, 3, 6]);
    let stored: Vec<u64> = a.steps.iter().map(|step| step.stored_bytes >> 20).collect();
    assert_eq!(stored, [1, 2, 3]);
    assert_eq!(a.steps.last().unwrap().stored_bytes, a.usage.stored_bytes);
    let parts: Vec<_> = a
        .parts
        .iter()
        .map(|part| (part.name.path(), part.stored_bytes >> 20))
        .collect();
    assert_eq!(parts, [("z", 2), ("y", 1)]);
    // Chunks that another namespace already has count for both.
    assert_eq!((b.steps.len(), b.usage.stored_bytes >> 20), (1, 4));
}
