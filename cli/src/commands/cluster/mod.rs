//! `store cluster add|ls|rm`: named stores in the configuration.

mod add;
mod ls;
mod rm;

use store::Result;

use crate::context::Context;

/// Give names to stores, so that `--store`, `push`, `pull` and `duplicate` know them
///
/// Names are defined in the configuration, as [cluster.NAME] with `url` and `profile`. Wherever a store's URL is
/// expected, a name may be given, and comes first: to mean a directory of the same name, write `./NAME`.
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
