//! `store put`: stores a directory or a file as a new version of a ref.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use serde::Serialize;
use store::{
    Class, DeltaBase, Error, LinkOptions, Onto, ProfileChoice, ProfileOptions, PutReport,
    PutRequest, Result,
};
use store::{Keep, RefName};

use crate::context::Context;
use crate::context::pools;
use crate::ui::progress::Watch;
use crate::ui::{failure, human, names, remedy};

/// Put a directory or a file into the store, as a new version of a ref
///
/// All or nothing: if a file cannot be read, or changes while it is read, that is an error and nothing is published. A
/// version keeps names, bytes, executable bits, symbolic links, empty directories and modification times; it keeps
/// owners and other modes only with --keep. If some of the files or directories can be read only by their owner, the
/// version is private, and so are later ones: what `get` and `materialize` make of it can be read only by the user who
/// runs them, unless --readable is given here or there.
///
/// Files that are unchanged since they were last put from this host are not read again. This works on ext4, XFS and
/// btrfs, once what was written through a mapping is on the disk. For large files, and for the first 1,000 small files
/// that changed in the last minutes, the put first writes it there. If a put is stopped by Ctrl-C or a termination
/// signal, the next one uses what it has stored. If it is killed, all but the last 4 GiB is used. `store gc` leaves
/// such data alone for its --min-age.
///
/// If the newest version has the same tree, and its files have the same times, no version is made: the put says
/// "unchanged" and exits with 0, whatever --message says. Different times of directories alone make no version. With a
/// --ttl that would keep it longer than the newest version, one is made; --always makes one in any case.
///
/// Files that a materialized tree links from the pool keep the times of the version that they came from. If somebody
/// wrote to a file through such a link, it has changed in other trees too: it is named with those trees and the put
/// exits with 4, unless --take-written-through is given.
///
/// A tree that looks like a Hugging Face cache is taken as one (--profile hf): tokens, locks, unfinished files and the
/// machine's own state stay out, files of a shared store come to their repositories, and refs, snapshots, links and the
/// hashes in file names are checked first.
///
/// Links are kept as links. An absolute link into PATH is stored as a relative one, so that the tree can move. A link
/// out of PATH is kept and counted in a note. A tree that consists (nearly) only of such links, like one snapshot of a
/// hub cache, is refused: put the whole repository, or follow the links with --dereference.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory or file
    path: PathBuf,

    /// The ref, like project/llama-ft/imagenet
    #[arg(value_name = "REF")]
    target: OsString,

    /// Leave out what matches, as in .gitignore (`!GLOB` takes back); may be given several times
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,

    /// Leave out what cannot be read, list it, and exit with 6
    #[arg(long)]
    skip_unreadable: bool,

    /// Do everything but write, and show what would be new
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// What to say about this version
    #[arg(long, short, value_name = "TEXT", default_value = "")]
    message: String,

    /// Let `store gc` drop this version after this long, like 30d, unless it is pinned
    #[arg(long, value_name = "TIME", value_parser = human::parse_life)]
    ttl: Option<Duration>,

    /// Make a version even if nothing has changed
    #[arg(long)]
    always: bool,

    /// Put only if this is the newest version, else exit with 5; 0: only if the ref has no version
    #[arg(long, value_name = "N", value_parser = human::parse_version)]
    base: Option<u64>,

    /// Take files as they are, even if somebody wrote to them through a link that other trees share
    #[arg(long)]
    take_written_through: bool,

    /// Read every file, even if it looks unchanged
    #[arg(long)]
    read_all: bool,

    /// Decode and compare everything before it is written
    #[arg(long)]
    verify_writes: bool,

    /// Store numbers as deltas against this version (or a path in it) if that is much smaller. `auto`: against the
    /// newest version of the ref, or of the other refs of its namespace. `none`: encode each frame by itself, which is
    /// best for what is mostly read alone and from a bucket
    #[arg(long, value_name = "REF|auto|none", default_value = "auto")]
    delta_base: OsString,

    /// Compression level, 1 to 19
    #[arg(long, value_name = "N", default_value_t = PutRequest::LEVEL, value_parser = clap::value_parser!(i32).range(1..=19))]
    level: i32,

    /// What to take the tree for: a Hugging Face cache, plain files, or whichever it looks like
    #[arg(long, default_value = "auto", value_parser = PossibleValuesParser::new(["auto", "hf", "none"]).try_map(|name| name.parse::<ProfileChoice>()))]
    profile: ProfileChoice,

    /// Parts of an HF_HOME to take as well
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = PossibleValuesParser::new(Class::ALL.map(Class::as_str)).try_map(|name| name.parse::<Class>()))]
    with: Vec<Class>,

    /// Take what matches even if it seems to hold credentials; may be given several times
    #[arg(long, value_name = "GLOB")]
    allow_secret: Vec<String>,

    /// Take all files even if they seem to hold credentials
    #[arg(long)]
    allow_secrets: bool,

    /// Take a Hugging Face cache as it is, even if it is inconsistent, and a tree that consists only of links out of it
    #[arg(long)]
    no_check: bool,

    /// Follow links that lead out of PATH: take the files and directories that they lead to
    #[arg(long)]
    dereference: bool,

    /// Keep absolute links into PATH as they are. Without this option they become relative; kept as they are, they lead
    /// nowhere in another place
    #[arg(long)]
    keep_absolute_links: bool,

    /// Let others read what comes out of this version, even if only their owner can read the files
    #[arg(long)]
    readable: bool,

    /// Keep modes, the numbers of users and groups, or extended attributes (user attributes and access control lists)
    /// beside the tree; `get --keep` restores them
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = super::keep::parser())]
    keep: Vec<Keep>,
}

