//! Finds mistakes that the parser takes, and that would silently match nothing, or too much.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::{HEAD_BYTES_MAX, Need, Profile, Root, Shape};
use crate::commands::cache::pattern::Pattern;

/// The error says which key is wrong, and why.
type Checked = Result<(), String>;

pub(super) fn profile(profile: &Profile) -> Checked {
    if profile.entry.is_empty() {
        return Err("entry: expected at least one [[entry]]".to_owned());
    }
    profile
        .default
        .iter()
        .try_for_each(|place| default(place))?;
    if profile.stale.is_some_and(|span| span.0.is_zero()) {
        // Every lock would be abandoned, also that of a compiler at work.
        return Err("stale: expected more than 0".to_owned());
    }
    for (number, one) in (1..).zip(&profile.root) {
        root(one).map_err(|told| format!("[[root]] number {number}: {told}"))?;
    }
    for (at, shape) in profile.entry.iter().enumerate() {
        let before = profile.entry.get(..at).unwrap_or_default();
        let checked = path(shape, before).and_then(|()| entry(shape));
        checked.map_err(|told| format!("[[entry]] number {}: {told}", at + 1))?;
    }
    Ok(())
}

fn default(place: &str) -> Checked {
    // The working directory, or everything, is no cache: `clean` deletes in it.
    let mut below = [place.strip_prefix("~/"), place.strip_prefix('/')].into_iter();
    if !below.any(|below| below.is_some_and(|below| !below.is_empty())) {
        return Err(format!(
            "default: expected a path below ~/ or /, found {place:?}"
        ));
    }
    match place.replace("{user}", "").contains(['{', '}']) {
        true => Err(format!(
            "default: expected no other {{...}} than {{user}}, found {place:?}"
        )),
        false => Ok(()),
    }
}

fn root(root: &Root) -> Checked {
    let variable = &root.variable;
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if !variable.chars().all(is_part) || !variable.starts_with(|first| !char::is_numeric(first)) {
        return Err(format!(
            "variable: expected the name of a variable, of letters, digits and _, found {variable:?}"
        ));
    }
    if let Some(option) = &root.option {
        let name = option.trim_start_matches('-');
        // It is compared with what is before the first = of a word.
        let is_word = !option.contains(|letter: char| letter == '=' || letter.is_whitespace());
        if name.is_empty() || name == option || !is_word {
            return Err(format!(
                "option: expected an option like \"--cache-dir\", found {option:?}"
            ));
        }
        if root.below.is_some() {
            return Err("option: expected `option` or `below`, found both".to_owned());
        }
    }
    let is_below = |below: &PathBuf| {
        let mut parts = below.components();
        parts.all(|part| matches!(part, Component::Normal(_)))
    };
    match root.below.as_ref().filter(|below| !is_below(below)) {
        Some(below) => Err(format!(
            "below: expected a path inside of the directory, found {below:?}"
        )),
        None => Ok(()),
    }
}

fn path(shape: &Shape, before: &[Shape]) -> Checked {
    let mut before = before.iter();
    if before.any(|other| (&other.path, other.file) == (&shape.path, shape.file)) {
        return Err("path: an [[entry]] before it has the same".to_owned());
    }
    match shape.path.is_plain() {
        true => Ok(()),
        false => Err("path: expected a path without **".to_owned()),
    }
}

fn entry(shape: &Shape) -> Checked {
    let mut patterns = patterns(shape);
    if let Some((key, pattern)) = patterns.find(|(_, pattern)| pattern.has_fields()) {
        // Such a part may have any text here: it is not that of the path.
        return Err(format!(
            "{key}: expected * where a name may vary, found {pattern}: parts of a key are for `path`"
        ));
    }
    match shape.file {
        true => file(shape)?,
        false if !shape.beside.is_empty() => {
            return Err("beside: is for entries that are a file (file = true)".to_owned());
        }
        false => {}
    }
    needs(shape)?;
    states(shape)?;
    copies(shape)
}

/// The patterns of files, by their keys.
fn patterns(shape: &Shape) -> impl Iterator<Item = (&'static str, &Pattern)> {
    let needs = shape.needs.iter().flat_map(|need| &need.files);
    let others = [
        ("failed", &shape.failed),
        ("locks", &shape.locks),
        ("volatile", &shape.volatile),
        ("keys", &shape.keys),
        ("rebase", &shape.rebase),
        ("groups", &shape.groups),
        ("frames", &shape.frames),
        ("scrub", &shape.scrub),
    ];
    let others = others.into_iter();
    let others = others.flat_map(|(key, all)| all.iter().map(move |pattern| (key, pattern)));
    needs.map(|pattern| ("needs", pattern)).chain(others)
}

