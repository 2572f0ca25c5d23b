//! Metrics of a transfer.

use std::path::Path;

use jiff::Timestamp;
use store::Result;

use super::report::Report;
use crate::files::{self, Use};
use crate::journal::Outcome;
use crate::metrics;

/// Replaces `file` as a whole, however the run ended; `success` is when one last did all.
pub(super) fn write(
    file: &Path,
    report: &Report,
    outcome: Outcome,
    success: Option<Timestamp>,
) -> Result<()> {
    let success = match outcome {
        Outcome::Done => Some(success.unwrap_or_else(Timestamp::now)),
        _ => success,
    };
    let text = text(report, Timestamp::now(), success);
    files::replace(file, text.as_bytes(), Use::Report)
}

fn text(report: &Report, now: Timestamp, success: Option<Timestamp>) -> String {
    let numbers = report.numbers();
    let mut rows = vec![
        (
            "published_versions",
            "Versions that the last run published",
            numbers.published.to_string(),
        ),
        (
            "failed_refs",
            "Refs that did not make it in the last run",
            numbers.failed.to_string(),
        ),
        (
            "sent_bytes",
            "Bytes of frames that the last run sent",
            numbers.sent_bytes.to_string(),
        ),
        (
            "resumed_bytes",
            "Bytes of packs that the last run found sent by an earlier one",
            numbers.resumed_bytes.to_string(),
        ),
        (
            "duration_seconds",
            "How long the last run took",
            numbers.secs.to_string(),
        ),
        (
            "last_run_timestamp_seconds",
            "When the last run ended",
            now.as_second().to_string(),
        ),
    ];
    if let Some(success) = success {
        rows.push((
            "last_success_timestamp_seconds",
            "When a run last did all that it was to do",
            success.as_second().to_string(),
        ));
    }
    metrics::text(&rows, "duplicate_", "job", &report.job)
}
