//! `store cache why`: the parts of a key that differ in the most similar entries.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use store::{Error, Reader, RefName, RefSpec, Result};

use super::entries::{Entries, Entry, Look, State, Thing};
use super::look::is_meant;
use super::profile::Profile;
use super::repair::TEXT_BYTES_MAX;
use super::{of_dir, of_ref};
use crate::context::Context;
use crate::ui::names;

/// Number of entries to compare.
const NEAREST_MAX: usize = 3;

/// Parts of a key by name.
type Parts = BTreeMap<String, String>;

/// The JSON form of the answer.
#[derive(Serialize)]
struct Answer {
    key: String,
    /// Places of complete entries with this key.
    found: Vec<Place>,
    /// Places of incomplete entries with this key.
    broken: Vec<Broken>,
    nearest: Vec<Near>,
}

/// An entry, and where it is.
#[derive(Clone, Serialize)]
struct Place {
    entry: String,
    /// A directory, or a version of a ref.
    place: String,
}

#[derive(Serialize)]
struct Broken {
    #[serde(flatten)]
    place: Place,
    state: State,
}

#[derive(Serialize)]
struct Near {
    #[serde(flatten)]
    place: Place,
    differs: Vec<Difference>,
}

/// A part of the key on both sides; `None` if a side lacks it or does not know it.
#[derive(Serialize)]
struct Difference {
    field: String,
    wanted: Option<String>,
    found: Option<String>,
}

/// A place that has entries.
enum Source<'s> {
    Dir(PathBuf),
    Ref(&'s Reader<'s>, RefSpec),
}

impl Source<'_> {
    fn name(&self) -> String {
        match self {
            Self::Dir(dir) => names::shown(dir.as_os_str().as_bytes()),
            Self::Ref(_, spec) => spec.to_string(),
        }
    }

    /// Whether an entry that seems complete by names and sizes is complete.
    fn is_whole(&self, path: &[u8], entry: &Entry, profile: &Profile) -> Result<bool> {
        let mut entry = entry.clone();
        if let Self::Ref(reader, _) = self {
            entry.look_into(reader, (path, profile), Look::Quick)?;
        }
        Ok(entry.state(profile) == State::Complete)
    }

    fn read(&self, path: &[u8]) -> Result<Vec<u8>> {
        match self {
            Self::Dir(dir) => {
                let file = dir.join(OsStr::from_bytes(path));
                store::read_regular(&file, TEXT_BYTES_MAX)
                    .map_err(|source| Error::io("read", &file, source))
            }
            Self::Ref(reader, spec) => {
                let mut bytes = Vec::new();
                let mut spec = spec.clone();
                spec.path = path.to_vec();
                store::cat(reader.store(), &spec, &(0..TEXT_BYTES_MAX), &mut |part| {
                    bytes.extend_from_slice(part);
                    Ok(())
                })?;
                Ok(bytes)
            }
        }
    }
}

