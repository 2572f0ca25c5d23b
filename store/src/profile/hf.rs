//! The profile of Hugging Face caches: HF_HOME, hub caches, single repositories.
//!
//! It keeps what readers of every generation of the clients need, and nothing that is bound to a host. A link in
//! `blobs/` into a shared store becomes the file itself; a link out of the tree is refused; files that do not match
//! each other are an error before anything is published.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::check::{Check, HashName};
use super::excluded::Excluded;
use super::links;
use super::repo::{Repo, broken};
use super::rules::{HubPlace, RootKind, Verdict, is_commit, judge};
use super::{
    Admitted, AdmittedFile, ProfileChoice, ProfileOptions, SECRET_RULES, SecretPaths, Secrets,
};
use crate::error::{Error, Result};
use crate::host::walk::{Filter, Globs, Item, find_file};
use crate::remedy::{Note, Remedy};

/// Most bytes of a ref that are read: anything longer is no commit.
const REF_BYTES_MAX: u64 = 100;
/// How often a ref that holds no commit is read again. Each wait is longer than the one before, so that the reads do
/// not keep step with a client that writes at a steady pace.
const REF_LOOKS_MAX: u32 = 20;
const REF_PAUSE: Duration = Duration::from_millis(3);
/// Most bytes of a listing that is compared with its snapshot.
const LISTING_BYTES_MAX: u64 = 64 << 20;
/// Most findings of one kind that are named; further ones are counted.
const NAMED_MAX: usize = 20;

/// The profile during one put.
pub(crate) struct Hf {
    root: PathBuf,
    kind: RootKind,
    is_found: bool,
    /// None, if all credentials are accepted.
    secrets: Option<Arc<Secrets>>,
    /// The rules for the bytes of files, as part of a name.
    rules: String,
    /// What the walk excludes.
    excluded: Globs,
    check: bool,
    check_hashes: bool,
    /// Whether what does not match its name is left out.
    leaves_out: bool,
    by_rule: Arc<Excluded>,
    depth: usize,
    /// The repository that the walk is in, and its depth.
    repo: Option<(Repo, usize)>,
    findings: Findings,
}

/// What the notes say of the tree.
#[derive(Default)]
struct Findings {
    complete: u64,
    partial: Named,
    unreadable_listings: Named,
    empty_refs: Named,
    unchecked: u64,
    /// Links whose targets are excluded.
    unlinked: u64,
}

impl Hf {
    pub(super) fn new(
        options: &ProfileOptions,
        root: &Path,
        kind: Option<RootKind>,
        paths: SecretPaths,
        secrets: Option<Arc<Secrets>>,
        excluded: Globs,
    ) -> Self {
        let is_found = options.choice == ProfileChoice::Auto;
        let kind = kind.unwrap_or(RootKind::Home);
        let by_rule = Excluded::new(kind, options.with.clone(), paths);
        Self {
            root: root.to_path_buf(),
            kind,
            is_found,
            rules: format!(
                "\0hf {} {} {} {SECRET_RULES} {:?}",
                options.check, options.check_hashes, options.allow_secrets, options.allow_secret
            ),
            secrets,
            excluded,
            check: options.check,
            check_hashes: options.check_hashes,
            leaves_out: options.leave_out_secrets,
            by_rule: Arc::new(by_rule),
            depth: 0,
            repo: None,
            findings: Findings::default(),
        }
    }

    pub(super) fn filter(&self) -> Arc<dyn Filter> {
        let by_rule: Arc<Excluded> = Arc::clone(&self.by_rule);
        by_rule
    }

    /// The rules for the bytes of files, as part of a name. They hold a NUL, which no path does.
    pub(super) fn rules(&self) -> String {
        self.rules.clone()
    }

    pub(super) fn secrets(&self) -> Option<Arc<Secrets>> {
        self.secrets.clone()
    }

    pub(super) fn admit(&mut self, path: &[u8], item: Item) -> Result<Admitted> {
        match item {
            Item::Enter { ref stat, .. } => {
                if let Some(secrets) = &self.secrets {
                    secrets.look(path, stat, true)?;
                }
                self.enter(path);
                Ok(item.into())
            }
            Item::Leave => {
                self.leave()?;
                Ok(item.into())
            }
            Item::Symlink { .. } => self.link(path, item),
            Item::File { .. } => {
                let place = self.place(path, false);
                self.file(path, place, item.into())
            }
            Item::Skipped { .. } => Ok(item.into()),
        }
    }

    /// Whether the walk is in a repository. Clients create repositories, and some their files, for one user (0700,
    /// 0600).
    pub(super) fn is_in_repo(&self) -> bool {
        self.repo.is_some()
    }

    fn place(&self, path: &[u8], is_dir: bool) -> HubPlace {
        match judge(self.kind, path, is_dir) {
            Verdict::Keep(place) => place,
            Verdict::Out(_) => HubPlace::Other,
        }
    }

