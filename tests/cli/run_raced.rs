//! Runs beside somebody who exchanges directories while they are saved.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::{effort, environment};

use crate::run::{REF, newest, run};
use crate::run_exchanged::open_base;

fn swap(one: &Path, two: &Path) {
    let (at, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
    rustix::fs::renameat_with(at, one, at, two, flags).unwrap();
}

/// What a command does that compiles one kernel.
fn compiles(name: &str) -> String {
    format!(
        "mkdir -p $TRITON_CACHE_DIR/{name}; echo '{{}}' > $TRITON_CACHE_DIR/{name}/__grp__add.json"
    )
}

/// Exchanges two directories over and over from when `go` is there until `over`. They are as before in the end.
fn exchange(one: &Path, two: &Path, go: &Path, over: &AtomicBool) {
    let mut is_over = false;
    while !is_over {
        is_over = over.load(Ordering::Relaxed);
        if go.exists() {
            for pause in [700, 400] {
                swap(one, two);
                std::thread::sleep(Duration::from_micros(pause));
            }
        }
    }
}

/// What is looked at and what is read is the same directory, whatever is at its path in the meantime.
#[test]
fn what_comes_and_goes_while_a_cache_is_saved_is_not_saved() {
    for round in 0..effort(8, 24) {
        let env = environment!();
        open_base(&env);
        let (place, other) = (env.path("base/project"), env.path("base/other"));
        env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
        env.write("private/secret", "s");
        match round % 2 {
            0 => std::os::unix::fs::symlink(env.path("private"), &other).unwrap(),
            _ => fs::rename(env.path("private"), &other).unwrap(),
        }
        let go = env.path("go");
        let is_killed = round % 4 > 1;
        let end = match is_killed {
            true => "kill -9 $PPID",
            false => "touch $GO; sleep 0.01",
        };
        let script = format!(
            "GO={}; echo b > $STORE_PROJECT_CACHE_DIR/b; {end}",
            go.display()
        );
        if is_killed {
            env.store(run(&[], &script));
        }
        let is_over = AtomicBool::new(false);
        let saved = std::thread::scope(|scope| {
            scope.spawn(|| exchange(&place, &other, &go, &is_over));
            let saved = match is_killed {
                false => env.store(run(&[], &script)),
                true => {
                    env.write("go", "");
                    env.store(["save", "--pending"])
                }
            };
            is_over.store(true, Ordering::Relaxed);
            saved
        });
        let has = |file: &str| newest(&env, REF).contains(&file.to_owned());
        assert!(has("a=a") && !has("secret=s"), "{saved}");
        if saved.code != Some(0) {
            env.ok(["save", "--pending"]);
        }
        assert!(has("b=b"), "{saved}");
        assert!(!has("secret=s"), "{saved}");
    }
}

/// The same of a compile cache in it, which is pushed to a ref of its own.
#[test]
fn what_comes_to_the_place_while_compiles_are_pushed_is_not_pushed() {
    for round in 0..effort(8, 24) {
        let env = environment!();
        open_base(&env);
        let (place, other) = (env.path("base/project"), env.path("base/other"));
        env.write("base/other/triton/EVIL/__grp__add.json", "{}");
        let (go, is_over) = (env.path("go"), AtomicBool::new(false));
        let script = format!("{}; touch {}", compiles("OWN"), go.display());
        // Once, some time after the command.
        let pause = Duration::from_millis(3 * round);
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !go.exists() && !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(300));
                }
                std::thread::sleep(pause);
                swap(&place, &other);
            });
            let ran = env.store(run(&[], &script));
            is_over.store(true, Ordering::Relaxed);
            ran
        });
        let pushed = env.store(["ls", "project/llama/triton"]);
        let pushed = String::from_utf8_lossy(&pushed.stdout).into_owned();
        assert!(!pushed.contains("EVIL"), "{round}: {ran}");
        swap(&place, &other);
        env.ok(["save", "--pending"]);
        let pushed = env.ok(["ls", "project/llama/triton"]);
        assert!(pushed.contains("OWN"), "{round}: {ran}");
    }
}

/// Where the cache is not, nothing says that there are no compiles in it.
#[test]
fn compiles_of_a_cache_that_was_away_are_pushed_when_it_is_back() {
    let env = environment!();
    open_base(&env);
    env.write("base/other/file", "");
    let script = format!(
        "{}; cd base; mv project away; mv other project",
        compiles("OWN")
    );
    let ran = env.store(run(&[], &script));
    assert_eq!(ran.code, Some(5), "{ran}");
    let place = env.path("base/project");
    fs::rename(&place, env.path("base/other")).unwrap();
    fs::rename(env.path("base/away"), &place).unwrap();
    env.ok(["save", "--pending"]);
    env.ok(["ls", "project/llama/triton:OWN"]);
}

/// The compiles of a killed run stay with its cache, wherever that is for a while.
#[test]
fn compiles_of_a_killed_run_are_pushed_when_its_cache_is_back() {
    let env = environment!();
    let place = env.path("base/project");
    env.store(run(&[], &format!("{}; kill -9 $PPID", compiles("OWN"))));
    fs::rename(&place, env.path("away")).unwrap();
    env.ok(run(&[], &compiles("NEXT")));
    let pushed = env.ok(["ls", "project/llama/triton"]);
    assert!(
        pushed.contains("NEXT") && !pushed.contains("OWN"),
        "{pushed}"
    );
    fs::rename(&place, env.path("other")).unwrap();
    fs::rename(env.path("away"), &place).unwrap();
    let pending = env.store(["save", "--pending"]);
    assert_eq!(pending.code, Some(0), "{pending}");
    env.ok(["ls", "project/llama/triton:OWN"]);
}
