//! `store run --seed`: if many hosts start the same script, one runs it, and the others wait for the ref that it makes.

mod dir;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use store::claims::{Beating, Claim, Claims, Look};
use store::{Ended, Error, ErrorKind, Id, Onto, PutRequest, RefName, Result, Store, Who};

use self::dir::SeedDir;
use super::child::{self, Signals};
use super::{Args, base, check_base, check_room, layout};
use crate::commands::wait::{self, Newest, Pace};
use crate::context::Context;
use crate::ui::{failure, human, names, remedy};

/// Names the directory for the script's result.
const VARIABLE: &str = "STORE_SEED_DIR";
/// A signal that ended the script, and the number of the last one: the exit code is their sum.
const SIGNALLED: u8 = 128;
const SIGNALS: u8 = 64;

/// The JSON form of the report.
#[derive(Serialize)]
struct Report {
    #[serde(rename = "ref")]
    target: RefName,
    version: u64,
    id: Id,
    /// Whether the script ran on this host.
    made: bool,
    secs: f64,
    /// What is worth knowing, like what was left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// The version that the ref has in the end.
struct Published {
    version: u64,
    id: Id,
    /// Whether this host's script made it.
    is_own: bool,
    left_out: Vec<(PathBuf, Error)>,
    /// Whether something is not in it that may be nowhere else.
    has_missed: bool,
    notes: Vec<String>,
}

/// What a look at the store finds.
enum Found {
    /// The version that the ref has.
    Made(u64, Id),
    /// No version; who may make it.
    Claim(Look),
}

/// A process that wants the ref.
struct Seeder<'s> {
    target: &'s RefName,
    args: &'s Args,
    context: &'s Context,
    signals: &'s Signals,
    began: Instant,
}

pub(super) fn run(target: &OsStr, args: &Args, context: &Context) -> Result<()> {
    let signals = Signals::catch()?;
    let target = names::name(target)?;
    if args.patience < Beating::PATIENCE_MIN {
        return Err(Error::invalid(format!(
            "--patience: {} is too short to tell a slow seeder from a dead one, expected at least {}",
            human::duration(args.patience),
            human::duration(Beating::PATIENCE_MIN)
        )));
    }
    check_base(args, context)?;
    let store = context.open_for_job()?;
    Seeder {
        target: &target,
        args,
        context,
        signals: &signals,
        began: Instant::now(),
    }
    .wait_or_make(&store)
}

