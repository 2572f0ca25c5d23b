//! `store materialize`: makes a tree of hard links from a ref.

use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use store::Damage;
use store::materialize::{Kept, Plan};
use store::{Error, Keep, LinkMode, MaterializeReport, MaterializeRequest, Pool, Result};

use crate::context::Context;
use crate::context::pools::{self, PoolArgs};
use crate::ui::progress::Watch;
use crate::ui::{human, names, remedy};

/// How often to check whether a held tree is still needed.
const LOOK: Duration = Duration::from_millis(100);

/// Make a tree of hard links from the host's pool, in the time it takes to make links
///
/// Files that the pool lacks are fetched once, however many processes want them. A new DEST appears whole. A DEST that
/// was made before is brought to the newest version of the ref, file by file. What a job added, changed or deleted
/// there stays; if the version has something else at such a path, the path is named and the command exits with 6.
///
/// If you are in an empty DEST, it is filled from the inside, step by step. If something is mounted on DEST, it is
/// refused, because the pool would have to lie on the same mount and so inside DEST: name a directory in it, or use
/// `store get`. Trees of more than 4,096 nested directories are refused; `store get` has no such limit. Linked files
/// are read-only and shared: do not write to them, not even as root. Files up to --copy-below are private copies.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A ref, like project/llama-ft/imagenet, project/llama-ft/imagenet@3 or project/llama-ft/imagenet:train
    #[arg(value_name = "REF[@N][:PATH]")]
    source: OsString,

    /// Where to make the tree
    #[arg(required_unless_present = "prefetch")]
    dest: Option<PathBuf>,

    /// Make only what matches a glob like `*.safetensors` or `train/**`; may be given several times
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,

    /// Leave out what matches; may be given several times
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,

    /// How files get into the tree; `auto` takes the first of the others that the system supports
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = PossibleValuesParser::new(["auto", "hardlink", "reflink", "copy"]).try_map(|name| name.parse::<LinkMode>()))]
    link_mode: LinkMode,

    /// Make private, writable copies of files up to this size
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size, default_value = "16KiB")]
    copy_below: u64,

    /// Make DEST exactly what the ref has: restore what a job changed or deleted, and remove what it added; what is lost
    /// by that is named first
    #[arg(long)]
    exact: bool,

    /// Take over a DEST that this command did not make, or replace what a job changed or deleted in one that it made;
    /// what is there is counted first. Refused for a store, a pool, a home, the directory that you are in, and for a
    /// single file if DEST is a directory that is not empty
    #[arg(long)]
    force: bool,

    /// Print the steps that would be taken, without taking them; the exit code is that of the run
    #[arg(long, short = 'n', conflicts_with_all = ["prefetch", "ephemeral"])]
    dry_run: bool,

    /// Replace symlinks by what they lead to, so that a snapshot of a hub cache becomes real files
    #[arg(long)]
    flatten: bool,

    /// Also write symlinks that lead out of DEST
    #[arg(long)]
    allow_outside_symlinks: bool,

    /// Let others read DEST, as the umask says. If the version was put from files that only their owner could read,
    /// DEST is for you alone (0700) without this option
    #[arg(long)]
    readable: bool,

    /// Only fill the pool, so that a later run only makes links
    #[arg(long, conflicts_with_all = ["dest", "ephemeral"])]
    prefetch: bool,

    /// Read the files of the pool before they are used, and fetch those again whose bytes are not what was stored
    #[arg(long)]
    verify: bool,

    /// Keep running, and remove DEST at the end: when a pipe on standard input is closed, the parent process is gone, or
    /// a signal arrives. If this process is killed, the next command that uses the pool removes DEST; from another container or
    /// host, an hour must have passed. A DEST that was there before and was meant to stay is refused
    #[arg(long)]
    ephemeral: bool,

    /// Refused, with the reason
    #[arg(long, value_name = "WHAT", hide = true, value_parser = super::keep::of_links)]
    keep: Vec<Keep>,

    #[command(flatten)]
    pool: PoolArgs,
}

/// The JSON form of the report.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    done: MaterializeReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_hex: Option<String>,
    #[serde(serialize_with = "store::path_as_text")]
    pool: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool_hex: Option<String>,
    notes: Vec<String>,
    secs: f64,
}

