//! Words: one for each thing, none that the library must not use, and every magic in FORMATS.md.

use crate::source::{Source, TESTS, files, report, root};

/// Words of other projects for a chunk, a pack or a tree.
const SYNONYMS: [&str; 4] = ["blob", "xorb", "artifact", "manifest"];

/// Marks of unfinished work, in two halves, so that this file does not contain them.
const UNFINISHED: [(&str, &str); 5] = [
    ("dbg", "!("),
    ("todo", "!("),
    ("unimplemented", "!("),
    ("FIX", "ME"),
    ("TO", "DO"),
];

/// What the command does and a library must not: print, read the environment, exit.
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

/// Sentences with the grammar of another language: an object before its verb, a relative pronoun without a subject, a
/// missing subject. Each phrase occurred here once, and has a plain form beside it.
const BENT: [(&str, &str); 23] = [
    ("and do nothing", "and exit; without doing it"),
    ("again for so long", "keep retrying for up to"),
    (
        "but what was on its way",
        "re-sends only what was in flight",
    ),
    ("that are not gone here", "that are not supported"),
    ("nobody listens at", "a refused connection"),
    ("know nothing of it", "existing tools"),
    ("So long the", "how long"),
    ("leaves no trace of that", "are not recorded"),
    (" for who ", "for whoever; for those who"),
    (" to who ", "to whoever; to those who"),
    (" by who ", "by whoever; by those who"),
    (" from who ", "from whoever; from those who"),
    (" of who writes", "of the writer"),
    ("one a line", "one per line"),
    ("and their like", "and similar"),
    ("is found out anew", "is computed again"),
    ("they come out as they were", "get it out as it was"),
    ("where no network goes", "where there is no network"),
    ("in the making never", "is being made"),
    ("makes segments anew", "rebuilds segments"),
    ("heeds If-None-Match", "supports If-None-Match"),
    ("brings it all the same", "copies it all the same"),
    ("made for its owner alone", "only its owner can access it"),
];

/// Texts that must not change, since that would rewrite history or a contract.
const FROZEN: [&str; 3] = ["CHANGELOG.md", "store/FORMATS.md", "tests/tidy/words.rs"];

/// Help, guides, messages and comments must be plain English for all readers.
#[test]
fn sentences_are_plain_english() {
    let mut offences = Vec::new();
    let texts = files(&[".rs", ".md"]);
    for source in texts
        .iter()
        .filter(|source| !FROZEN.contains(&source.path.as_str()))
    {
        let text = as_prose(&source.text);
        for (bent, plain) in BENT {
            if text.contains(bent) {
                offences.push(format!("{}: {bent:?}; rather: {plain}", source.path));
            }
        }
    }
    report("subject, verb, object; conditions first", &offences);
}

