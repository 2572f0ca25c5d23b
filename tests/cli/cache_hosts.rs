//! Workers on several hosts, each host with its own compile cache, and one store: who compiles what, and how often.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use support::{Finished, Random, TestEnvironment, effort, environment};

use crate::cache::{COMPILER, PROJECT, module, modules};

const HOSTS: u64 = 3;
/// The size of the compiler's result for each key.
const NEFF_BYTES: u64 = 11_000;
/// The beginning of the result for `printf`: a header of 1,024 bytes, and 9,976 of data.
const NEFF_HEAD: &str = r"\2\0\0\0\0\0\0\0\0\4\0\0\0\0\0\0\370\46\0\0\0\0\0\0";

/// Keys, of which the ref has nine in ten, and workers that need all of them.
struct Work {
    env: TestEnvironment,
    keys: u64,
    workers: u64,
}

impl Work {
    fn new() -> Self {
        let env = environment!();
        env.ok(["init", "store"]);
        let (keys, workers) = effort((50, 6), (1000, 32));
        let work = Self { env, keys, workers };
        let before = work.env.path("before");
        for key in (0..keys).filter(|key| !is_missing(*key)) {
            module(&before, &name(key), key);
        }
        let pushed: Finished = work
            .neff(0, &["push", "before", PROJECT])
            .output()
            .unwrap()
            .into();
        assert_eq!(pushed.code, Some(0), "{pushed}");
        work
    }

    /// `store neff` on a host.
    fn neff(&self, host: u64, words: &[&str]) -> Command {
        self.on_host(host, &[&["neff"], words].concat())
    }

    fn on_host(&self, host: u64, words: &[&str]) -> Command {
        let mut command = self.env.command(["--store", "store"]);
        command
            .args(words)
            .env("HOME", self.env.path(format!("home-{host}")));
        command
    }

    fn cache(&self, host: u64) -> PathBuf {
        self.env.path(format!("host-{host}"))
    }

    /// Asserts that a later host finds all keys complete, and has nothing to compile.
    fn check_nothing_is_left_to_compile(&self) {
        let all = self.cache(HOSTS);
        let told: Finished = self
            .neff(HOSTS, &["pull", all.to_str().unwrap(), PROJECT, "--json"])
            .output()
            .unwrap()
            .into();
        let told: Value = serde_json::from_slice(&told.stdout).unwrap_or_else(|_| panic!("{told}"));
        assert_eq!(told["pulled"], self.keys, "{told}");
        assert_eq!(modules(&all).len() as u64, self.keys);
        for key in 0..self.keys {
            assert!(is_there(&all, key), "{key}");
        }
    }
}

fn is_missing(key: u64) -> bool {
    key.is_multiple_of(10)
}

fn name(key: u64) -> String {
    format!("{key}+a")
}

fn dir(cache: &Path, key: u64) -> PathBuf {
    cache.join(COMPILER).join(format!("MODULE_{}", name(key)))
}

/// Whether a compiler would use the key as compiled. Asserts that its files are complete then.
fn is_there(cache: &Path, key: u64) -> bool {
    let dir = dir(cache, key);
    let is_done = dir.join("model.done").exists();
    if is_done {
        let neff = fs::metadata(dir.join("model.neff")).map(|found| found.len());
        assert_eq!(neff.ok(), Some(NEFF_BYTES), "{}", dir.display());
    }
    is_done
}

/// Compiles as a compiler does: on one host, the holder of the lock compiles, and others wait.
fn compile(cache: &Path, key: u64, seed: u64) -> bool {
    let lock = dir(cache, key).join("model.hlo_module.pb.lock");
    loop {
        if is_there(cache, key) {
            return false;
        }
        fs::create_dir_all(lock.parent().unwrap()).unwrap();
        match fs::File::create_new(&lock) {
            Ok(_) if is_there(cache, key) => {
                fs::remove_file(&lock).unwrap();
                return false;
            }
            Ok(_) => break,
            // An entry has replaced the empty directory.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{}: {error}", lock.display()),
        }
    }
    module(cache, &name(key), seed);
    fs::remove_file(&lock).unwrap();
    true
}

