//! Every file has a heading, is not too long, and is compiled.

use std::collections::BTreeSet;

use crate::source::{files, report, root};

const HEAD_LINES_MAX: usize = 15;
const FILE_LINES_MAX: usize = 500;

/// Files that may be longer, and why each still holds only one idea.
const LONG_FILES: [(&str, &str); 1] = [(
    "tests/model/protocol.rs",
    "states and steps of one model, which are read side by side",
)];

/// The allowed entries at the top of the workspace, except dot-files and build output.
const TOP: [&str; 13] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "cli",
    "fixtures",
    "gc",
    "rust-toolchain.toml",
    "store",
    "tests",
];

#[test]
fn every_file_opens_with_what_it_is() {
    let mut offences = Vec::new();
    for source in files(&[".rs"]) {
        let head = source
            .text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .count();
        if head == 0 {
            offences.push(format!(
                "{}:1: no `//!` says what this file is",
                source.path
            ));
        } else if head > HEAD_LINES_MAX {
            offences.push(format!(
                "{}:1: {head} lines of `//!`, at most {HEAD_LINES_MAX}",
                source.path
            ));
        }
    }
    report(
        "a file opens with what it is, what it never does, and its invariants",
        &offences,
    );
}

#[test]
fn no_file_holds_two_ideas() {
    let mut offences = Vec::new();
    for source in files(&[".rs"]) {
        let lines = source.without_tests().lines().count();
        let reason = LONG_FILES.iter().find(|(path, _)| *path == source.path);
        match (lines > FILE_LINES_MAX, reason) {
            (true, None) => offences.push(format!("{}: {lines} lines without tests", source.path)),
            (false, Some(_)) => {
                offences.push(format!("{}: needs no exception any more", source.path))
            }
            _ => {}
        }
    }
    report(
        "a file has at most 500 lines without tests, or its reason stands in tidy",
        &offences,
    );
}

#[test]
fn code_is_ascii() {
    let mut offences = Vec::new();
    for source in files(&[".rs", ".toml", ".sh", "/run"]) {
        for (number, line) in source.text.lines().enumerate() {
            if !line.is_ascii() {
                offences.push(format!("{}:{}: {line}", source.path, number + 1));
            }
        }
    }
    report(
        "code is ASCII; text of other alphabets is written with escapes",
        &offences,
    );
}

#[test]
fn nothing_unexpected_stands_at_the_top() {
    let mut offences = Vec::new();
    for entry in std::fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !TOP.contains(&name.as_str()) && name != "target" && !name.starts_with('.') {
            offences.push(name);
        }
    }
    report(
        "the top of the workspace holds the four packages and what describes them",
        &offences,
    );
}

#[test]
fn every_file_is_compiled() {
    let reached = reached();
    let forgotten: Vec<String> = files(&[".rs"])
        .into_iter()
        .map(|source| source.path)
        .filter(|path| !reached.contains(path))
        .collect();
    report(
        "a file belongs to a target of its Cargo.toml or is a `mod` of one",
        &forgotten,
    );
}

/// All files that some target compiles. Cargo finds benchmarks by itself.
fn reached() -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let benches = files(&[".rs"]).into_iter().map(|source| source.path);
    let mut queue: Vec<String> = files(&["Cargo.toml"])
        .iter()
        .flat_map(|manifest| target_roots(&manifest.path, &manifest.text))
        .chain(benches.filter(|path| path.contains("/benches/")))
        .collect();
    while let Some(path) = queue.pop() {
        if let Ok(text) = std::fs::read_to_string(root().join(&path))
            && reached.insert(path.clone())
        {
            queue.extend(
                text.lines()
                    .filter_map(declared_module)
                    .flat_map(|name| module_files(&path, name)),
            );
        }
    }
    reached
}

fn target_roots(manifest: &str, text: &str) -> Vec<String> {
    let dir = manifest.strip_suffix("Cargo.toml").unwrap();
    let stated = text
        .lines()
        .filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"'));
    let usual = ["src/lib.rs", "src/main.rs", "build.rs"];
    stated
        .chain(usual)
        .map(|path| format!("{dir}{path}"))
        .collect()
}

fn declared_module(line: &str) -> Option<&str> {
    let (_, name) = line.split_once("mod ")?;
    name.strip_suffix(';')
}

/// The possible files of `mod name;` in the file `path`.
fn module_files(path: &str, name: &str) -> [String; 4] {
    let dir = path.rsplit_once('/').unwrap().0;
    let own = path.strip_suffix(".rs").unwrap();
    [
        format!("{dir}/{name}.rs"),
        format!("{dir}/{name}/mod.rs"),
        format!("{own}/{name}.rs"),
        format!("{own}/{name}/mod.rs"),
    ]
}

/// An example that is never run becomes wrong.
#[test]
fn examples_are_short_and_run_as_doctests() {
    let sources = files(&[".rs"]);
    let mut offences = Vec::new();
    let examples = sources.iter();
    let examples: Vec<_> = examples
        .filter(|source| source.path.starts_with("store/examples/"))
        .collect();
    assert!(examples.len() >= 4, "{}", examples.len());
    for example in examples {
        let lines = example.text.lines().count();
        if lines >= 40 {
            offences.push(format!("{}: {lines} lines", example.path));
        }
        let name = example.path.trim_start_matches("store/");
        let included = format!("../{name}\")]");
        if !sources
            .iter()
            .any(|source| source.path.starts_with("store/src/") && source.text.contains(&included))
        {
            offences.push(format!("{}: no documentation includes it", example.path));
        }
    }
    report(
        "examples have less than 40 lines and run as doctests",
        &offences,
    );
}
