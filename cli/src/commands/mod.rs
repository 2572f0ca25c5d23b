//! The verbs, one file each: `Args` with its help, and `run`. `args`: the whole command line.

pub(crate) mod args;
pub(crate) mod cache;
mod cat;
mod cluster;
pub(crate) mod complete;
mod completions;
mod damage;
mod diff;
mod du;
mod duplicate;
mod examples;
mod export;
mod gc;
mod get;
pub(crate) mod groups;
mod guides;
mod help;
mod history;
mod import;
mod info;
mod init;
mod keep;
mod ls;
mod man;
mod materialize;
mod pin;
mod policy;
mod pool;
mod pull;
mod push;
mod put;
mod reach;
mod repair;
mod rm;
pub(crate) mod run;
pub(crate) mod save;
mod serve;
mod summarize;
mod token;
mod undo;
mod unpin;
mod verify;
pub(crate) mod wait;
mod watch;
mod whereis;

use store::Result;

use crate::context::Context;
use crate::ui::output::Output;

/// What to do.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Init(init::Args),
    Put(put::Args),
    Save(save::Args),
    Run(Box<run::Args>),
    Cache(cache::Args),
    #[command(hide = true)]
    Neff(cache::NeffArgs),
    Get(get::Args),
    Materialize(Box<materialize::Args>),
    Ls(ls::Args),
    Cat(cat::Args),
    Diff(diff::Args),
    Summarize(summarize::Args),
    Du(du::Args),
    History(history::Args),
    Rm(rm::Args),
    Undo(undo::Args),
    Pin(pin::Args),
    Unpin(unpin::Args),
    Verify(verify::Args),
    Repair(repair::Args),
    Cluster(cluster::Args),
    Push(push::Args),
    Pull(pull::Args),
    Export(export::Args),
    Import(import::Args),
    Duplicate(Box<duplicate::Args>),
    Gc(gc::Args),
    Policy(policy::Args),
    Serve(serve::Args),
    Token(token::Args),
    Info(info::Args),
    Where(whereis::Args),
    Wait(wait::Args),
    Watch(watch::Args),
    Pool(pool::Args),
    Help(help::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    /// Whether signals are for the child command that the verb runs.
    pub(crate) fn hands_on_signals(&self) -> bool {
        matches!(self, Self::Run(_))
    }
}

/// Runs a verb; see [`run_alone`] for verbs that need no context.
pub(crate) fn run(command: &Command, context: &Context) -> Result<()> {
    match command {
        Command::Init(args) => init::run(args, context),
        Command::Put(args) => put::run(args, context),
        Command::Save(args) => save::run(args, context),
        Command::Run(args) => run::run(args, context),
        Command::Cache(args) => cache::run(args, context),
        Command::Neff(args) => cache::run_neff(args, context),
        Command::Get(args) => get::run(args, context),
        Command::Materialize(args) => materialize::run(args, context),
        Command::Ls(args) => ls::run(args, context),
        Command::Cat(args) => cat::run(args, context),
        Command::Diff(args) => diff::run(args, context),
        Command::Summarize(args) => summarize::run(args, context),
        Command::Du(args) => du::run(args, context),
        Command::History(args) => history::run(args, context),
        Command::Rm(args) => rm::run(args, context),
        Command::Undo(args) => undo::run(args, context),
        Command::Pin(args) => pin::run(args, context),
        Command::Unpin(args) => unpin::run(args, context),
        Command::Verify(args) => verify::run(args, context),
        Command::Repair(args) => repair::run(args, context),
        Command::Cluster(args) => cluster::run(args, context),
        Command::Push(args) => push::run(args, context),
        Command::Pull(args) => pull::run(args, context),
        Command::Export(args) => export::run(args, context),
        Command::Import(args) => import::run(args, context),
        Command::Duplicate(args) => duplicate::run(args, context),
        Command::Gc(args) => gc::run(args, context),
        Command::Policy(args) => policy::run(args, context),
        Command::Serve(args) => serve::run(args, context),
        Command::Token(args) => token::run(args, context),
        Command::Info(args) => info::run(args, context),
        Command::Where(args) => whereis::run(args, context),
        Command::Wait(args) => wait::run(args, context),
        Command::Watch(args) => watch::run(args, context),
        Command::Pool(args) => pool::run(args, context),
        Command::Help(_) | Command::Completions(_) | Command::Man(_) => Ok(()),
    }
}

/// Runs a verb that needs neither a store nor the configuration, so that it works even if the configuration is broken.
pub(crate) fn run_alone(command: &Command, out: &Output) -> Option<Result<()>> {
    match command {
        Command::Help(args) => Some(help::run(args, out)),
        Command::Completions(args) => Some(completions::run(args, out)),
        Command::Man(args) => Some(man::run(args, out)),
        _ => None,
    }
}
