//! `store cluster ls`: lists the named stores.

use serde::Serialize;
use store::Result;

use crate::config::clusters::{self, Label};
use crate::context::Context;
use crate::ui::table::Side;

/// List the stores that have a name
#[derive(clap::Args)]
pub(crate) struct Args {}

/// One cluster; an object of `--json`.
#[derive(Serialize)]
struct Line<'c> {
    name: &'c Label,
    /// The URL without credentials.
    url: String,
    profile: Option<&'c str>,
}

pub(crate) fn run(_args: &Args, context: &Context) -> Result<()> {
    let clusters = context.config().cluster.iter();
    let lines = clusters.map(|(name, cluster)| Line {
        name,
        url: clusters::masked(&cluster.url),
        profile: cluster.profile.as_deref(),
    });
    let columns = [
        ("name", Side::Left),
        ("url", Side::Left),
        ("profile", Side::Left),
    ];
    context.out.list(&columns, lines, |line| {
        [
            line.name.to_string(),
            line.url.clone(),
            line.profile.unwrap_or_default().to_owned(),
        ]
    })
}
