//! The page of a ref: its versions, newest first, and why each one is kept.

use gc::policy::Why;
use jiff::Timestamp;
use maud::{Markup, html};
use store::{RefName, Version};

use crate::serve::XET_NOTE;
use crate::serve::page::View;
use crate::serve::page::frame::{Fault, Outcome, Sheet};
use crate::serve::page::namespace::{below, who};
use crate::serve::page::words::{Name, count, size, time};

/// Versions per page.
const VERSIONS_MAX: usize = 100;

impl View<'_> {
    pub(super) fn versions(&self, name: &RefName) -> Outcome<Sheet> {
        let namespace = name.namespace();
        self.check(&namespace)?;
        let view = self.sight.view();
        let refs = &view.state.refs;
        let head = refs.head(name)?.filter(|head| head.live > 0);
        let head = head.ok_or(Fault::Nowhere)?;
        let first = self.look.query.number("below");
        let mut before = first.unwrap_or(u64::MAX);
        let mut lines = Vec::new();
        while lines.len() < VERSIONS_MAX
            && let Some((number, version)) = refs.newest_before(name, before)?
        {
            lines.push((number, version));
            before = number;
        }
        let is_more = refs.newest_before(name, before)?.is_some();
        let body = html! {
            h1 { (Name::of(below(&namespace, name).as_bytes())) }
            dl.facts {
                div { dt { "Versions" } dd { (count(head.live)) } }
                div { dt { "Newest" } dd { "@" (head.newest) } }
                div { dt { "Size" } dd { (size(head.bytes)) } }
            }
            p.do { a.button href=(self.links().entry(name, head.newest, b"")) { "Files of the newest version" } code { "store get " (Name::from(name)) " DEST" } }
            p.lead { "Clients of a Hugging Face Hub find it at the endpoint of " (Name::from(&namespace)) ". " (XET_NOTE) "." }
            h2 { "Versions" }
            (self.table_of_versions(name, head.newest, &lines))
            @if first.is_some() || is_more {
                nav.leaf aria-label="More versions" {
                    @if first.is_some() { a href=(self.links().name(name)) { "Newest" } }
                    @if is_more { a href=(self.links().versions_below(name, before)) { "Older" } }
                }
            }
        };
        let way = self.way_to(&namespace, true);
        Ok(Sheet::new(name.to_string(), way, body))
    }

    fn table_of_versions(&self, name: &RefName, newest: u64, lines: &[(u64, Version)]) -> Markup {
        let known = self.known();
        let plan = known
            .survey
            .as_deref()
            .and_then(|survey| survey.plan.as_ref());
        let goes = |number: u64| {
            let mut drops = plan?.plan.drop.iter();
            drops.find(|drop| drop.name == *name && drop.version == number)
        };
        html! {
            table {
                thead { tr {
                    th scope="col" { "Version" }
                    th.x scope="col" { "Id" }
                    th scope="col" { "Put" }
                    th.n scope="col" { "Size" }
                    th.n.x scope="col" { "Entries" }
                    th.x scope="col" { "By" }
                    th.x scope="col" { "Stays" }
                    th.x scope="col" { "Message" }
                } }
                tbody { @for (number, version) in lines { tr {
                    th scope="row" { a href=(self.links().entry(name, *number, b"")) { "@" (number) } }
                    td.x { code { (version.id().short().to_string()) } }
                    td.w { (time(version.time)) }
                    td.n { (size(version.root.bytes())) }
                    td.n.x { (count(version.root.entries())) }
                    td.x { (who(version)) }
                    td.x { @match goes(*number) {
                        Some(drop) => span.warn { "goes: " (why(drop.why)) },
                        None => (stays(version, *number == newest)),
                    } }
                    td.x { (Name::of_text(&version.message)) }
                } } }
            }
        }
    }
}

/// Why a version is kept.
pub(super) fn stays(version: &Version, is_newest: bool) -> Markup {
    html! {
        @match (version.pinned, is_newest) {
            (true, _) => "pinned",
            (false, true) => "the newest",
            (false, false) => "kept",
        }
        @if let Some(expires) = version.expires.filter(|_| !version.pinned) {
            @if expires > Timestamp::now() { ", until " (time(expires)) }
        }
        @if version.private { ", private" }
    }
}

/// Why a collector drops a version.
pub(super) fn why(why: Why) -> &'static str {
    match why {
        Why::Expired => "its time to live is over",
        Why::Retention => "no rule keeps it",
        Why::Quota => "its namespace is over its quota",
        Why::MaxSize => "the store is over its limit of size",
    }
}
