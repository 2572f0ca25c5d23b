//! Compile caches as refs: pull, push, lookup, clean and why, with directories as compilers leave them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, fcntl_lock};
use serde_json::Value;
use support::{Finished, Random, Seen, TestEnvironment, check, environment, trees, with_mounts};

pub(crate) const COMPILER: &str = "neuronxcc-2.21.33363.0+82129205";
pub(crate) const PROJECT: &str = "project/llama/neff";
const TEAM: &str = "team/speech/neff";

/// A module as the compiler leaves it, with bytes from `seed`.
pub(crate) fn module(root: &Path, key: &str, seed: u64) -> PathBuf {
    let dir = root.join(COMPILER).join(format!("MODULE_{key}"));
    trees::write(
        &dir.join("model.hlo_module.pb"),
        &Random::new(seed).bytes(700),
    );
    trees::write(&dir.join("model.neff"), &trees::neff(seed, 11_000));
    trees::write(
        &dir.join("compile_flags.json"),
        b"[\"--model-type=transformer\", \"-O1\"]",
    );
    trees::write(&dir.join("model.done"), b"");
    dir
}

/// Other content of such caches: old and new failures, a running compile, and leftovers of a dead one.
fn clutter(root: &Path) {
    let dir = |key: &str| root.join(COMPILER).join(format!("MODULE_{key}"));
    trees::write(&dir("101+failed00").join("model.log"), b"no memory");
    trees::write(&dir("102+failed00").join("model.log"), b"no memory");
    trees::write(&dir("102+failed00").join("model.neff"), b"error");
    trees::write(&dir("102+failed00").join("model.done"), b"");
    trees::write(&dir("103+locked00").join("model.hlo_module.pb"), b"graph");
    trees::write(&dir("103+locked00").join("model.hlo_module.pb.lock"), b"");
    trees::write(&dir("104+halfway0").join("model.neff"), &[7; 9000]);
    std::fs::create_dir_all(dir("105+empty000")).unwrap();
}

fn said(done: &Finished) -> Value {
    serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{done}"))
}

pub(crate) fn neff(env: &TestEnvironment, words: &[&str], code: i32) -> Value {
    let done = env.store(["neff"].iter().chain(words).chain(&["--json"]));
    assert_eq!(done.code, Some(code), "{done}");
    said(&done)
}

/// The content of a directory, without its own times.
fn files(dir: &Path) -> BTreeMap<OsString, Seen> {
    let mut found = support::seen(dir);
    found.remove(OsStr::new(""));
    found
}