pub(super) fn run(
    key: &[u8],
    dir: Option<&Path>,
    refs: &[RefName],
    (profile, context): (&Profile, &Context),
) -> Result<()> {
    let store = (!refs.is_empty()).then(|| context.open()).transpose()?;
    let reader = store.as_ref().map(Reader::new).transpose()?;
    let mut sources: Vec<(Source<'_>, Entries)> = Vec::new();
    if let Some(dir) = dir {
        let mut found = of_dir::read(dir, profile)?;
        of_dir::look_through(&mut found, dir, profile, |path, _| is_meant(path, key))?;
        sources.push((Source::Dir(dir.to_path_buf()), found));
    }
    if let Some(reader) = &reader {
        for name in refs {
            let Some(mut stored) = of_ref::read(reader, name, profile)? else {
                context
                    .out
                    .note(format_args!("note: {name}: is not there yet"));
                continue;
            };
            of_ref::look_for_lost(&mut stored, (reader, name), profile)?;
            let spec = format!("{name}@{}", stored.version).parse()?;
            let is_asked = |path: &[u8], _: &Entry| is_meant(path, key);
            let look = (reader, Look::Whole);
            of_ref::look_into(&mut stored.entries, look, profile, is_asked)?;
            sources.push((Source::Ref(reader, spec), stored.entries));
        }
    }
    let answer = answer(key, &sources, profile)?;
    let is_answered =
        !(answer.found.is_empty() && answer.broken.is_empty() && answer.nearest.is_empty());
    if is_answered {
        return context.out.answer(&answer);
    }
    Err(Error::not_found(format!(
        "{}: there is no entry that could be compared",
        answer.key
    ))
    .hint("a key is the path of an entry in the cache, or the end of it"))
}

fn answer(key: &[u8], sources: &[(Source<'_>, Entries)], profile: &Profile) -> Result<Answer> {
    let mut wanted = of_path(profile, key);
    let mut is_known = false;
    let mut answer = Answer {
        key: names::shown(key),
        found: Vec::new(),
        broken: Vec::new(),
        nearest: Vec::new(),
    };
    let mut others = Vec::new();
    for (source, entries) in sources {
        for (path, entry) in entries {
            let (state, is_meant) = (entry.state(profile), is_meant(path, key));
            let place = Place {
                entry: names::shown(path),
                place: source.name(),
            };
            if is_meant && !is_known {
                wanted.extend(of_path(profile, path));
                let files = of_files(source, path, entry, profile)?;
                is_known = !files.is_empty();
                wanted.extend(files);
            }
            match (is_meant, state) {
                (true, State::Complete) => answer.found.push(place),
                (true, state) => answer.broken.push(Broken { place, state }),
                (false, State::Complete) => others.push((source, path, entry, place)),
                (false, _) => {}
            }
        }
    }
    others.retain(|(_, path, ..)| {
        of_path(profile, path)
            .keys()
            .any(|field| wanted.contains_key(field))
    });
    others.sort_by_cached_key(|(_, path, ..)| distance(&wanted, &of_path(profile, path)));
    for (source, path, entry, place) in others {
        if answer.nearest.len() == NEAREST_MAX {
            break;
        }
        if !source.is_whole(path, entry, profile)? {
            continue;
        }
        let mut found = of_path(profile, path);
        if is_known {
            found.extend(of_files(source, path, entry, profile)?);
        }
        answer.nearest.push(Near {
            place,
            differs: differences(&wanted, &found),
        });
    }
    Ok(answer)
}

/// The parts of a key that is the path of an entry, or its last components.
fn of_path(profile: &Profile, path: &[u8]) -> Parts {
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let mut shapes = profile.entry.iter();
    let fields = shapes.find_map(|shape| shape.path.fields_of_end(&names));
    fields.unwrap_or_default().into_iter().collect()
}

/// How different two keys are: a part that differs counts 100, a wanted part that is unknown in `found` counts 1.
fn distance(wanted: &Parts, found: &Parts) -> usize {
    let mut both = wanted
        .iter()
        .filter_map(|(field, text)| Some((text, found.get(field)?)));
    let differing = both.by_ref().filter(|(one, other)| one != other).count();
    let missing = wanted
        .keys()
        .filter(|field| !found.contains_key(*field))
        .count();
    differing * 100 + missing
}

fn differences(wanted: &Parts, found: &Parts) -> Vec<Difference> {
    let mut fields: Vec<&String> = wanted.keys().chain(found.keys()).collect();
    fields.sort();
    fields.dedup();
    let differing = fields.into_iter().filter(|field| {
        // A key that is only the end of a path says nothing about the components before it.
        let is_told = wanted.contains_key(*field) || field.contains(": ");
        is_told && wanted.get(*field) != found.get(*field)
    });
    let told = differing.map(|field| Difference {
        field: field.clone(),
        wanted: wanted.get(field).map(|text| unless_secret(text)),
        found: found.get(field).map(|text| unless_secret(text)),
    });
    told.collect()
}

/// The text, or what stands for it if it seems to hold credentials.
fn unless_secret(text: &str) -> String {
    match store::credentials_in(text) {
        None => text.to_owned(),
        Some(_) => "(looks like credentials)".to_owned(),
    }
}

/// The parts of the key that are stated in the files of an entry, as `FILE: FIELD`.
fn of_files(source: &Source<'_>, path: &[u8], entry: &Entry, profile: &Profile) -> Result<Parts> {
    let mut parts = Parts::new();
    let Some(shape) = profile.entry.get(entry.shape) else {
        return Ok(parts);
    };
    for (file, part) in entry.files(shape) {
        let is_small = matches!(part.thing, Thing::File { bytes } if bytes <= TEXT_BYTES_MAX);
        if !is_small || !shape.keys.iter().any(|pattern| pattern.matches(file)) {
            continue;
        }
        let bytes = source.read(&[path, b"/", file].concat())?;
        let name = names::shown(file);
        match serde_json::from_slice(&bytes) {
            Ok(value) => flat(&value, &format!("{name}: "), &mut parts),
            Err(_) => {
                let text = String::from_utf8_lossy(&bytes);
                let words = text.split_whitespace();
                words.for_each(|word| word_of(word, &format!("{name}: "), &mut parts));
            }
        }
    }
    Ok(parts)
}

/// Flattens JSON: fields by their paths, options of a command by their names.
fn flat(value: &Value, at: &str, parts: &mut Parts) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let dot = if at.ends_with(": ") { "" } else { "." };
                flat(field, &format!("{at}{dot}{name}"), parts);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                match item {
                    Value::String(word) if word.starts_with('-') => word_of(word, at, parts),
                    item => flat(item, &format!("{at}[{number}]"), parts),
                }
            }
        }
        Value::String(text) => drop(parts.insert(at.to_owned(), text.clone())),
        other => drop(parts.insert(at.to_owned(), other.to_string())),
    }
}

/// A word like `--name=value` or `--name`.
fn word_of(word: &str, at: &str, parts: &mut Parts) {
    let (name, value) = word.split_once('=').unwrap_or((word, "given"));
    parts.insert(format!("{at}{name}"), value.to_owned());
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        for place in &self.found {
            lines.push(format!("{}: is in {}", place.entry, place.place));
        }
        for Broken { place, state } in &self.broken {
            lines.push(format!(
                "{}: is {} in {}",
                place.entry,
                state.word(),
                place.place
            ));
        }
        if self.found.is_empty() {
            for near in &self.nearest {
                lines.push(format!(
                    "near: {} in {}",
                    near.place.entry, near.place.place
                ));
                for one in &near.differs {
                    let or = |text: &Option<String>| {
                        text.clone().unwrap_or_else(|| "nothing".to_owned())
                    };
                    let (wanted, found) = (or(&one.wanted), or(&one.found));
                    lines.push(format!("  {}: expected {wanted}, found {found}", one.field));
                }
            }
        }
        let lines: Vec<String> = lines.iter().map(|line| names::printable(line)).collect();
        out.write_str(&lines.join("\n"))
    }
}
