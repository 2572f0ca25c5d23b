//! Closing terminals: a command in one ends in good order, and a command under `nohup` continues.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use support::{environment, under};

use crate::run::{REF as CACHE, newest, run, signal};
use crate::watch::{checkpoint, end, line, published, words};

/// Starts `command` as the session leader of a terminal. Also returns the terminal's other side.
fn on_terminal(command: &Command) -> (Child, File) {
    // Only this process has it open, so closing it closes the terminal.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let main = openpt(flags).unwrap();
    grantpt(&main).unwrap();
    unlockpt(&main).unwrap();
    let name = ptsname(&main, Vec::new()).unwrap();
    let side = || -> OwnedFd {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::open(&*name, flags, Mode::empty()).unwrap()
    };
    let plain = under("env", ["--default-signal=HUP"], command);
    let mut alone = under("setsid", ["--ctty"], &plain);
    let alone = alone.stdin(side()).stdout(side()).stderr(side());
    (alone.spawn().unwrap(), File::from(main))
}

/// Reads until the terminal has printed `text`.
fn wait_for(terminal: &mut File, text: &str) {
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains(text) {
        let mut byte = [0];
        terminal.read_exact(&mut byte).unwrap();
        said.extend(byte);
    }
}

/// Nobody can read the output any more, but all checkpoints must be published.
#[test]
fn a_watch_publishes_what_is_finished_when_its_terminal_goes_away() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    let (mut watch, mut terminal) = on_terminal(&env.command(words(&[])));
    wait_for(&mut terminal, "ckpt@1");
    checkpoint(&env, 2, 2);
    checkpoint(&env, 3, 3);
    drop(terminal);
    let done = watch.wait().unwrap();
    assert_eq!(done.signal(), None);
    let all = ["checkpoint-1", "checkpoint-2", "checkpoint-3"];
    assert_eq!(published(&env), all);
}

#[test]
fn what_a_job_made_is_saved_when_its_terminal_goes_away() {
    let env = environment!();
    let script = "echo 1 > $STORE_PROJECT_CACHE_DIR/one; echo ready; exec sleep 60";
    let (mut job, mut terminal) = on_terminal(&env.command(run(&[], script)));
    wait_for(&mut terminal, "ready");
    drop(terminal);
    assert_eq!(job.wait().unwrap().code(), Some(129));
    assert_eq!(newest(&env, CACHE), ["one=1"]);
}

/// Starts `command` as `nohup` does.
fn ignoring(command: &Command) -> Child {
    let mut command = under("env", ["--ignore-signal=HUP"], command);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    piped.stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_watch_that_outlives_its_terminal_goes_on() {
    let env = environment!();
    checkpoint(&env, 1, 1);
    let mut watch = ignoring(&env.command(words(&[])));
    assert!(line(&mut watch).contains("ckpt@1"));
    signal(&watch, Signal::HUP);
    std::thread::sleep(Duration::from_secs(3));
    checkpoint(&env, 2, 2);
    assert!(line(&mut watch).contains("ckpt@2"));
    let done = end(watch);
    assert_eq!(done.code, Some(0), "{done}");
}

#[test]
fn a_job_that_outlives_its_terminal_goes_on() {
    let env = environment!();
    let script = "echo ready; read go; echo 1 > $STORE_PROJECT_CACHE_DIR/one";
    let mut job = ignoring(&env.command(run(&[], script)));
    assert_eq!(line(&mut job), "ready\n");
    signal(&job, Signal::HUP);
    std::thread::sleep(Duration::from_secs(1));
    drop(job.stdin.take());
    let done = job.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(newest(&env, CACHE), ["one=1"]);
}
