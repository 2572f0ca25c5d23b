//! Credentials in a tree: found by name and by text, all listed together, their values never shown.
//!
//! The text of small files is searched when they are read for the put. After the first finding, the put stores nothing
//! more; it only searches the rest, and ends with a list of all findings.

mod issuers;
mod places;
mod random;
mod wide;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use self::places::SecretPlace;
use crate::error::{Error, Result};
use crate::host::walk::{Globs, Stat};
use crate::remedy::Remedy;
use crate::shown::is_unseen;

/// Larger files are not searched: nobody keeps a token in them, and data sets contain every kind of string.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// A file with a NUL in its first bytes, up to this many, is no text.
const HEAD_BYTES: usize = 8 << 10;
/// Larger files that are no text are not searched. Smaller ones may be saved settings, like the `training_args.bin` of
/// transformers, a pickle that contains the token of the user who trained.
const BINARY_BYTES_MAX: usize = 64 << 10;
/// Most findings that are named; further ones are counted.
const NAMED_MAX: usize = 100;
/// Most names in a note.
const NOTED_MAX: usize = 5;

/// What was found in one tree, on any thread.
#[derive(Debug)]
pub(crate) struct Secrets {
    /// The absolute path of the root, which shows whether packages are installed there.
    root: Vec<u8>,
    allow: Globs,
    /// Leave out and name files with credentials, and store everything else.
    leaves_out: bool,
    is_any: AtomicBool,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    /// Paths relative to the root, and the kind of credentials.
    refused: BTreeMap<Vec<u8>, &'static str>,
    more: u64,
    /// Findings in published packages.
    published: Vec<Vec<u8>>,
    more_published: u64,
}

/// The search of one file's text.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    secrets: Arc<Secrets>,
    path: Vec<u8>,
}

impl Secrets {
    /// Prepares a search of the tree at `root`. Files that match `allow` are accepted.
    ///
    /// # Errors
    /// Invalid input, naming an invalid glob.
    pub(super) fn new(root: &Path, allow: &[String], leaves_out: bool) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            root: root.as_os_str().as_encoded_bytes().to_vec(),
            allow: Globs::new(allow)?,
            leaves_out,
            is_any: AtomicBool::new(false),
            found: Mutex::default(),
        }))
    }

    /// Whether there are findings for which the put fails.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Records that the file or directory at `path` holds credentials of this kind.
    ///
    /// # Errors
    /// Denied, when only this path is left out for that.
    pub(super) fn add(&self, path: &[u8], kind: &'static str) -> Result<()> {
        if self.is_allowed(self.named(path)) {
            return Ok(());
        }
        let is_published = places::is_published(&self.root) || places::is_published(path);
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if is_published {
            match found.published.len() {
                NOTED_MAX => found.more_published += 1,
                _ => found.published.push(path.to_vec()),
            }
            return Ok(());
        }
        if self.leaves_out {
            let full = [&self.root, &b"/"[..], path].concat();
            let told = format!("{}: looks like credentials: {kind}", shown(&full));
            let glob = glob(path);
            return Err(Error::denied(told).hint(Remedy::AllowSecret { glob }));
        }
        self.is_any.store(true, Ordering::Relaxed);
        match found.refused.len() {
            // The name may have shown it before the text did.
            _ if found.refused.contains_key(path) => {}
            NAMED_MAX => found.more += 1,
            _ => drop(found.refused.insert(path.to_vec(), kind)),
        }
        Ok(())
    }

    /// Judges a path by name and mode; [`Search`] judges the text.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(super) fn look(&self, path: &[u8], stat: &Stat, is_dir: bool) -> Result<()> {
        let is_private = stat.mode & 0o077 == 0 && (is_dir || stat.size > 0);
        let place = self.place(path).filter(SecretPlace::is_private_proof);
        match place.filter(|place| is_private && place.is_dir == is_dir) {
            Some(place) => self.add(path, place.kind),
            None => Ok(()),
        }
    }

    /// Prepares the search of the text of the file at `path`.
    pub(super) fn search(self: &Arc<Self>, path: &[u8]) -> Search {
        Search {
            secrets: Arc::clone(self),
            path: path.to_vec(),
        }
    }

    fn place(&self, path: &[u8]) -> Option<SecretPlace> {
        match path {
            // A single file is put.
            [] => places::of(&self.root),
            path if path.contains(&b'/') => places::of(path),
            // The directory that is put may itself belong to a tool.
            path => places::of(&[&self.root, &b"/"[..], path].concat()),
        }
    }

    /// The path that globs are matched with; for a single file, its name.
    fn named<'s>(&'s self, path: &'s [u8]) -> &'s [u8] {
        match path {
            [] => self
                .root
                .rsplit(|byte| *byte == b'/')
                .next()
                .unwrap_or(path),
            path => path,
        }
    }

    /// Ends the search.
    ///
    /// # Errors
    /// Denied, listing all findings.
    pub(crate) fn finish(&self) -> Result<()> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let count = found.refused.len() as u64 + found.more;
        let Some((first, _)) = found.refused.first_key_value() else {
            return Ok(());
        };
        let named = found
            .refused
            .iter()
            .map(|(path, kind)| format!("{}: {kind}", shown(path)));
        let more = (found.more > 0).then(|| format!("and {} more", found.more));
        let what = match count {
            1 => "1 path holds".to_owned(),
            count => format!("{count} paths hold"),
        };
        let message = format!("{what} what looks like credentials; nothing was put");
        let hint = match first.as_slice() {
            [] => Remedy::AllowSecrets,
            first => Remedy::AllowSecret { glob: glob(first) },
        };
        Err(Error::denied(message).list(named.chain(more)).hint(hint))
    }

    /// The notes about files that were accepted.
    pub(crate) fn notes(&self) -> Vec<String> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let published = listed(&found.published, found.more_published).map(|paths| {
            format!("taken, since they are parts of installed packages, though they look like credentials: {paths}")
        });
        published.into_iter().collect()
    }

    fn is_allowed(&self, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut parents = ends.filter_map(|(end, _)| path.get(..end));
        self.allow.is_match(path, false) || parents.any(|parent| self.allow.is_match(parent, true))
    }
}

