//! `store pool status|evict|verify`: the size of the host's pool, and whether it is sound.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::Serialize;
use store::{Error, Pool, Result};
use store::{EvictReport, MadeTree, PoolUsage, PoolVerifyReport};

use super::materialize::told;
use crate::context::Context;
use crate::context::pools::{self, PoolArgs};
use crate::ui::failure;
use crate::ui::human;
use crate::ui::names;
use crate::ui::progress::Watch;

/// Manage the pool of this host: the whole files that trees link to
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Show what the pool takes, and what deleting would give back
    Status(Which),
    /// Remove files that no tree shares, the least recently used first
    ///
    /// Without --to and --free, files are removed until the pool's limits hold. Files that were set aside are removed
    /// in any case. Files that trees share are never removed: that would give nothing back.
    Evict(Evict),
    /// Read every file, and set aside those that somebody has written to
    ///
    /// This also finds what a comparison of sizes and times misses. The exit code is 4 if anything was found.
    Verify(Which),
}

#[derive(clap::Args)]
struct Which {
    /// The pool that `materialize` would use for this destination
    #[arg(long, value_name = "DEST")]
    r#for: Option<PathBuf>,

    #[command(flatten)]
    pool: PoolArgs,
}

#[derive(clap::Args)]
struct Evict {
    #[command(flatten)]
    which: Which,

    /// Stop when the pool takes at most this; 0 removes all files that no tree shares
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size)]
    to: Option<u64>,

    /// Stop when the file system has this much free space
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size)]
    free: Option<u64>,
}

#[derive(Serialize)]
struct Status {
    #[serde(serialize_with = "store::path_as_text")]
    pool: PathBuf,
    #[serde(flatten)]
    usage: PoolUsage,
    trees: Vec<Tree>,
}

/// A tree that was made with links into the pool.
#[derive(Serialize)]
struct Tree {
    #[serde(flatten)]
    path: names::Path,
    source: String,
    version: u64,
    settled: bool,
}

impl From<MadeTree> for Tree {
    fn from(tree: MadeTree) -> Self {
        Self {
            path: names::Path::new(tree.path.as_os_str().as_bytes()),
            source: tree.source,
            version: tree.version,
            settled: tree.is_settled,
        }
    }
}

#[derive(Serialize)]
struct Evicted(EvictReport);

#[derive(Serialize)]
struct Verified(PoolVerifyReport);

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    match &args.verb {
        Verb::Status(which) => status(which, context),
        Verb::Evict(args) => evict(args, context),
        Verb::Verify(which) => verify(which, context),
    }
}

fn open(which: &Which, context: &Context) -> Result<Pool> {
    let destination = which.r#for.as_deref();
    pools::open(&which.pool, context, destination)
}

/// Sweeps the pool, and reports the trees of dead processes that could not be removed.
fn sweep(pool: &Pool, context: &Context) -> Result<()> {
    let kept = pool.sweep()?;
    kept.iter().for_each(|kept| {
        context
            .out
            .warning(format_args!("warning: {}", failure::one_line(kept)));
    });
    Ok(())
}

fn status(which: &Which, context: &Context) -> Result<()> {
    let pool = open(which, context)?;
    sweep(&pool, context)?;
    context.out.answer(&Status {
        pool: pool.path().into(),
        usage: pool.usage()?,
        trees: pool.trees()?.into_iter().map(Tree::from).collect(),
    })
}

fn evict(args: &Evict, context: &Context) -> Result<()> {
    let pool = open(&args.which, context)?;
    sweep(&pool, context)?;
    context
        .out
        .report(&Evicted(pool.evict(args.to, args.free)?))
}

fn verify(which: &Which, context: &Context) -> Result<()> {
    let pool = open(which, context)?;
    sweep(&pool, context)?;
    let watch = Watch::new(&context.global);
    let report = pool.verify(&watch)?;
    drop(watch);
    report
        .damaged
        .iter()
        .for_each(|damage| context.out.warning(told(damage)));
    let found = report.damaged.len();
    context.out.report(&Verified(report))?;
    if found == 0 {
        return Ok(());
    }
    context.out.finish()?;
    Err(Error::corrupt(format!(
        "pool {}: {} changed or rotten",
        store::shown(pool.path().as_os_str().as_encoded_bytes()),
        human::counted(found as u64, "file")
    ))
    .hint("somebody wrote to them, or changed their mode or time, through a tree that links them, or the disk lost bytes; \
         they are set aside: materialize the trees that share them again"))
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usage = &self.usage;
        writeln!(
            out,
            "pool {}: {}, {}",
            store::shown(self.pool.as_os_str().as_encoded_bytes()),
            human::counted(usage.files, "file"),
            human::bytes(usage.bytes)
        )?;
        writeln!(
            out,
            "  evicting gives back {} ({} that no tree shares)",
            human::bytes(usage.unlinked_bytes + usage.damaged_bytes),
            human::counted(usage.unlinked_files, "file")
        )?;
        writeln!(
            out,
            "  held by trees: {} ({}); delete the trees first",
            human::bytes(usage.linked_bytes),
            human::counted(usage.linked_files, "file")
        )?;
        if usage.damaged_files > 0 {
            writeln!(
                out,
                "  set aside because somebody wrote to them: {}",
                human::counted(usage.damaged_files, "file")
            )?;
        }
        write!(
            out,
            "  free on its file system: {}",
            usage
                .free_bytes
                .map_or_else(|| "unknown".into(), |free| human::bytes(free).to_string())
        )?;
        for tree in &self.trees {
            write!(
                out,
                "\n  {} is {} (version {})",
                tree.path, tree.source, tree.version
            )?;
            if !tree.settled {
                write!(out, ", not settled: materialize it again")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Evicted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} evicted, {} given back",
            human::counted(self.0.files, "file"),
            human::bytes(self.0.bytes)
        )
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} read, {}; {} set aside",
            human::counted(self.0.files, "file"),
            human::bytes(self.0.bytes),
            human::counted(self.0.damaged.len() as u64, "file")
        )?;
        if self.0.lost > 0 {
            write!(
                out,
                "; {} lost in a power cut and removed",
                human::counted(self.0.lost, "small file")
            )?;
        }
        Ok(())
    }
}
