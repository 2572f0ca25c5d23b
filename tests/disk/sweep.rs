//! One put by the real command, in which the n-th system call of a kind fails or kills the process: it does not panic,
//! exit code 0 means that the version is complete, old versions stay readable, and the next put works.
//!
//! strace counts calls by thread, so an n may hit several threads. The ordinary suite tries a sample.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use support::{Finished, effort, under};

use crate::witness::Witness;

const REF: &str = "project/sweep/data";
const TREE_BYTES: usize = 1_000_000;

/// A kind of system call, and how many of them the ordinary suite hits at most.
struct Calls {
    names: &'static str,
    ordinary: usize,
}

const SYNCS: Calls = Calls {
    names: "fsync,fdatasync",
    ordinary: 5,
};
const NAMINGS: Calls = Calls {
    names: "link,linkat,rename,renameat,renameat2",
    ordinary: 5,
};
const WRITES: Calls = Calls {
    names: "write,pwrite64,writev",
    ordinary: 6,
};
const OPENINGS: Calls = Calls {
    names: "openat,openat2,mkdir,mkdirat",
    ordinary: 6,
};
const READS: Calls = Calls {
    names: "read,pread64",
    ordinary: 6,
};

#[test]
fn syncs_that_fail() {
    sweep(&SYNCS, "error=EIO");
}

#[test]
fn syncs_that_kill() {
    sweep(&SYNCS, "signal=SIGKILL");
}

#[test]
fn namings_on_a_full_disk() {
    sweep(&NAMINGS, "error=ENOSPC");
}

#[test]
fn namings_that_kill() {
    sweep(&NAMINGS, "signal=SIGKILL");
}

#[test]
fn writes_that_fail() {
    sweep(&WRITES, "error=EIO");
}

#[test]
fn writes_on_a_full_disk() {
    sweep(&WRITES, "error=ENOSPC");
}

#[test]
fn writes_that_kill() {
    sweep(&WRITES, "signal=SIGKILL");
}

#[test]
fn files_that_cannot_be_made() {
    sweep(&OPENINGS, "error=ENOSPC");
}

#[test]
fn reads_that_fail() {
    sweep(&READS, "error=EIO");
}

fn sweep(calls: &Calls, fault: &str) {
    let temp = tempfile::tempdir().unwrap();
    let origin = temp.path().join("origin");
    let mut witness = Witness::new(&origin, 2, TREE_BYTES);
    witness.put_ok("0", REF);
    let most = most_in_one_thread(&mut witness, temp.path(), &origin, calls);
    assert!(most > 0, "a put makes no {}", calls.names);
    let step = effort(most.div_ceil(calls.ordinary), 1);
    let mut injected = 0;
    for at in (1..=most).step_by(step) {
        let what = format!("{} {fault} at {at} of {most}", calls.names);
        let place = temp.path().join(format!("store-{at}"));
        copy(&origin, &place);
        witness.moved_to(&place);
        injected += usize::from(disturb(&mut witness, temp.path(), calls, fault, at, &what));
        std::fs::remove_dir_all(&place).unwrap();
    }
    assert!(injected > 0, "{} {fault}: nothing was hit", calls.names);
}

/// Disturbs one put and checks everything that must hold. Returns whether a call was hit.
fn disturb(
    witness: &mut Witness,
    temp: &Path,
    calls: &Calls,
    fault: &str,
    at: usize,
    what: &str,
) -> bool {
    let inject = format!("inject={}:{fault}:when={at}", calls.names);
    let (finished, report) = strace(witness, temp, &["-e", &inject]);
    let is_hit = report.contains("(INJECTED)") || report.contains("killed by SIGKILL");
    assert!(!finished.stderr.contains("panicked"), "{what}: {finished}");
    let found = witness.check(what);
    let is_there = found.contains(&format!("{REF}@2"));
    assert!(is_there || finished.code != Some(0), "{what}: {finished}");
    if !is_hit {
        assert_eq!(finished.code, Some(0), "{what}: {finished}");
    }
    let again: Finished = witness.command("1", REF).output().unwrap().into();
    assert_eq!(again.code, Some(0), "{what}: {again}");
    assert_eq!(witness.check(what).len(), found.len() + 1, "{what}");
    is_hit
}

/// The number of calls of the kind in the busiest thread of a put.
fn most_in_one_thread(witness: &mut Witness, temp: &Path, origin: &Path, calls: &Calls) -> usize {
    let place = temp.join("counted");
    copy(origin, &place);
    witness.moved_to(&place);
    let trace = format!("trace={}", calls.names);
    let (finished, report) = strace(witness, temp, &["-e", &trace]);
    assert_eq!(finished.code, Some(0), "{finished}");
    let mut counts = BTreeMap::<&str, usize>::new();
    for line in report.lines().filter(|line| line.contains('(')) {
        let thread = line.split(' ').next().unwrap();
        *counts.entry(thread).or_default() += 1;
    }
    counts.into_values().max().unwrap_or(0)
}

/// Puts the second version under strace. Returns the result, and strace's output.
fn strace(witness: &Witness, temp: &Path, options: &[&str]) -> (Finished, String) {
    let report = temp.join("strace.out");
    let put = witness.command("1", REF);
    let words = ["-f", "-qq", "-o", report.to_str().unwrap()];
    let finished = under("strace", words.iter().chain(options), &put)
        .output()
        .expect("strace is installed (tests/run installs it)")
        .into();
    (finished, std::fs::read_to_string(&report).unwrap())
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .arg("-a")
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(status.success());
}
