//! A collection from end to end: look, plan, apply; if others changed the state, start again.

use std::time::{Duration, Instant};

use store::log::{Outside, System};
use store::remote::Prune;
use store::{Error, Remedy, Result, Store};

use crate::apply::{Applied, Session};
use crate::idle::Note;
use crate::look::look;
use crate::plan::Uploads;
use crate::report::CollectReport;
use crate::request::{Deadline, Request};

/// For how long plans may be void one after another.
const PATIENCE: Duration = Duration::from_mins(5);

/// Collects the garbage of `store`; `prune` deletes its objects.
///
/// # Errors
/// Invalid input, for a store of a single writer unless the request is exclusive. If anything cannot be read, an error
/// that names it: then nothing that this run condemned was deleted. Conflict, if others kept changing the state.
pub fn collect(store: &Store, prune: &dyn Prune, request: &Request) -> Result<CollectReport> {
    let store = &store.clone().by_rule();
    store.format().check_writable()?;
    if store.format().is_single_writer() && !request.exclusive && !request.dry_run {
        return Err(Error::invalid(format!(
            "{}: is a store of a single writer; a collector beside a writer could lose what it writes",
            store.remote().url()
        ))
        .hint(Remedy::Exclusive));
    }
    let began = Instant::now();
    if let Some(mut report) = Note::since(store, prune, request)? {
        report.secs = began.elapsed().as_secs_f64();
        return Ok(report);
    }
    let deadline = Deadline::of(request);
    let mut report = CollectReport {
        dry_run: request.dry_run,
        ..CollectReport::default()
    };
    let mut uploads = Uploads::default();
    let patience = (request.elapsed)().checked_add(PATIENCE);
    for tries in 1.. {
        let planned = look(store, prune, request, &mut uploads)?;
        report.plan = planned.plan.clone();
        report.held = planned.plan.held;
        report.live = planned.live;
        report.over.clone_from(&planned.over);
        report.shared.clone_from(&planned.shared);
        // A note would suppress the warnings in later runs.
        let idle = planned.idle.clone().filter(|_| store.warnings().is_empty());
        if !request.dry_run {
            let mut session = Session::new(store, prune, request, planned, deadline);
            let applied = session.run(&mut report)?;
            uploads.abandoned.extend(session.into_abandoned());
            if applied == Applied::Void {
                report.plans_void += 1;
                let is_over = patience.is_some_and(|end| (request.elapsed)() >= end);
                if !is_over && !deadline.is_over() {
                    System.pause(tries);
                    continue;
                }
                // If anything was done, it stands, and the next run continues.
                if is_over && report.entries.is_empty() && report.freed_objects == 0 {
                    break;
                }
            }
            report.stopped = applied != Applied::Done;
            if let Some(idle) = idle.filter(|_| !report.stopped) {
                idle.leave(store);
            }
        }
        report.secs = began.elapsed().as_secs_f64();
        return Ok(report);
    }
    Err(Error::conflict(format!(
        "gc: others changed the state during all of {} plans in a row",
        report.plans_void
    ))
    .hint(Remedy::FewerCollectors))
}
