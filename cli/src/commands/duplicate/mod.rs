//! `store duplicate`: transfers versions of refs from one store to another, as a job.

mod status;

use std::ffi::OsString;
use std::path::PathBuf;

use store::Result;
use store::replicate::Delete;

use crate::config::clusters::{HERE, Label};
use crate::context::Context;
use crate::context::schedule::{Unattended, Unit};
use crate::transfer::{How, Side, Transfer};
use crate::ui::home;

/// Copy refs from one store to another; only missing chunks are sent
///
/// What is missing is computed from the segments of both stores. Frames are checked and sent as they are stored. A
/// version gets the next number at its destination, unless the same version is already there, and is published when all
/// it needs is there. Collectors may run on both stores.
///
/// A journal in $XDG_STATE_HOME/store/jobs records runs, errors and what was sent, so a job that was killed re-sends
/// only what was in flight. If the journal is lost, that only costs time. On one host a job runs once at a time: with
/// --job, a second run says so and exits with 0; without a name, it exits with 5. The exit code is 6 if some refs could
/// not be copied; each is named with its reason.
///
/// Jobs are defined in the configuration, as [job.NAME] with `from`, `to`, `refs`, and optionally `versions`, `delete`,
/// `bwlimit`, `verify` and `profile`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to copy: namespaces, refs (their newest version), or versions
    #[arg(value_name = "NAMESPACE|REF[@N]", required_unless_present_any = ["job", "status"])]
    refs: Vec<OsString>,

    /// The source: a cluster, a directory or a URL; `here`: the store that other verbs use
    #[arg(long, value_name = "STORE", required_unless_present_any = ["job", "status"], value_parser = home::text())]
    from: Option<String>,

    /// The destination: a cluster, a directory or a URL, or `here`
    #[arg(long, value_name = "STORE", required_unless_present_any = ["job", "status"], value_parser = home::text())]
    to: Option<String>,

    /// Drop what only the destination has: versions of these refs, and refs of these namespaces. Pinned versions stay,
    /// and so do those that were first put there. Refused with exit code 5 if the source is not the store that they
    /// came from, or if more than half of what a namespace, or a named ref, has there would be
    /// dropped. Of a namespace or a named ref of which the source has nothing left, nothing goes
    #[arg(long)]
    delete: bool,

    /// As --delete, but also drop what was first put there, and all of what the source has dropped, and never refuse. A
    /// name that the source never had is a mistake, and drops nothing
    #[arg(long)]
    delete_all: bool,

    #[command(flatten)]
    how: How,

    /// Run a job of the configuration; options that are given beside it override what it says
    #[arg(long, value_name = "NAME", conflicts_with_all = ["refs", "from", "to"])]
    job: Option<Label>,

    /// Show what is known of a job, also while it runs; without a name, of all jobs of this host and of the
    /// configuration
    #[arg(long, value_name = "JOB", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["refs", "from", "to", "delete", "delete_all", "How", "job", "metrics_file", "Unattended"])]
    status: Option<String>,

    /// Write metrics for Prometheus' text file collector to this file, however the run ends
    #[arg(long, value_name = "FILE")]
    metrics_file: Option<PathBuf>,

    #[command(flatten)]
    schedule: Unattended,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    if let Some(job) = &args.status {
        return status::run(job, context);
    }
    let transfer = match &args.job {
        Some(name) => configured(name, args, context)?,
        None => given(args)?,
    };
    let name = args.job.as_ref().map(|name| format!("-{name}"));
    let unit = Unit {
        name: format!("store-duplicate{}", name.unwrap_or_default()),
        what: "Copy refs from one store to another",
        job: args.job.clone(),
        store: None,
        dry_run: args.how.dry_run,
    };
    if let Some(text) = args.schedule.text(&unit, context)? {
        return context.out.line(text);
    }
    transfer.run(context)
}

fn delete(args: &Args, surplus: bool) -> Delete {
    match (args.delete_all, surplus) {
        (true, _) => Delete::All,
        (false, true) => Delete::Surplus { last_source: None },
        (false, false) => Delete::Nothing,
    }
}

fn side(named: &str) -> Side {
    match named {
        HERE => Side::Here,
        named => Side::There(named.to_owned()),
    }
}

fn given(args: &Args) -> Result<Transfer> {
    let end = |named: &Option<String>| side(named.as_deref().unwrap_or_default());
    let (from, to) = (end(&args.from), end(&args.to));
    let mut transfer = Transfer::new(from, to, &args.refs, &args.how)?;
    transfer.request.delete = delete(args, args.delete);
    transfer.metrics_file.clone_from(&args.metrics_file);
    Ok(transfer)
}

fn configured(name: &Label, args: &Args, context: &Context) -> Result<Transfer> {
    let config = context.config();
    let job = config.job.get(name).ok_or_else(|| config.no_job(name))?;
    let how = How {
        versions: Some(args.how.versions.unwrap_or(job.versions)),
        bwlimit: args.how.bwlimit.or(job.bwlimit.map(|size| size.0)),
        verify: args.how.verify || job.verify,
        dry_run: args.how.dry_run,
    };
    let refs: Vec<OsString> = job.refs.iter().map(OsString::from).collect();
    for named in [&job.from, &job.to] {
        let is_word = !named.contains(['/', ':', '.']);
        if is_word && !["", HERE].contains(&named.as_str()) && config.cluster(named).is_none() {
            return Err(config.no_cluster(named).within(format!("job {name}")));
        }
    }
    let (from, to) = (side(&job.from), side(&job.to));
    let mut transfer = Transfer::new(from, to, &refs, &how)
        .map_err(|error| error.within(format!("job {name}")))?;
    transfer.request.delete = delete(args, args.delete || job.delete);
    transfer.metrics_file.clone_from(&args.metrics_file);
    transfer.profile.clone_from(&job.profile);
    transfer.job = Some(name.clone());
    Ok(transfer)
}
