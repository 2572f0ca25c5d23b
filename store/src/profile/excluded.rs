//! What a profile excludes from a walk by name, counted for the notes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::rules::{Out, RootKind, Verdict, is_login, judge};
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
    /// How many paths hold nothing that anybody would miss.
    harmless: AtomicU64,
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
            harmless: AtomicU64::new(0),
        }
    }

    /// The same rules with nothing counted yet.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.kind, self.with.clone(), self.secrets.clone())
    }

    /// How many of the excluded paths hold nothing that anybody would miss.
    pub(super) fn harmless(&self) -> u64 {
        self.harmless.load(Ordering::Relaxed)
    }

    fn verdict(&self, path: &[u8], is_dir: bool, is_empty: &dyn Fn() -> bool) -> Option<Out> {
        if self.secrets.contains(path) {
            return Some(Out::Secret);
        }
        match judge(self.kind, path, is_dir) {
            Verdict::Out(Out::OptIn(class)) if self.with.contains(&class) => None,
            // A lock with bytes is somebody's file, like `Cargo.lock`.
            Verdict::Out(Out::Lock) if path.ends_with(b".lock") && !is_dir && !is_empty() => None,
            Verdict::Out(out) => Some(out),
            Verdict::Keep(_) => None,
        }
    }

    /// Whether nobody would miss it: its client makes it again, or keeps it elsewhere, too.
    fn is_harmless(&self, out: Out, path: &[u8]) -> bool {
        match out {
            Out::Lock | Out::Unfinished | Out::MachineState | Out::Shared => true,
            Out::Secret => is_login(self.kind, path),
            // The archives that datasets were made from; a directory of that name elsewhere may be anybody's.
            Out::OptIn(Class::Downloads) => path.ends_with(b"datasets/downloads"),
            Out::OptIn(_) => false,
        }
    }

    /// The notes about what was excluded, one per kind of reason.
    pub(super) fn notes(&self) -> Vec<Note> {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let secrets = counted.get(&Out::Secret).map(|secrets| {
            let named = secrets.named();
            format!("left out, as they hold credentials: {named}")
        });
        let plain: Vec<String> = counted
            .iter()
            .filter_map(|(out, counted)| {
                let (what, named) = (what(*out)?, counted.named());
                Some(format!("{} {what} ({named})", counted.count))
            })
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

impl Counted {
    /// The first names, and the number of further ones.
    fn named(&self) -> String {
        let names = self.first.join(", ");
        match self.count - self.first.len() as u64 {
            0 => names,
            more => format!("{names} and {more} more"),
        }
    }
}

impl Filter for Excluded {
    fn is_out(&self, path: &[u8], is_dir: bool, is_empty: &dyn Fn() -> bool) -> bool {
        let Some(out) = self.verdict(path, is_dir, is_empty) else {
            return false;
        };
        let is_harmless = self.is_harmless(out, path);
        self.harmless
            .fetch_add(u64::from(is_harmless), Ordering::Relaxed);
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
