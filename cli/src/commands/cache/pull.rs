//! `store cache pull`: copies entries that are complete in a ref and missing here.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use store::{
    Error, ErrorKind, GetRequest, Globs, Precious, Reader, RefName, RefSpec, Result, Store,
    Unwatched, get,
};

use super::entries::{Entries, Entry, Look, State};
use super::place::{self, Placed, Stage};
use super::profile::Profile;
use super::repair::TEXT_BYTES_MAX;
use super::{Named, Refused, of_dir, of_ref};
use crate::config;
use crate::context::Context;
use crate::host::planted;
use crate::ui::{human, names};

/// The JSON form of the report.
#[derive(Serialize)]
pub(super) struct PullReport {
    profile: String,
    #[serde(serialize_with = "store::path_as_text")]
    directory: PathBuf,
    dry_run: bool,
    sources: Vec<Source>,
    /// Entries that were already complete here. Those that the ref does not have are not decoded.
    pub(super) hits: u64,
    /// Entries that were copied.
    pub(super) pulled: u64,
    /// How many of these replaced failed or incomplete ones.
    repaired: u64,
    bytes: u64,
    /// Entries that a process works on here.
    skipped: Vec<Named>,
    /// Entries that are not complete in their refs.
    refused: Vec<Refused>,
    /// Those of them that are not here, and whose bytes the store has lost.
    #[serde(skip)]
    lost: BTreeSet<Vec<u8>>,
    /// Those that are wanted, and that a symlink of the directory leads away from it.
    #[serde(skip)]
    behind_links: BTreeSet<Vec<u8>>,
    secs: f64,
}

#[derive(Serialize)]
struct Source {
    #[serde(rename = "ref")]
    name: RefName,
    /// `None` if the ref does not exist.
    version: Option<u64>,
    pulled: u64,
}

/// Pulls into a directory from each ref in turn.
pub(super) fn pull(
    reader: &Reader<'_>,
    (root, refs): (&Path, &[RefName]),
    profile: &Profile,
    dry_run: bool,
) -> Result<PullReport> {
    let began = Instant::now();
    planted::check(root)?;
    store::check_outside(&root.join("entry"), &Precious::default())?;
    let is_there = |name: &RefName| reader.view().state.version(name, None).is_ok();
    if !dry_run && refs.iter().any(is_there) {
        store::make_directories(root)?;
    }
    // The path may be written into text files, so it must be valid in any directory.
    let root = &match store::canonical(root) {
        Err(error) if error.kind() == ErrorKind::NotFound => root.to_path_buf(),
        root => root?,
    };
    let mut here = of_dir::read(root, profile)?;
    let is_complete = |entry: &&Entry| entry.state(profile) == State::Complete;
    let mut report = PullReport {
        profile: profile.name.clone(),
        directory: root.to_path_buf(),
        dry_run,
        sources: Vec::new(),
        hits: here.values().filter(is_complete).count() as u64,
        pulled: 0,
        repaired: 0,
        bytes: 0,
        skipped: Vec::new(),
        refused: Vec::new(),
        lost: BTreeSet::new(),
        behind_links: BTreeSet::new(),
        secs: 0.0,
    };
    for name in refs {
        let mut stored = of_ref::read(reader, name, profile)?;
        if let Some(stored) = stored.as_mut().filter(|_| dry_run) {
            // A real pull checks the entries after the download, and looks for lost ones when it fails.
            of_ref::look_for_lost(stored, (reader, name), profile)?;
            let look = (reader, Look::Quick);
            of_ref::look_into(&mut stored.entries, look, profile, |path, _| {
                !here.get(path).as_ref().is_some_and(is_complete)
            })?;
        }
        if let Some(stored) = &stored {
            // One that is as it is in the ref was looked at when it was pushed.
            report.hits -= of_dir::look_through(&mut here, root, profile, |path, own| {
                let shape = profile.entry.get(own.shape);
                let both = stored.entries.get(path).zip(shape);
                both.is_some_and(|(entry, shape)| !own.looks_like(entry, shape))
            })?;
        }
        let mut source = Source {
            name: name.clone(),
            version: stored.as_ref().map(|stored| stored.version),
            pulled: 0,
        };
        if let Some(stored) = stored {
            let mut wanted = report.choose(&stored.entries, &here, (root, name), profile);
            let spec = format!("{name}@{}", stored.version).parse()?;
            if !wanted.is_empty() && !dry_run {
                let kept_out = bring(reader.store(), &spec, (root, &wanted), profile, &mut report)?;
                // Another ref may have the whole entry.
                wanted.retain(|path, _| !kept_out.contains(path));
            } else {
                report.pulled += wanted.len() as u64;
                report.bytes += wanted.values().map(Entry::bytes).sum::<u64>();
            }
            source.pulled = wanted.len() as u64;
            here.extend(wanted);
        }
        report.sources.push(source);
    }
    (report.lost).retain(|path| !here.get(path).as_ref().is_some_and(is_complete));
    report.secs = began.elapsed().as_secs_f64();
    Ok(report)
}

