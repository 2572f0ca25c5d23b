//! A command that stands still at one of its system calls, while others go on.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use support::{Finished, under};

use crate::world::{World, shell};

/// A command under strace that was stopped.
pub(crate) struct Stopped {
    traced: Child,
    pid: String,
}

impl Stopped {
    /// Starts a command, and returns when it stands at a system call, which `inject` names as in `renameat2:when=100`.
    pub(crate) fn at(world: &World, words: &[&str], inject: &str) -> Self {
        let plain = world.env.command(words.iter().copied());
        let trace = world.path("trace").display().to_string();
        let only = format!("trace={}", inject.split_once(':').unwrap().0);
        let inject = format!("inject={inject}:signal=SIGSTOP");
        let words = ["-f", "-qq", "-o", &trace, "-e", &only, "-e", &inject];
        let mut traced = under("strace", words, &plain);
        traced.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut stopped = Self {
            traced: traced.spawn().unwrap(),
            pid: String::new(),
        };
        let children = format!("/proc/{0}/task/{0}/children", stopped.traced.id());
        // strace also stops each thread briefly at each traced call, so the states of the threads alone do not say it.
        let is_told =
            || fs::read_to_string(&trace).is_ok_and(|it| it.contains("stopped by SIGSTOP"));
        let began = Instant::now();
        loop {
            assert!(began.elapsed().as_secs() < 120, "it was never stopped");
            std::thread::sleep(Duration::from_millis(50));
            let pids = fs::read_to_string(&children).unwrap();
            if let Some(pid) = pids.split_whitespace().next()
                && is_told()
                && stands_still(pid)
            {
                pid.clone_into(&mut stopped.pid);
                return stopped;
            }
        }
    }

    /// Lets it go on, and waits for its end.
    pub(crate) fn goes_on(self) -> Finished {
        shell(&format!("kill -CONT {}", self.pid));
        self.traced.wait_with_output().unwrap().into()
    }
}

/// Whether all threads of a process are stopped.
fn stands_still(pid: &str) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.all(|thread| {
        let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|it| it.1.chars().next());
        matches!(state, Some('T' | 't'))
    })
}
