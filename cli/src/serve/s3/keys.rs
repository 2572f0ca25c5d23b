//! The keys of the S3 door: who may read which buckets.
//!
//! Verifying a signature needs the secret itself, not a hash of it. The file must be readable by its owner only. It is
//! read once, and its content is never shown.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use store::{Error, Namespace, Pattern, Result};

use crate::serve::tokens::{self, check_closed};

/// Maximum size of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Minimum length of a secret.
const SECRET_CHARS_MIN: usize = 16;

const HINT: &str = "the file holds tables like [[key]] id = \"trainer\" secret = \"...\" namespaces = [\"project/llama-*\"], each on lines of its own";

/// The valid keys.
pub(crate) struct Keys(HashMap<String, Key>);

/// One key.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Key {
    pub(crate) id: String,
    secret: String,
    namespaces: Vec<Pattern>,
    #[serde(default)]
    role: Role,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    #[default]
    Read,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    key: Vec<Key>,
}

impl Keys {
    /// Reads the keys in the file at `path`.
    ///
    /// # Errors
    /// If others may read it, or it is invalid.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = store::open_regular(path).map_err(|source| Error::io("open", path, source))?;
        let then = "change the secrets if others were there";
        check_closed(&file, path, ("holds secrets", then))?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(|source| Error::io("read", path, source))?;
        Self::parse(&text)
            .map_err(|why| Error::invalid(format!("keys in {}: {why}", path.display())).hint(HINT))
    }

    /// Parses the file. Errors never quote its content.
    pub(in crate::serve) fn parse(text: &str) -> std::result::Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
            format!(
                "line {line}: expected tables [[key]] with id, secret and namespaces, and no more"
            )
        })?;
        let mut keys = HashMap::new();
        for (number, key) in (1..).zip(file.key) {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if key.id.is_empty() || !key.id.bytes().all(is_name) {
                return Err(format!(
                    "key {number}: expected an id of letters, digits, `-`, `_` and `.`"
                ));
            }
            if key.secret.chars().count() < SECRET_CHARS_MIN {
                return Err(format!(
                    "key {number}: expected a secret of {SECRET_CHARS_MIN} characters or more"
                ));
            }
            for (at, pattern) in (1..).zip(&key.namespaces) {
                tokens::parse_glob(pattern.as_str())
                    .map_err(|why| format!("key {number}: namespace {at}: {why}"))?;
            }
            let id = key.id.clone();
            if keys.insert(id.clone(), key).is_some() {
                return Err(format!("key {number}: id {id} is there twice"));
            }
        }
        match keys.is_empty() {
            true => Err("expected a key, found none".to_owned()),
            false => Ok(Self(keys)),
        }
    }

    pub(crate) fn find(&self, id: &str) -> Option<&Key> {
        self.0.get(id)
    }
}

impl Key {
    /// The secret for signatures.
    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// Whether the key may read this namespace.
    pub(crate) fn may_read(&self, namespace: &Namespace) -> bool {
        let Role::Read = self.role;
        let wanted = Pattern::new(namespace.as_str());
        let mut patterns = self.namespaces.iter();
        patterns.any(|pattern| pattern.covers(&wanted))
    }
}

#[cfg(test)]
impl Keys {
    /// One key that may read everything.
    pub(super) fn of(id: &str, secret: &str) -> Self {
        let text = format!("[[key]]\nid = \"{id}\"\nsecret = \"{secret}\"\nnamespaces = [\"*\"]\n");
        Self::parse(&text).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "[[key]]\nid = \"a\"\nsecret = \"hidden-0123456789\"\n";

    #[test]
    fn a_key_is_for_the_namespaces_that_it_names() {
        let keys = Keys::parse(&format!(
            "{KEY}namespaces = [\"project/llama-*\", \"team/x\"]"
        ))
        .unwrap();
        let key = keys.find("a").unwrap();
        let may = |name: &str| key.may_read(&name.parse().unwrap());
        assert!(may("project/llama-ft") && may("team/x"));
        assert!(!may("project/other") && !may("team/xy") && !may("team/llama-ft"));
        assert!(keys.find("b").is_none());
    }

    #[test]
    fn what_is_wrong_is_told_without_a_word_of_the_file() {
        for bad in [
            String::new(),
            KEY.to_owned(),
            format!("{KEY}namespaces = \"hidden-2\""),
            format!("{KEY}namespaces = []\nhidden-3 = 1"),
            format!("{KEY}namespaces = []\nrole = \"hidden-4\""),
            format!("{KEY}namespaces = [\nhidden-5"),
            format!("{KEY}namespaces = []\n{KEY}namespaces = []"),
            "[[key]]\nid = \"a/b hidden\"\nsecret = \"hidden-0123456789\"\nnamespaces = []"
                .to_owned(),
            "[[key]]\nid = \"a\"\nsecret = \"hidden\"\nnamespaces = []".to_owned(),
            format!("{KEY}namespaces = [\"*\", \"projct/hidden\"]"),
            format!("{KEY}namespaces = [\"project/hidden/x\"]"),
        ] {
            let why = Keys::parse(&bad).err().unwrap();
            assert!(!why.contains("hidden"), "{why}");
        }
    }
}
