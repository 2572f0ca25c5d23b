//! The priority of this process.

use std::io;

use rustix::process::setpriority_process;

use super::session::Session;

/// The niceness of the whole session, for kernels that schedule sessions as groups.
const SESSION: &str = "/proc/self/autogroup";

/// Sets the niceness: 0 is normal, 19 the lowest priority. Threads that start later inherit it, and so does their
/// priority at the disk.
///
/// Kernels that schedule sessions as groups apply niceness only within a group. So if this process leads its session,
/// the session's niceness is set too. A session of others is left alone, since their processes would be slowed down as
/// well.
pub(crate) fn stand_back(nice: i32) -> io::Result<()> {
    setpriority_process(None, nice)?;
    if Session::own().is_some_and(|session| session.is_led_by(std::process::id())) {
        // Some kernels have no such groups, and some refuse two writes in a short time.
        drop(std::fs::write(SESSION, nice.to_string()));
    }
    Ok(())
}
