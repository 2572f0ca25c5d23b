//! The child command of a run: starts it with this process's terminal and streams, forwards signals to it unless it got
//! them itself, and waits.
//!
//! This module never reads or writes the command's streams. The caller works between two checks.

use std::cell::Cell;
use std::ffi::OsString;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use store::{Error, Result};

use super::sentinel::Sentinel;
use crate::host::session::Session;
use crate::host::signals::{hangup, is_another};

/// The longest time between two checks.
const LOOK_MAX: Duration = Duration::from_millis(20);
/// How long a signal waits before it is forwarded: whoever signals one process after the other has reached all by then.
const ALL_TIME: Duration = Duration::from_millis(60);
/// The exit codes of a shell for a missing command, and for a file that is not executable.
const NOT_FOUND: u8 = 127;
const NO_PROGRAM: u8 = 126;

/// Signals that were caught and not forwarded yet.
pub(super) struct Signals {
    caught: Vec<(i32, Signal, Arc<AtomicBool>)>,
    /// The first request to stop that was seen after the command ended, or the last one before.
    asked: Cell<Option<Instant>>,
    /// Whether there was a further request.
    is_over: Cell<bool>,
}

/// A request to stop after the command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// There is none, or it is the one that ended the command.
    Not,
    /// The first one: the results of the command are still saved.
    Once,
    /// A further one.
    Again,
}

/// How the command ended, or why it did not start.
pub(super) struct Ended {
    /// The exit code, as a shell computes it.
    pub(super) code: u8,
    /// Why the command did not start, or why it is not known how it ended.
    pub(super) error: Option<Error>,
    /// Whether it was started.
    pub(super) is_started: bool,
}

impl Signals {
    /// Installs the signal handlers.
    pub(super) fn catch() -> Result<Self> {
        let all = [
            (SIGINT, Signal::INT),
            (SIGQUIT, Signal::QUIT),
            (SIGTERM, Signal::TERM),
            (SIGUSR1, Signal::USR1),
            (SIGUSR2, Signal::USR2),
        ];
        // If this process ignores SIGHUP, so does the command.
        let hangup = hangup().map(|number| (number, Signal::HUP));
        let caught = all.into_iter().chain(hangup).map(|(number, signal)| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(number, Arc::clone(&flag))
                .map_err(|source| Error::unavailable("handlers of signals").because(source))?;
            Ok((number, signal, flag))
        });
        Ok(Self {
            caught: caught.collect::<Result<_>>()?,
            asked: Cell::default(),
            is_over: Cell::default(),
        })
    }

    /// Takes the caught signals that the command may not have got. Returns whether one of them asks to stop.
    fn take(&self, into: &mut Vec<(Instant, Signal)>) -> bool {
        let mut is_asked = false;
        for (number, signal, flag) in &self.caught {
            if !flag.swap(false, Ordering::Relaxed) {
                continue;
            }
            is_asked |= ends(*number);
            // The terminal has already signalled its foreground group.
            let is_typed = matches!(*number, SIGINT | SIGQUIT);
            let is_told = is_typed && Session::own().is_some_and(Session::is_in_foreground);
            let is_waiting = into.iter().any(|(_, waiting)| waiting == signal);
            if !is_told && !is_waiting {
                into.push((Instant::now(), *signal));
            }
        }
        if is_asked {
            self.asked.set(Some(Instant::now()));
        }
        is_asked
    }

    /// Whether a request to stop came since the last check.
    pub(super) fn is_asked(&self) -> bool {
        // Takes all signals: one request may come as two different signals.
        self.takes(ends)
    }

    /// Takes the caught signals that `is_meant` selects. Returns whether there were any.
    fn takes(&self, is_meant: impl Fn(i32) -> bool) -> bool {
        let meant = self.caught.iter().filter(|(number, ..)| is_meant(*number));
        meant.fold(false, |any, (_, _, flag)| {
            flag.swap(false, Ordering::Relaxed) || any
        })
    }

    /// The request to stop after the command has ended. Terminals, supervisors and `timeout` signal both processes, one
    /// of them perhaps twice, so a late signal may be the one that ended the command.
    pub(super) fn asked(&self) -> Asked {
        let (is_hung_up, is_told) = (self.takes(|number| number == SIGHUP), self.takes(ends));
        let told = match (is_told, is_hung_up) {
            (true, _) => Some(SIGTERM),
            (false, true) => Some(SIGHUP),
            (false, false) => None,
        };
        let before = self.asked.get();
        match (told, before) {
            _ if self.is_over.get() => Asked::Again,
            (None, _) => Asked::Not,
            (Some(_), None) => {
                self.asked.set(Some(Instant::now()));
                Asked::Once
            }
            (Some(signal), Some(before)) if is_another(signal, before.elapsed()) => {
                self.is_over.set(true);
                Asked::Again
            }
            (Some(_), Some(_)) => Asked::Not,
        }
    }
}

