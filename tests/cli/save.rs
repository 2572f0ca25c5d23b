//! Saves of jobs' trees: output, exit codes, and the list of failed saves.

use std::fs;
use std::process::{Child, Stdio};

use serde_json::Value;
use support::{Finished, Random, TestEnvironment, check, effort, environment};

const REF: &str = "project/demo/cache";

/// A ref of three files, and trees of it for jobs.
pub(crate) fn site(jobs: &[&str]) -> TestEnvironment {
    let env = environment!();
    for file in ["a", "b", "dir/c"] {
        env.write(format!("in/{file}"), "base");
    }
    env.ok(["put", "in", REF]);
    for job in jobs {
        env.ok(["materialize", REF, job]);
    }
    env
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"))
}

/// The files of the newest version.
pub(crate) fn newest(env: &TestEnvironment) -> Vec<String> {
    let listed = env.ok(["ls", REF, "--recursive", "--json"]);
    let entries = listed.lines().map(json);
    let files = entries.filter(|entry| entry["kind"] == "file" || entry["type"] == "file");
    files
        .map(|entry| entry["path"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn two_jobs_of_one_version_come_together() {
    let env = site(&["one", "other"]);
    env.write("one/new-one", "1");
    env.write("other/new-other", "2");
    fs::remove_file(env.path("other/b")).unwrap();
    check!(env, env.store(["save", "one"]), @"
    exit code: 0
    --- stdout
    project/demo/cache@2 (@[VERSION-ID]): 1 added, 0 changed, 0 removed in [SECS]
    one: 4 files, 13 B; read [SIZE], new 1 B, stored [SIZE]
    --- stderr
    ");
    check!(env, env.store(["save", "other", "--message", "by hand"]), @"
    exit code: 0
    --- stdout
    project/demo/cache@3 (@[VERSION-ID]): 1 added, 0 changed, 1 removed, merged into @2 in [SECS]
    other: 3 files, 9 B; read [SIZE], new 1 B, stored [SIZE]
    --- stderr
    ");
    check!(env, env.store(["save", "other"]), @"
    exit code: 0
    --- stdout
    project/demo/cache: unchanged, still @3 (@[VERSION-ID]): 0 added, 0 changed, 0 removed in [SECS]
    other: 3 files, 9 B; read [SIZE], new 0 B, stored [SIZE]
    --- stderr
    ");
    assert_eq!(newest(&env), ["a", "dir/c", "new-one", "new-other"]);
}

/// A put says what the directory is as well as a save.
#[test]
fn a_put_of_a_directory_that_was_saved_is_what_the_next_save_is_merged_from() {
    let env = site(&[]);
    env.ok(["save", "in", REF, "--base", "1"]);
    env.write("in/put", "1");
    env.ok(["put", "in", REF]);
    env.ok(["rm", &format!("{REF}:put")]);
    env.write("in/saved", "2");
    env.ok(["save", "in", REF]);
    assert_eq!(newest(&env), ["a", "b", "dir/c", "saved"]);
}

#[test]
fn what_clashes_is_named_and_a_deletion_that_is_not_done_ends_with_6() {
    let env = site(&["one", "other"]);
    for file in ["a", "b"] {
        fs::remove_file(env.path(format!("one/{file}"))).unwrap();
        env.write(format!("one/{file}"), "one");
    }
    env.ok(["save", "one"]);
    fs::remove_file(env.path("other/a")).unwrap();
    env.write("other/a", "other");
    check!(env, env.store(["save", "other"]), @"
    exit code: 0
    --- stdout
    project/demo/cache@3 (@[VERSION-ID]): 0 added, 1 changed, 0 removed, merged into @2, 1 conflict in [SECS]
    other: 3 files, 13 B; read [SIZE], new 5 B, stored [SIZE]
    --- stderr
    conflict: a: both changed it; yours is in the new version, theirs in @2
    ");
    env.ok(["materialize", &format!("{REF}@1"), "third"]);
    fs::remove_file(env.path("third/b")).unwrap();
    check!(env, env.store(["save", "third"]), @"
    exit code: 6
    --- stdout
    project/demo/cache: unchanged, still @3 (@[VERSION-ID]): 0 added, 0 changed, 1 removed in the directory, none of which changes the ref, 1 conflict in [SECS]
    third: 2 files, 8 B; read [SIZE], new 0 B, stored [SIZE]
    --- stderr
    conflict: b: deleted here, changed in @3; theirs stays
    error: project/demo/cache: 1 path not deleted
    ");
    let told = env.ok(["history", REF, "--json"]);
    assert!(told.contains("changed here and in @2: a"), "{told}");
}

#[test]
fn pipes_are_left_out_and_named() {
    let env = site(&["job"]);
    env.write("job/new", "new");
    rustix::fs::mkfifoat(rustix::fs::CWD, env.path("job/pipe"), 0o600.into()).unwrap();
    let done = env.store(["save", "job"]);
    assert_eq!(done.code, Some(6), "{done}");
    assert!(
        done.stderr
            .contains("job/pipe: expected a file, directory or symlink, found a named pipe"),
        "{done}"
    );
    assert!(newest(&env).contains(&"new".to_owned()));
}

#[test]
fn credentials_are_left_out_by_themselves_and_named() {
    let env = site(&["job"]);
    env.write("job/new", "new");
    env.write(
        "job/notes",
        "token = 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\n",
    );
    check!(env, env.store(["save", "job"]), @"
    exit code: 6
    --- stdout
    project/demo/cache@2 (@[VERSION-ID]): 1 added, 0 changed, 0 removed in [SECS]
    job: 4 files, 15 B; read [SIZE], new 3 B, stored [SIZE]
    --- stderr
    skipped: [ROOT]/job/notes: looks like credentials: an access token of Hugging Face
    error: project/demo/cache: 1 path left out
    hint: what looks like credentials stays where it is; if it holds none, `store save job project/demo/cache --allow-secret /notes` takes it
    ");
    assert_eq!(newest(&env), ["a", "b", "dir/c", "new"]);
    let excluded = env.store(["save", "job", "--exclude", "notes"]);
    assert_eq!(excluded.code, Some(0), "{excluded}");
    env.ok(["save", "job", REF, "--allow-secret", "/notes"]);
    assert_eq!(newest(&env), ["a", "b", "dir/c", "new", "notes"]);
}

#[test]
fn an_unknown_directory_needs_a_ref_and_a_base() {
    let env = site(&[]);
    env.write("own/x", "x");
    check!(env, env.store(["save", "own"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: own: was neither made from a ref of this store here nor saved to one
    hint: name the ref: `store save DIR REF`; if it has versions, --base N says from which one the directory was made
    ");
    check!(env, env.store(["save", "own", REF]), @"
    exit code: 5
    --- stdout
    --- stderr
    error: own: it is not known which version of project/demo/cache it was made from
    hint: name the version that it was made from with --base N; with --base 0, which means none, it only adds and changes; or save it to another ref
    ");
    env.ok(["save", "own", REF, "--base", "0"]);
    assert_eq!(newest(&env), ["a", "b", "dir/c", "x"]);
    let gone = env.store(["save", "nowhere", REF]);
    assert_eq!(gone.code, Some(3), "{gone}");
    let file = env.store(["save", "in/a", "project/demo/file"]);
    assert_eq!(file.code, Some(2), "{file}");
}

#[test]
fn a_put_onto_another_version_than_the_named_one_ends_with_5() {
    let env = site(&[]);
    env.write("in/more", "more");
    check!(env, env.store(["put", "in", REF, "--base", "2"]), @"
    exit code: 5
    --- stdout
    --- stderr
    error: project/demo/cache: expected @2 as the newest version, found @1
    hint: nothing was put; `store save` merges what was changed into the newest version
    ");
    env.ok(["put", "in", REF, "--base", "1"]);
    let late = env.store(["put", "in", "project/demo/new", "--base", "1"]);
    assert_eq!(late.code, Some(5), "{late}");
    env.ok(["put", "in", "project/demo/new", "--base", "0"]);
}

#[test]
fn a_save_without_its_store_is_kept_for_later() {
    let env = site(&["job"]);
    env.write("job/new", "new");
    env.ok(["init", "shared"]);
    env.write("far/file", "far");
    let store = env.path("home/.local/share/store");
    // A file in place of a directory of objects causes errors, as a mount does whose server is gone.
    fs::rename(store.join("log"), env.path("log")).unwrap();
    fs::write(store.join("log"), "").unwrap();
    let failed = env.store(["save", "job", REF]);
    assert_eq!(failed.code, Some(1), "{failed}");
    assert!(
        failed
            .stderr
            .contains("job is as it was; `store save --pending` saves it"),
        "{failed}"
    );
    // The list has an entry for each ref. It does not promise options that it cannot store.
    env.store(["save", "job", "project/demo/second"]);
    let chosen = env.store(["save", "job", "project/demo/third", "--exclude", "new"]);
    assert!(
        chosen.stderr.contains("neither --base nor --exclude"),
        "{chosen}"
    );
    fs::remove_file(store.join("log")).unwrap();
    fs::rename(env.path("log"), store.join("log")).unwrap();
    let done = env.store(["save", "--pending"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(newest(&env).contains(&"new".to_owned()), "{done}");
    env.ok(["history", "project/demo/second"]);
    assert_eq!(env.store(["history", "project/demo/third"]).code, Some(3));
    let none = env.store(["save", "--pending"]);
    assert!(
        none.code == Some(0) && none.stderr.contains("nothing is to be saved"),
        "{none}"
    );
}

/// A missing mount leaves an empty directory, or none.
#[test]
fn a_save_whose_store_is_gone_is_kept_for_later() {
    let env = site(&["job"]);
    env.ok(["init", "shared"]);
    env.ok(["--store", "shared", "put", "in", REF]);
    env.ok(["--store", "shared", "materialize", REF, "far"]);
    env.write("far/new", "new");
    for round in ["none", "empty"] {
        fs::rename(env.path("shared"), env.path("away")).unwrap();
        if round == "empty" {
            fs::create_dir(env.path("shared")).unwrap();
        }
        let store = env.path("shared").display().to_string();
        let failed = env.store(["--store", &store, "save", "far", REF]);
        assert_eq!(failed.code, Some(1), "{round}: {failed}");
        assert!(
            failed.stderr.contains("--pending` saves it"),
            "{round}: {failed}"
        );
        if round == "empty" {
            fs::remove_dir(env.path("shared")).unwrap();
        }
        fs::rename(env.path("away"), env.path("shared")).unwrap();
        env.write("far/round", round);
        let done = env.store(["--store", &store, "save", "--pending"]);
        assert_eq!(done.code, Some(0), "{round}: {done}");
        let found = env.ok(["--store", &store, "cat", &format!("{REF}:round")]);
        assert_eq!(found, round);
        fs::remove_file(env.path("far/round")).unwrap();
    }
    // If the store answers that something does not exist, a retry would not help.
    let wrong = env.store(["save", "job", REF, "--base", "7"]);
    assert_eq!(wrong.code, Some(3), "{wrong}");
    let none = env.store(["save", "--pending"]);
    assert!(none.stderr.contains("nothing is to be saved"), "{none}");
}

#[test]
fn what_is_pending_does_not_go_to_a_new_store_in_the_place_of_the_old() {
    let env = site(&["job"]);
    env.write("job/new", "new");
    let store = env.path("home/.local/share/store");
    fs::rename(&store, env.path("away")).unwrap();
    for words in [&["save", "job"][..], &["save", "--pending"]] {
        let failed = env.store(words);
        assert_eq!(failed.code, Some(1), "{words:?}: {failed}");
        assert!(!store.exists(), "{words:?}: {failed}");
    }
    fs::rename(env.path("away"), &store).unwrap();
    env.ok(["save", "--pending"]);
    assert!(newest(&env).contains(&"new".to_owned()));
}

#[test]
fn a_quota_is_no_store_out_of_reach() {
    let env = site(&["job"]);
    env.ok([
        "policy",
        "keep",
        "project/*",
        "--last",
        "3",
        "--quota",
        "1kB",
    ]);
    env.write("job/new", Random::new(1).bytes(50_000));
    let refused = env.store(["save", "job"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("raise the quota"), "{refused}");
    let none = env.store(["save", "--pending"]);
    assert!(none.stderr.contains("nothing is to be saved"), "{none}");
}

/// The list's entry for a directory.
fn pending(directory: &std::path::Path, store: &std::path::Path) -> String {
    let bytes = directory.to_str().unwrap().as_bytes();
    serde_json::json!({"pending": 1, "directory": bytes, "store": store, "ref": REF}).to_string()
}

/// Whatever is killed, the changes of acknowledged saves are in the newest version, or reported as conflicts.
#[test]
fn saves_that_are_killed_at_random_lose_nothing_that_they_acknowledged() {
    let env = site(&[]);
    let mut random = Random::new(13);
    let mut acknowledged: Vec<String> = Vec::new();
    for round in 0..effort(6, 1000) {
        let start = |job: u64| -> (String, Child) {
            let dir = format!("job-{round}-{job}");
            let file = format!("dir/{round}-{job}");
            env.ok(["materialize", REF, &dir]);
            env.write(format!("{dir}/{file}"), file.repeat(200));
            let mut command = env.command(["save", &dir, "--json"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            (file, command.spawn().unwrap())
        };
        let mut jobs: Vec<_> = (0..4).map(start).collect();
        for (_, job) in &mut jobs {
            if random.below(2) == 0 {
                std::thread::sleep(std::time::Duration::from_millis(random.below(40)));
                job.kill().unwrap();
            }
        }
        for (file, job) in jobs {
            let done = Finished::from(job.wait_with_output().unwrap());
            match done.code {
                Some(0) => acknowledged.push(file),
                // Killed by the test.
                None => {}
                _ => panic!("{done}"),
            }
        }
        let found = newest(&env);
        for file in &acknowledged {
            assert!(found.contains(file), "round {round}: {file} of {found:?}");
        }
        for job in 0..4 {
            fs::remove_dir_all(env.path(format!("job-{round}-{job}"))).unwrap();
        }
    }
    assert!(acknowledged.len() > 2, "{acknowledged:?}");
    env.ok(["verify"]);
}

#[test]
fn what_was_left_out_of_a_save_is_nobodys_change() {
    let env = site(&["one", "other"]);
    env.write("one/new", "1");
    env.ok(["save", "one", "--exclude", "b"]);
    fs::remove_file(env.path("other/b")).unwrap();
    env.write("other/b", "theirs");
    env.ok(["save", "other"]);
    env.ok(["save", "one"]);
    assert_eq!(env.ok(["cat", &format!("{REF}:b")]), "theirs");
    // A file that is deleted after a save excluded it is deleted in the next save.
    env.ok(["save", "one", "--exclude", "a"]);
    fs::remove_file(env.path("one/a")).unwrap();
    env.ok(["save", "one"]);
    assert_eq!(newest(&env), ["b", "dir/c", "new"]);
}

/// A glob also matches paths that are missing in DIR: the ref keeps them.
#[test]
fn what_a_glob_leaves_out_is_not_deleted_where_it_is_missing() {
    let env = site(&["one", "other", "third"]);
    fs::remove_file(env.path("one/a")).unwrap();
    fs::remove_dir_all(env.path("one/dir")).unwrap();
    env.write("one/new", "1");
    let saved = env.ok(["save", "one", "--exclude", "a", "--exclude", "dir/c"]);
    assert!(saved.contains("1 added, 0 changed, 0 removed"), "{saved}");
    assert_eq!(newest(&env), ["a", "b", "dir/c", "new"]);
    // Without the glob, they are deleted.
    let saved = env.ok(["save", "one"]);
    assert!(saved.contains("0 added, 0 changed, 3 removed"), "{saved}");
    assert_eq!(newest(&env), ["b", "new"]);
    // A glob also keeps a whole directory, and other deletions still count.
    env.ok(["put", "in", REF]);
    env.ok(["materialize", REF, "again"]);
    fs::remove_dir_all(env.path("again/dir")).unwrap();
    fs::remove_file(env.path("again/b")).unwrap();
    env.ok(["save", "again", "--exclude", "dir/"]);
    assert_eq!(newest(&env), ["a", "dir/c"]);
    // A directory with only excluded paths must not delete everything else.
    env.ok(["materialize", REF, "empty"]);
    fs::remove_dir_all(env.path("empty/dir")).unwrap();
    fs::remove_file(env.path("empty/a")).unwrap();
    let emptied = env.store(["save", "empty", "--exclude", "a"]);
    assert_eq!(emptied.code, Some(5), "{emptied}");
}

#[test]
fn what_is_counted_is_said_to_be_the_directory_s() {
    let env = site(&[]);
    env.write("few/x", "x");
    let saved = env.ok(["save", "few", REF, "--base", "0"]);
    assert!(saved.contains("\nfew: 1 file, 1 B; read"), "{saved}");
}

/// The base includes everything that was saved, even if something was left out.
#[test]
fn a_save_that_left_something_out_knows_its_own_changes_again() {
    let env = site(&["one", "other"]);
    let write = |name: &str, text: &str| {
        fs::remove_file(env.path(name)).unwrap();
        env.write(name, text);
    };
    write("one/a", "first");
    write("one/dir/c", "first");
    env.ok(["save", "one", "--exclude", "b"]);
    fs::remove_file(env.path("other/b")).unwrap();
    env.write("other/b", "theirs");
    env.ok(["save", "other"]);
    write("one/a", "second");
    fs::remove_file(env.path("one/dir/c")).unwrap();
    let again = env.store(["save", "one"]);
    assert_eq!(again.code, Some(0), "{again}");
    assert!(!again.stderr.contains("conflict"), "{again}");
    assert_eq!(env.ok(["cat", &format!("{REF}:a")]), "second");
    assert_eq!(env.ok(["cat", &format!("{REF}:b")]), "theirs");
    assert_eq!(newest(&env), ["a", "b"]);
}

/// Each save uses the version that the previous one recorded as its base.
#[test]
fn saves_of_one_directory_at_once_all_end_well() {
    let env = site(&["job"]);
    let store = env.path("home/.local/share/store");
    for round in 0..6 {
        for file in 0..40 {
            env.write(format!("job/{round}/{file}"), format!("{round}, {file}"));
        }
        let target = format!("project/demo/at-once-{round}");
        let noted = pending(&env.path("job"), &store).replace(REF, &target);
        env.write("home/.local/state/store/pending/x.json", &noted);
        let listed = noted.contains(&target);
        let start = |words: &[&str]| {
            let mut command = env.command(words);
            let command = command.stdout(std::process::Stdio::null());
            command
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        };
        let all: Vec<_> = (0..4)
            .map(|at| match listed && at < 3 {
                true => start(&["save", "--pending"]),
                false => start(&["save", "job", &target]),
            })
            .collect();
        for child in all {
            let done: support::Finished = child.wait_with_output().unwrap().into();
            assert_eq!(done.code, Some(0), "{round}: {done}");
        }
        let saved = env.ok(["ls", "-r", &target]);
        assert!(saved.contains(&format!("{round}/39")), "{saved}");
    }
}

/// With the mark of the tree for a base, the save would put back what others removed since the first save.
#[test]
fn a_host_that_lost_its_cache_directory_does_not_take_back_what_others_did() {
    let env = site(&["one", "other"]);
    env.write("one/new", "1");
    env.ok(["save", "one"]);
    env.ok(["materialize", REF, "other"]);
    fs::remove_file(env.path("other/new")).unwrap();
    env.ok(["save", "other"]);
    for entry in fs::read_dir(env.path("home/.cache/store")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "pool" {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    env.write("one/more", "2");
    env.ok(["save", "one"]);
    assert_eq!(newest(&env), ["a", "b", "dir/c", "more"]);
}
