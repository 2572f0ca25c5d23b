//! The whole command line: verbs in groups, options of all verbs, and the end of every `--help`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::commands::{Command, examples, groups, guides};
use crate::ui::global::Global;
use crate::ui::paint::{self, Word};
use crate::ui::suggest;

/// The end of every `--help`. Scripts rely on these numbers.
const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed
  2    usage error
  3    not found: a store, a ref, a version or a path
  4    corrupt: bytes are not what was written
  5    conflict: somebody else was first, or the destination is in use
  6    partly done: the rest is named
  130  interrupted

Treat any other code as failure.";

/// A content-addressed artifact store for ML clusters.
///
/// Put a directory in under a name, and get it out as it was; every byte is kept once.
#[derive(Parser)]
#[command(
    name = "store",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(disable_help_subcommand = true, subcommand_required = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The whole command line: verbs in groups, exit codes in the help of each.
pub(crate) fn command() -> clap::Command {
    let mut command = Cli::command().after_help(EXIT_CODES);
    let verbs = groups::list(&command);
    let topics = guides::topics();
    let options = paint::word(Word::Heading, "Options of every verb:");
    command = command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{verbs}\n\n\
         `store help TOPIC` prints a guide:\n  {topics}\n\n{options}\n{{options}}{{after-help}}"
    ));
    let verbs: Vec<String> = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    for verb in verbs {
        let examples = match examples::shown(&verb) {
            none if none.is_empty() => none,
            some => format!("Examples:\n{some}\n"),
        };
        command = command.mut_subcommand(verb, |verb| {
            verb.after_help(EXIT_CODES)
                .after_long_help(examples + EXIT_CODES)
        });
    }
    command
}

/// The arguments of this process, or the error or help that clap wants to print.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(words());
    let matches = matches.map_err(|error| match error.kind() {
        ErrorKind::InvalidUtf8 => not_text(&words()),
        _ => suggest::better(error, &command),
    })?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The error for words that are not UTF-8 where a text is expected.
fn not_text(words: &[OsString]) -> clap::Error {
    let found = words.iter().filter(|word| word.to_str().is_none());
    let found: Vec<String> = found
        .map(|word| format!("\"{}\"", word.as_bytes().escape_ascii()))
        .collect();
    let message = format!(
        "expected text in UTF-8, found {}\n\n  tip: in a glob, `?` stands for each byte that is not UTF-8; paths and \
         REF:PATH may hold any bytes\n",
        found.join(" and ")
    );
    clap::Error::raw(ErrorKind::InvalidUtf8, message)
}

/// The options of all verbs from the environment, with `store` if it is given.
pub(crate) fn global(store: Option<OsString>) -> Option<Global> {
    let named = store.map(|url| [OsString::from("--store"), url]);
    let words = ["store", "--quiet", "info"].map(OsString::from);
    let words = words.into_iter().chain(named.into_iter().flatten());
    Cli::try_parse_from(words).ok().map(|cli| cli.global)
}

/// Whether the command line asks for JSON, even if it is wrong otherwise.
pub(crate) fn wants_json() -> bool {
    let words = std::env::args_os().skip(1);
    words
        .take_while(|word| word != "--")
        .any(|word| word == "--json")
}

/// The arguments of this process. The first one is always `store`, whatever the file of the program is called.
/// `version` means `--version`, since people try it first.
fn words() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "version") {
        words = vec!["--version".into()];
    }
    words.insert(0, "store".into());
    words
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
