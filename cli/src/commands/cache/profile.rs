//! Profiles: the definition of one kind of compile cache, in a file that is built in or the user's.

mod check;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use store::{Error, Result};

use super::pattern::Pattern;
use crate::config;
use crate::host::files;
use crate::ui::human::Span;
use crate::ui::suggest;

/// The built-in profiles.
pub(crate) const SHIPPED: [(&str, &str); 6] = [
    ("inductor", include_str!("../../../profiles/inductor.toml")),
    ("neff", include_str!("../../../profiles/neff.toml")),
    (
        "neff-vllm",
        include_str!("../../../profiles/neff-vllm.toml"),
    ),
    ("triton", include_str!("../../../profiles/triton.toml")),
    ("vllm", include_str!("../../../profiles/vllm.toml")),
    ("xla", include_str!("../../../profiles/xla.toml")),
];

/// The age of an abandoned lock, unless the profile has its own.
const STALE: Duration = Duration::from_secs(60 * 60);

/// The content of a profile's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Profile {
    #[serde(skip)]
    pub(super) name: String,
    /// The purpose, in one line.
    #[serde(rename = "about")]
    _about: String,
    /// Variables that may name the cache. The first one that is set counts.
    #[serde(default)]
    root: Vec<Root>,
    /// The cache's directory if no variable is set.
    default: Option<String>,
    /// The age of an abandoned lock.
    stale: Option<Span>,
    pub(super) entry: Vec<Shape>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Root {
    variable: String,
    /// The option that names the cache, if the variable holds the options of a command.
    option: Option<String>,
    /// The path of the cache below the named directory.
    below: Option<PathBuf>,
}

/// One kind of entry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Shape {
    /// The paths of entries, and the parts of them that form the key.
    pub(super) path: Pattern,
    /// Whether an entry is one file.
    #[serde(default)]
    pub(super) file: bool,
    /// For an entry that is a file: the endings of temporary files beside it, in place of its extension.
    #[serde(default)]
    pub(super) beside: Vec<String>,
    /// The files that a complete entry needs. If empty, any file with content is enough.
    #[serde(default)]
    pub(super) needs: Vec<Need>,
    /// Files that show that an incomplete entry has failed.
    #[serde(default)]
    pub(super) failed: Vec<Pattern>,
    /// Files that show that a process works on the entry.
    #[serde(default)]
    pub(super) locks: Vec<Pattern>,
    /// Files that never leave the host.
    #[serde(default)]
    pub(super) volatile: Vec<Pattern>,
    /// JSON files that say what the key was made of.
    #[serde(default)]
    pub(super) keys: Vec<Pattern>,
    /// Text files that contain absolute paths into the cache.
    #[serde(default)]
    pub(super) rebase: Vec<Pattern>,
    /// JSON files that name others beside them by absolute paths. Each of these must have content.
    #[serde(default)]
    pub(super) groups: Vec<Pattern>,
    /// Files that must not be cut off, if they are a frame of zstd or zlib, or a program or library (ELF).
    #[serde(default)]
    pub(super) frames: Vec<Pattern>,
    /// Text files that may contain host names.
    #[serde(default)]
    pub(super) scrub: Vec<Pattern>,
}

/// A file that a complete entry needs, under one of these names.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Need {
    pub(super) files: Vec<Pattern>,
    /// Minimum size of the file.
    pub(super) bytes: u64,
    /// Offsets in the file of little-endian 8-byte numbers that state the lengths of its parts. Each must be positive,
    /// and their sum at most the file's size.
    #[serde(default)]
    pub(super) lengths: Vec<u64>,
}

/// All offsets of lengths are within this many bytes.
pub(super) const HEAD_BYTES_MAX: u64 = 4096;

/// The directory of the user's profiles.
fn own_dir() -> Option<PathBuf> {
    Some(config::config_file()?.parent()?.join("profiles"))
}

impl Profile {
    /// Loads the profile of this name: the user's, else the built-in one.
    pub(super) fn load(name: &str) -> Result<Self> {
        let own = own_dir().map(|dir| dir.join(format!("{name}.toml")));
        let is_name = !name.is_empty() && !name.contains('/');
        if let Some(path) = own.filter(|_| is_name) {
            match std::fs::read_to_string(&path) {
                Ok(text) => return Self::parse(name, &path, &text),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(files::unread("read the profile", &path, error)),
            }
        }
        let shipped = SHIPPED.iter().find(|(known, _)| *known == name);
        let (_, text) = shipped.ok_or_else(|| unknown(name))?;
        Self::parse(name, Path::new(&format!("{name}.toml")), text)
    }

