//! `store watch`: publishes the checkpoints of a training job as versions of a ref, as soon as they are finished.

mod before;
mod floor;
mod gone;
mod publisher;
mod report;
mod title;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use store::{Error, NotYet, Result, StepRule, Steps, StepsSeen, Time, Unfinished};

use self::floor::Floor;
use self::publisher::{How, Publisher};
use crate::commands::wait;
use crate::context::Context;
use crate::host::priority;
use crate::ui::{human, names};

/// How long a checkpoint with a marker must be unchanged, since other ranks may still write.
const QUIET: Duration = Duration::from_secs(1);
/// The same if files were written after the marker.
const LATE: Duration = Duration::from_secs(5);
/// The same if a published checkpoint was rewritten in part.
const REWRITTEN: Duration = Duration::from_secs(300);
/// How often to look into finished checkpoints even if they seem unchanged from outside.
const INTO: Duration = Duration::from_secs(60);
/// The longest delay until a signal is noticed.
const NAP: Duration = Duration::from_millis(50);

/// Publish the checkpoints of a training job as they are finished
///
/// Every directory in DIR is a checkpoint. When a checkpoint is finished, it becomes a new version of REF, which stores
/// only what earlier versions lack; the version's message names it. So REF (or REF@latest) is the checkpoint that was
/// finished last. DIR is only read. If DIR does not exist yet, the command waits until the training makes it.
///
/// A checkpoint is finished when its writer says so: transformers (trainer_state.json in checkpoint-N), DeepSpeed
/// (`latest` names global_stepN), Megatron (latest_checkpointed_iteration.txt says N of iter_N),
/// torch.distributed.checkpoint (.metadata), Orbax (renamed from *.orbax-checkpoint-tmp*, with its metadata); or by
/// --done. If the writer is unknown, --settled says after how long without a change a checkpoint counts as finished.
/// Its writer may have died, so a checkpoint with truncated tensor files is kept out all the same. A checkpoint that
/// changes while it is read is not published, and is looked at again. If a marker is older than another file of its
/// checkpoint, as when a rewrite was broken off, the checkpoint is not published until there is a newer marker or
/// --settled is over. A second is allowed for clocks of several hosts; not for files on this host that were written
/// again, or with --done. Other ranks of transformers may write after the marker, so it must stand still for 5 seconds.
/// If a published checkpoint is written again in place, it counts when all of its files were written, or when nothing
/// has changed for --settled, or 5 minutes. So does a new one whose files came after its marker with older times, as by
/// `rsync -a`. A checkpoint without files is never published.
///
/// Each checkpoint becomes a version once, even if its content is that of the one before. A checkpoint whose times
/// alone changed does not become a version again, even if its version was dropped, also while no watch ran. A
/// checkpoint that got more files does. A checkpoint that is older than the newest published one is never published, so REF never goes back: if a name
/// is that of the newest with a larger number at its end, it is later, whatever its times say. Times in the future are
/// ignored. A checkpoint with what looks like credentials is kept out and named. What is not published is named, with
/// --json in lines of its own.
///
/// The command runs until a signal asks it to end, or its terminal goes away, unless `nohup` started it. Then it
/// publishes what is finished (how long something was unchanged is then told by the times of its files), names what is not, and exits with 6 if there is any such. When it is started again, it
/// continues from what the store has. If the store cannot be reached, it tries again; at the start only one that this
/// host knows, and not with --once. A second signal ends it at once;
/// a second SIGHUP if it comes more than 10s after the first.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory that the job writes its checkpoints to
    dir: PathBuf,

    /// The ref that gets a version for each
    #[arg(value_name = "REF")]
    target: OsString,

    /// A checkpoint is finished when it has this file, whoever writes it
    #[arg(long, value_name = "FILE")]
    done: Option<PathBuf>,

    /// A checkpoint of an unknown writer is finished when nothing in it has changed for this long, like 5m; with --once,
    /// by the times of its files
    #[arg(long, value_name = "TIME", value_parser = human::parse_span)]
    settled: Option<Duration>,

    /// Drop all but the newest N versions that were published from checkpoints, also at the start; pinned ones stay
    #[arg(long, value_name = "N", value_parser = human::parse_versions)]
    keep: Option<usize>,

    /// How often to look
    #[arg(long, value_name = "TIME", value_parser = human::parse_span, default_value = "5s")]
    every: Duration,

    /// Publish what is finished now, and exit
    #[arg(long)]
    once: bool,

    /// Take what matches even if it seems to hold credentials; may be given several times
    #[arg(long, value_name = "GLOB")]
    allow_secret: Vec<String>,

    /// Publish a checkpoint only if this many bytes stay free after it on the store's disk, like 50GB
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size, default_value = "0")]
    free: u64,

    /// Write at most this many bytes per second, like 200M; 0 is no limit
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size, default_value = "0")]
    bwlimit: u64,

    /// The niceness to run at, so that the job comes first, from 0 to 19
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=19), default_value_t = 19)]
    nice: i32,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    if let Err(error) = priority::stand_back(args.nice) {
        context
            .out
            .warning(format_args!("warning: --nice {}: {error}", args.nice));
    }
    let target = names::name_after("watch", args.dir.as_os_str(), &args.target)?;
    let open = || {
        context.open_for_job()?;
        // A signal does not stop a publication that is under way.
        context.open_until(Arc::new(AtomicBool::new(false)))
    };
    let store = match args.once {
        true => open()?,
        false => wait::opened(open, None, context)?,
    };
    let floor = Floor::of(&store, args.free)?;
    let store = store::limited(store, args.bwlimit);
    let Some(dir) = found(args, context)? else {
        return Ok(());
    };
    check_dir(&dir, args)?;
    let rule = StepRule {
        done: args.done.clone(),
        settled: args.settled,
        quiet: QUIET,
        late: LATE,
        rewritten: REWRITTEN,
    };
    let mut steps = Steps::new(&dir, rule.clone());
    let how = How {
        dir: dir.clone(),
        rule,
        keep: args.keep,
        floor,
        allow_secret: args.allow_secret.clone(),
    };
    let mut publisher = Publisher::new(context, &store, &target, how)?;
    let began = Instant::now();
    let asked = || context.stop().load(Ordering::Relaxed);
    let mut looked_into = began;
    while !asked() && !args.once {
        if looked_into.elapsed() >= INTO {
            looked_into = Instant::now();
            steps.wake();
        }
        steps.published(publisher.ages());
        match steps.look(began.elapsed()) {
            Ok(seen) => publisher.publish(&seen, false),
            Err(error) => publisher.warn(&error),
        }
        let next = Instant::now() + args.every.max(NAP);
        while !asked() && Instant::now() < next {
            std::thread::sleep(NAP);
        }
    }
    steps.wake();
    steps.published(publisher.ages());
    let seen = last_look(&mut steps, began, args, context)?;
    publisher.publish(&seen, true);
    let outcome = publisher.outcome(&seen);
    outcome.map_err(|error| error.within(format!("{}: not all is published", dir.display())))
}

