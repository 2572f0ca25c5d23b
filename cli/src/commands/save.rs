//! `store save`: merges the changes in a directory into its ref.

mod forget;
mod left_out;
mod outcome;
mod shown;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use store::{
    Ancestor, Counts, Error, ErrorKind, Onto, ProfileChoice, Progress, PutReport, PutRequest,
    RefName, Remedy, Result, Store, View,
};

use crate::commands::cache::unpushed;
use crate::commands::reach::{self, is_out_of_reach, out_of_reach};
use crate::config;
use crate::context::{Context, pools};
use crate::host::apart;
use crate::host::pending::Pending;
use crate::host::place::Held;
use crate::ui::progress::Watch;
use crate::ui::{failure, human, names, remedy};

use outcome::SaveOutcome;

/// Merge what changed in a directory into its ref, as a new version
///
/// `put` replaces the newest version; `save` adds to it what was added, changed and deleted in DIR since DIR was made.
/// So any number of jobs may start from one version and save at once: each makes a version, and keeps what it did. What
/// others changed meanwhile is in the new version too. DIR itself stays as it is.
///
/// If others changed a path that you changed, yours is in the new version, and theirs is in the one before. If you
/// deleted it, theirs stays. Both cases are reported, and are in the version's message. A directory of yours wins over
/// a file of theirs.
///
/// It is known which version DIR was made from if `materialize` or `run` made DIR here, or if it was saved here before;
/// for other directories, give --base. The first save to a ref that does not exist makes the ref. Files that are still
/// the pool's links, or unchanged since they were last read, are not read. Pipes, sockets, what looks like credentials,
/// and files that cannot be read or that change meanwhile are left out and named, and the exit code is 6. It is also 6
/// if something that you deleted stays because others had changed it. Symbolic links are kept as links; those that lead
/// out of DIR are kept too, and named.
///
/// If the store cannot be reached, DIR is kept on the list of `store save --pending`, which saves everything on the
/// list. What runs could not save is on it, too, and what they or `store cache push` could not push. --dry-run shows it.
/// A directory that is not there, as when its volume is not mounted, stays on the list, is named, and the exit code is 6;
/// --forget takes it off.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory
    #[arg(required_unless_present_any = ["pending", "forget"])]
    dir: Option<PathBuf>,

    /// The ref [default: the one that DIR was last saved to, or else made from]
    #[arg(value_name = "REF")]
    target: Option<OsString>,

    /// Save all directories whose save failed because their store could not be reached, and push what could not be pushed
    #[arg(long, conflicts_with_all = ["dir", "base"])]
    pending: bool,

    /// Take DIR, and what is below it, off the list without saving it, as when it was deleted for good
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dir", "base", "pending"])]
    forget: Option<PathBuf>,

    #[command(flatten)]
    how: How,
}

/// How to save.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct How {
    /// The version of the ref that DIR was made from; 0: none, so that DIR only adds and changes
    #[arg(long, value_name = "N", value_parser = human::parse_version)]
    base: Option<u64>,

    /// Leave out what matches, as in .gitignore; what the ref has of it stays; may be given several times
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,

    /// Do everything but write, and show what would be new
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// What to say about the version
    #[arg(long, short, value_name = "TEXT", default_value = "")]
    message: String,

    /// Save DIR even if nothing is left in it
    #[arg(long)]
    allow_empty: bool,

    /// Take files as they are, even if somebody wrote to them through a link that other trees share
    #[arg(long)]
    take_written_through: bool,

    /// What to take the tree for: a Hugging Face cache, plain files, or whichever it looks like
    #[arg(long, default_value = "auto", value_parser = PossibleValuesParser::new(["auto", "hf", "none"]).try_map(|name| name.parse::<ProfileChoice>()))]
    profile: ProfileChoice,

    /// Take what matches even if it seems to hold credentials; may be given several times
    #[arg(long, value_name = "GLOB")]
    allow_secret: Vec<String>,

    /// What the run leaves out that left the directory unsaved.
    #[arg(skip)]
    apart: Vec<String>,

    /// Device and inode of the directory on the list, whatever comes to its path.
    #[arg(skip)]
    identity: Option<(u64, u64)>,

    /// The version that it is of, if this host knows nothing of it; 0: of nothing.
    #[arg(skip)]
    of_version: Option<u64>,
}

impl How {
    /// Whether a save from the list would do the same: the list stores only a directory and a ref.
    fn is_remembered(&self) -> bool {
        let plain = [&self.exclude, &self.allow_secret];
        self.base.is_none() && plain.iter().all(|globs| globs.is_empty()) && !self.allow_empty
    }

