//! The source files of the workspace, for the other rules.
//!
//! Reads the tree on disk. Build output, dot-directories and fixtures do not count as source.

use std::fs;
use std::path::{Path, PathBuf};

/// Files that contain only tests, which may use any room.
pub(crate) const TESTS: [&str; 4] = [
    "put/tests.rs",
    "replicate/tests.rs",
    "replicate/beside.rs",
    "replicate/bases.rs",
];

/// One file of source text.
pub(crate) struct Source {
    /// Path relative to the root of the workspace.
    pub(crate) path: String,
    /// The unchanged text.
    pub(crate) text: String,
}

/// The directory of the workspace's `Cargo.toml`.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Every file with one of these endings, sorted by path.
pub(crate) fn files(endings: &[&str]) -> Vec<Source> {
    let mut sources = Vec::new();
    collect(root(), endings, &mut sources);
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!sources.is_empty(), "no file ends with {endings:?}");
    sources
}

/// Panics with all offences against a rule, if there are any.
pub(crate) fn report(rule: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{rule}:\n  {}", offences.join("\n  "));
}

fn collect(dir: &Path, endings: &[&str], sources: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !["target", "fixtures", "corpus", "artifacts"].contains(&name)
                && !name.starts_with('.')
            {
                collect(&path, endings, sources);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            sources.push(read(&path));
        }
    }
}

fn read(path: &PathBuf) -> Source {
    Source {
        path: path
            .strip_prefix(root())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned(),
        text: fs::read_to_string(path).unwrap(),
    }
}

impl Source {
    /// The first path component: a package, or the file itself.
    pub(crate) fn package(&self) -> &str {
        self.path.split('/').next().unwrap()
    }

    /// The text before the file's unit tests.
    pub(crate) fn without_tests(&self) -> &str {
        let end = self.text.find("\n#[cfg(test)]\nmod tests");
        self.text.get(..end.unwrap_or(self.text.len())).unwrap()
    }

    /// The text before the unit tests, with comments and the insides of literals blanked. Line numbers stay the same.
    pub(crate) fn code(&self) -> String {
        blank(self.without_tests())
    }

    /// Line and text of every string literal before the unit tests.
    pub(crate) fn literals(&self) -> Vec<(usize, String)> {
        literals(self.without_tests())
    }
}

/// Line and content of every string literal. Escapes stay as written, except line continuations.
fn literals(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let (shown, hidden) = token(rest, first);
        let (token, behind) = rest.split_at(shown + hidden);
        let (open, inside) = token.split_at(shown);
        if open.ends_with('"') {
            let close = open.matches('#').count() + 1;
            let inside = inside.get(..inside.len() - close).unwrap();
            let (head, others) = inside.split_once("\\\n").unwrap_or((inside, ""));
            let others = others.split("\\\n").map(str::trim_start);
            found.push((line, head.to_owned() + &others.collect::<String>()));
        }
        line += token.matches('\n').count();
        rest = behind;
    }
    found
}

/// Replaces comments and the insides of string and character literals by spaces.
fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (shown, hidden) = token(rest, first);
        code.push_str(rest.get(..shown).unwrap());
        let end = shown + hidden;
        code.extend(
            rest.get(shown..end)
                .unwrap()
                .chars()
                .map(|c| if c == '\n' { c } else { ' ' }),
        );
        rest = rest.get(end..).unwrap();
    }
    code
}

/// Lengths in bytes of the next token: the part to keep, then the part to blank.
fn token(rest: &str, first: char) -> (usize, usize) {
    if rest.starts_with("//") {
        return (0, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (0, rest.find("*/").map_or(rest.len(), |end| end + 2));
    }
    if first.is_alphanumeric() || first == '_' {
        let word = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        return raw_string(rest, word).unwrap_or((word, 0));
    }
    match first {
        '"' => (1, quoted(rest, '"')),
        '\'' => (1, character(rest)),
        _ => (first.len_utf8(), 0),
    }
}

/// The lengths of a raw string whose prefix has `word` bytes: `r"..."`, `br#"..."#`.
fn raw_string(rest: &str, word: usize) -> Option<(usize, usize)> {
    let prefix = rest.get(..word)?;
    let after = rest.get(word..)?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    if !["r", "br", "cr"].contains(&prefix) || !after.get(hashes..)?.starts_with('"') {
        return None;
    }
    let open = word + hashes + 1;
    let close = format!("\"{}", "#".repeat(hashes));
    let inside = rest.get(open..)?.find(&close)?;
    Some((open, inside + close.len()))
}

/// The number of bytes after the opening quote, including the closing one.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at,
            _ => {}
        }
    }
    rest.len() - 1
}

/// Like [`quoted`] for a character literal; 0 for a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(rest, '\''),
        _ => 0,
    }
}

#[test]
fn blanking_keeps_code_and_lines() {
    let text = "let a = \"x // \\\" y\"; // no\nlet 'b: &'a = '\\'' + r#\"q\"z\"#; /* c\n */ d";
    let code = "let a = \"          ;      \nlet 'b: &'a = '    + r#\"     ;     \n    d";
    assert_eq!(blank(text), code);
}

#[test]
fn literals_are_found_with_their_lines() {
    let text = "f(\"a\"); // \"no\"\n'\"' + \"b \\\n   c\" + r#\"d\"#";
    let found: Vec<_> = literals(text);
    let expected = [(1, "a"), (2, "b c"), (3, "d")];
    assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
}
