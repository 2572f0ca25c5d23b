//! `store man`: the manual, made from the same text as `--help`.

use std::io;
use std::path::PathBuf;

use clap_mangen::Man;
use store::{Error, Result};

use crate::commands::args;
use crate::ui::output::Output;

/// Print the manual page, or write one for each verb
///
/// To read it at once: store man | man -l -
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write store.1, store-put.1 and so on into this directory
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, out: &Output) -> Result<()> {
    if let Some(dir) = &args.dir {
        let failed = |source: io::Error| Error::io("write manual pages to", dir, source);
        std::fs::create_dir_all(dir).map_err(failed)?;
        return clap_mangen::generate_to(args::command(), dir).map_err(failed);
    }
    let mut page = Vec::new();
    let rendered = Man::new(args::command()).render(&mut page);
    rendered.map_err(|source| Error::io("render the page", "store.1", source))?;
    out.bytes(&page)
}
