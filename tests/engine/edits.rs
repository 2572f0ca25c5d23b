//! edit: files that are added and removed one by one make the same version as a put of the directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gc::collect;
use jiff::Timestamp;
use store::check::{ReadData, VerifyRequest, verify};
use store::remote::testing::faulty::Faults;
use store::remote::{Faulty, Prune};
use store::{EditReport, EditRequest, ErrorKind, Result, Store, Unwatched, edit};
use support::Random;
use support::trees::write;

use crate::collect::eager;
use crate::stores::{name, spec};
use crate::world::World;

const REF: &str = "project/demo/edited";

type Changes<'c> = &'c [(&'c str, Option<&'c [u8]>)];

fn request(onto: Option<u64>) -> EditRequest {
    EditRequest {
        target: name(REF),
        onto,
        message: "edited".to_owned(),
        expires: None,
        time: Timestamp::UNIX_EPOCH,
    }
}

/// Adds the files that have bytes, and removes the others.
fn change(store: &Store, onto: Option<u64>, changes: Changes<'_>) -> Result<EditReport> {
    let work = |edit: &mut store::Edit<'_>| {
        for (path, bytes) in changes {
            let Some(bytes) = bytes else {
                edit.remove(path.as_bytes())?;
                continue;
            };
            let mut file = edit.arriving(Some(bytes.len() as u64));
            for part in bytes.chunks(777) {
                file.push(edit, part)?;
            }
            let content = file.finish(edit)?;
            edit.add(path.as_bytes(), content)?;
        }
        Ok(())
    };
    edit(store, &request(onto), work).map(|(report, ())| report)
}

/// Removes empty directories.
fn prune(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            prune(&path);
            // A directory that is not empty stays.
            let _holds = fs::remove_dir(&path);
        }
    }
}

fn set(dir: &Path, path: &str, bytes: Option<&[u8]>) {
    let path = dir.join(path);
    match bytes {
        Some(bytes) => write(&path, bytes),
        None if path.is_dir() => fs::remove_dir_all(path).unwrap(),
        None if path.exists() => fs::remove_file(path).unwrap(),
        None => {}
    }
    prune(dir);
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = PathBuf::from(path.file_name().unwrap());
        if path.is_dir() {
            let below = files(&path).into_iter();
            found.extend(below.map(|(path, bytes)| (name.join(path), bytes)));
        } else {
            found.insert(name, fs::read(path).unwrap());
        }
    }
    found
}

fn root_of(store: &Store, name: &str) -> store::Root {
    let state = store.state().unwrap();
    state.version(&name.parse().unwrap(), None).unwrap().1.root
}

/// Reads all bytes and times again.
fn assert_sound(store: &Store) {
    let request = VerifyRequest {
        target: None,
        read: ReadData::Everything,
        now: Timestamp::UNIX_EPOCH,
    };
    let report = verify(store, &request, &Unwatched).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn random_edits_make_the_tree_that_a_put_makes() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let world = World::fine();
        let store = world.open(world.memory()).unwrap();
        let dir = world.tree("tree");
        fs::create_dir_all(&dir).unwrap();
        for number in 1..15 {
            // Two levels of directories, so that files, directories and nothing alternate at a few paths.
            let mut changes = BTreeMap::new();
            for _ in 0..=random.below(4) {
                let path = format!(
                    "d{}/e{}/f{}",
                    random.below(3),
                    random.below(2),
                    random.below(3)
                );
                let len = usize::try_from(random.below(5000)).unwrap();
                let bytes = (random.below(3) > 0).then(|| random.text(len));
                changes.insert(path, bytes);
            }
            if random.below(3) == 0 {
                let gone = format!("d{}", random.below(3));
                changes.retain(|path, _| !path.starts_with(&gone));
                changes.insert(gone, None);
            }
            let listed: Vec<_> = changes
                .iter()
                .map(|(path, bytes)| (path.as_str(), bytes.as_deref()))
                .collect();
            change(&store, None, &listed).unwrap();
            for (path, bytes) in listed {
                set(&dir, path, bytes);
            }
            let as_put = format!("project/demo/put-{number}");
            world.put_with(&store, "tree", &as_put).unwrap();
            assert_eq!(
                root_of(&store, REF),
                root_of(&store, &as_put),
                "{seed}, {number}"
            );
        }
        let found = world.get(&store, &spec(REF).to_string()).unwrap();
        assert_eq!(files(&dir), files(found.path()));
        assert_sound(&store);
    }
}

