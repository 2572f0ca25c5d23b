//! Steps: directories that a training job writes one after another, and when one of them is finished.
//!
//! A step is finished when its writer says so in a file of its own, or, if no such file is known, when nothing in it
//! has changed for a while. In any case two looks at it must agree, and none of its files may be torn. Before a
//! finished step is published, it is checked again. Nothing here writes. The only clock is the caller's monotonic one.

mod age;
mod markers;
mod step;
mod unfinished;
mod whole;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::FileType;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::walk::{Stat, WalkOptions};
use crate::error::{Error, Result};
use crate::format::Time;
use crate::shown::shown;

pub use age::StepAge;
pub use markers::Verdict;
pub use step::{Files as StepFiles, Step};
pub use unfinished::{NotYet, Unfinished};

use markers::Mark;

/// When a step is finished.
#[derive(Clone, Debug, Default)]
pub struct StepRule {
    /// The file in the step that marks it as finished, instead of the known markers.
    pub done: Option<PathBuf>,
    /// Without a known marker: how long nothing must have changed.
    pub settled: Option<Duration>,
    /// With a marker: how long nothing must have changed, since other processes than the marker's writer may still
    /// write.
    pub quiet: Duration,
    /// If files came after the marker, or may come after it: how long nothing must have changed.
    pub late: Duration,
    /// If a published step was rewritten in part: how long nothing must have changed, unless `settled` says so.
    pub rewritten: Duration,
}

/// A directory of steps that is watched.
#[derive(Debug)]
pub struct Steps {
    dir: PathBuf,
    rule: StepRule,
    seen: HashMap<Vec<u8>, Seen>,
    /// Published steps by name, on one line.
    ages: BTreeMap<String, StepAge>,
    /// The time of this host, if the times of files may tell how long a step has stood still.
    wall: Option<Time>,
}

/// A step, and since when it has been as it is.
#[derive(Debug)]
struct Seen {
    step: Step,
    since: Duration,
    /// The attributes of its directory and its marker when it was found finished. While they are the same, the step is
    /// not read again, since jobs keep many steps.
    rests: Option<Outside>,
    /// Whether its writer declared it finished in this state.
    is_named: bool,
    /// Whether its writer declared a later step finished, and nothing tells whether this one is.
    is_passed: bool,
}

/// The attributes of a step's directory and of its marker.
type Outside = (Stat, Stat);

/// The result of a look.
#[derive(Debug, Default)]
pub struct StepsSeen {
    /// Finished steps, the most recently changed last.
    pub finished: Vec<Step>,
    /// Unfinished steps, as far as is known.
    pub unfinished: Vec<Unfinished>,
    /// Names of steps of which nothing tells whether they are finished.
    pub unknown: Vec<String>,
    /// Names of steps whose writer has declared a later one finished. It was not seen to declare these finished, and
    /// they do not say so themselves.
    pub passed: Vec<String>,
}

/// The state of one step.
enum State {
    Finished(Seen),
    /// Why it is not finished, and what was seen of it, if it may become finished in that state.
    Unfinished(NotYet, Option<Seen>),
    Unknown,
    /// Its writer has declared a later step finished; and what was seen of it.
    Passed(Option<Seen>),
}

impl Steps {
    /// Watches the steps in `dir`.
    pub fn new(dir: &Path, rule: StepRule) -> Self {
        Self {
            dir: dir.to_path_buf(),
            rule,
            seen: HashMap::new(),
            ages: BTreeMap::new(),
            wall: None,
        }
    }

    /// Sets which steps are published: files may be added to those.
    pub fn published(&mut self, ages: &BTreeMap<String, StepAge>) {
        self.ages.clone_from(ages);
    }

    /// Lets the times of files tell how long a step has stood still before it was first seen. `now` is the time of this
    /// host.
    pub fn trust_times(&mut self, now: Time) {
        self.wall = Some(now);
    }