/// The text with each comment, literal and paragraph on one line, so that a line break does not hide a phrase.
fn as_prose(text: &str) -> String {
    let words = text.lines().flat_map(|line| {
        let line = line.trim_start();
        let marks = ["//!", "///", "//"];
        let mark = marks.iter().find_map(|mark| line.strip_prefix(mark));
        mark.unwrap_or(line)
            .trim_end_matches('\\')
            .split_whitespace()
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_bent_sentence_is_seen_across_lines() {
    for text in [
        "    /// Print a unit, and do\n    /// nothing",
        "\"goes and do \\\n   nothing\"",
    ] {
        assert!(as_prose(text).contains("and do nothing"), "{text}");
    }
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

/// Everything on a page is escaped by its type, except the style sheet.
#[test]
fn pages_escape_what_they_show() {
    let mut offences = Vec::new();
    for source in files(&[".rs"]).iter().filter(|source| is_product(source)) {
        for (number, line) in source.text.lines().enumerate() {
            let is_known = ["PreEscaped, html};", "(PreEscaped(STYLE))"];
            let is_known = is_known.iter().any(|known| line.contains(known));
            if line.contains("PreEscaped") && !is_known {
                offences.push(format!("{}:{}: {line}", source.path, number + 1));
            }
        }
    }
    report(
        "nothing but the style sheet goes to a page as it is",
        &offences,
    );
}

/// rustdoc treats text that is indented by four spaces as Rust, and runs it.
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
        // Examples are programs.
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

/// The engine has the rules; only the command has the words for flags, verbs and variables: `cli/src/ui/remedy.rs`.
#[test]
fn the_libraries_do_not_know_who_runs_them() {
    let mut offences = Vec::new();
    for source in files(&[".rs"])
        .iter()
        .filter(|source| is_of_a_library(source))
    {
        for (line, text) in source.literals() {
            if let Some(word) = word_of_the_command(&text) {
                offences.push(format!("{}:{line}: {word}", source.path));
            }
        }
    }
    report(
        "a library names no flag, verb or variable of the command, it has a `Remedy`",
        &offences,
    );
}

/// No compiler notices a missing remedy: the command would print the engine's plain words.
#[test]
fn the_command_has_words_for_every_remedy() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let known = read("cli/src/ui/remedy.rs");
    let engine = read("store/src/remedy.rs");
    let (_, table) = engine.split_once("\nremedies! {\n").unwrap();
    let (table, _) = table.split_once("\n}\n").unwrap();
    let variants: Vec<&str> = table.lines().filter_map(variant).collect();
    assert!(variants.len() > 50, "{variants:?}");
    let offences: Vec<String> = variants
        .into_iter()
        .filter(|variant| !known.contains(&format!("Remedy::{variant} ")))
        .map(str::to_owned)
        .collect();
    report("cli/src/ui/remedy.rs has words for every remedy", &offences);
}

/// The `Verify` of `    Verify => "..."` or of `    Verify {`.
fn variant(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("    ")?;
    let name = rest.split(' ').next()?;
    name.starts_with(char::is_uppercase).then_some(name)
}

/// Whether a file is library code, not a test.
fn is_of_a_library(source: &Source) -> bool {
    let is_test = source.path.contains("/tests/")
        || source.path.contains("/testing/")
        || source.path.ends_with("tests.rs")
        || TESTS.iter().any(|test| source.path.ends_with(test));
    ["store", "gc"].contains(&source.package()) && source.path.contains("/src/") && !is_test
}

/// A flag, `store VERB` or `$STORE_...` in a text.
fn word_of_the_command(text: &str) -> Option<&str> {
    let starts = text.match_indices("--").filter(|(at, dashes)| {
        let before = text.get(..*at).unwrap().chars().next_back();
        let after = text.get(at + dashes.len()..).unwrap();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '-')
            && after.starts_with(|c: char| c.is_ascii_lowercase())
    });
    let verbs = text.match_indices("`store ");
    let variables = text.match_indices("STORE_");
    let (start, _) = starts.chain(verbs).chain(variables).next()?;
    let rest = text.get(start..).unwrap();
    let end = rest.match_indices(' ').map(|(at, _)| at).find(|at| *at > 6);
    rest.get(..end.unwrap_or(rest.len()))
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

/// Whether an identifier in the line has `word` as a part: `blob_id`, `BlobId`, `blobs`.
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

/// The `TREE` of `const MAGIC: [u8; 4] = *b"TREE";` or of `const MAGIC: &str = "TREE";`.
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

#[test]
fn words_of_the_command_are_seen() {
    for (text, word) in [
        ("give --min-age more", "--min-age"),
        ("(--readable lets others)", "--readable"),
        ("run `store verify` first", "`store verify`"),
        ("or $STORE_POOL", "STORE_POOL"),
    ] {
        assert!(
            word_of_the_command(text).unwrap().starts_with(word),
            "{text}"
        );
    }
    for text in ["models--org", "-----BEGIN", "a store, its pool", "--"] {
        assert_eq!(word_of_the_command(text), None, "{text}");
    }
}
