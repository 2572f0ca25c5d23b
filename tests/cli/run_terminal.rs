//! Runs at a terminal: signals from the keyboard reach the command once, and its files are saved.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use support::{Finished, environment};

use crate::run::{REF, line, newest};

#[test]
fn what_is_typed_at_a_terminal_reaches_the_command_once() {
    let env = environment!();
    let script =
        "cd cache/project; trap 'echo int >> told' INT; trap 'echo quit >> told; exit 5' QUIT
                  : > told; echo ready; while :; do sleep 0.02; done";
    env.write("job.sh", script);
    let plain = env.command(["run", "--project", "llama", "--", "/bin/sh", "job.sh"]);
    let words = std::iter::once(plain.get_program()).chain(plain.get_args());
    let words: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
    let mut command = Command::new("script");
    command
        .args(["-qec", &format!("exec {}", words.join(" ")), "/dev/null"])
        .current_dir(env.root())
        .env_clear()
        .envs(
            plain
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    while line(&mut child).trim_end() != "ready" {}
    let told = env.path("cache/project/told");
    for (key, word) in [(b"\x03", "int\n"), (b"\x1c", "quit\n")] {
        keys.write_all(key).unwrap();
        while !fs::read_to_string(&told).unwrap().ends_with(word) {
            assert!(child.try_wait().unwrap().is_none(), "ended too soon");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    let done = Finished::from(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(5), "{done}");
    drop(keys);
    assert_eq!(newest(&env, REF), ["told=int\nquit"], "{done}");
}