    /// Looks at all steps. `now` comes from a monotonic clock with any origin.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn look(&mut self, now: Duration) -> Result<StepsSeen> {
        let mut all = StepsSeen::default();
        let mut seen = HashMap::new();
        for name in names(&self.dir)? {
            let known = self.seen.remove(name.as_bytes());
            let key = name.as_bytes().to_vec();
            let name_shown = || shown(name.as_bytes());
            let known = match self.state(&name, known, now)? {
                State::Finished(known) => {
                    all.finished.push(known.step.clone());
                    Some(known)
                }
                State::Unfinished(why, known) => {
                    let name = name_shown();
                    all.unfinished.push(Unfinished { name, why });
                    known
                }
                State::Unknown => {
                    all.unknown.push(name_shown());
                    None
                }
                State::Passed(known) => {
                    all.passed.push(name_shown());
                    known
                }
            };
            seen.extend(known.map(|known| (key, known)));
        }
        self.seen = seen;
        all.unfinished.extend(self.links()?);
        all.finished
            .sort_by(|a, b| (a.newest, &a.title).cmp(&(b.newest, &b.title)));
        Ok(all)
    }

    /// Symlinks with names or files of steps to directories elsewhere. They are not followed, and not passed over in
    /// silence. A link to a step beside it, like `latest`, is another name of that.
    fn links(&self) -> Result<Vec<Unfinished>> {
        let own = self.dir.canonicalize().ok();
        let mut links = Vec::new();
        for name in entries(&self.dir, |kind| kind.is_symlink())? {
            let Ok(to) = self.dir.join(&name).canonicalize() else {
                continue;
            };
            let (verdict, _) = markers::judge(&self.dir, &name, self.rule.done.as_deref());
            if to.is_dir() && verdict != Verdict::Unknown && to.parent() != own.as_deref() {
                links.push(Unfinished {
                    name: shown(name.as_bytes()),
                    why: NotYet::Link { to },
                });
            }
        }
        Ok(links)
    }

    fn state(&self, name: &OsStr, known: Option<Seen>, now: Duration) -> Result<State> {
        let path = self.dir.join(name);
        let (verdict, mark) = markers::judge(&self.dir, name, self.rule.done.as_deref());
        let outside = match verdict {
            // Only its directory can be inspected.
            Verdict::Passed => outside(&path, &path),
            _ => mark.as_ref().and_then(|mark| outside(&path, &mark.path)),
        };
        let known = match known {
            Some(known) if outside.is_some() && known.rests == outside && !known.is_passed => {
                return Ok(State::Finished(known));
            }
            Some(known) if known.is_passed && outside.is_some() && known.rests == outside => {
                return Ok(State::Passed(Some(known)));
            }
            known => known.filter(|known| verdict != Verdict::Passed || known.is_named),
        };
        match verdict {
            Verdict::Unknown if self.rule.settled.is_none() => return Ok(State::Unknown),
            Verdict::Unfinished => {
                let why = markers::awaited(name, self.rule.done.as_deref());
                return Ok(State::Unfinished(why, None));
            }
            Verdict::Finished | Verdict::Passed | Verdict::Unknown => {}
        }
        let Some(step) = Step::at(&path, mark.as_ref())? else {
            // The step changed or disappeared while it was read.
            return Ok(State::Unfinished(NotYet::Written, None));
        };
        let since = match known {
            // An earlier look saw that it was named, in the same state.
            Some(known) if known.step == step => known.since,
            _ if verdict == Verdict::Passed && !self.is_whole_itself(name, &step) => {
                return Ok(State::Passed(Some(Seen {
                    step,
                    since: now,
                    rests: outside,
                    is_named: false,
                    is_passed: true,
                })));
            }
            _ => now,
        };
        let why = self.why_not(&step, (verdict, mark.as_ref()), (since, now));
        let rests = outside.filter(|_| why.is_none());
        let is_named = verdict != Verdict::Unknown && self.older(&step, mark.as_ref()).is_none();
        let seen = Seen {
            step,
            since,
            rests,
            is_named,
            is_passed: false,
        };
        Ok(match why {
            None => State::Finished(seen),
            Some(why) => State::Unfinished(why, Some(seen)),
        })
    }

    /// Why a step that its writer may have finished is not finished yet, if it is not. It has been as it is `since`.
    fn why_not(
        &self,
        step: &Step,
        (verdict, mark): (Verdict, Option<&Mark>),
        (since, now): (Duration, Duration),
    ) -> Option<NotYet> {
        let settled = self.rule.settled;
        let is_marked = verdict != Verdict::Unknown;
        let older = self.older(step, mark);
        let left = self.before(step).and_then(|age| age.remnant(step));
        let left = left.filter(|_| is_marked);
        let has_grown = self.has_grown(step);
        let is_late = is_marked
            && (has_grown
                || left.is_some()
                || mark.is_some_and(Mark::is_of_transformers)
                || goes_on(step, mark));
        let wanted = match (&older, settled) {
            (Some(_), Some(settled)) => settled,
            (None, Some(settled)) if !is_marked => settled,
            _ if is_late => self.rule.quiet.max(self.rule.late),
            _ => self.rule.quiet,
        };
        let whole = settled.unwrap_or(self.rule.rewritten);
        let copied = self.copied_after(step, mark);
        let is_long = left.is_some() || copied.is_some();
        let wanted = wanted.max(if is_long { whole } else { wanted });
        let is_still = |span| self.is_still(step, (since, now), span);
        match older {
            Some(older) if settled.is_none() => return Some(older),
            _ if is_still(wanted) => {}
            _ => {
                let left = left.filter(|_| is_still(self.rule.late));
                let rewritten = left.map(|file| NotYet::Rewritten {
                    file: file.to_vec(),
                    span: wanted,
                });
                let usual = if is_late || copied.is_some() {
                    NotYet::Late
                } else {
                    NotYet::Written
                };
                return Some(rewritten.unwrap_or(usual));
            }
        }
        if step.files.is_empty() {
            return Some(NotYet::Empty);
        }
        if let (Some((mark, file)), None) = (copied.zip(step.broken_off()), settled) {
            return Some(NotYet::Older { mark, file });
        }
        let is_new = !self.ages.contains_key(&step.name);
        match mark.filter(|_| is_new && step.is_marker_alone()) {
            Some(mark) => Some(NotYet::Alone {
                mark: mark.path.clone(),
            }),
            None => whole::torn(&step.path),
        }
    }

    /// Whether a step has stood still for this long, by what was seen of it or, if they are trusted, by its times.
    fn is_still(&self, step: &Step, (since, now): (Duration, Duration), span: Duration) -> bool {
        let seen = now.saturating_sub(since);
        let nanos = i128::try_from(span.as_nanos()).unwrap_or(i128::MAX);
        let is_old = |wall| seen >= self.rule.quiet && nanos_between(step.changed(), wall) >= nanos;
        since < now && (seen >= span || self.wall.is_some_and(is_old))
    }

    /// Whether a published step has all of its files unchanged, and others.
    fn has_grown(&self, step: &Step) -> bool {
        let age = self.ages.get(&step.name);
        age.is_some_and(|age| age.is_within(step))
    }

    /// The age of a step that was published and changed since, other than by files that were added.
    fn before(&self, step: &Step) -> Option<&StepAge> {
        let age = self.ages.get(&step.name)?;
        (!age.is_within(step) && !age.is_of(step)).then_some(age)
    }

    /// Whether a passed step itself shows that it is finished: its coordinator wrote so, after everything else, before
    /// the marker named a later one. Having the files of a later step proves nothing, since it may be half rewritten.
    fn is_whole_itself(&self, name: &OsStr, step: &Step) -> bool {
        let marked = markers::marked_beside(&self.dir, name);
        let (Some(marked), Some(completed)) = (marked, markers::completed(&step.path)) else {
            return false;
        };
        // A step that is being deleted may still have that file.
        !self.is_later(step.newest, completed)
            && !step.goes_on_after(marked)
            && step.moved <= marked
    }

    /// Whether a time is later than another by more than the quiet time: hosts that write to one directory have
    /// different clocks.
    fn is_later(&self, late: Time, early: Time) -> bool {
        let quiet = i128::try_from(self.rule.quiet.as_nanos()).unwrap_or(i128::MAX);
        nanos_between(early, late) > quiet
    }

    /// Why the marker of a step does not count: it is older than another file or than the loss of one, so it belongs to
    /// what was there before. A published step to which files were added stays finished, although they are newer.
    fn older(&self, step: &Step, mark: Option<&Mark>) -> Option<NotYet> {
        let mark = mark.filter(|mark| mark.comes_last)?;
        let age = self.ages.get(&step.name);
        if age.is_some() && self.before(step).is_none() {
            return None;
        }
        let marked = Stat::of_path(&mark.path).ok()?;
        // If all of it was rewritten, so was its marker, and what other ranks write may come shortly after that.
        let span = i128::try_from(self.rule.rewritten.as_nanos()).unwrap_or(i128::MAX);
        let is_near = nanos_between(marked.mtime, step.newest) <= span;
        let near = age.filter(|_| is_near);
        let newest = near.and_then(|age| age.newest_since(step));
        let is_later = self.is_later(newest.unwrap_or(step.newest), marked.mtime);
        let newer = is_later.then_some(&step.last);
        if let Some(file) = newer.or(step.rewritten(newest.is_some())).cloned() {
            let mark = mark.path.clone();
            return Some(NotYet::Older { mark, file });
        }
        // Added entries are explained by the times of files; lost ones are not.
        let touched = step.touched.max(marked.mtime).max(marked.ctime);
        self.is_later(step.moved, touched).then(|| NotYet::Thinned {
            mark: mark.path.clone(),
        })
    }

    /// The marker of a new step, if files came after it with older times: whoever copies a step may copy the marker
    /// first, and not be done.
    fn copied_after(&self, step: &Step, mark: Option<&Mark>) -> Option<PathBuf> {
        let mark = mark.filter(|mark| mark.comes_last && !self.ages.contains_key(&step.name))?;
        let marked = Stat::of_path(&mark.path).ok()?.ctime;
        let is_copied = step.is_copied_after(marked, |late, early| self.is_later(late, early));
        is_copied.then(|| mark.path.clone())
    }

    /// Makes the next look read all steps, even if their directories and markers have not changed.
    pub fn wake(&mut self) {
        for seen in self.seen.values_mut() {
            seen.rests = None;
        }
    }

    /// Whether a directory is a step itself and has no steps in it, by what is known of writers.
    pub fn is_step(dir: &Path) -> bool {
        let is_named = |dir: &Path, name: &OsStr| {
            let (verdict, _) = markers::judge(dir, name, None);
            verdict != Verdict::Unknown
        };
        let (Some(above), Some(name)) = (dir.parent(), dir.file_name()) else {
            return false;
        };
        let has_steps =
            || names(dir).is_ok_and(|names| names.iter().any(|name| is_named(dir, name)));
        is_named(above, name) && !has_steps()
    }

    /// Returns all existing steps, finished or not.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn all(dir: &Path, rule: &StepRule) -> Result<Vec<Step>> {
        let steps = names(dir)?.into_iter().map(|name| {
            let (_, mark) = markers::judge(dir, &name, rule.done.as_deref());
            Step::at(&dir.join(name), mark.as_ref())
        });
        Ok(steps.flatten().flatten().collect())
    }

    /// Checks that a step has not changed, and is still finished.
    ///
    /// # Errors
    /// Conflict, when it is not.
    pub fn check(dir: &Path, rule: &StepRule, step: &Step) -> Result<()> {
        let name = step.path.file_name().unwrap_or_default();
        let (verdict, mark) = markers::judge(dir, name, rule.done.as_deref());
        let is_done = match verdict {
            Verdict::Finished | Verdict::Passed => true,
            Verdict::Unknown => rule.settled.is_some(),
            Verdict::Unfinished => false,
        };
        let now = Step::at(&step.path, mark.as_ref())?;
        if is_done && now.as_ref() == Some(step) && whole::torn(&step.path).is_none() {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "{}: changed while it was read; nothing was published",
            step.path.display()
        )))
    }
}

