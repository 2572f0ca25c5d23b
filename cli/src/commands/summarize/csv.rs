//! `--output csv`: the total and its parts, as lines with the same columns.

use std::fmt;

use jiff::civil::Date;
use store::Result;
use store::inspect::Share;

use super::SummaryReport;
use crate::context::Context;

/// Prints a line for the total, then one for each part. Unknown fields are empty.
pub(super) fn print(context: &Context, report: &SummaryReport) -> Result<()> {
    context.out.line(
        "name,versions,entries,bytes,version_bytes,unique_bytes,unique_stored_bytes,shared_bytes,shared_stored_bytes,\
         modified,type,permissions,user,host,last_use",
    )?;
    let summary = &report.summary;
    context.out.line(format_args!(
        "{},{},{},{},{},{},{},{},,,{}",
        field(&report.target),
        summary.versions,
        summary.entries,
        summary.bytes,
        summary.version_bytes,
        share(Some(&summary.unique)),
        share(Some(&summary.shared)),
        report.time,
        used(Some(&report.user), Some(&report.host), report.last_use),
    ))?;
    report.parts.iter().try_for_each(|part| {
        context.out.line(format_args!(
            "{},{},{},{},,{},{},{},{},{},{}",
            field(&part.path.to_string()),
            known(part.versions),
            part.entries,
            part.bytes,
            share(part.unique.as_ref()),
            share(part.shared.as_ref()),
            known(part.modified),
            part.kind.unwrap_or_default(),
            part.permissions.unwrap_or_default(),
            used(part.user.as_ref(), part.host.as_ref(), part.last_use),
        ))
    })
}

/// Two fields: the bytes and the stored bytes.
fn share(told: Option<&Share>) -> String {
    told.map_or_else(
        || ",".to_owned(),
        |told| format!("{},{}", told.bytes, told.stored_bytes),
    )
}

/// Three fields: the user, the host and the last use.
fn used(user: Option<&String>, host: Option<&String>, last_use: Option<Date>) -> String {
    let [user, host] = [user, host].map(|name| name.map(|name| field(name)));
    format!(
        "{},{},{}",
        user.unwrap_or_default(),
        host.unwrap_or_default(),
        known(last_use)
    )
}

pub(super) fn known(told: Option<impl fmt::Display>) -> String {
    told.map(|told| told.to_string()).unwrap_or_default()
}

/// Quotes a field as RFC 4180 says.
pub(super) fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
