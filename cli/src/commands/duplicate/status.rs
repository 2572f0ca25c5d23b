//! `store duplicate --status`: shows the status of jobs, also while they run.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use store::{Error, Result};

use crate::config::clusters;
use crate::context::Context;
use crate::journal::{self, Facts, Far, JobDir, Outcome, Run, Status};
use crate::ui::human;
use crate::ui::table::{Side, Table};

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
    let told = dir.and_then(journal::status).map(Told);
    let told = told.or_else(|| configured(context).find(|Told(status)| status.facts.job == job));
    let told = told.ok_or_else(|| {
        Error::not_found(format!(
            "{job}: nothing is known of such a job on this host"
        ))
        .hint("see which jobs there are with `store duplicate --status`")
    })?;
    context.out.answer(&told)
}

/// The configured jobs, with a status as if they had never run.
fn configured(context: &Context) -> impl Iterator<Item = Told> {
    context.config().job.iter().map(|(name, job)| {
        Told(Status {
            facts: Facts {
                job: name.to_string(),
                from: clusters::masked(&job.from),
                to: clusters::masked(&job.to),
                refs: job.refs.clone(),
                stores: None,
            },
            progress: Far::default(),
            errors: Vec::new(),
            runs: Vec::new(),
        })
    })
}

fn all(context: &Context) -> Result<()> {
    let jobs = JobDir::all()?;
    let mut known: Vec<Told> = jobs.iter().filter_map(journal::status).map(Told).collect();
    let is_new = |Told(status): &Told| {
        let same = |Told(other): &Told| other.facts.job == status.facts.job;
        !known.iter().any(same)
    };
    let never_ran: Vec<Told> = configured(context).filter(is_new).collect();
    known.extend(never_ran);
    let columns = [
        ("job", Side::Left),
        ("last run (UTC)", Side::Left),
        ("", Side::Left),
        ("sent", Side::Right),
        ("from", Side::Left),
        ("to", Side::Left),
        ("refs", Side::Left),
    ];
    context
        .out
        .list(&columns, known.into_iter(), |Told(status)| {
            let last = status.runs.first();
            [
                status.facts.job.clone(),
                last.map_or_else(|| "never".to_owned(), |run| human::time(run.started)),
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
        match runs.is_empty() {
            true => write!(out, "never run on this host")?,
            false => write!(out, "{}", table(runs))?,
        }
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
