//! `store cluster rm`: removes a store's name.

use std::fmt;

use serde::Serialize;
use store::Result;

use crate::config::clusters::Label;
use crate::config::edit;
use crate::context::Context;

/// Remove a store's name; the store itself is not changed
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name
    #[arg(value_name = "CLUSTER")]
    name: Label,
}

#[derive(Serialize)]
struct Removed<'a> {
    removed: &'a Label,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    edit::remove_cluster(&args.name)?;
    context.out.report(&Removed {
        removed: &args.name,
    })
}

impl fmt::Display for Removed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} is no cluster any more", self.removed)
    }
}
