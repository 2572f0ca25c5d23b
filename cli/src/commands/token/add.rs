//! `store token add`: adds a token for `store serve`.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use store::{Error, ErrorKind, Pattern, Result};

use crate::context::Context;
use crate::host::files;
use crate::serve::tokens::{self, Role, Token};
use crate::ui::{human, names};

/// Maximum bytes of a name.
const NAME_BYTES_MAX: usize = 64;

/// Make a token and print it; it cannot be shown again
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to call it in lists and in the access log
    #[arg(value_name = "NAME", value_parser = parse_name)]
    name: String,

    /// What it allows
    #[arg(long, value_enum, default_value = "read")]
    role: Role,

    /// Where it is allowed, like project/llama-ft or 'team/*'; may be given several times [default: everywhere]
    #[arg(long = "namespace", value_name = "GLOB", value_parser = tokens::parse_glob)]
    namespaces: Vec<Pattern>,

    /// Let its bearer see what the server's own token for an upstream can see: `store serve --upstream-token-env`
    #[arg(long)]
    upstream: bool,

    /// How long it is valid, like 90d [default: until it is removed]
    #[arg(long, value_name = "TIME", value_parser = parse_validity)]
    expires: Option<Duration>,
}

#[derive(Serialize)]
struct Added {
    name: String,
    token: String,
}

impl fmt::Display for Added {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.token)
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let place = super::place()?;
    let _locked = files::lock_beside(&place)?;
    let mut all = tokens::read(&place)?;
    if all.iter().any(|token| token.name == args.name) {
        return Err(
            Error::conflict(format!("{}: there is a token of this name", args.name)).hint(format!(
                "choose another name, or `store token rm {}` first",
                names::quoted(&args.name)
            )),
        );
    }
    let mut namespaces = Vec::new();
    for glob in &args.namespaces {
        if !namespaces.contains(glob) {
            namespaces.push(glob.clone());
        }
    }
    if namespaces.is_empty() {
        namespaces.push(Pattern::new("*"));
    }
    let end = |span| {
        Timestamp::now().checked_add(span).map_err(|source| {
            Error::invalid("--expires: it ends later than times can say").because(source)
        })
    };
    let expires = args.expires.map(end).transpose()?;
    let (mut token, text) = Token::new(args.name.clone(), args.role, namespaces, expires)?;
    token.upstream = args.upstream;
    all.push(token);
    let prepared = tokens::prepare(&place, all)?;
    // Before the token counts: one that nobody has seen would close an open server, and let nobody in.
    let added = Added {
        name: args.name.clone(),
        token: text,
    };
    let shown = context.out.answer(&added);
    shown.and_then(|()| context.out.finish()).map_err(unseen)?;
    prepared.put()
}

fn unseen(error: Error) -> Error {
    let message = "the token cannot be shown, so there is none";
    Error::new(ErrorKind::Io, message)
        .because(error)
        .hint("run it where its standard output can be read")
}

fn parse_name(text: &str) -> Result<String, String> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    match !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.chars().all(is_fit) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "expected 1 to {NAME_BYTES_MAX} letters, digits, '.', '_', '-' and '@'"
        )),
    }
}

fn parse_validity(text: &str) -> Result<Duration, String> {
    match human::parse_span(text)? {
        Duration::ZERO => Err("a token that is valid for no time lets nobody in".to_owned()),
        span => Ok(span),
    }
}
