//! The base of a save: from the tree's record, the last save, or the command line.

use std::fs;
use std::sync::Arc;

use gc::collect;
use store::refs::drop_versions;
use store::{
    Ancestor, Case, ErrorKind, MaterializeRequest, Onto, PutRequest, Reader, SourceCheck,
    Unwatched, materialize, materialize_from, put, put_after,
};
use support::trees::write;

use crate::collect::eager;
use crate::saves::{REF, Site, clashes, replace};
use crate::stores::{name, spec};

#[test]
fn a_directory_is_saved_again_and_again_beside_others() {
    let site = Site::with(&[("a", "base"), ("b", "base")]);
    let (one, other) = (site.job("one"), site.job("other"));
    replace(&one.join("a"), "one");
    assert_eq!(site.save(&one).version, Some(2));
    replace(&other.join("a"), "other");
    assert_eq!(
        clashes(&site.save(&other)),
        [("a".to_owned(), Case::BothChanged)]
    );
    // The directory has not changed since, so the other job's changes stay.
    let again = site.save(&one);
    assert_eq!((again.version, again.unchanged), (Some(3), true));
    write(&one.join("new"), b"one");
    assert_eq!(clashes(&site.save(&one)), []);
    assert_eq!(site.newest(), ["a=other", "b=base", "new=one"]);
    // A file that was saved once and deleted by another job does not come back.
    fs::remove_file(one.join("b")).unwrap();
    site.save(&one);
    assert_eq!(site.newest(), ["a=other", "new=one"]);
    assert!(site.save(&other).unchanged);
    assert_eq!(site.newest(), ["a=other", "new=one"]);
}

/// What a job changed or deleted stays when its tree is updated to a newer version. It still counts as made from the
/// older one, so it clashes with changes of others.
#[test]
fn what_a_newer_version_left_to_a_job_clashes_with_what_others_did() {
    for is_brought in [false, true] {
        let site = Site::with(&[
            ("a", "base"),
            ("b", "base"),
            ("c", "base"),
            ("dir/d", "base"),
        ]);
        let (one, other) = (site.job("one"), site.job("other"));
        for file in ["a", "b", "c", "dir/d"] {
            replace(&other.join(file), "other");
        }
        site.save(&other);
        replace(&one.join("a"), "one");
        fs::remove_file(one.join("b")).unwrap();
        fs::remove_dir_all(one.join("dir")).unwrap();
        if is_brought {
            site.job("one");
        }
        assert_eq!(
            clashes(&site.save(&one)),
            [
                ("a".to_owned(), Case::BothChanged),
                ("b".to_owned(), Case::DeletedHere),
                ("dir/d".to_owned(), Case::DeletedHere),
            ],
            "{is_brought}"
        );
        assert_eq!(
            site.newest(),
            ["a=one", "b=other", "c=other", "dir/d=other"],
            "{is_brought}"
        );
    }
}

#[test]
fn a_base_that_was_collected_is_known_from_the_record() {
    let site = Site::with(&[("a", "base"), ("b/c", "base"), ("b/d", "base")]);
    let dir = site.job("job");
    write(&site.path("first/b/c"), b"theirs");
    put(
        &site.store(),
        &PutRequest::new(site.path("first"), name(REF)),
        &Unwatched,
    )
    .unwrap();
    drop_versions(&site.store(), &name(REF), Some(1)).unwrap();
    for _ in 0..2 {
        collect(&site.store(), site.remote.as_ref(), &eager()).unwrap();
    }
    write(&dir.join("new"), b"ours");
    fs::remove_file(dir.join("b/d")).unwrap();
    let report = site.save(&dir);
    assert_eq!(clashes(&report), []);
    assert_eq!(site.newest(), ["a=base", "b/c=theirs", "new=ours"]);
    // The base is also known after the last save.
    write(&dir.join("more"), b"ours");
    let base = site.save(&dir).saved.unwrap().base;
    assert_eq!(base, Some(3));
    assert_eq!(
        site.newest(),
        ["a=base", "b/c=theirs", "more=ours", "new=ours"]
    );
    // The directory's own tree is in no version and may be collected. A save that changes nothing leaves no unknown
    // packs.
    for _ in 0..2 {
        collect(&site.store(), site.remote.as_ref(), &eager()).unwrap();
    }
    assert!(site.save(&dir).unchanged);
    let known = site.store().view().unwrap().index.packs().count();
    assert_eq!(site.remote.list("packs").unwrap().len(), known);
}

