//! Workers that share a compile cache at once, and are killed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Random, environment};

use crate::cache::{COMPILER, PROJECT, module, modules};

/// Eight workers with a cache each share what they compile; some are killed on the way, and try again.
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
    let worker = |number: u64| {
        let dir = env.path(format!("worker-{number}"));
        let mut random = Random::new(number);
        for key in 0..6 {
            // One key that all of them compile alike.
            module(&dir, &format!("{number}{key}+a"), number * 100 + key);
        }
        module(&dir, "7777+a", 7777);
        // And one that each compiles to something else: the first one counts, and the others hear of it.
        module(&dir, "8888+a", number);
        let name = dir.to_str().unwrap().to_owned();
        for round in 0.. {
            for verb in ["push", "pull"] {
                let words = [verb, &name, PROJECT].map(str::to_owned);
                let mut child = store(&words).spawn().unwrap();
                let is_killed = round < 3;
                let (began, limit) = (Instant::now(), Duration::from_millis(random.below(400)));
                let ended = loop {
                    // What a compiler would see meanwhile.
                    whole(&dir);
                    if is_killed && began.elapsed() > limit {
                        child.kill().unwrap();
                    }
                    if let Some(ended) = child.try_wait().unwrap() {
                        break ended;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                };
                let is_well = ended.success() || ended.code() == Some(6);
                assert!(is_killed || is_well, "{verb}: {ended}");
                whole(&dir);
            }
            if round >= 3 {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 1..=8 {
            scope.spawn(move || worker(number));
        }
    });
    let told = env.ok(["--store", "store", "neff", "pull", "all", PROJECT, "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["pulled"], 8 * 6 + 2, "{told}");
    whole(&env.path("all"));
    let of = |dir: &str| {
        let path = env
            .path(dir)
            .join(COMPILER)
            .join("MODULE_8888+a/model.neff");
        std::fs::read(path).unwrap()
    };
    let first: Vec<i32> = (1..=8)
        .filter(|number| of(&format!("worker-{number}")) == of("all"))
        .collect();
    assert_eq!(first.len(), 1, "{first:?}");
    for number in 1..=8 {
        let dir = format!("worker-{number}");
        let again = env.store(["--store", "store", "neff", "push", &dir, PROJECT]);
        let code = if first.contains(&number) { 0 } else { 6 };
        assert_eq!(again.code, Some(code), "{again}");
    }
}

/// No module is there in part.
fn whole(root: &Path) {
    for key in modules(root) {
        let dir = root.join(COMPILER).join(&key);
        let files = std::fs::read_dir(&dir).unwrap().count();
        let bytes = std::fs::metadata(dir.join("model.neff")).map(|found| found.len());
        assert_eq!((files, bytes.ok()), (4, Some(11_000)), "{}", dir.display());
    }
}
