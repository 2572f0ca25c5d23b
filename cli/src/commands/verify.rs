//! `store verify`: checks that everything is present and unchanged.

use std::ffi::{OsStr, OsString};
use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use store::Target;
use store::check::{self, Finding, Part, ReadData, Subset, VerifyReport, VerifyRequest};
use store::{Error, Result};

use crate::commands::damage;
use crate::context::Context;
use crate::ui::progress::Watch;
use crate::ui::{human, names};

/// Check that everything is there, and that it is what was written
///
/// Read the whole log, every checkpoint, every segment, the table of every pack, and the trees of every version. If
/// anything is wrong, report it with the refs and paths that are hit, and exit with 4. The files' bytes are read only
/// with --read-data.
///
/// If the log itself is damaged, other verbs read the newest state that can be known. With any verb that only reads,
/// --at-entry N shows the store as it was after log entry N.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Verify only what this namespace, ref or version needs
    #[arg(value_name = "NAMESPACE|REF[@N]")]
    target: Option<OsString>,

    /// Read every byte of every pack: decode it and compare the hash of each chunk, or read it as stored and compare
    /// the sums that were taken when it was written
    #[arg(
        long,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "decoded"
    )]
    read_data: Option<How>,

    /// Read a part: 5%, 10G (what was read longest ago first), daily/week, weekly/month or daily/month (today's part in
    /// UTC; a round reads everything)
    #[arg(long, value_name = "SUBSET", conflicts_with = "read_data")]
    read_data_subset: Option<String>,
}

/// How bytes are compared.
#[derive(Clone, Copy, clap::ValueEnum)]
enum How {
    /// Decoded: finds everything that a get would find
    Decoded,
    /// As stored: finds what a disk has damaged, at the speed of the disk
    Stored,
}

/// The JSON form of the report.
#[derive(Serialize)]
struct Report {
    clean: bool,
    #[serde(flatten)]
    done: VerifyReport,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let target = args.target.as_deref().map(target).transpose()?;
    let now = Timestamp::now();
    let read = match &args.read_data_subset {
        Some(subset) => {
            let today = now.to_zoned(TimeZone::UTC).date();
            ReadData::Some(Subset::parse(subset, today)?)
        }
        None => match args.read_data {
            Some(How::Decoded) => ReadData::Everything,
            Some(How::Stored) => ReadData::Stored,
            None => ReadData::Nothing,
        },
    };
    let store = context.open()?;
    let watch = Watch::new(&context.global);
    let request = VerifyRequest { target, read, now };
    let done = check::verify(&store, &request, &watch)?;
    drop(watch);
    done.notes.iter().for_each(|note| context.out.note(note));
    let told = Report {
        clean: done.is_clean(),
        done,
    };
    let done = &told.done;
    if context.out.is_json() {
        context.out.json(&told)?;
    } else {
        damage::show(context, &done.findings, &done.hits, done.hits_left_out)?;
        context.out.report(&told)?;
    }
    match told.clean {
        true => Ok(()),
        false => Err(damaged(done, request.read, &store.remote().url())),
    }
}

/// Parses a namespace or a ref. Paths are refused: a version is verified as a whole.
fn target(text: &OsStr) -> Result<Target> {
    match names::target(text)? {
        Target::Ref(_) => names::version(text).map(Target::Ref),
        namespace => Ok(namespace),
    }
}

fn damaged(done: &VerifyReport, read: ReadData, url: &str) -> Error {
    let objects = human::counted(done.findings.len() as u64, "damaged object");
    let paths = human::counted(done.hits.len() as u64 + done.hits_left_out, "path");
    let versions = human::counted(done.versions_hit().len() as u64, "version");
    let hit = format!("{paths} of {versions} cannot be read");
    // A pack that is not as long as it was, or without its table, may hold anything.
    let is_pack = |finding: &Finding| matches!(finding.part, Part::Pack(_));
    let is_unread =
        matches!(read, ReadData::Nothing | ReadData::Some(_)) && done.findings.iter().any(is_pack);
    let error = match (done.findings.is_empty(), done.hits.is_empty()) {
        (true, _) => Error::corrupt(format!("{url}: {hit}")).hint(damage::HEAL),
        (false, true) if is_unread => Error::corrupt(format!(
            "{url}: {objects}; what is hit shows only when packs are read"
        ))
        .hint("run `store verify --read-data`, or `store repair`, which reads what is damaged"),
        (false, true) => {
            Error::corrupt(format!("{url}: {objects}; no path is hit")).hint("run `store repair`")
        }
        (false, false) => Error::corrupt(format!("{url}: {objects}; {hit}"))
            .hint("run `store repair`, then put the original files of what is hit again"),
    };
    match &done.remedy {
        Some(first) => error.hint(first.clone()),
        None => error,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = human::counted;
        write!(
            out,
            "verified {} in {}, {} and {}",
            counted(self.done.versions, "version"),
            counted(self.done.packs, "pack"),
            counted(self.done.segments, "segment"),
            match self.done.entries {
                1 => "1 log entry".to_owned(),
                count => format!("{} log entries", human::count(count)),
            },
        )?;
        match self.done.packs_read {
            0 => write!(out, "; no file was read, see --read-data"),
            packs => write!(
                out,
                "; read {} in {}",
                human::bytes(self.done.bytes_read),
                counted(packs, "pack")
            ),
        }
    }
}
