//! `store push`: versions of refs go from the store to a cluster.

use std::ffi::OsString;

use store::Result;

use crate::context::Context;
use crate::transfer::{How, Side, Transfer};
use crate::ui::names;

/// Copy refs to a cluster; only missing chunks are sent
///
/// A version gets the next number there, unless the cluster has the same one already; what the
/// cluster has beside it stays. Each version is published when all it needs is there. Killed at any
/// moment and run again, it sends nothing twice but what was on its way; interrupted, it publishes what is
/// complete first. Exits with 6 when some refs did not make it. See `store duplicate` for more.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to copy: namespaces, refs (their newest version), or versions
    #[arg(value_name = "NAMESPACE|REF[@N]", required = true)]
    refs: Vec<OsString>,

    /// Where to: a cluster, a directory or a URL
    cluster: String,

    #[command(flatten)]
    how: How,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    names::check_order("push", &args.refs, &args.cluster)?;
    let (from, to) = (Side::Here, Side::There(args.cluster.clone()));
    Transfer::new(from, to, &args.refs, &args.how)?.run(context)
}
