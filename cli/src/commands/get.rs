//! `store get`: copies a ref, or a path in it, to an ordinary file or directory.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use store::{GetReport, GetRequest, Keep, Result};

use crate::config;
use crate::context::Context;
use crate::ui::progress::Watch;
use crate::ui::{human, names, remedy};

/// Get a ref, or a path inside one, as a private and writable copy
///
/// Every byte is verified before it is written. The copy is built beside DEST and renamed into place, so it is there
/// whole or not at all. A DEST that exists is refused unless it is an empty directory, or holds only what a killed get
/// left there, which is removed. If something is mounted on that directory, or you are in it, the copy is built inside it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A ref, like project/llama-ft/imagenet, project/llama-ft/imagenet@3 or project/llama-ft/imagenet:train/0.tar
    #[arg(value_name = "REF[@N][:PATH]")]
    source: OsString,

    /// Where to make the copy
    dest: PathBuf,

    /// Get only what matches a glob like `*.safetensors` or `train/**`; may be given several times
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,

    /// Leave out what matches; may be given several times
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,

    /// Replace symlinks by what they lead to, so that a snapshot of a hub cache becomes real files
    #[arg(long)]
    flatten: bool,

    /// Let others read the copy, as the umask says. If the version was put from files that only their owner could read,
    /// only you can read the copy without this option
    #[arg(long)]
    readable: bool,

    /// Give the copy the modes, the users and groups, or the extended attributes that `put --keep` kept; only root can
    /// give files to other users
    #[arg(long, value_name = "WHAT", value_delimiter = ',', conflicts_with = "flatten", value_parser = super::keep::parser())]
    keep: Vec<Keep>,
}

/// The JSON form of the report.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    done: GetReport,
    notes: Vec<String>,
    secs: f64,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let spec = names::spec_before("get", &args.source, Some(args.dest.as_os_str()))?;
    let store = context.open()?;
    let watch = Watch::new(&context.global);
    let request = GetRequest {
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        flatten: args.flatten,
        readable: args.readable,
        keep: args.keep.clone(),
        precious: config::precious(),
        ..GetRequest::new(spec, &args.dest)
    };
    let done = store::get(&store, &request, &watch)?;
    let elapsed = watch.elapsed();
    drop(watch);
    context.out.notes(&done.notes);
    context.out.report(&report(done, elapsed))
}

fn report(done: GetReport, elapsed: Duration) -> Report {
    Report {
        notes: done.notes.iter().map(remedy::note).collect(),
        secs: elapsed.as_secs_f64(),
        done,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elapsed = Duration::from_secs_f64(self.secs);
        write!(
            out,
            "{}@{}: {}, {} in {} ({})",
            self.done.name,
            self.done.version,
            human::counted(self.done.files, "file"),
            human::bytes(self.done.bytes),
            human::duration(elapsed),
            human::rate(self.done.bytes, elapsed),
        )
    }
}
