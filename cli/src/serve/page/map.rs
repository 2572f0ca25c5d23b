//! Treemaps of space. Each is drawn for wide and for narrow screens, and the style sheet chooses one.

use maud::{Markup, Render, html};
use unicode_width::UnicodeWidthChar;

use crate::serve::page::route::Href;
use crate::serve::page::treemap::{Rect, squarified};
use crate::serve::page::words::{Name, ratio};
use crate::ui::human;

/// Maximum rectangles of a map; the smallest are combined.
const TILES_MAX: usize = 48;
/// Maximum parts that are drawn in one tile, and the smallest visible share of it.
const PARTS_MAX: usize = 24;
const PART_SHARE_MIN: f64 = 0.01;
/// The smallest visible share of the whole.
const SHARE_MIN: f64 = 0.001;
/// Number of colours in the style sheet.
const COLOURS: usize = 8;
/// Space between rectangles.
const GAP: f64 = 1.5;
/// Margin of a text, and the height of a line.
const MARGIN: f64 = 7.0;
const LINE: f64 = 16.0;
/// Width of a text column.
const COLUMN: f64 = 7.4;

/// An item that takes space.
#[derive(Clone, Debug)]
pub(crate) struct Tile {
    pub(crate) name: Name,
    pub(crate) bytes: u64,
    pub(crate) href: Option<Href>,
    /// The parts, largest first. The remainder is shown as the rest.
    pub(crate) parts: Vec<Self>,
}

/// The two sizes of a drawing.
const SHAPES: [(&str, f64, f64); 2] = [("wide", 1080.0, 400.0), ("narrow", 358.0, 460.0)];

/// A map of the tiles and of `others` as one rectangle; `None` if there is nothing to show. `id` is unique on the page.
pub(crate) fn map(id: &str, title: &str, tiles: Vec<Tile>, others: u64) -> Option<Markup> {
    let tiles = fitting(tiles, others);
    if tiles.is_empty() {
        return None;
    }
    let whole: u64 = tiles.iter().map(|tile| tile.bytes).sum();
    let largest = tiles.first().map_or_else(String::new, |tile| {
        format!(
            "{} rectangles, as large as what they stand for. The largest is {} with {}, {}.",
            tiles.len(),
            tile.name.as_str(),
            human::bytes(tile.bytes),
            human::percent(tile.bytes, whole)
        )
    });
    Some(html! {
        figure.map {
            figcaption { (title) }
            @for (shape, width, height) in SHAPES {
                (drawn(&format!("{id}-{shape}"), shape, (width, height), title, &largest, &tiles))
            }
        }
    })
}

/// Sorts by size, and combines small tiles into the last one.
fn fitting(mut tiles: Vec<Tile>, others: u64) -> Vec<Tile> {
    let whole = tiles
        .iter()
        .fold(others, |sum, tile| sum.saturating_add(tile.bytes));
    tiles.sort_by_key(|tile| std::cmp::Reverse(tile.bytes));
    let is_seen = |tile: &&Tile| ratio(tile.bytes, whole) >= SHARE_MIN;
    let seen = tiles.iter().take(TILES_MAX).take_while(is_seen).count();
    let mut rest = others;
    let mut hidden = 0u64;
    for tile in tiles.drain(seen..) {
        rest = rest.saturating_add(tile.bytes);
        hidden += 1;
    }
    if ratio(rest, whole) >= SHARE_MIN {
        let name = match (hidden, others) {
            (0, _) | (_, 1..) => "all others".to_owned(),
            (hidden, 0) => format!("{} others", human::count(hidden)),
        };
        tiles.push(Tile {
            name: Name::of_text(&name),
            bytes: rest,
            href: None,
            parts: Vec::new(),
        });
    }
    tiles
}

