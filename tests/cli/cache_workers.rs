//! Workers that share a compile cache at the same time, and are killed.

use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Random, effort, environment};

use crate::cache::{COMPILER, PROJECT, module, modules};

const WORKERS: u64 = 8;
/// The number of keys that each worker compiles on its own.
const FIRST_KEYS: u64 = 6;

/// Eight workers, each with its own cache, share what they compile. They are killed and try again.
#[test]
fn pushes_and_pulls_at_once_lose_nothing_and_show_nothing_half() {
    let env = environment!();
    env.ok(["init", "store"]);
    let store = |words: &[String]| -> Command {
        let mut command = env.command(["--store", "store", "--quiet", "neff"]);
        command
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    let compiled = AtomicU64::new(0);
    let compile = |dir: &Path, number: u64, key: u64| {
        module(dir, &format!("{number}{key:05}+a"), number * 100_000 + key);
        compiled.fetch_add(1, Ordering::Relaxed);
    };
    let worker = |number: u64| {
        let dir = env.path(format!("worker-{number}"));
        let mut random = Random::new(number);
        (0..FIRST_KEYS).for_each(|key| compile(&dir, number, key));
        // A key with the same result in all workers.
        module(&dir, "7777+a", 7777);
        // A key with a different result in each worker: the first one counts, and the others are told.
        module(&dir, "8888+a", number);
        let name = dir.to_str().unwrap().to_owned();
        let words = |verb: &str| [verb, &name, PROJECT].map(str::to_owned);
        let mut kills = effort(4, 1000 / WORKERS);
        // The duration of the last complete run. Kills come before that.
        let mut least = Duration::from_millis(400);
        for key in FIRST_KEYS.. {
            for verb in ["push", "pull"] {
                let limit = least.mul_f64(random.below(1000) as f64 / 1000.0);
                let limit = Some(limit).filter(|_| kills > 0);
                let began = Instant::now();
                let ended = run(store(&words(verb)), limit, &dir);
                // The ref does not exist before the first push.
                let is_well = matches!(ended.code(), Some(0 | 6))
                    || (verb == "pull" && ended.code() == Some(3));
                assert!(is_well || ended.code().is_none(), "{verb}: {ended}");
                match is_well {
                    true => least = began.elapsed(),
                    false => kills -= 1,
                }
                whole(&dir);
            }
            if kills == 0 {
                break;
            }
            // Gives the next push something to do.
            compile(&dir, number, key);
        }
        for verb in ["push", "pull"] {
            let ended = store(&words(verb)).status().unwrap();
            assert!(matches!(ended.code(), Some(0 | 6)), "{verb}: {ended}");
        }
    };
    std::thread::scope(|scope| {
        for number in 1..=WORKERS {
            let worker = &worker;
            scope.spawn(move || worker(number));
        }
    });
    let told = env.ok(["--store", "store", "neff", "pull", "all", PROJECT, "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    let compiled = compiled.into_inner();
    assert_eq!(told["pulled"], compiled + 2, "{told}");
    whole(&env.path("all"));
    let of = |dir: &str| {
        let path = env
            .path(dir)
            .join(COMPILER)
            .join("MODULE_8888+a/model.neff");
        std::fs::read(path).unwrap()
    };
    let first: Vec<u64> = (1..=WORKERS)
        .filter(|number| of(&format!("worker-{number}")) == of("all"))
        .collect();
    assert_eq!(first.len(), 1, "{first:?}");
    for number in 1..=WORKERS {
        let dir = format!("worker-{number}");
        let again = env.store(["--store", "store", "neff", "push", &dir, PROJECT]);
        let code = if first.contains(&number) { 0 } else { 6 };
        assert_eq!(again.code, Some(code), "{again}");
    }
}

/// Runs a command on a cache, and kills it after `limit`.
fn run(mut command: Command, limit: Option<Duration>, dir: &Path) -> ExitStatus {
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    loop {
        // Checks what a compiler would see meanwhile.
        whole(dir);
        if let Some(ended) = child.try_wait().unwrap() {
            return ended;
        }
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Asserts that no module is incomplete.
fn whole(root: &Path) {
    for key in modules(root) {
        let dir = root.join(COMPILER).join(&key);
        let files = std::fs::read_dir(&dir).unwrap().count();
        let bytes = std::fs::metadata(dir.join("model.neff")).map(|found| found.len());
        assert_eq!((files, bytes.ok()), (4, Some(11_000)), "{}", dir.display());
    }
}
