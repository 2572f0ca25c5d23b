//! `store run`: runs a command with the caches of its project and its team, and saves them when it ends.
//!
//! Standard input, standard output and the terminal belong to the command. This program writes to standard error only.

mod advice;
mod astray;
mod caches;
mod child;
mod fallback;
mod kept;
mod left;
mod lies;
mod moved;
mod saver;
mod seed;
pub(crate) mod sentinel;

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use store::{Error, Reader, RefName, Result, Store};

use self::advice::{not_started, other_base};
use self::caches::Cache;
use self::child::{Asked, Signals};
use self::saver::Saver;
use crate::commands::cache::of_run::Compiles;
use crate::config::layouts::{Layout, Namespaces, Places};
use crate::context::Context;
use crate::context::pools::PoolArgs;
use crate::host::planted;
use crate::ui::{failure, home, human, names, remedy};

/// Run a command with the caches of its project, and save what it adds to them
///
/// The caches are trees of `project/P/cache` and `team/T/cache`. They are made, or brought to the newest version, where
/// the layout says, and the command finds them by environment variables. When the command ends they are saved, as by
/// `store save`: jobs that run at once all keep what they added. A new project begins with an empty cache, which the
/// first save makes.
///
/// The command has the terminal, standard input and standard output. Signals are passed on to it, and its exit code is
/// that of `store run`. A signal, or a terminal that goes away, does not stop the save that follows. A second signal
/// does; a second SIGHUP if it comes more than 10s after the first, since a shell repeats that of its terminal. If the
/// command succeeded but the project's cache could not be saved, the exit code is that of the save. If a team's cache
/// cannot be made, brought or saved, that is a warning. What could not be saved stays where it is and is on the list of
/// `store save --pending`; the next run in its place saves it. Each job needs a base of its own: as long as a run has
/// not ended, another one with the same base is refused.
///
/// With --seed REF, the command is a script that makes a ref, and it runs only if the ref does not exist. Of any number
/// that start at once, on any hosts, one runs the script and then publishes what the script left in the directory
/// $STORE_SEED_DIR; the others wait for that. One that dies, or is silent for --patience, is replaced. If the script
/// fails, it fails for all that waited for it. There are no caches then; --base says where the directory is made.
///
/// Layouts: `plain` has the caches in `project` and `team` below --base, and sets STORE_PROJECT_CACHE_DIR,
/// STORE_TEAM_CACHE_DIR, HF_HOME, HF_DATASETS_CACHE, NEURON_COMPILE_CACHE_URL, TORCHINDUCTOR_CACHE_DIR,
/// TRITON_CACHE_DIR and VLLM_CACHE_ROOT. `baseten` has them where that platform has them, below /root/.cache, and also
/// sets BT_PROJECT_CACHE_DIR, BT_TEAM_CACHE_DIR and BT_RW_CACHE_DIR; with `baseten-rw-project` the last one is the
/// project's cache. What compilers make there is kept entry by entry, in refs of the project: see `store help
/// compile-caches`. Other layouts are configured: see `store help job-caches`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The project whose cache it is
    #[arg(
        long,
        value_name = "P",
        value_parser = named,
        env = "STORE_PROJECT",
        hide_env_values = true,
        required_unless_present = "seed"
    )]
    project: Option<String>,

    /// Make this ref by a script, unless it exists: see above
    #[arg(long, value_name = "REF", conflicts_with_all = ["save_every", "require_local", "job"])]
    seed: Option<OsString>,

    /// How long a seeder may be silent before another one replaces it; at least 4s
    #[arg(long, value_name = "TIME", value_parser = human::parse_span, default_value = "30s")]
    patience: Duration,

    /// The team whose cache the command gets as well
    #[arg(long, value_name = "T", value_parser = named, env = "STORE_TEAM", hide_env_values = true)]
    team: Option<String>,

    /// The directory to make the caches in [default: that of the layout, or else `cache`]
    #[arg(long, value_name = "DIR", value_parser = home::path())]
    base: Option<PathBuf>,

    /// Where the caches are, and which variables name them
    #[arg(
        long,
        value_name = "NAME",
        default_value = "plain",
        value_parser = named,
        env = "STORE_LAYOUT",
        hide_env_values = true
    )]
    layout: String,

    /// The name of the job in the versions that it makes
    #[arg(long, value_name = "NAME")]
    job: Option<String>,

    /// Also save while the command runs, at this interval, like 10m
    #[arg(long, value_name = "TIME", value_parser = human::parse_rhythm)]
    save_every: Option<Duration>,

    /// How long a command that was asked to end may take before it is saved while it still runs
    #[arg(long, value_name = "TIME", value_parser = human::parse_span, default_value = "10s")]
    grace: Duration,

    /// Fail before the command starts if fewer bytes than this are free for the caches, like 50GB
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size, default_value = "0")]
    free: u64,

    /// Fail at once if the project's cache is not in this store, and say which cluster has it: all are asked, for 2 s
    #[arg(long, conflicts_with = "fallback")]
    require_local: bool,

    /// If a cache, the project's or the team's, is not in this store: the cluster to bring it from, or `empty`
    #[arg(long, value_name = "CLUSTER|empty", default_value = "empty")]
    fallback: String,

    #[command(flatten)]
    pool: PoolArgs,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A name that may come from a variable.
