//! Metrics of a transfer.

use std::path::Path;

use jiff::Timestamp;
use store::Result;

use crate::host::files::{self, Use};
use crate::host::metrics;
use crate::journal::Numbers;

const SUCCESS: &str = "store_duplicate_last_success_timestamp_seconds";

/// The reported facts of a run.
pub(super) struct TransferMetrics<'t> {
    pub(super) job: &'t str,
    pub(super) numbers: Numbers,
    pub(super) exit_code: u8,
    /// When a run last succeeded completely, if known.
    pub(super) success: Option<Timestamp>,
}

/// Replaces `file` atomically, however the run ended.
pub(super) fn write(file: &Path, told: &TransferMetrics<'_>) -> Result<()> {
    let now = Timestamp::now();
    let success = match told.exit_code {
        0 => Some(told.success.unwrap_or(now)),
        _ => told.success.or_else(|| metrics::told_before(file, SUCCESS)),
    };
    files::replace(file, text(told, now, success).as_bytes(), Use::Report)
}

fn text(told: &TransferMetrics<'_>, now: Timestamp, success: Option<Timestamp>) -> String {
    let numbers = told.numbers;
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
            "last_exit_code",
            "What the last run exited with; 0 when it did all that it was to do",
            told.exit_code.to_string(),
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
    metrics::text(&rows, "duplicate_", "job", told.job)
}
