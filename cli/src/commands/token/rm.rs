//! `store token rm`: removes a token.

use std::fmt;

use serde::Serialize;
use store::{Error, Result};

use crate::context::Context;
use crate::host::files;
use crate::serve::tokens;

/// Remove a token: from the next request on, it lets nobody in
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name of the token
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Serialize)]
struct Removed<'a> {
    removed: &'a str,
    /// The number of tokens that are left.
    left: usize,
}

impl fmt::Display for Removed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} lets nobody in any more", self.removed)?;
        match self.left {
            0 => out.write_str(
                "; it was the last one: servers that run let nobody in, and one that starts now asks nobody for a token",
            ),
            _ => Ok(()),
        }
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let place = super::place()?;
    let _locked = files::lock_beside(&place)?;
    let mut all = tokens::read(&place)?;
    let before = all.len();
    all.retain(|token| token.name != args.name);
    if all.len() == before {
        return Err(Error::not_found(format!("{}: no such token", args.name))
            .hint("list them with `store token ls`"));
    }
    let left = all.len();
    tokens::prepare(&place, all)?.put()?;
    context.out.report(&Removed {
        removed: &args.name,
        left,
    })
}
