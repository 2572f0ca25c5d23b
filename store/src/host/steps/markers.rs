//! Markers: the files by which training frameworks say that a step is finished.
//!
//! | written by | steps | finished when |
//! |---|---|---|
//! | transformers | `checkpoint-N` | `trainer_state.json` in it is whole, the last file of rank 0 |
//! | DeepSpeed | `global_stepN` | `latest` beside it names it |
//! | Megatron | `iter_NNNNNNN`, `global_step_N` | `latest_checkpointed_iteration.txt` beside it says N |
//! | torch.distributed.checkpoint | any | `.metadata` in it, renamed in last by the coordinator |
//! | Orbax | any | renamed from `*.orbax-checkpoint-tmp*`; `_CHECKPOINT_METADATA` or `commit_success.txt` in it |

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{number, text};

/// What a step's own files say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its writer says that it is finished.
    Finished,
    /// Its writer would say so.
    Unfinished,
    /// Nothing is known of its writer.
    Unknown,
}

const TRAINER_STATE: &str = "trainer_state.json";
const DEEPSPEED_LATEST: &str = "latest";
const MEGATRON_TRACKER: &str = "latest_checkpointed_iteration.txt";
const TORCH_METADATA: &str = ".metadata";
const ORBAX_TEMPORARY: &str = ".orbax-checkpoint-tmp";
const ORBAX_METADATA: [&str; 2] = ["_CHECKPOINT_METADATA", "commit_success.txt"];
/// What older versions of transformers rename.
const TRAINER_TEMPORARY: &str = "tmp-checkpoint-";

/// What is known of the step `name` in `dir`, and the file that says so; `done` is a file that finishes it, whatever it is.
pub(super) fn judge(dir: &Path, name: &OsStr, done: Option<&Path>) -> (Verdict, Option<PathBuf>) {
    let step = dir.join(name);
    let shown = name.to_string_lossy();
    if shown.contains(ORBAX_TEMPORARY) || shown.starts_with(TRAINER_TEMPORARY) {
        return (Verdict::Unfinished, None);
    }
    if let Some(done) = done {
        return finished_if(step.join(done), is_file);
    }
    if number(name, "checkpoint-").is_some() {
        let is_whole = |state: String| serde_json::from_str::<serde_json::Value>(&state).is_ok();
        return finished_if(step.join(TRAINER_STATE), |path| {
            text(path).is_some_and(is_whole)
        });
    }
    if number(name, "global_step").is_some() {
        return finished_if(dir.join(DEEPSPEED_LATEST), |path| {
            text(path).is_some_and(|latest| latest.trim() == shown)
        });
    }
    let iteration = number(name, "iter_").or_else(|| number(name, "global_step_"));
    if let Some(iteration) = iteration {
        return finished_if(dir.join(MEGATRON_TRACKER), |path| {
            text(path).is_some_and(|latest| latest.trim().parse() == Ok(iteration))
        });
    }
    let marks = [TORCH_METADATA].into_iter().chain(ORBAX_METADATA);
    let mut marks = marks.map(|mark| step.join(mark));
    match marks.find(|mark| is_file(mark)) {
        Some(mark) => (Verdict::Finished, Some(mark)),
        None => (Verdict::Unknown, None),
    }
}

fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_file())
}

fn finished_if(mark: PathBuf, says_so: impl FnOnce(&Path) -> bool) -> (Verdict, Option<PathBuf>) {
    match says_so(&mark) {
        true => (Verdict::Finished, Some(mark)),
        false => (Verdict::Unfinished, None),
    }
}