fn named(text: &str) -> Result<String, String> {
    match text {
        "" => Err(
            "expected a name, found nothing: set the variable that it comes from, or unset it"
                .to_owned(),
        ),
        text => Ok(text.to_owned()),
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    if let Some(target) = &args.seed {
        return seed::run(target, args, context);
    }
    let signals = Signals::catch()?;
    let layout = layout(args, context)?;
    let job = args.job.clone().unwrap_or_else(unnamed);
    if let Some(kind) = store::credentials_in(&job) {
        let message = format!("--job: holds what looks like {kind}");
        return Err(
            Error::invalid(message).hint("everybody can read it in the versions: use another name")
        );
    }
    let store = check_places(args, &layout, context)?;
    let base = base(args, &layout)?;
    let _held = hold(&base)?;
    let mut places = Places::new(&layout, &base, args.team.is_some(), &job);
    missing_links(&layout, &places, NOT_STARTED)?;
    let of = Namespaces {
        project: args.project.as_deref().unwrap_or_default(),
        team: args.team.as_deref(),
    };
    let mut compiles = Compiles::new(&layout, &places, of, context)?;
    let store = context.for_job(store)?;
    let mut reader = caches::newest(&store)?;
    let caches = caches_of(args, &layout, &places)?;
    let caches = prepare(&mut reader, args, caches, (&compiles, &job), context)?;
    // The job learns nothing of a team's cache that is missing.
    places.team = places.team.filter(|dir| dir.is_dir());
    make_links(&layout, &places)?;
    compiles.before(&reader);
    check_room(&base, args.free)?;
    let variables = layout.variables(&places);
    astray::warn(&variables, &caches, context);
    astray::note_overruled(&variables, context);

    let saver = Saver::new(context, &caches, &compiles, &job);
    let mut saving = saver.rhythm(args.save_every, args.grace);
    let began = Instant::now();
    let ended = child::run(&args.command, variables, &signals, &mut |asked| {
        saving.look(asked, began.elapsed())
    });
    saving.finish();
    let replaced = missing_links(&layout, &places, NOT_SAVED).map(drop);
    let saved = match ended.is_started {
        true => saver.last(&signals).and(replaced),
        false => {
            caches.iter().for_each(Cache::forget_unless_left);
            Ok(())
        }
    };
    compiles.after(&|| signals.asked() == Asked::Again);
    // The exit code is that of the command, whatever else failed.
    match (ended.code, saved, ended.error) {
        (0, saved, _) => return saved,
        (code, Ok(()), None) => context.end_with(code),
        (code, Ok(()), Some(error)) | (code, Err(error), None) => context.fail_with(code, error),
        (code, Err(unsaved), Some(error)) => {
            tell("warning", &unsaved, context);
            context.fail_with(code, error);
        }
    }
    Ok(())
}

/// Prints a failure that the exit code does not show, and what to do about it.
fn tell(what: &str, error: &Error, context: &Context) {
    let told = failure::one_line(error);
    context.out.warning(format_args!("{what}: {told}"));
    if let Some(remedy) = error.remedy() {
        let hint = remedy::words(remedy);
        context.out.warning(format_args!("hint: {hint}"));
    }
}

fn layout(args: &Args, context: &Context) -> Result<Layout> {
    let configured = &context.config().layout;
    let layout = configured.get(&args.layout).cloned();
    let layout = layout.or_else(|| Layout::shipped(&args.layout));
    let layout = layout.ok_or_else(|| {
        let mut known = vec!["plain", "baseten", "baseten-rw-project"];
        known.extend(configured.keys().map(String::as_str));
        Error::invalid(format!(
            "--layout {}: there is none of this name",
            args.layout
        ))
        .hint(format!("there are {}", known.join(", ")))
    })?;
    layout.check(&args.layout)?;
    Ok(layout)
}

fn named_base<'a>(args: &'a Args, layout: &'a Layout) -> &'a Path {
    let base = args.base.as_deref().or(layout.base.as_deref());
    base.unwrap_or(Path::new("cache"))
}

/// Checks the places of the caches before anything is made. Returns the store, if it exists.
fn check_places(args: &Args, layout: &Layout, context: &Context) -> Result<Option<Store>> {
    let base = named_base(args, layout);
    let places = Places::new(layout, base, args.team.is_some(), "");
    context.check_there()?;
    let store = context.open_if_made()?;
    let nowhere = match store {
        None => Some(context.nowhere()?),
        Some(_) => None,
    };
    if let Some(store) = store.as_ref().or(nowhere.as_ref()) {
        let caches = caches_of(args, layout, &places)?;
        caches
            .iter()
            .try_for_each(|cache| cache.check_place(store, context))?;
    }
    Ok(store)
}

/// Checks that directories may be made in the base, before anything is made.
fn check_base(args: &Args, context: &Context) -> Result<()> {
    let layout = layout(args, context)?;
    let base = named_base(args, &layout);
    let base = std::path::absolute(base).map_err(|source| Error::io("look at", base, source))?;
    if let Err(source) = base.symlink_metadata()
        && source.kind() == ErrorKind::PermissionDenied
    {
        return Err(not_started(Error::io("look at", &base, source)));
    }
    let within = base.join("seed-new");
    planted::check(&within).map_err(not_started)?;
    let store = context.open_for_dry_run()?;
    store::check_destination(&store, &crate::config::precious(), &within, Vec::new)
        .map_err(not_started)
}

/// Creates the base if it is missing, and resolves its path.
fn base(args: &Args, layout: &Layout) -> Result<PathBuf> {
    let base = named_base(args, layout);
    let hint = "name another directory with --base; the command was not started";
    let (base, _) = store::make_directories(base).map_err(|error| error.hint(hint))?;
    if base.to_str().is_none() {
        return Err(Error::invalid(format!(
            "{}: is not UTF-8, and variables of the command name directories in it",
            base.display()
        ))
        .hint(hint));
    }
    tempfile_in(&base)
        .map_err(|source| Error::io("write to the base", &base, source).hint(hint))?;
    Ok(base)
}

/// Locks the base against other runs while the descriptor is open. A file system without locks allows all runs.
fn hold(base: &Path) -> Result<File> {
    let dir = File::open(base).map_err(|source| Error::io("open the base", base, source))?;
    match dir.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Error::conflict(format!(
            "{}: another run has its caches there, and has not ended",
            base.display()
        ))
        .hint(other_base(", one for each job"))),
        _ => Ok(dir),
    }
}

