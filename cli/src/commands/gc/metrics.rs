//! Metrics of a collection.

use std::path::Path;

use gc::CollectReport;
use jiff::Timestamp;
use store::{Result, StoreId};

use crate::host::files::{self, Use};
use crate::host::metrics::{self, Row};

/// Replaces `file` atomically.
pub(crate) fn write(file: &Path, id: StoreId, report: &CollectReport) -> Result<()> {
    let text = text(id, report, Timestamp::now());
    files::replace(file, text.as_bytes(), Use::Report)
}

/// Records in the file of an earlier collection that the last one failed; other values stay. If the store's id is
/// unknown, the label is the store's name as the user gave it.
pub(crate) fn write_failure(file: &Path, code: u8, store: &str) -> Result<()> {
    let before = files::read(file).unwrap_or_default();
    let text = metrics::with(&before, exit_code(code), "", ("store", store));
    files::replace(file, text.as_bytes(), Use::Report)
}

fn exit_code(code: u8) -> Row {
    (
        "gc_last_exit_code",
        "What the last collection exited with; 0 when it ended well",
        code.to_string(),
    )
}

fn text(id: StoreId, report: &CollectReport, now: Timestamp) -> String {
    let (live, held) = (&report.live, &report.held);
    let live_bytes = live.newest_bytes + live.by_retention_bytes + live.by_pins_bytes;
    let dead_bytes = held.unused_bytes + held.by_grace.bytes + held.by_age.bytes;
    let rows: [Row; 10] = [
        (
            "live_bytes",
            "Stored bytes that live versions need",
            live_bytes.to_string(),
        ),
        (
            "dead_bytes",
            "Stored bytes that nothing needs and that are not deleted yet",
            dead_bytes.to_string(),
        ),
        (
            "chunks",
            "Chunks that live versions need",
            live.chunks.to_string(),
        ),
        ("refs", "Refs with a version", live.refs.to_string()),
        ("versions", "Live versions", live.versions.to_string()),
        (
            "gc_freed_bytes",
            "Bytes of the objects that the last collection deleted, copies of a part of them not taken off",
            report.freed_bytes.to_string(),
        ),
        (
            "gc_copied_bytes",
            "Bytes that the last collection wrote to new packs",
            report.copied_bytes.to_string(),
        ),
        (
            "gc_duration_seconds",
            "How long the last collection took",
            report.secs.to_string(),
        ),
        exit_code(0),
        (
            "gc_last_success_timestamp_seconds",
            "When the last collection ended well",
            now.as_second().to_string(),
        ),
    ];
    metrics::text(&rows, "", "store", &id.to_string())
}
