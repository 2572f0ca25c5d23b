//! `store rm REF:PATH...`: makes a new version of a ref without some paths.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use store::{
    Error, Globs, RefName, Result, Target, Time, TrimFilter, TrimReport, TrimRequest, shown, trim,
};

use super::Args;
use crate::context::Context;
use crate::ui::{human, names};

/// Maximum number of paths to print.
const TOLD_MAX: usize = 20;

/// The JSON form of the report.
#[derive(Serialize)]
struct Report {
    #[serde(rename = "ref")]
    target: RefName,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    #[serde(flatten)]
    done: TrimReport,
}

/// Whether the arguments name paths, not versions.
///
/// # Errors
/// Invalid input, if a path is empty: `REF:$DIR` with an empty variable must not drop the whole ref.
pub(super) fn are_meant(args: &Args) -> Result<bool> {
    for text in &args.targets {
        let is_begun = text.as_encoded_bytes().contains(&b':');
        if is_begun && names::spec(text)?.path.is_empty() {
            let shown = text.to_string_lossy();
            return Err(Error::invalid(format!("{shown}: names no path in the ref"))
                .hint("nothing was dropped; name a path behind the colon, or the ref or version itself, without it"));
        }
    }
    if !args.glob.is_empty() || args.larger_than.is_some() || args.older_than.is_some() {
        return Ok(true);
    }
    let targets = args.targets.iter().map(|target| names::target(target));
    let targets: Vec<Target> = targets.collect::<Result<_>>()?;
    let has_path = |target: &Target| matches!(target, Target::Ref(spec) if !spec.path.is_empty());
    Ok(targets.iter().any(has_path))
}

pub(super) fn run(args: &Args, context: &Context) -> Result<()> {
    let store = context.open()?;
    let (target, paths) = meant(args, &store)?;
    let now = Timestamp::now();
    let globs = Globs::new(&args.glob)?;
    if globs.is_empty() && !args.glob.is_empty() {
        let shown = args.glob.join(" --glob ");
        return Err(Error::invalid(format!("--glob {shown}: matches nothing"))
            .hint("nothing was removed; a glob behind `!` takes back what those before it matched: name these first, like --glob '*' --glob '!keep'"));
    }
    let filter = TrimFilter {
        globs,
        larger_than: args.larger_than,
        older_than: args.older_than.map(|span| before(now, span)),
    };
    let request = TrimRequest {
        message: format!("rm {}", words(args)),
        dry_run: args.dry_run,
        target: target.clone(),
        paths,
        filter,
    };
    let done = trim(&store, &request)?;
    context.out.report(&Report {
        target,
        dry_run: args.dry_run,
        done,
    })
}

/// The ref, and the paths in it. The list is empty if the whole tree is meant.
fn meant(args: &Args, store: &store::Store) -> Result<(RefName, Vec<Vec<u8>>)> {
    let mut name: Option<RefName> = None;
    let mut paths = Vec::new();
    for text in &args.targets {
        let spec = names::spec(text)?;
        if let Some(other) = name.as_ref().filter(|name| **name != spec.name) {
            return Err(Error::invalid(format!(
                "{other} and {}: expected paths of one ref",
                spec.name
            ))
            .hint("nothing was removed; run it once for each ref"));
        }
        if spec.version.is_some() {
            let state = store.state()?;
            let (newest, _) = state.version(&spec.name, None)?;
            let (number, _) = state.at(&spec.name, spec.version.as_ref())?;
            if number != newest {
                return Err(Error::invalid(format!(
                    "{spec}: versions never change, and a new one comes behind @{newest}"
                ))
                .hint(format!("write {}, or drop the whole version", spec.name)));
            }
        }
        paths.push(spec.path);
        name = Some(spec.name);
    }
    let name = name.ok_or_else(|| Error::invalid("no ref is named"))?;
    if paths.iter().any(Vec::is_empty) {
        paths.clear();
    }
    Ok((name, paths))
}

fn before(now: Timestamp, span: Duration) -> Time {
    let then = now.checked_sub(span).unwrap_or(Timestamp::MIN);
    Time {
        secs: then.as_second(),
        nanos: u32::try_from(then.subsec_nanosecond()).unwrap_or(0),
    }
}

/// The arguments, for the version's message.
fn words(args: &Args) -> String {
    let mut words: Vec<String> = args
        .targets
        .iter()
        .map(|target| target.to_string_lossy().into_owned())
        .collect();
    words.extend(args.glob.iter().map(|glob| format!("--glob {glob}")));
    words.extend(
        args.larger_than
            .map(|bytes| format!("--larger-than {}", human::bytes(bytes))),
    );
    words.extend(
        args.older_than
            .map(|span| format!("--older-than {}", human::duration(span))),
    );
    words.join(" ")
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, done) = (&self.target, &self.done);
        let from = done.from;
        let what = entries(done.removed.entries);
        let bytes = human::bytes(done.removed.bytes);
        match done.version {
            None => write!(
                out,
                "nothing is done; a new version would lack {what} of {name}@{from}, {bytes}"
            )?,
            Some(version) => write!(
                out,
                "{name}@{version}{}: without {what} of @{from}, {bytes}\n\
                 @{from} still has them, and their bytes stay until it is dropped; while this is the newest version, `store rm {}` \
                 takes it back",
                names::id(done.id.as_ref()),
                names::quoted(&format!("{name}@{version}"))
            )?,
        }
        if self.dry_run {
            let paths = &done.removed.paths;
            for path in paths.iter().take(TOLD_MAX) {
                write!(out, "\nwould go: {}", shown(path))?;
            }
            match paths.len().saturating_sub(TOLD_MAX) {
                0 => {}
                more => write!(out, "\nand {more} more")?,
            }
        }
        let Some(frees) = &done.frees else {
            return Ok(());
        };
        let bytes = human::bytes(frees.bytes);
        let held: Vec<String> = frees
            .held_by
            .iter()
            .map(|number| format!("@{number}"))
            .collect();
        match held.as_slice() {
            [] => write!(out, "\nfrees nothing: others have all of it"),
            held => write!(
                out,
                "\nfrees nothing at once: {bytes} when {} {} dropped, and `store gc` has run",
                held.join(" and "),
                if held.len() == 1 { "is" } else { "are" }
            ),
        }
    }
}

fn entries(count: u64) -> String {
    match count {
        1 => "1 entry".to_owned(),
        count => format!("{} entries", human::count(count)),
    }
}