impl Search {
    /// Whether anything was found in the tree, so that nothing more is stored.
    pub(super) fn is_over(&self) -> bool {
        self.secrets.is_any()
    }

    /// Searches `bytes`, the whole file, for credentials.
    ///
    /// # Errors
    /// As [`Secrets::add`].
    pub(super) fn whole(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 > TEXT_BYTES_MAX {
            return Ok(());
        }
        let kind = kind_of(bytes, self.secrets.place(&self.path));
        kind.map_or(Ok(()), |kind| self.secrets.add(&self.path, kind))
    }
}

/// The paths on one line; none, if there are no paths.
fn listed(paths: &[Vec<u8>], more: u64) -> Option<String> {
    let mut names: Vec<String> = paths.iter().map(|path| shown(path)).collect();
    names.sort();
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| names.join(", ") + &more)
}

/// The path on one line, whatever bytes it has.
fn shown(path: &[u8]) -> String {
    if path.is_empty() {
        return "the file itself".to_owned();
    }
    let text = String::from_utf8_lossy(path);
    text.chars()
        .flat_map(|c| {
            let escaped = is_unseen(c).then(|| c.escape_default());
            let plain = escaped.is_none().then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

/// A glob that matches only this path.
fn glob(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let glob = Globs::escape(&text).replace(|c: char| is_unseen(c) || c == '\u{fffd}', "?");
    format!("/{glob}")
}

/// The kind of credentials that a file of these bytes holds, if there are any.
fn kind_of(bytes: &[u8], place: Option<SecretPlace>) -> Option<&'static str> {
    let wide = wide::text(bytes);
    let bytes = wide.as_deref().unwrap_or(bytes);
    let head = bytes.get(..HEAD_BYTES).unwrap_or(bytes);
    let is_text = !head.contains(&0);
    let place = place.filter(|place| (is_text || place.is_any()) && place.is_in(bytes));
    let is_searched = is_text || bytes.len() <= BINARY_BYTES_MAX;
    let issued = is_searched.then(|| issuers::find(bytes)).flatten();
    issued.or(place.map(|place| place.kind))
}

/// The kind of credentials that the file at `path` seems to hold, by its name and its text, as a put finds them; none if
/// it is too large to be searched.
///
/// # Errors
/// If it cannot be read.
pub fn credentials_at(path: &Path) -> Result<Option<&'static str>> {
    use std::io::Read;
    let failed = |source| Error::io("read", path, source);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    (file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(failed)?;
    let is_searched = bytes.len() as u64 <= TEXT_BYTES_MAX;
    let place = places::of(path.as_os_str().as_encoded_bytes());
    Ok(is_searched.then(|| kind_of(&bytes, place)).flatten())
}

/// The kind of credentials that a text holds, if there are any.
pub fn credentials_in(text: &str) -> Option<&'static str> {
    issuers::find(text.as_bytes())
}