/// The JSON form of the report.
#[derive(Serialize)]
struct Report {
    #[serde(rename = "ref")]
    target: RefName,
    #[serde(flatten)]
    done: PutReport,
    secs: f64,
    skipped: Vec<failure::Skipped>,
    notes: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let target = names::name_after("put", args.path.as_os_str(), &args.target)?;
    let store = if args.dry_run {
        context.open_for_dry_run()?
    } else {
        context.open_for_put()?
    };
    let mut request = request(args, target.clone())?;
    request.pools = pools::of_source(&args.path, &context.config().pool);
    let watch = Watch::new(&context.global);
    let done = store::put(&store, &request, &watch)?;
    let elapsed = watch.elapsed();
    drop(watch);
    let mut report = report(target, done, elapsed);
    context.out.name_in(&mut report.notes);
    let unsaid = report.done.unchanged.then(|| unsaid(args)).flatten();
    context.out.notes(&report.done.notes);
    if let Some(note) = &unsaid {
        context.out.note(format_args!("note: {note}"));
    }
    for skipped in &report.skipped {
        context
            .out
            .warning(format_args!("skipped: {}", skipped.error));
    }
    context.out.report(&report)?;
    match report.skipped.len() as u64 {
        0 => Ok(()),
        count => Err(Error::partial(format!(
            "{}: {} left out",
            report.target,
            human::counted(count, "path")
        ))),
    }
}

fn request(args: &Args, target: RefName) -> Result<PutRequest> {
    Ok(PutRequest {
        identity: None,
        source: args.path.clone(),
        target,
        exclude: args.exclude.clone(),
        may_leave_out_all: false,
        skip_unreadable: args.skip_unreadable,
        needs_files: false,
        dry_run: args.dry_run,
        message: args.message.clone(),
        expires: expires(args)?,
        level: args.level,
        verify_writes: args.verify_writes,
        read_all: args.read_all,
        always: args.always,
        pools: Vec::new(),
        readable: args.readable,
        keep: args.keep.clone(),
        source_check: None,
        extra: store::Extra::new(),
        delta_base: delta_base(args)?,
        onto: args.base.map_or(Onto::Replace, Onto::Only),
        entries: store::Entries::new(),
        allow_empty: true,
        take_written_through: args.take_written_through,
        links: LinkOptions {
            keep_absolute: args.keep_absolute_links,
            dereference: args.dereference,
            allow_empty: args.no_check,
        },
        profile: ProfileOptions {
            choice: args.profile,
            with: args.with.clone(),
            allow_secrets: args.allow_secrets,
            leave_out_secrets: false,
            allow_secret: args.allow_secret.clone(),
            check: !args.no_check,
            check_hashes: !args.no_check,
            secret_paths: std::env::var_os("HF_TOKEN_PATH")
                .map(PathBuf::from)
                .into_iter()
                .collect(),
        },
    })
}

fn delta_base(args: &Args) -> Result<DeltaBase> {
    // A ref contains a slash, so these words cannot be refs.
    match args.delta_base.to_str() {
        Some("auto") => Ok(DeltaBase::Auto),
        Some("none") => Ok(DeltaBase::None),
        _ => names::spec(&args.delta_base).map(DeltaBase::Version),
    }
}

/// A note that a message or time to live was not recorded, because an unchanged tree makes no version.
fn unsaid(args: &Args) -> Option<String> {
    let given = match (args.message.is_empty(), args.ttl) {
        (true, None) => return None,
        (false, None) => "--message is",
        (true, Some(_)) => "--ttl is",
        (false, Some(_)) => "--message and --ttl are",
    };
    Some(format!(
        "nothing has changed, so that there is no new version and {given} without effect; --always makes one"
    ))
}

fn expires(args: &Args) -> Result<Option<Timestamp>> {
    let end = |ttl: Duration| {
        Timestamp::now().checked_add(ttl).map_err(|source| {
            Error::invalid("--ttl: it ends later than times can say").because(source)
        })
    };
    args.ttl.map(end).transpose()
}

fn report(target: RefName, mut done: PutReport, elapsed: Duration) -> Report {
    Report {
        target,
        secs: elapsed.as_secs_f64(),
        skipped: failure::skipped(std::mem::take(&mut done.skipped)),
        notes: done.notes.iter().map(remedy::note).collect(),
        done,
    }
}

impl Report {
    /// The id of the version, which is the same in every store.
    fn known_as(&self) -> String {
        names::id(self.done.id.as_ref())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elapsed = Duration::from_secs_f64(self.secs);
        match self.done.version {
            Some(version) if self.done.unchanged => write!(
                out,
                "{}: unchanged, still @{version}{}: ",
                self.target,
                self.known_as()
            )?,
            Some(version) => write!(out, "{}@{version}{}: ", self.target, self.known_as())?,
            None => write!(out, "{}, nothing written: ", self.target)?,
        }
        write!(
            out,
            "{}, {} in {} ({})\nnew {}, stored {}",
            human::counted(self.done.files, "file"),
            human::bytes(self.done.bytes),
            human::duration(elapsed),
            human::rate(self.done.bytes, elapsed),
            human::bytes(self.done.new_bytes),
            human::bytes(self.done.stored_bytes),
        )?;
        // For smaller versions, the fixed cost of a version would dominate.
        if self.done.bytes >= 1000 {
            let percent = human::percent(self.done.stored_bytes, self.done.bytes);
            write!(out, " ({percent} of its size)")?;
        }
        match self.done.unchanged_files {
            0 => Ok(()),
            count => write!(out, ", {} unchanged", human::counted(count, "file")),
        }
    }
}