/// The plan of a dry run.
struct Planned(Plan);

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let dest = args.dest.as_ref().map(|dest| dest.as_os_str());
    let spec = names::spec_before("materialize", &args.source, dest)?;
    let dest = args.dest.as_deref().map(spelled_out).transpose()?;
    let store = context.open()?;
    let precious = crate::config::precious();
    if let Some(dest) = &dest {
        // Searching for a pool creates test links beside the destination, so the destination is checked first.
        let pools = || pools::that_exist(&args.pool, dest, &context.config().pool);
        store::check_destination(&store, &precious, dest, pools)?;
    }
    let pool = pools::open(&args.pool, context, dest.as_deref())?;
    if args.verify {
        pool.verify_before_use();
    }
    let request = MaterializeRequest {
        spec,
        destination: dest,
        link_mode: args.link_mode,
        copy_below_bytes: args.copy_below,
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        exact: args.exact,
        force: args.force,
        flatten: args.flatten,
        ephemeral: args.ephemeral,
        allow_outside_symlinks: args.allow_outside_symlinks,
        is_begun: false,
        readable: args.readable,
        precious,
    };
    let watch = Watch::new(&context.global);
    if args.dry_run {
        let plan = store::materialize::plan(&store, &pool, &request, &watch)?;
        drop(watch);
        context.out.notes(&plan.report.notes);
        let outcome = outcome(&plan.report);
        context.out.answer(&Planned(plan))?;
        return outcome;
    }
    let done = store::materialize(&store, &pool, &request, &watch)?;
    let elapsed = watch.elapsed();
    drop(watch);
    context.out.notes(&done.notes);
    done.damaged
        .iter()
        .for_each(|damage| context.out.warning(told(damage)));
    done.conflicting
        .iter()
        .for_each(|kept| context.out.warning(format_args!("kept: {}", named(kept))));
    let destination = done.destination.clone();
    let outcome = outcome(&done);
    context.out.report(&report(done, &pool, elapsed))?;
    if let Some(destination) = destination.filter(|_| args.ephemeral) {
        context.out.finish()?;
        hold(context);
        pool.remove_held(&destination)?;
    }
    outcome
}

/// Fails if the tree differs from the version, apart from files that a job added.
fn outcome(done: &MaterializeReport) -> Result<()> {
    if done.conflicts == 0 {
        return Ok(());
    }
    let mut paths: Vec<String> = done.conflicting.iter().take(3).map(named).collect();
    if done.conflicts > 3 {
        paths.push(format!("{} more", human::count(done.conflicts - 3)));
    }
    Err(Error::partial(format!(
        "{}: {} kept as a job left it: {}",
        done.destination
            .as_deref()
            .map_or_else(String::new, |path| names::shown(
                path.as_os_str().as_bytes()
            )),
        human::counted(done.conflicts, "path"),
        paths.join("; ")
    ))
    .hint(
        "take the version's with --force; with --exact, what the version does not have goes, too",
    ))
}

fn named(kept: &Kept) -> String {
    let path = kept.path.as_os_str().as_bytes();
    let path = if path.is_empty() { b"." } else { path };
    format!("{}: {}", names::shown(path), kept.why)
}

/// What happened to a pool file, for people.
pub(crate) fn told(damage: &Damage) -> String {
    let mut text = format!(
        "warning: pool file {} is not as it was made (its bytes, mode or time) and is set aside as {}",
        damage.file,
        damage.set_aside.display()
    );
    for path in &damage.shared_with {
        text += &format!(
            "\n  it was also {}: materialize that tree again",
            path.display()
        );
    }
    text
}

/// Resolves a directory without a name of its own, like `.`.
fn spelled_out(dest: &Path) -> Result<PathBuf> {
    match dest.file_name() {
        Some(_) => Ok(dest.to_path_buf()),
        None => dest
            .canonicalize()
            .map_err(|source| Error::io("look at", dest, source)),
    }
}

/// Waits until the held tree is not needed any more.
fn hold(context: &Context) {
    let ended = Arc::new(AtomicBool::new(false));
    if standard_input_can_end() {
        let ended = Arc::clone(&ended);
        std::thread::spawn(move || {
            let mut rest = [0; 4096];
            while matches!(std::io::stdin().read(&mut rest), Ok(1..)) {}
            ended.store(true, Ordering::Relaxed);
        });
    }
    let parent = rustix::process::getppid();
    while !(ended.load(Ordering::Relaxed)
        || context.stop().load(Ordering::Relaxed)
        || rustix::process::getppid() != parent)
    {
        std::thread::sleep(LOOK);
    }
}

