//! What to materialize, where and how.

use std::path::PathBuf;

use crate::format::RefSpec;
use crate::host::destination::Precious;

/// Files up to this size are copied by default, because tools edit such files in place.
pub const COPY_BELOW_BYTES: u64 = 16 << 10;

/// How a file gets from the pool into a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkMode {
    /// A hard link if the system makes one, otherwise a reflink, otherwise a copy.
    #[default]
    Auto,
    /// A hard link, which shares everything and is read-only.
    Hardlink,
    /// A copy that shares its blocks until one side writes (XFS, btrfs).
    Reflink,
    /// A copy.
    Copy,
}

/// A request to make a tree, or to fill the pool.
#[derive(Clone, Debug)]
pub struct MaterializeRequest {
    /// The ref, with an optional version and path.
    pub spec: RefSpec,
    /// Where to make the tree; none: only fill the pool.
    pub destination: Option<PathBuf>,
    /// How large files get into the tree.
    pub link_mode: LinkMode,
    /// Files up to this size become private, writable copies.
    pub copy_below_bytes: u64,
    /// Globs of what to make; if empty, everything.
    pub include: Vec<String>,
    /// Globs of what to leave out.
    pub exclude: Vec<String>,
    /// Remove what the tree does not have.
    pub exact: bool,
    /// Take over a destination that was not made here.
    pub force: bool,
    /// With `force`: the caller itself has begun the destination for this ref, and it is nobody's home.
    pub is_begun: bool,
    /// Replace symlinks by their targets.
    pub flatten: bool,
    /// The tree ends with this process, by [`Pool::remove_held`](crate::Pool::remove_held) or by a sweep after its
    /// death.
    pub ephemeral: bool,
    /// Also write symlinks that lead out of the destination.
    pub allow_outside_symlinks: bool,
    /// Let others read the tree as the umask allows, even if the version is private.
    pub readable: bool,
    /// Paths onto, into or around which no tree may be made.
    pub precious: Precious,
}

impl MaterializeRequest {
    /// Creates a request for a tree of `spec` at `destination`, with the default settings.
    pub fn new(spec: RefSpec, destination: impl Into<PathBuf>) -> Self {
        Self {
            destination: Some(destination.into()),
            ..Self::prefetch(spec)
        }
    }

    /// Creates a request that only fills the pool with the files of `spec`.
    pub fn prefetch(spec: RefSpec) -> Self {
        Self {
            spec,
            destination: None,
            link_mode: LinkMode::default(),
            copy_below_bytes: COPY_BELOW_BYTES,
            include: Vec::new(),
            exclude: Vec::new(),
            exact: false,
            force: false,
            is_begun: false,
            flatten: false,
            ephemeral: false,
            allow_outside_symlinks: false,
            readable: false,
            precious: Precious::default(),
        }
    }
}
