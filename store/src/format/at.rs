//! Which version of a ref is meant: by its number, which is valid in one store, or by its id, which is the same in
//! every store.
//!
//! An id is `t` and the hex digits of the root of the content. A number has no letter, so that `@12345678` is a
//! number and `@t12345678` an id.

use std::fmt;

use super::Root;

/// The fewest hex digits that an id may be shortened to.
pub const VERSION_ID_DIGITS_MIN: usize = 8;
/// The newest version, as written in a ref.
pub(crate) const LATEST: &str = "latest";
/// The first character of an id.
const MARK: char = 't';
const DIGITS: usize = 64;
const SHORT_DIGITS: usize = 12;

/// Which version of a ref is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// By its number.
    Number(u64),
    /// By its id, or a prefix of the id.
    Id(Id),
    /// The newest version at the time of the lookup.
    Latest,
}

/// The id of a version's content, or a prefix of that id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(String);

impl Id {
    /// Returns the full id of a content.
    pub fn of(root: &Root) -> Self {
        Self(root.content().root.to_string())
    }

    /// Parses `t` and at least [`VERSION_ID_DIGITS_MIN`] hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(MARK)?;
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let fits = (VERSION_ID_DIGITS_MIN..=DIGITS).contains(&digits.len());
        (fits && digits.bytes().all(is_hex)).then(|| Self(digits.to_owned()))
    }

    /// Shortens the id for display.
    #[must_use]
    pub fn short(mut self) -> Self {
        self.0.truncate(SHORT_DIGITS);
        self
    }

    /// Whether this id, or this prefix, matches the content.
    pub fn is_of(&self, root: &Root) -> bool {
        Self::of(root).0.starts_with(&self.0)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{MARK}{}", self.0)
    }
}

impl fmt::Display for At {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(out),
            Self::Id(id) => id.fmt(out),
            Self::Latest => out.write_str(LATEST),
        }
    }
}

impl serde::Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Content;

    #[test]
    fn an_id_is_known_by_its_beginning_and_is_no_number() {
        let root = Root::File {
            content: Content::empty(),
            executable: false,
        };
        let id = Id::of(&root);
        assert_eq!(id.to_string().len(), 65);
        assert_eq!(id.clone().short().to_string(), "taf1349b9f5f9");
        for good in [id.to_string(), "taf1349b9".to_owned()] {
            assert!(Id::parse(&good).unwrap().is_of(&root), "{good}");
        }
        assert!(!Id::parse("taf1349b8").unwrap().is_of(&root));
        let long = format!("{id}0");
        for bad in [
            "",
            "t",
            "af1349b9",
            "taf1349b",
            "tAF1349B9",
            "taf1349bx",
            &long,
        ] {
            assert_eq!(Id::parse(bad), None, "{bad}");
        }
    }
}
