//! Real processes on one store: four put, two collect as greedily as they can, two get, and some of them are
//! killed or stopped and woken at random. Afterwards every byte of every version is there.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::{Random, TestEnvironment, assert_same_tree, effort, environment, trees};

const PUTTING: u64 = 4;
const COLLECTING: u64 = 2;
const GETTING: u64 = 2;
const TREES: u64 = 5;
const GREEDY: [&str; 10] = [
    "gc",
    "--grace",
    "0",
    "--min-age",
    "0",
    "--max-unused",
    "0",
    "--keep-last",
    "3",
    "--quiet",
];

/// How often something went well.
#[derive(Default)]
struct Done {
    puts: AtomicU64,
    collections: AtomicU64,
    gets: AtomicU64,
}

#[test]
fn kills_and_stops_lose_nothing() {
    let env = environment!();
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    for number in 0..TREES {
        trees::version(&env.path(format!("tree-{number}")), seed, number, 40_000);
    }
    env.ok(["init", "store"]);
    for number in 0..PUTTING {
        env.ok(put(number, 0).iter().map(String::as_str));
    }
    let done = Done::default();
    let end = Instant::now() + Duration::from_secs(effort(20, 600));
    std::thread::scope(|scope| {
        for number in 0..PUTTING + COLLECTING + GETTING {
            let (env, done) = (&env, &done);
            let mut random = Random::new(seed ^ (number << 32));
            scope.spawn(move || {
                while Instant::now() < end {
                    act(env, number, &mut random, done);
                }
            });
        }
    });
    for (what, count) in [
        ("puts", &done.puts),
        ("collections", &done.collections),
        ("gets", &done.gets),
    ] {
        let count = count.load(Ordering::Relaxed);
        println!("{what}: {count}");
        assert!(count > 0, "no {what} went well");
    }
    check(&env);
    env.ok(["--store", "store"].into_iter().chain(GREEDY));
    check(&env);
}

/// Everything reads, and the newest version of each ref is the tree that its message names.
fn check(env: &TestEnvironment) {
    env.ok(["--store", "store", "verify", "--read-data"]);
    for number in 0..PUTTING {
        let name = format!("project/p{number}/data");
        let history = env.ok(["--store", "store", "history", &name, "--json"]);
        let newest: serde_json::Value =
            serde_json::from_str(history.lines().next().unwrap()).unwrap();
        let out = env.path("checked");
        env.ok(["--store", "store", "get", &name, "checked"]);
        assert_same_tree(&env.path(newest["message"].as_str().unwrap()), &out);
        std::fs::remove_dir_all(out).unwrap();
    }
}

fn put(number: u64, tree: u64) -> Vec<String> {
    let (tree, name) = (format!("tree-{tree}"), format!("project/p{number}/data"));
    let words = [
        "--store",
        "store",
        "put",
        &tree,
        &name,
        "-m",
        &tree,
        "--read-all",
    ];
    words.map(str::to_owned).to_vec()
}

/// One process, and perhaps a signal for it.
fn act(env: &TestEnvironment, number: u64, random: &mut Random, done: &Done) {
    let out = env.path(format!("out-{number}"));
    let (words, count) = match number {
        0..PUTTING => (put(number, random.below(TREES)), &done.puts),
        PUTTING..6 => {
            let words = ["--store", "store"].into_iter().chain(GREEDY);
            (words.map(str::to_owned).collect(), &done.collections)
        }
        _ => {
            let name = format!("project/p{}/data", random.below(PUTTING));
            let words = ["--store", "store", "get", &name, out.to_str().unwrap()];
            (words.map(str::to_owned).to_vec(), &done.gets)
        }
    };
    // Each is a host of its own: what one remembers no other knows, and no lock keeps collectors apart.
    let mut command = env.command(&words);
    command
        .env("HOME", env.path(format!("home-{number}")))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let was_disturbed = run(command, random, &words, count);
    if was_disturbed {
        clean(env, &out);
    }
    // A tree that was got is of no more use.
    drop(std::fs::remove_dir_all(&out));
}

/// Runs it to its end, and counts it when it was let alone; whether it was killed.
fn run(mut command: Command, random: &mut Random, words: &[String], count: &AtomicU64) -> bool {
    let child = command.spawn().unwrap();
    let fate = random.below(8);
    let wait = Duration::from_millis(random.below(120));
    if fate < 3 {
        std::thread::sleep(wait);
        signal(
            &child,
            if fate == 0 {
                Signal::KILL
            } else {
                Signal::STOP
            },
        );
        if fate > 0 {
            std::thread::sleep(wait * 4);
            signal(&child, Signal::CONT);
        }
    }
    let output = child.wait_with_output().unwrap();
    if output.status.success() {
        count.fetch_add(1, Ordering::Relaxed);
        return false;
    }
    let told = String::from_utf8_lossy(&output.stderr);
    // What nobody killed may lose every race, and nothing else.
    let is_fine = fate == 0 || output.status.code() == Some(5);
    assert!(is_fine, "{words:?}: {:?}: {told}", output.status);
    fate == 0
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    // It may have ended by itself.
    let _ended = kill_process(pid, signal);
}

/// What a killed get leaves beside its destination.
fn clean(env: &TestEnvironment, out: &std::path::Path) {
    let left = std::fs::read_dir(env.root()).unwrap();
    let mine = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(".store-get")
            && name.contains(&*out.file_name().unwrap().to_string_lossy())
    };
    for path in left.map(|entry| entry.unwrap().path()).filter(mine) {
        drop(std::fs::remove_dir_all(path));
    }
}
