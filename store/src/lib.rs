//! A content-addressed artifact store for ML clusters: the engine.
//!
//! Never prints, never reads the environment, never decides: that is the command's part.
//!
//! The way of the data, and of a newcomer through the files:
//!
//! - [`mod@format`]: bytes to structs and back. [`chunk`], [`codec`], [`tree`]: cuts, frames, contents. All pure.
//! - [`remote`]: bytes by key. [`host`]: this host's directories and its pool. `profile`: what is known of certain trees.
//! - [`log`], [`index`], [`refs`], [`access`]: the objects of a store; [`Store`] holds them together.
//! - [`pack`]: everything that writes or reads frames. [`read`]: chunks and whole files come back, verified.
//! - `graph`: what versions reach. [`policy`]: what the store keeps, and whether a namespace has room.
//! - `session`: how packs, segments and changes are committed safely beside collectors.
//! - [`materialize()`]: trees of links to the pool. `wanted`: what of a tree globs leave.
//! - [`put()`], [`get()`], [`replicate()`], [`cat()`], [`inspect`], [`check`]: the pipelines.

pub mod access;
pub mod cat;
pub mod check;
pub mod chunk;
pub mod codec;
pub mod error;
pub mod format;
mod fs;
pub mod get;
pub mod graph;
pub mod host;
mod id;
pub mod index;
pub mod inspect;
pub mod log;
pub mod materialize;
pub mod pack;
pub mod policy;
mod profile;
pub mod progress;
pub mod put;
pub mod read;
pub mod refs;
pub mod remote;
pub mod replicate;
mod session;
mod size;
pub mod store;
pub mod tree;
mod wanted;

pub use cat::cat;
pub use error::{Error, Kind, Result};
pub use get::{GetReport, GetRequest, get, get_as};
pub use host::destination::{Precious, Replaced};
pub use host::pool::{Pool, PoolLimits};
pub use id::{ChunkId, CommitId, PackId, PassId, SegmentId, StoreId, VersionId};
pub use materialize::{
    LinkMode, MaterializeReport, MaterializeRequest, check_destination, materialize,
};
pub use pack::Portions;
pub use profile::{Class, LinkOptions, ProfileChoice, ProfileOptions};
pub use progress::{Progress, Unwatched};
pub use put::{PutReport, PutRequest, put};
pub use replicate::{ReplicateReport, ReplicateRequest, replicate};
pub use size::Size;
pub use store::{Host, Store, View, Warning};
