//! How a failure is printed: `error:`, its causes, a hint, and the exit code.

use std::borrow::Cow;
use std::error::Error as _;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind as ClapKind;
use serde::Serialize;
use store::{Error, ErrorKind, Remedy, Result};

use crate::ui::output::json_line;
use crate::ui::{names, paint, remedy};

/// The JSON form of a failure.
#[derive(Serialize)]
struct Told<'e> {
    error: String,
    kind: String,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    details: &'e [String],
    causes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Cow<'static, str>>,
    exit_code: u8,
}

/// Whether a request was denied because a right is missing, and not because a quota is exceeded.
pub(crate) fn is_for_want_of_rights(error: &Error) -> bool {
    error.kind() == ErrorKind::Denied && error.remedy() != Some(&Remedy::DropOrRaiseQuota)
}

/// An entry that was left out of a tree.
#[derive(Serialize)]
pub(crate) struct Skipped {
    #[serde(flatten)]
    path: names::Path,
    pub(crate) error: String,
}

/// The JSON form of the entries that were left out.
pub(crate) fn skipped(left_out: Vec<(PathBuf, Error)>) -> Vec<Skipped> {
    let told = |(path, error): (PathBuf, Error)| Skipped {
        path: names::Path::new(path.as_os_str().as_bytes()),
        error: one_line(&error),
    };
    left_out.into_iter().map(told).collect()
}

/// Prints a message of clap. Help is no failure; everything else is a usage error.
pub(crate) fn usage(shown: &clap::Error, json: bool) -> ExitCode {
    if shown.use_stderr() && json {
        return exit_code(Err(as_error(shown)), true);
    }
    // If the help cannot be printed, there is nowhere to report that.
    let _unread = match shown.kind() {
        // clap would print the name of the verb as the name of the program.
        ClapKind::DisplayVersion => writeln!(io::stdout(), "store {}", env!("CARGO_PKG_VERSION")),
        _ => shown.print(),
    };
    if shown.use_stderr() {
        ExitCode::from(code(ErrorKind::InvalidInput))
    } else {
        ExitCode::SUCCESS
    }
}

/// Converts a clap error. Its first paragraph is the error, the others are tips and usage.
fn as_error(shown: &clap::Error) -> Error {
    let text = shown.render().to_string();
    let text = text.trim().trim_start_matches("error: ");
    let (what, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let error = Error::invalid(words(what));
    match words(rest) {
        rest if rest.is_empty() => error,
        rest => error.hint(rest),
    }
}

/// Prints the failure, if there is one, on standard error.
pub(crate) fn exit_code(done: Result<()>, json: bool) -> ExitCode {
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    if is_broken_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    exit_with(code(error.kind()), &error, json)
}

/// Prints the failure on standard error, and ends with this code: that of a child command may be any.
pub(crate) fn exit_with(code: u8, error: &Error, json: bool) -> ExitCode {
    let told = Told {
        error: error.to_string(),
        kind: format!("{:?}", error.kind()),
        details: error.details(),
        causes: causes(error),
        hint: error.remedy().map(remedy::words),
        exit_code: code,
    };
    let text = match json_line(&told) {
        Ok(line) if json => line + "\n",
        _ => text(&told),
    };
    // If standard error is closed, the exit code is all that remains.
    let _unread = paint::aside(&text);
    ExitCode::from(told.exit_code)
}

/// A failure on one line, followed by its causes.
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

/// A failure on one line, and what to do about it.
pub(crate) fn advised(error: &Error) -> String {
    let line = one_line(error);
    match error.remedy() {
        Some(remedy) => format!("{line}; {}", remedy::words(remedy)),
        None => line,
    }
}

/// The exit code of a result.
pub(crate) fn code_of(done: &Result<()>) -> u8 {
    done.as_ref().err().map_or(0, |error| code(error.kind()))
}

pub(crate) fn code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidInput => 2,
        ErrorKind::NotFound => 3,
        ErrorKind::Corrupt => 4,
        ErrorKind::Conflict => 5,
        ErrorKind::Partial => 6,
        ErrorKind::Interrupted => 130,
        _ => 1,
    }
}

/// Whether the reader of standard output, like `head`, has closed the pipe.
fn is_broken_pipe(error: &Error) -> bool {
    let cause = error
        .source()
        .and_then(|cause| cause.downcast_ref::<io::Error>());
    error.kind() == ErrorKind::Io
        && cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

fn causes(error: &Error) -> Vec<String> {
    let chain = std::iter::successors(error.source(), |cause| (**cause).source());
    let mut causes: Vec<String> = Vec::new();
    for cause in chain.map(ToString::to_string) {
        let cause = plain_cause(&cause);
        // Some libraries repeat the message of their own cause.
        match causes.last() {
            Some(last) if last.contains(cause) => {}
            _ => causes.push(cause.to_owned()),
        }
    }
    causes
}

/// Removes `Generic LocalFileSystem error: `, which tells a user nothing.
fn plain_cause(cause: &str) -> &str {
    let rest = cause.strip_prefix("Generic ");
    rest.and_then(|rest| rest.split_once(" error: "))
        .filter(|(kind, _)| !kind.contains(' '))
        .map_or(cause, |(_, rest)| rest)
}

/// The text of a failure. Names in it are escaped, so that they cannot send commands to the terminal.
fn text(told: &Told) -> String {
    let one_line = |text: &str| names::printable(text);
    let mut text = paint::line(&format!("error: {}\n", one_line(&told.error)));
    for detail in told.details {
        text += &format!("  {}\n", one_line(detail));
    }
    for cause in &told.causes {
        text += &format!("  caused by: {}\n", one_line(cause));
    }
    if let Some(hint) = &told.hint {
        text += &paint::line(&format!("hint: {}\n", one_line(hint)));
    }
    text
}
