//! Real processes on one store: four put, two collect aggressively, two materialize from one pool, one gets, and some
//! are killed or stopped at random. Afterwards every byte of every version is there, and the pool and its trees are
//! sound.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::{
    Random, TestEnvironment, assert_same_but_file_times, assert_same_tree, effort, environment,
    trees,
};

const PUTTING: u64 = 4;
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
/// The roles of the processes, and how many have each.
const PARTS: [(Part, u64); 4] = [
    (Part::Put, PUTTING),
    (Part::Collect, 2),
    (Part::Materialize, 2),
    (Part::Get, 1),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Put,
    Collect,
    Materialize,
    Get,
}

/// One process.
struct Player<'e> {
    env: &'e TestEnvironment,
    part: Part,
    number: u64,
    /// The directory for its trees.
    out: PathBuf,
    random: Random,
}

/// How a process ended.
#[derive(PartialEq, Eq)]
enum End {
    Well,
    Killed,
    /// It lost a race, and reported that.
    Lost,
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
        env.ok(put(number, 0));
    }
    let end = Instant::now() + Duration::from_secs(effort(12, 600));
    let parts: Vec<Part> = PARTS
        .iter()
        .flat_map(|(part, count)| (0..*count).map(|_| *part))
        .collect();
    let counts: Vec<AtomicU64> = parts.iter().map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for ((number, part), count) in (0..).zip(&parts).zip(&counts) {
            let mut player = Player {
                env: &env,
                part: *part,
                number,
                out: env.path(format!("out-{number}")),
                random: Random::new(seed ^ (number << 32)),
            };
            scope.spawn(move || {
                while Instant::now() < end {
                    if player.act() == End::Well {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    for (part, count) in parts.iter().zip(&counts) {
        let count = count.load(Ordering::Relaxed);
        println!("{part:?}: {count}");
        assert!(count > 0, "no {part:?} went well");
    }
    check(&env, &parts);
    env.ok(["--store", "store"].into_iter().chain(GREEDY));
    check(&env, &parts);
}

/// Asserts that everything reads, that the newest version of each ref is the tree named by its message, and that each
/// tree of links is correct after an undisturbed update.
fn check(env: &TestEnvironment, parts: &[Part]) {
    env.ok(["--store", "store", "verify", "--read-data"]);
    for number in 0..PUTTING {
        let name = format!("project/p{number}/data");
        let history = env.ok(["--store", "store", "history", &name, "--json"]);
        let newest: serde_json::Value =
            serde_json::from_str(history.lines().next().unwrap()).unwrap();
        let tree = env.path(newest["message"].as_str().unwrap());
        env.ok(["--store", "store", "get", &name, "checked"]);
        assert_same_tree(&tree, &env.path("checked"));
        std::fs::remove_dir_all(env.path("checked")).unwrap();
        for (at, _) in (0..)
            .zip(parts)
            .filter(|(_, part)| **part == Part::Materialize)
        {
            let out = env.path(format!("out-{at}"));
            env.ok(materialize(number, &out));
            assert_same_but_file_times(&tree, &out);
        }
    }
    env.ok(["pool", "verify", "--pool", "pool"]);
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

/// Everything but the empty file is linked.
fn materialize(number: u64, out: &Path) -> Vec<String> {
    let name = format!("project/p{number}/data");
    let words = [
        "--store",
        "store",
        "materialize",
        "--pool",
        "pool",
        "--copy-below",
        "0",
        "--exact",
        &name,
        out.to_str().unwrap(),
    ];
    words.map(str::to_owned).to_vec()
}

impl Player<'_> {
    /// Runs one process to its end, and perhaps sends it a signal.
    fn act(&mut self) -> End {
        let target = self.random.below(PUTTING);
        let words = match self.part {
            Part::Put => put(self.number, self.random.below(TREES)),
            Part::Collect => {
                let words = ["--store", "store"].into_iter().chain(GREEDY);
                words.map(str::to_owned).collect()
            }
            Part::Materialize => {
                // Mostly an update, sometimes a new tree.
                if self.random.below(3) == 0 {
                    drop(std::fs::remove_dir_all(&self.out));
                }
                materialize(target, &self.out)
            }
            Part::Get => {
                drop(std::fs::remove_dir_all(&self.out));
                let name = format!("project/p{target}/data");
                let words = ["--store", "store", "get", &name, self.out.to_str().unwrap()];
                words.map(str::to_owned).to_vec()
            }
        };
        // Each process is a host of its own: it shares no remembered state, and no lock separates collectors.
        let mut command = self.env.command(&words);
        command
            .env("HOME", self.env.path(format!("home-{}", self.number)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let end = self.run(command, &words);
        match (self.part, &end) {
            (Part::Get, End::Well) => assert_same_tree(&self.source(), &self.out),
            (Part::Materialize, End::Well) => {
                assert_same_but_file_times(&self.source(), &self.out);
            }
            (Part::Get, End::Killed) => self.clean(),
            _ => {}
        }
        end
    }

    fn run(&mut self, mut command: Command, words: &[String]) -> End {
        let child = command.spawn().unwrap();
        let fate = self.random.below(8);
        let wait = Duration::from_millis(self.random.below(120));
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
        let told = String::from_utf8_lossy(&output.stderr);
        match (output.status.code(), self.part) {
            (Some(0), _) => End::Well,
            (None, _) if fate == 0 => End::Killed,
            // A process that nobody killed may lose every race, and a reader's version may be collected.
            (Some(5), _) => End::Lost,
            (Some(3), Part::Get | Part::Materialize) if told.contains("deleted meanwhile") => {
                End::Lost
            }
            _ => panic!("{words:?}: {:?}: {told}", output.status),
        }
    }

    /// The original of its own tree, which is named in one of the files.
    fn source(&self) -> PathBuf {
        let told = std::fs::read_to_string(self.out.join("run.sh")).unwrap();
        let number = told.trim_end().rsplit(' ').next().unwrap();
        self.env.path(format!("tree-{number}"))
    }

    /// Removes what a killed get leaves beside its destination.
    fn clean(&self) {
        let left = std::fs::read_dir(self.env.root()).unwrap();
        let out = self.out.file_name().unwrap().to_string_lossy();
        let mine = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with(".store-get") && name.contains(&*out)
        };
        for path in left.map(|entry| entry.unwrap().path()).filter(mine) {
            drop(std::fs::remove_dir_all(path));
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    // It may have ended already.
    let _ended = kill_process(pid, signal);
}
