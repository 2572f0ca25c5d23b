//! The page of a version or a path in it: directories, files and links; and downloads of files.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_TYPE,
};
use maud::{Markup, html};
use store::{Content, Node, RefName, RefSpec, TimesReader, Version};

use crate::serve::answer::Answer;
use crate::serve::body::{Content as Sent, FileBody};
use crate::serve::page::frame::{Fault, Outcome, Sheet, guarded};
use crate::serve::page::map::{Tile, map};
use crate::serve::page::namespace::{below, who};
use crate::serve::page::route::Href;
use crate::serve::page::versions::stays;
use crate::serve::page::words::{Name, count, size, time};
use crate::serve::page::{Look, Shown, View};
use crate::serve::range::{Wanted, content_range, outside};
use crate::serve::source::{self, Sight, Source};
use crate::serve::text;
use crate::ui::entry::timestamp;
use crate::ui::human;

/// Entries per page.
const ENTRIES_MAX: usize = 500;
/// Maximum number of entries of a version whose times are shown: the list of times is read from its beginning.
const TIMED_MAX: u64 = 200_000;
/// How much of a text is shown.
const TEXT_BYTES_MAX: u64 = 16 << 10;

/// A download of a file.
pub(super) struct Bytes {
    sight: Sight,
    content: Content,
    name: Vec<u8>,
}

/// A path in a version.
struct Inside<'i> {
    name: &'i RefName,
    number: u64,
    path: &'i [u8],
    version: &'i Version,
    is_newest: bool,
    /// The number of entries of the version before this path.
    before: u64,
}

/// An entry of a directory.
struct Line {
    name: Vec<u8>,
    node: Node,
    time: Option<jiff::Timestamp>,
}

