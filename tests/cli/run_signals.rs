//! Signals to runs: to the whole group, as from terminals and supervisors, and during a save.

use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use support::{Finished, TestEnvironment, environment, under};

use crate::run::{REF, line, newest, run, signal};

/// Starts a run in a process group of its own.
fn start(env: &TestEnvironment, script: &str) -> Child {
    let plain = env.command(run(&[], script));
    // The test runner may ignore SIGHUP.
    let mut command = under("env", ["--default-signal=HUP"], &plain);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.process_group(0).spawn().unwrap()
}

fn signal_group(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process_group(pid, signal).unwrap();
}

/// The signal ends the command before the run has noticed its own signal.
#[test]
fn one_signal_to_the_group_ends_the_command_and_what_it_made_is_saved() {
    let signals = [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
    ];
    for (signal, code) in signals {
        let env = environment!();
        let script = "echo 1 > $STORE_PROJECT_CACHE_DIR/one; echo ready; exec sleep 60";
        let mut child = start(&env, script);
        assert_eq!(line(&mut child), "ready\n");
        signal_group(&child, signal);
        let done = Finished::from(child.wait_with_output().unwrap());
        assert_eq!(done.code, Some(code), "{done}");
        assert_eq!(newest(&env, REF), ["one=1"], "{done}");
    }
}

/// Many a trainer writes a checkpoint at the first signal, and gives up at the second one.
#[test]
fn a_signal_reaches_the_command_once_whoever_it_was_sent_to() {
    let script = r#"exec python3 -u -c '
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"got\n"))
print("ready")
end = time.monotonic() + 1.5
while time.monotonic() < end: time.sleep(0.1)
'"#;
    for is_to_all in [true, false] {
        let env = environment!();
        let mut child = start(&env, script);
        assert_eq!(line(&mut child), "ready\n");
        match is_to_all {
            true => signal_group(&child, Signal::TERM),
            false => signal(&child, Signal::TERM),
        }
        let done = Finished::from(child.wait_with_output().unwrap());
        let got = String::from_utf8_lossy(&done.stdout).matches("got").count();
        assert_eq!(
            (done.code, got),
            (Some(0), 1),
            "to all: {is_to_all}: {done}"
        );
    }
}

#[test]
fn a_signal_while_it_is_saved_does_not_stop_that() {
    let env = environment!();
    let script = "head -c 100000000 /dev/urandom > $STORE_PROJECT_CACHE_DIR/large; echo ready";
    let mut child = start(&env, script);
    assert_eq!(line(&mut child), "ready\n");
    // By now the shell has ended, and the save has begun or is about to.
    std::thread::sleep(std::time::Duration::from_millis(100));
    signal(&child, Signal::TERM);
    let done = Finished::from(child.wait_with_output().unwrap());
    assert!(matches!(done.code, Some(0 | 143)), "{done}");
    assert!(env.ok(["ls", REF]).contains("large"), "{done}");
}

/// As `kill -QUIT` does.
#[test]
fn a_quit_of_the_run_alone_reaches_the_command_and_what_it_made_is_saved() {
    let env = environment!();
    let script = "trap 'echo late > $STORE_PROJECT_CACHE_DIR/late; exit 3' QUIT; echo ready; \
                  while :; do sleep 0.02; done";
    let mut child = start(&env, script);
    assert_eq!(line(&mut child), "ready\n");
    signal(&child, Signal::QUIT);
    let done = Finished::from(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(3), "{done}");
    assert_eq!(newest(&env, REF), ["late=late"], "{done}");
}

#[test]
fn a_second_run_in_a_base_is_refused_while_the_first_one_runs() {
    let env = environment!();
    let script = "echo 1 > $STORE_PROJECT_CACHE_DIR/half; echo ready; read go; echo 2 > $STORE_PROJECT_CACHE_DIR/half";
    let mut command = env.command(run(&[], script));
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut first = piped.stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(line(&mut first), "ready\n");
    let second = env.store(run(&[], "echo started"));
    assert_eq!(second.code, Some(5), "{second}");
    assert!(second.stdout.is_empty(), "{second}");
    assert!(second.stderr.contains("--base"), "{second}");
    assert_eq!(env.store(["ls", REF]).code, Some(3));
    let done = Finished::from(first.wait_with_output().unwrap());
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(newest(&env, REF), ["half=2"]);
    env.ok(run(&[], "true"));
}
