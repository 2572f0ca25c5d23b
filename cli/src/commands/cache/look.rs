//! `store cache status` and `store cache lookup`: the entries here, and those of a ref.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use store::{Error, Reader, RefName, Result};

use super::entries::{Entries, Entry, Look, State};
use super::of_ref::{self, Stored};
use super::profile::Profile;
use super::stray::{self, Strays};
use super::{Named, of_dir};
use crate::context::Context;
use crate::ui::table::Side;
use crate::ui::{human, names};

/// The JSON form of a status.
#[derive(Serialize)]
struct Status {
    profile: String,
    #[serde(serialize_with = "store::path_as_text")]
    directory: PathBuf,
    complete: u64,
    failed: Vec<Named>,
    locked: Vec<Named>,
    incomplete: Vec<Named>,
    /// Files that belong to no entry.
    no_entry: Strays,
    refs: Vec<Compared>,
}

/// The comparison of the cache with a ref.
#[derive(Serialize)]
struct Compared {
    #[serde(rename = "ref")]
    name: RefName,
    /// `None` if the ref does not exist.
    version: Option<u64>,
    /// Complete entries of the ref.
    complete: u64,
    /// Entries on both sides, with the same sizes and times.
    same: u64,
    /// Entries on both sides with different sizes or times.
    different: Vec<Named>,
    /// Entries that are complete in the ref only: a pull would bring them.
    absent_here: u64,
    /// Entries that are complete here only: a push would add them.
    absent_there: u64,
    /// Entries that are not complete in the ref.
    broken_there: Vec<Named>,
}

pub(super) fn status(
    root: &Path,
    refs: &[RefName],
    profile: &Profile,
    context: &Context,
) -> Result<()> {
    let mut here = of_dir::read(root, profile)?;
    of_dir::look_through(&mut here, root, profile, |_, _| true)?;
    let named = |state: State| -> Vec<Named> {
        let found = here
            .iter()
            .filter(|(_, entry)| entry.state(profile) == state);
        found.map(|(path, _)| Named::new(path)).collect()
    };
    let mut compared = Vec::new();
    if !refs.is_empty() {
        let store = context.open()?;
        let reader = Reader::new(&store)?;
        for name in refs {
            let mut stored = of_ref::read(&reader, name, profile)?;
            if let Some(stored) = &mut stored {
                of_ref::look_for_lost(stored, (&reader, name), profile)?;
                // An entry that is the same here was checked here.
                let look = (&reader, Look::Quick);
                of_ref::look_into(&mut stored.entries, look, profile, |path, entry| {
                    !is_as_here(here.get(path), entry, profile)
                })?;
            }
            compared.push(Compared::new(name, stored, &here, profile));
        }
    }
    context.out.answer(&Status {
        profile: profile.name.clone(),
        directory: root.to_path_buf(),
        complete: named(State::Complete).len() as u64,
        failed: named(State::Failed),
        locked: named(State::Locked),
        incomplete: named(State::Incomplete),
        no_entry: stray::of_dir(root, profile, &|_, _| false)?,
        refs: compared,
    })
}

/// Whether an entry is complete here and has the same sizes and times.
fn is_as_here(own: Option<&Entry>, entry: &Entry, profile: &Profile) -> bool {
    let own = own.filter(|own| own.state(profile) == State::Complete);
    let shape = profile.entry.get(entry.shape);
    own.zip(shape)
        .is_some_and(|(own, shape)| own.looks_like(entry, shape))
}

impl Compared {
    fn new(name: &RefName, stored: Option<Stored>, here: &Entries, profile: &Profile) -> Self {
        let version = stored.as_ref().map(|stored| stored.version);
        let there = stored.map(|stored| stored.entries).unwrap_or_default();
        let is_whole = |entry: &Entry| entry.state(profile) == State::Complete;
        let mut told = Self {
            name: name.clone(),
            version,
            complete: 0,
            same: 0,
            different: Vec::new(),
            absent_here: 0,
            absent_there: 0,
            broken_there: Vec::new(),
        };
        for (path, entry) in &there {
            if !is_whole(entry) {
                told.broken_there.push(Named::new(path));
                continue;
            }
            told.complete += 1;
            let own = here.get(path).filter(|own| is_whole(own));
            match own {
                Some(_) if is_as_here(own, entry, profile) => told.same += 1,
                Some(_) => told.different.push(Named::new(path)),
                None => told.absent_here += 1,
            }
        }
        let own = here.iter().filter(|(_, entry)| is_whole(entry));
        let alone = own.filter(|(path, _)| !there.get(*path).is_some_and(is_whole));
        told.absent_there = alone.count() as u64;
        told
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dir = names::shown(self.directory.as_os_str().as_bytes());
        write!(
            out,
            "{dir} ({}): {} complete, {} failed, {} locked, {} incomplete",
            self.profile,
            human::count(self.complete),
            self.failed.len(),
            self.locked.len(),
            self.incomplete.len()
        )?;
        for (word, found) in [
            ("failed", &self.failed),
            ("locked", &self.locked),
            ("incomplete", &self.incomplete),
        ] {
            for entry in found {
                write!(out, "\n  {word}: {}", entry.shown())?;
            }
        }
        self.no_entry.fmt(out)?;
        for one in &self.refs {
            let Some(version) = one.version else {
                write!(out, "\n{}: is not there yet", one.name)?;
                continue;
            };
            write!(
                out,
                "\n{}@{version}: {} complete, {} as here, {} missing here, {} missing there, {} different in sizes or times, {} broken there",
                one.name,
                human::count(one.complete),
                human::count(one.same),
                human::count(one.absent_here),
                human::count(one.absent_there),
                one.different.len(),
                one.broken_there.len()
            )?;
            for (word, found) in [
                ("different", &one.different),
                ("broken there", &one.broken_there),
            ] {
                for entry in found {
                    write!(out, "\n  {word}: {}", entry.shown())?;
                }
            }
        }
        Ok(())
    }
}