    /// Takes the job and its excluded files from an entry of the list.
    fn of(&self, noted: &Pending) -> Self {
        let mut how = self.clone();
        if !noted.exclude().is_empty() {
            how.apart = noted.exclude().to_vec();
        }
        if how.message.is_empty() {
            how.message = noted.message().unwrap_or_default();
        }
        how
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    if let Some(dir) = &args.forget {
        return forget::forget(dir, args.how.dry_run, context);
    }
    let Some(dir) = &args.dir else {
        return pending(&args.how, context);
    };
    if let Err(source) = dir.metadata() {
        let error = Error::io("open", dir, source);
        return Err(
            error.hint("name the directory first and its ref second: `store save DIR [REF]`")
        );
    }
    let target = args.target.as_ref().map(|name| names::name(name));
    save(dir, target.transpose()?, &args.how, context)
}

/// Saves a directory and reports. If the store cannot be reached, puts the directory on the list.
pub(crate) fn save(
    dir: &Path,
    target: Option<RefName>,
    how: &How,
    context: &Context,
) -> Result<()> {
    let url = context.store_url()?;
    let noted = |target: Option<&RefName>| {
        let noted = Pending::new(config::state_dir(), dir, (&url, target))?;
        // An existing entry also knows the job, and the files that it excludes.
        let written = noted.written();
        Some(written.unwrap_or_else(|| noted.only_to(context.known_id())))
    };
    let how = &match noted(target.as_ref()) {
        Some(noted) => how.of(&noted),
        None => how.clone(),
    };
    match attempt(dir, target.as_ref(), how, context) {
        Err(error) if !how.dry_run && is_out_of_reach(&error, dir, context) => {
            let error = out_of_reach(error).within("not saved");
            let when = reach::when(&error);
            let advice = error
                .remedy()
                .map(|remedy| format!("{}; ", remedy::words(remedy)));
            let advice = advice.unwrap_or_default();
            if !how.is_remembered() {
                return Err(error.hint(format!(
                    "{advice}{} is as it was; run this again {when}: the list of `store save --pending` \
                     keeps neither --base nor --exclude nor --allow-empty nor --allow-secret",
                    dir.display()
                )));
            }
            let noted = noted(target.as_ref());
            let Some(noted) = noted.filter(|noted| noted.write_by_hand().is_ok()) else {
                return Err(error);
            };
            Err(error.hint(format!(
                "{advice}{} is as it was; `store save --pending` saves it {when}",
                noted.directory().display()
            )))
        }
        Err(error) => Err(error),
        Ok(saved) => {
            let unnamed = noted(None).filter(|_| saved.is_usual);
            let settled = [noted(Some(&saved.target)), unnamed];
            let settled = settled.into_iter().flatten().filter(|_| !how.dry_run);
            let others: Vec<bool> = settled.map(|noted| noted.remove_saved()).collect();
            if others.contains(&true) && how.identity.is_none() {
                let quoted = names::quoted_path(dir);
                context.out.note(format_args!(
                    "note: {}: another directory of this path is still to be saved: `store save --pending` names it, and \
                     `store save --forget {quoted}` gives it up",
                    dir.display()
                ));
            }
            saved.outcome
        }
    }
}

/// A completed save.
struct Saved {
    target: RefName,
    /// Whether the directory is saved to this ref if no ref is named.
    is_usual: bool,
    /// Whether everything was saved and reported.
    outcome: Result<()>,
}

/// Saves the directories on the list for this store.
fn pending(how: &How, context: &Context) -> Result<()> {
    let url = context.store_url()?;
    let mut all = Pending::all(config::state_dir())?;
    // A run that only compiled has nothing to save. Its entry only says which ref the directory belongs to.
    all.retain(|noted| match noted.compiles() {
        None if noted.is_in_place() => !apart::is_all(noted.directory(), noted.exclude()),
        None => !noted.is_past(),
        Some(compiles) => unpushed::is_any(noted, compiles),
    });
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|noted| noted.store() == url);
    for noted in &elsewhere {
        let (directory, store) = (noted.directory().display(), noted.store());
        context.out.note(format_args!(
            "note: {directory} is to be saved to another store: --store {store}"
        ));
    }
    let unreadable = Pending::unreadable(config::state_dir());
    if here.is_empty() && unreadable.is_empty() {
        context
            .out
            .note(format_args!("nothing is to be saved to {url}"));
    }
    // The files were meant for an existing store, so no new one is created in its place.
    let store = match here.is_empty() {
        true => None,
        false => Some(context.open().map_err(out_of_reach)?),
    };
    let count = (here.len() + unreadable.len()) as u64;
    let told = |file: &PathBuf| {
        let file = file.display();
        format!(
            "{file}: cannot be read, so what it stands for is not known; delete it if no directory is missing"
        )
    };
    let mut failed: Vec<String> = unreadable.iter().map(told).collect();
    for noted in here {
        if !noted.directory().exists() {
            failed.push(forget::missing(noted.directory()));
            continue;
        }
        let is_for_it = store.as_ref().map_or(Ok(()), |store| noted.check(store));
        let outcome = is_for_it.and_then(|()| settle(noted, how, context));
        failed.extend(outcome.err().map(|error| failure::advised(&error)));
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Error::partial(format!(
            "{} of {} not saved, or not all of it",
            human::count(failed.len() as u64),
            human::counted(count, "directory")
        ))
        .list(failed.iter().map(|told| context.out.named(told)))),
    }
}

