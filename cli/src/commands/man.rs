//! `store man`: writes the manual, from the same text as `--help`.

use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
use store::{Error, Result};

use crate::commands::{args, examples};
use crate::config;
use crate::host::files::{self, Use};
use crate::ui::output::Output;

/// Print the manual page, or write one for each verb
///
/// To read it at once: store man | man -l -
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write store.1, store-put.1 and so on into this directory
    dir: Option<PathBuf>,
}

/// Environment variables and their purpose.
const ENVIRONMENT: [(&str, &str); 17] = [
    ("STORE_URL", "The store, as --store names it."),
    (
        "STORE_PROFILE",
        "The profile that says how to reach its bucket, as --store-profile.",
    ),
    (
        "STORE_DEADLINE",
        "How long a failed request to a bucket is retried, as --deadline.",
    ),
    ("STORE_POOL", "The pool of this host."),
    (
        "STORE_POOL_MAX",
        "The most bytes that the pool's files may take.",
    ),
    (
        "STORE_POOL_FREE",
        "Bytes of the pool's file system that are left free for others.",
    ),
    ("STORE_PROJECT", "The project of store run, as --project."),
    ("STORE_TEAM", "The team of store run, as --team."),
    ("STORE_LAYOUT", "Where store run makes caches, as --layout."),
    (
        "XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_CACHE_HOME, XDG_STATE_HOME",
        "Where FILES are, if not below HOME.",
    ),
    (
        "AWS_*, GOOGLE_*, AZURE_*",
        "Endpoint, region and credentials of buckets, as the tools of their makers read them.",
    ),
    (
        "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY",
        "The proxy that leads to buckets.",
    ),
    (
        "HF_TOKEN_PATH",
        "A file that put leaves out, since it holds a token.",
    ),
    ("USER, LOGNAME", "The author of a version."),
    (
        "NO_COLOR, CLICOLOR, CLICOLOR_FORCE",
        "Whether errors and hints have colours; without these, on a terminal.",
    ),
    ("TERM", "A terminal that is dumb gets no colours."),
    ("STORE_COMPLETE", "Set by the scripts of store completions."),
];

/// Files and their content.
const FILES: [(&str, &str); 7] = [
    (
        "~/.config/store/config.toml",
        "The configuration: store, profiles, clusters, jobs, pool, retention. See store help reference.",
    ),
    (
        "~/.config/store/tokens.json",
        "Who may ask store serve: hashes of tokens, and what they allow.",
    ),
    (
        "~/.local/share/store",
        "The store, if none is named; the first put makes it.",
    ),
    (
        "~/.cache/store",
        "Segments of stores in buckets, what put knows of files, hashes that serve computed, and the pool, if none is named. It may be deleted at any time, except a pool that trees link to.",
    ),
    (
        "~/.local/state/store",
        "Journals of jobs and locks, and the list of directories that are still to be saved. Losing it only costs time.",
    ),
    (
        "~/.aws/config, ~/.aws/credentials",
        "Profiles that the configuration names by aws-profile.",
    ),
    (
        "PREFIX/format",
        "What makes a directory or a prefix of a bucket a store.",
    ),
];

const EXIT_STATUS: [(&str, &str); 8] = [
    ("0", "Done."),
    ("1", "Failed."),
    ("2", "Usage error."),
    ("3", "Not found: a store, a ref, a version or a path."),
    ("4", "Corrupt: bytes are not what was written."),
    (
        "5",
        "Conflict: somebody else was first, or the destination is in use.",
    ),
    ("6", "Partly done: the rest is named."),
    ("130", "Interrupted."),
];

pub(crate) fn run(args: &Args, out: &Output) -> Result<()> {
    let mut command = args::command();
    command.build();
    if let Some(dir) = &args.dir {
        let first = dir.join(format!("{}.1", name(&command)));
        files::check_place(&first, &config::precious())?;
        return write_all(&command, dir);
    }
    out.bytes(&page(&command)?)
}

