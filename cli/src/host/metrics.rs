//! The text format of Prometheus, for text files of the node exporter.

use std::fmt::Write as _;
use std::path::Path;

use jiff::Timestamp;
use store::{Error, Precious, Result};

/// How the first line of metrics begins.
const HELP: &str = "# HELP store_";

/// One gauge: name, help, value.
pub(crate) type Row = (&'static str, &'static str, String);

/// Gauges `store_NAME`, each with the one label `label` and its value `of`.
pub(crate) fn text(rows: &[Row], prefix: &str, label: &str, of: &str) -> String {
    let mut text = String::new();
    for (name, help, value) in rows {
        let name = format_args!("store_{prefix}{name}");
        let _infallible = write!(
            text,
            "# HELP {name} {help}.\n# TYPE {name} gauge\n{name}{{{label}=\"{}\"}} {value}\n",
            escaped(of)
        );
    }
    text
}

/// Escapes a label's value, which may be a path or a URL.
fn escaped(of: &str) -> String {
    let plain = of.replace(|c: char| store::is_unseen(c) || c == '\"', "_");
    plain.replace('\\', "\\\\")
}

/// Checks that `file` holds nothing but what [`text`] makes, or nothing, or is not there: it is going to be replaced.
///
/// # Errors
/// Conflict, if it holds something else, is a device, a pipe or the like, or would be in a store, a pool or a directory
/// of this program.
pub(crate) fn check(file: &Path, precious: &Precious) -> Result<()> {
    if super::files::is_special(file) {
        return Err(
            Error::conflict(format!("{}: is no regular file", file.display()))
                .hint("metrics take the place of a file: name one, or leave the option out"),
        );
    }
    super::files::check_place(file, precious)?;
    let is_replaced = match super::files::read(file) {
        Ok(text) => is_ours(&text),
        Err(error) => error.kind() != std::io::ErrorKind::InvalidData,
    };
    match is_replaced {
        true => Ok(()),
        false => Err(Error::conflict(format!(
            "{}: holds something other than metrics",
            file.display()
        ))
        .hint("metrics replace the whole file: name one that is not there")),
    }
}

/// Whether a text is empty, or begins as metrics of this program do, and holds nothing else. A comment may be
/// anybody's, and so may a line `store_dir = "/x"`.
fn is_ours(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.is_empty()).peekable();
    let begins = lines.peek().is_none_or(|line| line.starts_with(HELP));
    begins
        && lines.all(|line| {
            let is_row = || line.starts_with("store_") && line.contains("} ");
            line.starts_with(HELP) || line.starts_with("# TYPE store_") || is_row()
        })
}

/// Reads a time from the file of an earlier run. So the loss of the journal does not raise or clear an alert.
pub(crate) fn told_before(file: &Path, gauge: &str) -> Option<Timestamp> {
    let text = super::files::read(file).ok()?;
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with(&format!("{gauge}{{")))?;
    Timestamp::from_second(line.rsplit(' ').next()?.parse().ok()?).ok()
}

/// The label's value in the file of an earlier run.
pub(crate) fn label_before(text: &str) -> Option<&str> {
    text.split('"').nth(1).filter(|of| !of.is_empty())
}

/// Changes the value of one gauge in a text, or adds the gauge. If there is no text, the label's value is `of`.
pub(crate) fn with(text: &str, row: Row, prefix: &str, (label, of): (&str, &str)) -> String {
    let (name, help, value) = row;
    let gauge = format!("store_{prefix}{name}{{");
    let is_known = text.lines().any(|line| line.starts_with(&gauge));
    let mut changed = String::new();
    for line in text.lines() {
        let shown = match line.split_once("} ") {
            Some((before, _)) if line.starts_with(&gauge) => format!("{before}}} {value}\n"),
            _ => format!("{line}\n"),
        };
        changed += &shown;
    }
    if !is_known {
        let of = label_before(text).unwrap_or(of);
        changed += &self::text(&[(name, help, value)], prefix, label, of);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_gauge_of_a_file_changes_and_the_others_stay() {
        let rows = [
            ("a", "What it is", "1".to_owned()),
            ("b", "Another", "2".to_owned()),
        ];
        let before = text(&rows, "gc_", "store", "x");
        let row = |value: &str| ("b", "Another", value.to_owned());
        assert_eq!(with(&before, row("2"), "gc_", ("store", "y")), before);
        let after = with(&before, row("3"), "gc_", ("store", "y"));
        assert!(after.contains("store_gc_a{store=\"x\"} 1\n"), "{after}");
        assert!(after.ends_with("store_gc_b{store=\"x\"} 3\n"), "{after}");
        let first = text(&rows[..1], "gc_", "store", "x");
        assert_eq!(with(&first, row("3"), "gc_", ("store", "y")), after);
        let named = with("", row("3"), "gc_", ("store", "y"));
        assert!(named.contains("store_gc_b{store=\"y\"} 3\n"), "{named}");
    }
}