/// Checks that enough bytes are free.
fn check_room(base: &Path, wanted: u64) -> Result<()> {
    let Some(free) = store::free_bytes(base)?.filter(|free| *free < wanted) else {
        return Ok(());
    };
    Err(Error::unavailable(format!(
        "{}: {} are free, expected {}",
        base.display(),
        human::bytes(free),
        human::bytes(wanted)
    ))
    .hint("the command was not started: make room, or name another directory with --base"))
}

/// Checks that files can be created.
fn tempfile_in(dir: &Path) -> std::io::Result<()> {
    // Nobody can guess its name, and put a link there.
    tempfile::Builder::new()
        .prefix(".store-run-")
        .tempfile_in(dir)?
        .close()
}

/// A name for an unnamed job: the host and the process id.
fn unnamed() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    format!("{host}-{}", std::process::id())
}

fn cache_of(kind: &str, name: &str) -> Result<RefName> {
    if name.contains('/') {
        return Err(Error::invalid(format!(
            "--{kind} {name}: expected a name, found a path"
        )));
    }
    names::name(std::ffi::OsStr::new(&format!("{kind}/{name}/cache")))
        .map_err(|error| error.within(format!("--{kind} {name}")))
}

/// Copies and makes the caches. A cache that is not needed and fails is skipped with a warning.
fn prepare(
    reader: &mut Reader<'_>,
    args: &Args,
    caches: Vec<Cache>,
    (compiles, job): (&Compiles<'_>, &str),
    context: &Context,
) -> Result<Vec<Cache>> {
    let is_new = caches.first().is_some_and(|cache| !cache.is_here(reader));
    let mut brought = Vec::new();
    for cache in caches {
        let is_required = args.require_local && cache.is_needed;
        let done = match cache.is_needed {
            true => Ok(()),
            false => cache.check_destination(reader.store(), context),
        };
        let fallback = (is_required, args.fallback.as_str());
        let done = done.and_then(|()| cache.bring_here(reader, fallback, context));
        brought.extend(unless_away(cache, done, context)?);
    }
    // A new project takes the compile caches of the fallback together with its cache.
    if is_new && args.fallback != fallback::EMPTY {
        let done = fallback::bring_compiles(&compiles.shipped(), reader, &args.fallback, context);
        if let Err(error) = done {
            let told = failure::one_line(&error);
            context.out.warning(format_args!(
                "warning: compile caches are not brought from {}: {told}",
                args.fallback
            ));
        }
    }
    if compiles.push_what_was_left(reader.store()) {
        *reader = caches::newest(reader.store())?;
    }
    let mut made = Vec::new();
    for mut cache in brought {
        let done = cache.prepare(reader, &args.pool, job, context);
        made.extend(unless_away(cache, done, context)?);
    }
    Ok(made)
}

/// The cache if `done` is fine; `None` if it failed and the command does not need it.
fn unless_away(cache: Cache, done: Result<()>, context: &Context) -> Result<Option<Cache>> {
    match done {
        Ok(()) => Ok(Some(cache)),
        Err(error) if cache.is_needed => Err(error),
        Err(error) => {
            let (name, dir) = (&cache.name, cache.dir.display());
            let told = failure::one_line(&error);
            context.out.warning(format_args!(
                "warning: {name}: {told}; the command goes on without it, and nothing of {dir} is saved"
            ));
            Ok(None)
        }
    }
}

/// The project's cache, and the team's if there is a team.
fn caches_of(args: &Args, layout: &Layout, places: &Places) -> Result<Vec<Cache>> {
    let own = layout.exclude.iter().cloned().chain(layout.apart());
    let project = Cache::new(
        cache_of("project", args.project.as_deref().unwrap_or_default())?,
        &places.project,
        true,
        own.collect(),
    );
    let team = match (&args.team, &places.team) {
        (Some(team), Some(dir)) => {
            let exclude = layout.exclude.clone();
            Some(Cache::new(cache_of("team", team)?, dir, false, exclude))
        }
        _ => None,
    };
    Ok([Some(project), team].into_iter().flatten().collect())
}

/// What to do about something in the place of a link, before the command and after it.
const NOT_STARTED: &str = "the command was not started, since what it writes there would not be saved: move that away, or name another directory with --base";
const NOT_SAVED: &str = "the command put it there, and it is not saved: move what is in it to where the link led, and the next run with this --base saves it";

/// The layout's symlinks that are not there yet, and their targets.
///
/// # Errors
/// Conflict with this hint, if something else is in the place of one: what the command writes there is not saved.
fn missing_links(
    layout: &Layout,
    places: &Places,
    hint: &'static str,
) -> Result<Vec<(PathBuf, String)>> {
    let mut missing = Vec::new();
    for (link, named) in &layout.links {
        let Some(target) = places.filled(named) else {
            continue;
        };
        // Without a slash at the end, which would lead to its target.
        let link: PathBuf = places.base.join(link).components().collect();
        let found = match link.symlink_metadata() {
            Err(source) if source.kind() == ErrorKind::NotFound => None,
            found => Some(found.map_err(|source| Error::io("look at", &link, source))?),
        };
        let found = match found {
            None => None,
            Some(found) if found.is_symlink() => match std::fs::read_link(&link) {
                Ok(there) if there == Path::new(&target) => continue,
                // Each job has a target of its own.
                Ok(_) if named.contains("{job}") => None,
                Ok(there) => Some(format!("a link to {}", there.display())),
                Err(source) => return Err(Error::io("read the link", &link, source)),
            },
            Some(found) if !found.is_dir() => Some("a file".to_owned()),
            // An empty directory gives way.
            Some(_) => std::fs::read_dir(&link)
                .map_err(|source| Error::io("read", &link, source))?
                .next()
                .map(|_| "a directory with files".to_owned()),
        };
        if let Some(found) = found {
            return Err(Error::conflict(format!(
                "{}: expected nothing or the layout's link to {target}, found {found}",
                link.display()
            ))
            .hint(hint));
        }
        missing.push((link, target));
    }
    Ok(missing)
}

/// Makes the layout's symlinks.
fn make_links(layout: &Layout, places: &Places) -> Result<()> {
    for (link, target) in missing_links(layout, places, NOT_STARTED)? {
        let failed = |source| Error::io("make the link", &link, source);
        if let Some(above) = link.parent() {
            std::fs::create_dir_all(above).map_err(failed)?;
        }
        std::fs::create_dir_all(&target).map_err(failed)?;
        let old = match link.is_symlink() {
            true => std::fs::remove_file(&link),
            false => std::fs::remove_dir(&link),
        };
        match old {
            Err(source) if source.kind() != ErrorKind::NotFound => return Err(failed(source)),
            _ => std::os::unix::fs::symlink(&target, &link).map_err(failed)?,
        }
    }
    Ok(())
}