/// For an entry that is a file.
fn file(shape: &Shape) -> Checked {
    let unused = [
        ("needs", shape.needs.is_empty()),
        ("failed", shape.failed.is_empty()),
        ("keys", shape.keys.is_empty()),
        ("groups", shape.groups.is_empty()),
    ];
    if let Some((key, _)) = unused.into_iter().find(|(_, is_empty)| !is_empty) {
        return Err(format!(
            "{key}: is for entries that are a directory, found file = true"
        ));
    }
    let sample = shape.path.samples().into_iter().next().unwrap_or_default();
    let name = Path::new(OsStr::from_bytes(&sample));
    let is_own = |end: &str| {
        let stem = name.file_stem().unwrap_or_default().as_bytes();
        let ending = name.file_name().unwrap_or_default().as_bytes();
        ending.strip_prefix(stem) == Some(end.as_bytes())
    };
    let is_wrong =
        |end: &&String| end.is_empty() || end.contains(['/', '*', '{', '\0']) || is_own(end);
    match shape.beside.iter().find(is_wrong) {
        Some(end) => Err(format!(
            "beside: expected another ending of the entry's name, like \"_Build\", found {end:?}"
        )),
        None => Ok(()),
    }
}

fn needs(shape: &Shape) -> Checked {
    if shape.needs.iter().any(|need| need.files.is_empty()) {
        return Err("needs: expected at least one name in `files`".to_owned());
    }
    let mut lengths = shape.needs.iter().flat_map(|need| &need.lengths);
    if lengths.any(|at| *at > HEAD_BYTES_MAX - 8) {
        let most = HEAD_BYTES_MAX - 8;
        return Err(format!("lengths: expected places up to {most}"));
    }
    let stays = |need: &Need| need.files.iter().all(|name| stays(shape, name));
    let lost = shape.needs.iter().find(|need| stays(need));
    match lost.and_then(|need| need.files.first()) {
        Some(name) => Err(format!(
            "needs: \"{name}\" never leaves the host, by `volatile`: no entry would be complete elsewhere"
        )),
        // A file of any name does for an entry without `needs`.
        None if shape.is_volatile(b"*") => Err(
            "volatile: expected that some files leave the host, found a pattern of all names"
                .to_owned(),
        ),
        None => Ok(()),
    }
}

/// Files that stand for a state would stand for it in all entries, or in complete ones.
fn states(shape: &Shape) -> Checked {
    let told = [
        ("locks", &shape.locks, "no entry would ever be complete"),
        (
            "failed",
            &shape.failed,
            "no entry would ever be just incomplete",
        ),
    ];
    for (key, patterns, so) in told {
        if let Some(pattern) = patterns.iter().find(|pattern| pattern.is_any()) {
            return Err(format!(
                "{key}: expected names of some files, found \"{pattern}\": {so}"
            ));
        }
        let mut needed = shape.needs.iter().flat_map(|need| &need.files);
        if let Some(name) = needed.find(|name| covers(patterns, name)) {
            return Err(format!(
                "{key}: expected other files than those of `needs`, found \"{name}\""
            ));
        }
    }
    Ok(())
}

/// Texts that are repaired on their way.
fn copies(shape: &Shape) -> Checked {
    for (key, patterns) in [("groups", &shape.groups), ("rebase", &shape.rebase)] {
        if let Some(name) = patterns.iter().find(|name| stays(shape, name)) {
            return Err(format!(
                "{key}: \"{name}\" never leaves the host, by `volatile`"
            ));
        }
    }
    let mut groups = shape.groups.iter();
    match groups.find(|name| !covers(&shape.rebase, name)) {
        Some(name) => Err(format!(
            "groups: \"{name}\" is not in `rebase`: elsewhere it would name places of this host"
        )),
        None => Ok(()),
    }
}

/// Whether no file of such a name leaves the host.
fn stays(shape: &Shape, name: &Pattern) -> bool {
    name.samples().iter().all(|name| shape.is_volatile(name))
}

