//! `store diff`: what is different between two refs, or between a ref and a directory.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use serde::Serialize;
use store::Reader;
use store::RefSpec;
use store::inspect::{self, Aspect, Difference, Entry, Event};
use store::{Error, Result, Store};
use store::{Globs, WalkOptions};

use crate::context::Context;
use crate::ui::entry::{self, ShownEntry};
use crate::ui::{human, names};

/// Show the differences between two refs, or between a ref and a directory
///
/// There is a line for each path: `+` if it is only in AFTER, `-` if it is only in BEFORE, `M` if it is in both and
/// differs. Times are not compared. The exit code is 0 whether there are differences or not.
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
    before: Option<ShownEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<ShownEntry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aspects: Vec<Aspect>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let before = names::spec(&args.before)?;
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

/// `project/...` and `team/...` are refs; a directory of that name is `./project/...`.
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
        } => {
            let how: Vec<String> = aspects
                .iter()
                .map(|aspect| told(*aspect, before, after))
                .collect();
            context.out.line(format_args!(
                "M {}: {}",
                entry::name(path, after),
                how.join(", ")
            ))
        }
    }
}

fn told(aspect: Aspect, before: &Entry, after: &Entry) -> String {
    match (aspect, before) {
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
    }
}

fn line(event: &Event) -> Line {
    let (change, before, after, aspects) = match &event.difference {
        Difference::Added(after) => ("added", None, Some(after), [].as_slice()),
        Difference::Removed(before) => ("removed", Some(before), None, [].as_slice()),
        Difference::Changed {
            before,
            after,
            aspects,
        } => ("changed", Some(before), Some(after), aspects.as_slice()),
    };
    Line {
        path: names::Path::new(&event.path),
        change,
        before: before.map(ShownEntry::from),
        after: after.map(ShownEntry::from),
        aspects: aspects.to_vec(),
    }
}