/// Writes a page for the command, and one for each verb below it.
fn write_all(command: &Command, dir: &Path) -> Result<()> {
    let below = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    for verb in below {
        write_all(verb, dir)?;
    }
    let path = dir.join(format!("{}.1", name(command)));
    files::replace(&path, &page(command)?, Use::Report)
}

fn name(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let page = rendered(command);
    page.map_err(|source| Error::io("render the page", format!("{}.1", name(command)), source))
}

fn rendered(command: &Command) -> io::Result<Vec<u8>> {
    let source = concat!("store ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis(command).to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        Roff::new().control("SH", ["VERBS"]).to_writer(&mut page)?;
        verbs(command).to_writer(&mut page)?;
    }
    if name(command) == "store" {
        section("ENVIRONMENT", &ENVIRONMENT).to_writer(&mut page)?;
        section("FILES", &FILES).to_writer(&mut page)?;
    }
    section("EXIT STATUS", &EXIT_STATUS).to_writer(&mut page)?;
    let examples = match name(command) {
        "store" => FIRST_EXAMPLES.as_slice(),
        _ => examples::of(command.get_name()),
    };
    if !examples.is_empty() {
        section("EXAMPLES", examples).to_writer(&mut page)?;
    }
    see_also(command).to_writer(&mut page)?;
    Ok(without_repeats(&page))
}

/// Removes the repeated preamble of each section; a page needs one.
fn without_repeats(page: &[u8]) -> Vec<u8> {
    let head = Roff::new().render();
    let page = String::from_utf8_lossy(page);
    let rest = page.replace(&head, "");
    (head + &rest).into_bytes()
}

/// The usage line of `--help`; the options have a section of their own.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim().trim_start_matches("Usage: ").to_owned();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([roman(usage)]);
    roff
}

/// First steps for new users.
const FIRST_EXAMPLES: [(&str, &str); 4] = [
    (
        "store put ~/.cache/huggingface project/llama-ft/hf",
        "The first put makes a store.",
    ),
    (
        "store materialize project/llama-ft/hf /scratch/job-7/hf",
        "A tree of hard links for a job.",
    ),
    (
        "store push project/llama-ft/hf h200",
        "To another cluster; only missing chunks are sent.",
    ),
    (
        "store gc --dry-run",
        "What would be given back, and why the rest stays.",
    ),
];

/// A section of names and their descriptions.
fn section(heading: &str, lines: &[(&str, &str)]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    for (name, what) in lines {
        roff.control("TP", []);
        roff.text([bold(*name)]);
        roff.text([roman(*what)]);
    }
    roff
}

fn verbs(command: &Command) -> Roff {
    let mut roff = Roff::new();
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let about = verb.get_about().map(ToString::to_string);
        roff.control("TP", []);
        roff.text([bold(format!("{}(1)", name(verb)))]);
        roff.text([roman(about.unwrap_or_default())]);
    }
    roff
}

fn see_also(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    match name(command) {
        "store" => roff.text([
            roman("Guides by task: "),
            italic("store help"),
            roman(" lists them, "),
            italic("store help TOPIC"),
            roman(" prints one."),
        ]),
        _ => roff.text([
            bold("store"),
            roman("(1) has the variables of the environment and the files."),
        ]),
    };
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(command: &Command) -> Vec<String> {
        let own = command.get_arguments().filter_map(|arg| arg.get_env());
        let own = own.map(|name| name.to_string_lossy().into_owned());
        let below = command.get_subcommands().flat_map(variables);
        own.chain(below).collect()
    }

    #[test]
    fn every_variable_of_an_option_is_in_the_manual() {
        let found = variables(&args::command());
        assert!(found.len() >= 6, "{found:?}");
        for name in found {
            assert!(
                ENVIRONMENT.iter().any(|(known, _)| *known == name),
                "{name}"
            );
        }
    }
}
