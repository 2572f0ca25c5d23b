//! The arguments that every verb shares, and how the command line is put together.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser};

use crate::commands::Command;
use crate::{human, suggest};

/// What ends every `--help`: scripts rely on these numbers.
const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed
  2    usage: what was asked for makes no sense
  3    not found: a store, a ref, a version or a path
  4    corrupt: bytes are not what was written
  5    conflict: somebody else was first, or the destination is in use
  6    partly done: the rest is named
  130  interrupted

An unknown code is a failure.";

/// A content-addressed artifact store for ML clusters.
///
/// Directories go in under a name, every byte is kept once, and they come out as they were.
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

/// Options of every verb.
#[derive(Args)]
#[command(next_help_heading = "Options of every verb")]
pub(crate) struct Global {
    /// The store: a directory, a URL or a cluster's name [default: from the configuration, else $XDG_DATA_HOME/store]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "STORE_URL",
        hide_env_values = true
    )]
    pub(crate) store: Option<OsString>,

    /// The profile in the configuration that says how the store's bucket is reached [default: the environment]
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "STORE_PROFILE",
        hide_env_values = true
    )]
    pub(crate) store_profile: Option<String>,

    /// Print JSON for machines: one object, or one a line where there is a list
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Bytes that buffers may take, like 256MiB [default: 128 MiB, or a quarter of the cgroup's limit]
    #[arg(long, global = true, value_name = "SIZE", value_parser = human::parse_size)]
    pub(crate) memory: Option<u64>,

    /// Try a request to a bucket again for so long, like 30s; a first connection for less [default: 3 min]
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        value_parser = human::parse_span,
        env = "STORE_DEADLINE",
        hide_env_values = true
    )]
    pub(crate) deadline: Option<Duration>,

    /// Read the store as it was after this log entry; for verbs that only read
    #[arg(long, global = true, value_name = "N", hide = true)]
    pub(crate) at_entry: Option<u64>,

    /// Show progress even where standard error is no terminal
    #[arg(long, global = true)]
    pub(crate) progress: bool,

    /// Print no notes, no progress and no summary
    #[arg(long, short, global = true, conflicts_with = "progress")]
    pub(crate) quiet: bool,
}

/// The whole command line, exit codes in the help of each verb.
pub(crate) fn command() -> clap::Command {
    let mut command = Cli::command().after_help(EXIT_CODES);
    let verbs: Vec<String> = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    for verb in verbs {
        command = command.mut_subcommand(verb, |verb| verb.after_help(EXIT_CODES));
    }
    command
}

/// The arguments of this process, or what clap has to say instead.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(words());
    let matches = matches.map_err(|error| suggest::better(error, &command))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Whether the command line asks for JSON, also where it makes no sense.
pub(crate) fn wants_json() -> bool {
    let words = std::env::args_os().skip(1);
    words
        .take_while(|word| word != "--")
        .any(|word| word == "--json")
}

/// The arguments. However the file of the program is called, the command is `store`; `store help VERB` and
/// `store version` are what people try first.
fn words() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match words.first().and_then(|word| word.to_str()) {
        Some("help") => {
            words.remove(0);
            words.truncate(1);
            words.push("--help".into());
        }
        Some("version") => words = vec!["--version".into()],
        _ => {}
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