#[test]
fn a_precondition_holds_and_the_same_again_is_done_already() {
    let world = World::new();
    let store = world.open(world.memory()).unwrap();
    let first: Changes<'_> = &[("a", Some(b"one")), ("b/c", Some(b"two"))];
    assert_eq!(change(&store, Some(0), first).unwrap().version, 1);
    let again = change(&store, Some(0), first).unwrap();
    assert_eq!((again.version, again.unchanged), (1, true));
    let other = change(&store, Some(0), &[("a", Some(b"other"))]).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Conflict);
    assert_eq!(change(&store, Some(1), &[("a", None)]).unwrap().version, 2);
    // The answer to the first attempt was lost.
    let again = change(&store, Some(1), &[("a", None)]).unwrap();
    assert_eq!((again.version, again.unchanged), (2, true));
    let late = change(&store, Some(1), &[("a", Some(b"late"))]).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Conflict);
    assert_eq!(
        change(&store, Some(7), &[]).unwrap_err().kind(),
        ErrorKind::Conflict
    );
    assert_eq!(change(&store, None, &[("b", None)]).unwrap().version, 3);
    assert_eq!(root_of(&store, REF).entries(), 0);
}

#[test]
fn of_many_with_one_parent_one_is_first() {
    let world = World::new();
    let store = world.open(world.memory()).unwrap();
    change(&store, Some(0), &[]).unwrap();
    let done: Vec<_> = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..4)
            .map(|number| {
                let store = &store;
                scope.spawn(move || {
                    let bytes = format!("{number}").into_bytes();
                    change(store, Some(1), &[("file", Some(&bytes))])
                })
            })
            .collect();
        jobs.into_iter().map(|job| job.join().unwrap()).collect()
    });
    let kinds = done
        .iter()
        .map(|done| done.as_ref().err().map(store::Error::kind));
    let conflicts = kinds
        .clone()
        .filter(|kind| *kind == Some(ErrorKind::Conflict));
    assert_eq!(
        (kinds.filter(Option::is_none).count(), conflicts.count()),
        (1, 3)
    );
    assert_sound(&store);
}