impl View<'_> {
    pub(super) fn entry(&self, spec: &RefSpec) -> Outcome<Shown> {
        self.check(&spec.name.namespace())?;
        let found = self
            .sight
            .resolve(spec)
            .map_err(|error| match error.kind() {
                // The prefix of several ids names no version.
                store::ErrorKind::InvalidInput => Fault::Nowhere,
                _ => error.into(),
            })?;
        let newest = self.sight.view().state.refs.head(&spec.name)?;
        let inside = Inside {
            is_newest: newest.is_some_and(|head| head.newest == found.number),
            name: &spec.name,
            number: found.number,
            path: &spec.path,
            version: &found.version,
            before: found.entries_before,
        };
        match &found.node {
            Node::File { content, .. } if self.look.query.has("download") => {
                Ok(Shown::Bytes(Bytes {
                    sight: Arc::clone(&self.sight),
                    content: *content,
                    name: inside.last().to_vec(),
                }))
            }
            Node::Tree { content, .. } => self.directory(&inside, &found.node, content),
            node => self.one(&inside, node),
        }
    }

    fn directory(&self, inside: &Inside<'_>, node: &Node, content: &Content) -> Outcome<Shown> {
        let entries = self.sight.tree(content)?;
        let from = self.look.query.number("from").unwrap_or_default();
        let from = usize::try_from(from)
            .unwrap_or(usize::MAX)
            .min(entries.len());
        let tiles = entries.iter().filter_map(|entry| {
            Some(Tile {
                name: Name::of(&entry.name),
                bytes: Some(bytes(&entry.node)).filter(|bytes| *bytes > 0)?,
                parts: Vec::new(),
                href: Some(
                    self.links()
                        .entry(inside.name, inside.number, &inside.to(&entry.name)),
                ),
            })
        });
        // Very large directories are drawn only as their largest entries and a rest.
        let tiles: Vec<Tile> = match entries.len() {
            0..=20_000 => tiles.collect(),
            _ => Vec::new(),
        };
        let all = entries.len();
        let lines = self.lines(inside, entries, from)?;
        let next = from + lines.len();
        let body = html! {
            h1 { (inside.title()) }
            (facts(inside, node))
            @if all == 0 { p.lead { "Nothing is in here." } } @else { (self.table_of_entries(inside, &lines)) }
            @if from > 0 || next < all {
                nav.leaf aria-label="More entries" {
                    @if from > 0 { a href=(self.links().entry(inside.name, inside.number, inside.path)) { "First" } }
                    span { (count(from as u64 + 1)) " to " (count(next as u64)) " of " (count(all as u64)) }
                    @if next < all { a href=(self.links().entries(inside.name, inside.number, inside.path, next)) { "Next" } }
                }
            }
            @if tiles.len() > 1 {
                @if let Some(map) = map("entries", "Bytes by entry", tiles, 0) { (map) }
            }
        };
        Ok(Shown::Sheet(Sheet::new(
            inside.told(),
            self.way_in(inside),
            body,
        )))
    }

    fn one(&self, inside: &Inside<'_>, node: &Node) -> Outcome<Shown> {
        let body = html! {
            h1 { (inside.title()) }
            (facts(inside, node))
            @match node {
                Node::File { content, .. } => {
                    p.do { a.button href=(self.links().bytes(inside.name, inside.number, inside.path)) download { "Download" } }
                    (self.beginning(content)?)
                }
                Node::Symlink { target } => { p.lead { "A link to " code { (Name::of(target)) } } }
                Node::Tree { .. } => {}
            }
        };
        Ok(Shown::Sheet(Sheet::new(
            inside.told(),
            self.way_in(inside),
            body,
        )))
    }

    /// The beginning of a file, if it is a text.
    fn beginning(&self, content: &Content) -> Outcome<Markup> {
        if content.size == 0 {
            return Ok(html! { p.note { "The file is empty." } });
        }
        let wanted = content.size.min(TEXT_BYTES_MAX);
        let bytes = source::read(&self.sight, content, 0, wanted, wanted)?;
        let text = match std::str::from_utf8(&bytes) {
            Ok(text) => text,
            // The limit may cut the last character.
            Err(error) if error.error_len().is_none() && content.size > wanted => {
                let whole = bytes.get(..error.valid_up_to()).unwrap_or_default();
                std::str::from_utf8(whole).unwrap_or_default()
            }
            Err(_) => "",
        };
        let is_odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
        Ok(html! {
            @if text.is_empty() || text.contains(is_odd) {
                p.note { "It is no text." }
            } @else {
                h2 { @if content.size > wanted { "The first " (human::bytes(wanted)) } @else { "Text" } }
                pre tabindex="0" { bdi { (text) } }
            }
        })
    }

    fn lines(
        &self,
        inside: &Inside<'_>,
        entries: Vec<store::TreeEntry>,
        from: usize,
    ) -> Outcome<Vec<Line>> {
        let totals = inside.version.root.entries();
        let mut times = match totals <= TIMED_MAX {
            true => {
                let mut times = TimesReader::of(&self.sight, inside.version)?;
                times.skip(inside.before)?;
                // Skips the time of the directory itself.
                times.next()?;
                Some(times)
            }
            false => None,
        };
        let mut lines = Vec::new();
        for (at, entry) in entries.into_iter().enumerate() {
            if at >= from.saturating_add(ENTRIES_MAX) {
                break;
            }
            let mut time = None;
            if let Some(times) = &mut times {
                time = timestamp(times.next()?);
                if let Node::Tree { totals, .. } = &entry.node {
                    times.skip(totals.entries)?;
                }
            }
            if at >= from {
                lines.push(Line {
                    name: entry.name,
                    node: entry.node,
                    time,
                });
            }
        }
        Ok(lines)
    }

    fn table_of_entries(&self, inside: &Inside<'_>, lines: &[Line]) -> Markup {
        let href = |line: &Line| {
            self.links()
                .entry(inside.name, inside.number, &inside.to(&line.name))
        };
        html! {
            table {
                thead { tr {
                    th scope="col" { "Name" }
                    th.n scope="col" { "Size" }
                    th.n.x scope="col" { "Entries" }
                    th.x scope="col" { "Modified" }
                } }
                tbody { @for line in lines { tr {
                    th scope="row" { a href=(href(line)) { (Name::of(&line.name)) @if let Node::Tree { .. } = line.node { "/" } }
                        @match &line.node {
                            Node::Symlink { target } => { span.soft { " \u{2192} " (Name::of(target)) } }
                            Node::File { executable: true, .. } => { span.soft { " executable" } }
                            _ => {}
                        }
                    }
                    td.n { @if !matches!(line.node, Node::Symlink { .. }) { (size(bytes(&line.node))) } }
                    td.n.x { @if let Node::Tree { totals, .. } = &line.node { (count(totals.entries)) } }
                    td.x.w { @if let Some(at) = line.time { (time(at)) } }
                } } }
            }
        }
    }

    fn way_in(&self, inside: &Inside<'_>) -> Vec<(Href, Name)> {
        let namespace = inside.name.namespace();
        let mut way = self.way_to(&namespace, true);
        let own = Name::of(below(&namespace, inside.name).as_bytes());
        way.push((self.links().name(inside.name), own));
        if inside.path.is_empty() {
            return way;
        }
        let top = self.links().entry(inside.name, inside.number, b"");
        way.push((top, Name::of_text(&format!("@{}", inside.number))));
        let ends = inside.path.iter().enumerate();
        let ends = ends.filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        way.extend(ends.filter_map(|end| {
            let path = inside.path.get(..end)?;
            let href = self.links().entry(inside.name, inside.number, path);
            Some((href, Name::last_of(path)))
        }));
        way
    }
}

