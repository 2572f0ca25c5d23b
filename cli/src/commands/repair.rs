//! `store repair`: rebuilds derived objects, and condemns damaged packs.

use std::fmt;

use serde::Serialize;
use store::check::{self, RepairReport, RepairRequest};
use store::{Error, Result};

use crate::commands::damage;
use crate::context::Context;
use crate::ui::human;
use crate::ui::progress::Watch;

/// Put back log entries, rebuild segments from packs, and condemn what is damaged
///
/// A damaged log entry is put back from what the entry after it says. If nothing stands in for an entry, the exit code
/// is 4, unless --accept-loss is given. What is good in damaged packs is copied. Nothing is deleted: `store gc` does
/// that later. The exit code is 6 if paths are left that cannot be read; a put of their original files, from any host
/// and to any ref, heals them.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Read every byte of every pack; otherwise only packs that `store verify` found damaged from this host are read
    #[arg(long)]
    read_data: bool,

    /// Continue without lost log entries that nothing stands in for, whose changes are lost, and without packs whose
    /// directory has none at all
    #[arg(long)]
    accept_loss: bool,

    /// Show what would be done, without doing it
    #[arg(long, short = 'n')]
    dry_run: bool,
}

/// The JSON form of the report.
#[derive(Serialize)]
struct Report {
    dry_run: bool,
    #[serde(flatten)]
    done: RepairReport,
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
    let told = Report {
        dry_run: args.dry_run,
        done,
    };
    let done = &told.done;
    if context.out.is_json() {
        context.out.json(&told)?;
    } else {
        damage::show(context, &done.findings, &done.hits, done.hits_left_out)?;
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
        .hint(damage::HEAL)),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (entries, what) in [
            (&self.done.entries_restored, "put back"),
            (&self.done.entries_lost, "given up"),
        ] {
            match entries.len() {
                0 => {}
                1 => parts.push(format!("1 log entry {what}")),
                count => parts.push(format!("{count} log entries {what}")),
            }
        }
        if !self.done.segments_dropped.is_empty() {
            let segments = human::counted(self.done.segments_dropped.len() as u64, "segment");
            let packs = human::counted(self.done.packs_kept, "pack");
            parts.push(format!("{segments} rebuilt from {packs}"));
        }
        if self.done.segments_dropped.is_empty() && self.done.packs_kept > 0 {
            let packs = human::counted(self.done.packs_kept, "pack");
            parts.push(format!(
                "{packs} that no segment named taken into a new one"
            ));
        }
        if !self.done.packs_condemned.is_empty() {
            let packs = human::counted(self.done.packs_condemned.len() as u64, "pack");
            let saved = human::counted(self.done.chunks_saved, "chunk");
            let lost = human::count(self.done.chunks_lost);
            parts.push(format!("{packs} condemned: {saved} copied, {lost} lost"));
        }
        if !self.done.features_learned.is_empty() {
            let learned = self.done.features_learned.join(", ");
            parts.push(format!("feature learned: {learned}"));
        }
        if !self.done.checkpoints.is_empty() {
            let checkpoints = human::counted(self.done.checkpoints.len() as u64, "checkpoint");
            parts.push(format!("{checkpoints} written again"));
        }
        match (parts.is_empty(), self.dry_run) {
            (true, _) if self.done.findings.is_empty() && self.done.hits.is_empty() => {
                out.write_str("nothing to repair")
            }
            (true, _) => out.write_str("nothing that a repair can do"),
            (false, true) => write!(out, "would be done: {}", parts.join("; ")),
            (false, false) => out.write_str(&parts.join("; ")),
        }
    }
}
