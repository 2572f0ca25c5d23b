//! `store duplicate --status`: what is known of jobs, also while they run.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use store::{Error, Result};

use crate::context::Context;
use crate::human;
use crate::journal::{self, JobDir, Outcome, Run, Status};
use crate::table::{Side, Table};

/// One job; an object of `--json`.
#[derive(Serialize)]
#[serde(transparent)]
struct Told(Status);

pub(super) fn run(job: &str, context: &Context) -> Result<()> {
    if job.is_empty() {
        return all(context);
    }
    let jobs = JobDir::all()?;
    let dir = jobs.iter().find(|dir| dir.id() == job);
    let status = dir.and_then(journal::status).ok_or_else(|| {
        Error::not_found(format!(
            "{job}: nothing is known of such a job on this host"
        ))
        .hint("see which jobs were run with `store duplicate --status`")
    })?;
    context.out.answer(&Told(status))
}

fn all(context: &Context) -> Result<()> {
    let jobs = JobDir::all()?;
    let known = jobs.iter().filter_map(journal::status).map(Told);
    let columns = [
        ("job", Side::Left),
        ("last run (UTC)", Side::Left),
        ("", Side::Left),
        ("sent", Side::Right),
        ("from", Side::Left),
        ("to", Side::Left),
        ("refs", Side::Left),
    ];
    context.out.list(&columns, known, |Told(status)| {
        let last = status.runs.first();
        [
            status.facts.job.clone(),
            last.map_or_else(String::new, |run| human::time(run.started)),
            last.map_or("", |run| run.outcome.told()).to_owned(),
            last.map_or_else(String::new, |run| human::bytes(run.numbers.sent_bytes)),
            status.facts.from.clone(),
            status.facts.to.clone(),
            status.facts.refs.join(" "),
        ]
    })
}

impl fmt::Display for Told {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status {
            facts,
            progress,
            errors,
            runs,
        } = &self.0;
        writeln!(out, "job   {}", facts.job)?;
        writeln!(out, "from  {}", facts.from)?;
        writeln!(out, "to    {}", facts.to)?;
        writeln!(out, "refs  {}", facts.refs.join(" "))?;
        if let Some(run) = runs.first().filter(|run| run.outcome == Outcome::Running) {
            write!(
                out,
                "now   process {} runs it since {} UTC: {}",
                run.pid,
                human::time(run.started),
                human::bytes(progress.bytes)
            )?;
            match progress.total_bytes {
                0 => writeln!(out)?,
                total => writeln!(out, " of {}", human::bytes(total))?,
            }
        }
        write!(out, "{}", table(runs))?;
        for failed in errors {
            write!(out, "\nfailed: {}: {}", failed.name, failed.error)?;
        }
        Ok(())
    }
}

fn table(runs: &[Run]) -> Table {
    let mut table = Table::new(&[
        ("run", Side::Right),
        ("started (UTC)", Side::Left),
        ("took", Side::Right),
        ("", Side::Left),
        ("published", Side::Right),
        ("failed", Side::Right),
        ("sent", Side::Right),
        ("why", Side::Left),
    ]);
    for run in runs {
        let took = Duration::try_from_secs_f64(run.numbers.secs).unwrap_or_default();
        let ended = run.ended.is_some();
        table.push([
            run.number.to_string(),
            human::time(run.started),
            (if ended {
                human::duration(took)
            } else {
                String::new()
            }),
            run.outcome.told().to_owned(),
            human::count(run.numbers.published),
            human::count(run.numbers.failed),
            human::bytes(run.numbers.sent_bytes),
            run.error.clone().unwrap_or_default(),
        ]);
    }
    table
}
