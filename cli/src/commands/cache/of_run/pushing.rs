//! Pushes of compile caches while the command of a run is running.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use store::{ErrorKind, RefName, Result, Store};

use super::warn;
use crate::commands::cache::profile::Profile;
use crate::commands::cache::push;
use crate::context::Context;
use crate::host::place::Held;
use crate::ui::human;

/// A compile cache to push.
pub(super) struct Made {
    pub(super) profile: Profile,
    pub(super) dir: PathBuf,
    pub(super) held: Held,
    pub(super) push: (RefName, push::How),
}

/// A push during the command, on a thread of its own.
pub(crate) struct Pushing {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(PathBuf, Result<push::PushReport>)>>,
}

impl Pushing {
    /// Begins to push these caches, each with its directory and its ref.
    pub(super) fn start(store: Store, stop: Arc<AtomicBool>, made: Vec<Made>) -> Self {
        let work = move || {
            let pushed = made.into_iter().map(|made| {
                let (dir, (target, how)) = (made.dir, made.push);
                let done = push::push(&store, (&dir, &made.held, &target), &made.profile, &how);
                (dir, done)
            });
            pushed.collect()
        };
        Self {
            stop,
            thread: std::thread::spawn(work),
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Reports the push. The last push reports problems of single entries.
    pub(super) fn tell(self, context: &Context) {
        let ended = self.thread.join();
        let all = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for (dir, done) in all {
            match done {
                Ok(report) if report.pushed > 0 => context.out.note(format_args!(
                    "note: compile cache {}: {} pushed meanwhile",
                    dir.display(),
                    human::counted(report.pushed, "entry")
                )),
                Err(error) if error.kind() != ErrorKind::Interrupted => warn(context, &dir, &error),
                _ => {}
            }
        }
    }
}
