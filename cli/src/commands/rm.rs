//! `store rm`: drops versions, refs and namespaces; the next gc deletes their bytes. Files of a dropped namespace in
//! the pools of this host are removed at once.

mod paths;

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use serde::Serialize;
use store::Reader;
use store::RemoveReport;
use store::inspect::{contents_only_of, summarize};
use store::refs::{self, Dropped};
use store::{Content, Namespace, RefSpec, State, Target};
use store::{Error, ErrorKind, Pool, Result, Store};

use crate::context::Context;
use crate::context::pools;
use crate::ui::{failure, home, human, names};

/// Drop a version, a ref with all its versions, or a namespace with all its refs
///
/// REF@N drops one version. REF drops all of them, and asks first if more than one goes and there is a terminal. If a
/// version is pinned, nothing is dropped. NAMESPACE drops every ref in it except pinned versions, and asks you to type
/// its name. Files in the pools of this host that only the namespace used are removed, except those that trees still
/// share. The number of a dropped version is never used again, and the log keeps the record. What nothing else uses is
/// deleted by the next `store gc`. Until that has run and its grace is over, `store undo` brings back what was dropped
/// last.
///
/// REF:PATH... makes a new version without these paths. --glob, --larger-than and --older-than do the same for the
/// files that match all of them, in REF or below its PATHs. Earlier versions stay as they are, and hold the bytes until
/// they are dropped; --dry-run shows how many these are.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to drop; several only if they are paths of one ref
    #[arg(value_name = "REF[@N]|NAMESPACE|REF:PATH", required = true)]
    targets: Vec<OsString>,

    /// Remove files of the newest version that match, as in .gitignore, and directories with all that is in them; may
    /// be given several times
    #[arg(long, value_name = "GLOB")]
    glob: Vec<String>,

    /// Remove files of the newest version that are larger than this, like 1GB
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size)]
    larger_than: Option<u64>,

    /// Remove files of the newest version that were written longer ago than this, like 30d
    #[arg(long, value_name = "TIME", value_parser = human::parse_span)]
    older_than: Option<Duration>,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,

    /// Show what would be dropped and what that would give back, without dropping it
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// The pool to remove a namespace's files from [default: $STORE_POOL, else all pools that
    /// `store materialize` has used on this host for this user]
    #[arg(long, value_name = "DIR", env = "STORE_POOL", hide_env_values = true, value_parser = home::path())]
    pool: Option<PathBuf>,
}

/// The JSON form of the report.
#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    dropped: Vec<String>,
    kept_pinned: Vec<String>,
    /// Bytes that only the dropped versions need. Only a dry run reads the trees to find out.
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_bytes: Option<u64>,
    pools: Vec<Cleaned>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// What happened to the files of a namespace in one pool.
#[derive(Serialize)]
struct Cleaned {
    #[serde(serialize_with = "store::path_as_text")]
    pool: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool_hex: Option<String>,
    #[serde(flatten)]
    report: RemoveReport,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    if paths::are_meant(args)? {
        return paths::run(args, context);
    }
    let [named] = args.targets.as_slice() else {
        return Err(
            Error::invalid("expected one at a time, or paths of one ref")
                .hint("nothing was dropped; run it once for each"),
        );
    };
    let target = names::target(named)?;
    let store = context.open()?;
    let report = match &target {
        _ if args.dry_run => dry_run(named, &store, &target)?,
        Target::Ref(_) => {
            let spec = names::version(named)?;
            confirm_ref(args, context, &store, &spec)?;
            let number = refs::number(&store, &spec)?;
            refs::drop_versions(&store, &spec.name, number)?.into()
        }
        Target::Namespace(namespace) => drop_namespace(args, context, &store, namespace)?,
    };
    for warning in &report.warnings {
        context.out.warning(format_args!("warning: {warning}"));
    }
    context.out.report(&report)
}

