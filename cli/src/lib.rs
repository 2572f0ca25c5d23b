//! The command `store` as a library, so that tests can build it as their own binary.
//!
//! Here and nowhere else the environment is read, text is printed and decisions are made that
//! belong to a person; the engine below computes.

mod args;
mod aws;
mod azure;
mod clusters;
mod commands;
mod config;
mod config_edit;
mod context;
mod damage;
mod elsewhere;
mod entry;
mod failure;
mod files;
mod human;
mod jobs;
mod journal;
mod lock;
mod memory;
mod metrics;
mod names;
mod output;
mod pools;
mod progress;
mod reach;
mod room;
mod suggest;
mod table;
mod transfer;
mod unattended;

use std::process::ExitCode;

use crate::context::Context;

/// Runs the command on the arguments of this process.
pub fn main() -> ExitCode {
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(shown) => return failure::usage(&shown, args::wants_json()),
    };
    let json = cli.global.json;
    let done = Context::new(cli.global).and_then(|context| {
        let done = commands::run(&cli.command, &context)
            .map_err(|error| elsewhere::hint(error, &context))
            .and_then(|()| context.out.finish());
        let told = context.tell_warnings();
        done.and(told)
    });
    failure::exit_code(done, json)
}
