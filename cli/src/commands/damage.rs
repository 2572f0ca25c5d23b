//! What is wrong with a store, as people and machines read it; `verify` and `repair` share it.

use serde::Serialize;
use store::RefName;
use store::Result;
use store::check::{Finding, Hit};

use crate::context::Context;
use crate::ui::{human, names};

/// An object that something is wrong with.
#[derive(Serialize)]
pub(crate) struct FindingTold {
    object: String,
    what: String,
}

/// A path that cannot be read as it was put.
#[derive(Serialize)]
pub(crate) struct HitTold {
    #[serde(rename = "ref")]
    name: RefName,
    version: u64,
    #[serde(flatten)]
    path: names::Path,
    /// The damaged object, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    what: String,
}

impl From<&Finding> for FindingTold {
    fn from(finding: &Finding) -> Self {
        Self {
            object: finding.object.clone(),
            what: finding.what.clone(),
        }
    }
}

impl From<&Hit> for HitTold {
    fn from(hit: &Hit) -> Self {
        Self {
            name: hit.name.clone(),
            version: hit.version,
            path: names::Path::new(&hit.path),
            object: hit.cause.object(),
            what: hit.what.clone(),
        }
    }
}

/// A line for each object, then a line for each path.
pub(crate) fn show(
    context: &Context,
    findings: &[FindingTold],
    hits: &[HitTold],
    left_out: u64,
) -> Result<()> {
    for FindingTold { object, what } in findings {
        context.out.line(format_args!("{object}: {what}"))?;
    }
    for hit in hits {
        let HitTold {
            name,
            version,
            path,
            what,
            ..
        } = hit;
        context
            .out
            .line(format_args!("{name}@{version}:{path}: {what}"))?;
    }
    if left_out > 0 {
        let more = human::counted(left_out, "path");
        context.out.line(format_args!("and {more} more"))?;
    }
    Ok(())
}
