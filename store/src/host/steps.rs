//! Steps: directories that a training job writes one after the other, and when one of them is finished.
//!
//! One is finished when its writer says so by a file of its own, or, where no such file is known, when nothing in it
//! has changed for a while; and then only when two looks at it agree, and no file of it is torn. Whoever takes a
//! finished one looks again before it says so. Nothing here writes, and no clock but the caller's steady one is asked.

mod markers;
mod whole;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::walk::{Item, Stat, WalkOptions, walk};
use crate::error::{Error, Kind, Result};
use crate::format::Time;

pub use markers::Verdict;

/// What finishes a step.
#[derive(Clone, Debug, Default)]
pub struct StepRule {
    /// A file in it, instead of those that are known.
    pub done: Option<PathBuf>,
    /// Where no such file is known: nothing changed for so long.
    pub settled: Option<Duration>,
    /// With such a file, nothing changed for so long: others may still write beside the one who wrote it.
    pub quiet: Duration,
}

/// A step as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where it is.
    pub path: PathBuf,
    /// What it is called, and as what it was seen: the same again where nothing was changed in it, on any host.
    pub title: String,
    /// When something in it changed last, as its files say.
    pub newest: Time,
    /// Bytes of its files.
    pub bytes: u64,
    sight: blake3::Hash,
}

/// A directory of steps under watch.
#[derive(Debug)]
pub struct Steps {
    dir: PathBuf,
    rule: StepRule,
    seen: HashMap<Vec<u8>, Seen>,
}

/// Since when a step is as it is.
#[derive(Debug)]
struct Seen {
    step: Step,
    since: Duration,
    /// What its directory and its marker were when it was found to be finished: as long as they are that, it is not
    /// looked into, since jobs keep many.
    rests: Option<Outside>,
}

/// What is seen of a step from outside.
type Outside = (Stat, Stat);

/// What a look came to.
#[derive(Debug, Default)]
pub struct StepsSeen {
    /// Those that are finished, the one that changed last at the end.
    pub finished: Vec<Step>,
    /// Names of those that are not, as far as is known.
    pub unfinished: Vec<String>,
    /// Names of those of which nothing tells whether they are.
    pub unknown: Vec<String>,
}

impl Steps {
    /// Those in `dir`.
    pub fn new(dir: &Path, rule: StepRule) -> Self {
        Self {
            dir: dir.to_path_buf(),
            rule,
            seen: HashMap::new(),
        }
    }

    /// Looks at all of them. `now`: by a clock that is never set, from any beginning.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn look(&mut self, now: Duration) -> Result<StepsSeen> {
        let mut all = StepsSeen::default();
        let mut seen = HashMap::new();
        for name in names(&self.dir)? {
            let shown = name.to_string_lossy().into_owned();
            let (verdict, mark) = markers::judge(&self.dir, &name, self.rule.done.as_deref());
            let outside = mark.and_then(|mark| outside(&self.dir.join(&name), &mark));
            let mut known = self.seen.remove(name.as_bytes());
            if let Some(known) = known.take_if(|known| outside.is_some() && known.rests == outside)
            {
                all.finished.push(known.step.clone());
                seen.insert(name.as_bytes().to_vec(), known);
                continue;
            }
            let wanted = match (verdict, self.rule.settled) {
                (Verdict::Finished, _) => self.rule.quiet,
                (Verdict::Unknown, Some(settled)) => settled,
                (Verdict::Unknown, None) => {
                    all.unknown.push(shown);
                    continue;
                }
                (Verdict::Unfinished, _) => {
                    all.unfinished.push(shown);
                    continue;
                }
            };
            let Some(step) = Step::at(&self.dir.join(&name))? else {
                // It changed while it was looked at, or went.
                all.unfinished.push(shown);
                continue;
            };
            let since = match known {
                Some(known) if known.step == step => known.since,
                _ => now,
            };
            let is_still = since < now && now.saturating_sub(since) >= wanted;
            let is_finished = is_still && whole::is_whole(&step.path);
            match is_finished {
                true => all.finished.push(step.clone()),
                false => all.unfinished.push(shown),
            }
            let rests = outside.filter(|_| is_finished);
            seen.insert(name.as_bytes().to_vec(), Seen { step, since, rests });
        }
        self.seen = seen;
        all.finished
            .sort_by(|a, b| (a.newest, &a.title).cmp(&(b.newest, &b.title)));
        Ok(all)
    }

    /// All that are there, finished or not.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn all(dir: &Path) -> Result<Vec<Step>> {
        let steps = names(dir)?
            .into_iter()
            .map(|name| Step::at(&dir.join(name)));
        Ok(steps.flatten().flatten().collect())
    }

    /// That a step is as it was seen, and still finished.
    ///
    /// # Errors
    /// Conflict, when it is not.
    pub fn check(dir: &Path, rule: &StepRule, step: &Step) -> Result<()> {
        let name = step.path.file_name().unwrap_or_default();
        let (verdict, _) = markers::judge(dir, name, rule.done.as_deref());
        let is_done = match verdict {
            Verdict::Finished => true,
            Verdict::Unknown => rule.settled.is_some(),
            Verdict::Unfinished => false,
        };
        let now = Step::at(&step.path)?;
        if is_done && now.as_ref() == Some(step) && whole::is_whole(&step.path) {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "{}: changed while it was read; nothing was published",
            step.path.display()
        )))
    }
}

