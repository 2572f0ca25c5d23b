//! Walks over real directories, some of which change during the walk.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, mkfifoat, openat, unlinkat};

use super::*;
use crate::error::ErrorKind;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn touch(path: impl AsRef<Path>) {
    fs::write(path, b"x").unwrap();
}

/// One line for each item: its kind, and its path relative to the root.
fn lines(walk: &mut FileWalk) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(item) = walk.next() {
        let what = match item {
            Ok(Item::Enter { .. }) => "enter".to_owned(),
            Ok(Item::File { stat, .. }) => format!("file {}", stat.size),
            Ok(Item::Symlink { target, .. }) => format!("link {}", target.escape_ascii()),
            Ok(Item::Leave) => "leave".to_owned(),
            Ok(Item::Skipped { path, error }) => format!("skipped {} {error}", path.display()),
            Err(error) => format!("error {error}"),
        };
        lines.push(format!("{what} [{}]", walk.path().escape_ascii()));
    }
    lines
}

fn walk_all(root: &Path, options: WalkOptions) -> Vec<String> {
    lines(&mut walk(root, options).unwrap())
}

fn skipping() -> WalkOptions {
    WalkOptions {
        skip_unreadable: true,
        ..WalkOptions::default()
    }
}

#[test]
fn a_walk_goes_depth_first_in_the_order_of_name_bytes() {
    let root = scratch();
    let root = root.path();
    fs::create_dir_all(root.join("a/inner/empty")).unwrap();
    for name in ["a.b", "B", "a/z", "a/inner0", "a-b"] {
        touch(root.join(name));
    }
    touch(root.join(OsStr::from_bytes(b"\xff\n")));
    touch(root.join("n".repeat(255)));
    symlink("a/../a", root.join("loop")).unwrap();
    symlink("no such", root.join("a/dangling")).unwrap();
    let long = format!("file 1 [{}]", "n".repeat(255));
    let expected = [
        "enter []",
        "file 1 [B]",
        "enter [a]",
        "link no such [a/dangling]",
        "enter [a/inner]",
        "enter [a/inner/empty]",
        "leave [a/inner]",
        "leave [a]",
        "file 1 [a/inner0]",
        "file 1 [a/z]",
        "leave []",
        "file 1 [a-b]",
        "file 1 [a.b]",
        "link a/../a [loop]",
        long.as_str(),
        "file 1 [\\xff\\n]",
        "leave []",
    ];
    assert_eq!(walk_all(root, WalkOptions::default()), expected);
}

#[test]
fn a_walk_finds_what_the_standard_library_finds() {
    fn collect(dir: &Path, out: &mut Vec<(PathBuf, u64)>) {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let meta = entry.path().symlink_metadata().unwrap();
            out.push((entry.path(), if meta.is_file() { meta.len() } else { 0 }));
            if meta.is_dir() {
                collect(&entry.path(), out);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut expected = Vec::new();
    collect(root, &mut expected);
    expected.sort();
    let mut found = Vec::new();
    let mut walk = walk(root, WalkOptions::default()).unwrap();
    while let Some(item) = walk.next() {
        let size = match item.unwrap() {
            Item::Leave => continue,
            Item::File { stat, .. } => stat.size,
            _ => 0,
        };
        found.push((root.join(OsStr::from_bytes(walk.path())), size));
    }
    found.remove(0);
    assert!(found.len() > 20 && found.is_sorted());
    assert_eq!(found, expected);
}

#[test]
fn the_root_may_be_a_symlink_and_a_single_file() {
    let root = scratch();
    let root = root.path();
    fs::create_dir(root.join("dir")).unwrap();
    touch(root.join("dir/file"));
    symlink("dir", root.join("to-dir")).unwrap();
    symlink("dir/file", root.join("to-file")).unwrap();
    let expected = ["enter []", "file 1 [file]", "leave []"];
    assert_eq!(
        walk_all(&root.join("to-dir"), WalkOptions::default()),
        expected
    );
    for path in ["dir/file", "to-file"] {
        let mut walk = walk(&root.join(path), WalkOptions::default()).unwrap();
        let Some(Ok(Item::File { dir, name, stat })) = walk.next() else {
            panic!("no file")
        };
        assert_eq!((name.as_slice(), stat.size), (b"file".as_slice(), 1));
        assert_eq!(
            Stat::of_file(&dir.open_file(&name).unwrap(), root).unwrap(),
            stat
        );
        assert!(walk.next().is_none());
    }
    let error = walk(&root.join("none"), WalkOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("look at {}/none", root.display())
    );
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn what_is_no_file_is_named_or_skipped() {
    let root = scratch();
    let root = root.path();
    mkfifoat(CWD, root.join("pipe"), Mode::RWXU).unwrap();
    let message = format!(
        "{}/pipe: expected a file, directory or symlink, found a named pipe",
        root.display()
    );
    let mut failing = walk(root, WalkOptions::default()).unwrap();
    assert!(matches!(failing.next(), Some(Ok(Item::Enter { .. }))));
    let error = failing.next().unwrap().unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::InvalidInput, message.clone())
    );
    assert!(failing.next().is_none(), "a walk ends after its error");
    let error = walk(&root.join("pipe"), WalkOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), message);

    let _listener = UnixListener::bind(root.join("socket")).unwrap();
    touch(root.join("z"));
    let path = root.display();
    let expected = [
        "enter []".to_owned(),
        format!("skipped {path}/pipe {message} [pipe]"),
        format!(
            "skipped {path}/socket {path}/socket: expected a file, directory or symlink, found a socket [socket]"
        ),
        "file 1 [z]".to_owned(),
        "leave []".to_owned(),
    ];
    assert_eq!(walk_all(root, skipping()), expected);
}