#[test]
fn a_collector_in_between_costs_the_edit_and_never_the_version() {
    let mut published = 0;
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let world = World::fine();
        let remote: Arc<dyn Prune> = world.memory();
        let store = world.open(remote.clone()).unwrap();
        change(&store, None, &[("kept", Some(&random.text(3000)))]).unwrap();
        let texts: Vec<_> = (0..3).map(|_| random.text(4000)).collect();
        let at = usize::try_from(random.below(3)).unwrap();
        let done = edit(&store, &request(None), |edit| {
            for (number, text) in texts.iter().enumerate() {
                let mut file = edit.arriving(None);
                file.push(edit, text)?;
                let content = file.finish(edit)?;
                edit.add(format!("new/{number}").as_bytes(), content)?;
                if number == at {
                    for _ in 0..2 {
                        collect(&store, remote.as_ref(), &eager())?;
                    }
                }
            }
            Ok(())
        });
        match done {
            Ok((report, ())) => {
                published += 1;
                assert_eq!(report.version, 2);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        assert_sound(&store);
    }
    assert!(published > 0);
}

#[test]
fn what_the_store_has_is_added_without_its_bytes_and_what_it_has_not_is_refused() {
    let world = World::new();
    let store = world.open(world.memory()).unwrap();
    let text = Random::new(1).text(300_000);
    let (_, content) = edit(&store, &request(None), |edit| {
        let mut file = edit.arriving(Some(text.len() as u64));
        file.push(edit, &text)?;
        let content = file.finish(edit)?;
        edit.replace(content)?;
        Ok(content)
    })
    .unwrap();
    assert!(matches!(root_of(&store, REF), store::Root::File { .. }));
    let target = EditRequest {
        target: name("project/demo/other"),
        ..request(Some(0))
    };
    let (report, ()) = edit(&store, &target, |edit| edit.add(b"a/b", content)).unwrap();
    assert_eq!((report.version, report.new_bytes), (1, 0));
    assert_sound(&store);
    let unknown = store::Content {
        root: store::ChunkId([7; 32]),
        ..content
    };
    let refused = edit(&store, &target, |edit| edit.add(b"a/c", unknown)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
}

/// A directory that is removed and added again in one edit has lost its old files. A directory that is only added to
/// has not.
#[test]
fn a_directory_that_goes_and_comes_again_in_one_edit_has_only_what_came() {
    let world = World::new();
    let store = world.open(world.memory()).unwrap();
    let old: Changes<'_> = &[
        ("a/b/x", Some(b"1")),
        ("a/y", Some(b"2")),
        ("c", Some(b"3")),
    ];
    for (goes, stays) in [("a", false), ("a/b", true)] {
        change(&store, None, &[("a", None)]).ok();
        change(&store, None, old).unwrap();
        let new = format!("{goes}/new");
        change(&store, None, &[(goes, None), (&new, Some(b"4"))]).unwrap();
        let tree = world.tree(&format!("put-{stays}"));
        write(&tree.join(&new), b"4");
        write(&tree.join("c"), b"3");
        if stays {
            write(&tree.join("a/y"), b"2");
        }
        let target = format!("project/demo/put-{stays}");
        world
            .put_with(&store, &format!("put-{stays}"), &target)
            .unwrap();
        assert_eq!(root_of(&store, REF), root_of(&store, &target), "{goes}");
    }
    assert_sound(&store);
}

#[test]
fn links_are_made_as_a_put_finds_them_and_lead_somewhere() {
    let world = World::new();
    let store = world.open(world.memory()).unwrap();
    change(&store, None, &[("blobs/x", Some(b"text"))]).unwrap();
    edit(&store, &request(None), |edit| {
        edit.link(b"snapshots/a", b"../blobs/x")
    })
    .unwrap();
    let tree = world.tree("put");
    write(&tree.join("blobs/x"), b"text");
    fs::create_dir_all(tree.join("snapshots")).unwrap();
    std::os::unix::fs::symlink("../blobs/x", tree.join("snapshots/a")).unwrap();
    world.put_with(&store, "put", "project/demo/put").unwrap();
    assert_eq!(root_of(&store, REF), root_of(&store, "project/demo/put"));
    for target in [&b""[..], b"a\0b"] {
        let refused = edit(&store, &request(None), |edit| edit.link(b"b", target));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_sound(&store);
}

#[test]
fn power_goes_off_after_every_mutation_and_the_version_is_whole_or_not_there() {
    let old: Changes<'_> = &[("a", Some(b"old")), ("b/c", Some(b"stays"))];
    let texts = [Random::new(1).text(9000), Random::new(2).text(2000)];
    let new: Changes<'_> = &[
        ("a", Some(&texts[0])),
        ("d", Some(&texts[1])),
        ("b/c", None),
    ];
    let (mut before, mut after) = (0, 0);
    for stop_after in 0..200 {
        let world = World::fine();
        let remote = world.memory();
        let store = world.open(remote.clone()).unwrap();
        change(&store, Some(0), old).unwrap();
        let faults = Faults {
            stop_after: Some(stop_after),
            ..Faults::default()
        };
        let faulty = Faulty::new(remote.clone(), faults);
        let cut = world.open(Arc::new(faulty.clone()));
        let outcome = cut.and_then(|cut| change(&cut, Some(1), new));
        let store = world.open(remote).unwrap();
        assert_sound(&store);
        let state = store.state().unwrap();
        let (version, _) = state.version(&name(REF), None).unwrap();
        assert!(outcome.is_err() || version == 2, "{stop_after}");
        before += u64::from(version == 1);
        after += u64::from(version == 2);
        // A repeated edit finds it done, or does it.
        assert_eq!(
            change(&store, Some(1), new).unwrap().version,
            2,
            "{stop_after}"
        );
        assert_sound(&store);
        if faulty.counts().mutations < stop_after {
            assert!(before > 3 && after > 0, "{before}, {after}");
            return;
        }
    }
    panic!("more mutations than an edit makes");
}