impl Seeder<'_> {
    fn wait_or_make(&self, store: &Store) -> Result<()> {
        let mut newest = Newest::new(store, self.target);
        let mut claims = Claims::new(store, &format!("seed {}", self.target), self.args.patience)?;
        let mut pace = Pace::default();
        let mut waits_for: Option<Who> = None;
        let mut away = None;
        loop {
            let looked = newest.look().and_then(|found| match found {
                Some((version, id)) => Ok(Found::Made(version, id)),
                None => claims.look(self.began.elapsed()).map(Found::Claim),
            });
            let look = match self.patiently(looked, &mut away)? {
                Some(Found::Claim(look)) => look,
                Some(Found::Made(version, id)) => {
                    self.tell(version, id, false, Vec::new());
                    return Ok(());
                }
                None => {
                    self.pause(&mut pace)?;
                    continue;
                }
            };
            match look {
                Look::Mine(claim) => match newest.look()? {
                    // Another host made it between the two checks.
                    Some(_) => claim.end(Ended::Done)?,
                    None => return self.make(claim),
                },
                Look::Failed { who, said } => {
                    return Err(Error::unavailable(format!(
                        "{}: not made: the script that ran on {} failed: {said}",
                        self.target, who.host
                    ))
                    .hint("see what it said there; a new start tries it again"));
                }
                Look::Held { who } if waits_for.as_ref() != Some(&who) => {
                    self.context.out.note(format_args!(
                        "note: {} on {} makes {}",
                        who.user, who.host, self.target
                    ));
                    waits_for = Some(who);
                }
                Look::Held { .. } => {}
            }
            self.pause(&mut pace)?;
        }
    }

    /// Returns nothing while the store is away, until that has lasted as long as the patience with a seeder.
    fn patiently<T>(&self, looked: Result<T>, away: &mut Option<Instant>) -> Result<Option<T>> {
        let error = match looked {
            Ok(found) => {
                *away = None;
                return Ok(Some(found));
            }
            Err(error) => error,
        };
        let is_first = away.is_none();
        let since = away.get_or_insert_with(Instant::now).elapsed();
        if error.kind() != ErrorKind::Unavailable || since >= self.args.patience {
            return Err(error);
        }
        if is_first {
            wait::warn(&error, self.context);
        }
        Ok(None)
    }

    fn pause(&self, pace: &mut Pace) -> Result<()> {
        if self.signals.is_asked() {
            return Err(Error::interrupted("stopped on request"));
        }
        pace.pause(None);
        Ok(())
    }

    /// Runs the script and publishes its result.
    fn make(&self, claim: Claim) -> Result<()> {
        let beating = claim.beating();
        let dir = match self.fresh() {
            Ok(dir) => dir,
            Err(error) => {
                self.end(beating, Ended::Left);
                return Err(error);
            }
        };
        let variable = (VARIABLE.to_owned(), dir.path().display().to_string());
        let mut is_asked = false;
        let ended = child::run(&self.args.command, [variable], self.signals, &mut |asked| {
            is_asked |= asked.is_some();
        });
        if ended.code != 0 {
            self.end_failed(beating, ended, is_asked);
            return Ok(());
        }
        let left = dir.check().and_then(|()| self.check_left(dir.path()));
        let is_empty = left.is_err();
        let published = left.and_then(|()| self.publish(&dir));
        let how = match &published {
            Ok(_) => Ended::Done,
            Err(error) if is_empty || is_for_all(error) => Ended::failed(&failure::one_line(error)),
            Err(_) => Ended::Left,
        };
        let is_lost = beating.is_lost();
        self.end(beating, how);
        let published = match published {
            Ok(published) => published,
            Err(error) => {
                let whole = (!is_empty).then_some(self.target);
                return Err(kept(error.within("not published"), dir, whole));
            }
        };
        let Published {
            version,
            id,
            is_own,
            left_out,
            has_missed,
            notes,
        } = published;
        if is_lost || !is_own {
            self.context.out.note(format_args!(
                "note: {}: another one was taken to make it meanwhile; {}",
                self.target,
                if is_own {
                    "this one came first"
                } else {
                    "theirs came first and is kept"
                }
            ));
        }
        self.tell(version, id, is_own, notes);
        if !has_missed {
            return Ok(());
        }
        let error = Error::partial(format!(
            "{}@{version}: not all that the script made is in it",
            self.target
        ));
        let skipped = failure::skipped(left_out).into_iter();
        let skipped = skipped.map(|skipped| format!("left out: {}", skipped.error));
        Err(kept(error.list(skipped), dir, None))
    }

    /// Tells the others and the user that the script failed, and ends with its exit code.
    fn end_failed(&self, beating: Beating, ended: child::Ended, is_asked: bool) {
        let signal = signal_of(ended.code);
        let how = match is_asked || signal.is_some() {
            true => Ended::Left,
            false => Ended::failed(&format!("exit code {}", ended.code)),
        };
        self.end(beating, how);
        let how = match signal {
            Some(signal) => format!("was ended by signal {signal}"),
            None => format!("failed with exit code {}", ended.code),
        };
        let error = Error::unavailable(format!(
            "{}: not made: the script {how}; nothing was published",
            self.target
        ));
        let error = match ended.error {
            Some(cause) => error.because(cause),
            None => error,
        };
        self.context.fail_with(ended.code, error);
    }

    /// An empty directory, which is removed after it was published.
    fn fresh(&self) -> Result<SeedDir> {
        let base = base(self.args, &layout(self.args, self.context)?)?;
        check_room(&base, self.args.free)?;
        SeedDir::new(&base)
    }

    /// Checks that the script left any files.
    fn check_left(&self, dir: &Path) -> Result<()> {
        match std::fs::read_dir(dir).is_ok_and(|mut names| names.next().is_none()) {
            false => Ok(()),
            true => Err(Error::unavailable(format!(
                "{}: not made: the script left nothing in ${VARIABLE}",
                self.target
            ))
            .hint("it has to write what the ref shall hold into that directory")),
        }
    }

    /// Publishes the result. Returns the version that the ref has in the end.
    fn publish(&self, dir: &SeedDir) -> Result<Published> {
        // Signals were meant for the script; its result is still published.
        let store = self.context.open_until(std::sync::Arc::default())?;
        let mut request = PutRequest::new(dir.path(), self.target.clone());
        request.identity = Some(dir.identity());
        request.onto = Onto::Only(0);
        request.message = made_by(&self.args.command);
        let token = std::env::var_os("HF_TOKEN_PATH").map(PathBuf::from);
        request.profile.secret_paths = token.into_iter().collect();
        // As in a save, secrets and unreadable files are left out and named.
        request.profile.leave_out_secrets = true;
        request.skip_unreadable = true;
        request.needs_files = true;
        let done = match store::put(&store, &request, &store::Unwatched) {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                // If two hosts finish, the results are equally valid.
                return match Newest::new(&store, self.target).look()? {
                    Some((version, id)) => Ok(Published {
                        version,
                        id,
                        is_own: false,
                        left_out: Vec::new(),
                        has_missed: false,
                        notes: Vec::new(),
                    }),
                    None => Err(error),
                };
            }
            done => done?,
        };
        match (done.version, done.id) {
            (Some(version), Some(id)) => Ok(Published {
                version,
                id,
                is_own: true,
                left_out: done.skipped,
                has_missed: done.has_missed,
                notes: done.notes.iter().map(remedy::note).collect(),
            }),
            _ => Err(Error::conflict(format!("{}: has no version", self.target))),
        }
    }

    fn end(&self, beating: Beating, how: Ended) {
        if let Err(error) = beating.end(how) {
            let told = failure::one_line(&error);
            self.context.out.warning(format_args!(
                "warning: {told}; others wait for a while for nothing"
            ));
        }
    }

    fn tell(&self, version: u64, id: Id, made: bool, notes: Vec<String>) {
        for note in &notes {
            self.context.out.note(format_args!("note: {note}"));
        }
        self.context.out.report_aside(&Report {
            target: self.target.clone(),
            version,
            id,
            made,
            secs: self.began.elapsed().as_secs_f64(),
            notes,
        });
    }
}

