//! The page of a namespace: its refs, and what they take.

use maud::{Markup, html};
use store::inspect::{Grown, Step};
use store::{Namespace, RefName, Version};

use crate::serve::page::View;
use crate::serve::page::frame::{Outcome, Sheet};
use crate::serve::page::map::{Tile, map};
use crate::serve::page::plot::{Series, plot};
use crate::serve::page::route::Href;
use crate::serve::page::words::{Name, count, size, time};

/// Refs per page.
const REFS_MAX: usize = 100;
/// The saved bytes are drawn if all versions together are at most this many times as large as the stored bytes.
const SAVED_FACTOR_MAX: u64 = 12;

/// A ref with a version.
struct Line {
    name: RefName,
    live: u64,
    newest: u64,
    bytes: u64,
    version: Option<Version>,
}

impl View<'_> {
    pub(super) fn namespace(&self, namespace: &Namespace) -> Outcome<Sheet> {
        self.check(namespace)?;
        let known = self.known();
        let grown = known
            .survey
            .as_deref()
            .and_then(|survey| survey.of(namespace));
        let begin = self.look.query.text("begin");
        let (lines, next) = self.refs_of(namespace, begin)?;
        let body = html! {
            h1 { (Name::from(namespace)) }
            (self.facts_of_namespace(namespace, grown))
            h2 { "Refs" }
            form.find method="get" action=(self.links().namespace(namespace)) {
                label for="begin" { "Names that begin with" }
                input #begin name="begin" type="text" value=(begin) autocapitalize="none" spellcheck="false";
                button type="submit" { "Show" }
            }
            @if lines.is_empty() { p.lead { "None." } } @else { (self.table_of_refs(namespace, &lines)) }
            (self.leaf_refs(namespace, begin, next.as_ref()))
            @if let Some(grown) = grown { (self.drawn(grown)) }
            (self.told(&known))
        };
        let mut sheet = Sheet::new(namespace.to_string(), self.way_to(namespace, false), body);
        sheet.is_pending = known.is_pending();
        sheet.failure = known.failure;
        Ok(sheet)
    }

    /// The refs of a namespace, with the bytes that they were the first to bring.
    pub(super) fn parts_of(&self, grown: &Grown) -> Vec<Tile> {
        let parts = grown.parts.iter().filter(|part| self.shows(&part.name));
        let tiles = parts.map(|part| Tile {
            name: Name::of(below(&grown.usage.line.name, &part.name).as_bytes()),
            bytes: part.stored_bytes,
            href: Some(self.links().name(&part.name)),
            parts: Vec::new(),
        });
        tiles.collect()
    }

    /// The links above a page of a namespace; with the namespace itself for pages below it.
    pub(super) fn way_to(&self, namespace: &Namespace, is_below: bool) -> Vec<(Href, Name)> {
        let mut way = vec![(self.links().overview(), Name::of_text("Store"))];
        if is_below {
            way.push((self.links().namespace(namespace), Name::from(namespace)));
        }
        way
    }

    /// The refs of this page, and the first of the next one.
    fn refs_of(&self, namespace: &Namespace, begin: &str) -> Outcome<(Vec<Line>, Option<RefName>)> {
        let state = &self.sight.view().state;
        let prefix = format!("{namespace}/{begin}");
        let from = match self.look.query.text("from") {
            "" => String::new(),
            from => format!("{namespace}/{from}"),
        };
        let mut lines = Vec::new();
        for found in state.refs.heads_from(&prefix, &from) {
            let (name, head) = found?;
            if head.live == 0 || !self.shows(&name) {
                continue;
            }
            if lines.len() == REFS_MAX {
                return Ok((lines, Some(name)));
            }
            lines.push(Line {
                version: state.refs.version(&name, head.newest)?,
                name,
                live: head.live,
                newest: head.newest,
                bytes: head.bytes,
            });
        }
        Ok((lines, None))
    }

    fn facts_of_namespace(&self, namespace: &Namespace, grown: Option<&Grown>) -> Markup {
        let view = self.sight.view();
        let sums = view.state.refs.sums().get(namespace).copied();
        let sums = sums.unwrap_or_default();
        html! {
            dl.facts {
                div { dt { "Refs" } dd { (count(sums.refs)) } }
                div { dt { "Versions" } dd { (count(sums.versions)) } }
                div { dt { "Newest versions" } dd { (size(sums.bytes)) } }
                div { dt { "All versions" } dd { (size(sums.version_bytes)) } }
                @if let Some(usage) = grown.map(|grown| &grown.usage) {
                    div { dt { "Stored" } dd { (size(usage.stored_bytes)) @if let Some(quota) = usage.quota_bytes { small { "of " (size(quota)) } } } }
                    @if self.sees_all() {
                        div { dt { "Unique" } dd { (size(usage.unique.stored_bytes)) } }
                        div { dt { "Shared" } dd { (size(usage.shared.stored_bytes)) } }
                    }
                }
            }
        }
    }

    fn table_of_refs(&self, namespace: &Namespace, lines: &[Line]) -> Markup {
        let own = |name: &RefName| Name::of(below(namespace, name).as_bytes());
        html! {
            table {
                thead { tr {
                    th scope="col" { "Ref" }
                    th.n scope="col" { "Newest" }
                    th.n.x scope="col" { "Versions" }
                    th.n scope="col" { "Size" }
                    th.x scope="col" { "Put" }
                    th.x scope="col" { "By" }
                    th.x scope="col" { "Message" }
                } }
                tbody { @for line in lines { tr {
                    th scope="row" { a href=(self.links().name(&line.name)) { (own(&line.name)) } }
                    td.n { a href=(self.links().entry(&line.name, line.newest, b"")) { "@" (line.newest) } }
                    td.n.x { (count(line.live)) }
                    td.n { (size(line.bytes)) }
                    @if let Some(version) = &line.version {
                        td.x.w { (time(version.time)) }
                        td.x { (who(version)) }
                        td.x { (Name::of_text(&version.message)) }
                    } @else { td.x {} td.x {} td.x {} }
                } } }
            }
        }
    }

    fn leaf_refs(&self, namespace: &Namespace, begin: &str, next: Option<&RefName>) -> Markup {
        let is_later = !self.look.query.text("from").is_empty();
        html! {
            @if is_later || next.is_some() {
                nav.leaf aria-label="More refs" {
                    @if is_later { a href=(self.links().refs(namespace, begin, "")) { "First" } }
                    @if let Some(next) = next {
                        a href=(self.links().refs(namespace, begin, below(namespace, next))) { "Next" }
                    }
                }
            }
        }
    }

    fn drawn(&self, grown: &Grown) -> Markup {
        let tiles = self.parts_of(grown);
        let told: u64 = tiles.iter().map(|tile| tile.bytes).sum();
        let others = grown.usage.stored_bytes.saturating_sub(told);
        let title = "Stored bytes by the ref that brought them first";
        html! {
            @if let Some(map) = map("refs", title, tiles, others) { (map) }
            @if let Some(plot) = plot("growth", "Growth of what is there now", &areas(grown)) { (plot) }
        }
    }
}

