//! `store init`: a new store.

use std::fmt;

use serde::Serialize;
use store::{Result, StoreId};

use crate::context::Context;
use crate::host::room::Readers;

/// Make a new store
///
/// Without URL, at the place where a store is looked for: --store, else $STORE_URL, else the
/// configuration, else $XDG_DATA_HOME/store. Nothing that is there already is touched. In a bucket
/// an object is created twice and deleted first: writers are safe from each other only where the
/// second one is refused.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A directory, which is made if it is missing, or a URL
    url: Option<String>,

    /// Make it also where the endpoint overwrites what it must create only if absent; then never more
    /// than one process may write at a time, and nothing enforces this; gc then needs --exclusive
    #[arg(long)]
    single_writer: bool,

    /// Let the group of the directory write to it too: everything in it follows the modes of the directory, whatever
    /// the umask of whoever puts. Others may read nothing of it, but with --shared=world all of it
    #[arg(long, value_name = "READERS", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "group")]
    shared: Option<Readers>,
}

#[derive(Serialize)]
struct Made {
    url: String,
    id: StoreId,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let store = context.init(args.url.as_deref(), args.single_writer, args.shared)?;
    context.out.report(&Made {
        url: store.remote().url(),
        id: store.format().id,
    })
}

impl fmt::Display for Made {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "store {} is at {}", self.id.short(), self.url)
    }
}
