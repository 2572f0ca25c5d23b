//! `store completions`: prints the completion script of a shell.

use clap_complete::Shell;
use store::Result;

use crate::commands::complete;
use crate::ui::output::Output;

/// Print the completions of a shell
///
/// The script completes verbs, flags and their values, and the names of refs, clusters, jobs and profiles. It asks
/// `store` itself, so it stays right when `store` is replaced.
///
/// For bash: store completions bash > ~/.local/share/bash-completion/completions/store
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, out: &Output) -> Result<()> {
    out.bytes(&complete::script(&args.shell.to_string()))
}