/// The keys of complete modules.
pub(crate) fn modules(root: &Path) -> Vec<String> {
    let listed = std::fs::read_dir(root.join(COMPILER)).unwrap();
    let names = listed.map(|dir| dir.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn what_is_complete_goes_into_a_ref_and_comes_out_elsewhere() {
    let env = environment!();
    let here = env.path("here");
    module(&here, "1+d41d8cd9", 1);
    module(&here, "2+d41d8cd9", 2);
    clutter(&here);
    let pushed = neff(&env, &["push", "here", PROJECT], 0);
    assert_eq!(pushed["pushed"], 2, "{pushed}");
    let states: Vec<&str> = pushed["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["state"].as_str().unwrap())
        .collect();
    assert_eq!(
        states,
        ["failed", "failed", "locked", "incomplete", "incomplete"]
    );

    let planned = neff(&env, &["pull", "there", PROJECT, "--dry-run"], 0);
    let pulled = neff(&env, &["pull", "there", PROJECT], 0);
    assert_eq!(
        (&pulled["pulled"], &pulled["hits"]),
        (&2.into(), &0.into()),
        "{pulled}"
    );
    assert_eq!(planned["bytes"], pulled["bytes"]);
    let there = env.path("there");
    assert_eq!(modules(&there), ["MODULE_1+d41d8cd9", "MODULE_2+d41d8cd9"]);
    for key in modules(&there) {
        let dir = Path::new(COMPILER).join(key);
        assert_eq!(files(&here.join(&dir)), files(&there.join(&dir)));
    }
    assert_eq!(
        std::fs::read_dir(&there).unwrap().count(),
        1,
        "something is left"
    );

    let again = neff(&env, &["pull", "there", PROJECT], 0);
    assert_eq!(
        (&again["pulled"], &again["hits"]),
        (&0.into(), &2.into()),
        "{again}"
    );
    let again = neff(&env, &["push", "there", PROJECT], 0);
    assert_eq!(
        (&again["pushed"], &again["same"]),
        (&0.into(), &2.into()),
        "{again}"
    );
    assert_eq!(again["version"], 1, "{again}");
}

#[test]
fn the_first_ref_that_has_an_entry_counts() {
    let env = environment!();
    module(&env.path("own"), "1+a", 1);
    module(&env.path("team"), "1+a", 2);
    module(&env.path("team"), "2+a", 3);
    neff(&env, &["push", "own", PROJECT], 0);
    let refused = env.store(["neff", "push", "team", TEAM]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(refused.stderr.contains("--public"), "{refused}");
    neff(&env, &["push", "team", TEAM, "--public"], 0);
    let pulled = neff(
        &env,
        &["pull", "there", PROJECT, TEAM, "team/speech/none"],
        0,
    );
    let counts: Vec<&Value> = pulled["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["pulled"])
        .collect();
    assert_eq!(counts, [1, 1, 0], "{pulled}");
    let neff_of = |dir: &str| {
        let path = env.path(dir).join(COMPILER).join("MODULE_1+a/model.neff");
        std::fs::read(path).unwrap()
    };
    assert_eq!(neff_of("there"), neff_of("own"));
}

#[test]
fn an_entry_that_is_there_stays_unless_it_is_broken_and_nobody_works_on_it() {
    let env = environment!();
    for (seed, key) in ["1+a", "2+a", "3+a", "4+a"].into_iter().enumerate() {
        module(&env.path("here"), key, seed as u64);
    }
    neff(&env, &["push", "here", PROJECT], 0);
    let there = env.path("there");
    let own = module(&there, "1+a", 77);
    let before = files(&own);
    let dir = |key: &str| there.join(COMPILER).join(format!("MODULE_{key}"));
    trees::write(&dir("2+a").join("model.log"), b"failed");
    trees::write(&dir("3+a").join("model.hlo_module.pb.lock"), b"");
    trees::write(&dir("4+a").join("model.hlo_module.pb.lock"), b"");
    let long_ago = SystemTime::now() - Duration::from_secs(3 * 3600);
    let lock = std::fs::File::options()
        .append(true)
        .open(dir("4+a").join("model.hlo_module.pb.lock"))
        .unwrap();
    lock.set_modified(long_ago).unwrap();
    drop(lock);
    let pulled = neff(&env, &["pull", "there", PROJECT], 0);
    assert_eq!(
        (&pulled["pulled"], &pulled["repaired"]),
        (&2.into(), &2.into()),
        "{pulled}"
    );
    assert_eq!(pulled["skipped"].as_array().unwrap().len(), 1, "{pulled}");
    assert_eq!(before, files(&own));
    for key in ["2+a", "4+a"] {
        let module = Path::new(COMPILER).join(format!("MODULE_{key}"));
        assert_eq!(
            files(&env.path("here").join(&module)),
            files(&there.join(&module))
        );
    }
    assert!(!dir("3+a").join("model.neff").exists());
}

#[test]
fn of_two_compiles_of_one_key_the_first_one_counts() {
    let env = environment!();
    module(&env.path("first"), "1+a", 1);
    module(&env.path("second"), "1+a", 2);
    module(&env.path("second"), "2+a", 2);
    neff(&env, &["push", "first", PROJECT], 0);
    let done = env.store(["neff", "push", "second", PROJECT]);
    assert_eq!(done.code, Some(6), "{done}");
    assert!(done.stderr.contains("MODULE_1+a"), "{done}");
    let told = neff(&env, &["push", "second", PROJECT], 6);
    assert_eq!(
        told["conflicts"][0]["path"],
        format!("{COMPILER}/MODULE_1+a")
    );
    neff(&env, &["pull", "there", PROJECT], 0);
    let expected = [("MODULE_1+a", "first"), ("MODULE_2+a", "second")];
    for (key, from) in expected {
        let module = Path::new(COMPILER).join(key);
        assert_eq!(
            files(&env.path(from).join(&module)),
            files(&env.path("there").join(&module)),
            "{key}"
        );
    }
}

/// For example a cluster's own cache, which jobs may only read.
#[test]
fn a_push_without_the_right_to_write_is_a_warning() {
    let env = environment!();
    env.ok(["init", "store"]);
    module(&env.path("near"), "1+a", 1);
    let plain = env.command([
        "--store", "store", "neff", "push", "near", PROJECT, "--json",
    ]);
    let mounts = "mount --bind store store && mount -o remount,ro,bind store";
    let done: Finished = with_mounts(mounts, &plain).output().unwrap().into();
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("nothing was pushed"), "{done}");
    let told = said(&done);
    assert_eq!(
        (&told["pushed"], &told["version"]),
        (&0.into(), &Value::Null),
        "{done}"
    );
    assert!(
        told["denied"].as_str().unwrap().contains("Read-only"),
        "{done}"
    );
    // An exceeded quota and an unreadable file are errors, not warnings.
    let config = "home/.config/store/config.toml";
    env.write(config, "[[keep]]\nrefs = \"project/*\"\nquota = \"1kB\"\n");
    let full = env.store(["--store", "store", "neff", "push", "near", PROJECT]);
    assert_eq!(full.code, Some(1), "{full}");
}

#[test]
fn a_broken_entry_of_a_ref_is_neither_pulled_nor_kept() {
    let env = environment!();
    module(&env.path("put"), "1+a", 1);
    clutter(&env.path("put"));
    env.ok(["put", "put", PROJECT]);
    let pulled = neff(&env, &["pull", "there", PROJECT], 0);
    assert_eq!(pulled["pulled"], 1, "{pulled}");
    assert_eq!(pulled["refused"].as_array().unwrap().len(), 5, "{pulled}");
    assert_eq!(modules(&env.path("there")), ["MODULE_1+a"]);
    module(&env.path("there"), "101+failed00", 5);
    let pushed = neff(&env, &["push", "there", PROJECT], 0);
    assert_eq!(pushed["pushed"], 1, "{pushed}");
    let keys = ["lookup", "MODULE_101+failed00", "MODULE_1+a", PROJECT];
    let done = env.store(["neff"].iter().chain(&keys));
    assert_eq!(done.code, Some(0), "{done}");
}

#[test]
fn links_become_relative_or_what_they_lead_to_and_hosts_are_scrubbed() {
    let env = environment!();
    let here = env.path("here");
    let dir = module(&here, "1+a", 1);
    let hub = env.write("hub/model.neff", trees::neff(9, 5000));
    std::fs::remove_file(dir.join("model.neff")).unwrap();
    symlink(&hub, dir.join("model.neff")).unwrap();
    trees::write(
        &dir.join("compile_flags.json"),
        b"[\"--dump=/tmp/ip-10-0-12-1/x\"]",
    );
    let digest = "ab".repeat(32);
    let registry = format!("{COMPILER}/0_REGISTRY/0.4.5");
    let file = format!("{registry}/{digest}/0011223344.json");
    let link = &format!("{registry}/llama/meta/llama-3/0011223344.json");
    trees::write(&here.join(&file), b"{\"model\": \"llama\"}");
    std::fs::create_dir_all(here.join(link).parent().unwrap()).unwrap();
    symlink(here.join(&file), here.join(link)).unwrap();
    let pushed = neff(&env, &["push", "here", PROJECT], 0);
    assert_eq!(pushed["pushed"], 3, "{pushed}");
    neff(&env, &["pull", "there", PROJECT], 0);
    std::fs::remove_dir_all(&here).unwrap();
    let there = env.path("there");
    let module = there.join(COMPILER).join("MODULE_1+a");
    assert!(!module.join("model.neff").is_symlink());
    assert_eq!(
        std::fs::read(module.join("model.neff")).unwrap(),
        std::fs::read(hub).unwrap()
    );
    let flags = std::fs::read_to_string(module.join("compile_flags.json")).unwrap();
    assert_eq!(flags, "[\"--dump=/tmp/host/x\"]");
    let target = std::fs::read_link(there.join(link)).unwrap();
    assert!(target.is_relative(), "{target:?}");
    assert_eq!(
        std::fs::read(there.join(link)).unwrap(),
        b"{\"model\": \"llama\"}"
    );
}

#[test]
fn a_key_is_looked_up_and_what_is_another_in_it_is_told() {
    let env = environment!();
    let here = env.path("here");
    module(&here, "10+aaaa", 1);
    neff(&env, &["push", "here", PROJECT], 0);
    let found = env.store([
        "neff",
        "lookup",
        "MODULE_10+aaaa",
        "MODULE_11+aaaa",
        PROJECT,
    ]);
    assert_eq!(found.code, Some(6), "{found}");
    let missing = env.store(["neff", "lookup", "MODULE_11+aaaa", PROJECT]);
    assert_eq!(missing.code, Some(3), "{missing}");

    let told = neff(&env, &["why", "MODULE_10+bbbb", PROJECT], 0);
    let differs = &told["nearest"][0]["differs"];
    let expected = serde_json::json!([{"field": "flags", "wanted": "bbbb", "found": "aaaa"}]);
    assert_eq!(differs, &expected, "{told}");

    // A module that was compiled here says what its flags are.
    let own = module(&env.path("own"), "10+cccc", 2);
    trees::write(
        &own.join("compile_flags.json"),
        b"[\"--model-type=transformer\", \"-O2\"]",
    );
    let done = env.store(["neff", "why", "MODULE_10+cccc", "own", PROJECT]);
    assert_eq!(done.code, Some(0), "{done}");
    let told = neff(&env, &["why", "MODULE_10+cccc", "own", PROJECT], 0);
    let differs = told["nearest"][0]["differs"].as_array().unwrap();
    let fields: Vec<&str> = differs
        .iter()
        .map(|one| one["field"].as_str().unwrap())
        .collect();
    assert_eq!(
        fields,
        [
            "compile_flags.json: -O1",
            "compile_flags.json: -O2",
            "flags"
        ]
    );
    let none = env.store(["neff", "why", "nonsense", PROJECT]);
    assert_eq!(none.code, Some(3), "{none}");
}

#[test]
fn a_status_compares_a_cache_with_a_ref() {
    let env = environment!();
    let here = env.path("here");
    module(&here, "1+a", 1);
    module(&here, "2+a", 2);
    neff(&env, &["push", "here", PROJECT], 0);
    std::fs::remove_dir_all(here.join(COMPILER).join("MODULE_1+a")).unwrap();
    module(&here, "2+a", 22);
    module(&here, "3+a", 3);
    clutter(&here);
    let told = neff(&env, &["status", "here", PROJECT], 0);
    assert_eq!(told["complete"], 2, "{told}");
    let of_ref = &told["refs"][0];
    for (field, count) in [
        ("complete", 2),
        ("same", 0),
        ("absent_here", 1),
        ("absent_there", 1),
    ] {
        assert_eq!(of_ref[field], count, "{field}: {told}");
    }
    assert_eq!(of_ref["different"].as_array().unwrap().len(), 1, "{told}");
    for (state, count) in [("failed", 2), ("locked", 1), ("incomplete", 2)] {
        assert_eq!(told[state].as_array().unwrap().len(), count, "{told}");
    }
}

/// `filelock` and others take locks of the process (`fcntl`), not of the open file.
#[test]
fn an_entry_whose_lock_a_process_holds_stays_however_old_it_is() {
    let env = environment!();
    let there = env.path("there");
    module(&there, "103+locked00", 1);
    neff(&env, &["push", "there", PROJECT], 0);
    let here = env.path("here");
    clutter(&here);
    let lock = here
        .join(COMPILER)
        .join("MODULE_103+locked00/model.hlo_module.pb.lock");
    let held = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&lock)
        .unwrap();
    held.set_modified(SystemTime::now() - Duration::from_secs(7 * 24 * 3600))
        .unwrap();
    for operation in [
        FlockOperation::NonBlockingLockShared,
        FlockOperation::NonBlockingLockExclusive,
    ] {
        fcntl_lock(&held, operation).unwrap();
        let told = neff(&env, &["clean", "here"], 0);
        let kept = told["kept"].to_string();
        assert!(kept.contains("MODULE_103+locked00"), "{told}");
        let told = neff(&env, &["pull", "here", PROJECT], 0);
        assert_eq!(
            (&told["pulled"], lock.exists()),
            (&Value::from(0), true),
            "{told}"
        );
    }
    fcntl_lock(&held, FlockOperation::Unlock).unwrap();
    let told = neff(&env, &["pull", "here", PROJECT], 0);
    assert_eq!(
        (&told["pulled"], lock.exists()),
        (&Value::from(1), false),
        "{told}"
    );
}

/// The leftovers of two dead pulls: an old one, and one that may still be running.
fn stages(cache: &Path) {
    for (name, age) in [(".store-cache-old", 2 * 3600), (".store-cache-new", 0)] {
        std::fs::create_dir_all(cache.join(name).join("entries")).unwrap();
        let dir = std::fs::File::open(cache.join(name)).unwrap();
        let then = SystemTime::now() - Duration::from_secs(age);
        dir.set_modified(then).unwrap();
    }
}

#[test]
fn a_pull_takes_away_what_pulls_left_that_died() {
    let env = environment!();
    let (here, there) = (env.path("here"), env.path("there"));
    module(&there, "1+a", 1);
    neff(&env, &["push", "there", PROJECT], 0);
    stages(&here);
    let told = neff(&env, &["pull", "here", PROJECT], 0);
    assert_eq!(told["pulled"], Value::from(1), "{told}");
    assert!(!here.join(".store-cache-old").exists());
    assert!(here.join(".store-cache-new").exists());
}

#[test]
fn a_clean_takes_what_keeps_compilers_from_trying() {
    let env = environment!();
    let here = env.path("here");
    let done = module(&here, "1+a", 1);
    clutter(&here);
    stages(&here);
    let count = modules(&here).len();
    let told = neff(&env, &["clean", "here", "--dry-run"], 0);
    assert_eq!(told["removed"].as_array().unwrap().len(), 2, "{told}");
    assert_eq!(modules(&here).len(), count);
    assert!(here.join(".store-cache-old").exists());
    check!(env, env.store(["neff", "clean", "here", "--dry-run"]), @"
    exit code: 0
    --- stdout
    here: 2 entries would go, 0 would be unlocked, 3 kept, since somebody may work on them
      would go (failed): neuronxcc-2.21.33363.0+82129205/MODULE_101+failed00
      would go (failed): neuronxcc-2.21.33363.0+82129205/MODULE_102+failed00
      kept: neuronxcc-2.21.33363.0+82129205/MODULE_103+locked00
      kept: neuronxcc-2.21.33363.0+82129205/MODULE_104+halfway0
      kept: neuronxcc-2.21.33363.0+82129205/MODULE_105+empty000
      1 directory of pulls that died
    --- stderr
    ");
    neff(&env, &["clean", "here"], 0);
    assert!(!here.join(".store-cache-old").exists());
    assert!(here.join(".store-cache-new").exists());
    assert_eq!(
        modules(&here),
        [
            "MODULE_1+a",
            "MODULE_103+locked00",
            "MODULE_104+halfway0",
            "MODULE_105+empty000",
        ]
    );
    trees::write(&done.join("model.hlo_module.pb.lock"), b"");
    let told = neff(&env, &["clean", "here", "--stale", "0s"], 0);
    assert_eq!(told["unlocked"].as_array().unwrap().len(), 1, "{told}");
    assert_eq!(modules(&here), ["MODULE_1+a"]);
    assert!(!done.join("model.hlo_module.pb.lock").exists());
}