fn drawn(
    id: &str,
    shape: &str,
    (width, height): (f64, f64),
    title: &str,
    about: &str,
    tiles: &[Tile],
) -> Markup {
    let mut weights: Vec<f64> = tiles.iter().map(|tile| tile.bytes as f64).collect();
    // The combined tile may be larger than the smallest others.
    let mut order: Vec<usize> = (0..tiles.len()).collect();
    let weight = |at: &usize| weights.get(*at).copied().unwrap_or_default();
    order.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
    weights = order.iter().map(weight).collect();
    let rects = squarified(&weights, Rect::new(0.0, 0.0, width, height));
    let placed = order.iter().zip(rects);
    let placed = placed.filter_map(|(at, rect)| Some((*at, tiles.get(*at)?, rect)));
    html! {
        svg class=(shape) viewBox=(format!("0 0 {width} {height}")) role="group" aria-labelledby=(format!("{id}-t {id}-d")) {
            title id=(format!("{id}-t")) { (title) }
            desc id=(format!("{id}-d")) { (about) }
            @for (at, tile, rect) in placed {
                @match &tile.href {
                    Some(href) => a href=(href) { (tile_in(tile, &rect, at % COLOURS)) },
                    None => g.rest { (tile_in(tile, &rect, at % COLOURS)) },
                }
                (parts_in(tile, &rect))
            }
        }
    }
}

fn tile_in(tile: &Tile, rect: &Rect, colour: usize) -> Markup {
    let (width, height) = ((rect.width - GAP).max(0.5), (rect.height - GAP).max(0.5));
    let size = human::bytes(tile.bytes);
    let room = width - 2.0 * MARGIN;
    let has_line = height >= LINE + MARGIN;
    let name = fitted(tile.name.as_str(), room).filter(|_| has_line);
    let has_parts = tile.parts.len() > 1;
    let fits_below = !has_parts && height >= 2.0 * LINE + MARGIN && columns(&size) * COLUMN <= room;
    let beside = (columns(tile.name.as_str()) + columns(&size)) * COLUMN + MARGIN;
    let fits_beside = has_parts && has_line && beside <= room;
    html! {
        title { (tile.name.as_str()) ": " (size) }
        rect class=(format!("c{colour}")) x=(at(rect.x)) y=(at(rect.y)) width=(at(width)) height=(at(height)) rx="2" {}
        @if let Some(name) = name {
            text x=(at(rect.x + MARGIN)) y=(at(rect.y + LINE + 2.0)) { (name) }
            @if fits_beside { text.soft x=(at(rect.x + width - MARGIN)) y=(at(rect.y + LINE + 2.0)) text-anchor="end" { (size) } }
            @if fits_below {
                text.soft x=(at(rect.x + MARGIN)) y=(at(rect.y + 2.0 * LINE + 2.0)) { (size) }
            }
        }
    }
}

/// The parts of a tile, below its name; empty if there is no room.
fn parts_in(tile: &Tile, rect: &Rect) -> Markup {
    let inner = Rect::new(
        rect.x + GAP,
        rect.y + LINE + 9.0,
        rect.width - 3.0 * GAP,
        rect.height - LINE - 9.0 - 2.0 * GAP,
    );
    let shown = tile.parts.iter().take(PARTS_MAX);
    let shown: Vec<&Tile> = shown
        .take_while(|part| ratio(part.bytes, tile.bytes) >= PART_SHARE_MIN)
        .collect();
    let has_room = inner.width >= 60.0 && inner.height >= 34.0 && shown.len() > 1;
    let sum: u64 = shown.iter().map(|part| part.bytes).sum();
    let mut weights: Vec<(f64, Option<&Tile>)> = shown
        .into_iter()
        .map(|part| (part.bytes as f64, Some(part)))
        .collect();
    match tile.bytes.saturating_sub(sum) {
        0 => {}
        rest => weights.push((rest as f64, None)),
    }
    weights.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let areas: Vec<f64> = weights.iter().map(|(weight, _)| *weight).collect();
    let placed = weights.iter().zip(squarified(&areas, inner));
    html! {
        @if has_room {
            @for ((_, part), rect) in placed {
                @if let Some((part, href)) = part.and_then(|part| Some((part, part.href.as_ref()?))) {
                    a href=(href) { (part_in(part, &rect)) }
                }
            }
        }
    }
}