/// The error of a directory that is kept, since not all of it was published: none of it, if `target` is given.
fn kept(error: Error, dir: SeedDir, target: Option<&RefName>) -> Error {
    // Nobody misses an empty directory.
    if std::fs::read_dir(dir.path()).is_ok_and(|mut entries| entries.next().is_none()) {
        return error;
    }
    let Some(dir) = dir.keep() else {
        return error;
    };
    let advice = error.remedy().map(remedy::words);
    let advice = advice
        .map(|advice| format!("{advice}; "))
        .unwrap_or_default();
    let dir = dir.display().to_string();
    let quoted = names::quoted(&dir);
    let how = target.map(|target| {
        let target = names::quoted(target);
        match error.kind() {
            // All of it looks like credentials.
            ErrorKind::Partial => format!(
                "; if it holds no credentials, `store put --base 0 --allow-secrets {quoted} {target}` publishes it"
            ),
            _ => format!(": `store put --base 0 --skip-unreadable {quoted} {target}` publishes it"),
        }
    });
    let how = how.unwrap_or_default();
    error.hint(format!("{advice}what the script made is in {dir}{how}"))
}

/// The signal that ended a script, if one did; 255, with which many scripts fail, is none.
fn signal_of(code: u8) -> Option<u8> {
    let signal = code.checked_sub(SIGNALLED)?;
    (1..=SIGNALS).contains(&signal).then_some(signal)
}

/// Whether other hosts would fail with the same error.
fn is_for_all(error: &Error) -> bool {
    !matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::Io | ErrorKind::Interrupted
    )
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = names::id(Some(&self.id));
        let how = match self.made {
            true => "made",
            false => "is there",
        };
        let secs = human::duration(Duration::from_secs_f64(self.secs));
        write!(out, "{}@{}{id} {how} in {secs}", self.target, self.version)
    }
}

/// The message of the version: the command, or only its program if its arguments hold credentials.
fn made_by(command: &[OsString]) -> String {
    let whole = format!("made by {}", command.join(OsStr::new(" ")).display());
    match store::credentials_in(&whole) {
        None => whole,
        Some(_) => format!(
            "made by {}",
            command.first().unwrap_or(&OsString::new()).display()
        ),
    }
}
