//! `store pull`: transfers versions of refs from a cluster to the store.

use std::ffi::OsString;

use store::Result;

use crate::context::Context;
use crate::transfer::{How, Side, Transfer};
use crate::ui::{home, names};

/// Copy refs from a cluster; only missing chunks are sent
///
/// Apart from the direction, this is `store push`. If no store is named, ~/.local/share/store is used, and made if it
/// is missing.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where from: a cluster, a directory or a URL
    #[arg(value_parser = home::text())]
    cluster: String,

    /// What to copy: namespaces, refs (their newest version), or versions
    #[arg(value_name = "NAMESPACE|REF[@N]", required = true)]
    refs: Vec<OsString>,

    #[command(flatten)]
    how: How,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    names::check_order("pull", &args.refs, &args.cluster)?;
    let (from, to) = (Side::There(args.cluster.clone()), Side::Here);
    Transfer::new(from, to, &args.refs, &args.how)?.run(context)
}
