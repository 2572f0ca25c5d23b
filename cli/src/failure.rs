//! How a failure is told: `error:`, its causes, a hint, and the exit code.

use std::error::Error as _;
use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;
use store::{Error, Kind, Result};

/// What a machine reads about a failure.
#[derive(Serialize)]
struct Told<'e> {
    error: String,
    kind: String,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    details: &'e [String],
    causes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'e str>,
    exit_code: u8,
}

/// Help is no failure; anything else that clap says is a wrong usage.
pub(crate) fn usage(shown: &clap::Error) -> ExitCode {
    // Nobody is left to tell that the help could not be printed.
    let _unread = shown.print();
    if shown.use_stderr() {
        ExitCode::from(code(Kind::InvalidInput))
    } else {
        ExitCode::SUCCESS
    }
}

/// Tells what went wrong, if anything did, on standard error.
pub(crate) fn exit_code(done: Result<()>, json: bool) -> ExitCode {
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    if is_broken_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    let told = Told {
        error: error.to_string(),
        kind: format!("{:?}", error.kind()),
        details: error.details(),
        causes: causes(&error),
        hint: error.remedy(),
        exit_code: code(error.kind()),
    };
    let text = match serde_json::to_string(&told) {
        Ok(line) if json => line + "\n",
        _ => text(&told),
    };
    // Where standard error is closed, the exit code says it alone.
    let _unread = io::stderr().write_all(text.as_bytes());
    ExitCode::from(told.exit_code)
}

/// A failure on one line, its causes after it.
pub(crate) fn one_line(error: &Error) -> String {
    let mut line = error.to_string();
    for detail in error.details() {
        line += &format!("; {detail}");
    }
    for cause in causes(error) {
        line += &format!(": {cause}");
    }
    line
}

/// What a command exits with.
pub(crate) fn code_of(done: &Result<()>) -> u8 {
    done.as_ref().err().map_or(0, |error| code(error.kind()))
}

fn code(kind: Kind) -> u8 {
    match kind {
        Kind::InvalidInput => 2,
        Kind::NotFound => 3,
        Kind::Corrupt => 4,
        Kind::Conflict => 5,
        Kind::Partial => 6,
        Kind::Interrupted => 130,
        _ => 1,
    }
}

/// The reader of standard output, `head` for one, has seen enough.
fn is_broken_pipe(error: &Error) -> bool {
    let cause = error
        .source()
        .and_then(|cause| cause.downcast_ref::<io::Error>());
    error.kind() == Kind::Io && cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

fn causes(error: &Error) -> Vec<String> {
    let chain = std::iter::successors(error.source(), |cause| (**cause).source());
    let mut causes: Vec<String> = chain.map(ToString::to_string).collect();
    // Some libraries repeat the message of their own cause.
    causes.dedup();
    causes
}

fn text(told: &Told) -> String {
    let mut text = format!("error: {}\n", told.error);
    for detail in told.details {
        text += &format!("  {detail}\n");
    }
    for cause in &told.causes {
        text += &format!("  caused by: {cause}\n");
    }
    if let Some(hint) = told.hint {
        text += &format!("hint: {hint}\n");
    }
    text
}
