//! Globs over paths in a tree, with the rules of gitignore.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::{Error, Result};

/// A list of globs over paths relative to a tree's root. If several match a path, the last one decides.
///
/// `*` and `?` match within a name, `**/` any number of directories. A glob without `/` matches names at any depth. One
/// with `/` at its beginning or inside matches paths from the root. One that ends in `/` matches only directories. One
/// that begins with `!` cancels earlier matches.
#[derive(Clone, Debug)]
pub struct Globs(Gitignore);

impl Default for Globs {
    fn default() -> Self {
        Self(Gitignore::empty())
    }
}

impl Globs {
    /// Parses the list; an empty one matches nothing.
    ///
    /// # Errors
    /// Invalid input, naming the invalid glob.
    pub fn new(globs: &[impl AsRef<str>]) -> Result<Self> {
        let mut list = GitignoreBuilder::new("");
        // An unclosed class is always a mistake.
        list.allow_unclosed_class(false);
        for glob in globs.iter().map(AsRef::as_ref) {
            let text = glob.strip_prefix('!').unwrap_or(glob);
            if text.trim_matches('/').is_empty() || glob.starts_with('#') {
                return Err(Error::invalid(format!(
                    "glob {glob:?}: expected a pattern of names or paths"
                ))
                .hint("write it like `*.bin`, `cache/` for directories or `/train/**` for paths from the top; `\\#` for a name that begins with #"));
            }
            list.add_line(None, glob).map_err(|source| {
                Error::invalid(format!("glob {glob:?}")).because(source.to_string())
            })?;
        }
        let list = list.build();
        Ok(Self(list.map_err(|source| {
            Error::invalid("globs").because(source.to_string())
        })?))
    }

    /// Whether a glob matches `path` itself, relative to the root. The caller handles what is in a matched directory.
    pub fn is_match(&self, path: &[u8], is_dir: bool) -> bool {
        // The root has no name that a glob could match.
        !self.is_empty()
            && !path.is_empty()
            && self.0.matched(OsStr::from_bytes(path), is_dir).is_ignore()
    }

    /// A glob that matches only `text`, to be used after a `/`.
    pub fn escape(text: &str) -> String {
        let mut glob = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '?' | '*' | '[' | ']' | '{' | '}' => glob.extend(['[', c, ']']),
                '\\' | ' ' => glob.extend(['\\', c]),
                _ => glob.push(c),
            }
        }
        glob
    }

    /// Whether the list matches nothing.
    pub fn is_empty(&self) -> bool {
        self.0.num_ignores() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_names_paths_and_directories() {
        let globs = Globs::new(&[
            "*.pyc",
            "/top",
            "a/*.txt",
            "cache/",
            "**/deep/x",
            "logs/**",
            "[[]q]",
        ])
        .unwrap();
        let cases: [(&str, bool, bool); 17] = [
            ("x.pyc", false, true),
            ("a/b/x.pyc", false, true),
            ("x.pyd", false, false),
            ("top", false, true),
            ("a/top", false, false),
            ("a/x.txt", false, true),
            ("a/b/x.txt", false, false),
            ("b/a/x.txt", false, false),
            ("cache", true, true),
            ("a/cache", true, true),
            ("cache", false, false),
            ("deep/x", false, true),
            ("a/b/deep/x", false, true),
            ("logs", true, false),
            ("logs/a/b", false, true),
            ("[q]", false, true),
            ("", true, false),
        ];
        for (path, is_dir, expected) in cases {
            assert_eq!(globs.is_match(path.as_bytes(), is_dir), expected, "{path}");
        }
        assert!(globs.is_match(b"\xff\xfe.pyc", false));
        // `?` takes any byte for a character.
        for glob in ["caf?", "/d/*", "[!a]af\\*", "**/caf*", "d/", "ca[!x]?"] {
            let globs = Globs::new(&[glob]).unwrap();
            let path: (&[u8], bool) = match glob {
                "/d/*" => (b"d/\xe9", false),
                "d/" => (b"\xe9/d", true),
                "[!a]af\\*" => (b"\xe9af*", false),
                _ => (b"\xe9/caf\xe9", false),
            };
            assert!(globs.is_match(path.0, path.1), "{glob}");
        }
        assert!(!Globs::default().is_match(b"x", true));
    }

    #[test]
    fn an_escaped_name_is_matched_alone() {
        for name in [
            "a", "a*", "a?", "[q]", "{a,b}", "a\\b", "a ", " ", "#x", "!x", "a b",
        ] {
            let globs = Globs::new(&[format!("/{}", Globs::escape(name))]).unwrap();
            assert!(globs.is_match(name.as_bytes(), false), "{name:?}");
            for other in ["ab", "q", "b", "x"] {
                assert!(!globs.is_match(other.as_bytes(), false), "{name:?}");
            }
        }
    }

    #[test]
    fn the_last_glob_that_matches_counts() {
        let globs = Globs::new(&["*.bin", "!keep.bin", "/a/keep.bin"]).unwrap();
        let cases = [
            ("x.bin", true),
            ("keep.bin", false),
            ("b/keep.bin", false),
            ("a/keep.bin", true),
        ];
        for (path, expected) in cases {
            assert_eq!(globs.is_match(path.as_bytes(), false), expected, "{path}");
        }
        assert!(Globs::new(&["!x"]).unwrap().is_empty());
        assert!(!Globs::new(&["!x"]).unwrap().is_match(b"y", false));
    }

    #[test]
    fn globs_that_make_no_sense_are_named() {
        for glob in ["", "/", "!", "!/", "#x"] {
            let error = Globs::new(&[glob]).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("glob {glob:?}: expected a pattern of names or paths")
            );
        }
        assert_eq!(
            Globs::new(&["a", "x[b"]).unwrap_err().to_string(),
            "glob \"x[b\""
        );
    }
}
