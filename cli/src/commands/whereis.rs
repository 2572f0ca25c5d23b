//! `store where`: lists which named stores have a ref, whole or in part.

use std::collections::BTreeSet;
use std::ffi::OsString;

use serde::Serialize;
use store::{Error, ErrorKind, Id, RefSpec, Result, Store};

use crate::config::clusters::{self, HERE};
use crate::context::{Context, elsewhere};
use crate::ui::table::Side;
use crate::ui::{failure, names};

/// Show which clusters have a ref: all of it, or which versions
///
/// The store that every verb uses and all clusters of the configuration are asked. A version is there whole or not at
/// all. Its number belongs to one store; its id is the same everywhere. `all` means every version that any of them has,
/// or, with @N, that version of the store `here`. The exit code is 3 if no store has any version, and 6 if a store
/// could not be asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A ref, like project/llama-ft/imagenet, or a version of it
    #[arg(value_name = "REF[@N]")]
    what: OsString,
}

/// How much of a ref a store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Has {
    All,
    Part,
    None,
    /// The store could not be asked.
    Unknown,
}

/// A version in one store.
#[derive(Serialize)]
struct Held {
    version: u64,
    id: Id,
}

/// One store; an object of `--json`.
#[derive(Serialize)]
struct Line {
    /// The name of a cluster, or `here`.
    place: String,
    /// The URL without credentials.
    url: String,
    has: Has,
    versions: Vec<Held>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let spec = names::spec(&args.what)?;
    if !spec.path.is_empty() {
        return Err(Error::invalid(format!(
            "{spec}: expected a ref or a version, found a path in it"
        )));
    }
    let here = match context.open() {
        // The embedded store is created by the first put; until then it is empty.
        Err(error) if error.kind() == ErrorKind::NotFound && context.is_embedded()? => None,
        opened => Some(opened),
    };
    let spec = by_id(spec, here.as_ref())?;
    let here = here.map(|opened| opened.and_then(|store| held(&store, &spec)));
    let mut lines = vec![line(
        HERE,
        context.store_url()?,
        here.unwrap_or_else(|| Ok(Vec::new())),
    )];
    for (label, cluster) in &context.config().cluster {
        let opened = context.open_named(label.as_str(), None);
        let found = opened.and_then(|store| held(&store, &spec));
        lines.push(line(label.as_str(), cluster.url.clone(), found));
    }
    let wanted = wanted(&lines, spec.version.is_some());
    for line in &mut lines {
        line.judge(&wanted);
    }
    let failed: Vec<String> = lines
        .iter()
        .filter_map(|line| Some(format!("{}: {}", line.place, line.error.as_ref()?)))
        .collect();
    let is_anywhere = lines.iter().any(|line| !line.versions.is_empty());
    let columns = [
        ("place", Side::Left),
        ("has", Side::Left),
        ("versions", Side::Left),
        ("url", Side::Left),
    ];
    context.out.list(&columns, lines.into_iter(), cells)?;
    match (failed.is_empty(), is_anywhere) {
        (false, _) => Err(Error::partial(format!("{spec}: not all could be asked")).list(failed)),
        (true, false) => Err(Error::not_found(format!("{spec}: none of them has it"))),
        (true, true) => Ok(()),
    }
}

/// Replaces a version's number by its id, since numbers belong to the store here and ids are the same everywhere.
fn by_id(spec: RefSpec, here: Option<&Result<Store>>) -> Result<RefSpec> {
    let (Some(_), Some(Ok(store))) = (&spec.version, here) else {
        return Ok(spec);
    };
    let state = store.readable_state()?;
    match state.at(&spec.name, spec.version.as_ref()) {
        Ok((_, version)) => format!("{}@{}", spec.name, version.id()).parse(),
        // Other stores may know the id.
        Err(_) if spec.to_string().contains("@t") => Ok(spec),
        Err(error) => Err(error),
    }
}

/// The line of a store. A missing store counts as unknown, since its mount may be missing.
fn line(place: &str, url: String, found: Result<Vec<Held>>) -> Line {
    let (versions, error) = match found {
        Ok(versions) => (versions, None),
        Err(error) => (Vec::new(), Some(failure::one_line(&error))),
    };
    Line {
        place: place.to_owned(),
        url: clusters::masked(&url),
        has: if error.is_some() {
            Has::Unknown
        } else {
            Has::None
        },
        versions,
        error,
    }
}

/// The versions of the ref in a store; empty if it does not know the ref. Numbers belong to one store, so all versions
/// are returned, and the caller compares ids.
fn held(store: &Store, spec: &RefSpec) -> Result<Vec<Held>> {
    let state = store.readable_state()?;
    let is_nowhere = |error: Error| match error.kind() {
        ErrorKind::NotFound => elsewhere::check_log(store, state.number).map(|()| Vec::new()),
        _ => Err(error),
    };
    let versions = match state.versions(&spec.name) {
        Ok(versions) => versions,
        Err(error) => return is_nowhere(error),
    };
    let wanted = match &spec.version {
        Some(at) => match state.at(&spec.name, Some(at)) {
            Ok((number, _)) => Some(number),
            Err(error) => return is_nowhere(error),
        },
        None => None,
    };
    let all = versions.iter().map(|(number, version)| Held {
        version: *number,
        id: version.id(),
    });
    Ok(all
        .filter(|held| wanted.is_none_or(|wanted| held.version == wanted))
        .collect())
}

/// The ids that a store with the whole ref has.
fn wanted(lines: &[Line], is_one_version: bool) -> BTreeSet<Id> {
    let here = lines.iter().filter(|line| line.place == HERE);
    let ids = |line: &Line| {
        line.versions
            .iter()
            .map(|held| held.id.clone())
            .collect::<Vec<_>>()
    };
    let of_here: BTreeSet<Id> = here.flat_map(ids).collect();
    if is_one_version && !of_here.is_empty() {
        return of_here;
    }
    lines.iter().flat_map(ids).collect()
}

impl Line {
    fn judge(&mut self, wanted: &BTreeSet<Id>) {
        let own: BTreeSet<Id> = self.versions.iter().map(|held| held.id.clone()).collect();
        if self.has == Has::Unknown || own.is_empty() {
            return;
        }
        self.has = match wanted.is_subset(&own) {
            true => Has::All,
            false => Has::Part,
        };
    }
}

fn cells(line: &Line) -> [String; 4] {
    let has = match line.has {
        Has::All => "all",
        Has::Part => "part",
        Has::None => "none",
        Has::Unknown => "?",
    };
    let versions = line.versions.iter();
    let versions: Vec<String> = versions
        .map(|held| format!("@{}{}", held.version, names::id(Some(&held.id))))
        .collect();
    [
        line.place.clone(),
        has.to_owned(),
        line.error.clone().unwrap_or_else(|| versions.join(", ")),
        line.url.clone(),
    ]
}
