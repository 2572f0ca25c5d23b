//! `store run --seed`: if many hosts start the same script, one runs it, and the others wait for the ref that it makes.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use store::claims::{Beating, Claim, Claims, Look};
use store::{Ended, Error, ErrorKind, Id, Onto, PutRequest, RefName, Result, Store, Who};

use super::child::{self, Signals};
use super::{Args, base, check_base, check_room, layout};
use crate::commands::wait::{Newest, Pace};
use crate::context::Context;
use crate::ui::{failure, human, names};

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
}

/// The version that the ref has in the end.
struct Published {
    version: u64,
    id: Id,
    /// Whether this host's script made it.
    is_own: bool,
    left_out: Vec<(PathBuf, Error)>,
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
        loop {
            if let Some((version, id)) = newest.look()? {
                self.tell(version, id, false);
                return Ok(());
            }
            match claims.look(self.began.elapsed())? {
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
            if self.signals.is_asked() {
                return Err(Error::interrupted("stopped on request"));
            }
            pace.pause(None);
        }
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
        let left = self.check_left(dir.path());
        let is_empty = left.is_err();
        let published = left.and_then(|()| self.publish(dir.path()));
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
                self.keep(dir);
                return Err(error.within("not published"));
            }
        };
        let Published {
            version,
            id,
            is_own,
            left_out,
        } = published;
        if !left_out.is_empty() {
            for skipped in failure::skipped(left_out) {
                let error = skipped.error;
                self.context
                    .out
                    .warning(format_args!("warning: left out: {error}"));
            }
            self.keep(dir);
            self.context.end_with(failure::code(ErrorKind::Partial));
        }
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
        self.tell(version, id, is_own);
        Ok(())
    }

    /// Tells the others and the user that the script failed, and ends with its exit code.
    fn end_failed(&self, beating: Beating, ended: child::Ended, is_asked: bool) {
        let signal = signal_of(ended.code);
        let how = match is_asked || signal.is_some() {
            true => Ended::Left,
            false => Ended::failed(&format!("exit code {}", ended.code)),
        };
        self.end(beating, how);
        self.context.end_with(ended.code);
        let how = match signal {
            Some(signal) => format!("was ended by signal {signal}"),
            None => format!("failed with exit code {}", ended.code),
        };
        self.context.out.warning(format_args!(
            "error: {}: not made: the script {how}; nothing was published",
            self.target
        ));
        if let Some(error) = ended.error {
            let told = failure::one_line(&error);
            self.context.out.warning(format_args!("error: {told}"));
        }
    }

    /// An empty directory, which is removed after it was published.
    fn fresh(&self) -> Result<tempfile::TempDir> {
        let base = base(self.args, &layout(self.args, self.context)?)?;
        check_room(&base, self.args.free)?;
        tempfile::Builder::new()
            .prefix("seed-")
            .tempdir_in(&base)
            .map_err(|source| Error::io("make a directory in", base, source))
    }

    /// Keeps a directory that could not be published.
    fn keep(&self, dir: tempfile::TempDir) {
        let dir = dir.keep();
        let dir = dir.display();
        self.context
            .out
            .note(format_args!("note: what the script made is in {dir}"));
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
    fn publish(&self, dir: &Path) -> Result<Published> {
        // Signals were meant for the script; its result is still published.
        let store = self.context.open_until(std::sync::Arc::default())?;
        let mut request = PutRequest::new(dir, self.target.clone());
        request.onto = Onto::Only(0);
        request.message = format!(
            "made by {}",
            self.args.command.join(OsStr::new(" ")).display()
        );
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

    fn tell(&self, version: u64, id: Id, made: bool) {
        self.context.out.report_aside(&Report {
            target: self.target.clone(),
            version,
            id,
            made,
            secs: self.began.elapsed().as_secs_f64(),
        });
    }
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