/// The version of a saved directory is recorded after it is in the log. A process that read the log before must not
/// take the store for an older copy.
#[test]
fn who_looked_before_a_directory_was_saved_takes_the_store_for_no_older_copy() {
    let site = Site::with(&[("a", "base")]);
    let dir = site.job("job");
    let store = site.store();
    let before = store.view().unwrap();
    let reader = Reader::at(&store, before.clone());
    write(&dir.join("new"), b"ours");
    assert_eq!(site.save(&dir).version, Some(2));
    let request = MaterializeRequest::new(spec(REF), &dir);
    let made = materialize_from(&reader, &site.pool, &request, &Unwatched).unwrap();
    assert_eq!(made.version, 2);
    write(&dir.join("more"), b"ours");
    let saved = put_after(&store, &site.request(&dir), &Unwatched, Some(before)).unwrap();
    assert_eq!(saved.version, Some(3));
    assert_eq!(site.newest(), ["a=base", "more=ours", "new=ours"]);
}

/// The base of the next save includes excluded files, and does not include deleted ones.
#[test]
fn what_was_deleted_beside_what_is_left_out_is_not_deleted_again() {
    let site = Site::with(&[("a", "base"), ("b.log", "base"), ("x", "base")]);
    let dir = site.job("job");
    fs::remove_file(dir.join("x")).unwrap();
    let request = PutRequest {
        exclude: vec!["*.log".into()],
        ..site.request(&dir)
    };
    site.try_save(&request).unwrap();
    assert_eq!(site.newest(), ["a=base", "b.log=base"]);
    // Another job creates the file again.
    let other = site.job("other");
    write(&other.join("x"), b"base");
    site.save(&other);
    site.try_save(&request).unwrap();
    assert_eq!(site.newest(), ["a=base", "b.log=base", "x=base"]);
}

#[test]
fn a_directory_of_which_all_is_left_out_was_not_emptied() {
    let site = Site::with(&[("a", "base")]);
    let dir = site.job("job");
    fs::remove_file(dir.join("a")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("a"), 0o600.into()).unwrap();
    assert!(site.try_save(&site.request(&dir)).unwrap().unchanged);
    assert_eq!(site.newest(), ["a=base"]);
}

#[test]
fn a_tree_of_some_files_deletes_no_others() {
    let site = Site::with(&[("a.txt", "base"), ("b.bin", "base")]);
    let request = MaterializeRequest {
        include: vec!["*.txt".into()],
        ..MaterializeRequest::new(spec(REF), site.path("job"))
    };
    materialize(&site.store(), &site.pool, &request, &Unwatched).unwrap();
    write(&site.path("job/new.txt"), b"ours");
    fs::remove_file(site.path("job/a.txt")).unwrap();
    site.save(&site.path("job"));
    assert_eq!(site.newest(), ["b.bin=base", "new.txt=ours"]);
}

