//! `store token rm`: removes a token.

use std::fmt;

use serde::Serialize;
use store::{Error, Result};

use crate::context::Context;
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
}

impl fmt::Display for Removed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} lets nobody in any more", self.removed)
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let place = super::place()?;
    let mut all = tokens::read(&place)?;
    let before = all.len();
    all.retain(|token| token.name != args.name);
    if all.len() == before {
        return Err(Error::not_found(format!("{}: no such token", args.name))
            .hint("list them with `store token ls`"));
    }
    tokens::write(&place, all)?;
    context.out.report(&Removed {
        removed: &args.name,
    })
}