    /// The built-in profiles.
    pub(super) fn shipped() -> impl Iterator<Item = Result<Self>> {
        let all = SHIPPED.iter();
        all.map(|(name, text)| Self::parse(name, Path::new(&format!("{name}.toml")), text))
    }

    pub(super) fn parse(name: &str, path: &Path, text: &str) -> Result<Self> {
        let mut profile: Self =
            toml::from_str(text).map_err(|error| mistake(path, text, &error))?;
        profile.name = name.to_owned();
        check::profile(&profile).map_err(|told| wrong(path, &told))?;
        Ok(profile)
    }

    /// The directory of the cache on this host.
    pub(super) fn root(&self) -> Result<PathBuf> {
        let named = self.root.iter().find_map(Root::look);
        let place = match (named, &self.default) {
            (Some(found), _) => found,
            (None, Some(place)) => at_home(place),
            (None, None) => {
                let variables: Vec<_> = self.root.iter().map(|root| &*root.variable).collect();
                let told = format!("profile {}: it is not known where the cache is", self.name);
                return Err(Error::invalid(told)
                    .hint(format!("name DIR, or set {}", variables.join(" or "))));
            }
        };
        let text = place.to_string_lossy();
        if text.contains("://") {
            return Err(Error::invalid(format!(
                "profile {}: {text} is no directory of this host",
                self.name
            ))
            .hint("name DIR, and let the compiler use that directory"));
        }
        Ok(place)
    }

    /// Replaces the age of abandoned locks.
    pub(super) fn with_stale(&self, stale: Option<Duration>) -> Self {
        Self {
            stale: stale.map(Span).or(self.stale),
            ..self.clone()
        }
    }

    pub(super) fn stale(&self) -> Duration {
        self.stale.map_or(STALE, |span| span.0)
    }

    /// Whether `path` may be above an entry, an entry, or inside of one.
    pub(super) fn may_lead_to(&self, path: &[&[u8]]) -> bool {
        let mut shapes = self.entry.iter();
        shapes.any(|shape| {
            let is_inside = path.len() > shape.path.depth();
            shape.path.may_lead_to(path) && !(shape.file && is_inside)
        })
    }

    /// The kind of entry that a path belongs to, as an index.
    pub(super) fn shape_of(&self, path: &[&[u8]], is_dir: bool) -> Option<usize> {
        self.entry.iter().position(|shape| {
            let depth = shape.path.depth();
            let Some(own) = path.get(..depth) else {
                return false;
            };
            let may_be = match shape.file {
                true => path.len() == depth && !is_dir,
                false => path.len() > depth || is_dir,
            };
            may_be && shape.path.fields(own).is_some()
        })
    }
}

impl Root {
    /// The directory that the variable names.
    fn look(&self) -> Option<PathBuf> {
        let value = std::env::var_os(&self.variable).filter(|value| !value.is_empty())?;
        let place = match &self.option {
            None => PathBuf::from(value),
            Some(option) => {
                let value = value.to_string_lossy().into_owned();
                let mut words = value.split_whitespace();
                words.find_map(|word| {
                    let place = word.strip_prefix(option.as_str())?.strip_prefix('=')?;
                    Some(PathBuf::from(place))
                })?
            }
        };
        Some(match &self.below {
            Some(below) => place.join(below),
            None => place,
        })
    }
}

/// Replaces the home directory and the user's name in a path.
fn at_home(place: &str) -> PathBuf {
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    let place = place.replace("{user}", &user);
    match (place.strip_prefix("~/"), std::env::home_dir()) {
        (Some(below), Some(home)) => home.join(below),
        _ => PathBuf::from(OsString::from(place)),
    }
}

fn unknown(name: &str) -> Error {
    let mut known: Vec<String> = SHIPPED
        .iter()
        .map(|(known, _)| (*known).to_owned())
        .collect();
    let own = own_dir().and_then(|dir| std::fs::read_dir(dir).ok());
    for file in own.into_iter().flatten().flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        known.extend(name.strip_suffix(".toml").map(str::to_owned));
    }
    known.sort();
    known.dedup();
    let near = suggest::nearest(name, known.iter().map(String::as_str));
    let near = near.map_or_else(String::new, |near| format!("did you mean {near}? "));
    let told = format!("profile {name}: there is none of this name");
    let dir = own_dir().unwrap_or_default();
    Error::invalid(told).hint(format!(
        "{near}there are {}; your own are files in {}",
        known.join(", "),
        dir.display()
    ))
}

