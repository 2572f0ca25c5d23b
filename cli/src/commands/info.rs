//! `store info`: describes a store and how much it holds.

use std::fmt;

use serde::Serialize;
use store::inspect::Deltas;
use store::{Bound, ChunkerParams, FeatureKind, Features, Rates, RefSums, Sample, State};
use store::{Reader, Result, Store, StoreId};

use crate::context::Context;
use crate::ui::human;

/// Show a store's identity and statistics
///
/// Everything comes from the log. If frames are stored as deltas, the segments are read as well; nothing else is.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure for some seconds how fast this host and the store's disk are, and what limits the speed of a put and a
    /// get
    #[arg(long)]
    bench: bool,
}

#[derive(Serialize)]
struct Info {
    url: String,
    id: StoreId,
    format: u32,
    chunker: ChunkerParams,
    /// Features from the object `format`, and those that were learned later.
    features: Features,
    log_entry: u64,
    namespaces: usize,
    refs: u64,
    versions: u64,
    /// Versions whose files only the user who gets them will be able to read.
    #[serde(skip_serializing_if = "is_zero")]
    private_versions: u64,
    /// Bytes of all versions, as if each were stored separately.
    logical_bytes: u64,
    segments: usize,
    chunks: u64,
    packs: u64,
    /// Bytes of all distinct chunks, before encoding.
    distinct_bytes: u64,
    /// Bytes of packs and segments.
    stored_bytes: u64,
    condemned_packs: usize,
    /// Chunks that are stored as deltas, if there are any.
    #[serde(skip_serializing_if = "Deltas::is_none")]
    deltas: Deltas,
    /// The measured speed of the host, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    rates: Option<Rates>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let store = context.open()?;
    let state = store.readable_state()?;
    let mut info = info(&store, &state);
    if state.features.has_delta_frames() {
        info.deltas = Deltas::of(&Reader::new(&store)?.view().index)?;
    }
    if args.bench {
        info.rates = Some(store::rates(&store)?);
    }
    context.out.answer(&info)
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
        features: format.features.and(&state.features),
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
        deltas: Deltas::default(),
        rates: None,
    }
}

impl fmt::Display for Info {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chunker = &self.chunker;
        let url = store::shown(self.url.as_bytes());
        writeln!(out, "store        {} at {url}", self.id)?;
        writeln!(
            out,
            "format       {}, {} {}/{}/{} KiB",
            self.format,
            chunker.algorithm,
            chunker.min >> 10,
            chunker.avg >> 10,
            chunker.max >> 10
        )?;
        if !self.features.is_empty() {
            let shown = self
                .features
                .by_kind()
                .into_iter()
                .flat_map(|(kind, names)| {
                    let kind = match kind {
                        FeatureKind::Compatible => "compatible",
                        FeatureKind::ReadOnly => "read-only",
                        FeatureKind::Incompatible => "incompatible",
                    };
                    names.iter().map(move |name| format!("{name} ({kind})"))
                });
            let shown: Vec<String> = shown.collect();
            writeln!(out, "features     {}", shown.join(", "))?;
        }
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
        if !self.deltas.is_none() {
            write!(
                out,
                "\ndeltas       {} in {}, stored {}; {}; bases of {}",
                human::bytes(self.deltas.chunks.bytes),
                human::counted(self.deltas.chunks.chunks, "chunk"),
                human::bytes(self.deltas.chunks.stored_bytes),
                human::saved(self.deltas.saved_bytes),
                human::bytes(self.deltas.bases.bytes)
            )?;
        }
        self.rates.as_ref().map_or(Ok(()), |rates| show(rates, out))
    }
}

/// Shows the rates. All are for one core, except the last two of a line.
fn show(rates: &Rates, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let rate = |bytes: u64| format!("{}/s", human::bytes(bytes));
    write!(
        out,
        "\n\nhost         {}; hashes {} each",
        human::counted(rates.threads as u64, "core"),
        rate(rates.hash)
    )?;
    if let (Some(write), Some(read)) = (rates.disk_write, rates.disk_read) {
        let (write, read) = (rate(write), rate(read));
        write!(out, "\ndisk         writes {write}, reads {read}")?;
    }
    for one in &rates.samples {
        let name = match one.sample {
            Sample::Noise => "noise",
            Sample::Weights => "weights",
            Sample::Text => "text",
        };
        let by = |bound: Bound| match bound {
            Bound::Cores => "cores",
            Bound::Disk => "disk",
        };
        write!(
            out,
            "\n{name:<12} cut {}, encode {}, decode {} a core, {} of the bytes stored; put at most {} ({}), get {} ({})",
            rate(one.cut),
            rate(one.encode),
            rate(one.decode),
            human::percent(one.stored_permille, 1000),
            rate(one.put),
            by(one.put_bound),
            rate(one.get),
            by(one.get_bound)
        )?;
    }
    Ok(())
}
