//! The outcome of `store save` for machines, and the messages to people.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use store::{Case, Error, Id, Note, PutReport, RefName, Remedy, Result, SaveReport};

use crate::context::Context;
use crate::ui::{failure, human, names, remedy};

/// The JSON form of the outcome.
#[derive(Serialize)]
pub(super) struct SaveOutcome {
    #[serde(rename = "ref")]
    pub(super) target: RefName,
    #[serde(serialize_with = "store::path_as_text")]
    pub(super) directory: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) directory_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<Id>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) private: bool,
    /// The newest version already had everything.
    pub(super) unchanged: bool,
    #[serde(flatten)]
    pub(super) saved: SaveReport,
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) read_bytes: u64,
    pub(super) new_bytes: u64,
    pub(super) stored_bytes: u64,
    pub(super) secs: f64,
    pub(super) skipped: Vec<failure::Skipped>,
    pub(super) notes: Vec<String>,
    /// The places of those that concern the work of others.
    #[serde(skip)]
    warnings: Vec<usize>,
    /// What to do about what was left out.
    #[serde(skip)]
    pub(super) about_skipped: Option<String>,
}

impl SaveOutcome {
    /// The outcome of a save of `dir`.
    pub(super) fn of(dir: &Path, target: RefName, done: PutReport, elapsed: Duration) -> Self {
        let again = format!(
            "store save {} {}",
            names::quoted_path(dir),
            names::quoted(target.as_str())
        );
        let warnings = done.notes.iter().enumerate();
        let warnings = warnings.filter(|(_, note)| note.is_warning);
        Self {
            target,
            directory: dir.to_path_buf(),
            directory_hex: names::hex(dir),
            version: done.version,
            id: done.id,
            private: done.private,
            unchanged: done.unchanged,
            saved: done.saved.unwrap_or_default(),
            files: done.files,
            bytes: done.bytes,
            read_bytes: done.read_bytes,
            new_bytes: done.new_bytes,
            stored_bytes: done.stored_bytes,
            secs: elapsed.as_secs_f64(),
            about_skipped: about_skipped(&done.skipped, &again),
            skipped: failure::skipped(done.skipped),
            warnings: warnings.map(|(at, _)| at).collect(),
            notes: done.notes.iter().map(note).collect(),
        }
    }

    /// Prints what people need to know, one line each.
    pub(super) fn tell(&self, context: &Context) {
        for (at, note) in self.notes.iter().enumerate() {
            match self.warnings.contains(&at) {
                true => context.out.warning(format_args!("warning: {note}")),
                false => context.out.note(format_args!("note: {note}")),
            }
        }
        for skipped in &self.skipped {
            context
                .out
                .warning(format_args!("skipped: {}", skipped.error));
        }
        self.tell_conflicts(context);
    }

    /// Prints the conflicts.
    pub(super) fn tell_conflicts(&self, context: &Context) {
        let before = self.saved.onto.unwrap_or_default();
        for conflict in &self.saved.clashes {
            let path = names::shown(&conflict.path);
            let told = match conflict.case {
                Case::BothChanged => {
                    format!("both changed it; yours is in the new version, theirs in @{before}")
                }
                Case::DeletedThere => {
                    format!("changed here, deleted in @{before}; yours is in the new version")
                }
                Case::DeletedHere => format!("deleted here, changed in @{before}; theirs stays"),
                Case::LinkedHere => {
                    format!("deleted in @{before}, and a new link here leads to it; it stays")
                }
                Case::LinkedThere => {
                    format!("deleted here, and a new link in @{before} leads to it; it stays")
                }
                Case::LinkLost => {
                    "one side has a new link to it, and the other something else in its place; the link leads nowhere"
                        .to_owned()
                }
                Case::ThereFirst => format!("@{before} had it first; theirs stays"),
            };
            context
                .out
                .warning(format_args!("conflict: {path}: {told}"));
        }
    }

    /// Whether all changes in the directory are in the new version.
    pub(super) fn result(&self) -> Result<()> {
        let kept = self.saved.clashes.iter();
        let kept = kept.filter(|one| matches!(one.case, Case::DeletedHere | Case::LinkedThere));
        let mut parts = Vec::new();
        match self.skipped.len() as u64 {
            0 => {}
            count => parts.push(format!("{} left out", human::counted(count, "path"))),
        }
        match kept.count() as u64 {
            0 => {}
            count => parts.push(format!("{} not deleted", human::counted(count, "path"))),
        }
        match parts.is_empty() {
            true => Ok(()),
            false => {
                let error = Error::partial(format!("{}: {}", self.target, parts.join(", ")));
                Err(match &self.about_skipped {
                    Some(hint) => error.hint(hint.clone()),
                    None => error,
                })
            }
        }
    }
}

/// The text of a put's note. Some advice does not apply to saves and is dropped.
fn note(note: &Note) -> String {
    match note.remedy {
        Some(
            Remedy::KeepAbsoluteLinks
            | Remedy::LetOthersRead
            | Remedy::TakeClasses { .. }
            | Remedy::NoProfile,
        ) => note.text.clone(),
        Some(Remedy::TakeWhatLinksLeadTo) => format!(
            "{}; a `store materialize` of it needs --allow-outside-symlinks from now on",
            note.text
        ),
        _ => remedy::note(note),
    }
}

/// The save that includes what was left out.
fn about_skipped(skipped: &[(PathBuf, Error)], again: &str) -> Option<String> {
    let mut remedies = skipped.iter().filter_map(|(_, error)| error.remedy());
    remedies.find_map(|remedy| match remedy {
        Remedy::AllowSecret { glob } => Some(format!(
            "what looks like credentials stays where it is; if it holds none, `{again} --allow-secret {}` takes it",
            names::quoted(glob)
        )),
        Remedy::TakeWrittenThrough => Some(format!(
            "`store materialize` there gets back what the pool made; `{again} --take-written-through` takes what was written"
        )),
        Remedy::MaterializeExactly => Some(format!(
            "`store materialize --exact` there removes what the ref does not have, and puts the tree right; if it is a job's, `{again} --base N` \
             saves it, N being the version that the tree was made from"
        )),
        Remedy::Unmount => Some(remedy::words(&Remedy::Unmount).into_owned()),
        _ => None,
    })
}
