//! Shows damage of a store to people; shared by `verify` and `repair`.

use store::Result;
use store::check::{Finding, Hit};

use crate::context::Context;
use crate::ui::{human, names};

/// What brings back paths whose bytes are lost.
pub(crate) const HEAL: &str = "put the original files again, or pull the version from another cluster: \
    either heals every version that needs them";

/// Prints a line for each object, then a line for each path.
pub(crate) fn show(
    context: &Context,
    findings: &[Finding],
    hits: &[Hit],
    left_out: u64,
) -> Result<()> {
    for Finding { object, what, .. } in findings {
        context.out.line(format_args!("{object}: {what}"))?;
    }
    for hit in hits {
        let (name, version, path) = (&hit.name, hit.version, names::shown(&hit.path));
        context
            .out
            .line(format_args!("{name}@{version}:{path}: {}", hit.what))?;
    }
    if left_out > 0 {
        let more = human::counted(left_out, "path");
        context.out.line(format_args!("and {more} more"))?;
    }
    Ok(())
}
