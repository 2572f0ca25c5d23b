//! `store completions`: what a shell needs to complete the command.

use clap_complete::Shell;
use store::Result;

use crate::commands::args;
use crate::ui::output::Output;

/// Print the completions of a shell
///
/// For bash: store completions bash > ~/.local/share/bash-completion/completions/store
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, out: &Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "store", &mut script);
    out.bytes(&script)
}
