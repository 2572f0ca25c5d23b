//! The command `store` as a library, so that tests can build it as their own binary.
//!
//! Only this crate reads the environment, prints text and lets a person decide. The engine below only computes.

mod commands;
mod config;
mod connect;
mod context;
mod host;
mod journal;
mod serve;
mod transfer;
mod ui;

/// The parsers of `store serve`, for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::serve::fuzzing::{
        hub_body, hub_commit, hub_listing, hub_path, page_path, range, s3_request,
    };
}

use std::process::ExitCode;

use crate::context::Context;
use crate::ui::output::Output;

/// Runs the command with the arguments of this process.
pub fn main() -> ExitCode {
    if commands::complete::is_answered() {
        return ExitCode::SUCCESS;
    }
    if let Some(code) = commands::run::sentinel::is_one() {
        return code;
    }
    let cli = match commands::args::parse() {
        Ok(cli) => cli,
        Err(shown) => return ui::failure::usage(&shown, commands::args::wants_json()),
    };
    let json = cli.global.json;
    let out = Output::new(json, cli.global.quiet);
    if let Some(done) = commands::run_alone(&cli.command, &out) {
        return ui::failure::exit_code(done.and_then(|()| out.finish()), json);
    }
    let (mut code, mut failed) = (0, None);
    let hands_on = cli.command.hands_on_signals();
    let done = Context::new(cli.global, hands_on).and_then(|context| {
        let done = commands::run(&cli.command, &context)
            .map_err(|error| context::elsewhere::hint(error, &context))
            .map_err(|error| context::elsewhere::of_named_store(error, &context))
            .and_then(|()| context.out.finish());
        let told = context.tell_warnings();
        let at_store = |error| context::elsewhere::of_named_store(error, &context);
        (code, failed) = (context.code(), context.failed.take().map(at_store));
        match (code, told) {
            (0, Err(error)) if done.is_ok() => Err(error),
            // The exit code is that of a child command, or of what failed.
            (_, Err(error)) => {
                let told = ui::failure::one_line(&error);
                context.out.warning(format_args!("warning: {told}"));
                done
            }
            (_, Ok(())) => done,
        }
    });
    match (code, done, failed) {
        (0, done, _) | (_, done @ Err(_), _) => ui::failure::exit_code(done, json),
        (code, Ok(()), Some(error)) => ui::failure::exit_with(code, &error, json),
        (code, Ok(()), None) => ExitCode::from(code),
    }
}
