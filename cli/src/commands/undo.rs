//! `store undo`: restores the versions that were dropped last.

use std::ffi::OsString;
use std::fmt;

use serde::Serialize;
use store::replicate::{UndoReport, undo};
use store::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::ui::progress::Watch;
use crate::ui::{failure, human, names};

/// Bring back what the last `rm` dropped
///
/// This works as long as the bytes are there: until a `store gc` runs after the `rm` and its --grace is over. What
/// comes back has the same ids and new numbers, since a number is never used twice. A ref's newest version stays the
/// newest. WHAT selects the last drop of that. What a rule dropped (`policy`, `watch --keep`, `--delete` of a
/// duplication) comes back only if it is named. Where an `rm` took paths of a ref, it dropped no version: `store rm`
/// of the version that it made takes that back.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to bring back [default: whatever the last `rm` dropped]
    #[arg(value_name = "REF[@N]|NAMESPACE")]
    what: Option<OsString>,

    /// Show what would come back, without bringing it back
    #[arg(long, short = 'n')]
    dry_run: bool,
}

/// The JSON form of the report.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    done: UndoReport,
    failed: Vec<Failed>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

#[derive(Serialize)]
struct Failed {
    #[serde(rename = "ref")]
    name: String,
    from_version: u64,
    error: String,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let what = args.what.as_ref().map(|what| names::target(what));
    let store = context.open()?;
    let watch = Watch::new(&context.global);
    let what = what.transpose()?;
    let done = undo(&store, what.as_ref(), args.dry_run, &watch)?;
    drop(watch);
    let ended = ended(&done);
    context.out.report(&report(done, args.dry_run))?;
    ended
}

/// The error that the report amounts to, if any. Where all that failed is lost, nobody can bring it back but who has
/// the files.
fn ended(done: &UndoReport) -> Result<()> {
    if done.failed.is_empty() {
        return Ok(());
    }
    let versions = human::counted(done.failed.len() as u64, "version");
    let text = format!("{versions} did not come back");
    let mut errors = done.failed.iter().map(|(.., error)| error);
    let remedy = errors.clone().find_map(|error| error.remedy().cloned());
    let error = match errors.all(|error| error.kind() == ErrorKind::Corrupt) {
        true => Error::corrupt(text),
        false => Error::partial(text),
    };
    Err(match remedy {
        Some(remedy) => error.hint(remedy),
        None => error,
    })
}

fn report(mut done: UndoReport, dry_run: bool) -> Report {
    let failed = std::mem::take(&mut done.failed).into_iter();
    let failed = failed.map(|(name, from, error)| Failed {
        name: name.to_string(),
        from_version: from,
        error: failure::one_line(&error),
    });
    Report {
        failed: failed.collect(),
        done,
        dry_run,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "dropped by {} on {} at {}",
            self.done.user,
            self.done.host,
            human::time(self.done.time)
        )?;
        for one in &self.done.restored {
            let (name, from) = (&one.name, one.from);
            match one.to {
                None => write!(out, "\n{name}@{from} would come back")?,
                Some(version) if one.on_top => {
                    write!(out, "\n{name}@{from} stays the newest, as @{version}")?;
                }
                Some(version) => write!(out, "\n{name}@{from} is back, as @{version}")?,
            }
        }
        for (name, number) in &self.done.there {
            write!(out, "\n{name}@{number} is there by its content")?;
        }
        if let (true, Some((name, _))) = (self.done.restored.is_empty(), self.done.there.first()) {
            let named = names::quoted(&format!("{name}@N"));
            write!(
                out,
                "\nwhat was dropped before that comes back by its number: `store undo {named}`"
            )?;
        }
        self.failed.iter().try_for_each(|failed| {
            let (name, from) = (&failed.name, failed.from_version);
            write!(out, "\n{name}@{from} is not back: {}", failed.error)
        })
    }
}
