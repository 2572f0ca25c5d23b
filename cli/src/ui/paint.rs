//! Colours: only on a terminal, and only if NO_COLOR, CLICOLOR and TERM allow them. Messages of clap and of this
//! command use the same colours and the same rule.

use std::fmt::Display;
use std::io::{self, Write};

use anstream::AutoStream;
use clap::builder::styling::{Style, Styles};

/// What a word is, which decides its colour.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    Error,
    Warning,
    Hint,
    Heading,
}

/// The word in its colour.
pub(crate) fn word(word: Word, text: impl Display) -> String {
    let style = style(word);
    format!("{style}{text}{style:#}")
}

/// Colours the first word of a line, for example `hint:`.
pub(crate) fn line(line: &str) -> String {
    let marks = [
        ("error:", Word::Error),
        ("warning:", Word::Warning),
        ("hint:", Word::Hint),
    ];
    let mut found = marks
        .into_iter()
        .filter_map(|(mark, kind)| Some((mark, kind, line.strip_prefix(mark)?)));
    match found.next() {
        Some((mark, kind, rest)) => word(kind, mark) + rest,
        None => line.to_owned(),
    }
}

/// Writes to standard error, with colours if they are on.
pub(crate) fn aside(text: &str) -> io::Result<()> {
    AutoStream::auto(io::stderr()).write_all(text.as_bytes())
}

/// Writes to standard output, with colours if they are on.
pub(crate) fn answer(text: &str) -> io::Result<()> {
    AutoStream::auto(io::stdout()).write_all(text.as_bytes())
}

fn style(word: Word) -> Style {
    let styles = Styles::styled();
    *match word {
        Word::Error => styles.get_error(),
        Word::Warning => styles.get_invalid(),
        Word::Hint => styles.get_valid(),
        Word::Heading => styles.get_header(),
    }
}