#[test]
fn a_directory_of_unknown_origin_needs_a_base() {
    let site = Site::new();
    let dir = site.path("own");
    write(&dir.join("a"), b"ours");
    // The first save creates the ref.
    assert_eq!(site.save(&dir).version, Some(1));
    let other = site.path("other");
    write(&other.join("b"), b"theirs");
    let error = site.try_save(&site.request(&other)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(
        error
            .to_string()
            .contains("not known which version of project/demo/cache"),
        "{error}"
    );
    let from = |number| PutRequest {
        onto: Onto::Merge(Ancestor::Version(number)),
        ..site.request(&other)
    };
    site.try_save(&from(0)).unwrap();
    assert_eq!(site.newest(), ["a=ours", "b=theirs"]);
    let error = site.try_save(&from(7)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    // Another directory at the same path: none of its files were deleted.
    fs::remove_dir_all(&dir).unwrap();
    write(&dir.join("c"), b"ours");
    let error = site.try_save(&site.request(&dir)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

#[test]
fn first_saves_at_once_make_one_ref() {
    let site = Site::new();
    std::thread::scope(|scope| {
        for number in 0..6 {
            let site = &site;
            scope.spawn(move || {
                let dir = site.path(&format!("job-{number}"));
                write(&dir.join(format!("out/{number}")), b"x");
                let request = PutRequest {
                    onto: Onto::Merge(Ancestor::Version(0)),
                    ..site.request(&dir)
                };
                site.try_save(&request).unwrap();
            });
        }
    });
    let expected: Vec<String> = (0..6).map(|number| format!("out/{number}=x")).collect();
    assert_eq!(site.newest(), expected);
}

/// Saved files are in the ref, so they are no changes of the job any more when its tree is updated.
#[test]
fn what_was_saved_is_what_a_tree_is_made_from() {
    let linked = |text: &str| text.repeat(40_000);
    let files = [
        ("a", "base"),
        ("b", &linked("base")),
        ("c", "base"),
        ("d", "base"),
    ];
    let site = Site::with(&files);
    let (one, other) = (site.job("one"), site.job("other"));
    for (dir, text) in [(&one, "one"), (&other, "other")] {
        replace(&dir.join("a"), text);
        replace(&dir.join("b"), &linked(text));
        write(&dir.join("both/new"), text.as_bytes());
        write(&dir.join(text).join("own"), text.as_bytes());
    }
    fs::remove_file(one.join("c")).unwrap();
    site.save(&one);
    // Others changed all of it, and deleted some of it.
    site.save(&other);
    assert_eq!(brought(&site, "other"), 0);
    write(&other.join("c"), b"again");
    fs::remove_dir_all(other.join("one")).unwrap();
    site.save(&other);
    let newest = site.newest();
    assert_eq!(newest.len(), 6, "{newest:?}");
    for _ in 0..2 {
        assert_eq!(brought(&site, "one"), 0);
        assert_eq!(site.files(&one), newest);
        assert!(site.save(&one).unchanged);
    }
    // Changes after a save are the job's own again.
    replace(&one.join("a"), "mine");
    fs::remove_file(one.join("d")).unwrap();
    replace(&other.join("a"), "theirs");
    replace(&other.join("d"), "theirs");
    site.save(&other);
    assert_eq!(brought(&site, "one"), 2);
    assert_eq!(
        clashes(&site.save(&one)),
        [
            ("a".to_owned(), Case::BothChanged),
            ("d".to_owned(), Case::DeletedHere)
        ]
    );
}

/// Updates a job's tree to the newest version. Returns how many paths were kept in the job's form against that version.
fn brought(site: &Site, job: &str) -> u64 {
    let request = MaterializeRequest {
        copy_below_bytes: 0,
        ..MaterializeRequest::new(spec(REF), site.path(job))
    };
    let done = materialize(&site.store(), &site.pool, &request, &Unwatched).unwrap();
    done.conflicts
}

#[test]
fn a_tree_that_goes_back_to_an_older_version_is_made_from_that() {
    let site = Site::with(&[("a", "base")]);
    let one = site.job("one");
    replace(&one.join("a"), "one");
    site.save(&one);
    let first = MaterializeRequest::new(spec(&format!("{REF}@1")), &one);
    let done = materialize(&site.store(), &site.pool, &first, &Unwatched).unwrap();
    assert_eq!(done.conflicts, 0);
    assert_eq!(site.files(&one), ["a=base"]);
    // Nothing has changed in it since.
    assert!(site.save(&one).unchanged);
    assert_eq!(site.newest(), ["a=one"]);
}

#[test]
fn what_a_job_added_beside_a_part_of_a_version_stays_when_it_was_saved() {
    let site = Site::with(&[("a.txt", "base"), ("b.bin", "base")]);
    let request = MaterializeRequest {
        include: vec!["*.txt".into()],
        ..MaterializeRequest::new(spec(REF), site.path("job"))
    };
    let bring = || materialize(&site.store(), &site.pool, &request, &Unwatched).unwrap();
    bring();
    let job = site.path("job");
    replace(&job.join("a.txt"), "ours");
    write(&job.join("log"), b"ours");
    write(&job.join("new/log"), b"ours");
    write(&job.join("new.txt"), b"ours");
    site.save(&job);
    let other = site.job("other");
    replace(&other.join("a.txt"), "theirs");
    replace(&other.join("new.txt"), "theirs");
    site.save(&other);
    assert_eq!(bring().conflicts, 0);
    assert_eq!(
        site.files(&job),
        ["a.txt=theirs", "log=ours", "new.txt=theirs", "new/log=ours"]
    );
    assert!(site.save(&job).unchanged);
}

#[test]
fn what_was_put_is_what_a_tree_is_made_from() {
    let site = Site::with(&[("a", "base"), ("b", "base")]);
    let (one, other) = (site.job("one"), site.job("other"));
    replace(&one.join("a"), "one");
    let request = PutRequest {
        pools: vec![site.pool.clone()],
        ..PutRequest::new(&one, name(REF))
    };
    put(&site.store(), &request, &Unwatched).unwrap();
    replace(&other.join("a"), "other");
    site.save(&other);
    assert!(site.save(&one).unchanged);
    assert_eq!(brought(&site, "one"), 0);
    assert_eq!(site.files(&one), ["a=other", "b=base"]);
}

#[test]
fn a_directory_that_is_saved_to_several_refs_has_a_base_for_each() {
    let site = Site::with(&[("a", "base")]);
    let (one, other) = (site.job("one"), site.job("other"));
    replace(&one.join("a"), "one");
    site.save(&one);
    let elsewhere = PutRequest {
        pools: vec![site.pool.clone()],
        ..PutRequest::save(&one, name("project/demo/elsewhere"))
    };
    site.try_save(&elsewhere).unwrap();
    replace(&other.join("a"), "other");
    site.save(&other);
    assert!(site.save(&one).unchanged);
    assert!(site.try_save(&elsewhere).unwrap().unchanged);
    assert_eq!(brought(&site, "one"), 0);
    assert_eq!(site.files(&one), ["a=other"]);
}

/// A layout of jobs leaves out what clients make, and that may be all there is.
#[test]
fn a_save_whose_globs_may_leave_nothing_publishes_and_deletes_nothing() {
    let site = Site::with(&[("a", "base"), ("dir/b", "base")]);
    let dir = site.job("job");
    let request = PutRequest {
        exclude: vec!["token".into()],
        may_leave_out_all: true,
        ..site.request(&dir)
    };
    fs::remove_file(dir.join("a")).unwrap();
    fs::remove_file(dir.join("dir/b")).unwrap();
    write(&dir.join("dir/token"), b"login");
    let strict = PutRequest {
        may_leave_out_all: false,
        ..request.clone()
    };
    let error = site.try_save(&strict).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let done = site.try_save(&request).unwrap();
    assert!(done.unchanged && done.version == Some(1), "{done:?}");
    assert_eq!(done.saved.unwrap().counts, store::Counts::default());
    let told = done.notes.iter().map(ToString::to_string);
    let told: Vec<_> = told
        .filter(|told| told.contains("nothing is deleted"))
        .collect();
    assert_eq!(told.len(), 1, "{:?}", done.notes);
    assert_eq!(site.newest(), ["a=base", "dir/b=base"]);
    // What is added later is saved, and what was gone before stays.
    write(&dir.join("new"), b"ours");
    site.try_save(&request).unwrap();
    assert_eq!(site.newest(), ["a=base", "dir/b=base", "new=ours"]);
    // A first save of such a directory makes the ref.
    let other = site.path("other");
    write(&other.join("token"), b"login");
    let first = PutRequest {
        target: crate::stores::name("project/demo/first"),
        source: other,
        ..request
    };
    assert_eq!(site.try_save(&first).unwrap().version, Some(1));
}

/// What others save while a put reads its source is replaced. The put says so, and its advice still keeps both.
#[test]
fn what_is_saved_while_a_put_reads_can_be_merged_after_all() {
    let site = Arc::new(Site::with(&[("a", "base"), ("b", "base")]));
    let (one, other) = (site.job("one"), site.job("other"));
    replace(&one.join("a"), "one");
    replace(&other.join("b"), "other");
    let meanwhile = site.clone();
    let check = move || {
        meanwhile.save(&one);
        Ok(())
    };
    let request = PutRequest {
        onto: Onto::Replace,
        source_check: Some(SourceCheck::new(Arc::new(check))),
        ..site.request(&other)
    };
    let report = put(&site.store(), &request, &Unwatched).unwrap();
    assert_eq!(report.version, Some(3));
    assert!(report.notes.iter().any(|note| note.is_warning));
    assert_eq!(site.newest(), ["a=base", "b=other"]);

    drop_versions(&site.store(), &name(REF), Some(3)).unwrap();
    site.save(&other);
    assert_eq!(site.newest(), ["a=one", "b=other"]);
}
