//! Runs a test of this binary again under `strace`, and reads what it did to files.
//!
//! The traced process marks the end of each step by a query for a missing file.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The directory in which the traced process works; unset in the tests that trace it.
pub(crate) const PLACE: &str = "TRACED_PLACE";
/// The directory that marks pretend to be in.
const MARKS: &str = "/mark-of-the-end-of/";
/// System calls that change a directory or make something durable, and the call of marks.
const CALLS: &str = "trace=fsync,fdatasync,link,linkat,rename,renameat,renameat2,mkdir,mkdirat,unlink,unlinkat,statx";

/// One system call that changed a directory, or made something durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Sync(PathBuf),
    Link(PathBuf, PathBuf),
    Rename(PathBuf, PathBuf),
    Mkdir(PathBuf),
    Unlink(PathBuf),
}

/// The calls before one mark.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) calls: Vec<Call>,
}

/// Ends a step in the traced process.
pub(crate) fn mark(name: &str) {
    assert!(!Path::new(MARKS).join(name).exists());
}

/// The steps of `test` when it runs in `place`, without failed calls.
pub(crate) fn traced(test: &str, place: &Path) -> Vec<Step> {
    let (run, report) = strace(test, place, &["-e", CALLS]);
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stdout)
    );
    steps(&report)
}

/// Runs `test` in `place`, with `fault` injected into a `call`. Returns whether it was hit, and the successful calls.
pub(crate) fn injected(test: &str, place: &Path, call: &str, fault: &str) -> (bool, Vec<Call>) {
    let inject = format!("inject={call}:{fault}");
    let (run, report) = strace(test, place, &["-e", CALLS, "-e", &inject]);
    let hit = report.contains("(INJECTED)") || report.contains("killed by SIGKILL");
    assert!(
        hit || run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stdout)
    );
    let calls = report
        .lines()
        .filter(|line| line.ends_with(" = 0"))
        .filter_map(self::call);
    (hit, calls.collect())
}

fn strace(test: &str, place: &Path, options: &[&str]) -> (Output, String) {
    let report = place.join("strace.out");
    let run = Command::new("strace")
        .args(["-f", "-qq", "-y", "-s", "4096", "-o"])
        .arg(&report)
        .args(options)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads", "1"])
        .env(PLACE, place)
        .output()
        .expect("strace is installed (tests/run installs it)");
    let report = std::fs::read_to_string(&report).unwrap();
    (run, report)
}

fn steps(report: &str) -> Vec<Step> {
    let (mut steps, mut calls) = (Vec::new(), Vec::new());
    for line in report.lines() {
        if let Some((_, after)) = line.split_once(MARKS) {
            let name = after.split('"').next().unwrap_or_default().to_owned();
            steps.push(Step {
                name,
                calls: std::mem::take(&mut calls),
            });
        } else if line.ends_with(" = 0") {
            calls.extend(call(line));
        }
    }
    steps
}

/// Parses `PID name(arguments) = 0`. Paths are in quotes, paths of descriptors in angle brackets.
fn call(line: &str) -> Option<Call> {
    let (_, call) = line.split_once(' ')?;
    let (name, arguments) = call.trim_start().split_once('(')?;
    let mut quoted = arguments.split('"').skip(1).step_by(2).map(PathBuf::from);
    match name {
        "fsync" | "fdatasync" => {
            let (_, path) = arguments.split_once('<')?;
            Some(Call::Sync(path.split_once('>')?.0.into()))
        }
        "link" | "linkat" => Some(Call::Link(quoted.next()?, quoted.next()?)),
        "rename" | "renameat" | "renameat2" => Some(Call::Rename(quoted.next()?, quoted.next()?)),
        "mkdir" | "unlink" | "mkdirat" | "unlinkat" => {
            // A name in an open directory, whose path comes before.
            let directory = arguments.split('"').next().and_then(|descriptor| {
                let (_, path) = descriptor.split_once('<')?;
                Some(PathBuf::from(path.split_once('>')?.0))
            });
            let path = directory.unwrap_or_default().join(quoted.next()?);
            Some(match name.starts_with("mkdir") {
                true => Call::Mkdir(path),
                false => Call::Unlink(path),
            })
        }
        _ => None,
    }
}
