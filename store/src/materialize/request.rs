//! What to materialize, where and how.

use std::path::PathBuf;

use crate::format::RefSpec;
use crate::host::destination::Precious;

/// Files up to this size are copied by default, because tools edit such files in place.
pub const COPY_BELOW_BYTES: u64 = 16 << 10;

/// How a file gets from the pool into a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkMode {
    /// A hard link if the system makes one, else a reflink, else a copy.
    #[default]
    Auto,
    /// A hard link: shares everything, and is read-only.
    Hardlink,
    /// A copy that shares its blocks until one side writes (XFS, btrfs).
    Reflink,
    /// A copy.
    Copy,
}

/// What to materialize, where and how.
#[derive(Clone, Debug)]
pub struct MaterializeRequest {
    /// The ref, a version of it, a path inside it.
    pub spec: RefSpec,
    /// Where; none: fill the pool only.
    pub destination: Option<PathBuf>,
    /// How large files get into the tree.
    pub link_mode: LinkMode,
    /// Files up to this size become private, writable copies.
    pub copy_below_bytes: u64,
    /// Globs of what to make; none: everything.
    pub include: Vec<String>,
    /// Globs of what to leave out.
    pub exclude: Vec<String>,
    /// Remove what the tree does not have.
    pub exact: bool,
    /// Take over a destination that was not made here.
    pub force: bool,
    /// With `force`: the destination was begun for this ref, by whoever asks, and is nobody's home.
    pub is_begun: bool,
    /// Replace symlinks by what they lead to.
    pub flatten: bool,
    /// The tree ends with this process: [`Pool::remove_held`](crate::Pool::remove_held), or a sweep after its death.
    pub ephemeral: bool,
    /// Also write symlinks that lead out of the destination.
    pub allow_outside_symlinks: bool,
    /// Let others read it as the umask says, even if the version is private.
    pub readable: bool,
    /// What no tree may be made onto, into or around.
    pub precious: Precious,
}

impl MaterializeRequest {
    /// A tree of `spec` at `destination`, with the usual settings.
    pub fn new(spec: RefSpec, destination: impl Into<PathBuf>) -> Self {
        Self {
            destination: Some(destination.into()),
            ..Self::prefetch(spec)
        }
    }

    /// Only fills the pool with what `spec` names.
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