/// Nanoseconds from one time to a later one.
fn nanos_between(early: Time, late: Time) -> i128 {
    let nanos = |time: Time| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    nanos(late) - nanos(early)
}

/// Whether files of a step were written after its marker.
fn goes_on(step: &Step, mark: Option<&Mark>) -> bool {
    let mark = mark.filter(|mark| mark.comes_last);
    let marked = mark.and_then(|mark| Stat::of_path(&mark.path).ok());
    marked.is_some_and(|marked| step.goes_on_after(marked.mtime))
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

/// Names of the directories in `dir`, without symlinks, which lead elsewhere.
fn names(dir: &Path) -> Result<Vec<std::ffi::OsString>> {
    entries(dir, |kind| kind.is_dir())
}

/// Sorted names of the entries of one kind in `dir`, without hidden ones.
fn entries(dir: &Path, is_it: impl Fn(FileType) -> bool) -> Result<Vec<std::ffi::OsString>> {
    let failed = |source| Error::io("read", dir, source);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_hidden = entry.file_name().as_bytes().starts_with(b".");
        if !is_hidden && entry.file_type().is_ok_and(&is_it) {
            names.push(entry.file_name());
        }
    }
    names.sort();
    Ok(names)
}

/// The text of a small file; none, if there is no such file.
fn text(path: &Path) -> Option<String> {
    const BYTES_MAX: u64 = 64 << 20;
    let size = std::fs::symlink_metadata(path)
        .ok()
        .filter(std::fs::Metadata::is_file)?
        .len();
    (size <= BYTES_MAX).then(|| std::fs::read_to_string(path).ok())?
}

/// The number after `prefix`, if that is all of the name.
fn number(name: &OsStr, prefix: &str) -> Option<u64> {
    let digits = name.to_str()?.strip_prefix(prefix)?;
    digits
        .parse()
        .ok()
        .filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
