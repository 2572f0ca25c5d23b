//! Variables of the user that lead downloads past the caches of a run, and those that the run overrules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::caches::Cache;
use crate::context::Context;
use crate::ui::names;

/// The variable of the layout that these overrule, each for its downloads.
const HOME: &str = "HF_HOME";
const OVERRULE: [&str; 3] = [
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "TRANSFORMERS_CACHE",
];

/// Warns of variables in this environment that overrule HF_HOME of the layout and lead out of the caches.
pub(super) fn warn(variables: &BTreeMap<String, String>, caches: &[Cache], context: &Context) {
    if !variables.contains_key(HOME) {
        return;
    }
    let own = OVERRULE
        .iter()
        .filter(|name| !variables.contains_key(**name));
    for name in own {
        let place = std::env::var_os(name).filter(|place| !place.is_empty());
        let Some(place) = place.map(PathBuf::from) else {
            continue;
        };
        if caches.iter().any(|cache| is_in(&place, &cache.dir)) {
            continue;
        }
        context.out.warning(format_args!(
            "warning: {name} is set and leads to {}: what the command downloads there is not in the caches of this run, \
             and is not saved; unset it, or have the layout set it",
            names::printable(&place.to_string_lossy())
        ));
    }
}

/// Notes the directories that variables of this environment name and that the command does not get.
pub(super) fn note_overruled(variables: &BTreeMap<String, String>, context: &Context) {
    for (name, value) in variables {
        let own = std::env::var_os(name).filter(|own| !own.is_empty());
        let Some(own) = own.map(PathBuf::from) else {
            continue;
        };
        let is_other = own.is_absolute() && real(&own) != real(Path::new(value));
        if is_other {
            context.out.note(format_args!(
                "note: {name} was {}, and is {} for the command",
                names::printable(&own.to_string_lossy()),
                names::printable(value)
            ));
        }
    }
}

/// Whether `place` is in `dir`, by its name or by what that leads to.
fn is_in(place: &Path, dir: &Path) -> bool {
    let place = std::path::absolute(place).unwrap_or_else(|_| place.to_path_buf());
    if place.components().any(|part| part.as_os_str() == "..") {
        return real(&place).starts_with(real(dir));
    }
    place.starts_with(dir) || real(&place).starts_with(real(dir))
}

/// The path with the links in the part of it that is there resolved.
fn real(path: &Path) -> PathBuf {
    let mut above = path.ancestors();
    let found = above.find_map(|above| Some((above, above.canonicalize().ok()?)));
    match found {
        Some((above, real)) => match path.strip_prefix(above) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        },
        None => path.to_path_buf(),
    }
}
