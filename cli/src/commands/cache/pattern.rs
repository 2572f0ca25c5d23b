//! Patterns of paths: `*` is any text in a name, `**` any directories; `{name}` and `{name:hex8}` are parts of a key.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;

/// A path, component by component.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(super) struct Pattern {
    parts: Vec<Vec<Piece>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    /// Any text.
    Any,
    /// Any text that is not empty, or exactly this many hex digits.
    Field {
        name: String,
        digits: Option<usize>,
    },
}

/// Parts of a key, by their names.
pub(super) type Fields = Vec<(String, String)>;

/// A name in a path has at most this many bytes.
const NAME_BYTES_MAX: usize = 255;

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parts = text.split('/').map(pieces).collect::<Result<Vec<_>, _>>()?;
        let mut names = BTreeSet::new();
        for piece in parts.iter().flatten() {
            if let Piece::Field { name, .. } = piece
                && !names.insert(name)
            {
                return Err(format!(
                    "expected each part of the key once, found {{{name}}} twice in {text:?}"
                ));
            }
        }
        if text.starts_with('!') {
            return Err(format!(
                "expected what matches, found {text:?}: there are no exceptions by !"
            ));
        }
        if parts.iter().any(Vec::is_empty) || text == "~" || text.starts_with("~/") {
            return Err(format!(
                "expected a path below the root without empty names, found {text:?}"
            ));
        }
        Ok(Self { parts })
    }
}

impl Pattern {
    /// Paths that match: as it is written, for patterns without parts of a key, with no, one and two directories for `**`.
    pub(super) fn samples(&self) -> [Vec<u8>; 3] {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Any => b"*".to_vec(),
            Piece::Field { digits, .. } => vec![b'0'; digits.unwrap_or(1)],
        };
        [0, 1, 2].map(|deep| {
            let parts = self.parts.iter().flat_map(|part| match is_deep(part) {
                true => vec![b"*".to_vec(); deep],
                false => vec![part.iter().flat_map(piece).collect()],
            });
            parts.collect::<Vec<Vec<u8>>>().join(&b'/')
        })
    }

    /// Whether it has parts of a key.
    pub(super) fn has_fields(&self) -> bool {
        let mut pieces = self.parts.iter().flatten();
        pieces.any(|piece| matches!(piece, Piece::Field { .. }))
    }

    /// Whether files of any name match.
    pub(super) fn is_any(&self) -> bool {
        self.parts
            .iter()
            .flatten()
            .all(|piece| *piece == Piece::Any)
    }

    /// Whether only entries of such a cache match, by a name in the pattern or by digits; otherwise any path may.
    pub(super) fn is_distinct(&self) -> bool {
        /// A shorter text, or an ending, may be in any name.
        const TEXT_BYTES_MIN: usize = 4;
        self.parts.iter().flatten().any(|piece| match piece {
            Piece::Text(text) => text.len() >= TEXT_BYTES_MIN && !text.starts_with(b"."),
            Piece::Any => false,
            Piece::Field { digits, .. } => digits.is_some(),
        })
    }
}

/// As it is written in a profile.
impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, part) in self.parts.iter().enumerate() {
            out.write_str(if number == 0 { "" } else { "/" })?;
            for piece in part {
                match piece {
                    Piece::Text(text) => out.write_str(&String::from_utf8_lossy(text))?,
                    Piece::Any => out.write_str("*")?,
                    Piece::Field { name, digits } => match digits {
                        Some(digits) => write!(out, "{{{name}:hex{digits}}}")?,
                        None => write!(out, "{{{name}}}")?,
                    },
                }
            }
        }
        Ok(())
    }
}

fn pieces(part: &str) -> Result<Vec<Piece>, String> {
    if [".", ".."].contains(&part) {
        return Err(format!(
            "expected a path below the root, found {part:?} in it"
        ));
    }
    if let Some(found) = part.chars().find(|found| "[]?".contains(*found)) {
        return Err(format!(
            "expected * or {{name}} where a name may vary, found {found} in {part:?}"
        ));
    }
    let mut pieces = Vec::new();
    let mut rest = part;
    while let Some(at) = rest.find(['*', '{']) {
        let (text, special) = rest.split_at(at);
        if !text.is_empty() {
            pieces.push(Piece::Text(text.as_bytes().to_vec()));
        }
        if let Some(after) = special.strip_prefix('*') {
            pieces.push(Piece::Any);
            rest = after;
            continue;
        }
        let inside = special.strip_prefix('{').unwrap_or(special);
        let (field, after) = inside
            .split_once('}')
            .ok_or_else(|| format!("expected }} behind {{ in {part:?}"))?;
        pieces.push(self::field(field)?);
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.as_bytes().to_vec()));
    }
    let mut texts = pieces.iter();
    if texts.any(|piece| matches!(piece, Piece::Text(text) if text.contains(&b'}'))) {
        return Err(format!("expected {{ before }} in {part:?}"));
    }
    Ok(pieces)
}

fn field(text: &str) -> Result<Piece, String> {
    let (name, kind) = match text.split_once(':') {
        Some((name, kind)) => (name, Some(kind)),
        None => (text, None),
    };
    let digits = kind.map(|kind| {
        let digits = kind
            .strip_prefix("hex")
            .and_then(|digits| digits.parse().ok());
        let digits = digits.filter(|digits| (1..=NAME_BYTES_MAX).contains(digits));
        digits.ok_or_else(|| {
            format!("expected {{{name}:hexN}} with N from 1 to {NAME_BYTES_MAX}, found {{{text}}}")
        })
    });
    if name.is_empty() || name.contains(['{', '*']) {
        return Err(format!(
            "expected a name between {{ and }}, found {{{text}}}"
        ));
    }
    Ok(Piece::Field {
        name: name.to_owned(),
        digits: digits.transpose()?,
    })
}

