//! Directories whose save failed because the store could not be reached. They stay listed until they are saved.
//!
//! Each has a file in this program's state directory. The file names the directory and never holds any of its content,
//! which stays where it is.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use store::{Error, RefName, Result, Store};

/// The directory of these files, below the state directory.
const DIR: &str = "pending";

/// The version of these files. Files of other versions are left alone.
const VERSION: u32 = 1;

/// One failed save.
#[derive(Serialize, Deserialize)]
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
    /// Globs of the files that a save of that job leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    exclude: Vec<String>,
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
        let path = dir.canonicalize().ok()?;
        let bytes = path.as_os_str().as_bytes();
        let mut key = bytes.to_vec();
        key.push(0);
        key.extend_from_slice(store.as_bytes());
        // One directory may be saved to several refs.
        key.push(0);
        key.extend(target.iter().flat_map(|name| name.as_str().bytes()));
        let name = store::ChunkId::of(&key).to_string();
        Some(Self {
            pending: VERSION,
            directory: bytes.to_vec(),
            store: store.to_owned(),
            id: None,
            job: None,
            exclude: Vec::new(),
            target: target.map(ToString::to_string),
            file: kept?.join(DIR).join(format!("{name}.json")),
            path,
        })
    }

    /// All saves on the list.
    pub(crate) fn all(kept: Option<PathBuf>) -> Vec<Self> {
        let dir = kept.map(|dir| dir.join(DIR));
        let entries = dir.and_then(|dir| std::fs::read_dir(dir).ok());
        let entries = entries.into_iter().flatten().flatten();
        let mut all: Vec<Self> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "json"))
            .filter_map(|path| Self::read(&path))
            .collect();
        all.sort_by(|one, other| one.path.cmp(&other.path));
        all
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
        let target = self.target.as_deref().unwrap_or("REF");
        Err(Error::conflict(format!(
            "{dir}: is to be saved to the store {wanted}, and at {place} there is another one by now, {found}"
        ))
        .hint(format!(
            "bring the store back that was there; `store save {dir} {target} --base 0` saves it to the one that is there"
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
        let bytes = std::fs::read(file).ok()?;
        let mut found: Self = serde_json::from_slice(&bytes).ok()?;
        found.file = file.to_path_buf();
        found.path = std::ffi::OsString::from_vec(found.directory.clone()).into();
        (found.pending == VERSION).then_some(found)
    }

    /// Puts the save on the list.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write(&self) -> Result<()> {
        let failed = |source| Error::io("write", &self.file, source);
        let dir = self.file.parent().unwrap_or_else(|| Path::new("."));
        std::fs::create_dir_all(dir).map_err(failed)?;
        let text = serde_json::to_vec(self)
            .map_err(|source| Error::invalid("a pending save").because(source))?;
        let new = self.file.with_extension(std::process::id().to_string());
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &self.file))
            .map_err(failed)
    }

    /// Removes the save from the list.
    pub(crate) fn remove(&self) {
        drop(std::fs::remove_file(&self.file));
    }
}

/// The message of versions that a job made.
pub(crate) fn message_of(job: &str) -> String {
    format!("job {job}")
}
