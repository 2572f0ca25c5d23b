//! Words: one for each thing, none that the library must not say, and every magic in FORMATS.md.

use crate::source::{Source, files, report, root};

/// Names of other houses for what is a chunk, a pack or a tree here.
const SYNONYMS: [&str; 4] = ["blob", "xorb", "artifact", "manifest"];

/// Marks of unfinished work. In two halves, so that this file does not contain them.
const UNFINISHED: [(&str, &str); 5] = [
    ("dbg", "!("),
    ("todo", "!("),
    ("unimplemented", "!("),
    ("FIX", "ME"),
    ("TO", "DO"),
];

/// What the command does and a library must not: print, read the environment, leave the process.
const NOT_IN_A_LIBRARY: [&str; 9] = [
    "println!",
    "print!",
    "eprintln!",
    "eprint!",
    "std::env",
    "env::var",
    "home_dir",
    "process::exit",
    "io::stdout",
];

#[test]
fn one_word_for_one_thing() {
    let mut offences = Vec::new();
    for source in files(&[".rs"]).iter().filter(|source| is_product(source)) {
        for (number, line) in source.code().lines().enumerate() {
            for synonym in SYNONYMS.iter().filter(|synonym| names(line, synonym)) {
                offences.push(format!("{}:{}: {synonym}", source.path, number + 1));
            }
        }
    }
    report("names come from the glossary of the design", &offences);
}

#[test]
fn nothing_is_left_unfinished() {
    let mut offences = Vec::new();
    for source in files(&[".rs", ".sh", "/run"]) {
        for (number, line) in source.text.lines().enumerate() {
            for mark in UNFINISHED.map(|(first, second)| format!("{first}{second}")) {
                if line.contains(&mark) {
                    offences.push(format!("{}:{}: {mark}", source.path, number + 1));
                }
            }
        }
    }
    report(
        "what is unfinished is an issue, not a mark in the code",
        &offences,
    );
}

/// rustdoc takes what is indented by four spaces for Rust, and runs it.
#[test]
fn drawings_stand_in_fences() {
    let mut offences = Vec::new();
    for source in files(&[".rs"]) {
        let mut fenced = false;
        for (number, line) in source.text.lines().enumerate() {
            let Some(text) = line.trim_start().strip_prefix("//!") else {
                continue;
            };
            fenced ^= text.trim_start().starts_with("```");
            if !fenced && text.starts_with("     ") {
                offences.push(format!("{}:{}: {text}", source.path, number + 1));
            }
        }
    }
    report("a drawing stands between ```text and ```", &offences);
}

#[test]
fn the_libraries_keep_quiet() {
    let mut offences = Vec::new();
    for source in files(&[".rs"])
        .iter()
        .filter(|source| ["store", "gc"].contains(&source.package()))
        // An example is a program.
        .filter(|source| !source.path.starts_with("store/examples/"))
    {
        for (number, line) in source.code().lines().enumerate() {
            for call in NOT_IN_A_LIBRARY.iter().filter(|call| line.contains(**call)) {
                offences.push(format!("{}:{}: {call}", source.path, number + 1));
            }
        }
    }
    report(
        "a library never prints, reads the environment or leaves the process",
        &offences,
    );
}

#[test]
fn formats_md_names_every_magic() {
    let document = std::fs::read_to_string(root().join("store/FORMATS.md")).unwrap();
    let sources = files(&[".rs"]);
    let magics: Vec<(&str, &str)> = sources
        .iter()
        .filter(|source| source.path.starts_with("store/src/format/"))
        .flat_map(|source| {
            source
                .without_tests()
                .lines()
                .filter_map(magic)
                .map(|magic| (source.path.as_str(), magic))
        })
        .collect();
    assert!(
        !magics.is_empty(),
        "no magic is defined in store/src/format"
    );
    let offences: Vec<String> = magics
        .iter()
        .filter(|(_, magic)| !document.contains(magic))
        .map(|(path, magic)| format!("{path}: {magic}"))
        .collect();
    report("store/FORMATS.md names every magic", &offences);
}

fn is_product(source: &Source) -> bool {
    ["store", "gc", "cli"].contains(&source.package())
}

/// Whether some identifier of the line has `word` as one of its parts: `blob_id`, `BlobId`, `blobs`.
fn names(line: &str, word: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    lower.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let first = line.get(at..).and_then(|text| text.chars().next());
        let starts =
            !before.is_some_and(char::is_alphanumeric) || first.is_some_and(char::is_uppercase);
        let after = lower
            .get(at + word.len()..)
            .unwrap_or_default()
            .trim_start_matches('s');
        let ends = !after.starts_with(|c: char| c.is_alphabetic())
            || first.is_some_and(char::is_uppercase);
        starts && ends
    })
}

/// `TREE` of `const MAGIC: [u8; 4] = *b"TREE";` or of `const MAGIC: &str = "TREE";`
fn magic(line: &str) -> Option<&str> {
    let (left, right) = line.split_once('"')?;
    (left.contains("const ") && left.contains("MAGIC")).then(|| right.split('"').next())?
}

#[test]
fn a_synonym_is_seen_inside_of_an_identifier() {
    for line in [
        "let blob = 1;",
        "fn blob_id()",
        "struct BlobId;",
        "self.blobs",
        "PackBlob",
    ] {
        assert!(names(line, "blob"), "{line}");
    }
    for line in ["let oblob = 1;", "fn blobby()", "chunk"] {
        assert!(!names(line, "blob"), "{line}");
    }
}