/// Whether the patterns match whatever `name` does.
fn covers(patterns: &[Pattern], name: &Pattern) -> bool {
    let is_matched = |name: &Vec<u8>| patterns.iter().any(|pattern| pattern.matches(name));
    name.samples().iter().all(is_matched)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        match Profile::parse("x", Path::new("x.toml"), text) {
            Ok(_) => "taken".to_owned(),
            Err(error) => format!("{error:?}"),
        }
    }

    #[test]
    fn a_root_that_no_variable_can_name_is_refused() {
        let of = |rest: &str| {
            let entry = "about = \"\"\n[[entry]]\npath = \"{key}\"\n";
            told(&format!("{entry}[[root]]\n{rest}\n"))
        };
        for (rest, wanted) in [
            (
                "variable = \"$MINE\"",
                "[[root]] number 1: variable: expected the name of a variable, of letters",
            ),
            ("variable = \"MINE CACHE\"", "found \"MINE CACHE\""),
            ("variable = \"1MINE\"", "variable: "),
            (
                "variable = \"M\"\noption = \"dir\"",
                "option: expected an option like",
            ),
            ("variable = \"M\"\noption = \"--\"", "option: "),
            ("variable = \"M\"\noption = \"--x=\"", "option: "),
            ("variable = \"M\"\noption = \"--x y\"", "option: "),
            (
                "variable = \"M\"\noption = \"--x\"\nbelow = \"y\"",
                "option: expected `option` or `below`, found both",
            ),
        ] {
            assert!(of(rest).contains(wanted), "{rest}: {}", of(rest));
        }
        for rest in ["option = \"--x\"", "option = \"-x\"", "below = \"x/y\""] {
            let rest = format!("variable = \"_M1\"\n{rest}");
            assert_eq!(of(&rest), "taken", "{rest}");
        }
    }

    #[test]
    fn a_default_knows_the_user_only() {
        let of = |place: &str| {
            let entry = "[[entry]]\npath = \"{key}\"\n";
            told(&format!("about = \"\"\ndefault = \"{place}\"\n{entry}"))
        };
        assert_eq!(of("/tmp/mine_{user}"), "taken");
        for place in ["/tmp/{uesr}", "/tmp/{user}/{home}", "/tmp/{user", "/{}"] {
            let wanted = "default: expected no other {...} than {user}, found";
            assert!(of(place).contains(wanted), "{place}: {}", of(place));
        }
    }

    /// Keys of an entry that is a directory.
    #[test]
    fn files_that_cannot_be_what_a_key_says_are_refused() {
        let need = "needs = [{ files = [\"done\", \"**/done\"], bytes = 0 }]\n";
        let of = |rest: &str| {
            let entry = "about = \"\"\n[[entry]]\npath = \"{key}\"\n";
            told(&format!("{entry}{rest}\n"))
        };
        for (rest, wanted) in [
            (
                "needs = [{ files = [\"code.{bin,so}\"], bytes = 0 }]",
                "needs: expected * where a name may vary, found code.{bin,so}",
            ),
            ("scrub = [\"{a:hex4}\"]", "scrub: expected *"),
            ("volatile = [\"!*.tmp\"]", "line 4, volatile: expected"),
            ("volatile = [\"**/*\"]", "volatile: expected that some"),
            (
                "groups = [\"g.json\"]",
                "groups: \"g.json\" is not in `rebase`",
            ),
            ("groups = [\"**/g\"]\nrebase = [\"*/g\"]", "not in `rebase`"),
            (
                "groups = [\"g\"]\nrebase = [\"*\"]\nvolatile = [\"g\"]",
                "groups: \"g\" never leaves the host",
            ),
            (
                "rebase = [\"a/g.json\"]\nvolatile = [\"a\"]",
                "rebase: \"a/g.json\" never",
            ),
            (
                "locks = [\"*\"]",
                "locks: expected names of some files, found \"*\"",
            ),
            ("locks = [\"**\"]", "locks: expected names"),
            ("failed = [\"**/*\"]", "failed: expected names"),
            (
                &format!("{need}locks = [\"do*\"]"),
                "locks: expected other files than those of `needs`, found \"done\"",
            ),
            (
                &format!("{need}failed = [\"done\"]"),
                "failed: expected other",
            ),
        ] {
            assert!(of(rest).contains(wanted), "{rest}: {}", of(rest));
        }
        for rest in [
            "groups = [\"g*.json\"]\nrebase = [\"*.json\"]\nvolatile = [\"g.json\"]",
            "locks = [\"*.lock\"]\nvolatile = [\"**/*.*\"]",
            &format!("{need}locks = [\"done.*\"]\nvolatile = [\"done\", \"x/done\"]"),
        ] {
            assert_eq!(of(rest), "taken", "{rest}");
        }
    }

    #[test]
    fn an_entry_that_is_a_file_has_no_files_inside() {
        let of = |rest: &str| {
            let entry = "about = \"\"\n[[entry]]\npath = \"{key}.so\"\nfile = true\n";
            told(&format!("{entry}{rest}\n"))
        };
        for (rest, wanted) in [
            (
                "needs = [{ files = [\"x\"], bytes = 0 }]",
                "needs: is for entries that are a directory",
            ),
            ("failed = [\"x\"]", "failed: is for"),
            ("beside = [\"\"]", "beside: expected another ending"),
            ("beside = [\"_B\", \"a/b\"]", "found \"a/b\""),
            ("beside = [\"*_B\"]", "beside: "),
            ("beside = [\".so\"]", "beside: "),
        ] {
            assert!(of(rest).contains(wanted), "{rest}: {}", of(rest));
        }
        assert_eq!(of("beside = [\"_B\", \".tmp\"]"), "taken");
    }
}