impl PullReport {
    /// Chooses the entries that are complete in the ref, not complete here, and not worked on by a process.
    fn choose(
        &mut self,
        stored: &Entries,
        here: &Entries,
        (root, name): (&Path, &RefName),
        profile: &Profile,
    ) -> Entries {
        let mut wanted = Entries::new();
        for (path, entry) in stored {
            let own = here.get(path);
            let is_here = own.is_some_and(|own| own.state(profile) == State::Complete);
            let state = entry.state(profile);
            if state == State::Lost {
                if !is_here {
                    self.lose(path, name);
                }
            } else if state != State::Complete {
                self.refused.push(Refused::new(path, state, Some(name)));
            } else if own.is_some_and(|own| place::is_in_work(root, path, own, profile)) {
                self.skip(path);
            } else if place::is_behind_link(root, path) {
                self.refuse_behind_link(path);
            } else if !is_here {
                wanted.insert(path.clone(), entry.clone());
            }
        }
        wanted
    }

    fn lose(&mut self, path: &[u8], name: &RefName) {
        self.refused
            .push(Refused::new(path, State::Lost, Some(name)));
        self.lost.insert(path.to_vec());
    }

    /// Refuses an entry that would not be in the directory. Several refs may have it.
    fn refuse_behind_link(&mut self, path: &[u8]) {
        if self.behind_links.insert(path.to_vec()) {
            let refused = Refused::new(path, State::BehindLink, None);
            self.refused.push(refused);
        }
    }

    /// Fails if the store has lost entries that are not here, or if symlinks lead entries elsewhere.
    pub(super) fn outcome(&self) -> Result<()> {
        match self.lost.len() as u64 {
            0 if !self.behind_links.is_empty() => Err(Error::partial(format!(
                "{} cannot be pulled: symlinks in {} lead elsewhere",
                human::counted(self.behind_links.len() as u64, "entry"),
                names::shown(self.directory.as_os_str().as_bytes())
            ))
            .hint("look at the symlinks, and remove them: entries are put into the directory itself alone")),
            0 => Ok(()),
            count => Err(Error::partial(format!(
                "{} cannot be pulled: the store has lost their bytes",
                human::counted(count, "entry")
            ))
            .hint("push them from a cache that has them: that stores them again")),
        }
    }

    fn skip(&mut self, path: &[u8]) {
        let known = self.skipped.iter().any(|known| known.is(path));
        if !known {
            self.skipped.push(Named::new(path));
        }
    }
}

/// Copies entries of a version into a temporary directory, then moves each to its place. Returns those that are truncated
/// or lost.
fn bring(
    store: &Store,
    spec: &RefSpec,
    (root, wanted): (&Path, &Entries),
    profile: &Profile,
    report: &mut PullReport,
) -> Result<BTreeSet<Vec<u8>>> {
    let stage = Stage::new(root)?;
    let built = stage.path().join("entries");
    let mut request = GetRequest::new(spec.clone(), &built);
    let paths = wanted.keys().map(|path| String::from_utf8_lossy(path));
    request.include = paths
        .map(|path| format!("/{}", Globs::escape(&path)))
        .collect();
    request.precious = config::precious();
    let mut kept_out = match get(store, &request, &Unwatched) {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            bring_singly(store, spec, (&built, wanted), report)?
        }
        got => {
            report.bytes += got?.bytes;
            BTreeSet::new()
        }
    };
    stage.flush()?;
    for (path, entry) in wanted {
        if kept_out.contains(path) {
            continue;
        }
        let from = built.join(OsStr::from_bytes(path));
        // Entries of a ref are not checked for truncated files before they are copied.
        if of_dir::one(&built, path, profile, Look::Whole)?.is_some_and(|entry| entry.is_cut()) {
            let refused = Refused::new(path, State::Incomplete, Some(&spec.name));
            report.refused.push(refused);
            kept_out.insert(path.clone());
            continue;
        }
        arrive(root, &from, entry, profile)?;
        match place::place(root, path, &from, profile)? {
            Placed::New => report.pulled += 1,
            Placed::Instead => {
                report.pulled += 1;
                report.repaired += 1;
            }
            Placed::There => report.hits += 1,
            Placed::InWork => report.skip(path),
            Placed::BehindLink => {
                report.refuse_behind_link(path);
                kept_out.insert(path.clone());
            }
        }
    }
    Ok(kept_out)
}