#[test]
fn what_disappears_is_named_or_skipped() {
    let start = |options| {
        let root = scratch();
        fs::create_dir(root.path().join("dir")).unwrap();
        touch(root.path().join("file"));
        let mut walk = walk(root.path(), options).unwrap();
        walk.next().unwrap().unwrap();
        fs::remove_dir(root.path().join("dir")).unwrap();
        fs::remove_file(root.path().join("file")).unwrap();
        (lines(&mut walk), root.path().display().to_string())
    };
    let (found, path) = start(WalkOptions::default());
    assert_eq!(found, [format!("error open directory {path}/dir [dir]")]);
    let (found, path) = start(skipping());
    let expected = [
        format!("skipped {path}/dir open directory {path}/dir [dir]"),
        format!("skipped {path}/file look at {path}/file [file]"),
        "leave []".to_owned(),
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_is_replaced_by_a_symlink_or_pipe_leads_nowhere() {
    let (root, secret) = (scratch(), scratch());
    let root = root.path();
    fs::create_dir(root.join("dir")).unwrap();
    touch(root.join("file"));
    touch(secret.path().join("secret"));
    let mut walk = walk(root, WalkOptions::default()).unwrap();
    let Some(Ok(Item::Enter { dir, .. })) = walk.next() else {
        panic!("no root")
    };
    fs::remove_dir(root.join("dir")).unwrap();
    symlink(secret.path(), root.join("dir")).unwrap();
    fs::remove_file(root.join("file")).unwrap();
    symlink(secret.path().join("secret"), root.join("file")).unwrap();
    let error = walk.next().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("open directory {}/dir", root.display())
    );
    let error = dir.open_file(b"file").unwrap_err();
    assert_eq!(error.to_string(), format!("open {}/file", root.display()));
    fs::remove_file(root.join("file")).unwrap();
    mkfifoat(CWD, root.join("file"), Mode::RWXU).unwrap();
    // Does not wait for somebody to write to it.
    let opened = Stat::of_file(&dir.open_file(b"file").unwrap(), root).unwrap();
    assert_eq!(opened.file_type(), FileType::Fifo);
}

#[test]
fn a_tree_that_is_renamed_is_walked_to_its_end() {
    let root = scratch();
    let (old, new) = (root.path().join("old"), root.path().join("new"));
    fs::create_dir_all(old.join("dir")).unwrap();
    touch(old.join("dir/file"));
    let mut walk = walk(&old, WalkOptions::default()).unwrap();
    walk.next().unwrap().unwrap();
    fs::rename(&old, &new).unwrap();
    fs::create_dir(&old).unwrap();
    assert_eq!(
        lines(&mut walk),
        ["enter [dir]", "file 1 [dir/file]", "leave []", "leave []"]
    );
}

/// Makes `depth` nested directories named `d`, each with a file `z`; returns the innermost.
fn deep(root: &Path, depth: usize) -> OwnedFd {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let mut dir = openat(CWD, root, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        openat(&dir, "z", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        mkdirat(&dir, "d", Mode::RWXU).unwrap();
        dir = openat(&dir, "d", flags, Mode::empty()).unwrap();
    }
    dir
}

#[test]
fn deep_trees_need_few_descriptors() {
    let root = scratch();
    let depth = 1500;
    let mut dir = deep(root.path(), depth);
    let mut walk = walk(root.path(), WalkOptions::default()).unwrap();
    let (mut entered, mut files, mut left, mut most) = (0, 0, 0, 0);
    while let Some(item) = walk.next() {
        match item.unwrap() {
            Item::Enter { .. } => entered += 1,
            Item::File { dir, .. } => {
                files += 1;
                assert_eq!(walk.path().len(), 2 * (depth - files) + 1);
                assert_eq!(
                    dir.path().as_os_str().len(),
                    root.path().as_os_str().len() + 2 * (depth - files)
                );
            }
            Item::Leave => left += 1,
            other => panic!("{other:?}"),
        }
        most = most.max(
            walk.stack
                .iter()
                .filter(|frame| frame.dir.is_some())
                .count(),
        );
    }
    assert_eq!((entered, files, left), (depth + 1, depth, depth + 1));
    assert_eq!(most, OPEN_DIRS_MAX);
    // Removing the temporary directory in the usual way takes a descriptor for each level.
    for _ in 0..depth {
        dir = openat(&dir, "..", OFlags::DIRECTORY, Mode::empty()).unwrap();
        unlinkat(&dir, "d", AtFlags::REMOVEDIR).unwrap();
        unlinkat(&dir, "z", AtFlags::empty()).unwrap();
    }
}

#[test]
fn a_directory_moved_away_below_a_closed_parent_is_noticed() {
    let root = scratch();
    let depth = OPEN_DIRS_MAX + 20;
    deep(root.path(), depth);
    let mut walk = walk(root.path(), WalkOptions::default()).unwrap();
    walk.by_ref()
        .take(depth + 1)
        .for_each(|item| assert!(matches!(item, Ok(Item::Enter { .. }))));
    let tenth = root.path().join(["d"; 10].join("/"));
    fs::rename(&tenth, root.path().join("moved")).unwrap();
    let error = walk.find_map(Result::err).unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "directory {}: it was moved while it was read",
            tenth.display()
        )
    );
    assert!(walk.next().is_none());
}

