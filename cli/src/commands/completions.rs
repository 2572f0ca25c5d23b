//! `store completions`: what a shell needs to complete the command.

use clap_complete::Shell;
use store::Result;

use crate::commands::args;
use crate::context::Context;

/// Print the completions of a shell
///
/// For bash: store completions bash > ~/.local/share/bash-completion/completions/store
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "store", &mut script);
    context.out.bytes(&script)
}
