//! Directories whose save failed because the store could not be reached. They stay listed until they are saved. Compile
//! caches with unpushed entries stay listed until they are pushed.
//!
//! Each has a file in this program's state directory. The file names the directory and never holds any of its content,
//! which stays where it is.

mod in_place;

use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use store::{Error, RefName, Result, Store};

use crate::host::place::{Held, Place};
use crate::host::state;
use crate::ui::names::{quoted, quoted_path};

/// The directory of these files, below the state directory.
const DIR: &str = "pending";
/// The directory of those that were saved, as far as saves of them leave something out.
const SAVED_DIR: &str = "saved";
/// Most bytes of a file of the list.
const BYTES_MAX: u64 = 16 << 20;

/// The versions of these files, for saves and for pushes. Files of other versions are left alone, so a program without
/// pending pushes ignores them.
const VERSION: u32 = 1;
const VERSION_OF_COMPILES: u32 = 2;

/// The settings of a pending push.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct OfCompiles {
    pub(crate) profile: String,
    #[serde(default)]
    pub(crate) public: bool,
    /// Whether the ref is the default of a layout.
    #[serde(default)]
    pub(crate) is_unnamed: bool,
    /// The number of complete entries when a push failed; 0 before that.
    #[serde(default)]
    pub(crate) entries: u64,
}

/// One failed save.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Pending {
    pending: u32,
    /// Bytes, since a path need not be UTF-8.
    directory: Vec<u8>,
    store: String,
    /// The id of that store, if it was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(rename = "ref")]
    target: Option<String>,
    /// The job that ran in the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// Whether the directory was empty before that job, so that all of it is the job's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    began_empty: bool,
    /// Otherwise the version that it is of, if this host knows nothing of it: the job removed the one that it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<u64>,
    /// Globs of the files that a save of that job leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    exclude: Vec<String>,
    /// What was there when this was noted. Programs from before 2026-11-28 did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
    /// The version that the job was given, for hints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given: Option<u64>,
    /// The one that was in its place in the end, if the job removed the directory, so that it cannot come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instead: Option<Place>,
    /// Whether the job left nothing to save, so that this only says whose directory it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_done: bool,
    /// The settings if this is a push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compiles: Option<OfCompiles>,
    #[serde(skip)]
    file: PathBuf,
    #[serde(skip)]
    path: PathBuf,
}

impl Pending {
    /// A save of `dir` that is not on the list yet; `None` if this host has no state directory.
    pub(crate) fn new(
        kept: Option<PathBuf>,
        dir: &Path,
        (store, target): (&str, Option<&RefName>),
    ) -> Option<Self> {
        Self::of(kept?, dir.canonicalize().ok()?, (store, target), None)
    }

    /// A pending push. The directory need not exist yet.
    pub(crate) fn of_compiles(
        kept: Option<PathBuf>,
        dir: &Path,
        (store, target): (&str, &RefName),
        compiles: OfCompiles,
    ) -> Option<Self> {
        let path = dir.canonicalize().or_else(|_| std::path::absolute(dir));
        Self::of(kept?, path.ok()?, (store, Some(target)), Some(compiles))
    }

    fn of(
        kept: PathBuf,
        path: PathBuf,
        (store, target): (&str, Option<&RefName>),
        compiles: Option<OfCompiles>,
    ) -> Option<Self> {
        let bytes = path.as_os_str().as_bytes();
        let mut key = bytes.to_vec();
        key.push(0);
        key.extend_from_slice(store.as_bytes());
        // One directory may be saved to several refs.
        key.push(0);
        key.extend(target.iter().flat_map(|name| name.as_str().bytes()));
        if let Some(compiles) = &compiles {
            key.push(0);
            key.extend_from_slice(compiles.profile.as_bytes());
        }
        let name = store::ChunkId::of(&key).to_string();
        Some(Self {
            pending: version(compiles.as_ref()),
            directory: bytes.to_vec(),
            store: store.to_owned(),
            id: None,
            job: None,
            began_empty: false,
            base: None,
            exclude: Vec::new(),
            target: target.map(ToString::to_string),
            place: Place::of(&path),
            given: None,
            instead: None,
            is_done: false,
            compiles,
            file: kept.join(DIR).join(format!("{name}.json")),
            path,
        })
    }

    /// All saves on the list.
    ///
    /// # Errors
    /// Denied, if somebody else could have put them there.
    pub(crate) fn all(kept: Option<PathBuf>) -> Result<Vec<Self>> {
        check(kept.as_deref())?;
        let mut all = Vec::new();
        for path in files(kept) {
            state::check(&path)?;
            all.extend(Self::read(&path));
        }
        all.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(all)
    }

