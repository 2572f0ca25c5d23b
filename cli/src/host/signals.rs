//! Signals that ask the command to stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use store::{Error, Result};

/// Signals within this time after the first one count as the same request: `timeout`, terminals and some supervisors signal
/// both the process and its group.
const TOGETHER_TIME: Duration = Duration::from_millis(250);

/// The same for SIGHUP: a closing terminal and its shell both send it, and the shell may take some seconds.
const HANGUP_TIME: Duration = Duration::from_secs(10);

/// Whether a signal that arrives this long after the first one is a new request.
pub(crate) fn is_another(signal: i32, since: Duration) -> bool {
    let together = match signal {
        SIGHUP => HANGUP_TIME,
        _ => TOGETHER_TIME,
    };
    since > together
}

/// The first signal asks to stop in good order, the second one exits at once.
///
/// # Errors
/// If the system allows no handler, or no thread.
pub(crate) fn stop_on_signals(are_for_a_command: bool) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let failed = |source| Error::unavailable("handlers of signals").because(source);
    let heeded = || [SIGINT, SIGTERM].into_iter().chain(hangup());
    for signal in heeded() {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(failed)?;
    }
    if !are_for_a_command {
        let mut signals = Signals::new(heeded()).map_err(failed)?;
        let watch = move || {
            let mut first: Option<Instant> = None;
            for signal in signals.forever() {
                let since = first.get_or_insert_with(Instant::now).elapsed();
                if is_another(signal, since) {
                    signal_hook::low_level::exit(130);
                }
            }
        };
        let watcher = std::thread::Builder::new().name("signals".to_owned());
        watcher.spawn(watch).map_err(failed)?;
    }
    Ok(stop)
}

/// SIGHUP, which a closing terminal sends. `None` if `nohup` started this process, which then outlives the terminal.
pub(crate) fn hangup() -> Option<i32> {
    let status = std::fs::read_to_string("/proc/self/status");
    Some(SIGHUP).filter(|signal| !is_ignored(&status.unwrap_or_default(), *signal))
}

/// Whether a process ignores a signal, according to `status` (see proc(5)).
fn is_ignored(status: &str, signal: i32) -> bool {
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_may_tell_later_that_its_terminal_is_gone() {
        let secs = Duration::from_secs;
        for (signal, since, is_other) in [
            (SIGTERM, Duration::from_millis(200), false),
            (SIGTERM, secs(1), true),
            (SIGHUP, secs(9), false),
            (SIGHUP, secs(11), true),
        ] {
            assert_eq!(is_another(signal, since), is_other, "{signal}, {since:?}");
        }
    }

    #[test]
    fn what_is_ignored_is_said_by_its_bit() {
        let status = "Name:\tstore\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SIGHUP));
        assert!(!is_ignored(status, SIGINT) && !is_ignored(status, SIGTERM));
        assert!(is_ignored(status, 13));
        assert!(!is_ignored("Name:\tstore\n", SIGHUP), "nothing tells it");
    }
}