/// Saves or pushes an entry of the list.
fn settle(noted: Pending, how: &How, context: &Context) -> Result<()> {
    if let Some(compiles) = noted.compiles().cloned() {
        return unpushed::push(noted, &compiles, how.dry_run, context);
    }
    let held = noted.hold()?;
    let how = How {
        identity: held.identity(),
        of_version: noted.base(),
        ..how.of(&noted)
    };
    let target = noted.target().map(|name| names::name(OsStr::new(name)));
    let saved = save(noted.directory(), target.transpose()?, &how, context);
    let is_saved = |error: &Error| error.kind() == ErrorKind::Partial;
    if !how.dry_run && saved.as_ref().err().is_none_or(is_saved) {
        // Its path may lead elsewhere by now, which is the one that was saved.
        noted.remove_saved();
    }
    let is_unknown = |error: &Error| error.remedy() == Some(&Remedy::NameBase);
    saved.map_err(
        |error| match noted.by_hand().filter(|_| is_unknown(&error)) {
            Some(by_hand) => error.hint(by_hand),
            None => error,
        },
    )
}

/// If nothing is known of a directory because a pool cannot be used, says so instead of asking for what the pool knows.
fn of_unusable(error: Error, dir: &Path, context: &Context) -> Error {
    let is_unknown = matches!(
        error.remedy(),
        Some(Remedy::NameBase | Remedy::NameRefToSave)
    );
    let cause = pools::unusable(dir, &context.config().pool).filter(|_| is_unknown);
    match cause {
        Some(cause) => error.hint(format!(
            "a pool that may know it cannot be used: {}",
            failure::one_line(&cause)
        )),
        None => error,
    }
}

fn attempt(dir: &Path, target: Option<&RefName>, how: &How, context: &Context) -> Result<Saved> {
    let pools = pools::of_source(dir, &context.config().pool);
    let store = match how.dry_run {
        true => context.open_for_dry_run()?,
        // A known directory was saved to an existing store, so no new one is created.
        false if target.is_none() => context.open().map_err(out_of_reach)?,
        false => context.open_for_job()?,
    };
    let unknown = |error| of_unusable(error, dir, context);
    let usual = store::saved_to(&store, &pools, dir).map_err(unknown);
    let is_usual = target.is_none_or(|target| usual.as_ref().map_or(true, |usual| usual == target));
    let target = target.cloned().map_or(usual, Ok)?;
    let url = context.store_url()?;
    let left = Pending::new(config::state_dir(), dir, (&url, Some(&target)));
    let mut how = how.clone();
    if let Some(left) = left.as_ref().filter(|_| how.apart.is_empty()) {
        // A run made the directory, and leaves out what is worthless when it is half done.
        how.apart = left.left_out();
    }
    let mut request = request(dir, target.clone(), &how);
    request.pools = pools;
    let base = match how.identity {
        Some(_) => how.of_version,
        None => left.and_then(|left| left.here()?.base()),
    };
    if let Some(base) = base.filter(|_| how.base.is_none()) {
        // The same ancestor as in the save of the run.
        request.onto = Onto::Merge(Ancestor::KnownOr(base));
    }
    let watch = Watch::new(&context.global);
    let done = put_or_nothing(&store, &request, &watch, None).map_err(unknown)?;
    let elapsed = watch.elapsed();
    drop(watch);
    let apart = match how.apart.is_empty() {
        true => Vec::new(),
        false => left_out::notes(&done.excluded),
    };
    let mut report = SaveOutcome::of(dir, target.clone(), done, elapsed);
    report.notes.extend(apart);
    context.out.name_in(&mut report.notes);
    report.tell(context);
    let told = context.out.report(&report);
    Ok(Saved {
        target,
        is_usual,
        outcome: told.and_then(|()| report.result()),
    })
}