    /// Files of the list that hold no save: damaged ones, and those of a later program.
    pub(crate) fn unreadable(kept: Option<PathBuf>) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = files(kept)
            .filter(|path| Self::read(path).is_none())
            // Another process may have settled it meanwhile.
            .filter(|path| path.symlink_metadata().is_ok())
            .collect();
        found.sort();
        found
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.path
    }

    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    /// Restricts the save to the store with this id.
    #[must_use]
    pub(crate) fn only_to(mut self, id: Option<String>) -> Self {
        self.id = id;
        self
    }

    /// Sets the job, and the globs that its saves leave out.
    #[must_use]
    pub(crate) fn of_job(mut self, job: &str, exclude: &[String]) -> Self {
        self.job = Some(job.to_owned());
        self.exclude = exclude.to_vec();
        self
    }

    /// Sets that the directory is the one that is there now.
    #[must_use]
    pub(crate) fn of_what_is_there(self) -> Self {
        let given = self.given;
        match Held::open(&self.path) {
            Ok(held) => self.of_held(&held, given),
            Err(_) => Self {
                place: Place::of(&self.path),
                ..self
            },
        }
    }

    /// Sets that the directory is this one, in which a job was given a version.
    #[must_use]
    pub(crate) fn of_held(mut self, held: &Held, given: Option<u64>) -> Self {
        let before = self.written().and_then(|written| written.place);
        let place = Place::of_held(held, &self.path);
        let place = place.map(|place| place.noted(held, self.number(), before));
        self.place = place.or_else(|| Place::of(&self.path));
        self.given = given;
        self
    }

    /// The number of this note in the directory, which is always the same: entries come and go. Other state directories have
    /// other numbers, even those of hosts with the same name and paths.
    fn number(&self) -> Option<u32> {
        let dir = self.file.parent()?.metadata().ok()?;
        let born = dir.created().ok();
        let key = format!(
            "{:?} {:?} {:?} {born:?}",
            self.file.file_name()?,
            dir.dev(),
            dir.ino()
        );
        u32::from_str_radix(store::ChunkId::of(key.as_bytes()).to_string().get(..8)?, 16).ok()
    }

    /// Sets the version that the directory is of, if this host knows nothing of it; 0: of nothing.
    #[must_use]
    pub(crate) fn with_base(mut self, base: Option<u64>) -> Self {
        self.began_empty = base == Some(0);
        self.base = base.filter(|_| !self.began_empty);
        self
    }

    /// The version that the directory is of, if this host knows nothing of it; 0: of nothing.
    pub(crate) fn base(&self) -> Option<u64> {
        match self.began_empty {
            true => Some(0),
            false => self.base,
        }
    }

    /// Sets the number of complete entries.
    #[must_use]
    pub(crate) fn with_entries(mut self, entries: u64) -> Self {
        if let Some(compiles) = &mut self.compiles {
            compiles.entries = entries;
        }
        self
    }

    /// The settings if this is a push, `None` for a save.
    pub(crate) fn compiles(&self) -> Option<&OfCompiles> {
        self.compiles.as_ref()
    }

    pub(crate) fn exclude(&self) -> &[String] {
        &self.exclude
    }

    /// The message of the version that the save makes.
    pub(crate) fn message(&self) -> Option<String> {
        Some(message_of(self.job.as_ref()?))
    }

    /// Checks that `store`, which is at the store's place now, is the one that the save was meant for.
    ///
    /// # Errors
    /// Conflict, if another store was there when the save failed.
    pub(crate) fn check(&self, store: &Store) -> Result<()> {
        let found = store.format().id.to_string();
        let Some(wanted) = self.id.as_ref().filter(|wanted| **wanted != found) else {
            return Ok(());
        };
        let (dir, place) = (self.path.display(), &self.store);
        let target = quoted(self.target.as_deref().unwrap_or("REF"));
        let (from, to) = (quoted_path(&self.path), quoted(place));
        let otherwise = match &self.compiles {
            None => format!("`store save {from} {target} --base 0 --store {to}` saves it"),
            Some(OfCompiles { profile, .. }) => {
                format!(
                    "`store cache --profile {profile} push {from} {target} --store {to}` pushes it"
                )
            }
        };
        Err(Error::conflict(format!(
            "{dir}: is to be saved to the store {wanted}, and at {place} there is another one by now, {found}"
        ))
        .hint(format!(
            "bring the store back that was there; {otherwise} to the one that is there"
        )))
    }

    pub(crate) fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    /// The same save as it is on the list, if it is there.
    pub(crate) fn written(&self) -> Option<Self> {
        Self::read(&self.file)
    }

    fn read(file: &Path) -> Option<Self> {
        let places = [file, file.parent()?, file.parent()?.parent()?];
        if places.iter().any(|place| state::check(place).is_err()) {
            return None;
        }
        let bytes = store::read_regular(file, BYTES_MAX).ok()?;
        let mut found: Self = serde_json::from_slice(&bytes).ok()?;
        found.file = file.to_path_buf();
        found.path = std::ffi::OsString::from_vec(found.directory.clone()).into();
        (found.pending == version(found.compiles.as_ref())).then_some(found)
    }

    /// Puts the save on the list.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write(&self) -> Result<()> {
        let failed = |source| {
            Error::io("write", &self.file, source)
                .hint("what cannot be saved is noted there: set XDG_STATE_HOME to a directory that can be written")
        };
        let dir = self.file.parent().unwrap_or_else(|| Path::new("."));
        check(dir.parent())?;
        state::make(dir).map_err(failed)?;
        let text = serde_json::to_vec(self)
            .map_err(|source| Error::invalid("a pending save").because(source))?;
        let new = self.file.with_extension(std::process::id().to_string());
        write_closed(&new, &text)
            .and_then(|()| std::fs::rename(&new, &self.file))
            .map_err(failed)
    }

    /// Puts a save by hand on the list: of the directory that is there now, unless it is there already.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(crate) fn write_by_hand(&self) -> Result<()> {
        match self.written() {
            None => self.clone().of_what_is_there().write(),
            Some(written) => written.write(),
        }
    }

    /// Notes that the job removed the directory: somebody may save the one in its stead that is there now.
    pub(crate) fn write_removed(&self) {
        let removed = Self {
            instead: Place::of(&self.path),
            ..self.clone()
        };
        // If this fails, it stays on the list until it is given up.
        drop(removed.write());
    }

    /// Keeps the save on the list only for whose directory it is.
    pub(crate) fn write_done(&self) {
        let done = Self {
            is_done: true,
            ..self.clone()
        };
        // If this fails, the next save looks at the directory.
        drop(done.write());
    }

    /// Puts the save back on the list if another process removed it.
    pub(crate) fn keep(&self) {
        if !self.file.exists() {
            // The next call tries again.
            drop(self.write());
        }
    }

    /// Removes the save from the list. What it leaves out is remembered, for those who save the directory by hand.
    pub(crate) fn remove(&self) {
        let saved = self.saved_file().filter(|_| !self.exclude.is_empty());
        let is_kept = saved.is_some_and(|saved| {
            let dir = saved.parent().map(state::make);
            dir.is_some_and(|made| made.is_ok()) && std::fs::rename(&self.file, saved).is_ok()
        });
        if !is_kept {
            drop(std::fs::remove_file(&self.file));
        }
    }

    /// Globs of what the last job in the directory left out when it was saved to this ref.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let saved = self.saved_file().and_then(|file| Self::read(&file));
        saved.map(|saved| saved.exclude).unwrap_or_default()
    }

    fn saved_file(&self) -> Option<PathBuf> {
        let kept = self.file.parent()?.parent()?;
        Some(kept.join(SAVED_DIR).join(self.main_file().file_name()?))
    }
}

/// Checks that nobody else can put anything on the list that is in a state directory.
///
/// # Errors
/// Denied, naming the directory.
pub(crate) fn check(kept: Option<&Path>) -> Result<()> {
    let Some(kept) = kept else { return Ok(()) };
    let dirs = [kept.to_path_buf(), kept.join(DIR), kept.join(SAVED_DIR)];
    dirs.iter().try_for_each(|dir| state::check(dir))
}

fn files(kept: Option<PathBuf>) -> impl Iterator<Item = PathBuf> {
    let entries = kept.and_then(|dir| std::fs::read_dir(dir.join(DIR)).ok());
    let paths = entries.into_iter().flatten().flatten();
    paths
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
}

/// Writes a file that nobody else may write to, whatever the umask is.
fn write_closed(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text)
}

fn version(compiles: Option<&OfCompiles>) -> u32 {
    match compiles {
        None => VERSION,
        Some(_) => VERSION_OF_COMPILES,
    }
}

/// The message of versions that a job made.
pub(crate) fn message_of(job: &str) -> String {
    format!("job {job}")
}
