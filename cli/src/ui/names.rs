//! Refs and paths between the command line, the engine and the screen.
//!
//! A path is bytes. For people, unprintable characters are escaped, so that every entry is one line. Machines get a
//! string, and also hex digits if the path is not UTF-8.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::ui::human;
use store::{Error, Result};
use store::{RefName, RefSpec, Target};
pub(crate) use store::{ShownPath as Path, shown};

/// `REF[@N][:PATH]`.
pub(crate) fn spec(text: &OsStr) -> Result<RefSpec> {
    RefSpec::parse(text.as_bytes())
}

/// `REF[@N][:PATH]` of a verb that takes it before a path of this host. If they are swapped, the hint has the right order.
pub(crate) fn spec_before(verb: &str, text: &OsStr, path: Option<&OsStr>) -> Result<RefSpec> {
    spec(text).map_err(|error| {
        let is_place = text.as_bytes().starts_with(b"/") || text.as_bytes().starts_with(b".");
        let is_there = |path: &OsStr| std::path::Path::new(path).symlink_metadata().is_ok();
        // A mistyped ref has slashes.
        let is_word = !text.as_bytes().contains(&b'/');
        let is_path = is_place || is_there(text);
        match path.filter(|path| (is_path || is_word && !is_there(path)) && spec(path).is_ok()) {
            None => error,
            Some(path) => {
                let (spec, path) = (path.to_string_lossy(), text.to_string_lossy());
                error.hint(format!(
                    "name the ref first and the path second: `store {verb} {} {}`",
                    quoted(&spec),
                    quoted(&path)
                ))
            }
        }
    })
}

/// `REF` of a verb that takes it after a path of this host. If they are swapped, the hint has the right order.
pub(crate) fn name_after(verb: &str, path: &OsStr, text: &OsStr) -> Result<RefName> {
    name(text).map_err(|error| {
        let is_swapped = spec(text).is_err()
            && spec(path).is_ok()
            && std::path::Path::new(path).symlink_metadata().is_err();
        let (spec, path) = (path.to_string_lossy(), text.to_string_lossy());
        match is_swapped {
            false => error,
            true => error.hint(format!(
                "name the path first and the ref second: `store {verb} {} {}`",
                quoted(&path),
                quoted(&spec)
            )),
        }
    })
}

/// Fails if a ref is where the file of a bundle belongs, and what is no ref is among the refs. The hint has the right
/// order.
pub(crate) fn check_file_first(verb: &str, file: &OsStr, refs: &[OsString]) -> Result<()> {
    let is_ref = |text: &OsStr| target(text).is_ok();
    let place = refs.iter().position(|text| !is_ref(text));
    let Some(place) = place.filter(|_| is_ref(file) && !std::path::Path::new(file).exists()) else {
        return Ok(());
    };
    let mut words = vec![file.to_string_lossy()];
    words.extend(refs.iter().map(|text| text.to_string_lossy()));
    words.swap(0, place + 1);
    let shown = file.to_string_lossy();
    Err(Error::invalid(format!(
        "{verb}: {shown} is a ref, expected a file in its place"
    ))
    .hint(format!(
        "name the file first and then the refs: `store {verb} {}`",
        words.iter().map(quoted).collect::<Vec<_>>().join(" ")
    )))
}

/// `NAMESPACE|REF[@N][:PATH]`.
pub(crate) fn target(text: &OsStr) -> Result<Target> {
    Target::parse(text.as_bytes())
}

/// `REF`, without a version or a path.
pub(crate) fn name(text: &OsStr) -> Result<RefName> {
    let spec = spec(text)?;
    if spec.version.is_some() || !spec.path.is_empty() {
        return Err(
            Error::invalid(format!("{spec}: expected a ref without version and path"))
                .hint(format!("write {}", spec.name)),
        );
    }
    Ok(spec.name)
}

/// `REF[@N]`, without a path.
pub(crate) fn version(text: &OsStr) -> Result<RefSpec> {
    let spec = spec(text)?;
    if !spec.path.is_empty() {
        return Err(
            Error::invalid(format!("{spec}: expected a ref without path"))
                .hint("a version is pinned, dropped and listed as a whole"),
        );
    }
    Ok(spec)
}

/// Fails if the arguments are in the wrong order, so that a ref is where the cluster belongs. The hint has the right
/// order.
pub(crate) fn check_order(verb: &str, refs: &[OsString], cluster: &str) -> Result<()> {
    let is_ref = |text: &OsStr| target(text).is_ok();
    if !is_ref(OsStr::new(cluster)) {
        return Ok(());
    }
    if refs.iter().all(|text| is_ref(text)) {
        return check_is_no_ref(verb, refs, cluster);
    }
    // The first word may be the cluster and the last one a ref, or the other way round.
    let words = |refs: Vec<&OsString>| {
        let words: Vec<_> = refs.iter().map(|text| text.to_string_lossy()).collect();
        words.join(" ")
    };
    let (named, others): (Vec<_>, Vec<_>) = refs.iter().partition(|text| is_ref(text));
    let named = words(named);
    let named = [named.as_str(), cluster].join(" ");
    let (named, others) = (named.trim(), words(others));
    let right = match verb {
        "push" => format!("`store push {named} {others}`"),
        _ => format!("`store {verb} {others} {named}`"),
    };
    Err(Error::invalid(format!(
        "{verb}: {cluster} is a ref, expected a cluster in its place"
    ))
    .hint(format!(
        "{verb} takes {}: {right}",
        match verb {
            "push" => "the refs first and the cluster last",
            _ => "the cluster first and then the refs",
        }
    )))
}

