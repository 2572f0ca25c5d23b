//! The use of space: by namespace and over time, what a collector would free, and why the rest stays.

use gc::CollectReport;
use gc::nameless::NamelessRow;
use gc::plan::{PackFate, Wait};
use maud::{Markup, html};

use crate::serve::page::View;
use crate::serve::page::frame::{Outcome, Sheet};
use crate::serve::page::plot::{Series, plot};
use crate::serve::page::survey::Survey;
use crate::serve::page::versions::why;
use crate::serve::page::words::{Name, bar, count, size, time};

/// Number of namespaces with an area of their own.
const AREAS_MAX: usize = 6;
/// Maximum number of dropped versions to list.
const DROPS_MAX: usize = 200;

/// A row of a table of bytes.
struct Row {
    what: &'static str,
    bytes: u64,
    wait: Option<Wait>,
}

impl View<'_> {
    pub(super) fn space(&self) -> Outcome<Sheet> {
        let known = self.known();
        let body = html! {
            h1 { "Space" }
            @match &known.survey {
                Some(survey) => (self.found(survey)),
                None => p.lead { "What takes the space is found out by reading what all versions need." },
            }
            (self.told(&known))
        };
        let way = vec![(self.links().overview(), Name::of_text("Store"))];
        let mut sheet = Sheet::new("Space", way, body);
        sheet.is_pending = known.is_pending();
        sheet.failure = known.failure;
        Ok(sheet)
    }

    fn found(&self, survey: &Survey) -> Markup {
        html! {
            @if let Some(map) = self.map_of_namespaces(survey) { (map) }
            @if let Some(plot) = plot("growth", "Stored bytes over time, of the versions that are there now", &self.areas(survey)) { (plot) }
            @if self.seen(survey).count() > 1 {
                p.note { "What several namespaces need counts in each of them." }
            }
            @match &survey.plan {
                Some(report) => {
                    @if self.sees_all() { (of_store(report)) }
                    (self.drops(report))
                    (self.over(report))
                }
                None => p.note { "What a collector would do here is not known: this server may not list the store." },
            }
        }
    }

    /// The areas of the largest namespaces; the others together are one area.
    fn areas(&self, survey: &Survey) -> Vec<Series> {
        let mut grown: Vec<_> = self.seen(survey).collect();
        grown.sort_by_key(|one| std::cmp::Reverse(one.usage.stored_bytes));
        let steps = |one: &store::inspect::Grown| {
            let steps = one.steps.iter().map(|step| (step.time, step.stored_bytes));
            steps.collect::<Vec<_>>()
        };
        let (own, others) = grown.split_at_checked(AREAS_MAX).unwrap_or((&grown, &[]));
        let mut areas: Vec<Series> = own
            .iter()
            .map(|one| Series {
                name: Name::from(&one.usage.line.name),
                steps: steps(one),
                is_ghost: false,
            })
            .collect();
        if !others.is_empty() {
            areas.push(Series {
                name: Name::of_text("all others"),
                steps: added(others.iter().map(|one| steps(one))),
                is_ghost: false,
            });
        }
        areas
    }

    fn drops(&self, report: &CollectReport) -> Markup {
        let drops = report
            .plan
            .drop
            .iter()
            .filter(|drop| self.shows(&drop.name));
        let drops: Vec<_> = drops.collect();
        html! {
            @if !drops.is_empty() {
                h2 { "Versions that would go" }
                table {
                    thead { tr {
                        th scope="col" { "Version" }
                        th scope="col" { "Why" }
                        th.x scope="col" { "Last used" }
                    } }
                    tbody { @for drop in drops.iter().take(DROPS_MAX) { tr {
                        th scope="row" { a href=(self.links().entry(&drop.name, drop.version, b"")) { (Name::from(&drop.name)) "@" (drop.version) } }
                        td { (why(drop.why)) }
                        td.x { @if let Some(day) = drop.last_use { (day.to_string()) } }
                    } } }
                }
                @if drops.len() > DROPS_MAX { p.note { "And " (count((drops.len() - DROPS_MAX) as u64)) " more: " code { "store gc --dry-run" } " names all." } }
            }
        }
    }

    fn over(&self, report: &CollectReport) -> Markup {
        let seen = |over: &&gc::report::Over| match &over.namespace {
            None => self.sees_all(),
            Some(name) => name.parse().is_ok_and(|name| self.sees(&name)),
        };
        let over: Vec<_> = report.over.iter().filter(seen).collect();
        html! {
            @if !over.is_empty() {
                h2 { "Over their limits" }
                p { "The rest is pinned, the newest of its ref, or needed by others." }
                table {
                    thead { tr { th scope="col" { "What" } th.n scope="col" { "Takes" } th.n scope="col" { "Limit" } } }
                    tbody { @for one in over { tr {
                        th scope="row" { @match &one.namespace { Some(name) => (Name::of(name.as_bytes())), None => "the store" } }
                        td.n { (size(one.bytes)) }
                        td.n { (size(one.bytes_max)) }
                    } } }
                }
            }
        }
    }
}

