//! `store push`: transfers versions of refs from the store to a cluster.

use std::ffi::OsString;

use store::Result;

use crate::context::Context;
use crate::transfer::{How, Side, Transfer};
use crate::ui::{home, names};

/// Copy refs to a cluster; only missing chunks are sent
///
/// A version gets the next number in the cluster, unless the cluster already has the same version. Other versions there
/// stay. Each version is published when all it needs is there. If a push is killed, run it again: it re-sends only what
/// was in flight. If it is interrupted, it first publishes what is complete. The exit code is 6 if some refs could not
/// be copied. See `store duplicate` for more.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to copy: namespaces, refs (their newest version), or versions
    #[arg(value_name = "NAMESPACE|REF[@N]", required = true)]
    refs: Vec<OsString>,

    /// Where to: a cluster, a directory or a URL
    #[arg(value_parser = home::text())]
    cluster: String,

    #[command(flatten)]
    how: How,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    names::check_order("push", &args.refs, &args.cluster)?;
    let (from, to) = (Side::Here, Side::There(args.cluster.clone()));
    Transfer::new(from, to, &args.refs, &args.how)?.run(context)
}
