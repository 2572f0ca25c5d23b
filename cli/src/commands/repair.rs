//! `store repair`: what is derived is made anew, what is damaged is condemned.

use std::fmt;

use serde::Serialize;
use store::check::{self, RepairReport, RepairRequest};
use store::{Error, PackId, Result, SegmentId};

use crate::commands::damage::{self, FindingTold, HitTold};
use crate::context::Context;
use crate::ui::human;
use crate::ui::progress::Watch;

/// Put back log entries, make segments anew from packs, and condemn what is damaged
///
/// A damaged log entry is put back as the entry after it says; where nothing stands in for one, this
/// ends with exit code 4, unless --accept-loss. What is good in damaged packs is copied; nothing is
/// deleted: `store gc` does that later. Ends with exit code 6 when paths are left that cannot be
/// read; a put of their original files, from any host and to any ref, heals them.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Read every byte of every pack; otherwise only of those that `store verify` found damaged from here
    #[arg(long)]
    read_data: bool,

    /// Go on without log entries that are lost and that nothing stands in for: what they changed is given up
    #[arg(long)]
    accept_loss: bool,

    /// Show what would be done, and do nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
}

/// What a machine reads.
#[derive(Serialize)]
struct Report {
    dry_run: bool,
    findings: Vec<FindingTold>,
    entries_restored: Vec<u64>,
    entries_lost: Vec<u64>,
    segments_dropped: Vec<SegmentId>,
    segments_added: Vec<SegmentId>,
    packs_kept: u64,
    packs_condemned: Vec<PackId>,
    chunks_saved: u64,
    chunks_lost: u64,
    checkpoints: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_entry: Option<u64>,
    hits: Vec<HitTold>,
    hits_left_out: u64,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let store = context.open()?;
    let watch = Watch::new(&context.global);
    let request = RepairRequest {
        read_data: args.read_data,
        dry_run: args.dry_run,
        accept_loss: args.accept_loss,
    };
    let done = check::repair(&store, request, &watch)?;
    drop(watch);
    let told = report(&done, args.dry_run);
    if context.out.is_json() {
        context.out.json(&told)?;
    } else {
        damage::show(context, &told.findings, &told.hits, told.hits_left_out)?;
        context.out.report(&told)?;
    }
    if !done.entries_lost.is_empty() && !args.dry_run {
        context
            .out
            .note("what the log entries given up had stored is in no version now: put it again");
    }
    match done.hits.len() as u64 + done.hits_left_out {
        0 => Ok(()),
        left => Err(Error::partial(format!(
            "{}: {} cannot be read",
            store.remote().url(),
            human::counted(left, "path")
        ))
        .hint("put the original files again: that heals every version that needs them")),
    }
}

fn report(done: &RepairReport, dry_run: bool) -> Report {
    Report {
        dry_run,
        findings: done.findings.iter().map(Into::into).collect(),
        entries_restored: done.entries_restored.clone(),
        entries_lost: done.entries_lost.clone(),
        segments_dropped: done.segments_dropped.clone(),
        segments_added: done.segments_added.clone(),
        packs_kept: done.packs_kept,
        packs_condemned: done.packs_condemned.clone(),
        chunks_saved: done.chunks_saved,
        chunks_lost: done.chunks_lost,
        checkpoints: done.checkpoints.clone(),
        log_entry: done.entry,
        hits: done.hits.iter().map(Into::into).collect(),
        hits_left_out: done.hits_left_out,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.findings.is_empty() && self.packs_kept == 0 && self.hits.is_empty() {
            return out.write_str("nothing to repair");
        }
        let mut parts = Vec::new();
        for (entries, what) in [
            (&self.entries_restored, "put back"),
            (&self.entries_lost, "given up"),
        ] {
            match entries.len() {
                0 => {}
                1 => parts.push(format!("1 log entry {what}")),
                count => parts.push(format!("{count} log entries {what}")),
            }
        }
        if !self.segments_dropped.is_empty() {
            let segments = human::counted(self.segments_dropped.len() as u64, "segment");
            let packs = human::counted(self.packs_kept, "pack");
            parts.push(format!("{segments} made anew from {packs}"));
        }
        if self.segments_dropped.is_empty() && self.packs_kept > 0 {
            let packs = human::counted(self.packs_kept, "pack");
            parts.push(format!(
                "{packs} that no segment named taken into a new one"
            ));
        }
        if !self.packs_condemned.is_empty() {
            let packs = human::counted(self.packs_condemned.len() as u64, "pack");
            let saved = human::counted(self.chunks_saved, "chunk");
            let lost = human::count(self.chunks_lost);
            parts.push(format!("{packs} condemned: {saved} copied, {lost} lost"));
        }
        if !self.checkpoints.is_empty() {
            let checkpoints = human::counted(self.checkpoints.len() as u64, "checkpoint");
            parts.push(format!("{checkpoints} written again"));
        }
        match (parts.is_empty(), self.dry_run) {
            (true, _) => out.write_str("nothing that a repair can do"),
            (false, true) => write!(out, "would be done: {}", parts.join("; ")),
            (false, false) => out.write_str(&parts.join("; ")),
        }
    }
}