impl Inside<'_> {
    /// The file name of a download.
    fn last(&self) -> &[u8] {
        let whole = match self.path {
            b"" => self.name.as_str().as_bytes(),
            path => path,
        };
        whole.rsplit(|byte| *byte == b'/').next().unwrap_or(whole)
    }

    fn to(&self, name: &[u8]) -> Vec<u8> {
        match self.path {
            b"" => name.to_vec(),
            path => [path, name].join(&b'/'),
        }
    }

    fn title(&self) -> Markup {
        html! {
            @match self.path {
                b"" => { (Name::last_of(self.name.as_str().as_bytes())) span.soft { "@" (self.number) } }
                path => (Name::last_of(path)),
            }
        }
    }

    fn told(&self) -> String {
        let top = format!("{}@{}", self.name, self.number);
        match self.path {
            b"" => top,
            path => format!("{top}:{}", Name::of(path).as_str()),
        }
    }
}

fn facts(inside: &Inside<'_>, node: &Node) -> Markup {
    let version = inside.version;
    html! {
        dl.facts {
            @match node {
                Node::Tree { totals, .. } => {
                    div { dt { "Size" } dd { (size(totals.bytes)) } }
                    div { dt { "Entries" } dd { (count(totals.entries)) } }
                }
                Node::File { content, executable } => {
                    div { dt { "Size" } dd { (size(content.size)) } }
                    @if *executable { div { dt { "Mode" } dd { "executable" } } }
                }
                Node::Symlink { .. } => {}
            }
            @if inside.path.is_empty() {
                div { dt { "Put" } dd { (time(version.time)) small { "by " (who(version)) } } }
                div { dt { "Id" } dd.mono { (version.id().short().to_string()) } }
                div { dt { "Stays" } dd { (stays(version, inside.is_newest)) } }
                @if let Some(origin) = version.origin.as_deref() {
                    div { dt { "First put" } dd { (time(origin.time)) small { "as @" (origin.version) " by " (Name::of_text(&format!("{}@{}", origin.who.user, origin.who.host))) } } }
                }
                @if !version.message.is_empty() {
                    div { dt { "Message" } dd.text { (Name::of_text(&version.message)) } }
                }
            }
        }
    }
}

fn bytes(node: &Node) -> u64 {
    match node {
        Node::File { content, .. } => content.size,
        Node::Tree { totals, .. } => totals.bytes,
        Node::Symlink { .. } => 0,
    }
}

impl Bytes {
    pub(super) async fn answer(self, source: &Arc<Source>, look: &Look) -> Outcome<Answer> {
        let size = self.content.size;
        let wanted = look.range.as_deref();
        let wanted = wanted.map_or(Wanted::All, |range| Wanted::parse(range, size));
        let (status, range) = match wanted {
            Wanted::All => (StatusCode::OK, 0..size),
            Wanted::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
            Wanted::Nothing => {
                return Ok(Answer::new(StatusCode::RANGE_NOT_SATISFIABLE)
                    .with(CONTENT_RANGE, content_range(None, size))
                    .because(outside(size)));
            }
        };
        let name = percent_encoding::percent_encode(&self.name, text::SEGMENT);
        // Whatever the file is, the browser must save it and not show it.
        let mut answer = guarded(Answer::new(status))
            .with(CONTENT_TYPE, "application/octet-stream")
            .with(
                CONTENT_DISPOSITION,
                format!("attachment; filename*=UTF-8''{name}"),
            )
            .with(CACHE_CONTROL, "no-store")
            .with(ACCEPT_RANGES, "bytes");
        if status == StatusCode::PARTIAL_CONTENT {
            answer = answer.with(CONTENT_RANGE, content_range(Some(&range), size));
        }
        answer.content = match look.is_head {
            true => Sent::HeadOf(range.end - range.start),
            false => {
                let file = FileBody::open(Arc::clone(source), self.sight, self.content, range);
                Sent::File(Box::new(file.await?))
            }
        };
        Ok(answer)
    }
}