/// Looks at least twice, and waits a little for files that are written after a marker. Nothing is waited for that takes
/// longer, so the times of files tell how long they have been unchanged.
fn last_look(
    steps: &mut Steps,
    began: Instant,
    args: &Args,
    context: &Context,
) -> Result<StepsSeen> {
    let asked = || context.stop().load(Ordering::Relaxed);
    let is_asked = asked();
    let mut look = || {
        let (secs, nanos) = since_epoch();
        steps.trust_times(Time { secs, nanos });
        steps.look(began.elapsed())
    };
    look()?;
    let short = args.settled.filter(|_| args.once).unwrap_or(QUIET);
    std::thread::sleep(short.clamp(QUIET, LATE));
    let mut seen = look()?;
    let end = Instant::now() + LATE + QUIET;
    let is_late = |one: &Unfinished| one.why == NotYet::Late;
    // A signal ends the wait of a watch that only looks once.
    while (is_asked || !asked()) && Instant::now() < end && seen.unfinished.iter().any(is_late) {
        std::thread::sleep(QUIET);
        seen = look()?;
    }
    Ok(seen)
}

/// Seconds and nanoseconds since 1970.
fn since_epoch() -> (i64, u32) {
    let now = jiff::Timestamp::now();
    (now.as_second(), now.subsec_nanosecond().unsigned_abs())
}

/// Refuses a checkpoint as the directory of checkpoints: nothing in it would ever be published.
fn check_dir(dir: &Path, args: &Args) -> Result<()> {
    if args.done.is_some() || !Steps::is_step(dir) {
        return Ok(());
    }
    let (shown, above) = (dir.display(), dir.parent().unwrap_or(dir).display());
    Err(Error::invalid(format!(
        "{shown}: is a checkpoint itself, expected the directory that has checkpoints in it"
    ))
    .hint(format!(
        "watch {above}; `store put {} {}` puts this one alone; if its parts are checkpoints, --done names the file that each of them has",
        names::quoted(&shown),
        names::quoted(&names::shown(args.target.as_encoded_bytes()))
    )))
}

/// The directory, which the training may create later; `None` if a signal ended the wait.
fn found(args: &Args, context: &Context) -> Result<Option<PathBuf>> {
    let mut is_told = args.once;
    loop {
        match args.dir.canonicalize() {
            Ok(dir) => return Ok(Some(dir)),
            Err(source) if args.once || source.kind() != ErrorKind::NotFound => {
                return Err(Error::io("open", &args.dir, source));
            }
            Err(_) => {}
        }
        if context.stop().load(Ordering::Relaxed) {
            return Ok(None);
        }
        if !is_told {
            let dir = args.dir.display();
            let out = &context.out;
            out.note(format_args!("note: waits until there is {dir}"));
            is_told = true;
        }
        std::thread::sleep(NAP);
    }
}
