//! Columns for people: as wide as their widest cell, numbers to the right.

use std::fmt::{self, Display};

use unicode_width::UnicodeWidthStr;

/// Which side of its column a cell stands on.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Rows under a head. `Display` has no newline at the end.
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

    /// A row with one cell for each column.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
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
                Side::Left => format!("{cell}{fill}  "),
                Side::Right => format!("{fill}{cell}  "),
            };
        }
        line.truncate(line.trim_end().len());
        line
    }
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
    fn a_wide_character_takes_two_columns_and_a_combining_one_none() {
        let mut table = Table::new(&[("a", Side::Left), ("n", Side::Right)]);
        table.push(["\u{6f22}\u{5b57}".to_owned(), "1".to_owned()]);
        table.push(["e\u{301}t".to_owned(), "2".to_owned()]);
        let expected = "a     n\n\u{6f22}\u{5b57}  1\ne\u{301}t    2";
        assert_eq!(table.to_string(), expected);
    }
}
