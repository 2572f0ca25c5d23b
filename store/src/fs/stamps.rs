//! Times as system calls take them.

use rustix::fs::{Timespec, Timestamps};

use crate::format::Time;

/// The times of a file that was modified then.
pub(crate) fn stamps(time: Time) -> Timestamps {
    let time = Timespec {
        tv_sec: time.secs,
        tv_nsec: time.nanos.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
