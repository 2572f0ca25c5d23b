//! Signals that ask the command to stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use store::{Error, Result};

/// Those within this time after the first are the first one.
pub(crate) const TOGETHER_TIME: Duration = Duration::from_millis(250);

/// The first signal asks to stop in good order, a second one stops at once. Two that come together are one: `timeout`, a
/// terminal and some supervisors tell a process and its group.
///
/// # Errors
/// When the system allows no handler, or no thread.
pub(crate) fn stop_on_signals(are_for_a_command: bool) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let failed = |source| Error::unavailable("handlers of signals").because(source);
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(failed)?;
    }
    if !are_for_a_command {
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
        let watch = move || {
            let mut first: Option<Instant> = None;
            for _ in signals.forever() {
                let since = first.get_or_insert_with(Instant::now).elapsed();
                if since > TOGETHER_TIME {
                    signal_hook::low_level::exit(130);
                }
            }
        };
        let watcher = std::thread::Builder::new().name("signals".to_owned());
        watcher.spawn(watch).map_err(failed)?;
    }
    Ok(stop)
}
