//! What a profile excludes from a walk by name, counted for the notes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::rules::{Out, RootKind, Verdict, judge};
use super::{Class, SecretPaths};
use crate::host::walk::Filter;
use crate::remedy::{Note, Remedy};

/// Most names of one class in a note.
const NAMES_MAX: usize = 8;

/// The filter of a walk over a Hugging Face cache.
#[derive(Debug)]
pub(super) struct Excluded {
    kind: RootKind,
    with: Vec<Class>,
    secrets: SecretPaths,
    counted: Mutex<BTreeMap<Out, Counted>>,
}

#[derive(Debug, Default)]
struct Counted {
    count: u64,
    first: Vec<String>,
}

impl Excluded {
    pub(super) fn new(kind: RootKind, with: Vec<Class>, secrets: SecretPaths) -> Self {
        Self {
            kind,
            with,
            secrets,
            counted: Mutex::default(),
        }
    }

    fn verdict(&self, path: &[u8], is_dir: bool) -> Option<Out> {
        if self.secrets.contains(path) {
            return Some(Out::Secret);
        }
        match judge(self.kind, path, is_dir) {
            Verdict::Out(Out::OptIn(class)) if self.with.contains(&class) => None,
            Verdict::Out(out) => Some(out),
            Verdict::Keep(_) => None,
        }
    }

    /// The notes about what was excluded, one per kind of reason.
    pub(super) fn notes(&self) -> Vec<Note> {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let secrets = counted.get(&Out::Secret).map(|secrets| {
            let rest = match secrets.count - secrets.first.len() as u64 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!(
                "left out, as they hold credentials: {}{rest}",
                secrets.first.join(", ")
            )
        });
        let plain: Vec<String> = counted
            .iter()
            .filter_map(|(out, counted)| Some(format!("{} {}", counted.count, what(*out)?)))
            .collect();
        let plain = (!plain.is_empty()).then(|| format!("left out: {}", plain.join(", ")));
        let classes: Vec<_> = counted
            .keys()
            .filter_map(|out| match out {
                Out::OptIn(class) => Some(class.as_str()),
                _ => None,
            })
            .collect();
        let classes = (!classes.is_empty()).then(|| {
            let text = format!("left out: {}", classes.join(", "));
            let classes = classes.join(",");
            Note::with(text, Remedy::TakeClasses { classes })
        });
        let plain = secrets.into_iter().chain(plain).map(Note::from);
        plain.chain(classes).collect()
    }
}

impl Filter for Excluded {
    fn is_out(&self, path: &[u8], is_dir: bool) -> bool {
        let Some(out) = self.verdict(path, is_dir) else {
            return false;
        };
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = counted.entry(out).or_default();
        counted.count += 1;
        if counted.first.len() < NAMES_MAX {
            counted.first.push(String::from_utf8_lossy(path).into());
        }
        true
    }
}

/// The words for kinds that are only counted.
fn what(out: Out) -> Option<&'static str> {
    match out {
        Out::Lock => Some("of locks"),
        Out::Unfinished => Some("unfinished"),
        Out::MachineState => Some("of this machine's state"),
        Out::Shared => Some("shared store, whose files each repository gets itself"),
        Out::Secret | Out::OptIn(_) => None,
    }
}
