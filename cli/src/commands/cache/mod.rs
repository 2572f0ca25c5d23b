//! `store cache`: compile caches as refs, one directory per entry. A profile defines the entries.

mod clean;
mod cut;
mod entries;
mod frame;
mod group;
mod look;
mod of_dir;
mod of_ref;
pub(crate) mod of_run;
mod pattern;
mod place;
mod profile;
mod pull;
mod push;
mod repair;
mod stray;
pub(crate) mod unpushed;
mod uses;
mod why;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::Serialize;
use store::{Error, RefName, Result};

use self::entries::State;
use self::profile::Profile;
use crate::context::Context;
use crate::ui::{human, names};

/// Share what compilers made: pull and push the entries of a compile cache
///
/// A cache is a ref, and its entries are what a compiler keeps under one key. A profile says what an entry is, when it
/// is complete, and where the cache of this host is: `neff`, `neff-vllm`, `inductor`, `triton`, `vllm`, `xla`, or a
/// file of your own (see `store help compile-caches`). `store neff` is `store cache` with that profile.
///
/// Only complete entries are pulled and pushed: never one that failed, is locked, or is being made. An existing entry
/// is never overwritten, neither here nor in a ref: of two compiles of one key, the first one counts. A name that
/// begins with `project/` or `team/` is a ref; other names are directories.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What kind of cache it is
    #[arg(long, global = true, value_name = "NAME")]
    profile: Option<String>,

    #[command(subcommand)]
    verb: Verb,
}

/// `store cache --profile neff`, for short
///
/// See `store cache --help`.
#[derive(clap::Args)]
pub(crate) struct NeffArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Show what is complete, failed, locked or being made here, and what the ref has and lacks
    Status {
        /// The cache, and a ref to compare it with
        #[arg(value_name = "DIR|REF")]
        what: Vec<OsString>,
    },
    /// Show which keys a ref has complete entries for
    ///
    /// A key is the path of an entry in the cache, or the end of that path. The exit code is 3 if no key is there, and
    /// 6 if some are missing.
    Lookup {
        /// Keys, and the ref
        #[arg(value_name = "KEY|REF", required = true, num_args = 2..)]
        what: Vec<OsString>,
    },
    /// Bring entries here that are complete in a ref and missing in the cache
    ///
    /// If several refs have an entry, the first one counts. If an entry here failed or is incomplete, it is replaced,
    /// unless somebody works on it.
    Pull {
        /// The cache, if it is not where the profile says, and the refs in their order
        #[arg(value_name = "DIR|REF", required = true)]
        what: Vec<OsString>,

        /// Do everything but write
        #[arg(long, short = 'n')]
        dry_run: bool,
    },
    /// Add entries to a ref that are complete here and missing there
    ///
    /// Any number of workers may push at once. If the ref has another entry under the same key, yours is kept out and
    /// named, and the exit code is 6. A store that may be read and not written to is a warning: no job fails for want of
    /// that right. Host names are taken out of the files that the profile names. An entry with a file that looks like
    /// credentials is kept out and named (6).
    Push {
        /// The cache, if it is not where the profile says, and the ref
        #[arg(value_name = "DIR|REF", required = true)]
        what: Vec<OsString>,

        /// Allow a push to the ref of a team, which more people read than those of the project
        #[arg(long)]
        public: bool,

        /// Take files that match even if they seem to hold credentials; may be given several times
        #[arg(long, value_name = "GLOB")]
        allow_secret: Vec<String>,

        /// Do everything but write
        #[arg(long, short = 'n')]
        dry_run: bool,
    },
    /// Delete what keeps compilers from trying again: failed and incomplete entries, and abandoned locks
    Clean {
        /// The cache, if it is not where the profile says
        dir: Option<PathBuf>,

        /// The age at which a lock counts as abandoned [default: what the profile says]
        #[arg(long, value_name = "TIME", value_parser = human::parse_span)]
        stale: Option<std::time::Duration>,

        /// Show what would be deleted, without deleting it
        #[arg(long, short = 'n')]
        dry_run: bool,
    },
    /// Show why a key has no entry: which parts of it differ in the nearest entries
    Why {
        /// The key of an entry, or its path in the cache
        key: OsString,

        /// Where to look: the cache, a ref, or both
        #[arg(value_name = "DIR|REF")]
        what: Vec<OsString>,
    },
}

/// An entry by its path, in `--json`.
#[derive(Serialize)]
struct Named {
    #[serde(flatten)]
    path: names::Path,
    #[serde(skip)]
    bytes: Vec<u8>,
}

impl Named {
    fn new(path: &[u8]) -> Self {
        Self {
            path: names::Path::new(path),
            bytes: path.to_vec(),
        }
    }

    fn is(&self, path: &[u8]) -> bool {
        self.bytes == path
    }

    fn shown(&self) -> String {
        names::shown(&self.bytes)
    }
}

/// An entry that was refused, and why.
#[derive(Serialize)]
struct Refused {
    #[serde(flatten)]
    entry: Named,
    state: State,
    /// The ref that has the entry; `None` if it is in the directory.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    source: Option<RefName>,
}

impl Refused {
    fn new(path: &[u8], state: State, source: Option<&RefName>) -> Self {
        Self {
            entry: Named::new(path),
            state,
            source: source.cloned(),
        }
    }
}

/// Maximum number of entries in a note.
const TOLD_MAX: usize = 5;

