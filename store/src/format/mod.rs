//! Formats: converts between bytes and structs, without I/O, async, clock or globals.
//!
//! `store/FORMATS.md` is normative. Decoders treat their input as hostile: they check lengths before they allocate,
//! every limit has a name, and nothing panics.
#![doc = ""]
#![doc = include_str!("../../FORMATS.md")]

mod at;
mod bases;
mod bundle;
mod checkpoint;
mod claim;
mod config;
mod content;
mod cursor;
mod entry;
mod entry_text;
mod extra;
mod features;
mod fold;
mod kept;
mod keys;
mod kind;
mod list;
mod name;
mod origin;
mod pack;
mod policy;
mod provenance;
mod ranks;
mod ref_block;
mod ref_index;
mod ref_row;
mod ref_rows;
mod ref_table;
mod ref_writer;
mod refs;
mod sealed;
mod segment;
mod segment_bases;
mod segment_parts;
mod segment_rows;
mod segment_sink;
mod side;
mod state;
mod times;
mod trail;
mod tree;
mod version;
mod who;

pub use at::*;
pub use bases::{FRAME_BASE_LEN, FRAME_BASES_MAX, FrameBase};
pub use bundle::*;
pub use checkpoint::{CHECKPOINT_LAYERS_MAX, Checkpoint, Layer};
pub use claim::*;
pub use config::*;
pub use content::*;
pub use entry::*;
pub use entry_text::EntryText;
pub use extra::Extra;
pub use features::{DELTA_FRAMES, FeatureKind, Features, SINGLE_WRITER};
pub use kept::*;
pub use keys::*;
pub use kind::*;
pub use list::*;
pub use name::*;
pub use origin::Origin;
pub use pack::*;
pub use policy::*;
pub use provenance::Provenance;
pub use ranks::{Ranked, Was};
pub use ref_index::*;
pub use ref_row::RefHead;
pub use ref_table::{RefTable, Source};
pub use refs::{RefSums, Refs};
pub use sealed::*;
pub use segment::*;
pub(crate) use segment_rows::share;
pub use segment_rows::{
    SEGMENT_CHUNKS_MAX, SEGMENT_ENTRY_LEN, SEGMENT_FRAME_LEN, SEGMENT_HEADER_LEN, SEGMENT_MAGIC,
    SEGMENT_PACK_LEN, SEGMENT_VERSION, SegmentEntry, SegmentFrame, SegmentPack,
};
pub use segment_sink::{SEGMENT_TRAILER_LEN, SEGMENT_TRAILER_MAGIC};
pub use side::*;
pub use state::*;
pub use times::*;
pub use trail::Trail;
pub use tree::*;
pub use version::*;
pub use who::Who;

#[cfg(test)]
mod properties;
