//! Profiles: what a put leaves out, replaces and checks, because it knows what kind of tree it is.
//!
//! A profile is a layer between the walk and the pipeline. It excludes things from the walk by name alone ([`Filter`]).
//! What the walk finds goes through [`Profile::admit`], which may replace a file by another, demand something of its
//! bytes ([`Check`]), or fail the put.
//!
//! Secrets are not stored unless they are allowed: if a name or the text of a file says that it holds credentials, the
//! put fails and lists all of them. Files in which a cache is known to keep credentials are left out and named.

mod check;
mod detect;
mod excluded;
mod follow;
mod hf;
pub(crate) mod links;
mod repo;
mod rules;
mod secrets;

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

pub(crate) use self::check::{Check, Inspection};
pub(crate) use self::follow::Follow;
pub use self::follow::LinkOptions;
use self::hf::Hf;
pub(crate) use self::secrets::Secrets;
pub use self::secrets::{credentials_at, credentials_in};
use crate::error::{Error, Result};
use crate::host::walk::{Dir, Filter, Globs, Item, Stat};
use crate::remedy::Note;

/// The version of the rules that recognize credentials. Files that passed an older version are checked again.
const SECRET_RULES: u32 = 1;
/// The kind of secret in a file that the environment names.
const NAMED: &str = "credentials, as the environment says";

/// Which profile to use, and how much to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileOptions {
    /// Which profile to use.
    pub choice: ProfileChoice,
    /// Classes of files that are taken only on request.
    pub with: Vec<Class>,
    /// Take files that hold credentials. Those that the profile knows by name are left out nevertheless.
    pub allow_secrets: bool,
    /// Globs of files that are taken although they seem to hold credentials.
    pub allow_secret: Vec<String>,
    /// Leave out files that hold credentials, and list them, instead of failing.
    pub leave_out_secrets: bool,
    /// Check the tree: refs have snapshots, links do not dangle.
    pub check: bool,
    /// Check that files match the hash in their name.
    pub check_hashes: bool,
    /// Files that hold credentials according to the environment.
    pub secret_paths: Vec<PathBuf>,
}

/// The choice of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileChoice {
    /// The one that the tree looks like.
    #[default]
    Auto,
    /// A Hugging Face cache.
    Hf,
    /// None: everything is taken as it is.
    None,
}

/// Parts of an HF_HOME that are taken only on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Configuration of accelerate.
    Accelerate,
    /// Files that libraries keep beside repositories.
    Assets,
    /// Archives that datasets were made from.
    Downloads,
    /// Executable code of repositories.
    Modules,
    /// Live databases of experiments.
    Trackio,
}

/// The profile of one put.
pub(crate) enum Profile {
    /// Everything is taken as it is.
    None,
    /// Everything is taken as it is, but credentials are refused.
    Guard(Guard),
    /// A Hugging Face cache.
    Hf(Box<Hf>),
}

/// What a profile turns an item into.
pub(crate) enum Admitted {
    /// A file; its name in the tree may differ from that on the disk.
    File(AdmittedFile),
    /// The item as it is, or a link with another target.
    Other(Item),
    /// Nothing: the item is left out.
    Out,
}

/// A file to be read.
pub(crate) struct AdmittedFile {
    /// The name of the file in the tree.
    pub(crate) name: Vec<u8>,
    /// The directory of the file.
    pub(crate) dir: Arc<Dir>,
    /// The name of the file in that directory.
    pub(crate) file: Vec<u8>,
    pub(crate) stat: Stat,
    /// What must hold for its bytes.
    pub(crate) check: Option<Check>,
    /// Whether its mode tells if the file is executable.
    pub(crate) may_execute: bool,
}

/// Refuses files that hold credentials.
pub(crate) struct Guard {
    paths: SecretPaths,
    secrets: Arc<Secrets>,
    /// The rules for credentials, as part of a name. They hold a NUL, which no path does.
    rules: String,
}

/// Files that hold credentials according to the environment, relative to the root.
#[derive(Clone, Debug, Default)]
struct SecretPaths(Vec<Vec<u8>>);

impl Default for ProfileOptions {
    fn default() -> Self {
        Self {
            choice: ProfileChoice::Auto,
            with: Vec::new(),
            allow_secrets: false,
            allow_secret: Vec::new(),
            leave_out_secrets: false,
            check: true,
            check_hashes: true,
            secret_paths: Vec::new(),
        }
    }
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 5] = [
        Self::Accelerate,
        Self::Assets,
        Self::Downloads,
        Self::Modules,
        Self::Trackio,
    ];

    /// The class as people write it, which is also the name of its directory.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accelerate => "accelerate",
            Self::Assets => "assets",
            Self::Downloads => "downloads",
            Self::Modules => "modules",
            Self::Trackio => "trackio",
        }
    }
}

impl Profile {
    /// The profile for a put of the canonical path `root`, from which `excluded` is left out.
    ///
    /// # Errors
    /// Invalid input, naming an invalid glob.
    pub(crate) fn new(options: &ProfileOptions, root: &Path, excluded: &Globs) -> Result<Self> {
        let paths = SecretPaths::new(&options.secret_paths, root);
        let kind = detect::detect(root);
        let secrets = || Secrets::new(root, &options.allow_secret, options.leave_out_secrets);
        Ok(match (options.choice, kind) {
            (ProfileChoice::None, _) => Self::None,
            (ProfileChoice::Auto, None) if options.allow_secrets => Self::None,
            (ProfileChoice::Auto, None) => Self::Guard(Guard {
                paths,
                secrets: secrets()?,
                rules: format!("\0secrets {SECRET_RULES} {:?}", options.allow_secret),
            }),
            (ProfileChoice::Auto, Some(_)) | (ProfileChoice::Hf, _) => {
                let secrets = (!options.allow_secrets).then(secrets).transpose()?;
                let excluded = excluded.clone();
                Self::Hf(Box::new(Hf::new(
                    options, root, kind, paths, secrets, excluded,
                )))
            }
        })
    }

