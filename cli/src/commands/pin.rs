//! `store pin`: protects a version.

use std::ffi::OsString;
use std::fmt;

use serde::Serialize;
use store::RefName;
use store::{Result, refs};

use crate::context::Context;
use crate::ui::names;

/// Protect a version from retention and `rm`
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A ref, like project/llama-ft/imagenet@3; without @N, its newest version
    #[arg(value_name = "REF[@N]")]
    target: OsString,
}

/// The result of a pin.
#[derive(Serialize)]
pub(crate) struct Pinned {
    #[serde(rename = "ref")]
    name: RefName,
    version: u64,
    pinned: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    set(&args.target, true, context)
}

/// Pins or unpins.
pub(crate) fn set(version: &OsString, pinned: bool, context: &Context) -> Result<()> {
    let spec = names::version(version)?;
    let store = context.open()?;
    let number = refs::number(&store, &spec)?;
    let version = refs::pin(&store, &spec.name, number, pinned)?;
    context.out.report(&Pinned {
        name: spec.name,
        version,
        pinned,
    })
}

impl fmt::Display for Pinned {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.pinned { "pinned" } else { "not pinned" };
        write!(out, "{}@{} is {state}", self.name, self.version)
    }
}
