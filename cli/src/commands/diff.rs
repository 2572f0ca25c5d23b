//! `store diff`: the differences between two refs, or between a ref and a directory.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use serde::Serialize;
use store::Reader;
use store::RefSpec;
use store::inspect::{self, Aspect, Difference, Entry, Event, KeptChange};
use store::{Error, Result, Store};
use store::{Globs, WalkOptions};

use crate::context::Context;
use crate::ui::entry::{self, ShownEntry};
use crate::ui::{human, names};

/// Show the differences between two refs, or between a ref and a directory
///
/// There is a line for each path: `+` if it is only in AFTER, `-` if it is only in BEFORE, `M` if it is in both and
/// differs. Times are not compared. Modes, owners and extended attributes are, if both versions kept them, or BEFORE did
/// and AFTER is a directory that `materialize` did not make. The exit code is 0 whether there are differences or not.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A ref, or a path in it
    #[arg(value_name = "REF[@N][:PATH]")]
    before: OsString,

    /// Another ref or path in a ref, or a directory or file of this host; if it looks like a ref, write ./project/x/y
    #[arg(value_name = "REF[@N][:PATH]|DIR")]
    after: OsString,

    /// Leave out what matches in DIR, as `put` does; may be given several times
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
}

/// A difference; an object of `--json`.
#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    path: names::Path,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Side>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Side>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aspects: Vec<Aspect>,
}

/// An entry on one side. Kept metadata is included only if it differs.
#[derive(Serialize)]
struct Side {
    #[serde(flatten)]
    entry: ShownEntry,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    /// The names of the extended attributes.
    #[serde(skip_serializing_if = "Option::is_none")]
    xattrs: Option<Vec<String>>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let before = names::spec_before("diff", &args.before, Some(&args.after))?;
    let store = context.open()?;
    let count = differences(args, &store, &before, &mut |event| show(context, &event))?;
    context.out.note(match count {
        0 => "no difference".to_owned(),
        _ => human::counted(count, "difference"),
    });
    Ok(())
}

fn differences(
    args: &Args,
    store: &Store,
    before: &RefSpec,
    each: &mut dyn FnMut(Event) -> Result<()>,
) -> Result<u64> {
    let reader = Reader::new(store)?;
    if looks_like_a_ref(&args.after) {
        if !args.exclude.is_empty() {
            return Err(Error::invalid("diff of two refs: expected no --exclude")
                .hint("it is for a directory"));
        }
        return inspect::diff(&reader, before, &names::spec(&args.after)?, each);
    }
    let options = WalkOptions {
        exclude: Globs::new(&args.exclude)?,
        ..WalkOptions::default()
    };
    inspect::diff_with_directory(&reader, before, Path::new(&args.after), options, each)
}

/// Whether the text is a ref: `project/...` or `team/...`. A directory of that name is written `./project/...`.
fn looks_like_a_ref(text: &OsStr) -> bool {
    let bytes = text.as_encoded_bytes();
    bytes.starts_with(b"project/") || bytes.starts_with(b"team/")
}

fn show(context: &Context, event: &Event) -> Result<()> {
    if context.out.is_json() {
        return context.out.json(&line(event));
    }
    let path = event.path.as_slice();
    match &event.difference {
        Difference::Added(entry) => context
            .out
            .line(format_args!("+ {}", entry::name(path, entry))),
        Difference::Removed(entry) => context
            .out
            .line(format_args!("- {}", entry::name(path, entry))),
        Difference::Changed {
            before,
            after,
            aspects,
            kept,
        } => {
            let how = aspects
                .iter()
                .filter_map(|aspect| told(*aspect, before, after));
            let how: Vec<String> = how.chain(kept.iter().map(told_of_kept)).collect();
            context.out.line(format_args!(
                "M {}: {}",
                entry::name(path, after),
                how.join(", ")
            ))
        }
    }
}

/// The text of a change; `None` for kept metadata.
fn told(aspect: Aspect, before: &Entry, after: &Entry) -> Option<String> {
    Some(match (aspect, before) {
        (Aspect::Content, _) => {
            format!("content, {} to {}", entry::size(before), entry::size(after))
        }
        (
            Aspect::Executable,
            Entry::File {
                executable: true, ..
            },
        ) => "no longer executable".to_owned(),
        (Aspect::Executable, _) => "now executable".to_owned(),
        (Aspect::Target, Entry::Symlink { target }) => {
            format!("target was {}", names::shown(target))
        }
        (Aspect::Target, _) => "target".to_owned(),
        (Aspect::Kind, _) => format!("was {}", entry::kind(before)),
        (Aspect::Modes | Aspect::Owners | Aspect::Xattrs, _) => return None,
    })
}

fn told_of_kept(change: &KeptChange) -> String {
    match change {
        KeptChange::Mode { before, after } => format!("mode {before:04o} to {after:04o}"),
        KeptChange::Owner { before, after } => {
            let (user, group) = before;
            format!("owner {user}:{group} to {}:{}", after.0, after.1)
        }
        KeptChange::Xattrs { before, after } => {
            let names: BTreeSet<&Vec<u8>> = before.iter().chain(after).collect();
            let names: Vec<String> = names.into_iter().map(|name| names::shown(name)).collect();
            format!("attributes {}", names.join(", "))
        }
    }
}

/// One side of a difference.
fn side(entry: &Entry, kept: &[KeptChange], is_before: bool) -> Side {
    let mut side = Side {
        entry: ShownEntry::from(entry),
        mode: None,
        user: None,
        group: None,
        xattrs: None,
    };
    for change in kept {
        match change {
            KeptChange::Mode { before, after } => {
                let mode = if is_before { before } else { after };
                side.mode = Some(format!("{mode:04o}"));
            }
            KeptChange::Owner { before, after } => {
                let (user, group) = if is_before { before } else { after };
                (side.user, side.group) = (Some(*user), Some(*group));
            }
            KeptChange::Xattrs { before, after } => {
                let names = if is_before { before } else { after }.iter();
                side.xattrs = Some(names.map(|name| names::shown(name)).collect());
            }
        }
    }
    side
}

fn line(event: &Event) -> Line {
    let nothing: (&[Aspect], &[KeptChange]) = (&[], &[]);
    let (change, before, after, (aspects, kept)) = match &event.difference {
        Difference::Added(after) => ("added", None, Some(after), nothing),
        Difference::Removed(before) => ("removed", Some(before), None, nothing),
        Difference::Changed {
            before,
            after,
            aspects,
            kept,
        } => ("changed", Some(before), Some(after), (&**aspects, &**kept)),
    };
    Line {
        path: names::Path::new(&event.path),
        change,
        before: before.map(|entry| side(entry, kept, true)),
        after: after.map(|entry| side(entry, kept, false)),
        aspects: aspects.to_vec(),
    }
}