/// Copies each entry by itself, since the store has lost something of them. Returns the lost ones.
fn bring_singly(
    store: &Store,
    spec: &RefSpec,
    (built, wanted): (&Path, &Entries),
    report: &mut PullReport,
) -> Result<BTreeSet<Vec<u8>>> {
    let mut lost = BTreeSet::new();
    for path in wanted.keys() {
        let to = built.join(OsStr::from_bytes(path));
        store::make_directories(to.parent().unwrap_or(built))?;
        let of_entry = RefSpec {
            path: path.clone(),
            ..spec.clone()
        };
        let mut request = GetRequest::new(of_entry, &to);
        request.precious = config::precious();
        match get(store, &request, &Unwatched) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                report.lose(path, &spec.name);
                lost.insert(path.clone());
            }
            got => report.bytes += got?.bytes,
        }
    }
    Ok(lost)
}

/// Repairs the texts of a copied entry and keeps their times.
fn arrive(root: &Path, built: &Path, entry: &Entry, profile: &Profile) -> Result<()> {
    let Some(shape) = profile.entry.get(entry.shape) else {
        return Ok(());
    };
    for (path, _) in entry.files(shape) {
        // An entry that is a file has the empty path.
        let (file, path) = match path.is_empty() {
            true => (
                built.to_path_buf(),
                built.file_name().unwrap_or_default().as_bytes(),
            ),
            false => (built.join(OsStr::from_bytes(path)), path.as_slice()),
        };
        if !shape.is_rebased(path) {
            continue;
        }
        let failed = |source| Error::io("repair", &file, source);
        let stat = std::fs::symlink_metadata(&file).map_err(failed)?;
        if !stat.is_file() || stat.len() > TEXT_BYTES_MAX {
            continue;
        }
        let text = store::read_regular(&file, TEXT_BYTES_MAX).map_err(failed)?;
        let repaired = shape.arriving(path, text, root);
        std::fs::write(&file, repaired).map_err(failed)?;
        let time = stat.modified().map_err(failed)?;
        let opened = File::options().append(true).open(&file).map_err(failed)?;
        opened.set_modified(time).map_err(failed)?;
    }
    Ok(())
}

/// Pulls and reports.
pub(super) fn run(
    root: &Path,
    refs: &[RefName],
    profile: &Profile,
    dry_run: bool,
    context: &Context,
) -> Result<()> {
    let store = context.open()?;
    let report = pull(&Reader::new(&store)?, (root, refs), profile, dry_run)?;
    report.tell(context);
    context.out.report(&report)?;
    match report.sources.iter().any(|source| source.version.is_some()) {
        true => report.outcome(),
        false => {
            let all: Vec<&str> = refs.iter().map(RefName::as_str).collect();
            Err(Error::new(
                ErrorKind::NotFound,
                format!("{}: there is no such ref", all.join(", ")),
            )
            .hint(format!(
                "the first push makes it: `store cache --profile {} push {} {}`",
                names::quoted(&profile.name),
                names::quoted(&root.to_string_lossy()),
                names::quoted(all.first().copied().unwrap_or_default())
            )))
        }
    }
}

impl PullReport {
    pub(super) fn tell(&self, context: &Context) {
        for source in self
            .sources
            .iter()
            .filter(|source| source.version.is_none())
        {
            context
                .out
                .note(format_args!("note: {}: is not there yet", source.name));
        }
        super::tell_refused(&self.refused, context);
    }
}

impl fmt::Display for PullReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}: {} {}, {} there before",
            names::shown(self.directory.as_os_str().as_bytes()),
            human::counted(self.pulled, "entry"),
            if self.dry_run {
                "would be pulled"
            } else {
                "pulled"
            },
            human::count(self.hits),
        )?;
        for (count, told) in [
            (self.repaired, "in the place of broken ones"),
            (
                self.skipped.len() as u64,
                "skipped, since somebody works on them",
            ),
            (self.refused.len() as u64, "refused"),
        ] {
            if count > 0 {
                write!(out, ", {} {told}", human::count(count))?;
            }
        }
        write!(out, "\n{}", human::bytes(self.bytes))
    }
}
