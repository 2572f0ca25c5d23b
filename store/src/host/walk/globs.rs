//! Globs over paths in a tree, with the rules of gitignore but for negation.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

use crate::error::{Error, Result};

/// A set of globs, over paths from a tree's root on.
///
/// `*` and `?` match within a name, `**/` any number of directories. A glob without `/` matches names at any
/// depth; one with `/` at its beginning or inside matches paths from the root on; one that ends in `/` matches
/// directories only.
#[derive(Clone, Debug, Default)]
pub struct Globs {
    names: Pair,
    paths: Pair,
}

/// Globs over one kind of text: for everything, and for directories only.
#[derive(Clone, Debug, Default)]
struct Pair {
    all: GlobSet,
    dirs: GlobSet,
}

impl Globs {
    /// The set of `globs`; an empty one matches nothing.
    ///
    /// # Errors
    /// Invalid input, naming the glob that makes no sense.
    pub fn new(globs: &[impl AsRef<str>]) -> Result<Self> {
        let mut builders = [const { Vec::new() }; 4];
        let [names, name_dirs, paths, path_dirs] = &mut builders;
        for glob in globs.iter().map(AsRef::as_ref) {
            let (text, is_dir) = glob
                .strip_suffix('/')
                .map_or((glob, false), |text| (text, true));
            let is_path = text.contains('/');
            let text = text.strip_prefix('/').unwrap_or(text);
            if text.is_empty() || text.starts_with('!') {
                return Err(Error::invalid(format!(
                    "glob {glob:?}: expected a pattern of names or paths"
                ))
                .hint("write it like `*.bin`, `cache/` for directories or `/train/**` for paths from the top"));
            }
            match (is_path, is_dir) {
                (false, false) => names.push((glob, text)),
                (false, true) => name_dirs.push((glob, text)),
                (true, false) => paths.push((glob, text)),
                (true, true) => path_dirs.push((glob, text)),
            }
        }
        Ok(Self {
            names: Pair {
                all: build(names)?,
                dirs: build(name_dirs)?,
            },
            paths: Pair {
                all: build(paths)?,
                dirs: build(path_dirs)?,
            },
        })
    }

    /// Whether `path`, relative to the root, is matched by itself; what is in a matched directory is the
    /// caller's affair.
    pub fn is_match(&self, path: &[u8], is_dir: bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        self.names.is_match(name, is_dir) || self.paths.is_match(path, is_dir)
    }

    /// Whether nothing matches.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }
}

impl Pair {
    fn is_match(&self, text: &[u8], is_dir: bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let candidate = Candidate::new(OsStr::from_bytes(text));
        self.all.is_match_candidate(&candidate)
            || (is_dir && self.dirs.is_match_candidate(&candidate))
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty() && self.dirs.is_empty()
    }
}

fn build(globs: &[(&str, &str)]) -> Result<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for (glob, text) in globs {
        let built = GlobBuilder::new(text)
            .literal_separator(true)
            .backslash_escape(true)
            .build();
        set.add(built.map_err(|source| Error::invalid(format!("glob {glob:?}")).because(source))?);
    }
    set.build()
        .map_err(|source| Error::invalid("globs").because(source))
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
        assert!(!Globs::default().is_match(b"x", true));
    }

    #[test]
    fn globs_that_make_no_sense_are_named() {
        for glob in ["", "/", "!x"] {
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