impl Pattern {
    /// The number of components.
    pub(super) fn depth(&self) -> usize {
        self.parts.len()
    }

    /// Whether the number of components is fixed.
    pub(super) fn is_plain(&self) -> bool {
        !self.parts.iter().any(|part| is_deep(part))
    }

    /// Whether `path` matches the pattern, or is a directory above paths that match.
    pub(super) fn may_lead_to(&self, path: &[&[u8]]) -> bool {
        let mut both = self.parts.iter().zip(path);
        both.all(|(part, name)| fits(part, name, &mut Fields::new()))
    }

    /// The parts of the key in a path that matches the pattern.
    pub(super) fn fields(&self, path: &[&[u8]]) -> Option<Fields> {
        let mut fields = Fields::new();
        let mut both = self.parts.iter().zip(path);
        let is_match = self.parts.len() == path.len()
            && both.all(|(part, name)| fits(part, name, &mut fields));
        is_match.then_some(fields)
    }

    /// The parts of the key in the last components of such a path.
    pub(super) fn fields_of_end(&self, path: &[&[u8]]) -> Option<Fields> {
        let from = self.parts.len().checked_sub(path.len())?;
        let mut fields = Fields::new();
        let mut both = self.parts.iter().skip(from).zip(path);
        both.all(|(part, name)| fits(part, name, &mut fields))
            .then_some(fields)
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        leads(&self.parts, &names)
    }
}

fn is_deep(part: &[Piece]) -> bool {
    part == [Piece::Any, Piece::Any]
}

/// The rest of a pattern, and the remaining names.
type Rest<'r> = (&'r [Vec<Piece>], &'r [&'r [u8]]);

fn leads(parts: &[Vec<Piece>], names: &[&[u8]]) -> bool {
    let (mut parts, mut names) = (parts, names);
    // For backtracking: the pattern after the last `**`, and the names that were tried with it last.
    let mut again: Option<Rest<'_>> = None;
    loop {
        match (parts.split_first(), names.split_first()) {
            (None, None) => return true,
            (Some((part, rest)), _) if is_deep(part) => {
                parts = rest;
                again = Some((rest, names));
            }
            (Some((part, rest)), Some((name, below))) if fits(part, name, &mut Fields::new()) => {
                (parts, names) = (rest, below);
            }
            _ => {
                let tried = again.and_then(|(rest, tried)| Some((rest, tried.split_first()?.1)));
                let Some(next) = tried else {
                    return false;
                };
                (parts, names) = next;
                again = Some(next);
            }
        }
    }
}

/// Whether a name matches the pieces; shorter matches come first.
fn fits(pieces: &[Piece], name: &[u8], fields: &mut Fields) -> bool {
    let Some((piece, rest)) = pieces.split_first() else {
        return name.is_empty();
    };
    match piece {
        Piece::Text(text) => name
            .strip_prefix(text.as_slice())
            .is_some_and(|name| fits(rest, name, fields)),
        Piece::Any => ends(name, 0).any(|(_, after)| fits(rest, after, fields)),
        Piece::Field {
            name: field,
            digits,
        } => {
            let known = fields.len();
            ends(name, 1).any(|(text, after)| {
                if digits.is_some_and(|digits| !is_hex(text, digits)) {
                    return false;
                }
                fields.truncate(known);
                fields.push((field.clone(), String::from_utf8_lossy(text).into_owned()));
                fits(rest, after, fields)
            })
        }
    }
}

fn ends(name: &[u8], from: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
    (from..=name.len()).filter_map(|at| name.split_at_checked(at))
}

fn is_hex(text: &[u8], digits: usize) -> bool {
    text.len() == digits && text.iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pattern: &str, path: &str) -> Option<Fields> {
        let pattern = Pattern::try_from(pattern.to_owned()).unwrap();
        let names: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
        pattern.fields(&names)
    }

    #[test]
    fn a_path_tells_the_fields_of_its_key() {
        let found = fields(
            "neuronxcc-{compiler}/MODULE_{graph}+{flags}",
            "neuronxcc-2.21.33363.0+82129205/MODULE_10042+d41d8cd9",
        );
        let expected = [
            ("compiler", "2.21.33363.0+82129205"),
            ("graph", "10042"),
            ("flags", "d41d8cd9"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(found.unwrap(), expected);
        assert_eq!(fields("{key:hex4}", "12g4"), None);
        assert_eq!(fields("{key:hex4}", "12a45"), None);
        assert_eq!(fields("a/{key}", "a"), None);
        assert!(fields("{module}-{key:hex4}-cache", "jit-f-12ab-cache").is_some());
    }

    #[test]
    fn stars_stand_for_names_and_for_directories() {
        let matches = |pattern: &str, path: &str| {
            Pattern::try_from(pattern.to_owned())
                .unwrap()
                .matches(path.as_bytes())
        };
        assert!(matches("*.lock", "model.hlo_module.pb.lock"));
        assert!(!matches("*.lock", "a/b.lock"));
        assert!(matches("**/*.lock", "a/b.lock"));
        assert!(matches("**/*.lock", "b.lock"));
        assert!(!matches("**/*.lock", "a/b.lock/c"));
    }

    #[test]
    fn a_pattern_with_a_mistake_is_refused() {
        for bad in [
            "",
            "a//b",
            "../a",
            "{",
            "{a:oct3}",
            "{}",
            "{a:hex0}",
            "{a:hex256}",
            "{a}/{b}-{a}",
            "a}",
            "{a}}",
            "{a{b}}",
            "[ab",
            "a[bc]",
            "a?",
            "!a",
            "~/a",
            "~",
            "/a",
        ] {
            assert!(Pattern::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
