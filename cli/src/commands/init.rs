//! `store init`: creates a store.

use std::fmt;

use serde::Serialize;
use store::{Result, StoreId};

use crate::context::Context;
use crate::host::room::Readers;
use crate::ui::home;

/// Make a new store
///
/// Without URL, the store is made where a store is looked for: --store, else $STORE_URL, else the configuration, else
/// $XDG_DATA_HOME/store. Nothing that is already there is changed. In a bucket, `init` first creates an object twice
/// and deletes it: writers are only safe from each other if the bucket refuses the second one.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A directory, which is made if it is missing, or a URL
    #[arg(value_parser = home::text())]
    url: Option<String>,

    /// Make the store even if the endpoint overwrites objects that must be created only if absent. Then only one process
    /// may write at a time, nothing enforces this, and gc needs --exclusive
    #[arg(long)]
    single_writer: bool,

    /// Let the directory's group write to the store too: everything in it gets the modes of the directory, whatever the
    /// umask of the user who puts. Other users can read nothing, or everything with --shared=world
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
        let url = store::shown(self.url.as_bytes());
        write!(out, "store {} is at {url}", self.id.short())
    }
}