impl Step {
    /// As it is now; nothing where it goes or changes meanwhile.
    fn at(path: &Path) -> Result<Option<Self>> {
        let (mut lasting, mut here) = (blake3::Hasher::new(), blake3::Hasher::new());
        let (mut newest, mut bytes) = (Time::default(), 0_u64);
        let items = match walk(path, options()) {
            Err(error) if error.kind() == Kind::NotFound => return Ok(None),
            items => items,
        };
        let mut walk = items?;
        while let Some(item) = walk.next() {
            let (kind, stat, target): (u8, Stat, &[u8]) = match &item {
                Ok(Item::Enter { stat, .. }) => (b'd', *stat, b""),
                Ok(Item::File { stat, .. }) => (b'f', *stat, b""),
                Ok(Item::Symlink { stat, target, .. }) => (b'l', *stat, target),
                Ok(Item::Leave) => continue,
                // What went meanwhile is no error of its own; what no walk takes, whoever puts it will name.
                Ok(Item::Skipped { error, .. }) if error.kind() == Kind::NotFound => {
                    return Ok(None);
                }
                Ok(Item::Skipped { error, .. }) => {
                    let text = error.to_string();
                    for hash in [&mut lasting, &mut here] {
                        hash.update(text.as_bytes());
                    }
                    continue;
                }
                Err(error) => return Err(Error::new(error.kind(), error.to_string())),
            };
            if kind == b'f' {
                bytes = bytes.saturating_add(stat.size);
            }
            if kind != b'd' || walk.path().is_empty() {
                newest = newest.max(stat.mtime);
            }
            let size = if kind == b'd' { 0 } else { stat.size };
            for hash in [&mut lasting, &mut here] {
                hash.update(&(walk.path().len() as u64).to_le_bytes());
                hash.update(walk.path());
                hash.update(&[kind]);
                hash.update(&size.to_le_bytes());
                hash.update(&(target.len() as u64).to_le_bytes());
                hash.update(target);
                hash.update(format!("{:?}", stat.mtime).as_bytes());
            }
            here.update(format!("{:?} {}", stat.ctime, stat.ino).as_bytes());
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut sum = lasting.finalize().to_hex().to_string();
        sum.truncate(SUM_DIGITS);
        Ok(Some(Self {
            path: path.to_path_buf(),
            title: format!("{name} {sum}"),
            newest,
            bytes,
            sight: here.finalize(),
        }))
    }
}

fn outside(step: &Path, mark: &Path) -> Option<Outside> {
    Some((Stat::of_path(step).ok()?, Stat::of_path(mark).ok()?))
}

fn options() -> WalkOptions {
    WalkOptions {
        skip_unreadable: true,
        ..WalkOptions::default()
    }
}

/// Hex digits of what a step was seen as.
const SUM_DIGITS: usize = 16;

/// Names of the directories in `dir`; links lead elsewhere.
fn names(dir: &Path) -> Result<Vec<std::ffi::OsString>> {
    let failed = |source| Error::io("read", dir, source);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_hidden = entry.file_name().as_bytes().starts_with(b".");
        if !is_hidden && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(entry.file_name());
        }
    }
    names.sort();
    Ok(names)
}

/// Text of a small file; nothing where there is none.
fn text(path: &Path) -> Option<String> {
    const BYTES_MAX: u64 = 64 << 20;
    let size = std::fs::symlink_metadata(path)
        .ok()
        .filter(std::fs::Metadata::is_file)?
        .len();
    (size <= BYTES_MAX).then(|| std::fs::read_to_string(path).ok())?
}

/// The number behind `prefix`, if that is all there is.
fn number(name: &OsStr, prefix: &str) -> Option<u64> {
    let digits = name.to_str()?.strip_prefix(prefix)?;
    digits
        .parse()
        .ok()
        .filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
