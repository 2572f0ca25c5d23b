//! `store import`: reads versions of refs from a file.

use std::ffi::OsString;
use std::path::PathBuf;

use store::Result;

use crate::commands::export::check_file;
use crate::config::jobs::Choice;
use crate::context::{Context, bundles};
use crate::transfer::{How, Side, Transfer};
use crate::ui::names;

/// Bring refs in from a file that `store export` wrote
///
/// Bring in all versions that the file holds, or those that are named. A version gets the next number here, unless the
/// store already has the same version. Other versions in the store stay. Every chunk is checked against its id on the
/// way. If an import is killed, run it again: it continues. The exit code is 6 if some refs could not be brought in. If
/// no store is named, ~/.local/share/store is used, and made if it is missing.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    bundle: PathBuf,

    /// What to bring in: namespaces, refs, or versions [default: all versions that the file holds]
    #[arg(value_name = "NAMESPACE|REF[@N]")]
    refs: Vec<OsString>,

    #[command(flatten)]
    how: How,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    check_file(&args.bundle)?;
    names::check_file_first("import", args.bundle.as_os_str(), &args.refs)?;
    let from = Side::Bundle(args.bundle.clone());
    let mut refs = args.refs.clone();
    let mut how = args.how.clone();
    if refs.is_empty() {
        let bundle = context.open_bundle(&args.bundle);
        let state = bundle.and_then(|bundle| bundle.readable_state());
        let state = state.map_err(bundles::damaged)?;
        let namespaces = state.namespaces().into_iter();
        refs = namespaces
            .map(|namespace| namespace.name.as_str().into())
            .collect();
        how.versions = how.versions.or(Some(Choice::All));
    }
    Transfer::new(from, Side::Here, &refs, &how)?.run(context)
}
