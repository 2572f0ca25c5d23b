//! Columns for people: as wide as their widest cell, with numbers aligned right. On a terminal, free text is cut to fit
//! the width.

use std::fmt::{self, Display};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The alignment of a column.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Left,
    Right,
    /// Left, and cut if the line is wider than the terminal: for text of any length.
    Cut,
}

/// Spaces between two columns.
const GAP: usize = 2;
/// Minimum width of a cut text, however narrow the terminal is.
const TEXT_MIN: usize = 16;
/// Marks a cut.
const CUT: char = '\u{2026}';

/// Rows under a header. `Display` ends without a newline.
pub(crate) struct Table {
    columns: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Side)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with one cell for each column.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Fits the table into `columns`: if it is wider, removes empty columns first, then cuts texts.
    pub(crate) fn within(mut self, columns: usize) -> Self {
        let wide: usize = self.widths().iter().map(|width| width + GAP).sum();
        if wide.saturating_sub(GAP) > columns && !self.rows.is_empty() {
            self.drop_empty();
        }
        let widths = self.widths();
        for (at, (_, side)) in self.columns.iter().enumerate() {
            if !matches!(side, Side::Cut) {
                continue;
            }
            let others = widths.iter().enumerate().filter(|(other, _)| *other != at);
            let others: usize = others.map(|(_, width)| width + GAP).sum();
            let room = columns.saturating_sub(others).max(TEXT_MIN);
            for cell in self.rows.iter_mut().filter_map(|row| row.get_mut(at)) {
                if cell.width() > room {
                    *cell = cut(cell, room);
                }
            }
        }
        self
    }

    fn drop_empty(&mut self) {
        for at in (0..self.columns.len()).rev() {
            let mut cells = self.rows.iter().filter_map(|row| row.get(at));
            if cells.all(String::is_empty) {
                self.columns.remove(at);
                for row in &mut self.rows {
                    row.remove(at);
                }
            }
        }
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize, head: &str| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.width()).fold(head.len(), usize::max)
        };
        self.columns
            .iter()
            .enumerate()
            .map(|(at, (head, _))| width(at, head))
            .collect()
    }

    fn line<'c>(&self, widths: &[usize], cells: impl Iterator<Item = &'c str>) -> String {
        let mut line = String::new();
        for ((cell, width), (_, side)) in cells.zip(widths).zip(&self.columns) {
            let fill = " ".repeat(width.saturating_sub(cell.width()));
            line += &match side {
                Side::Left | Side::Cut => format!("{cell}{fill}  "),
                Side::Right => format!("{fill}{cell}  "),
            };
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// The beginning of a text, and a mark for the rest.
fn cut(text: &str, room: usize) -> String {
    let mut width = 1;
    let kept = text.chars().take_while(|c| {
        width += c.width().unwrap_or(0);
        width <= room
    });
    let kept: String = kept.collect();
    format!("{}{CUT}", kept.trim_end())
}

impl Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        out.write_str(&self.line(&widths, self.columns.iter().map(|(head, _)| *head)))?;
        for row in &self.rows {
            write!(
                out,
                "\n{}",
                self.line(&widths, row.iter().map(String::as_str))
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_their_cells() {
        let mut table = Table::new(&[
            ("size", Side::Right),
            ("name", Side::Left),
            ("note", Side::Left),
        ]);
        table.push(["1 B".to_owned(), "a".to_owned(), String::new()]);
        table.push(["123 kB".to_owned(), "long name".to_owned(), "x".to_owned()]);
        let expected = "  size  name       note\n   1 B  a\n123 kB  long name  x";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn a_text_is_cut_to_what_is_left_and_is_never_nothing() {
        let table = || {
            let mut table = Table::new(&[("n", Side::Right), ("message", Side::Cut)]);
            table.push(["1".to_owned(), "short".to_owned()]);
            table.push(["2".to_owned(), "a text of some length indeed".to_owned()]);
            table.push(["3".to_owned(), "\u{6f22}".repeat(40)]);
            table
        };
        let shown = table().within(24).to_string();
        assert!(shown.lines().all(|line| line.width() <= 24), "{shown}");
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[1], "1  short");
        assert_eq!(lines[2], "2  a text of some lengt\u{2026}");
        assert_eq!(lines[3], format!("3  {}\u{2026}", "\u{6f22}".repeat(10)));
        assert!(
            table()
                .within(1)
                .to_string()
                .contains("2  a text of some\u{2026}")
        );
        assert_eq!(table().within(400).to_string(), table().to_string());
    }

    #[test]
    fn a_narrow_table_has_no_empty_columns() {
        let table = || {
            let columns = [
                ("n", Side::Right),
                ("marks", Side::Left),
                ("by", Side::Left),
            ];
            let mut table = Table::new(&columns);
            table.push(["1".to_owned(), String::new(), "ann".to_owned()]);
            table
        };
        assert_eq!(
            table().within(13).to_string(),
            "n  marks  by\n1         ann"
        );
        assert_eq!(table().within(12).to_string(), "n  by\n1  ann");
    }

    #[test]
    fn a_wide_character_takes_two_columns_and_a_combining_one_none() {
        let mut table = Table::new(&[("a", Side::Left), ("n", Side::Right)]);
        table.push(["\u{6f22}\u{5b57}".to_owned(), "1".to_owned()]);
        table.push(["e\u{301}t".to_owned(), "2".to_owned()]);
        let expected = "a     n\n\u{6f22}\u{5b57}  1\ne\u{301}t    2";
        assert_eq!(table.to_string(), expected);
    }
}
