//! `store export`: versions of refs go into one file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use store::{Error, Result};

use crate::context::Context;
use crate::transfer::{How, Side, Transfer};

/// Write refs into one file, to be carried where no network goes
///
/// The file is a store of its own, a bundle: it holds the versions and all that they need, and chunks that
/// several of them share once. It is made when it is missing; exported to again, it gets what it lacks,
/// so that a killed export goes on where it was. Every verb that looks at a store reads it: `store ls
/// --store FILE`. `store import` brings it in. It is only added to: what is dropped from it takes its
/// place until a new one is exported.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    bundle: PathBuf,

    /// What to write: namespaces, refs (their newest version), or versions
    #[arg(value_name = "NAMESPACE|REF[@N]", required = true)]
    refs: Vec<OsString>,

    #[command(flatten)]
    how: How,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    check_file(&args.bundle)?;
    let bundle = Side::Bundle(args.bundle.clone());
    Transfer::new(Side::Here, bundle, &args.refs, &args.how)?.run(context)
}

/// That a bundle is a file: it is added to and read at any place, as no stream can be.
pub(super) fn check_file(bundle: &Path) -> Result<()> {
    match bundle == "-" {
        true => Err(
            Error::invalid("-: expected a file, since a bundle cannot be streamed")
                .hint("name a file and send that; for a file that is called so, say `./-`"),
        ),
        false => Ok(()),
    }
}
