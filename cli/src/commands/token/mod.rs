//! `store token add|ls|rm`: who may use `store serve`.

mod add;
mod ls;
mod rm;

use std::path::PathBuf;

use store::{Error, Result};

use crate::config;
use crate::context::Context;

/// Manage who may ask `store serve`: with tokens, nobody is let in without one
///
/// Tokens are kept as hashes, in tokens.json beside the configuration. A running server notices a change at the next
/// request.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Add(add::Args),
    Ls(ls::Args),
    Rm(rm::Args),
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    match &args.verb {
        Verb::Add(args) => add::run(args, context),
        Verb::Ls(args) => ls::run(args, context),
        Verb::Rm(args) => rm::run(args, context),
    }
}

/// The file of this user's tokens.
fn place() -> Result<PathBuf> {
    config::tokens_file().ok_or_else(|| {
        Error::not_found("there is no home directory to keep tokens in").hint("set HOME")
    })
}
