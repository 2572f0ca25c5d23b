//! verify and repair: their output and exit codes.

use std::path::PathBuf;

use support::{Random, TestEnvironment, check, environment};

const REF: &str = "project/demo/data";

/// A store with one ref, and its only data pack.
fn stored(env: &TestEnvironment) -> PathBuf {
    env.write("in/noise", Random::new(3).bytes(400_000));
    env.ok(["put", "in", REF, "--quiet"]);
    let packs = env.path("home/.local/share/store/packs");
    let mut files: Vec<PathBuf> = std::fs::read_dir(packs)
        .unwrap()
        .flat_map(|dir| std::fs::read_dir(dir.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect();
    files.sort_by_key(|file| std::fs::metadata(file).unwrap().len());
    files.pop().unwrap()
}

fn flip(path: &PathBuf, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

/// A `put` creates the embedded store if there is none. If a store lost its first object, it must not create another.
#[test]
fn where_a_store_lost_its_format_no_new_one_is_made() {
    let env = environment!();
    env.write("in", "text");
    env.ok(["put", "in", "project/demo/a"]);
    let store = env.path("home/.local/share/store");
    let (format, aside) = (store.join("format"), env.path("aside"));
    std::fs::rename(&format, &aside).unwrap();
    for log in ["there", "gone, too"] {
        if log != "there" {
            std::fs::rename(store.join("log"), env.path("log-aside")).unwrap();
        }
        for words in [
            &["put", "in", "project/demo/b"][..],
            &["init"],
            &["ls"],
            &["verify"],
            &["gc"],
            &["get", "project/demo/a", "out"],
        ] {
            let finished = env.store(words);
            assert_eq!(finished.code, Some(4), "{words:?}: {finished}");
            assert!(
                finished.stderr.contains("format: missing, although "),
                "{finished}"
            );
            assert!(
                finished.stderr.contains("hint: restore `format`"),
                "{finished}"
            );
            assert!(!format.exists(), "{words:?}");
        }
    }
    std::fs::rename(env.path("log-aside"), store.join("log")).unwrap();
    std::fs::write(&format, "half").unwrap();
    let finished = env.store(["verify"]);
    assert_eq!(finished.code, Some(4), "{finished}");
    assert!(
        finished.stderr.contains("hint: restore `format`"),
        "{finished}"
    );
    std::fs::rename(&aside, &format).unwrap();
    env.ok(["verify", "--read-data"]);
}

#[test]
fn a_sound_store() {
    let env = environment!();
    stored(&env);
    check!(env, env.store(["verify"]), @"
    exit code: 0
    --- stdout
    verified 1 version in 2 packs, 1 segment and 1 log entry; no file was read, see --read-data
    --- stderr
    ");
    check!(env, env.store(["verify", "project/demo", "--read-data-subset", "100%"]), @"
    exit code: 0
    --- stdout
    verified 1 version in 2 packs, 1 segment and 1 log entry; read 400 kB in 2 packs
    --- stderr
    ");
    check!(env, env.store(["repair"]), @"
    exit code: 0
    --- stdout
    nothing to repair
    --- stderr
    ");
    check!(env, env.store(["verify", "--json"]), @r#"
    exit code: 0
    --- stdout
    {"clean":true,"log_entries":1,"checkpoints":0,"segments":1,"packs":2,"packs_read":0,"bytes_read":0,"versions":1,"findings":[],"hits":[],"hits_left_out":0}
    --- stderr
    "#);
}

#[test]
fn damage_is_told_repaired_and_healed() {
    let env = environment!();
    let pack = stored(&env);
    flip(&pack, 1000);
    assert_eq!(env.store(["verify"]).code, Some(0), "nothing was read");
    check!(env, env.store(["verify", "--read-data"]), @"
    exit code: 4
    --- stdout
    packs/[..]/[ID]: 1 of 7 chunks are damaged, first: chunk at byte 0 of the frame at offset 80: its bytes hash to [CHUNK-ID], expected [CHUNK-ID]
    project/demo/data@1:noise: chunk [CHUNK-ID] is damaged or missing
    verified 1 version in 2 packs, 1 segment and 1 log entry; read 400 kB in 2 packs
    --- stderr
    error: file://[ROOT]/home/.local/share/store: 1 damaged object; 1 path of 1 version cannot be read
    hint: run `store repair`, then put the original files of what is hit again
    ");
    check!(env, env.store(["repair", "--dry-run"]), @"
    exit code: 6
    --- stdout
    packs/[..]/[ID]: 1 of 7 chunks are damaged, first: chunk at byte 0 of the frame at offset 80: its bytes hash to [CHUNK-ID], expected [CHUNK-ID]
    project/demo/data@1:noise: chunk [CHUNK-ID] is damaged or missing
    would be done: 1 pack condemned: 6 chunks copied, 1 lost
    --- stderr
    error: file://[ROOT]/home/.local/share/store: 1 path cannot be read
    hint: put the original files again, or pull the version from another cluster: either heals every version that needs them
    ");
    check!(env, env.store(["repair"]), @"
    exit code: 6
    --- stdout
    packs/[..]/[ID]: 1 of 7 chunks are damaged, first: chunk at byte 0 of the frame at offset 80: its bytes hash to [CHUNK-ID], expected [CHUNK-ID]
    project/demo/data@1:noise: chunk [CHUNK-ID]: no live segment offers it
    1 pack condemned: 6 chunks copied, 1 lost
    --- stderr
    error: file://[ROOT]/home/.local/share/store: 1 path cannot be read
    hint: put the original files again, or pull the version from another cluster: either heals every version that needs them
    ");
    check!(env, env.store(["verify", "--read-data"]), @"
    exit code: 4
    --- stdout
    project/demo/data@1:noise: chunk [CHUNK-ID]: no live segment offers it
    verified 1 version in 2 packs, 2 segments and 2 log entries; read 326 kB in 2 packs
    --- stderr
    error: file://[ROOT]/home/.local/share/store: 1 path of 1 version cannot be read
    hint: put the original files again, or pull the version from another cluster: either heals every version that needs them
    ");
    env.ok(["put", "in", REF, "--quiet"]);
    env.ok(["verify", "--read-data"]);
    env.ok(["get", "project/demo/data@1", "out"]);
}

#[test]
fn a_pack_that_grew_may_hit_any_path_until_it_is_read() {
    let env = environment!();
    let pack = stored(&env);
    let mut bytes = std::fs::read(&pack).unwrap();
    bytes.extend(b"more");
    std::fs::write(&pack, bytes).unwrap();
    check!(env, env.store(["verify"]), @"
    exit code: 4
    --- stdout
    packs/[..]/[ID]: has 400547 bytes, its segment [ID] says 400543
    verified 1 version in 2 packs, 1 segment and 1 log entry; no file was read, see --read-data
    --- stderr
    error: file://[ROOT]/home/.local/share/store: 1 damaged object; what is hit shows only when packs are read
    hint: run `store verify --read-data`, or `store repair`, which reads what is damaged
    ");
    check!(env, env.store(["verify", "--read-data"]), @"
    exit code: 4
    --- stdout
    packs/[..]/[ID]: has 400547 bytes, its segment [ID] says 400543
    verified 1 version in 2 packs, 1 segment and 1 log entry; read 400 kB in 2 packs
    --- stderr
    error: file://[ROOT]/home/.local/share/store: 1 damaged object; no path is hit
    hint: run `store repair`
    ");
}

#[test]
fn subsets_that_make_no_sense() {
    let env = environment!();
    stored(&env);
    check!(env, env.store(["verify", "--read-data-subset", "hourly"]), @r#"
    exit code: 2
    --- stdout
    --- stderr
    error: subset "hourly": expected a share like 5%, a size like 10G, or daily/week, weekly/month or daily/month
    "#);
    check!(env, env.store(["verify", "project/demo/none"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/demo/none: no such ref
    hint: list what there is with `store ls project/demo`
    ");
}

#[test]
fn a_store_whose_packs_are_not_mounted_is_left_as_it_is() {
    let env = environment!();
    stored(&env);
    env.write("other", "something else");
    let packs = env.path("home/.local/share/store/packs");
    let aside = env.path("aside");
    let entries = || {
        std::fs::read_dir(env.path("home/.local/share/store/log/000000"))
            .unwrap()
            .count()
    };
    let before = entries();
    for is_bare in [false, true] {
        std::fs::rename(&packs, &aside).unwrap();
        if is_bare {
            std::fs::create_dir(&packs).unwrap();
        }
        for words in [
            &["put", "in", REF][..],
            &["put", "other", "project/demo/other"],
            &["repair"],
            &["repair", "--read-data"],
        ] {
            let finished = env.store(words);
            assert_eq!(finished.code, Some(1), "{words:?}: {finished}");
            assert!(
                finished.stderr.contains("there are no packs")
                    && finished.stderr.contains("hint: mount what holds "),
                "{words:?}: {finished}"
            );
        }
        assert_eq!(entries(), before, "nothing was added to the log");
        if is_bare {
            std::fs::remove_dir(&packs).unwrap();
        }
        std::fs::rename(&aside, &packs).unwrap();
        env.ok(["verify", "--read-data"]);
    }
    // Once they are given up, new bytes are taken again.
    std::fs::rename(&packs, &aside).unwrap();
    let finished = env.store(["repair", "--accept-loss"]);
    assert_eq!(finished.code, Some(6), "{finished}");
    env.ok(["put", "in", REF]);
    env.ok(["verify", "--read-data"]);
}

#[test]
fn packs_of_another_store_are_to_be_removed_and_not_repaired() {
    let env = environment!();
    for store in ["own", "other"] {
        env.write("in/file", Random::new(store.len() as u64).bytes(300_000));
        env.ok(["--store", store, "init"]);
        env.ok(["--store", store, "put", "in", REF]);
    }
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([env.path("other/packs"), env.path("own")])
        .status();
    assert!(copied.unwrap().success());
    let verified = env.store(["--store", "own", "verify"]);
    assert_eq!(verified.code, Some(4), "{verified}");
    let hint = "objects of two stores are in one place: remove what was copied here";
    assert!(verified.stderr.contains(hint), "{verified}");
    assert!(!verified.stderr.contains("store repair"), "{verified}");
}

#[test]
fn a_format_of_another_store_may_be_what_is_wrong() {
    let env = environment!();
    env.ok(["--store", "other", "init"]);
    env.ok(["--store", "own", "init"]);
    env.write("in/file", "text");
    env.ok(["--store", "own", "put", "in", REF]);
    std::fs::copy(env.path("other/format"), env.path("own/format")).unwrap();
    let verified = env.store(["--store", "own", "verify"]);
    assert_eq!(verified.code, Some(4), "{verified}");
    let hint = "if it is `format` that was copied here, put back the one of this store";
    assert!(verified.stderr.contains(hint), "{verified}");
}

/// The notes of this host in its cache directory, none of which is needed.
fn notes(env: &TestEnvironment) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![env.path("home/.cache/store")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap() {
                kind if kind.is_dir() && entry.file_name() != "pool" => dirs.push(entry.path()),
                // A lock is no note.
                kind if kind.is_file() && entry.file_name() != "gc.lock" => {
                    found.push(entry.path())
                }
                _ => {}
            }
        }
    }
    found
}

/// A command under a shell that sets a limit before it.
fn limited(env: &TestEnvironment, limit: &str, words: &[&str]) -> support::Finished {
    let command = env.command(words);
    let script = format!("{limit} \"$0\" \"$@\"");
    let done = support::under("sh", ["-c", &script], &command).output();
    done.unwrap().into()
}

#[test]
fn pipes_and_huge_files_in_the_place_of_notes_of_this_host_are_passed_over() {
    let env = environment!();
    stored(&env);
    env.ok(["gc", "--grace", "0", "--min-age", "0"]);
    env.ok(["verify"]);
    let found = notes(&env);
    for name in ["idle", "log-", "verified.json"] {
        let is_it = |path: &&PathBuf| path.to_str().unwrap().contains(&format!("/{name}"));
        assert!(found.iter().any(|path| is_it(&path)), "{name}: {found:?}");
    }
    for note in found {
        let bytes = std::fs::read(&note).unwrap();
        std::fs::remove_file(&note).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &note, 0o600.into()).unwrap();
        for words in [
            &["info"][..],
            &["put", "in", REF, "--always"],
            &["ls", REF],
            &["gc", "--grace", "0", "--min-age", "0"],
        ] {
            let done = limited(&env, "exec timeout -k 1 20", words);
            assert_eq!(done.code, Some(0), "{}: {done}", note.display());
        }
        drop(std::fs::remove_file(&note));
        std::fs::write(&note, bytes).unwrap();
    }
    for note in notes(&env) {
        let bytes = std::fs::read(&note).unwrap();
        let file = std::fs::File::options().write(true).open(&note).unwrap();
        file.set_len(20 << 30).unwrap();
        let words = ["gc", "--grace", "0", "--min-age", "0"];
        let done = limited(&env, "ulimit -v 6000000; exec", &words);
        assert_eq!(done.code, Some(0), "{}: {done}", note.display());
        std::fs::write(&note, bytes).unwrap();
    }
}