/// What would be dropped, and the bytes that only those versions need.
fn dry_run(named: &OsStr, store: &Store, target: &Target) -> Result<Report> {
    let reader = Reader::new(store)?;
    let state = &reader.view().state;
    let planned = match target {
        Target::Ref(_) => {
            let spec = names::version(named)?;
            let number = match &spec.version {
                Some(at) => state.number(&spec.name, Some(at))?,
                None => None,
            };
            refs::plan_drop_versions(state, &spec.name, number)?
        }
        Target::Namespace(namespace) => refs::plan_drop_namespace(state, namespace)?,
    };
    // With pinned versions, the sum would be too large, since it includes what they keep.
    let unique = match planned.kept.is_empty() {
        true => Some(summarize(&reader, target)?.unique.stored_bytes),
        false => None,
    };
    Ok(Report {
        dry_run: true,
        unique_bytes: unique,
        ..Report::from(planned)
    })
}

/// Asks before it drops all versions of a ref, since its name is easily mistyped. A single version has a number.
fn confirm_ref(args: &Args, context: &Context, store: &Store, spec: &RefSpec) -> Result<()> {
    let is_asked = !args.yes && spec.version.is_none() && std::io::stdin().is_terminal();
    let dropped = match is_asked {
        true => refs::plan_drop_versions(&store.state()?, &spec.name, None)?.versions,
        false => return Ok(()),
    };
    if dropped.len() < 2 {
        return Ok(());
    }
    let asked = context.out.ask(format_args!(
        "This drops all {} of {}. Go on? [y/N] ",
        human::counted(dropped.len() as u64, "version"),
        spec.name
    ));
    match asked.then(|| typed_line(context)).transpose()? {
        Some(typed) if ["y", "Y", "yes"].contains(&typed.trim()) => Ok(()),
        _ => Err(Error::invalid(format!("rm {}: not confirmed", spec.name))
            .hint("nothing was dropped; one version is dropped as REF@N, all with --yes")),
    }
}

fn drop_namespace(
    args: &Args,
    context: &Context,
    store: &Store,
    namespace: &Namespace,
) -> Result<Report> {
    if !args.yes {
        confirm(context, &store.state()?, namespace)?;
    }
    let (pools, warnings) = open_pools(args, context);
    // The trees can be read for certain only before they are dropped.
    let unused = match unused(store, namespace, &pools) {
        Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
        unused => unused,
    };
    let mut report = Report::from(refs::drop_namespace(store, namespace)?);
    report.warnings = warnings;
    for pool in pools {
        let removed = unused
            .as_ref()
            .map_err(ToString::to_string)
            .and_then(|unused| pool.remove(unused).map_err(|error| error.to_string()));
        match removed {
            Ok(removed) => report.pools.push(Cleaned {
                pool: pool.path().into(),
                pool_hex: names::hex(pool.path()),
                report: removed,
            }),
            Err(why) => report.warnings.push(format!(
                "pool {}: its files stay until they are evicted: {why}",
                pool.path().display()
            )),
        }
    }
    Ok(report)
}

/// The pools that may have files of the namespace. A pool that cannot be opened does not stop the drop.
fn open_pools(args: &Args, context: &Context) -> (Vec<Pool>, Vec<String>) {
    let known = pools::known(args.pool.as_deref(), &context.config().pool);
    let mut warnings = Vec::new();
    let mut told = |error: Error| warnings.push(failure::one_line(&error));
    let pools = known
        .into_iter()
        .filter_map(|pool| pool.map_err(&mut told).ok())
        .collect();
    (pools, warnings)
}

/// The contents in `pools` that no version needs once the namespace is gone.
fn unused(store: &Store, namespace: &Namespace, pools: &[Pool]) -> Result<HashSet<Content>> {
    let mut known = HashSet::new();
    for pool in pools {
        // The users of a pool are told what a sweep keeps, so not here.
        drop(pool.sweep()?);
        known.extend(pool.contents()?);
    }
    if known.is_empty() {
        return Ok(known);
    }
    let reader = Reader::new(store)?;
    let dropped = refs::plan_drop_namespace(&reader.view().state, namespace)?;
    contents_only_of(&reader, &dropped.versions, &known)
}