/// The result for one key; an object of `--json`.
#[derive(Serialize)]
struct Found {
    key: String,
    /// The ref that has the entry.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    source: Option<RefName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<String>,
    hit: bool,
}

/// Whether a key names the entry at this path: it is the path, or its last components.
pub(super) fn is_meant(path: &[u8], key: &[u8]) -> bool {
    let rest = path.strip_suffix(key);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(b"/"))
}

pub(super) fn lookup(
    keys: &[&OsString],
    refs: &[RefName],
    profile: &Profile,
    context: &Context,
) -> Result<()> {
    if keys.is_empty() || refs.is_empty() {
        return Err(Error::invalid("lookup: expected keys and a ref")
            .hint("refs begin with project/ or team/"));
    }
    let store = context.open()?;
    let reader = Reader::new(&store)?;
    let mut found: Vec<Found> = keys.iter().map(|key| Found::missing(key)).collect();
    for name in refs {
        let Some(mut stored) = of_ref::read(&reader, name, profile)? else {
            context
                .out
                .note(format_args!("note: {name}: is not there yet"));
            continue;
        };
        of_ref::look_for_lost(&mut stored, (&reader, name), profile)?;
        let wanted = || keys.iter().zip(&found).filter(|(_, line)| !line.hit);
        let wanted: Vec<&OsString> = wanted().map(|(key, _)| *key).collect();
        let hits = hits(&mut stored.entries, &wanted, &reader, profile)?;
        for (key, line) in keys.iter().zip(&mut found).filter(|(_, line)| !line.hit) {
            if let Some(path) = hits.get(*key) {
                line.hit = true;
                line.source = Some(name.clone());
                line.version = Some(stored.version);
                line.entry = Some(names::shown(path));
            }
        }
    }
    let hits = found.iter().filter(|line| line.hit).count();
    let misses = (found.len() - hits) as u64;
    let columns = [("", Side::Left), ("key", Side::Left), ("ref", Side::Left)];
    context.out.list(&columns, found.into_iter(), |line| {
        let word = if line.hit { "hit" } else { "miss" };
        let source = line.source.as_ref().zip(line.version);
        let source = source.map(|(name, version)| format!("{name}@{version}"));
        [
            word.to_owned(),
            line.key.clone(),
            source.unwrap_or_default(),
        ]
    })?;
    let told = format!("{} not there", human::counted(misses, "key"));
    match (hits, misses) {
        (_, 0) => Ok(()),
        (0, _) => Err(Error::not_found(told)),
        _ => Err(Error::partial(told)),
    }
}

/// Returns the paths of the complete entries of a ref for these keys.
fn hits(
    stored: &mut Entries,
    keys: &[&OsString],
    reader: &Reader<'_>,
    profile: &Profile,
) -> Result<BTreeMap<OsString, Vec<u8>>> {
    let mut looked_into = BTreeSet::new();
    loop {
        let whole = stored.iter();
        let whole = whole.filter(|(_, entry)| entry.state(profile) == State::Complete);
        let by_end = ends(whole.map(|(path, _)| path.as_slice()));
        let hits = keys.iter().filter_map(|key| {
            let path = by_end.get(key.as_bytes())?;
            Some(((*key).clone(), path.to_vec()))
        });
        let hits: BTreeMap<OsString, Vec<u8>> = hits.collect();
        let new: BTreeSet<Vec<u8>> = hits.values().cloned().collect();
        let new: BTreeSet<Vec<u8>> = new.difference(&looked_into).cloned().collect();
        if new.is_empty() {
            return Ok(hits);
        }
        // A key may mean another entry if this one is truncated.
        of_ref::look_into(stored, (reader, Look::Quick), profile, |path, _| {
            new.contains(path)
        })?;
        looked_into.extend(new);
    }
}

impl Found {
    fn missing(key: &OsString) -> Self {
        Self {
            key: names::shown(key.as_bytes()),
            source: None,
            version: None,
            entry: None,
            hit: false,
        }
    }
}

/// The entries by all keys that name them.
fn ends<'p>(
    paths: impl Iterator<Item = &'p [u8]>,
) -> std::collections::HashMap<&'p [u8], &'p [u8]> {
    let mut ends = std::collections::HashMap::new();
    for path in paths {
        ends.insert(path, path);
        let mut rest = path;
        while let Some(at) = rest.iter().position(|byte| *byte == b'/') {
            rest = rest.get(at + 1..).unwrap_or_default();
            ends.entry(rest).or_insert(path);
        }
    }
    ends
}
