//! get: a ref, or a path inside one, becomes a private, ordinary, writable copy.
//!
//! ```text
//! resolve -> guard -> trees, depth first -> directories, symlinks -> fetch chunks -> times -> rename
//! ```
//!
//! The copy is built in a private directory beside the destination, and renamed into place when it is complete, so it
//! appears whole or not at all. If the destination is a mount point or the working directory, no rename can replace it:
//! the copy is then built inside of it. Whatever an interrupted get left there is removed first.

mod beside;
mod copy;
mod file;
mod left;
mod moved;
mod note;
mod place;
mod room;

use std::path::{Path, PathBuf};

use crate::access;
use crate::error::{Error, Result};
use crate::format::{FORMAT_KEY, Keep, Node, RefName, RefSpec};
use crate::host::destination::{Guard, Precious, Site, There};
use crate::progress::Progress;
use crate::read::Reader;
use crate::read::fetch::fetch;
use crate::remedy::{Note, Remedy};
use crate::store::Store;
use crate::wanted::Wanted;

use beside::{Beside, Disowned};
use copy::Copy;
use left::Remains;
use room::Room;

/// How many of the counted links a note names.
const NAMED_MAX: usize = 5;

/// What to get, where to and how.
#[derive(Clone, Debug)]
pub struct GetRequest {
    /// The ref, with an optional version and path.
    pub spec: RefSpec,
    /// Where to make the copy: a path that does not exist, or an empty directory.
    pub destination: PathBuf,
    /// Globs of what to get; if empty, everything.
    pub include: Vec<String>,
    /// Globs of what to leave out.
    pub exclude: Vec<String>,
    /// Replace symlinks by their targets.
    pub flatten: bool,
    /// Give the copy the modes that the umask allows, even if the version is private.
    pub readable: bool,
    /// Which attributes kept beside the tree are applied to the copy.
    pub keep: Vec<Keep>,
    /// Paths onto, into or around which no copy may be made.
    pub precious: Precious,
}

impl GetRequest {
    /// Creates a request to copy all of `spec` with the default settings.
    pub fn new(spec: RefSpec, destination: impl Into<PathBuf>) -> Self {
        Self {
            spec,
            destination: destination.into(),
            include: Vec::new(),
            exclude: Vec::new(),
            flatten: false,
            readable: false,
            keep: Vec::new(),
            precious: Precious::default(),
        }
    }
}

/// What a get copied.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct GetReport {
    /// The ref.
    #[serde(rename = "ref")]
    pub name: RefName,
    /// The version that was read.
    pub version: u64,
    /// Regular files.
    pub files: u64,
    /// Directories, including the destination itself.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Symbolic links that dangle.
    pub dangling: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Notes for the user; the caller formats them.
    #[serde(skip)]
    pub notes: Vec<Note>,
}

/// Makes the requested copy.
///
/// # Errors
/// Conflict when the destination exists or is precious; not found and corrupt as for [`Reader`]. After an error,
/// nothing is left at the destination.
pub fn get(store: &Store, request: &GetRequest, progress: &dyn Progress) -> Result<GetReport> {
    let reader = Reader::new(store)?;
    let found = reader.resolve(&request.spec)?;
    let wanted = Wanted::new(&request.include, &request.exclude)?;
    wanted.check_leaves_something(&reader, &found.node, &request.spec)?;

    let format = store.remote().local_path(FORMAT_KEY);
    let mut site = Site::of(&request.destination)?;
    let remains = Remains::of(&site)?;
    if remains.is_some() {
        site.there = There::EmptyDirectory;
    }
    Guard::new(&request.precious)
        .store(format.as_deref().and_then(Path::parent))
        .with_working_directory(false)
        .check(&site)
        .map_err(|error| match error.remedy() {
            // No option of a copy would change it.
            Some(Remedy::OtherDestination) => {
                error.hint("name another destination, like a new directory")
            }
            _ => error,
        })?;
    if request.flatten && !request.keep.is_empty() {
        return Err(Error::invalid(
            "what symlinks lead to is given no modes and owners: ask for either",
        ));
    }
    let beside = Beside::new(&reader, &found, &request.keep, &request.spec)?;
    let disowned = Disowned::default();
    let mut copy = Copy::new(
        &reader, beside, progress, request, &found, wanted, &disowned,
    );
    let node = copy.top(&found.node)?;
    check_free(&site, matches!(node, Node::Tree { .. }))?;
    let room = Room::new(&site, remains)?;

    announce(&found.node, progress);
    let ground = room.ground()?;
    fetch(&reader, |requests| copy.run(node, &ground, requests))?;
    copy.finish_directories(&ground)?;
    let top = copy.open_top(&ground)?;
    let is_open = room.move_in(&site, copy.is_private())?;
    if is_open {
        copy.report.notes.push(Note::from(format!(
            "{}: its mode cannot be changed, so that others may see the names in it",
            site.given.display()
        )));
    }
    if let Some((top, own)) = top {
        let dressed = own.dress_directory(top, &disowned);
        dressed.map_err(|errno| Error::io("set the mode of", &site.given, errno.into()))?;
    }
    if let Ok(ground) = room::ground_of(&site) {
        copy.note_dangling(&ground);
    }
    copy.report
        .notes
        .extend(disowned.notes().into_iter().map(Note::from));
    access::leave(store, &request.spec.name, found.number);

    Ok(copy.report)
}

fn announce(node: &Node, progress: &dyn Progress) {
    match node {
        Node::File { content, .. } => progress.total(1, content.size),
        Node::Symlink { .. } => progress.total(1, 0),
        Node::Tree { totals, .. } => progress.total(totals.entries.saturating_add(1), totals.bytes),
    }
}

fn check_free(site: &Site, is_tree: bool) -> Result<()> {
    site.check_kind(is_tree)?;
    let shown = site.given.display();
    match site.there {
        There::Nothing => Ok(()),
        There::EmptyDirectory if is_tree => Ok(()),
        There::EmptyDirectory => Err(Error::conflict(format!(
            "{shown}: is a directory, and what is wanted is a file"
        ))
        .hint("name a path in it, or remove it first")),
        There::Directory => Err(Error::conflict(format!(
            "{shown}: already exists, and is not empty"
        ))
        .hint(format!(
            "name a destination that does not exist, like {}, or remove it first",
            site.given.join("NAME").display()
        ))),
        There::Other => Err(Error::conflict(format!("{shown}: already exists"))
            .hint("name a destination that does not exist, or remove it first")),
    }
}
