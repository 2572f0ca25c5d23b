//! A content-addressed artifact store for ML clusters: the engine.
//!
//! Never prints, never reads the environment, never decides: that is the command's part.

pub mod chunk;
pub mod codec;
pub mod error;
pub mod format;
mod id;
pub mod log;
pub mod remote;
pub mod stat_cache;
pub mod walk;

pub use error::{Error, Kind, Result};
pub use id::{ChunkId, CommitId, PackId, SegmentId, StoreId};