/// Runs `command` with additional variables. Calls `meanwhile` with the time since the command was asked to stop.
pub(super) fn run(
    command: &[OsString],
    variables: impl IntoIterator<Item = (String, String)>,
    signals: &Signals,
    meanwhile: &mut dyn FnMut(Option<Duration>),
) -> Ended {
    let Some((program, arguments)) = command.split_first() else {
        return Ended {
            code: NOT_FOUND,
            error: Some(Error::invalid("no command is named")),
            is_started: false,
        };
    };
    let started = Command::new(program)
        .args(arguments)
        .envs(variables)
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(source) => {
            let is_missing = source.kind() == std::io::ErrorKind::NotFound;
            return Ended {
                code: if is_missing { NOT_FOUND } else { NO_PROGRAM },
                error: Some(Error::io("run", program, source)),
                is_started: false,
            };
        }
    };
    let mut sentinel = Sentinel::start();
    let mut waiting = Vec::new();
    let mut asked: Option<Instant> = None;
    let mut look = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                return Ended {
                    code: code(status),
                    error: None,
                    is_started: true,
                };
            }
            Ok(None) => {}
            Err(source) => {
                return Ended {
                    code: 1,
                    error: Some(Error::io("wait for", program, source)),
                    is_started: true,
                };
            }
        }
        if signals.take(&mut waiting) {
            asked.get_or_insert_with(Instant::now);
        }
        hand_on(&mut waiting, &mut sentinel, &child);
        meanwhile(asked.map(|at| at.elapsed()));
        std::thread::sleep(look);
        look = (2 * look).min(LOOK_MAX);
    }
}

/// Forwards the signals that have waited long enough, unless all processes of the run got them.
fn hand_on(waiting: &mut Vec<(Instant, Signal)>, sentinel: &mut Sentinel, child: &Child) {
    let is_due = |(caught, _): &(Instant, Signal)| caught.elapsed() >= ALL_TIME;
    if !waiting.iter().any(is_due) {
        return;
    }
    let signals: Vec<Signal> = waiting.iter().map(|(_, signal)| *signal).collect();
    if sentinel.is_hit(&signals) {
        waiting.clear();
        return sentinel.replace();
    }
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    for (_, signal) in waiting.extract_if(.., |signal| is_due(signal)) {
        if let Some(pid) = pid {
            // The signal fails if the command has just ended.
            let _ended = kill_process(pid, signal);
        }
    }
}

/// Whether a signal asks to stop.
fn ends(number: i32) -> bool {
    matches!(number, SIGHUP | SIGINT | SIGQUIT | SIGTERM)
}

/// The exit code as in a shell: 128 plus the signal that ended the command.
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let signal = || 128 + status.signal().unwrap_or(0);
    let code = status.code().unwrap_or_else(signal);
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_together_is_one_request_and_the_next_one_is_another() {
        let flag = Arc::new(AtomicBool::new(false));
        let other = Arc::new(AtomicBool::new(false));
        let signals = Signals {
            caught: vec![
                (SIGTERM, Signal::TERM, Arc::clone(&flag)),
                (SIGHUP, Signal::HUP, Arc::clone(&other)),
                (SIGUSR1, Signal::USR1, Arc::new(AtomicBool::new(true))),
            ],
            asked: Cell::default(),
            is_over: Cell::default(),
        };
        let ask = || flag.store(true, Ordering::Relaxed);
        let hang_up = || other.store(true, Ordering::Relaxed);
        let since = |secs: u64| {
            let then = Instant::now().checked_sub(Duration::from_secs(secs));
            signals.asked.set(then);
        };
        assert_eq!(signals.asked(), Asked::Not);
        ask();
        hang_up();
        assert_eq!(signals.asked(), Asked::Once);
        assert_eq!(signals.asked(), Asked::Not, "two at once are one");
        ask();
        assert_eq!(signals.asked(), Asked::Not, "told twice");
        since(9);
        hang_up();
        assert_eq!(signals.asked(), Asked::Not, "a terminal that goes away");
        since(11);
        hang_up();
        assert_eq!(signals.asked(), Asked::Again, "nobody hangs up so slowly");
        assert_eq!(signals.asked(), Asked::Again, "for all that is left to do");
        signals.is_over.set(false);
        since(1);
        ask();
        assert_eq!(signals.asked(), Asked::Again);
    }
}
