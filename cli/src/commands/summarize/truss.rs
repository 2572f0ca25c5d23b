//! `--truss`: columns, sizes and times like `truss train cache summarize`, for scripts that parse its output.

use std::cmp::Ordering;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use store::Result;

use super::csv::field;
use super::{Format, Order, Part, Sort};
use crate::context::Context;
use crate::ui::table::{Side, Table};

const COLUMNS: [&str; 5] = ["File Path", "Size", "Modified", "Type", "Permissions"];
/// What truss prints for unknown values.
const UNKNOWN: &str = "Unknown";

/// The fields of truss's JSON.
#[derive(Serialize)]
pub(super) struct TrussReport {
    timestamp: String,
    project_id: String,
    total_files: usize,
    total_size_bytes: u64,
    total_size_human_readable: String,
    files: Vec<File>,
}

#[derive(Serialize)]
struct File {
    path: String,
    size_bytes: u64,
    size_human_readable: String,
    modified: String,
    #[serde(rename = "type")]
    kind: &'static str,
    permissions: &'static str,
}

impl TrussReport {
    /// The report of a ref whose newest version was put at `time`.
    pub(super) fn new(target: String, time: Timestamp, bytes: u64, parts: &[Part]) -> Self {
        let file = |part: &Part| File {
            path: part.path.to_string(),
            size_bytes: part.bytes,
            size_human_readable: size(part.bytes),
            modified: part.modified.map(local).unwrap_or_default(),
            kind: part.kind.unwrap_or(UNKNOWN),
            permissions: part.permissions.unwrap_or(UNKNOWN),
        };
        Self {
            timestamp: time.to_string(),
            project_id: target,
            total_files: parts.len(),
            total_size_bytes: bytes,
            total_size_human_readable: size(bytes),
            files: parts.iter().map(file).collect(),
        }
    }

    pub(super) fn print(&self, format: Format, context: &Context) -> Result<()> {
        match format {
            Format::Csv => self.csv(context),
            Format::Json => {
                let text = serde_json::to_string_pretty(self).unwrap_or_default();
                context.out.line(text)
            }
            Format::Table | Format::CliTable => context.out.line(self.table()),
        }
    }

    fn csv(&self, context: &Context) -> Result<()> {
        context
            .out
            .line("File Path,Size (bytes),Size (human readable),Modified,Type,Permissions")?;
        self.files.iter().try_for_each(|file| {
            context.out.line(format_args!(
                "{},{},{},{},{},{}",
                field(&file.path),
                file.size_bytes,
                file.size_human_readable,
                file.modified,
                file.kind,
                file.permissions
            ))
        })
    }

    fn table(&self) -> String {
        let mut table = Table::new(&COLUMNS.map(|column| (column, Side::Left)));
        for file in &self.files {
            table.push([
                file.path.clone(),
                file.size_human_readable.clone(),
                file.modified.clone(),
                file.kind.to_owned(),
                file.permissions.to_owned(),
            ]);
        }
        format!(
            "Cache captured at: {}\nProject ID: {}\n\nTotal files: {}\nTotal size: {}\n\n{table}",
            self.timestamp, self.project_id, self.total_files, self.total_size_human_readable
        )
    }
}

/// Sorts parts, which are ordered by path, as truss does: ascending by default, and stable.
pub(super) fn sort(parts: &mut [Part], key: Sort, order: Option<Order>) {
    let compare = |a: &Part, b: &Part| -> Ordering {
        match key {
            Sort::Size => a.bytes.cmp(&b.bytes),
            Sort::Name => a.path.cmp(&b.path),
            Sort::Modified => a.modified.cmp(&b.modified),
            Sort::Type => a.kind.cmp(&b.kind),
            Sort::Permissions => a.permissions.cmp(&b.permissions),
        }
    };
    match order {
        Some(Order::Desc) => parts.sort_by(|a, b| compare(b, a)),
        _ => parts.sort_by(compare),
    }
}

/// A size in decimal units, rounded as Python rounds floats. A unit is used only above 1000 of the smaller one.
#[expect(clippy::cast_precision_loss, reason = "shown in hundredths")]
fn size(bytes: u64) -> String {
    let units = [
        (1_000_000_000_000_u64, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
        (1000, "KB"),
    ];
    match units.iter().find(|(unit, _)| bytes > *unit) {
        None => format!("{bytes} B"),
        Some((unit, name)) => format!("{:.2} {name}", bytes as f64 / *unit as f64),
    }
}

/// The time in the local time zone.
fn local(time: Timestamp) -> String {
    let local = time.to_zoned(TimeZone::system());
    local.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_truss() {
        for (bytes, said) in [
            (0, "0 B"),
            (1000, "1000 B"),
            (1001, "1.00 KB"),
            // Halves: as floats they are above or below; exact halves round to even.
            (1005, "1.00 KB"),
            (1125, "1.12 KB"),
            (99_995, "100.00 KB"),
            (65_175, "65.17 KB"),
            (1_000_000, "1000.00 KB"),
            (1_234_567, "1.23 MB"),
            (1_999_999_999, "2.00 GB"),
            (5_000_000_000_000, "5.00 TB"),
        ] {
            assert_eq!(size(bytes), said);
        }
    }
}
