//! `store import`: versions of refs come out of a file.

use std::ffi::OsString;
use std::path::PathBuf;

use store::Result;

use crate::commands::export::check_file;
use crate::config::jobs::Choice;
use crate::context::Context;
use crate::transfer::{How, Side, Transfer};

/// Bring refs in from a file that `store export` wrote
///
/// All that the file holds, or what is named. A version gets the next number here, unless the store has the
/// same one already; what the store has beside it stays. Every byte is compared with its id on the way.
/// Killed at any moment and run again, it goes on where it was. Exits with 6 when some refs did not make
/// it. The store that is meant where none is named, ~/.local/share/store, is made when it is missing.
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
    let from = Side::Bundle(args.bundle.clone());
    let mut refs = args.refs.clone();
    let mut how = args.how.clone();
    if refs.is_empty() {
        let state = context.open_bundle(&args.bundle)?.readable_state()?;
        let namespaces = state.namespaces().into_iter();
        refs = namespaces
            .map(|namespace| namespace.name.as_str().into())
            .collect();
        how.versions = how.versions.or(Some(Choice::All));
    }
    Transfer::new(from, Side::Here, &refs, &how)?.run(context)
}
