//! Where a tree may be made: never onto, into or around something precious.
//!
//! Stores, pools, this program's own directories, homes, the working directory and roots are recognized by their
//! inodes. Directories are opened one after another up to the root, so that no symlink and no spelling of a path hides
//! them. No option overrides this: what is refused here stays as it is.

mod site;
mod survey;

use std::path::{Path, PathBuf};

use self::site::{Id, ascend, id_of, is_bundle, open_dir, resolved};
pub(crate) use self::site::{Site, There};
pub use self::survey::Replaced;
pub(crate) use self::survey::{check_may_be_replaced, is_mounted, precious_in};
use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// Directories that the caller knows of and that no tree may replace.
#[derive(Clone, Debug, Default)]
pub struct Precious {
    /// Homes of people. Trees may be in them, but must not be or contain them.
    pub homes: Vec<PathBuf>,
    /// Directories of this program: its state, caches, configuration and embedded store.
    pub own: Vec<PathBuf>,
}

/// The directories that a destination is compared with.
#[derive(Default)]
pub(crate) struct Guard {
    known: Vec<Known>,
    /// Whether the working directory may be filled from inside.
    working_directory: Working,
}

/// When the working directory may be a destination.
#[derive(Default, PartialEq, Eq)]
enum Working {
    #[default]
    Never,
    /// If it is empty.
    Empty,
    /// If it is empty, or this program made its content.
    Made,
}

/// A precious directory, and the directories above it.
struct Known {
    what: String,
    path: PathBuf,
    /// The inodes of its chain: itself first, as far as it exists, the root last.
    chain: Vec<Id>,
    exists: bool,
    /// Whether nothing may be made in it either.
    is_closed: bool,
}

impl Guard {
    /// Guards what the caller knows of.
    pub(crate) fn new(precious: &Precious) -> Self {
        let mut guard = Self::default();
        for path in &precious.own {
            let what = format!("{}, which belongs to this program", path.display());
            guard.add(path, what, true);
        }
        for path in &precious.homes {
            guard.add(path, format!("the home {}", path.display()), false);
        }
        guard
    }

    /// Guards a store on this host.
    pub(crate) fn store(mut self, path: Option<&Path>) -> Self {
        if let Some(path) = path {
            self.add(path, format!("the store {}", path.display()), true);
        }
        self
    }

    /// Guards a pool.
    pub(crate) fn pool(mut self, path: &Path) -> Self {
        self.add(path, format!("the pool {}", path.display()), true);
        self
    }

    /// Allows to fill the working directory if it is empty, or, with `is_made`, if this program made its content.
    pub(crate) fn with_working_directory(mut self, is_made: bool) -> Self {
        self.working_directory = match is_made {
            true => Working::Made,
            false => Working::Empty,
        };
        self
    }

    fn add(&mut self, path: &Path, what: String, is_closed: bool) {
        let Ok((path, chain, exists)) = resolved(path) else {
            return;
        };
        self.known.push(Known {
            what,
            path,
            chain,
            exists,
            is_closed,
        });
    }

    /// Refuses a destination that is, holds or lies in something precious.
    pub(crate) fn check(&self, site: &Site) -> Result<()> {
        if site.path.parent().is_none() {
            return Err(refused(site, "is the root of the file system"));
        }
        if site.there == There::Other && is_bundle(&site.path) {
            return Err(refused(site, "is a store in one file"));
        }
        let found = open_dir(&site.path).ok();
        let own = found.as_ref().map(id_of).transpose()?;
        if let Some(dir) = found {
            self.check_above(site, ascend(dir)?, true)?;
        }
        self.check_above(site, ascend(site.open_above()?)?, false)?;
        self.check_working_directory(site, own)?;
        self.check_missing(site)?;
        for known in &self.known {
            let at = own.and_then(|own| known.chain.iter().position(|id| *id == own));
            match at {
                None => {}
                Some(0) if known.exists => {
                    return Err(refused(site, &format!("is {}", known.what)));
                }
                Some(_) if known.exists => {
                    return Err(refused(site, &format!("holds {}", known.what)));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Refuses a destination in a store, a pool or a directory of this program.
    fn check_above(&self, site: &Site, above: Vec<site::Above>, is_itself: bool) -> Result<()> {
        for (at, above) in above.iter().enumerate() {
            let verb = if is_itself && at == 0 {
                "is"
            } else {
                "lies in"
            };
            let is_it = |known: &&Known| known.exists && known.chain.first() == Some(&above.id);
            let known = self
                .known
                .iter()
                .filter(|known| known.is_closed)
                .find(is_it);
            if let Some(known) = known {
                return Err(refused(site, &format!("{verb} {}", known.what)));
            }
            if let Some(kind) = above.kind {
                return Err(refused(site, &format!("{verb} a {kind}")));
            }
        }
        Ok(())
    }

    /// Refuses a destination at or in a directory that is kept for this program, and does not exist yet.
    fn check_missing(&self, site: &Site) -> Result<()> {
        let mut missing = self.known.iter().filter(|known| !known.exists);
        match missing.find(|known| known.is_closed && site.path.starts_with(&known.path)) {
            Some(known) => Err(refused(site, &format!("is for {}", known.what))),
            None => Ok(()),
        }
    }

    fn check_working_directory(&self, site: &Site, own: Option<Id>) -> Result<()> {
        let (Some(own), Ok(working)) = (own, open_dir(Path::new("."))) else {
            return Ok(());
        };
        let above = ascend(working)?;
        match above.iter().position(|above| above.id == own) {
            None => Ok(()),
            Some(0) if self.working_directory == Working::Made => Ok(()),
            Some(0)
                if self.working_directory == Working::Empty
                    && site.there == There::EmptyDirectory =>
            {
                Ok(())
            }
            Some(0) if self.working_directory == Working::Empty => Err(refused(
                site,
                "is the directory that you are in, and is not empty",
            )),
            Some(0) => Err(refused(site, "is the directory that you are in")),
            Some(_) => Err(refused(site, "holds the directory that you are in")),
        }
    }
}

/// Checks that a file at `path` would be in no store, no pool and no directory of this program, and is no store itself,
/// as far as the directories above can be looked at.
///
/// # Errors
/// Conflict, if it would; also if a symlink of another user is on the way.
pub fn check_outside(path: &Path, precious: &Precious) -> Result<()> {
    let site = Site::of(path)?;
    let guard = Guard::new(precious);
    let checked = match site.open_above().and_then(ascend) {
        _ if site.there == There::Other && is_bundle(&site.path) => {
            Err(refused(&site, "is a store in one file"))
        }
        Ok(above) => guard
            .check_missing(&site)
            .and_then(|()| guard.check_above(&site, above, false)),
        Err(_) => guard.check_missing(&site),
    };
    checked.map_err(|error| error.hint("name another place"))
}

fn refused(site: &Site, why: &str) -> Error {
    Error::conflict(format!("{}: {why}", site.given.display())).hint(Remedy::OtherDestination)
}
