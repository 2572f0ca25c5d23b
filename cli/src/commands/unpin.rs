//! `store unpin`: removes the pin of a version.

use std::ffi::OsString;

use store::Result;

use crate::commands::pin;
use crate::context::Context;

/// Remove a version's pin
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A ref, like project/llama-ft/imagenet@3; without @N, its newest version
    #[arg(value_name = "REF[@N]")]
    target: OsString,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    pin::set(&args.target, false, context)
}
