//! `store export`: writes versions of refs to one file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use store::{Error, Result};

use crate::context::Context;
use crate::transfer::{How, Side, Transfer};
use crate::ui::names;

/// Write refs into one file, to carry them where there is no network
///
/// The file is a bundle, which is a store of its own: it holds the versions and all that they need, and keeps chunks
/// that several versions share once. If the file is missing, it is made. If it exists, what it lacks is added, so a
/// killed export can be run again and continues behind the last pack that it finished: of about 16 MB each. Every verb
/// that looks at a store can read the file: `store ls --store FILE`. `store import` brings it in. Nothing is ever
/// removed from it: dropped versions take up space until you export to a new file.
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
    names::check_file_first("export", args.bundle.as_os_str(), &args.refs)?;
    let bundle = Side::Bundle(args.bundle.clone());
    Transfer::new(Side::Here, bundle, &args.refs, &args.how)?.run(context)
}

/// Checks that the bundle is a file: it is read and written at arbitrary offsets, which a stream does not allow.
pub(super) fn check_file(bundle: &Path) -> Result<()> {
    if bundle.to_str().is_some_and(|text| text.contains("://")) {
        // A URL may hold a password, so it is not repeated.
        return Err(
            Error::invalid("expected the path of a file, found a URL").hint(
                "a bundle is a file; `store push` and `store pull` copy to and from other stores",
            ),
        );
    }
    match bundle == "-" {
        true => Err(
            Error::invalid("-: expected a file, since a bundle cannot be streamed")
                .hint("name a file and send that; for a file that is called so, say `./-`"),
        ),
        false => Ok(()),
    }
}
