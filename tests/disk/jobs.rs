//! Jobs on full disks: the exit code is the job's own, the cache is kept and reported, and all of it is saved once
//! there is space.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use support::{Finished, TestEnvironment, environment};

use crate::full::noise;
use crate::mounts::Mount;

const REF: &str = "project/llama/cache";
/// A job that fills the disk of its cache, or writes more than fits into the store, and fails.
const FILLS: &str =
    "echo new > $STORE_PROJECT_CACHE_DIR/new; cat noise > $STORE_PROJECT_CACHE_DIR/big; exit $CODE";
const DISK: &str = "size=32M";
const LARGER: &str = "size=256M";

/// The directories of a job.
struct Places {
    env: TestEnvironment,
    store: PathBuf,
    base: PathBuf,
    pool: PathBuf,
    home: PathBuf,
}

impl Places {
    /// Puts the directories in `names` on `mount`, and the others into the environment.
    fn new(mount: &Mount, names: &[&str]) -> Self {
        let env = environment!();
        env.write("noise", noise(40 << 20));
        let place = |name: &str| match names.contains(&name) {
            true => mount.path().join(name),
            false => env.path(name),
        };
        let (store, base) = (place("store"), place("base"));
        let (pool, home) = (place("pool"), place("home"));
        let places = Self {
            env,
            store,
            base,
            pool,
            home,
        };
        places.ok(&["init"]);
        places
    }

    fn store(&self, words: &[&str]) -> Finished {
        self.with_code(words, 0)
    }

    fn with_code(&self, words: &[&str], code: i32) -> Finished {
        let mut command = self
            .env
            .command(["--store".as_ref(), self.store.as_os_str()]);
        command.args(words).env("HOME", &self.home);
        command
            .env("CODE", code.to_string())
            .env("PATH", "/usr/bin:/bin");
        command.env("STORE_POOL", &self.pool);
        command.output().unwrap().into()
    }

    fn ok(&self, words: &[&str]) -> String {
        let done = self.store(words);
        assert_eq!(done.code, Some(0), "{done}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// A job that ends with `code`, unless the run itself fails.
    fn run(&self, script: &str, code: i32) -> Finished {
        let base = self.base.to_str().unwrap();
        let words = ["run", "--project", "llama", "--base", base, "--"];
        self.with_code(&[&words[..], &["/bin/sh", "-c", script]].concat(), code)
    }

    fn cache(&self) -> PathBuf {
        self.base.join("project")
    }

    /// Asserts that the newest version has the job's files.
    fn check_is_saved(&self, what: &str) {
        for name in ["old", "new", "big"] {
            let got = self.env.path(format!("got-{name}"));
            let _before = fs::remove_file(&got);
            self.ok(&["get", &format!("{REF}:{name}"), got.to_str().unwrap()]);
            let cached = fs::read(self.cache().join(name)).unwrap();
            assert!(fs::read(got).unwrap() == cached, "{what}: {name}");
        }
        self.ok(&["verify", "--read-data"]);
    }
}

/// The disk is filled by the job's files, or by their save; with a job that fails, and one that succeeds.
fn job_that_fills(names: &[&str]) {
    for (code, settle) in [(9, "run"), (0, "save")] {
        let mount = Mount::tmpfs(DISK);
        let places = Places::new(&mount, names);
        let first = places.run("echo old > $STORE_PROJECT_CACHE_DIR/old", 0);
        assert_eq!(first.code, Some(0), "{first}");
        let ended = places.run(FILLS, code);
        let what = format!("{names:?}, {code}, {settle}: {ended}");
        let is_saved = !ended.stderr.contains("not saved");
        let expected = if code == 0 && !is_saved { 1 } else { code };
        assert_eq!(ended.code, Some(expected), "{what}");
        assert_eq!(
            fs::read_to_string(places.cache().join("new")).unwrap(),
            "new\n",
            "{what}"
        );
        assert!(!ended.stderr.contains("panicked"), "{what}");
        if !is_saved {
            assert!(ended.stderr.contains("No space left on device"), "{what}");
            assert!(ended.stderr.contains(REF), "{what}");
            assert!(ended.stderr.contains("--pending` saves it"), "{what}");
        }
        mount.remount(LARGER);
        match settle {
            "run" => {
                let next = places.run("true", 0);
                assert_eq!(next.code, Some(0), "{what}then {next}");
            }
            _ => drop(places.ok(&["save", "--pending"])),
        }
        places.check_is_saved(&what);
        let pending = places.store(&["save", "--pending"]);
        assert!(
            pending.stderr.contains("nothing is to be saved"),
            "{what}then {pending}"
        );
    }
}

#[test]
fn a_job_that_fills_its_base() {
    job_that_fills(&["base"]);
}

#[test]
fn a_job_that_fills_the_disk_of_its_pool() {
    job_that_fills(&["base", "pool"]);
}

#[test]
fn a_job_of_which_the_store_has_no_room() {
    job_that_fills(&["store"]);
}

#[test]
fn a_job_that_fills_the_disk_that_everything_is_on() {
    job_that_fills(&["base", "pool", "home", "store"]);
}

/// `store save` by hand, to a store without space.
#[test]
fn a_save_of_which_the_store_has_no_room() {
    let mount = Mount::tmpfs(DISK);
    let places = Places::new(&mount, &["store"]);
    let cache = places.cache();
    let dir = cache.to_str().unwrap();
    fs::create_dir_all(&cache).unwrap();
    fs::write(cache.join("old"), "old").unwrap();
    places.ok(&["save", dir, REF]);
    fs::write(cache.join("new"), "new").unwrap();
    fs::copy(places.env.path("noise"), cache.join("big")).unwrap();
    let full = places.store(&["save", dir]);
    assert_eq!(full.code, Some(1), "{full}");
    assert!(full.stderr.contains("No space left on device"), "{full}");
    assert!(full.stderr.contains("--pending` saves it"), "{full}");
    mount.remount(LARGER);
    places.ok(&["save", dir]);
    places.check_is_saved("by hand");
    let pending = places.store(&["save", "--pending"]);
    assert!(
        pending.stderr.contains("nothing is to be saved"),
        "{pending}"
    );
}

/// In the first run of a project, nothing but the run itself knows the directory.
#[test]
fn what_is_mounted_over_a_new_cache_is_not_saved() {
    let env = environment!();
    let script = "D=$STORE_PROJECT_CACHE_DIR; echo m > $D/m; mount -t tmpfs -o size=1M none $D; echo other > $D/other";
    let base = ["run", "--project", "llama", "--base", "base", "--"];
    let refused = env.store(base.iter().chain(&["sh", "-c", script]));
    let unmounted = Command::new("umount")
        .arg(env.path("base/project"))
        .status();
    assert!(unmounted.unwrap().success());
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(refused.stderr.contains("a mount"), "{refused}");
    assert_eq!(env.store(["ls", REF]).code, Some(3));
    env.ok(["save", "--pending"]);
    assert_eq!(env.ok(["cat", &format!("{REF}:m")]), "m\n");
}