/// Fails if a ref is where the cluster belongs, and nothing is at that path: the cluster was forgotten.
fn check_is_no_ref(verb: &str, refs: &[OsString], cluster: &str) -> Result<()> {
    let is_ref = ["project/", "team/"]
        .iter()
        .any(|kind| cluster.starts_with(kind));
    if !is_ref || std::path::Path::new(cluster).symlink_metadata().is_ok() {
        return Ok(());
    }
    let refs = refs.iter().map(|text| quoted(&text.to_string_lossy()));
    let (refs, last) = (refs.collect::<Vec<_>>().join(" "), quoted(cluster));
    let right = match verb {
        "push" => format!("store push {refs} {last} CLUSTER"),
        _ => format!("store {verb} CLUSTER {last} {refs}"),
    };
    Err(Error::invalid(format!(
        "{verb}: {cluster} is a ref, expected a cluster in its place"
    ))
    .hint(format!(
        "the cluster is missing: `{right}`; `store cluster ls` lists those that have a name"
    )))
}

/// Escapes a text so that it is one line, as [`shown`] does for paths. Keeps backslashes, since `text` may already be
/// escaped.
pub(crate) fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match store::is_unseen(c) {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

/// The bytes of a path that is not UTF-8.
pub(crate) fn hex(path: &std::path::Path) -> Option<String> {
    store::hex(path.as_os_str().as_bytes())
}

/// Maximum number of paths to name in a list of any length.
const NAMED_MAX: usize = 5;

/// The first of `total` paths of a tree, and the number of the others.
pub(crate) fn some<'p>(total: u64, first: impl Iterator<Item = &'p std::path::Path>) -> String {
    let mut named: Vec<String> = first
        .take(NAMED_MAX)
        .map(|path| match path.as_os_str().as_bytes() {
            b"" => ".".to_owned(),
            path => shown(path),
        })
        .collect();
    let more = total.saturating_sub(u64::try_from(named.len()).unwrap_or(total));
    if more > 0 {
        named.push(format!("{} more", human::count(more)));
    }
    named.join(", ")
}

/// ` (@t3f9a1c0b7d2e)`, to follow a version: its id, which is the same in every store.
pub(crate) fn id(id: Option<&store::Id>) -> String {
    id.map_or_else(String::new, |id| format!(" (@{})", id.clone().short()))
}

/// Quotes a word, like a ref or a path, for a shell, if necessary.
pub(crate) fn quoted(word: &(impl ToString + ?Sized)) -> String {
    quoted_bytes(word.to_string().as_bytes())
}

/// How to save a directory that is not known here to be of a version; `given` is the one that was there before.
pub(crate) fn save_by_hand(dir: &std::path::Path, name: &str, given: Option<u64>) -> String {
    let (dir, name) = (quoted_path(dir), quoted(name));
    match given {
        None => format!(
            "`store save {dir} {name} --base N`, with the version that it was made from, or 0 if it is from none"
        ),
        Some(given) => format!(
            "`store save {dir} {name} --base 0`, which only adds and changes, or with --base {given}, if it was made from that \
             version, which removes what is not there any more"
        ),
    }
}

/// Quotes a path for a shell, byte by byte.
pub(crate) fn quoted_path(path: &std::path::Path) -> String {
    let path = path.as_os_str().as_bytes();
    match path.starts_with(b"-") {
        // It is no option.
        true => quoted_bytes(&[b"./", path].concat()),
        false => quoted_bytes(path),
    }
}

/// Whoever prints the word escapes what a terminal would act on. So such bytes are written as in `$'\n'`, which bash, zsh
/// and ksh read.
fn quoted_bytes(word: &[u8]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+~".contains(c);
    match std::str::from_utf8(word) {
        Ok(text) if text.chars().all(is_plain) => text.to_owned(),
        Ok(text) if !text.contains(store::is_unseen) => {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
        _ => escaped(word),
    }
}

fn escaped(word: &[u8]) -> String {
    let mut quoted = "$'".to_owned();
    let hex = |bytes: &[u8]| -> String {
        let bytes = bytes.iter().map(|byte| format!("\\x{byte:02x}"));
        bytes.collect()
    };
    for chunk in word.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' | '\\' => quoted.extend(['\\', c]),
                '\n' => quoted += "\\n",
                '\t' => quoted += "\\t",
                c if store::is_unseen(c) => quoted += &hex(c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => quoted.push(c),
            }
        }
        quoted += &hex(chunk.invalid());
    }
    quoted + "'"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_word_as_it_was() {
        for (word, expected) in [
            (&b"a/b-c.1"[..], "a/b-c.1"),
            (b"two words", "'two words'"),
            (b"it's", "'it'\\''s'"),
            (b"new\nline's \\", "$'new\\nline\\'s \\\\'"),
            (b"\x1b[1m\t4", "$'\\x1b[1m\\t4'"),
            (b"gr\xfcn", "$'gr\\xfcn'"),
            ("\u{202e}x".as_bytes(), "$'\\xe2\\x80\\xaex'"),
        ] {
            let quoted = quoted_bytes(word);
            assert_eq!(quoted, expected);
            let script = format!("printf %s {quoted}");
            let read = std::process::Command::new("bash")
                .args(["-c", &script])
                .output();
            assert_eq!(read.unwrap().stdout, word);
        }
    }

    #[test]
    fn a_text_tells_the_terminal_nothing() {
        assert_eq!(
            printable("l: to \u{1b}[2J\r\n\u{9b}1m \\x1b gr\u{fc}n"),
            "l: to \\u{1b}[2J\\r\\n\\u{9b}1m \\x1b gr\u{fc}n"
        );
    }
}