fn tell_refused(refused: &[Refused], context: &Context) {
    for one in refused.iter().take(TOLD_MAX) {
        let of = one
            .source
            .as_ref()
            .map_or_else(String::new, |name| format!(" in {name}"));
        let (path, word) = (one.entry.shown(), one.state.word());
        context
            .out
            .note(format_args!("note: {path}: {word}{of}, not taken"));
    }
    let more = refused.len().saturating_sub(TOLD_MAX) as u64;
    if more > 0 {
        context
            .out
            .note(format_args!("note: {} more not taken", human::count(more)));
    }
}

/// Separates directories from refs. A ref begins with the name of a namespace.
fn sorted(what: &[OsString]) -> Result<(Option<PathBuf>, Vec<RefName>)> {
    let (refs, mut dirs): (Vec<_>, Vec<_>) = what.iter().partition(|word| is_ref(word));
    let refs = refs
        .into_iter()
        .map(|word| names::name(word))
        .collect::<Result<_>>()?;
    let dir = dirs.pop().map(PathBuf::from);
    match dirs.pop() {
        None => Ok((dir, refs)),
        Some(more) => Err(Error::invalid(format!(
            "{}: expected a ref, found another directory",
            names::shown(more.as_bytes())
        ))
        .hint("refs begin with project/ or team/; one directory is the cache")),
    }
}

fn is_ref(word: &OsStr) -> bool {
    let word = word.as_bytes();
    word.starts_with(b"project/") || word.starts_with(b"team/")
}

/// The directory of the cache and exactly one ref.
fn one_ref(what: &[OsString], profile: &Profile) -> Result<(PathBuf, RefName)> {
    let (dir, mut refs) = sorted(what)?;
    let name = refs.pop().filter(|_| refs.is_empty());
    let name = name.ok_or_else(|| {
        Error::invalid("expected one ref").hint("refs begin with project/ or team/")
    })?;
    Ok((dir_of(dir, profile)?, name))
}

/// The directory of the cache. The usual one may be missing, since nothing was compiled yet; a named one may not.
fn dir_of(named: Option<PathBuf>, profile: &Profile) -> Result<PathBuf> {
    let Some(dir) = named else {
        return profile.root();
    };
    match std::fs::metadata(&dir) {
        Ok(found) if found.is_dir() => Ok(dir),
        Ok(_) => Err(Error::invalid(format!(
            "{}: expected the directory of a cache, found a file",
            names::shown(dir.as_os_str().as_bytes())
        ))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::not_found(format!(
                "{}: there is no such directory",
                names::shown(dir.as_os_str().as_bytes())
            ))
            .hint("name the directory of a cache; refs begin with project/ or team/"))
        }
        Err(source) => Err(Error::io("look at", &dir, source)),
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let name = args.profile.as_deref().ok_or_else(|| {
        let known: Vec<_> = profile::SHIPPED.iter().map(|(name, _)| *name).collect();
        Error::invalid("cache: it is not known what kind of cache it is")
            .hint(format!("give --profile: {}", known.join(", ")))
    })?;
    verb(&args.verb, &Profile::load(name)?, context)
}

pub(crate) fn run_neff(args: &NeffArgs, context: &Context) -> Result<()> {
    verb(&args.verb, &Profile::load("neff")?, context)
}

fn verb(verb: &Verb, profile: &Profile, context: &Context) -> Result<()> {
    let place = |dir: Option<PathBuf>| dir.map_or_else(|| profile.root(), Ok);
    let there = |dir| dir_of(dir, profile);
    match verb {
        Verb::Status { what } => {
            let (dir, refs) = sorted(what)?;
            // Beside a ref, a directory that is not made yet is an answer: all is absent.
            let dir = match refs.is_empty() {
                true => there(dir)?,
                false => place(dir)?,
            };
            look::status(&dir, &refs, profile, context)
        }
        Verb::Lookup { what } => {
            let (refs, keys): (Vec<_>, Vec<_>) = what.iter().partition(|word| is_ref(word));
            let refs = refs.into_iter().map(|word| names::name(word));
            look::lookup(&keys, &refs.collect::<Result<Vec<_>>>()?, profile, context)
        }
        Verb::Pull { what, dry_run } => {
            let (dir, refs) = sorted(what)?;
            if refs.is_empty() {
                return Err(Error::invalid("expected a ref to pull from")
                    .hint("refs begin with project/ or team/"));
            }
            pull::run(&place(dir)?, &refs, profile, *dry_run, context)
        }
        Verb::Push {
            what,
            public,
            allow_secret,
            dry_run,
        } => {
            let (dir, name) = one_ref(what, profile)?;
            let how = push::How {
                public: *public,
                dry_run: *dry_run,
                is_unnamed: false,
                allow_secret: allow_secret.clone(),
            };
            unpushed::push_noted(&dir, &name, profile, &how, context)
        }
        Verb::Clean {
            dir,
            stale,
            dry_run,
        } => {
            let profile = &profile.with_stale(*stale);
            clean::run(&there(dir.clone())?, profile, *dry_run, context)
        }
        Verb::Why { key, what } => {
            let (dir, refs) = sorted(what)?;
            let dir = match (dir, refs.is_empty()) {
                (None, false) => None,
                (dir, _) => Some(there(dir)?),
            };
            why::run(key.as_bytes(), dir.as_deref(), &refs, (profile, context))
        }
    }
}