/// Returns what a put would do, without writing anything.
pub(crate) fn tried(
    store: &Store,
    request: &PutRequest,
    progress: &dyn Progress,
) -> Result<PutReport> {
    let request = PutRequest {
        dry_run: true,
        ..request.clone()
    };
    store::put(store, &request, progress)
}

/// Saves a directory. Without the right to write, succeeds if there is nothing to save, since nothing is lost then.
pub(crate) fn put_or_nothing(
    store: &Store,
    request: &PutRequest,
    progress: &dyn Progress,
    view: Option<View>,
) -> Result<PutReport> {
    let denied = match store::put_after(store, request, progress, view) {
        Err(error) if failure::is_for_want_of_rights(&error) => error,
        done => return done,
    };
    let is_nothing = |done: &PutReport| {
        let saved = done.saved.as_ref();
        let is_same =
            saved.is_some_and(|saved| saved.clashed == 0 && saved.counts == Counts::default());
        is_same && done.skipped.is_empty()
    };
    match tried(store, request, progress) {
        Ok(done) if is_nothing(&done) => Ok(done),
        _ => Err(denied),
    }
}

/// The request for a cache of `store run`. `base` is the version that the directory is of if this host knows nothing of
/// it; 0: of nothing.
pub(crate) fn of_run(
    dir: &Path,
    target: &RefName,
    (exclude, base): (&[String], Option<u64>),
    (held, message): (&Held, String),
    context: &Context,
) -> PutRequest {
    let how = How {
        exclude: exclude.to_vec(),
        message,
        identity: held.identity(),
        ..How::default()
    };
    let mut request = request(dir, target.clone(), &how);
    if let Some(base) = base {
        request.onto = Onto::Merge(Ancestor::KnownOr(base));
    }
    request.may_leave_out_all = true;
    request.pools = pools::of_source(dir, &context.config().pool);
    request
}

/// Reports a save of a run on standard error, since standard output is the command's. What the layout leaves out is named
/// once, after the last save.
pub(crate) fn tell_of_run(
    dir: &Path,
    target: &RefName,
    (done, is_last): (PutReport, bool),
    elapsed: Duration,
    context: &Context,
) -> Result<()> {
    let apart = is_last.then(|| left_out::notes(&done.excluded));
    let mut report = SaveOutcome::of(dir, target.clone(), done, elapsed);
    report.notes.extend(apart.unwrap_or_default());
    context.out.name_in(&mut report.notes);
    report.tell(context);
    context.out.report_aside(&report);
    report.result()
}

/// Names what is left out of a directory that holds nothing else.
pub(crate) fn tell_apart(dir: &Path, exclude: &[String], context: &Context) {
    for note in left_out::notes(&apart::all(dir, exclude)) {
        context.out.note(format_args!("note: {note}"));
    }
}

/// Reports the save of an earlier run's files: conflicts to people, everything to machines.
pub(crate) fn tell_of_left(
    dir: &Path,
    target: &RefName,
    done: PutReport,
    elapsed: Duration,
    context: &Context,
) {
    let is_news = !done.unchanged || done.saved.as_ref().is_some_and(|saved| saved.clashed > 0);
    let report = SaveOutcome::of(dir, target.clone(), done, elapsed);
    report.tell_conflicts(context);
    if is_news && context.out.is_json() {
        context.out.report_aside(&report);
    }
}

fn request(dir: &Path, target: RefName, how: &How) -> PutRequest {
    let known = how.base.map_or(Ancestor::Known, Ancestor::Version);
    let mut request = PutRequest::save(dir, target);
    request.identity = how.identity;
    request.onto = Onto::Merge(known);
    request.exclude = [&how.exclude[..], &how.apart].concat();
    // What somebody names on the command line may be mistyped; what a layout leaves out may be all there is.
    request.may_leave_out_all = how.exclude.is_empty();
    request.dry_run = how.dry_run;
    request.message.clone_from(&how.message);
    request.allow_empty = how.allow_empty;
    request.take_written_through = how.take_written_through;
    request.profile.choice = how.profile;
    request.profile.allow_secret.clone_from(&how.allow_secret);
    let token = std::env::var_os("HF_TOKEN_PATH").map(PathBuf::from);
    request.profile.secret_paths = token.into_iter().collect();
    // A cache in use may be inconsistent, and a part of it is worth keeping. What is not the bytes of its name is left
    // out: a download that is under way has another name.
    request.profile.check = false;
    request.links.allow_empty = true;
    request
}
