//! Signals: the command stops in good order, with an exit code that says so, and publishes nothing.

use std::fs::File;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::{Finished, TestEnvironment, environment, under};

const REF: &str = "project/demo/data";
/// More bytes than can be read before the signal; the file is sparse.
const ENDLESS_BYTES: u64 = 8 << 40;

fn put_endless(env: &TestEnvironment) -> Child {
    File::create(env.path("endless"))
        .unwrap()
        .set_len(ENDLESS_BYTES)
        .unwrap();
    let plain = env.command(["--progress", "put", "endless", REF]);
    // The test runner may ignore SIGHUP.
    let mut command = under("env", ["--default-signal=HUP"], &plain);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_for_the_store(env: &TestEnvironment) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !env.path("home/.local/share/store/format").exists() {
        assert!(Instant::now() < deadline, "no store was made");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn finish(child: Child) -> Finished {
    child.wait_with_output().unwrap().into()
}

#[test]
fn a_signal_stops_a_put_which_publishes_nothing() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let env = environment!();
        let child = put_endless(&env);
        wait_for_the_store(&env);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let finished = finish(child);
        assert_eq!(finished.code, Some(130), "{finished}");
        assert!(
            finished.stderr.contains("error: stopped on request"),
            "{finished}"
        );
        assert_eq!(env.store(["history", REF]).code, Some(3));
        env.write("in", "text");
        env.ok(["put", "in", REF]);
    }
}

#[test]
fn a_second_signal_ends_a_command_that_waits_for_a_bucket() {
    let env = environment!();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let mut command = env.command(["ls", "--store", "s3://bucket/store"]);
    command
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_ACCESS_KEY_ID", "key")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // The server accepts the connection, and never answers.
    let (_stream, _) = listener.accept().unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        kill_process(Pid::from_child(&child), signal).unwrap();
        // Signals that come together count as one, so this one comes later.
        std::thread::sleep(Duration::from_secs(1));
    }
    assert_eq!(finish(child).code, Some(130));
}

/// As `timeout` does: to the process, and to its group.
#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    let env = environment!();
    env.write("steps/step-1/model", "weights");
    env.write("steps/step-1/done", "");
    let words = ["watch", "steps", REF, "--done", "done", "--every", "100ms"];
    let mut command = env.command(words);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while env.store(["history", REF]).code != Some(0) {
        assert!(Instant::now() < deadline, "nothing was published");
    }
    for signal in [Signal::TERM, Signal::INT] {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    let finished = finish(child);
    assert_eq!(finished.code, Some(0), "{finished}");
}

#[test]
fn a_signal_ends_the_wait_for_a_confirmation() {
    let env = environment!();
    env.write("in", "text");
    env.ok(["put", "in", REF]);
    let mut command = env.command(["rm", "project/demo"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take();
    // It waits for the answer in a thread; without a terminal it asks nothing.
    let tasks = format!("/proc/{}/task", child.id());
    while std::fs::read_dir(&tasks).unwrap().count() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let finished = finish(child);
    drop(stdin);
    assert_eq!(finished.code, Some(130), "{finished}");
    assert_eq!(env.store(["history", REF]).code, Some(0));
}