/// Whether the end of standard input means something. `/dev/null` is always at its end.
fn standard_input_can_end() -> bool {
    let null = std::fs::metadata("/dev/null").map(|null| null.rdev());
    std::fs::metadata("/dev/stdin").is_ok_and(|input| {
        !(input.file_type().is_char_device() && null.is_ok_and(|null| null == input.rdev()))
    })
}

fn report(done: MaterializeReport, pool: &Pool, elapsed: Duration) -> Report {
    Report {
        destination_hex: done.destination.as_deref().and_then(names::hex),
        pool: pool.path().into(),
        pool_hex: names::hex(pool.path()),
        notes: done.notes.iter().map(remedy::note).collect(),
        secs: elapsed.as_secs_f64(),
        done,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}@{}: {}, {}; {} linked, {} reflinked, {} copied, {} updated, {} removed, {} kept, {} fetched ({}), {} not copied, in {}",
            self.done.name,
            self.done.version,
            human::counted(self.done.files, "file"),
            human::bytes(self.done.bytes),
            human::count(self.done.linked),
            human::count(self.done.reflinked),
            human::count(self.done.copied),
            human::count(self.done.updated),
            human::count(self.done.removed),
            human::count(self.done.kept),
            human::count(self.done.fetched),
            human::bytes(self.done.fetched_bytes),
            human::bytes(self.done.shared_bytes),
            human::duration(Duration::from_secs_f64(self.secs)),
        )
    }
}

impl Serialize for Planned {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        /// A step and its path.
        #[derive(Serialize)]
        struct Line<'s> {
            #[serde(flatten)]
            path: names::Path,
            #[serde(flatten)]
            step: &'s store::materialize::Step,
        }
        /// Serializes the steps one by one, since there may be many.
        struct Steps<'p>(&'p Plan);
        impl Serialize for Steps<'_> {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                use serde::ser::{Error as _, SerializeSeq};
                let mut list = out.serialize_seq(None)?;
                let mut failed = None;
                let told = self.0.each(&mut |path, step| {
                    let path = names::Path::new(path);
                    failed = list.serialize_element(&Line { path, step }).err();
                    match failed {
                        None => Ok(()),
                        Some(_) => Err(Error::invalid("plan: cannot be written")),
                    }
                });
                match (failed, told) {
                    (Some(failed), _) => Err(failed),
                    (None, Err(error)) => Err(S::Error::custom(error)),
                    (None, Ok(())) => list.end(),
                }
            }
        }
        use serde::ser::SerializeStruct;
        let report = &self.0.report;
        let mut all = out.serialize_struct("Planned", 9)?;
        all.serialize_field("ref", &report.name)?;
        all.serialize_field("version", &report.version)?;
        all.serialize_field("dry_run", &true)?;
        all.serialize_field("unchanged", &report.unchanged)?;
        all.serialize_field("kept", &report.kept)?;
        all.serialize_field("conflicts", &report.conflicts)?;
        if let Some(replaced) = &report.replaced {
            all.serialize_field("replaced", replaced)?;
        }
        if !report.overruled.is_nothing() {
            all.serialize_field("overruled", &report.overruled)?;
        }
        all.serialize_field("steps", &Steps(&self.0))?;
        all.end()
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.0.each(&mut |path, step| {
            let path = if path.is_empty() { b"." } else { path };
            let why = step.why.map_or_else(String::new, |why| format!(": {why}"));
            writeln!(out, "{step} {}{why}", names::shown(path))
                .map_err(|_| Error::invalid("plan: cannot be written"))
        });
        told.map_err(|_| fmt::Error)?;
        let report = &self.0.report;
        let overruled = &report.overruled;
        if !overruled.is_nothing() {
            let first = overruled.first.iter().map(|gone| &*gone.path);
            writeln!(
                out,
                "{} ({}) of these {}: {}",
                human::counted(overruled.files, "file"),
                human::bytes(overruled.bytes),
                match report.replaced {
                    None => "a job changed or added",
                    Some(_) => "this command did not make",
                },
                names::some(overruled.files, first)
            )?;
        }
        write!(
            out,
            "{}@{}: {} unchanged, {} kept; nothing was done",
            report.name,
            report.version,
            human::count(report.unchanged),
            human::count(report.kept)
        )
    }
}