/// The sum of several step functions.
fn added(all: impl Iterator<Item = Vec<(jiff::Timestamp, u64)>>) -> Vec<(jiff::Timestamp, u64)> {
    let mut changes = Vec::new();
    for steps in all {
        let mut before = 0;
        for (time, value) in steps {
            changes.push((time, value.saturating_sub(before)));
            before = value;
        }
    }
    changes.sort_unstable();
    let mut sum = 0u64;
    let steps = changes.into_iter().map(|(time, more)| {
        sum = sum.saturating_add(more);
        (time, sum)
    });
    steps.collect()
}

/// What a collector would free, and what would stay.
fn of_store(report: &CollectReport) -> Markup {
    html! {
        section.two {
            div {
                h2 { "What " code { "gc" } " would take" }
                (table(&takes(report), "Nothing now."))
            }
            div {
                h2 { "What holds the rest" }
                (table(&holds(report), "Nothing is held."))
            }
        }
    }
}

fn takes(report: &CollectReport) -> Vec<Row> {
    let plan = &report.plan;
    let packs = |fates: &[PackFate]| {
        let packs = plan.condemn.iter().chain(&plan.repack);
        let packs = packs.filter(|pack| fates.contains(&pack.why));
        packs.map(|pack| pack.unused_bytes).sum()
    };
    let row = |what, bytes| Row {
        what,
        bytes,
        wait: None,
    };
    let mut rows = vec![row(
        "condemned before, and their grace is over: deleted at once",
        plan.delete.iter().map(|doomed| doomed.bytes).sum(),
    )];
    rows.extend(
        (plan.nameless.rows().iter()).filter_map(|nameless| match nameless {
            NamelessRow::Each { what, .. } => Some(row(*what, nameless.bytes())),
            NamelessRow::Number { .. } => None,
        }),
    );
    rows.extend([
        row(
            "packs in which nothing lives: condemned, and deleted after the grace",
            packs(&[PackFate::Dead]),
        ),
        row("packs that nobody committed", packs(&[PackFate::Orphan])),
        row(
            "unused parts of packs, whose rest is copied first",
            packs(&[PackFate::Sparse, PackFate::Small]),
        ),
    ]);
    rows
}

fn holds(report: &CollectReport) -> Vec<Row> {
    let (live, held) = (&report.live, &report.held);
    let row = |what, bytes, wait| Row { what, bytes, wait };
    vec![
        row("the newest version of each ref", live.newest_bytes, None),
        row(
            "older versions that are kept by rule",
            live.by_retention_bytes,
            None,
        ),
        row(
            "versions that only their pin keeps",
            live.by_pins_bytes,
            None,
        ),
        row(
            "condemned, within the grace for readers",
            held.by_grace.bytes,
            Some(held.by_grace),
        ),
        row(
            "of puts and transfers that have not ended",
            held.by_age.bytes,
            Some(held.by_age),
        ),
        row("unused parts of packs that stay", held.unused_bytes, None),
    ]
}

fn table(rows: &[Row], nothing: &str) -> Markup {
    let most = rows.iter().map(|row| row.bytes).max().unwrap_or(0);
    html! {
        @if most == 0 { p { (nothing) } } @else {
            table {
                thead { tr { th scope="col" { "What" } th.n scope="col" { "Bytes" } th.b.x scope="col" { span.hide { "Bytes, as a bar" } } } }
                tbody { @for row in rows.iter().filter(|row| row.bytes > 0) { tr {
                    th scope="row" { (row.what) @if let Some(until) = row.wait.and_then(|wait| wait.until) { span.soft { ", until " (time(until)) } } }
                    td.n { (size(row.bytes)) }
                    td.b.x { (bar(row.bytes, most)) }
                } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stairs_are_added_step_by_step() {
        let time = |secs| jiff::Timestamp::from_second(secs).unwrap();
        let one = vec![(time(1), 5), (time(3), 7)];
        let other = vec![(time(2), 10)];
        assert_eq!(
            added([one, other].into_iter()),
            [(time(1), 5), (time(2), 15), (time(3), 17)]
        );
    }
}
