//! The text format of Prometheus, for the node exporter's text files.

use std::fmt::Write as _;

/// One gauge: its name, what it tells, its value.
pub(crate) type Row = (&'static str, &'static str, String);

/// Gauges `store_NAME`, each with the one label that says of what.
pub(crate) fn text(rows: &[Row], prefix: &str, label: &str, of: &str) -> String {
    let mut text = String::new();
    for (name, help, value) in rows {
        let name = format_args!("store_{prefix}{name}");
        let _infallible = write!(
            text,
            "# HELP {name} {help}.\n# TYPE {name} gauge\n{name}{{{label}=\"{of}\"}} {value}\n"
        );
    }
    text
}