fn wrong(path: &Path, told: &str) -> Error {
    Error::invalid(format!("profile {}", path.display())).because(told.to_owned())
}

/// The error of the parser, with its position and key.
fn mistake(path: &Path, text: &str, error: &toml::de::Error) -> Error {
    for key in ["entry", "root"] {
        let single = format!("[{key}]");
        let mut lines = text.lines();
        if let Some(at) = lines.position(|line| line.trim_start().starts_with(&single)) {
            let told = format!(
                "line {}, {key}: expected [{single}], found {single}",
                at + 1
            );
            return wrong(path, &told);
        }
    }
    let start = error.span().map_or(0, |span| span.start);
    // What the whole file lacks is on no line.
    if start == 0 && error.message().starts_with("missing field") {
        return wrong(path, error.message());
    }
    let before = text.get(..start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let written = text.lines().nth(line - 1).unwrap_or_default();
    let key = match written.split_once('=') {
        Some((key, _)) => format!(", {}", key.trim()),
        None => String::new(),
    };
    wrong(path, &format!("line {line}{key}: {}", error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shipped_can_be_read() {
        for (name, text) in SHIPPED {
            Profile::parse(name, Path::new(name), text).unwrap();
        }
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_its_key() {
        let parse = |text: &str| {
            let error = Profile::parse("x", Path::new("x.toml"), text).unwrap_err();
            format!("{error:?}")
        };
        let entry = "about = \"\"\n[[entry]]\n";
        for (text, told) in [
            (
                format!("{entry}path = \"{{a\"\n"),
                "line 3, path: expected } behind {",
            ),
            (
                format!("{entry}path = \"a\"\nneed = []\n"),
                "line 4, need: unknown field `need`",
            ),
            (
                format!("default = \".\"\n{entry}path = \"a\"\n"),
                "default: expected a path below ~/ or /, found \".\"",
            ),
            (
                format!("{entry}path = \"a\"\nneeds = [{{ files = [], bytes = 0 }}]\n"),
                "[[entry]] number 1: needs: expected at least one name in `files`",
            ),
            (
                format!("{entry}path = \"{{a}}\"\n[[entry]]\npath = \"{{a}}\"\n"),
                "[[entry]] number 2: path: an [[entry]] before it has the same",
            ),
            ("about = \"\"\n".to_owned(), "x.toml: missing field `entry`"),
            (
                "about = \"\"\n[entry]\npath = \"a\"\n".to_owned(),
                "line 2, entry: expected [[entry]], found [entry]",
            ),
            (
                format!("{entry}path = \"~/a\"\n"),
                "line 3, path: expected a path below the root",
            ),
            (
                format!("{entry}path = \"/a\"\n"),
                "line 3, path: expected a path below the root",
            ),
            (
                format!("{entry}path = \"{{a:hex9999999}}\"\n"),
                "line 3, path: expected {a:hexN} with N from 1 to 255",
            ),
            (
                format!("{entry}path = \"a/**\"\n"),
                "[[entry]] number 1: path: expected a path without **",
            ),
            (
                format!("stale = \"0s\"\n{entry}path = \"a\"\n"),
                "stale: expected more than 0",
            ),
            (
                format!("{entry}path = \"a\"\n[[root]]\nvariable = \"\"\n"),
                "variable: expected the name of a variable",
            ),
            (
                format!("{entry}path = \"a\"\n[[root]]\nvariable = \"A\"\nbelow = \"../x\"\n"),
                "below: expected a path inside of the directory, found \"../x\"",
            ),
            (
                format!(
                    "{entry}path = \"a\"\nneeds = [{{ files = [\"done\"], bytes = 0 }}]\nvolatile = [\"d*\"]\n"
                ),
                "[[entry]] number 1: needs: \"done\" never leaves the host",
            ),
            (
                format!("stale = \"soon\"\n{entry}path = \"a\"\n"),
                "line 1, stale: ",
            ),
            (
                format!("{entry}path = \"a\"\nfile = 3\n"),
                "line 4, file: invalid type",
            ),
            (
                format!(
                    "{entry}path = \"a\"\nneeds = [{{ files = [\"b\"], bytes = 1, lengths = [4089] }}]\n"
                ),
                "[[entry]] number 1: lengths: expected places up to 4088",
            ),
        ] {
            assert!(parse(&text).contains(told), "{told}: {}", parse(&text));
        }
    }
}
