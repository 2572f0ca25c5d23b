//! Tells whether a signal was sent to this process alone, or to all of a run: its process group, its control group.
//!
//! `timeout`, schedulers and service managers signal all of them, and a container's init only the first one. The command
//! must get a signal once: many a trainer writes a checkpoint at the first one, and gives up at the second. A signal says
//! nothing of whom else it was sent to. So a process that does nothing stands beside the command, and no signal is
//! handled there: if it dies of the same one, the command has that, too.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::process::{Resource, Rlimit, Signal, setrlimit};

/// The argument that makes this program a sentinel.
const ARGUMENT: &str = "--sentinel-of-a-run";

/// A process that dies of the signals that all of the run get. It ends with this one.
pub(super) struct Sentinel(Option<Child>);

impl Sentinel {
    /// Starts one. If that is not possible, it has seen no signal.
    pub(super) fn start() -> Self {
        let started = Command::new("/proc/self/exe")
            .arg0("store")
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(started.ok())
    }

    /// Whether one of these signals was sent to it: it died of that one, or is about to.
    pub(super) fn is_hit(&mut self, signals: &[Signal]) -> bool {
        let Some(child) = &mut self.0 else {
            return false;
        };
        let mut numbers = signals.iter().map(|signal| signal.as_raw());
        match child.try_wait() {
            Ok(Some(status)) => numbers.any(|number| status.signal() == Some(number)),
            Ok(None) => {
                let pending = pending(child.id());
                numbers.any(|number| pending >> (number - 1) & 1 == 1)
            }
            Err(_) => false,
        }
    }

    /// Puts another one in its place.
    pub(super) fn replace(&mut self) {
        *self = Self::start();
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may be stopped, and would not see the end of its input. If it cannot be killed, it is gone.
            let _gone = child.kill().and_then(|()| child.wait());
        }
    }
}

/// The signals that wait for a process, as bits (see proc(5)).
fn pending(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.unwrap_or_default();
    let masks = status.lines().filter_map(|line| {
        let of_all = line.strip_prefix("ShdPnd:");
        let mask = of_all.or_else(|| line.strip_prefix("SigPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.fold(0, |all, mask| all | mask)
}

/// Is a sentinel, if this process was started as one.
pub(crate) fn is_one() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()?.to_str() != Some(ARGUMENT) {
        return None;
    }
    // SIGQUIT shall leave no core file. Without the limit there is one.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _unlimited = setrlimit(Resource::Core, none);
    // The run holds the other end of the pipe, and never writes.
    let read = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    Some(match read {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}
