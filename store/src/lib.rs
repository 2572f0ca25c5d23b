//! A content-addressed artifact store for ML clusters: the engine.
//!
//! Never prints, never reads the environment, never decides: that is the command's part.
//!
//! The way of the data, and of a newcomer through the files:
//!
//! - [`mod@format`]: bytes to structs and back; `store/FORMATS.md` is its text.
//! - [`chunk`], [`codec`], [`tree`]: where files are cut, how frames are encoded, how contents grow. All pure.
//! - [`remote`]: bytes by key. [`walk`]: directories of this host. `stat_cache`: what was unchanged.
//! - [`log`], [`pack`], [`index`], [`refs`]: the objects of a store; [`Store`] holds them together. `publish`: how a commit is made safe.
//! - `reach`: which chunks versions need; [`policy`]: what the store keeps, and whether a namespace has room; [`uses`]: on which days versions were read.
//! - `profile`: what a put knows of certain trees, like Hugging Face caches.
//! - [`pool`]: whole files of this host; [`materialize()`] makes trees of links to them.
//! - `destination`: what no tree is made onto; `wanted`: what of a tree globs leave.
//! - [`put()`], [`get()`], [`replicate()`]: the pipelines; [`cat()`] reads one file, [`inspect`] tells what is there, [`check`] whether it is sound; [`read`] and [`fetch`] bring chunks back, verified.

pub mod cat;
pub mod check;
pub mod chunk;
pub mod codec;
mod destination;
pub mod error;
pub mod fetch;
mod files;
pub mod format;
pub mod get;
mod id;
pub mod index;
pub mod inspect;
pub mod log;
mod map;
pub mod materialize;
pub mod pack;
pub mod policy;
pub mod pool;
mod profile;
pub mod progress;
mod publish;
pub mod put;
mod reach;
pub mod read;
pub mod refs;
pub mod remote;
pub mod replicate;
mod size;
pub mod stat_cache;
pub mod store;
pub mod tree;
pub mod uses;
pub mod walk;
mod wanted;

pub use cat::cat;
pub use destination::{Precious, Replaced};
pub use error::{Error, Kind, Result};
pub use get::{GetReport, GetRequest, get, get_as};
pub use id::{ChunkId, CommitId, PackId, PassId, SegmentId, StoreId, VersionId};
pub use materialize::{
    LinkMode, MaterializeReport, MaterializeRequest, check_destination, materialize,
};
pub use pack::Portions;
pub use pool::{Pool, PoolLimits};
pub use profile::{Class, LinkOptions, ProfileChoice, ProfileOptions};
pub use progress::{Progress, Unwatched};
pub use put::{PutReport, PutRequest, put};
pub use replicate::{ReplicateReport, ReplicateRequest, replicate};
pub use size::Size;
pub use store::{Host, Store, View, Warning};
