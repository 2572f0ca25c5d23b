//! What this host knows in addition to the store: clusters, duplication jobs and their last runs, and compile caches.
//!
//! A caller sees the jobs and caches whose refs it may all read, and the names of their clusters. Only a caller who may
//! read everything sees the rest, and the places of stores.

use std::time::Duration;

use maud::{Markup, html};
use store::{RefName, Target};

use crate::journal::compiles::{self, Tally};
use crate::journal::{self, Facts, Far, JobDir, Outcome as Ended, Run, Status};
use crate::serve::page::View;
use crate::serve::page::frame::{Outcome, Sheet};
use crate::serve::page::words::{Name, bar, count, size, time};
use crate::ui::human;

/// Facts about the host from the start of the server.
pub(crate) struct HostFacts {
    /// The store's name, without credentials.
    pub(crate) store: String,
    /// The store's name in the journal of compile caches.
    pub(crate) store_url: String,
    pub(crate) clusters: Vec<ClusterFacts>,
    /// The configured jobs.
    pub(crate) jobs: Vec<Facts>,
}

/// A named store.
pub(crate) struct ClusterFacts {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) profile: Option<String>,
}

impl View<'_> {
    pub(super) fn host(&self) -> Outcome<Sheet> {
        let jobs: Vec<Status> = self.jobs()?;
        let clusters = self.clusters(&jobs);
        let body = html! {
            h1 { "Clusters and jobs" }
            h2 { "Clusters" }
            @if clusters.is_empty() {
                p.lead { "None has a name here. " code { "store cluster add NAME URL" } " gives one." }
            } @else {
                table {
                    @let places = self.sees_all();
                    thead { tr {
                        th scope="col" { "Name" }
                        @if places { th scope="col" { "Where" } th.x scope="col" { "Profile" } }
                    } }
                    tbody { @for one in clusters { tr {
                        th scope="row" { (Name::of_text(&one.name)) }
                        @if places {
                            td { code { (Name::of_text(&one.url)) } }
                            td.x { @if let Some(profile) = &one.profile { (Name::of_text(profile)) } }
                        }
                    } } }
                }
            }
            h2 { "Jobs" }
            @if jobs.is_empty() {
                p.lead { "No job copies between stores here. " code { "store duplicate" } " runs one." }
            } @else {
                (self.table_of_jobs(&jobs))
                @for (at, job) in jobs.iter().enumerate() { (self.runs(at, job)) }
            }
        };
        let way = vec![(self.links().overview(), Name::of_text("Store"))];
        Ok(Sheet::new("Clusters and jobs", way, body))
    }

    /// The jobs that ran on this host, and configured ones that did not.
    fn jobs(&self) -> Outcome<Vec<Status>> {
        let dirs = JobDir::all()?;
        let mut jobs: Vec<Status> = dirs.iter().filter_map(journal::status).collect();
        for facts in &self.about.host.jobs {
            if jobs.iter().all(|known| known.facts.job != facts.job) {
                jobs.push(Status {
                    facts: facts.clone(),
                    progress: Far::default(),
                    errors: Vec::new(),
                    runs: Vec::new(),
                });
            }
        }
        jobs.retain(|job| self.sees_refs(&job.facts.refs));
        Ok(jobs)
    }

    fn clusters(&self, jobs: &[Status]) -> Vec<&ClusterFacts> {
        let is_named = |name: &str| {
            let mut sides = jobs.iter().flat_map(|job| [&job.facts.from, &job.facts.to]);
            sides.any(|side| side == name)
        };
        let clusters = self.about.host.clusters.iter();
        clusters
            .filter(|one| self.sees_all() || is_named(&one.name))
            .collect()
    }

    /// The name of one side of a job. A place without a name is shown only to callers who see everything.
    fn side(&self, text: &str) -> Name {
        let is_name = |one: &ClusterFacts| one.name == text;
        match self.sees_all() || self.about.host.clusters.iter().any(is_name) {
            true => Name::of_text(text),
            false => Name::of_text("a store without a name"),
        }
    }

    /// The message of a failure. It names places, so only callers who see everything get it.
    fn failure(&self, text: &str) -> Name {
        match self.sees_all() {
            true => Name::of_text(text),
            false => Name::of_text("the host of the server knows why"),
        }
    }

    /// Whether the caller may read all of these refs.
    fn sees_refs(&self, refs: &[String]) -> bool {
        let seen = |text: &String| match Target::parse(text.as_bytes()) {
            Ok(Target::Namespace(namespace)) => self.sees(&namespace),
            Ok(Target::Ref(spec)) => self.shows(&spec.name),
            Err(_) => false,
        };
        self.sees_all() || (!refs.is_empty() && refs.iter().all(seen))
    }

    pub(super) fn caches(&self) -> Outcome<Sheet> {
        let mut tallies = compiles::tallies(&self.about.host.store_url);
        tallies.retain(|tally| self.sees_refs(&tally.refs));
        let body = html! {
            h1 { "Compile caches" }
            @if tallies.is_empty() {
                p.lead { "No command with a compile cache ran on this host lately. " code { "store run" } " runs one." }
            } @else {
                p { "What " code { "store run" } " found on this host: entries that were there when its command began, those of them that it read, where the file system tells, and those that it compiled. The hit rate is what was read of all that was read or compiled." }
                (self.table_of_caches(&tallies))
            }
        };
        let way = vec![(self.links().overview(), Name::of_text("Store"))];
        Ok(Sheet::new("Compile caches", way, body))
    }

    fn table_of_caches(&self, tallies: &[Tally]) -> Markup {
        html! {
            table {
                thead { tr {
                    th scope="col" { "Cache" }
                    th.x scope="col" { "Profile" }
                    th.n.x scope="col" { "Runs" }
                    th.n.x scope="col" { "Pulled" }
                    th.n.x scope="col" { "There" }
                    th.n scope="col" { "Read" }
                    th.n scope="col" { "Compiled" }
                    th.n scope="col" { "Hit rate" }
                    th.b.x scope="col" { span.hide { "Hit rate, as a bar" } }
                    th.x scope="col" { "Last run" }
                } }
                tbody { @for tally in tallies {
                    @let rate = tally.told.map(|(read, added)| (read, read.saturating_add(added)));
                    tr {
                        th scope="row" { @for (at, name) in tally.refs.iter().enumerate() { @if at > 0 { ", " } (self.link_to(name)) } }
                        td.x { (Name::of_text(&tally.profile)) }
                        td.n.x { (count(tally.runs)) }
                        td.n.x { (count(tally.pulled)) }
                        td.n.x { (count(tally.there)) }
                        td.n { @if let Some((read, _)) = rate { (count(read)) } }
                        td.n { (count(tally.added)) }
                        td.n { @if let Some((read, all)) = rate.filter(|(_, all)| *all > 0) { (human::percent(read, all)) } }
                        td.b.x { @if let Some((read, all)) = rate { (bar(read, all)) } }
                        td.x.w { (time(tally.last)) }
                    }
                } }
            }
        }
    }

    /// The name of a ref; a link if the ref still exists.
    fn link_to(&self, text: &str) -> Markup {
        let name: Option<RefName> = text.parse().ok();
        let is_there = |name: &RefName| {
            let head = self.sight.view().state.refs.head(name);
            matches!(head, Ok(Some(head)) if head.live > 0)
        };
        html! {
            @match name.filter(is_there) {
                Some(name) => a href=(self.links().name(&name)) { (Name::from(&name)) },
                None => (Name::of_text(text)),
            }
        }
    }

    fn table_of_jobs(&self, jobs: &[Status]) -> Markup {
        html! {
            table {
                thead { tr {
                    th scope="col" { "Job" }
                    th scope="col" { "Last run" }
                    th scope="col" { "Ended" }
                    th.n.x scope="col" { "Sent" }
                    th.x scope="col" { "From" }
                    th.x scope="col" { "To" }
                    th.x scope="col" { "Refs" }
                } }
                tbody { @for (at, job) in jobs.iter().enumerate() {
                    @let last = job.runs.first();
                    tr {
                        th scope="row" { @if last.is_some() { a href=(format!("#job-{at}")) { (Name::of_text(&job.facts.job)) } } @else { (Name::of_text(&job.facts.job)) } }
                        td.w { @match last { Some(run) => (time(run.started)), None => "never" } }
                        td { @if let Some(run) = last { (outcome(run)) } }
                        td.n.x { @if let Some(run) = last { (size(run.numbers.sent_bytes)) } }
                        td.x { (self.side(&job.facts.from)) }
                        td.x { (self.side(&job.facts.to)) }
                        td.x { (Name::of_text(&job.facts.refs.join(" "))) }
                    }
                } }
            }
        }
    }

    /// The runs of a job.
    fn runs(&self, at: usize, job: &Status) -> Markup {
        html! {
            @if !job.runs.is_empty() {
                h3 id=(format!("job-{at}")) { (Name::of_text(&job.facts.job)) }
                p.soft { (Name::of_text(&job.facts.refs.join(" "))) " from " (self.side(&job.facts.from)) " to " (self.side(&job.facts.to)) }
                @if let Some(run) = job.runs.first().filter(|run| run.outcome == Ended::Running) {
                    p { "Process " (run.pid) " runs it: " (size(job.progress.bytes)) @if job.progress.total_bytes > 0 { " of " (size(job.progress.total_bytes)) } "." }
                }
                table {
                    thead { tr {
                        th scope="col" { "Run" }
                        th scope="col" { "Started" }
                        th.n.x scope="col" { "Took" }
                        th scope="col" { "Ended" }
                        th.n.x scope="col" { "Published" }
                        th.n.x scope="col" { "Failed" }
                        th.n scope="col" { "Sent" }
                    } }
                    tbody { @for run in &job.runs { tr {
                        th scope="row" { (run.number) }
                        td.w { (time(run.started)) }
                        td.n.x { @if run.ended.is_some() { (human::duration(Duration::try_from_secs_f64(run.numbers.secs).unwrap_or_default())) } }
                        td { (outcome(run)) @if let Some(error) = &run.error { span.soft { ": " (self.failure(error)) } } }
                        td.n.x { (count(run.numbers.published)) }
                        td.n.x { (count(run.numbers.failed)) }
                        td.n { (size(run.numbers.sent_bytes)) }
                    } } }
                }
                @if !job.errors.is_empty() {
                    ul { @for failed in &job.errors { li { (Name::of_text(&failed.name)) ": " (self.failure(&failed.error)) } } }
                }
            }
        }
    }
}

fn outcome(run: &Run) -> Markup {
    let is_well = matches!(run.outcome, Ended::Done | Ended::Running);
    html! { span.warn[!is_well] { (run.outcome.told()) } }
}
