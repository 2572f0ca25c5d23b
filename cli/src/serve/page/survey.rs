//! Surveys: the space that each namespace takes, and the plan of a collector. They run in the background.
//!
//! A page shows the last survey and its log entry. If the store has changed, a request begins a new survey. Only one
//! runs at a time, with pauses in proportion to its duration, since it reads all metadata.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use store::inspect::{self, Grown};
use store::{Error, Result};

use crate::serve::source::Source;

/// How long a page waits for the first survey.
const PATIENCE: Duration = Duration::from_millis(100);
/// The pause after a survey: a minimum, and a multiple of its duration.
const REST: Duration = Duration::from_secs(5);
const REST_FACTOR: u32 = 20;

/// Plans a collection.
pub(crate) type Planner = Box<dyn Fn() -> Result<gc::CollectReport> + Send + Sync>;

/// The result of a survey.
pub(crate) struct Survey {
    /// The log entry of the surveyed state.
    pub(crate) number: u64,
    pub(crate) time: Timestamp,
    /// By name.
    pub(crate) grown: Vec<Grown>,
    /// The plan of a collector, if planning succeeded.
    pub(crate) plan: Option<gc::CollectReport>,
}

/// The last survey, and whether one is running.
pub(crate) struct Known {
    pub(crate) survey: Option<Arc<Survey>>,
    pub(crate) is_running: bool,
    /// Why the last survey failed.
    pub(crate) failure: Option<String>,
}

/// Runs the surveys.
pub(crate) struct Surveyor {
    source: Arc<Source>,
    planner: Planner,
    progress: Mutex<Progress>,
    ended: Condvar,
}

#[derive(Default)]
struct Progress {
    last: Option<Arc<Survey>>,
    is_running: bool,
    failure: Option<String>,
    /// The log entry at which the last survey began, and the time at which the next may begin.
    tried: Option<u64>,
    next: Option<Instant>,
}

impl Surveyor {
    pub(crate) fn new(source: Arc<Source>, planner: Planner) -> Arc<Self> {
        Arc::new(Self {
            source,
            planner,
            progress: Mutex::default(),
            ended: Condvar::new(),
        })
    }

    /// The last survey for a page at log entry `number`. Waits a moment for the first one.
    pub(crate) fn known(self: &Arc<Self>, number: u64) -> Known {
        let mut progress = self.lock();
        let is_due = progress.next.is_none_or(|next| Instant::now() >= next);
        let is_other = progress.failure.is_some() || progress.tried.is_none_or(|of| of < number);
        if !progress.is_running && is_due && is_other {
            progress.tried = Some(number);
            progress.is_running = self.begin();
        }
        if progress.last.is_none() && progress.is_running {
            let waited = self
                .ended
                .wait_timeout_while(progress, PATIENCE, |progress| progress.is_running);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Known {
            survey: progress.last.clone(),
            is_running: progress.is_running,
            failure: progress.failure.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a survey. Returns whether a thread could be started.
    fn begin(self: &Arc<Self>) -> bool {
        let surveyor = Arc::clone(self);
        let thread = std::thread::Builder::new().name("survey".to_owned());
        let work = move || {
            let began = Instant::now();
            // After a panic of the engine, pages must not wait indefinitely.
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| surveyor.look()));
            let found =
                found.unwrap_or_else(|_| Err(Error::unavailable("the survey of the store")));
            let rest = (began.elapsed() * REST_FACTOR).max(REST);
            let mut progress = surveyor.lock();
            progress.is_running = false;
            progress.next = Some(Instant::now() + rest);
            match found {
                Ok(survey) => {
                    progress.failure = None;
                    progress.last = Some(Arc::new(survey));
                }
                Err(error) => progress.failure = Some(error.to_string()),
            }
            drop(progress);
            surveyor.ended.notify_all();
        };
        thread.spawn(work).is_ok()
    }

    fn look(&self) -> Result<Survey> {
        let sight = self.source.newest()?;
        let grown = inspect::growth(&sight)?;
        // A store that cannot be collected can still be surveyed.
        let plan = (self.planner)().ok();
        Ok(Survey {
            number: sight.view().state.number,
            time: Timestamp::now(),
            grown,
            plan,
        })
    }
}