#[test]
fn excluded_names_and_paths_are_passed_over() {
    let root = scratch();
    let root = root.path();
    fs::create_dir_all(root.join("a/cache/deep")).unwrap();
    for name in ["a/cache/x", "a/keep", "a/x.tmp", "cache", "keep"] {
        touch(root.join(name));
    }
    let exclude = Globs::new(&["cache/", "*.tmp", "/keep"]).unwrap();
    let found = walk_all(
        root,
        WalkOptions {
            exclude,
            ..WalkOptions::default()
        },
    );
    let expected = [
        "enter []",
        "enter [a]",
        "file 1 [a/keep]",
        "leave []",
        "file 1 [cache]",
        "leave []",
    ];
    assert_eq!(found, expected);
}

#[test]
fn holes_are_found() {
    let root = scratch();
    let path = root.path().join("sparse");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    let mib = 1 << 20;
    file.set_len(8 * mib).unwrap();
    assert_eq!(next_data(&file, 0, 8 * mib).unwrap(), (8 * mib, 8 * mib));
    file.write_all_at(&[1; 4096], 2 * mib).unwrap();
    file.write_all_at(&[1; 4096], 8 * mib - 4096).unwrap();
    let stat = Stat::of_file(&file, &path).unwrap();
    assert!(stat.is_sparse() && stat.size == 8 * mib);
    let mut ranges = vec![(0, 0)];
    while let Some((_, end)) = ranges.last().filter(|range| range.0 < 8 * mib) {
        ranges.push(next_data(&file, *end, 8 * mib).unwrap());
    }
    assert_eq!(
        ranges[1..],
        [
            (2 * mib, 2 * mib + 4096),
            (8 * mib - 4096, 8 * mib),
            (8 * mib, 8 * mib)
        ]
    );
    assert_eq!(
        next_data(&file, 2 * mib + 5, 8 * mib).unwrap(),
        (2 * mib + 5, 2 * mib + 4096)
    );
    touch(root.path().join("dense"));
    let dense = File::open(root.path().join("dense")).unwrap();
    assert_eq!(next_data(&dense, 0, 1).unwrap(), (0, 1));
    assert!(!Stat::of_file(&dense, &path).unwrap().is_sparse());
}