/// All workers start at the same time and compile what they do not find, each in another order. Keys in the ref are
/// never compiled. Other keys are compiled at most once per host, since hosts see only pushed results. In the end there
/// is one entry for each key, and workers with a different result are told.
#[test]
fn what_is_missing_is_compiled_once_on_a_host_and_what_is_there_nowhere() {
    let work = Work::new();
    let compiled = Mutex::new(BTreeMap::<(u64, u64), u64>::new());
    let worker = |number: u64| {
        let host = number % HOSTS;
        let cache = work.cache(host);
        let run = |verb: &str| -> Finished {
            let words = [verb, cache.to_str().unwrap(), PROJECT, "--quiet"];
            work.neff(host, &words).output().unwrap().into()
        };
        let pulled = run("pull");
        assert_eq!(pulled.code, Some(0), "{pulled}");
        let mut random = Random::new(number);
        let first = random.below(work.keys);
        for key in (0..work.keys).map(|key| (key + first) % work.keys) {
            // Some compilers are deterministic, others are not.
            let seed = if key % 20 == 0 {
                key
            } else {
                key * HOSTS + host
            };
            if compile(&cache, key, seed) {
                *compiled.lock().unwrap().entry((key, host)).or_default() += 1;
            }
        }
        let pushed = run("push");
        assert!(matches!(pushed.code, Some(0 | 6)), "{pushed}");
        let is_told = pushed.stderr.contains("the ref has another one");
        assert_eq!(pushed.code == Some(6), is_told, "{pushed}");
    };
    std::thread::scope(|scope| {
        let worker = &worker;
        for number in 0..work.workers {
            scope.spawn(move || worker(number));
        }
    });
    let compiled = compiled.into_inner().unwrap();
    for ((key, host), times) in &compiled {
        assert!(
            is_missing(*key),
            "{key} was there, and host {host} compiled it"
        );
        assert_eq!(*times, 1, "{key} on host {host}");
    }
    work.check_nothing_is_left_to_compile();
}

/// To compile once for all hosts, one job compiles missing keys as a seed, and the others wait for it.
#[test]
fn what_is_missing_is_compiled_once_on_all_hosts_where_it_is_seeded() {
    let work = Work::new();
    let (pull, push) = (
        format!("\"$STORE\" --store store neff pull --quiet \"$CACHE\" {PROJECT}"),
        format!("\"$STORE\" --store store neff push --quiet \"$CACHE\" {PROJECT}"),
    );
    // A fake compiler that records its runs.
    let script = format!(
        "set -e; {pull}; key=0; while [ $key -lt $KEYS ]; do d=\"$CACHE/{COMPILER}/MODULE_$key+a\"; \
         if [ ! -e \"$d/model.done\" ]; then echo $key >> compiled; mkdir -p \"$d\"; \
         {{ printf '{NEFF_HEAD}'; head -c {} /dev/zero; }} > \"$d/model.neff\"; : > \"$d/model.done\"; fi; \
         key=$((key + 1)); done",
        NEFF_BYTES - 24
    );
    let seeding = format!("{script}; {push}; date > \"$STORE_SEED_DIR/compiled\"");
    let start = |number: u64, words: &[&str], script: &str| {
        let host = number % HOSTS;
        let mut command = work.on_host(host, &[words, &["--", "/bin/sh", "-c", script]].concat());
        let program = command.get_program().to_owned();
        command
            .env("STORE", program)
            .env("PATH", "/usr/bin:/bin")
            .env("CACHE", work.cache(host))
            .env("KEYS", work.keys.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let bases: Vec<String> = (0..work.workers)
        .map(|number| format!("base-{number}"))
        .collect();
    let numbered = || (0..work.workers).zip(&bases);
    let seed = |base| ["run", "--seed", "project/llama/compiled", "--base", base];
    let job = |base| ["run", "--project", "llama", "--base", base];
    let seeds: Vec<_> = numbered()
        .map(|(number, base)| start(number, &seed(base), &seeding))
        .collect();
    finish(seeds);
    // The jobs then find everything.
    let jobs: Vec<_> = numbered()
        .map(|(number, base)| start(number, &job(base), &script))
        .collect();
    finish(jobs);
    let compiled = fs::read_to_string(work.env.path("compiled")).unwrap();
    let mut compiled: Vec<u64> = compiled.lines().map(|key| key.parse().unwrap()).collect();
    compiled.sort_unstable();
    let missing: Vec<u64> = (0..work.keys).filter(|key| is_missing(*key)).collect();
    assert_eq!(compiled, missing);
    work.check_nothing_is_left_to_compile();
}

fn finish(children: Vec<std::process::Child>) {
    for child in children {
        let done: Finished = child.wait_with_output().unwrap().into();
        assert_eq!(done.code, Some(0), "{done}");
    }
}
