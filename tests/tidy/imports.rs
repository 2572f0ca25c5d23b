//! Imports inside of the engine go one way: pipelines, then objects, then disk and remotes, then
//! pure rooms, then formats, then ids and errors. Between rooms of one floor there is no circle.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, files, report};

/// Rooms of `store/src`, the lowest floor first. A room may use its own floor and those below.
const FLOORS: [&[&str]; 6] = [
    &["id", "error", "progress", "size"],
    &["format"],
    &["chunk", "codec", "tree"],
    &["fs", "host", "profile", "remote"],
    &[
        "log",
        "pack",
        "index",
        "store",
        "refs",
        "read",
        "graph",
        "wanted",
        "policy",
        "session",
        "access",
        "materialize",
    ],
    &["put", "get", "cat", "inspect", "replicate", "check"],
];

#[test]
fn imports_of_the_engine_go_one_way() {
    let exported = exported();
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut offences = Vec::new();
    for source in engine() {
        let Some(room) = room_of(&source.path) else {
            continue;
        };
        let Some(floor) = floor_of(&room) else {
            offences.push(format!(
                "{}: room {room:?} has no floor in tidy",
                source.path
            ));
            continue;
        };
        for (line, target) in mentions(&source.code()) {
            let target = exported.get(&target).cloned().unwrap_or(target);
            if floor_of(&target).is_some_and(|below| below > floor) {
                offences.push(format!("{}:{line}: {room} uses {target}", source.path));
            }
            if target != room {
                uses.entry(room.clone()).or_default().insert(target);
            }
        }
    }
    offences.extend(circles(&uses));
    report("imports go down the floors of the engine", &offences);
}

fn engine() -> impl Iterator<Item = Source> {
    files(&[".rs"])
        .into_iter()
        .filter(|source| source.path.starts_with("store/src/"))
}

/// The room that a file belongs to; none for `lib.rs`, which is the map of all.
fn room_of(path: &str) -> Option<String> {
    let inside = path.strip_prefix("store/src/")?;
    let first = inside.split('/').next()?;
    let room = first.strip_suffix(".rs").unwrap_or(first);
    (room != "lib").then(|| room.to_owned())
}

fn floor_of(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

/// What `lib.rs` exports again under the crate's own name, and from which room.
fn exported() -> BTreeMap<String, String> {
    let lib = engine()
        .find(|source| source.path == "store/src/lib.rs")
        .unwrap();
    let mut exported = BTreeMap::new();
    for statement in lib.code().split(';') {
        let Some((_, path)) = statement.split_once("pub use ") else {
            continue;
        };
        let Some((room, names)) = path.split_once("::") else {
            continue;
        };
        for name in names.split(|c: char| !c.is_alphanumeric() && c != '_') {
            exported.insert(name.to_owned(), room.trim().to_owned());
        }
    }
    exported
}

/// Line and first name of every `crate::name` and `crate::{name, ...}`.
fn mentions(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, path) in code.match_indices("crate::") {
        let line = code.get(..at).unwrap().lines().count().max(1);
        let rest = code.get(at + path.len()..).unwrap();
        found.extend(heads(rest).into_iter().map(|head| (line, head)));
    }
    found
}

/// `a` of `a::b`, or `a` and `c` of `{a::{x, y}, c}`.
fn heads(rest: &str) -> Vec<String> {
    let Some(list) = rest.strip_prefix('{') else {
        return vec![word(rest)];
    };
    let mut heads = vec![word(list.trim_start())];
    let mut depth = 1;
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' if depth == 1 => heads.push(word(list.get(at + 1..).unwrap().trim_start())),
            _ => {}
        }
    }
    heads.retain(|head| !head.is_empty());
    heads
}

fn word(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

/// Rooms that lead back to themselves.
fn circles(uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let circle = |room: &String| reaches(uses, room, room, &mut BTreeSet::new());
    uses.keys()
        .filter(|room| circle(room))
        .map(|room| format!("{room} leads back to {room}"))
        .collect()
}

fn reaches(
    uses: &BTreeMap<String, BTreeSet<String>>,
    from: &String,
    to: &String,
    seen: &mut BTreeSet<String>,
) -> bool {
    uses.get(from).is_some_and(|next| {
        next.contains(to)
            || next
                .iter()
                .any(|room| seen.insert(room.clone()) && reaches(uses, room, to, seen))
    })
}

#[test]
fn both_forms_of_an_import_are_seen() {
    let code = "use crate::format::Pack;\nuse crate::{id::{A, B}, error::Error, Kind};\n";
    let found: Vec<_> = mentions(code);
    let expected = [(1, "format"), (2, "id"), (2, "error"), (2, "Kind")];
    assert_eq!(found, expected.map(|(line, name)| (line, name.to_owned())));
}

#[test]
fn a_circle_is_seen() {
    let uses = [("a", "b"), ("b", "c"), ("c", "b")];
    let uses = uses
        .map(|(from, to)| (from.to_owned(), BTreeSet::from([to.to_owned()])))
        .into();
    assert_eq!(circles(&uses), ["b leads back to b", "c leads back to c"]);
}
