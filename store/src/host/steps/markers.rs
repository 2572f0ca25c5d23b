//! Markers: files by which training frameworks declare a step finished.
//!
//! | written by | steps | finished when |
//! |---|---|---|
//! | transformers | `checkpoint-N` | `trainer_state.json` in it is whole, the last file of rank 0 |
//! | DeepSpeed | `global_stepN` | `latest` beside it names it |
//! | Megatron | `iter_NNNNNNN`, `global_step_N` | `latest_checkpointed_iteration.txt` beside it says N |
//! | torch.distributed.checkpoint | any | `.metadata` in it is a whole pickle, renamed in last by the coordinator |
//! | Orbax | any | renamed from `*.orbax-checkpoint-tmp*`; `_CHECKPOINT_METADATA` or `commit_success.txt` in it |
//!
//! A marker beside the steps names one of them, and over time later ones. A step that it has passed is finished, too,
//! if it has a whole `.metadata` and all of it was written before the marker.

use std::ffi::OsStr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::unfinished::NotYet;
use super::{number, text};
use crate::format::Time;
use crate::fs::open_regular;
use crate::host::walk::Stat;

/// What the files of a step say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its writer declares it finished.
    Finished,
    /// Its writer would declare it finished, but has not.
    Unfinished,
    /// Its writer declares a later one finished.
    Passed,
    /// Nothing is known of its writer.
    Unknown,
}

/// The file that declares a step finished.
pub(super) struct Mark {
    pub(super) path: PathBuf,
    /// Whether it is written after everything else.
    pub(super) comes_last: bool,
    /// Whether it is the file that the user named as the last one.
    pub(super) is_named: bool,
}

impl Mark {
    /// A marker that a framework writes after everything else.
    fn last(path: PathBuf) -> Self {
        Self {
            path,
            comes_last: true,
            is_named: false,
        }
    }

    /// Whether rank 0 writes it while other ranks may still write.
    pub(super) fn is_of_transformers(&self) -> bool {
        self.path.file_name() == Some(OsStr::new(TRAINER_STATE))
    }
}

const TRAINER_STATE: &str = "trainer_state.json";
const DEEPSPEED_LATEST: &str = "latest";
const MEGATRON_TRACKER: &str = "latest_checkpointed_iteration.txt";
const TORCH_METADATA: &str = ".metadata";
const ORBAX_TEMPORARY: &str = ".orbax-checkpoint-tmp";
const ORBAX_METADATA: [&str; 2] = ["_CHECKPOINT_METADATA", "commit_success.txt"];
/// The prefix that older versions of transformers remove by a rename.
const TRAINER_TEMPORARY: &str = "tmp-checkpoint-";

/// Judges the step `name` in `dir`, and returns the file that declares it finished. With `done`, that file decides.
pub(super) fn judge(dir: &Path, name: &OsStr, done: Option<&Path>) -> (Verdict, Option<Mark>) {
    let step = dir.join(name);
    let shown = name.to_string_lossy();
    if shown.contains(ORBAX_TEMPORARY) || shown.starts_with(TRAINER_TEMPORARY) {
        return (Verdict::Unfinished, None);
    }
    if let Some(done) = done {
        let (verdict, mark) = finished_if(step.join(done), is_file);
        let named = |mark| Mark {
            is_named: true,
            ..mark
        };
        return (verdict, mark.map(named));
    }
    if number(name, "checkpoint-").is_some() {
        return finished_if(step.join(TRAINER_STATE), |path| {
            text(path).is_some_and(|state| is_json_of_python(&state))
        });
    }
    if let Some(step) = number(name, "global_step") {
        return named_by(dir.join(DEEPSPEED_LATEST), step, |latest| {
            number(OsStr::new(latest), "global_step")
        });
    }
    if let Some(iteration) = iteration(name) {
        return named_by(dir.join(MEGATRON_TRACKER), iteration, |latest| {
            latest.parse().ok()
        });
    }
    if is_file(&step.join(TORCH_METADATA)) {
        return finished_if(step.join(TORCH_METADATA), is_pickle);
    }
    let mut marks = ORBAX_METADATA.iter().map(|mark| step.join(mark));
    match marks.find(|path| is_file(path)) {
        Some(path) => {
            let mark = Mark {
                comes_last: false,
                ..Mark::last(path)
            };
            (Verdict::Finished, Some(mark))
        }
        None => (Verdict::Unknown, None),
    }
}

