//! The priority of this process beside others on the machine.

use std::io;

use rustix::process::setpriority_process;

use super::session::Session;

/// Where a session of its own says how far all of it stands back.
const SESSION: &str = "/proc/self/autogroup";

/// Lets others compute and read first: 0 is nobody, 19 everybody. Threads that begin later inherit it, and so does their
/// priority at the disk.
///
/// Kernels that schedule sessions as groups count the niceness within a group only. So a session of its own stands back as
/// a whole; one that others share is left as it is, since they would stand back with it.
pub(crate) fn stand_back(nice: i32) -> io::Result<()> {
    setpriority_process(None, nice)?;
    if Session::own().is_some_and(|session| session.is_led_by(std::process::id())) {
        // There are kernels without such groups, and others that take no word for it twice in a moment.
        drop(std::fs::write(SESSION, nice.to_string()));
    }
    Ok(())
}