fn part_in(part: &Tile, rect: &Rect) -> Markup {
    let (width, height) = ((rect.width - GAP).max(0.5), (rect.height - GAP).max(0.5));
    let name = fitted(part.name.as_str(), width - 2.0 * MARGIN);
    let name = name.filter(|_| height >= LINE + MARGIN);
    html! {
        title { (part.name.as_str()) ": " (human::bytes(part.bytes)) }
        rect.part x=(at(rect.x)) y=(at(rect.y)) width=(at(width)) height=(at(height)) rx="1" {}
        @if let Some(name) = name { text.soft x=(at(rect.x + MARGIN)) y=(at(rect.y + LINE + 1.0)) { (name) } }
    }
}

/// The end of a name that fits into `room`, since neighbouring names often begin alike; `None` if too little fits.
fn fitted(name: &str, room: f64) -> Option<String> {
    if columns(name) * COLUMN <= room {
        return Some(name.to_owned());
    }
    let mut width = COLUMN;
    let mut kept: Vec<char> = Vec::new();
    for c in name.chars().rev() {
        width += c.width().unwrap_or(0) as f64 * COLUMN;
        if width > room {
            break;
        }
        kept.push(c);
    }
    if kept.len() < 4 {
        return None;
    }
    Some(
        ['\u{2026}']
            .into_iter()
            .chain(kept.into_iter().rev())
            .collect(),
    )
}

fn columns(text: &str) -> f64 {
    text.chars().map(|c| c.width().unwrap_or(0) as f64).sum()
}

/// A coordinate in a drawing.
struct At(f64);

fn at(place: f64) -> At {
    At(place)
}

impl Render for At {
    fn render(&self) -> Markup {
        format!("{:.1}", self.0).render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(name: &str, bytes: u64) -> Tile {
        Tile {
            name: Name::of_text(name),
            bytes,
            href: None,
            parts: Vec::new(),
        }
    }

    #[test]
    fn small_ones_are_one_and_nothing_is_no_map() {
        assert!(map("m", "x", Vec::new(), 0).is_none());
        assert!(map("m", "x", vec![tile("empty", 0)], 0).is_none());
        let mut many: Vec<Tile> = (0..100).map(|n| tile(&format!("t{n}"), 1000 - n)).collect();
        many.push(tile("dust", 1));
        let told = |tiles: &[Tile]| {
            let last = tiles.last().unwrap();
            (tiles.len(), last.name.as_str().to_owned())
        };
        let fitted = fitting(many.clone(), 0);
        assert_eq!(told(&fitted), (TILES_MAX + 1, "53 others".to_owned()));
        let sum = |tiles: &[Tile]| tiles.iter().map(|tile| tile.bytes).sum::<u64>();
        assert_eq!(sum(&fitted), sum(&many));
        assert_eq!(told(&fitting(many, 7)).1, "all others");
    }

    #[test]
    fn a_name_is_cut_at_its_beginning_and_says_something_or_nothing() {
        assert_eq!(fitted("short", 100.0).as_deref(), Some("short"));
        assert_eq!(
            fitted("a-very-long-name", 60.0).as_deref(),
            Some("\u{2026}ng-name")
        );
        assert_eq!(fitted("a-very-long-name", 20.0), None);
    }

    #[test]
    fn what_a_name_holds_is_text() {
        let drawn = map("m", "t", vec![tile("<b>&\"", 10)], 0).unwrap();
        let drawn = drawn.into_string();
        assert!(!drawn.contains("<b>") && drawn.contains("&lt;b&gt;&amp;&quot;"));
    }
}