/// Whether a text is a whole JSON value as Python writes it: a loss that diverged is `NaN` or `Infinity`, which JSON does
/// not know.
fn is_json_of_python(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(&finite(text)).is_ok()
}

/// The text with `0` in place of `NaN` and `Infinity`, wherever these are no part of a string.
fn finite(text: &str) -> String {
    let mut finite = String::with_capacity(text.len());
    // What is between quotes is a string; a quote in a string is escaped.
    let mut rest = text;
    while let Some(start) = rest.find('"') {
        let (between, string) = rest.split_at(start);
        let mut is_escaped = false;
        let end = string.char_indices().skip(1).find(|(_, char)| {
            let is_end = *char == '"' && !is_escaped;
            is_escaped = *char == '\\' && !is_escaped;
            is_end
        });
        let end = end.map_or(string.len(), |(end, _)| end + 1);
        let (string, behind) = string.split_at(end);
        finite.push_str(&numbers(between));
        finite.push_str(string);
        rest = behind;
    }
    finite.push_str(&numbers(rest));
    finite
}

fn numbers(between: &str) -> String {
    between.replace("NaN", "0").replace("Infinity", "0")
}

/// The reason why a step without its marker is not finished.
pub(super) fn awaited(name: &OsStr, done: Option<&Path>) -> NotYet {
    let shown = name.to_string_lossy();
    let (mark, is_beside) = match done {
        _ if shown.contains(ORBAX_TEMPORARY) || shown.starts_with(TRAINER_TEMPORARY) => {
            return NotYet::Written;
        }
        Some(done) => (done, false),
        None if number(name, "checkpoint-").is_some() => (Path::new(TRAINER_STATE), false),
        None if number(name, "global_step").is_some() => (Path::new(DEEPSPEED_LATEST), true),
        None if iteration(name).is_some() => (Path::new(MEGATRON_TRACKER), true),
        None => (Path::new(TORCH_METADATA), false),
    };
    let mark = mark.to_path_buf();
    NotYet::Unmarked { mark, is_beside }
}

/// The number of a step of Megatron.
fn iteration(name: &OsStr) -> Option<u64> {
    number(name, "iter_").or_else(|| number(name, "global_step_"))
}

/// When the marker beside the steps was written, by the framework that writes steps like `name`.
pub(super) fn marked_beside(dir: &Path, name: &OsStr) -> Option<Time> {
    let mark = match number(name, "global_step") {
        Some(_) => DEEPSPEED_LATEST,
        None => MEGATRON_TRACKER,
    };
    Some(Stat::of_path(&dir.join(mark)).ok()?.mtime)
}

/// When its coordinator declared that all of its parts exist.
pub(super) fn completed(step: &Path) -> Option<Time> {
    let metadata = step.join(TORCH_METADATA);
    let written = Stat::of_path(&metadata).ok()?.mtime;
    is_pickle(&metadata).then_some(written)
}

/// Whether the file is a complete pickle: it begins with its protocol and ends with the stop operation.
fn is_pickle(path: &Path) -> bool {
    let ends = || -> std::io::Result<[u8; 2]> {
        let file = open_regular(path)?;
        let (mut first, mut last) = ([0], [0]);
        file.read_exact_at(&mut first, 0)?;
        file.read_exact_at(&mut last, file.metadata()?.len().saturating_sub(1))?;
        let ([first], [last]) = (first, last);
        Ok([first, last])
    };
    ends().is_ok_and(|ends| ends == [0x80, b'.'])
}

fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_file())
}

fn finished_if(path: PathBuf, says_so: impl FnOnce(&Path) -> bool) -> (Verdict, Option<Mark>) {
    match says_so(&path) {
        true => (Verdict::Finished, Some(Mark::last(path))),
        false => (Verdict::Unfinished, None),
    }
}

/// Judges by a file beside the steps, which names the last finished one.
fn named_by(
    path: PathBuf,
    step: u64,
    named: impl FnOnce(&str) -> Option<u64>,
) -> (Verdict, Option<Mark>) {
    match text(&path).and_then(|latest| named(latest.trim())) {
        Some(latest) if latest == step => (Verdict::Finished, Some(Mark::last(path))),
        Some(latest) if latest > step => (Verdict::Passed, None),
        _ => (Verdict::Unfinished, None),
    }
}
