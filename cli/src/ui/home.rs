//! `~/` at the beginning of the place of a store or a pool: the home directory.
//!
//! A shell writes it out only where the word begins with it and is not quoted: not in `--store=~/x`, a unit of systemd,
//! or the configuration. `./~/x` is the directory that is called so.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, StringValueParser, TypedValueParser};

/// The place with the home directory in place of `~`.
pub(crate) fn at_home(place: OsString) -> OsString {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    below(home.filter(|home| home.is_absolute()).as_deref(), place)
}

/// As [`at_home`], for a text.
pub(crate) fn text_at_home(place: &str) -> String {
    let found = at_home(place.into()).into_string();
    found.unwrap_or_else(|_no_text| place.to_owned())
}

/// As [`at_home`], for a path.
pub(crate) fn path_at_home(path: PathBuf) -> PathBuf {
    at_home(path.into()).into()
}

/// Parses the place of a store.
pub(crate) fn place() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().map(at_home)
}

/// Parses the place of a store that is a text.
pub(crate) fn text() -> impl TypedValueParser<Value = String> {
    StringValueParser::new().map(|text| text_at_home(&text))
}

/// Parses the path of a pool.
pub(crate) fn path() -> impl TypedValueParser<Value = PathBuf> {
    place().map(PathBuf::from)
}

fn below(home: Option<&Path>, place: OsString) -> OsString {
    let rest = match place.as_bytes() {
        b"~" => Some(&b""[..]),
        bytes => bytes.strip_prefix(b"~/"),
    };
    let (Some(home), Some(rest)) = (home, rest) else {
        return place;
    };
    let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
    match rest.get(slashes..).unwrap_or_default() {
        b"" => home.into(),
        rest => home.join(OsStr::from_bytes(rest)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tilde_at_the_beginning_is_the_home() {
        for (place, expected) in [
            ("~", "/home/ana"),
            ("~/", "/home/ana"),
            ("~//x", "/home/ana/x"),
            ("~/a/~/b", "/home/ana/a/~/b"),
            ("./~/x", "./~/x"),
            ("~bob/x", "~bob/x"),
            ("/a/~", "/a/~"),
            ("s3://~/x", "s3://~/x"),
            ("", ""),
        ] {
            let found = below(Some(Path::new("/home/ana")), place.into());
            assert_eq!(found, expected, "{place}");
        }
        assert_eq!(below(None, "~/x".into()), "~/x");
    }
}
