//! Plots of bytes over time: stacked areas, drawn for wide and for narrow screens.
//!
//! A value holds until the next one, so the lines are steps. The scales are pure and begin at zero.

use std::fmt::Write;

use jiff::Timestamp;
use maud::{Markup, html};

use crate::serve::page::words::Name;
use crate::ui::human;

/// Horizontal resolution of a drawing.
const COLUMNS: usize = 240;
/// Maximum number of horizontal lines.
const LINES_MAX: u64 = 4;
const SHAPES: [Shape; 2] = [
    Shape {
        name: "wide",
        width: 1080.0,
        height: 260.0,
        ticks: 6,
    },
    Shape {
        name: "narrow",
        width: 358.0,
        height: 240.0,
        ticks: 3,
    },
];
/// Margins: at the left for sizes, below for times.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 10.0;
const BELOW: f64 = 24.0;

struct Shape {
    name: &'static str,
    width: f64,
    height: f64,
    ticks: usize,
}

/// The data of one area.
pub(crate) struct Series {
    pub(crate) name: Name,
    /// Values in order of time.
    pub(crate) steps: Vec<(Timestamp, u64)>,
    /// Whether the bytes are not stored; such an area is pale.
    pub(crate) is_ghost: bool,
}

/// A time span in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: i64,
    last: i64,
}

/// A plot of these series; `None` if they span no time. `id` is unique on the page.
pub(crate) fn plot(id: &str, title: &str, series: &[Series]) -> Option<Markup> {
    let span = Span::of(series)?;
    let levels = stacked(series, span);
    let most = levels.last()?.last().copied()?;
    if most == 0 {
        return None;
    }
    let about = format!(
        "From {} to {}; {} at the end.",
        human::time(span.time(0.0)),
        human::time(span.time(1.0)),
        human::bytes(most)
    );
    Some(html! {
        figure.plot {
            figcaption { (title) }
            @for shape in &SHAPES { (drawn(id, shape, title, &about, (series, &levels), span)) }
            @if series.len() > 1 {
                ul.legend {
                    @for (at, one) in series.iter().enumerate() {
                        li { svg viewBox="0 0 10 10" aria-hidden="true" { rect class=(class(series, at)) width="10" height="10" rx="2" {} } (one.name) }
                    }
                }
            }
        }
    })
}

fn drawn(
    id: &str,
    shape: &Shape,
    title: &str,
    about: &str,
    (series, levels): (&[Series], &[Vec<u64>]),
    span: Span,
) -> Markup {
    let top = levels.last().and_then(|level| level.iter().max());
    let step = step(top.copied().unwrap_or(1));
    let height = shape.height - TOP - BELOW;
    let width = shape.width - LEFT - RIGHT;
    let lines = top.copied().unwrap_or(1).div_ceil(step).max(1);
    let most = step * lines;
    let y = |value: u64| TOP + height * (1.0 - value as f64 / most as f64);
    let x = |share: f64| LEFT + width * share;
    let id = format!("{id}-{}", shape.name);
    let box_of = format!("0 0 {} {}", shape.width, shape.height);
    let ticks = (0..shape.ticks).map(|at| at as f64 / (shape.ticks - 1).max(1) as f64);
    html! {
        svg class=(shape.name) viewBox=(box_of) role="img" aria-labelledby=(format!("{id}-t {id}-d")) {
            title id=(format!("{id}-t")) { (title) }
            desc id=(format!("{id}-d")) { (about) }
            @for line in 0..=lines {
                @let value = step * line;
                line.grid x1=(LEFT) x2=(shape.width - RIGHT) y1=(px(y(value))) y2=(px(y(value))) {}
                text.axis x=(LEFT - 8.0) y=(px(y(value) + 4.0)) text-anchor="end" { (human::bytes(value)) }
            }
            // The tallest first, so that the lower areas are drawn in front of it.
            @for (at, level) in levels.iter().enumerate().rev() {
                path class=(class(series, at)) d=(stairs(level, x, y)) {}
            }
            @for (at, share) in ticks.enumerate() {
                text.axis x=(px(x(share))) y=(px(shape.height - 6.0)) text-anchor=(anchor(at, shape.ticks)) { (span.told(share)) }
            }
        }
    }
}

/// The CSS class of an area.
fn class(series: &[Series], at: usize) -> String {
    match series.get(at) {
        Some(one) if one.is_ghost => "ghost".to_owned(),
        _ => format!("c{at}"),
    }
}

/// The outline of an area.
fn stairs(level: &[u64], x: impl Fn(f64) -> f64, y: impl Fn(u64) -> f64) -> String {
    let mut path = format!("M{} {}", px(x(0.0)), px(y(0)));
    let mut before = None;
    for (at, value) in level.iter().enumerate() {
        if before == Some(*value) {
            continue;
        }
        let share = at as f64 / (level.len() - 1).max(1) as f64;
        // Writing to a string cannot fail.
        let _always = write!(path, "H{}V{}", px(x(share)), px(y(*value)));
        before = Some(*value);
    }
    path + &format!("H{}V{}Z", px(x(1.0)), px(y(0)))
}

