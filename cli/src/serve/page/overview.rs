//! The first page: totals, and the namespaces.

use std::cmp::Reverse;

use maud::{Markup, html};
use store::inspect::{Grown, NamespaceLine};

use crate::serve::page::View;
use crate::serve::page::frame::{Outcome, Sheet};
use crate::serve::page::map::{Tile, map};
use crate::serve::page::survey::{Known, Survey};
use crate::serve::page::words::{Name, bar, count, size, time};
use crate::ui::human;

/// Namespaces per page.
const LINES_MAX: usize = 200;

impl View<'_> {
    pub(super) fn overview(&self) -> Outcome<Sheet> {
        let known = self.known();
        let mut lines = self.namespaces();
        let survey = known.survey.as_deref();
        let grown = |line: &NamespaceLine| survey.and_then(|survey| survey.of(&line.name));
        lines.sort_by_key(|line| {
            let stored = grown(line).map(|grown| grown.usage.stored_bytes);
            Reverse((stored, line.kept.bytes))
        });
        let from = self.look.query.number("from").unwrap_or_default();
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let shown: Vec<&NamespaceLine> = lines.iter().skip(from).take(LINES_MAX).collect();
        let drawn = survey.and_then(|survey| self.map_of_namespaces(survey));
        let body = html! {
            // Only callers who see everything learn where the store is.
            h1 { @if self.sees_all() { (Name::of_text(&self.about.host.store)) } @else { "Store" } }
            (self.facts_of(&lines, survey))
            @if lines.is_empty() {
                p.lead { "Nothing was put here yet. " code { "store put DIR project/NAME/data" } " makes the first version." }
            } @else {
                h2 { "Namespaces" }
                (self.table_of(&shown, survey))
                (self.leaf(from, shown.len(), lines.len()))
                @if let Some(drawn) = drawn { (drawn) }
                (self.told(&known))
            }
        };
        let mut sheet = Sheet::new("Overview", Vec::new(), body);
        sheet.is_pending = known.is_pending() && !lines.is_empty();
        sheet.failure = known.failure;
        Ok(sheet)
    }

    /// The namespaces that the caller may see.
    pub(super) fn namespaces(&self) -> Vec<NamespaceLine> {
        let lines = self.sight.view().state.namespaces();
        let seen = lines.into_iter().filter(|line| self.sees(&line.name));
        seen.collect()
    }

    fn facts_of(&self, lines: &[NamespaceLine], survey: Option<&Survey>) -> Markup {
        let view = self.sight.view();
        let sum = |of: fn(&NamespaceLine) -> u64| lines.iter().map(of).sum::<u64>();
        let sums = view.state.refs.sums();
        let logical = lines.iter().filter_map(|line| sums.get(&line.name));
        let logical = logical.fold(0u64, |sum, one| sum.saturating_add(one.version_bytes));
        let stored = match self.sees_all() {
            true => {
                let segments = view.state.segments.values();
                Some(segments.map(|one| one.pack_bytes + one.bytes).sum::<u64>())
            }
            // The caller must not learn what other namespaces share with these.
            false => survey.map(|survey| self.seen(survey).map(|one| one.usage.stored_bytes).sum()),
        };
        html! {
            dl.facts {
                div { dt { "Namespaces" } dd { (count(lines.len() as u64)) } }
                div { dt { "Refs" } dd { (count(sum(|line| line.refs))) } }
                div { dt { "Versions" } dd { (count(sum(|line| line.kept.versions))) } }
                div { dt { "Newest versions" } dd { (size(sum(|line| line.kept.bytes))) } }
                div { dt { "All versions" } dd { (size(logical)) } }
                @if let Some(stored) = stored {
                    div { dt { "Stored" } dd { (size(stored)) @if logical > 0 { small { (human::percent(stored, logical)) " of all versions" } } } }
                }
                @if self.sees_all() {
                    div { dt { "Log entry" } dd { (count(view.state.number)) } }
                }
            }
        }
    }

    fn table_of(&self, lines: &[&NamespaceLine], survey: Option<&Survey>) -> Markup {
        let most = lines.iter().filter_map(|line| survey?.of(&line.name));
        let most = most.map(|one| one.usage.stored_bytes).max().unwrap_or(0);
        let splits = self.sees_all();
        html! {
            table {
                thead { tr {
                    th scope="col" { "Namespace" }
                    th.n scope="col" { "Refs" }
                    th.n.x scope="col" { "Versions" }
                    th.n.x scope="col" { "Newest" }
                    th.n scope="col" { "Stored" }
                    @if splits {
                        th.n.x scope="col" { "Unique" }
                        th.n.x scope="col" { "Shared" }
                    }
                    th.n.x scope="col" { "Quota" }
                    th.b.x scope="col" { span.hide { "Stored, as a bar" } }
                } }
                tbody { @for line in lines {
                    @let usage = survey.and_then(|survey| survey.of(&line.name)).map(|one| &one.usage);
                    tr {
                        th scope="row" { a href=(self.links().namespace(&line.name)) { (Name::from(&line.name)) } }
                        td.n { (count(line.refs)) }
                        td.n.x { (count(line.kept.versions)) }
                        td.n.x { (size(line.kept.bytes)) }
                        @let is_over = usage.and_then(|usage| Some(usage.stored_bytes > usage.quota_bytes?)) == Some(true);
                        td.n { @if let Some(usage) = usage { span.warn[is_over] { (size(usage.stored_bytes)) } } @else { "\u{2026}" } }
                        @if splits {
                            td.n.x { @if let Some(usage) = usage { (size(usage.unique.stored_bytes)) } }
                            td.n.x { @if let Some(usage) = usage { (size(usage.shared.stored_bytes)) } }
                        }
                        td.n.x { @if let Some(quota) = usage.and_then(|usage| usage.quota_bytes) { (size(quota)) } }
                        td.b.x { @if let Some(usage) = usage { (bar(usage.stored_bytes, most)) } }
                    }
                } }
            }
            @if splits { p.note { "Unique is what no other namespace needs: it comes back when the namespace is dropped. Shared is needed by others as well." } }
        }
    }

    fn leaf(&self, from: usize, shown: usize, all: usize) -> Markup {
        let next = from.saturating_add(shown);
        html! {
            @if from > 0 || next < all {
                nav.leaf aria-label="More namespaces" {
                    @if from > 0 { a href=(self.links().overview()) { "First" } }
                    span { (count(from as u64 + 1)) " to " (count(next as u64)) " of " (count(all as u64)) }
                    @if next < all { a href=(self.links().overview_from(next)) { "Next" } }
                }
            }
        }
    }

    /// The namespaces of a survey that the caller may see.
    pub(super) fn seen<'s>(&self, survey: &'s Survey) -> impl Iterator<Item = &'s Grown> {
        let seen = survey
            .grown
            .iter()
            .filter(|one| self.sees(&one.usage.line.name));
        seen.collect::<Vec<_>>().into_iter()
    }

    /// The age of the survey. The number of entries is hidden from callers who see only a part.
    pub(super) fn told(&self, known: &Known) -> Markup {
        html! {
            p.note {
                @match (&known.survey, &known.failure) {
                    (Some(survey), failure) => {
                        "What takes the space is as of " (time(survey.time))
                        @if self.sees_all() { ", log entry " (count(survey.number)) }
                        "."
                        @if known.is_running { " It is being computed again." }
                        @if failure.is_some() { " The last attempt to compute it again failed; the log of the server says why." }
                    }
                    (None, Some(_)) => { "What takes the space could not be found out; the log of the server says why." }
                    (None, None) => { "What takes the space is being found out: this page shows it when it is known." }
                }
            }
        }
    }

    pub(super) fn map_of_namespaces(&self, survey: &Survey) -> Option<Markup> {
        let tiles = self.seen(survey).map(|one| Tile {
            name: Name::from(&one.usage.line.name),
            bytes: one.usage.stored_bytes,
            href: Some(self.links().namespace(&one.usage.line.name)),
            parts: self.parts_of(one),
        });
        let title = "Stored bytes by namespace, and by the ref that brought them first";
        map("namespaces", title, tiles.collect(), 0)
    }
}

impl Survey {
    /// The survey of a namespace.
    pub(super) fn of(&self, name: &store::Namespace) -> Option<&Grown> {
        let at = self
            .grown
            .binary_search_by(|one| one.usage.line.name.cmp(name));
        at.ok().and_then(|at| self.grown.get(at))
    }
}

impl Known {
    pub(super) fn is_pending(&self) -> bool {
        self.is_running && self.survey.is_none()
    }
}
