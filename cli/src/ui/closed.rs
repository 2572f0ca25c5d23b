//! Whether standard output was closed when this process began.
//!
//! Before `main`, the runtime opens `/dev/null` in the place of a closed one, where all that is written gets lost without
//! an error. Others may have opened `/dev/null` in the same way on purpose, so this has to be asked before that.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether nothing that is written to standard output arrives anywhere.
pub(crate) fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

#[expect(
    unsafe_code,
    reason = "asks for the flags of a number that may be no descriptor, which no type stands for"
)]
extern "C" fn look() {
    // SAFETY: this call takes two numbers, changes nothing, and fails for a closed descriptor.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

// SAFETY: the loader calls each function of this section once, before `main`. This one makes a system call and sets a
// flag, for which nothing has to be set up before.
#[expect(
    unsafe_code,
    reason = "the only place that runs before the runtime, which hides what is asked here"
)]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
