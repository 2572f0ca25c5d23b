//! The engine of a content-addressed artifact store for ML clusters.
//!
//! The engine never prints, never reads the environment and never decides what to do: the command does that. A program
//! starts with [`Store`]. [`put()`], [`edit()`], [`get()`], [`materialize()`], [`replicate()`] and [`cat()`] move
//! bytes. Eight modules are public, because their functions need the module's name, as in `check::verify`: [`inspect`],
//! [`check`], [`refs`], [`policy`], [`claims`], [`remote`], [`replicate`](mod@replicate) and
//! [`materialize`](mod@materialize). The crate `gc` reclaims space.
//!
//! A newcomer reads the modules in this order; `store/DESIGN.md` gives the reasons:
//! - `format`, `chunk`, `codec`, `tree`: the encodings, without I/O.
//! - `remote`: bytes by key. `host`: this host's directories, and its pool of whole files.
//! - `log`, `index`, `refs`, `access`: the objects of a store.
//! - `pack` writes and reads frames; `read` reads chunks and files, and verifies them.
//! - `graph`: what versions reach. `policy`: what a store keeps. `session` commits safely beside collectors.
//! - The pipelines come last, and never use each other.
#![doc = "\n```\n"]
#![doc = include_str!("../examples/put_get.rs")]
#![doc = "```"]
// Without the feature `internals`, these modules are private, and the code that only crate `gc` uses is dead.
#![cfg_attr(
    not(feature = "internals"),
    allow(dead_code, unreachable_pub, unused_imports, reason = "for crate gc")
)]

#[cfg(feature = "internals")]
pub mod access;
#[cfg(not(feature = "internals"))]
mod access;
#[cfg(feature = "internals")]
pub mod chunk;
#[cfg(not(feature = "internals"))]
mod chunk;
#[cfg(feature = "internals")]
pub mod codec;
#[cfg(not(feature = "internals"))]
mod codec;
#[cfg(feature = "internals")]
pub mod format;
#[cfg(not(feature = "internals"))]
mod format;
#[cfg(feature = "internals")]
pub mod graph;
#[cfg(not(feature = "internals"))]
mod graph;
#[cfg(feature = "internals")]
pub mod host;
#[cfg(not(feature = "internals"))]
mod host;
#[cfg(feature = "internals")]
pub mod index;
#[cfg(not(feature = "internals"))]
mod index;
#[cfg(feature = "internals")]
pub mod log;
#[cfg(not(feature = "internals"))]
mod log;
#[cfg(feature = "internals")]
pub mod pack;
#[cfg(not(feature = "internals"))]
mod pack;
#[cfg(feature = "internals")]
pub mod read;
#[cfg(not(feature = "internals"))]
mod read;
#[cfg(feature = "internals")]
pub mod store;
#[cfg(not(feature = "internals"))]
mod store;
#[cfg(feature = "internals")]
pub mod tree;
#[cfg(not(feature = "internals"))]
mod tree;

mod cat;
pub mod check;
pub mod claims;
mod error;
mod fs;
mod get;
mod id;
pub mod inspect;
mod lists;
pub mod materialize;
mod merge;
pub mod policy;
mod profile;
mod progress;
mod put;
mod rates;
pub mod refs;
mod remedy;
pub mod remote;
pub mod replicate;
mod retry;
mod session;
mod shown;
mod size;
mod sound;
mod throttle;
mod trim;
mod wanted;

pub use access::{Uses, leave as leave_use};
pub use cat::cat;
pub use error::{End, Error, ErrorKind, Result};
pub use format::{
    ChunkerParams, Content, Ended, Extra, FeatureKind, Features, Format, Id, Keep, Namespace, Node,
    Origin, Pattern, Policy, RefName, RefSpec, RefState, RefSums, Root, Rules, Scope, State,
    Target, Time, TreeEntry, Version, Who, is_top_name,
};
pub use fs::{free_bytes, open_regular, open_regular_with, read_regular, write_note};
pub use get::{GetReport, GetRequest, get};
pub use host::destination::{Precious, Replaced, check_outside};
pub use host::pool::{
    Damage, EvictReport, MadeTree, Pool, PoolLimits, PoolUsage, PoolVerifyReport, RemoveReport,
    Steady, holds_note, note_now,
};
pub use host::steps::{NotYet, Step, StepAge, StepFiles, StepRule, Steps, StepsSeen, Unfinished};
pub use host::trust::{canonical, make_directories};
pub use host::walk::{Globs, WalkOptions};
pub use id::{
    ChunkId, ClaimId, CommitId, EntryId, KeyId, OwnerId, PackId, PassId, SegmentId, StoreId,
    VersionId,
};
pub use materialize::{
    LinkMode, MaterializeReport, MaterializeRequest, check_destination, materialize,
    materialize_from,
};
pub use merge::{Case, Clash, Counts};
pub use pack::Portions;
pub use profile::{
    Class, LinkOptions, ProfileChoice, ProfileOptions, credentials_at, credentials_in,
};
pub use progress::{Progress, Unwatched};
pub use put::{
    Ancestor, Arriving, DeltaBase, Edit, EditReport, EditRequest, Entries, Onto, PutReport,
    PutRequest, SaveReport, SourceCheck, check_saves, edit, put, put_after, saved_to,
};
pub use rates::{Bound, Rates, Sample, SampleRates, rates};
pub use read::{Reader, TimesReader};
pub use remedy::{Note, Remedy};
pub use replicate::{ReplicateReport, ReplicateRequest, check_selected, private_of, replicate};
pub use shown::{ShownPath, hex, is_unseen, path_as_text, shown};
pub use size::Size;
pub use store::{Host, Store, View, Warning};
pub use throttle::limited;
pub use trim::{Frees, Removed, TrimFilter, TrimReport, TrimRequest, trim};