    /// Whether the last admitted file has the mode that a tool gives to every file, which says nothing about who may
    /// read it.
    pub(crate) fn has_modes_of_its_tool(&self) -> bool {
        matches!(self, Self::Hf(hf) if hf.is_in_repo())
    }

    /// The credentials that were found. Ask after all files were read.
    pub(crate) fn secrets(&self) -> Option<Arc<Secrets>> {
        match self {
            Self::None => None,
            Self::Guard(guard) => Some(Arc::clone(&guard.secrets)),
            Self::Hf(hf) => hf.secrets(),
        }
    }

    /// The filter that excludes things from the walk.
    pub(crate) fn filter(&self) -> Option<Arc<dyn Filter>> {
        match self {
            Self::None | Self::Guard(_) => None,
            Self::Hf(hf) => Some(hf.filter()),
        }
    }

    /// The name of `root` in the cache of unchanged files. It includes the rules, so that files which were accepted
    /// under other rules are read again.
    pub(crate) fn cache_root(&self, root: &Path) -> PathBuf {
        let rules = match self {
            Self::None => return root.to_path_buf(),
            Self::Guard(guard) => guard.rules.clone(),
            Self::Hf(hf) => hf.rules(),
        };
        let mut key = root.as_os_str().as_bytes().to_vec();
        key.extend_from_slice(rules.as_bytes());
        PathBuf::from(OsString::from_vec(key))
    }

    /// Judges the next item of the walk, at `path` relative to the root.
    ///
    /// # Errors
    /// When the profile refuses the item; the error names it.
    pub(crate) fn admit(&mut self, path: &[u8], item: Item) -> Result<Admitted> {
        match self {
            Self::None => Ok(item.into()),
            Self::Guard(guard) => guard.admit(path, item),
            Self::Hf(hf) => hf.admit(path, item),
        }
    }

    /// Whether the profile itself decides about the symlink at `path`; it does so for `blobs/` of a cache.
    pub(crate) fn resolves(&self, path: &[u8]) -> bool {
        let mut names = path.rsplit(|byte| *byte == b'/').skip(1);
        matches!(self, Self::Hf(_)) && names.next() == Some(b"blobs")
    }

    /// The filter for another walk over the same tree, whose findings are not told.
    pub(crate) fn filter_untold(&self) -> Option<Arc<dyn Filter>> {
        match self {
            Self::None | Self::Guard(_) => None,
            Self::Hf(hf) => Some(hf.filter_untold()),
        }
    }

    /// How many of the paths that its filter left out hold nothing that anybody would miss.
    pub(crate) fn harmless(&self) -> u64 {
        match self {
            Self::None | Self::Guard(_) => 0,
            Self::Hf(hf) => hf.harmless(),
        }
    }

    /// The notes at the end of the walk.
    pub(crate) fn notes(&self) -> Vec<Note> {
        match self {
            Self::None | Self::Guard(_) => Vec::new(),
            Self::Hf(hf) => hf.notes(),
        }
    }
}

impl From<Item> for Admitted {
    fn from(item: Item) -> Self {
        match item {
            Item::File { dir, name, stat } => Self::File(AdmittedFile {
                file: name.clone(),
                name,
                dir,
                stat,
                check: None,
                may_execute: true,
            }),
            other => Self::Other(other),
        }
    }
}

impl Guard {
    fn admit(&self, path: &[u8], item: Item) -> Result<Admitted> {
        let (stat, is_dir) = match &item {
            Item::Enter { stat, .. } => (stat, true),
            Item::File { stat, .. } => (stat, false),
            _ => return Ok(item.into()),
        };
        if self.paths.contains(path) {
            self.secrets.add(path, NAMED)?;
        }
        self.secrets.look(path, stat, is_dir)?;
        let mut admitted = Admitted::from(item);
        if let Admitted::File(file) = &mut admitted {
            file.check = Some(Check {
                search: Some(self.secrets.search(path)),
                ..Check::default()
            });
        }
        Ok(admitted)
    }
}

impl SecretPaths {
    /// Takes the given paths, and the files that they lead to.
    fn new(paths: &[PathBuf], root: &Path) -> Self {
        let given = paths.iter().filter_map(|path| {
            let parent = path.parent()?.canonicalize().ok()?;
            Some(parent.join(path.file_name()?))
        });
        let real = paths.iter().filter_map(|path| path.canonicalize().ok());
        let inside = |path: PathBuf| {
            let inside = path.strip_prefix(root).ok()?;
            Some(inside.as_os_str().as_bytes().to_vec())
        };
        Self(given.chain(real).filter_map(inside).collect())
    }

    fn contains(&self, path: &[u8]) -> bool {
        self.0.iter().any(|secret| secret == path)
    }
}

impl FromStr for Class {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|class| class.as_str() == text);
        known.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|class| class.as_str()).collect();
            Error::invalid(format!("{text:?}: expected one of {}", names.join(", ")))
        })
    }
}

impl FromStr for ProfileChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "hf" => Ok(Self::Hf),
            "none" => Ok(Self::None),
            _ => Err(Error::invalid(format!(
                "profile {text:?}: expected auto, hf or none"
            ))),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}
