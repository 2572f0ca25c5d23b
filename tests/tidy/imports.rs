//! Imports inside of a package go one way, from rooms of upper floors to those below. The pipelines of the engine do
//! not import each other: what two of them need has a room of its own.

use std::collections::BTreeMap;

use crate::source::{Source, TESTS, files, report};

/// A package and its rooms by floor, lowest first. A room may use its own floor and those below.
struct House {
    src: &'static str,
    floors: &'static [&'static [&'static str]],
    /// Whether rooms of the highest floor must not use each other.
    is_apart_above: bool,
}

const ENGINE: House = House {
    src: "store/src/",
    floors: &[
        &[
            "id", "error", "progress", "remedy", "retry", "shown", "size",
        ],
        &["format"],
        &["chunk", "codec", "tree"],
        &["merge"],
        &["fs", "host", "profile", "remote"],
        &[
            "log", "pack", "index", "store", "refs", "read", "graph", "wanted", "policy",
            "session", "access", "sound", "claims", "throttle", "lists",
        ],
        &[
            "put",
            "get",
            "cat",
            "materialize",
            "inspect",
            "replicate",
            "check",
            "trim",
            "rates",
        ],
    ],
    is_apart_above: true,
};

const COLLECTOR: House = House {
    src: "gc/src/",
    floors: &[
        &["policy", "mark"],
        &[
            "request", "clock", "versions", "usage", "claims", "nameless", "held",
        ],
        &["spared", "small", "recent_drops"],
        &["plan"],
        &["report"],
        &["limits", "idle"],
        &["look", "repack"],
        &["apply", "delete"],
        &["collect"],
    ],
    is_apart_above: false,
};

const COMMAND: House = House {
    src: "cli/src/",
    floors: &[
        &["ui"],
        &["host", "connect"],
        &["config"],
        &["journal", "context"],
        &["transfer"],
        &["serve"],
        &["commands"],
    ],
    is_apart_above: false,
};

#[test]
fn imports_of_the_engine_go_one_way() {
    ENGINE.check();
}

#[test]
fn imports_of_the_collector_go_one_way() {
    COLLECTOR.check();
}

#[test]
fn imports_of_the_command_go_one_way() {
    COMMAND.check();
}

impl House {
    fn check(&self) {
        let exported = self.exported();
        let mut offences = Vec::new();
        for source in self.sources() {
            let Some(room) = self.room_of(&source.path) else {
                continue;
            };
            let Some(floor) = self.floor_of(&room) else {
                offences.push(format!(
                    "{}: room {room:?} has no floor in tidy",
                    source.path
                ));
                continue;
            };
            for (line, target) in mentions(&source.code()) {
                let target = exported.get(&target).cloned().unwrap_or(target);
                if self.is_wrong(&room, floor, &target) {
                    offences.push(format!("{}:{line}: {room} uses {target}", source.path));
                }
            }
        }
        report(&format!("imports of {} go one way", self.src), &offences);
    }

    fn is_wrong(&self, room: &str, floor: usize, target: &str) -> bool {
        let is_top = self.is_apart_above && floor + 1 == self.floors.len();
        self.floor_of(target)
            .is_some_and(|below| below > floor || (is_top && below == floor && target != room))
    }

    fn sources(&self) -> impl Iterator<Item = Source> {
        files(&[".rs"])
            .into_iter()
            .filter(|source| source.path.starts_with(self.src))
    }

    /// The room of a file; `None` for `lib.rs`, which lists all rooms, and for tests.
    fn room_of(&self, path: &str) -> Option<String> {
        let inside = path.strip_prefix(self.src)?;
        let first = inside.split('/').next()?;
        let room = first.strip_suffix(".rs").unwrap_or(first);
        let is_test = ["lib", "main"].contains(&room) || TESTS.contains(&inside);
        (!is_test).then(|| room.to_owned())
    }

    fn floor_of(&self, room: &str) -> Option<usize> {
        self.floors.iter().position(|rooms| rooms.contains(&room))
    }

    /// The names that `lib.rs` re-exports, and their rooms.
    fn exported(&self) -> BTreeMap<String, String> {
        let lib = format!("{}lib.rs", self.src);
        let lib = self.sources().find(|source| source.path == lib).unwrap();
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

/// Rooms of the engine that only gc and tests may use, through its feature `internals`.
const INTERNALS: [&str; 12] = [
    "access", "chunk", "codec", "format", "graph", "host", "index", "log", "pack", "read", "store",
    "tree",
];

#[test]
fn the_command_knows_the_face_of_the_engine_only() {
    let inside = |source: &Source| source.path.starts_with("cli/src/");
    let mut offences = Vec::new();
    for source in files(&[".rs"]).into_iter().filter(inside) {
        let code = source.code();
        for (at, path) in code.match_indices("store::") {
            let rest = code.get(at + path.len()..).unwrap();
            for head in heads(rest) {
                let is_room = rest.trim_start_matches(head.as_str()).starts_with("::")
                    || rest.starts_with('{');
                if is_room && INTERNALS.contains(&head.as_str()) {
                    offences.push(format!("{}: uses store::{head}", source.path));
                }
            }
        }
    }
    report("the command knows the face of the engine only", &offences);
}

/// Doors of the server. What two of them share is in `serve` itself; `front` and `fuzzing` are above them.
const DOORS: [&str; 3] = ["hub", "page", "s3"];

#[test]
fn doors_do_not_know_each_other() {
    let mut offences = Vec::new();
    for door in DOORS {
        let inside = format!("cli/src/serve/{door}/");
        let of_door = |source: &Source| source.path.starts_with(&inside);
        for source in files(&[".rs"]).into_iter().filter(of_door) {
            for other in others(&source.code(), door) {
                offences.push(format!("{}: uses serve::{other}", source.path));
            }
        }
    }
    report("doors of the server do not know each other", &offences);
}

/// Doors other than `door` that code names, by `serve::hub` or `serve::{hub, ...}`.
fn others(code: &str, door: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, path) in code.match_indices("serve::") {
        found.extend(heads(code.get(at + path.len()..).unwrap()));
    }
    found.retain(|head| head != door && DOORS.contains(&head.as_str()));
    found
}

#[test]
fn a_door_that_knows_another_is_seen() {
    let code = "use crate::serve::hub::GATED;\nuse crate::serve::{s3, text};\nuse crate::serve::page::View;\n";
    assert_eq!(others(code, "page"), ["hub", "s3"]);
}

#[test]
fn both_forms_of_an_import_are_seen() {
    let code = "use crate::format::Pack;\nuse crate::{id::{A, B}, error::Error, ErrorKind};\n";
    let found: Vec<_> = mentions(code);
    let expected = [(1, "format"), (2, "id"), (2, "error"), (2, "ErrorKind")];
    assert_eq!(found, expected.map(|(line, name)| (line, name.to_owned())));
}

#[test]
fn a_pipeline_that_uses_another_is_seen() {
    let top = ENGINE.floors.len() - 1;
    assert!(ENGINE.is_wrong("put", top, "get"));
    assert!(!ENGINE.is_wrong("put", top, "put"));
    assert!(!ENGINE.is_wrong("put", top, "session"));
    assert!(ENGINE.is_wrong("session", top - 1, "put"));
}