fn px(place: f64) -> String {
    format!("{place:.1}")
}

fn anchor(at: usize, ticks: usize) -> &'static str {
    match at {
        0 => "start",
        at if at + 1 == ticks => "end",
        _ => "middle",
    }
}

/// For each series, the sums of it and those before it, by column.
fn stacked(series: &[Series], span: Span) -> Vec<Vec<u64>> {
    let mut levels: Vec<Vec<u64>> = Vec::with_capacity(series.len());
    for one in series {
        let mut steps = one.steps.iter().peekable();
        let mut value = 0;
        let below = levels.last();
        let level = (0..=COLUMNS).map(|column| {
            let until = span.at(column as f64 / COLUMNS as f64);
            while let Some((_, next)) = steps.next_if(|(time, _)| time.as_microsecond() <= until) {
                value = *next;
            }
            let below = below.and_then(|level| level.get(column)).copied();
            below.unwrap_or(0).saturating_add(value)
        });
        let level = level.collect();
        levels.push(level);
    }
    levels
}

/// The distance of lines: the smallest of 1, 2, 2.5 or 5 times a power of ten with at most [`LINES_MAX`] lines to
/// `most`.
fn step(most: u64) -> u64 {
    let least = most.div_ceil(LINES_MAX).max(1);
    let mut power = 1u64;
    loop {
        for tenths in [10, 20, 25, 50] {
            let step = power.saturating_mul(tenths) / 10;
            if step >= least && step.saturating_mul(10) == power.saturating_mul(tenths) {
                return step;
            }
        }
        match power.checked_mul(10) {
            Some(next) => power = next,
            None => return least,
        }
    }
}

impl Span {
    /// The span from the first to the last step; `None` if it is empty.
    fn of(series: &[Series]) -> Option<Self> {
        let times = || series.iter().flat_map(|one| &one.steps);
        let times = || times().map(|(time, _)| time.as_microsecond());
        let (first, last) = (times().min()?, times().max()?);
        (first < last).then_some(Self { first, last })
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a share of a span lies inside of it"
    )]
    fn at(self, share: f64) -> i64 {
        if share >= 1.0 {
            return self.last;
        }
        let span = self.last.saturating_sub(self.first) as f64;
        self.first.saturating_add((span * share) as i64)
    }

    fn time(self, share: f64) -> Timestamp {
        Timestamp::from_microsecond(self.at(share)).unwrap_or_default()
    }

    /// A time, as exact as the span needs.
    fn told(self, share: f64) -> String {
        let hours = self.last.saturating_sub(self.first) / 3_600_000_000;
        let form = match hours {
            0 => "%H:%M:%S",
            1..48 => "%b %-d, %H:%M",
            48..8760 => "%b %-d",
            _ => "%Y-%m",
        };
        self.time(share).strftime(form).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(steps: &[(i64, u64)]) -> Series {
        let time = |secs| Timestamp::from_second(secs).unwrap();
        Series {
            name: Name::of_text("x"),
            steps: steps
                .iter()
                .map(|(secs, value)| (time(*secs), *value))
                .collect(),
            is_ghost: false,
        }
    }

    #[test]
    fn steps_of_the_scale_are_round_and_reach() {
        for (most, expected) in [
            (0, 1),
            (1, 1),
            (4, 1),
            (5, 2),
            (40, 10),
            (41, 20),
            (90, 25),
            (101, 50),
            (1_000_001, 500_000),
        ] {
            assert_eq!(step(most), expected, "{most}");
        }
        assert!(step(u64::MAX) >= u64::MAX / LINES_MAX);
    }

    #[test]
    fn areas_stand_on_each_other_and_hold_until_the_next_step() {
        let all = [series(&[(0, 10), (100, 20)]), series(&[(50, 5)])];
        let span = Span::of(&all).unwrap();
        let levels = stacked(&all, span);
        let at = |level: usize, column: usize| levels[level][column];
        assert_eq!((at(0, 0), at(0, COLUMNS - 1), at(0, COLUMNS)), (10, 10, 20));
        assert_eq!((at(1, 0), at(1, COLUMNS / 2), at(1, COLUMNS)), (10, 15, 25));
    }

    #[test]
    fn one_moment_is_no_stretch_of_time() {
        assert!(plot("p", "x", &[series(&[(5, 10)])]).is_none());
        assert!(plot("p", "x", &[]).is_none());
        assert!(plot("p", "x", &[series(&[(5, 0), (6, 0)])]).is_none());
        assert!(plot("p", "x", &[series(&[(5, 1), (6, 0), (7, 3)])]).is_some());
    }

    #[test]
    fn the_outline_is_closed_and_changes_only_where_the_value_does() {
        let path = stairs(
            &[0, 0, 5, 5, 5],
            |share| share * 100.0,
            |value| 10.0 - value as f64,
        );
        assert_eq!(path, "M0.0 10.0H0.0V10.0H50.0V5.0H100.0V10.0Z");
    }
}