/// The areas of the plot: the stored bytes, and above them the bytes saved.
fn areas(grown: &Grown) -> Vec<Series> {
    let series = |name: &str, is_ghost: bool, of: fn(&Step) -> u64| Series {
        name: Name::of_text(name),
        is_ghost,
        steps: grown
            .steps
            .iter()
            .map(|step| (step.time, of(step)))
            .collect(),
    };
    let usage = &grown.usage;
    let mut areas = vec![series("stored", false, |step| step.stored_bytes)];
    // Beside much larger savings, the stored bytes would not be visible.
    if usage.version_bytes / SAVED_FACTOR_MAX <= usage.stored_bytes {
        let saved = |step: &Step| step.version_bytes.saturating_sub(step.stored_bytes);
        areas.push(series(
            "saved, beside storing each version whole",
            true,
            saved,
        ));
    }
    areas
}

/// The name of a ref without its namespace.
pub(super) fn below<'n>(namespace: &Namespace, name: &'n RefName) -> &'n str {
    let rest = name.as_str().strip_prefix(namespace.as_str());
    let rest = rest.and_then(|rest| rest.strip_prefix('/'));
    rest.unwrap_or_else(|| name.as_str())
}

pub(super) fn who(version: &Version) -> Name {
    Name::of_text(&format!("{}@{}", version.who.user, version.who.host))
}