    fn enter(&mut self, path: &[u8]) {
        self.depth += 1;
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let is_root_repo = path.is_empty() && self.kind == RootKind::Repo;
        match (self.place(path, true), &mut self.repo) {
            (HubPlace::Repo, None) => self.repo = Some((Repo::new(path), self.depth)),
            (HubPlace::Snapshot, Some((repo, _))) => repo.add_snapshot(name),
            (_, None) if is_root_repo => self.repo = Some((Repo::new(path), self.depth)),
            _ => {}
        }
    }

    fn leave(&mut self) -> Result<()> {
        let depth = self.depth;
        self.depth = depth.saturating_sub(1);
        if let Some((repo, _)) = self.repo.take_if(|(_, at)| *at == depth)
            && self.check
        {
            for path in repo.finish()? {
                self.findings.empty_refs.push(path);
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &[u8], place: HubPlace, admitted: Admitted) -> Result<Admitted> {
        let Admitted::File(mut file) = admitted else {
            return Ok(admitted);
        };
        let mut check = Check {
            search: self.secrets.as_ref().map(|secrets| secrets.search(path)),
            ..Check::default()
        };
        if let Some(secrets) = &self.secrets {
            secrets.look(path, &file.stat, false)?;
        }
        if let Some((repo, _)) = &mut self.repo {
            file.may_execute = false;
            match place {
                HubPlace::Payload => {
                    repo.add_payload(&file.name);
                    check.is_optional = self.leaves_out;
                    check.name = HashName::parse(&file.name).filter(|_| self.check_hashes);
                    self.findings.unchecked += u64::from(self.check_hashes && check.name.is_none());
                }
                HubPlace::SnapshotEntry => repo.add_entry(path),
                HubPlace::Ref if self.check => {
                    let text = read_ref(&mut file)?;
                    repo.add_ref(path, &text)?;
                    check.exact = Some(text);
                }
                HubPlace::Listing if self.check => self.findings.listing(repo, path, &file)?,
                _ => {}
            }
        }
        file.check = check.is_any().then_some(check);
        Ok(Admitted::File(file))
    }

    fn link(&mut self, path: &[u8], item: Item) -> Result<Admitted> {
        let Item::Symlink { name, target, stat } = item else {
            return Ok(item.into());
        };
        let place = self.place(path, false);
        if place == HubPlace::Payload && self.repo.is_some() {
            return self.linked_payload(path, name);
        }
        let root = self.root.as_os_str().as_bytes();
        let target = match links::resolve(root, path, &target) {
            _ if place == HubPlace::Foreign || !self.check => target,
            None => {
                let shown = target.escape_ascii();
                return Err(broken(
                    path,
                    format!("its link leads out of the tree, to {shown}"),
                ));
            }
            Some(inside) if self.is_excluded(&inside) => {
                self.findings.unlinked += 1;
                return Ok(Admitted::Out);
            }
            Some(inside) => {
                self.must_exist(path, place, &inside)?;
                match target.starts_with(b"/") {
                    true => links::relative(path, &inside),
                    false => target,
                }
            }
        };
        if let (HubPlace::SnapshotEntry, Some((repo, _))) = (place, &mut self.repo) {
            repo.add_entry(path);
        }
        Ok(Item::Symlink { name, target, stat }.into())
    }

    /// Whether a target is excluded on request, so that a link to it would dangle.
    fn is_excluded(&self, inside: &[u8]) -> bool {
        let ends = inside.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut parents = ends.filter_map(|(end, _)| inside.get(..end));
        let is_dir = || self.at(inside).is_dir();
        !self.excluded.is_empty()
            && (parents.any(|parent| self.excluded.is_match(parent, true))
                || self.excluded.is_match(inside, false)
                || (self.excluded.is_match(inside, true) && is_dir()))
    }

    /// Checks that the target of a link in a snapshot was found by the walk.
    fn must_exist(&self, path: &[u8], place: HubPlace, inside: &[u8]) -> Result<()> {
        let (HubPlace::SnapshotEntry, Some((repo, _))) = (place, &self.repo) else {
            return Ok(());
        };
        let is_there = repo
            .payload_at(inside)
            .unwrap_or_else(|| self.at(path).exists());
        if is_there {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(inside);
        Err(broken(
            path,
            format!("its link leads to {shown}, found nothing there"),
        ))
    }

    /// Replaces a link in `blobs/` by its target: readers want the bytes, and the shared store is not put. The target
    /// may be outside of the tree if the name of the link proves its bytes.
    fn linked_payload(&mut self, path: &[u8], name: Vec<u8>) -> Result<Admitted> {
        let at = self.at(path);
        let real = at
            .canonicalize()
            .map_err(|source| Error::io("follow link", &at, source))?;
        let is_proven = self.check && HashName::parse(&name).is_some();
        if !real.starts_with(&self.root) && !is_proven {
            let shown = real.display();
            return Err(broken(
                path,
                format!("its link leads out of the tree, to {shown}"),
            ));
        }
        let mut admitted = Admitted::from(find_file(&real)?);
        if let Admitted::File(file) = &mut admitted {
            file.name = name;
        }
        self.file(path, HubPlace::Payload, admitted)
    }

    fn at(&self, path: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(path))
    }

    pub(super) fn filter_untold(&self) -> Arc<dyn Filter> {
        Arc::new(self.by_rule.anew())
    }

    pub(super) fn harmless(&self) -> u64 {
        self.by_rule.harmless()
    }

    pub(super) fn notes(&self) -> Vec<Note> {
        let kind = match self.kind {
            RootKind::Home => "an HF_HOME",
            RootKind::Hub => "a hub cache",
            RootKind::Repo => "a repository of a hub cache",
            RootKind::Above => "the home of an HF_HOME",
        };
        let found = self.is_found.then(|| {
            let text = format!("profile hf, since it looks like {kind}");
            Note::with(text, Remedy::NoProfile)
        });
        let mut notes: Vec<Note> = found.into_iter().collect();
        notes.extend(self.by_rule.notes());
        notes.extend(self.findings.told().into_iter().map(Note::from));
        notes
    }
}

impl Findings {
    fn listing(&mut self, repo: &Repo, path: &[u8], file: &AdmittedFile) -> Result<()> {
        let name = file.name.strip_suffix(b".json").unwrap_or(&file.name);
        let shown = String::from_utf8_lossy(path).into_owned();
        if file.stat.size > LISTING_BYTES_MAX {
            self.unreadable_listings.push(shown);
            return Ok(());
        }
        match repo.compare(name, &read(file, LISTING_BYTES_MAX)?) {
            Err(_) => self.unreadable_listings.push(shown),
            Ok(found) if found.present == found.listed => self.complete += 1,
            Ok(found) => {
                let counts = format!("{} of {} files", found.present, found.listed);
                self.partial.push(format!("{shown}: {counts} are here"));
            }
        }
        Ok(())
    }

    fn told(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut counted = |count: u64, what: &str| {
            if count > 0 {
                notes.push(format!("{count} {what}"));
            }
        };
        counted(self.complete, "snapshots complete, by their listings");
        counted(
            self.unchecked,
            "files in blobs/ not checked: their names are no hashes",
        );
        counted(
            self.unlinked,
            "links left out, since what they lead to is excluded",
        );
        notes.extend(
            self.partial
                .told(|what| format!("partial: {what}"), "snapshots"),
        );
        let unreadable = |path: &str| format!("{path}: not a listing of files");
        notes.extend(self.unreadable_listings.told(unreadable, "listings"));
        let empty = |path: &str| format!("{path}: nothing of its commit is here");
        notes.extend(self.empty_refs.told(empty, "refs"));
        notes
    }
}

/// The first findings of one kind, and the number of further ones.
#[derive(Debug, Default)]
struct Named {
    first: Vec<String>,
    more: u64,
}

impl Named {
    fn push(&mut self, what: String) {
        match self.first.len() < NAMED_MAX {
            true => self.first.push(what),
            false => self.more += 1,
        }
    }

    /// Returns one note with `words` for each named finding, and one that counts the others as `things`.
    fn told(&self, words: impl Fn(&str) -> String, things: &str) -> Vec<String> {
        let mut notes: Vec<String> = self.first.iter().map(|what| words(what)).collect();
        if self.more > 0 {
            notes.push(words(&format!("{} more {things}", self.more)));
        }
        notes
    }
}

/// Reads a ref. Some clients empty the file before they write it, so a ref without a commit is read again for a while.
fn read_ref(file: &mut AdmittedFile) -> Result<Vec<u8>> {
    let mut text = read(file, REF_BYTES_MAX)?;
    for look in 1..=REF_LOOKS_MAX {
        if is_commit(&text) && file.stat.size == text.len() as u64 {
            break;
        }
        std::thread::sleep(REF_PAUSE * look);
        file.stat = file.dir.stat(&file.file)?;
        text = read(file, REF_BYTES_MAX)?;
    }
    Ok(text)
}

/// Reads at most `max` bytes from the beginning of a file.
fn read(file: &AdmittedFile, max: u64) -> Result<Vec<u8>> {
    let opened: File = file.dir.open_file(&file.file)?;
    let mut bytes = Vec::new();
    opened
        .take(max)
        .read_to_end(&mut bytes)
        .map_err(|source| Error::io("read", file.dir.path_of(&file.file), source))?;
    Ok(bytes)
}
