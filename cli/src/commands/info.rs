//! `store info`: what a store is and how much is in it.

use std::fmt;

use serde::Serialize;
use store::{ChunkerParams, Features, RefSums, State};
use store::{Result, Store, StoreId};

use crate::context::Context;
use crate::ui::human;

/// Show a store's identity and statistics
///
/// All of it comes from the log; nothing is read but that.
#[derive(clap::Args)]
pub(crate) struct Args {}

#[derive(Serialize)]
struct Info {
    url: String,
    id: StoreId,
    format: u32,
    chunker: ChunkerParams,
    features: Features,
    log_entry: u64,
    namespaces: usize,
    refs: u64,
    versions: u64,
    /// Versions that come out for one person alone.
    #[serde(skip_serializing_if = "is_zero")]
    private_versions: u64,
    /// Bytes of all versions as if each were stored whole.
    logical_bytes: u64,
    segments: usize,
    chunks: u64,
    packs: u64,
    /// Bytes of all distinct chunks, before encoding.
    distinct_bytes: u64,
    /// Bytes of packs and segments.
    stored_bytes: u64,
    condemned_packs: usize,
}

pub(crate) fn run(_args: &Args, context: &Context) -> Result<()> {
    let store = context.open()?;
    let state = store.readable_state()?;
    context.out.answer(&info(&store, &state))
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn info(store: &Store, state: &State) -> Info {
    let format = store.format();
    let sums = state.refs.sums();
    let all = sums
        .values()
        .fold(RefSums::default(), |all, one| all.and(one));
    let segments = || state.segments.values();
    Info {
        url: store.remote().url(),
        id: format.id,
        format: format.version,
        chunker: format.chunker.clone(),
        features: format.features.clone(),
        log_entry: state.number,
        namespaces: sums.len(),
        refs: all.refs,
        versions: all.versions,
        private_versions: all.private_versions,
        logical_bytes: all.version_bytes,
        segments: state.segments.len(),
        chunks: segments().map(|segment| segment.chunks).sum(),
        packs: segments().map(|segment| u64::from(segment.packs)).sum(),
        distinct_bytes: segments().map(|segment| segment.raw_bytes).sum(),
        stored_bytes: segments()
            .map(|segment| segment.pack_bytes + segment.bytes)
            .sum(),
        condemned_packs: state.condemned.len(),
    }
}

impl fmt::Display for Info {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chunker = &self.chunker;
        writeln!(out, "store        {} at {}", self.id, self.url)?;
        writeln!(
            out,
            "format       {}, {} {}/{}/{} KiB",
            self.format,
            chunker.algorithm,
            chunker.min >> 10,
            chunker.avg >> 10,
            chunker.max >> 10
        )?;
        if self.features.is_single_writer() {
            writeln!(out, "writers      one at a time: the endpoint overwrites")?;
        }
        writeln!(
            out,
            "log          at entry {}",
            human::count(self.log_entry)
        )?;
        writeln!(
            out,
            "refs         {} of {} in {}",
            human::counted(self.versions, "version"),
            human::counted(self.refs, "ref"),
            human::counted(self.namespaces as u64, "namespace")
        )?;
        if self.private_versions > 0 {
            let count = human::counted(self.private_versions, "version");
            writeln!(out, "private      {count}")?;
        }
        writeln!(
            out,
            "objects      {} in {} and {}; {} condemned",
            human::counted(self.chunks, "chunk"),
            human::counted(self.packs, "pack"),
            human::counted(self.segments as u64, "segment"),
            human::counted(self.condemned_packs as u64, "pack")
        )?;
        writeln!(out, "logical      {}", human::bytes(self.logical_bytes))?;
        writeln!(out, "distinct     {}", human::bytes(self.distinct_bytes))?;
        write!(out, "stored       {}", human::bytes(self.stored_bytes))?;
        if self.logical_bytes > 0 {
            let percent = human::percent(self.stored_bytes, self.logical_bytes);
            write!(out, ", {percent} of the logical bytes")?;
        }
        Ok(())
    }
}