/// Asks to type the name again, so that a typing mistake does not cost a project.
fn confirm(context: &Context, state: &State, namespace: &Namespace) -> Result<()> {
    let dropped = refs::plan_drop_namespace(state, namespace)?;
    let dropped = human::counted(dropped.versions.len() as u64, "version");
    let asked = context.out.ask(format_args!(
        "This drops {dropped} in {namespace}. Type the name of the namespace to go on: ",
    ));
    // Without a terminal, a script may still send the name.
    let typed = match asked || !std::io::stdin().is_terminal() {
        true => typed_line(context)?,
        false => String::new(),
    };
    if typed.trim() == namespace.as_str() {
        return Ok(());
    }
    let found = typed.trim();
    Err(Error::invalid(format!(
        "rm {namespace}: {dropped} not dropped, since not confirmed: expected {:?}, found {found:?}",
        namespace.as_str()
    ))
    .hint("nothing was dropped; type the whole name, or say --yes"))
}

/// Reads a line of standard input; a signal ends the wait.
fn typed_line(context: &Context) -> Result<String> {
    let (sender, typed) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line);
        // The receiver is gone if a signal ended the wait.
        let _unread = sender.send(read.map(|_| line));
    });
    while !context.stop().load(Ordering::Relaxed) {
        match typed.recv_timeout(Duration::from_millis(50)) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Ok(line)) => return Ok(line),
            Ok(Err(source)) => return Err(Error::io("read", "standard input", source)),
            Err(RecvTimeoutError::Disconnected) => return Ok(String::new()),
        }
    }
    Err(Error::interrupted(
        "stopped on request; nothing was dropped",
    ))
}

impl From<Dropped> for Report {
    fn from(dropped: Dropped) -> Self {
        let shown = |(name, version)| format!("{name}@{version}");
        Self {
            dry_run: false,
            dropped: dropped.versions.into_iter().map(shown).collect(),
            kept_pinned: dropped.kept.into_iter().map(shown).collect(),
            unique_bytes: None,
            pools: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl Report {
    /// The command that brings back what was dropped, also after others have dropped something else.
    fn undo(&self) -> String {
        let refs = self.dropped.iter();
        let refs = refs.filter_map(|version| version.rsplit_once('@').map(|(name, _)| name));
        let refs: BTreeSet<&str> = refs.collect();
        match (refs.len(), refs.first()) {
            (1, Some(name)) => format!("store undo {}", names::quoted(*name)),
            _ => "store undo".to_owned(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = human::counted(self.dropped.len() as u64, "version");
        match (self.dry_run, self.unique_bytes) {
            (false, _) => write!(
                out,
                "dropped {count}; `{}` brings that back until `store gc` has given back the space",
                self.undo()
            )?,
            (true, Some(bytes)) => write!(
                out,
                "nothing is done; this would drop {count}, and `store gc` would give back {}",
                human::bytes(bytes)
            )?,
            (true, None) => write!(out, "nothing is done; this would drop {count}")?,
        }
        if self.dry_run {
            self.dropped
                .iter()
                .try_for_each(|dropped| write!(out, "\nwould be dropped: {dropped}"))?;
        }
        self.kept_pinned
            .iter()
            .try_for_each(|kept| write!(out, "\nkept, since it is pinned: {kept}"))?;
        self.pools.iter().try_for_each(|cleaned| cleaned.fmt(out))
    }
}

impl fmt::Display for Cleaned {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let removed = &self.report;
        if removed.files + removed.linked_files == 0 {
            return Ok(());
        }
        write!(
            out,
            "\npool {}: {} removed, {} given back",
            self.pool.display(),
            human::counted(removed.files, "file"),
            human::bytes(removed.bytes)
        )?;
        match removed.linked_files {
            0 => Ok(()),
            1 => write!(out, "; 1 file is still linked by trees"),
            many => write!(
                out,
                "; {} files are still linked by trees",
                human::count(many)
            ),
        }
    }
}
