//! Maps repos to refs, and revisions to versions or snapshots.
//!
//! `OWNER/NAME` in a namespace is the first of these that exists: the ref `models/OWNER/NAME` (or `datasets/`, ...);
//! the ref `OWNER/NAME`; `NAME`, if OWNER is the namespace's own name; `a/b/NAME`, if OWNER is `a.b`; a repo in a saved
//! Hub cache, in any ref of the namespace that has `models--OWNER--NAME` at its top or in `hub/`. A saved repo has its
//! original commits. Commits of other repos are derived from content and type, so they are the same on every cluster
//! and need no file to be read. A mirror is a saved repo that grows with the requests: the listing of a commit is
//! stored before all of its files are.

mod fullest;
mod mirrors;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use store::{Content, Namespace, Reader, RefName, Result, Root, Version};

use crate::serve::hub::hashes::derived;
use crate::serve::hub::route::{Id, Named, Type};
use crate::serve::hub::saved::{Saved, branches, listing_of, named_commit, subtree, within};
use crate::serve::memo::Memo;
pub(crate) use crate::serve::source::GATED;
use crate::serve::text::is_hex;

pub(crate) use self::mirrors::Mirrors;

/// Maximum versions of a ref in which to search a commit of a saved cache.
const VERSIONS_SEARCHED_MAX: usize = 64;
/// Maximum number of trees whose saved repos are cached.
const TREES_KNOWN_MAX: usize = 10_000;
/// How many digits clients give of a parent at least.
const SHORT_DIGITS_MIN: usize = 7;
/// Maximum number of versions to list as tags.
const TAGS_MAX: usize = 10_000;

/// Caches of repos: saved ones by the tree that holds them, and answers for the newest state.
#[derive(Default)]
pub(crate) struct Repos {
    saved: Mutex<HashMap<Content, Arc<Vec<Saved>>>>,
    found: Memo<Named, Option<Repo>>,
    mirrors: Memo<Named, Mirrors>,
    commits: Memo<(Named, RefName, String), Option<Commit>>,
}

/// An existing repo.
#[derive(Clone, Debug)]
pub(crate) struct Repo {
    pub(crate) named: Named,
    pub(crate) name: RefName,
    pub(in crate::serve::hub) is_saved: bool,
    pub(in crate::serve::hub) is_mirror: bool,
}

/// One revision of a repo.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) hex: String,
    /// The version of the ref that is this commit, or contains it.
    pub(crate) number: u64,
    pub(crate) title: String,
    pub(crate) time: Timestamp,
    pub(crate) files: FilesOf,
}

/// Where the files of a revision are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FilesOf {
    /// The root of a version.
    Root(Top),
    /// A snapshot of a saved repo: its tree, and that of the repo.
    Snapshot { snapshot: Content, repo: Content },
    /// A commit of a mirror: its listing, and the tree of the repo.
    Listed { listing: Content, repo: Content },
}

impl FilesOf {
    fn snapshot(&self) -> Option<Content> {
        match self {
            Self::Snapshot { snapshot, .. } => Some(*snapshot),
            _ => None,
        }
    }

    /// Whether the revision is a single file.
    pub(in crate::serve::hub) fn is_file(&self) -> bool {
        matches!(self, Self::Root(top) if !top.is_tree)
    }
}

/// The root of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Top {
    pub(crate) content: Content,
    pub(crate) is_tree: bool,
}

impl Repos {
    /// Finds a repo. Blocks.
    pub(crate) fn find(&self, reader: &Reader<'_>, named: &Named) -> Result<Option<Repo>> {
        let number = reader.view().state.number;
        let look = |named: &Named| self.look_for(reader, named);
        self.found.answer(number, named.clone(), look)
    }

    fn look_for(&self, reader: &Reader<'_>, named: &Named) -> Result<Option<Repo>> {
        for name in candidates(named) {
            if is_live(reader, &name)? {
                let mirror = match named.own_ref()? == name {
                    true => self.mirror(reader, named, &name)?,
                    false => None,
                };
                let plain = Repo::new(named, name, false, false);
                return Ok(Some(mirror.unwrap_or(plain)));
            }
        }
        let name = self.saved_elsewhere(reader, named)?;
        Ok(name.map(|name| Repo::new(named, name, true, false)))
    }

    /// The repos of a namespace by id, with the time of their newest version. Blocks.
    pub(crate) fn list(
        &self,
        reader: &Reader<'_>,
        namespace: &Namespace,
        kind: Type,
    ) -> Result<BTreeMap<Id, Timestamp>> {
        let view = reader.view();
        let mut repos = BTreeMap::new();
        for one in view.state.refs.within(Some(namespace)) {
            let (name, known) = one?;
            if name.path().starts_with(GATED) {
                continue;
            }
            let Some(version) = known.versions.values().next_back() else {
                continue;
            };
            let saved = self.saved(reader, version)?;
            if saved.is_empty() {
                repos.extend(id_of(namespace, &name, kind).map(|id| (id, version.time)));
            }
            let of_kind = saved.iter().filter(|saved| saved.kind == kind);
            repos.extend(of_kind.map(|saved| (saved.id.clone(), version.time)));
        }
        Ok(repos)
    }

    /// The commit that `rev` means in a repo, if any. Blocks.
    pub(crate) fn commit(
        &self,
        reader: &Reader<'_>,
        repo: &Repo,
        rev: &str,
    ) -> Result<Option<Commit>> {
        let number = reader.view().state.number;
        let asked = (repo.named.clone(), repo.name.clone(), rev.to_owned());
        let look = |_: &_| self.look_for_commit(reader, repo, rev);
        self.commits.answer(number, asked, look)
    }

    /// The repo and the commit that `rev` means in it, if both are in memory.
    pub(crate) fn known(
        &self,
        reader: &Reader<'_>,
        named: &Named,
        rev: &str,
    ) -> Option<(Repo, Commit)> {
        let number = reader.view().state.number;
        let repo = self.found.known(number, named)??;
        let asked = (repo.named.clone(), repo.name.clone(), rev.to_owned());
        let commit = self.commits.known(number, &asked)??;
        Some((repo, commit))
    }

    fn look_for_commit(
        &self,
        reader: &Reader<'_>,
        repo: &Repo,
        rev: &str,
    ) -> Result<Option<Commit>> {
        let view = reader.view();
        // In a mirror, `v2` may be a tag of the upstream.
        let digits = rev.strip_prefix('v').filter(|_| !repo.is_mirror);
        if let Some(number) = digits.and_then(|digits| digits.parse().ok()) {
            return match view.state.refs.version(&repo.name, number)? {
                Some(version) => self.of_version(reader, repo, number, &version, "main"),
                None => Ok(None),
            };
        }
        let versions = view.state.versions(&repo.name)?;
        let is_commit = is_hex(rev, 40);
        if repo.is_saved && !repo.is_mirror && is_commit {
            return self.fullest(reader, repo, &versions, rev);
        }
        let depth = match (repo.is_saved, is_commit) {
            (true, true) => VERSIONS_SEARCHED_MAX,
            (false, true) => usize::MAX,
            (_, false) => 1,
        };
        for (number, version) in versions.iter().rev().take(depth) {
            if let Some(commit) = self.of_version(reader, repo, *number, version, rev)? {
                return Ok(Some(commit));
            }
        }
        Ok(None)
    }

    /// The newest version of a repo that is this commit, given by all 40 digits or the first of them. Blocks.
    pub(crate) fn number(
        &self,
        reader: &Reader<'_>,
        repo: &Repo,
        hex: &str,
    ) -> Result<Option<u64>> {
        if hex.len() < SHORT_DIGITS_MIN {
            return Ok(None);
        }
        let versions = reader.view().state.versions(&repo.name)?;
        let mut versions = versions.iter().rev();
        let found = versions.find(|(_, version)| repo.hex(&version.root).starts_with(hex));
        Ok(found.map(|(number, _)| *number))
    }

    /// The commits of a repo from `rev` back, newest first. Blocks.
    pub(crate) fn history(
        &self,
        reader: &Reader<'_>,
        repo: &Repo,
        rev: &str,
    ) -> Result<Option<Vec<Commit>>> {
        let Some(first) = self.commit(reader, repo, rev)? else {
            return Ok(None);
        };
        if repo.is_saved {
            return Ok(Some(vec![first]));
        }
        let view = reader.view();
        let mut commits: Vec<Commit> = Vec::new();
        for (number, version) in view.state.versions(&repo.name)?.iter().rev() {
            let commit = plain(repo, *number, version);
            let is_reached = !commits.is_empty() || commit.hex == first.hex;
            if is_reached && commits.last().is_none_or(|last| last.hex != commit.hex) {
                commits.push(commit);
            }
        }
        Ok(Some(commits))
    }

    /// The branches by name with their commits, and the tags, which are version numbers. Blocks.
    pub(crate) fn refs(
        &self,
        reader: &Reader<'_>,
        repo: &Repo,
    ) -> Result<[Vec<(String, String)>; 2]> {
        let view = reader.view();
        let versions = view.state.versions(&repo.name)?;
        let Some((number, newest)) = versions.last_key_value() else {
            return Ok([Vec::new(), Vec::new()]);
        };
        if let Some(dir) = self
            .saved_repo(reader, newest, &repo.named)
            .map(|found| found.filter(|_| repo.is_saved))?
        {
            return Ok([branches(reader, &dir)?, Vec::new()]);
        }
        let main = plain(repo, *number, newest);
        let tags = versions.iter().rev().take(TAGS_MAX);
        let tags =
            tags.map(|(number, version)| (format!("v{number}"), plain(repo, *number, version).hex));
        Ok([vec![("main".to_owned(), main.hex)], tags.collect()])
    }

    /// The commit that `rev` means in this version, if any.
    fn of_version(
        &self,
        reader: &Reader<'_>,
        repo: &Repo,
        number: u64,
        version: &Version,
        rev: &str,
    ) -> Result<Option<Commit>> {
        if !repo.is_saved {
            let commit = plain(repo, number, version);
            let is_it = rev == "main" || rev == commit.hex;
            return Ok(is_it.then_some(commit));
        }
        let Some(dir) = self.saved_repo(reader, version, &repo.named)? else {
            return Ok(None);
        };
        let Some(hex) = named_commit(reader, &dir, rev)? else {
            return Ok(None);
        };
        let commit = |hex: String, files| Commit {
            hex,
            number,
            title: title(number, version),
            time: version.time,
            files,
        };
        if repo.is_mirror {
            let listing = listing_of(reader, &dir, &hex)?;
            let files = listing.map(|listing| FilesOf::Listed { listing, repo: dir });
            return Ok(files.map(|files| commit(hex, files)));
        }
        let snapshots = subtree(reader, &dir, "snapshots")?;
        let Some(snapshots) = snapshots else {
            return Ok(None);
        };
        let snapshot = subtree(reader, &snapshots, &hex)?;
        let files = snapshot.map(|snapshot| FilesOf::Snapshot {
            snapshot,
            repo: dir,
        });
        Ok(files.map(|files| commit(hex, files)))
    }

    pub(in crate::serve::hub) fn saved_repo(
        &self,
        reader: &Reader<'_>,
        version: &Version,
        named: &Named,
    ) -> Result<Option<Content>> {
        let saved = self.saved(reader, version)?;
        let mut saved = saved.iter();
        let found = saved.find(|saved| saved.kind == named.kind && saved.id == named.id);
        Ok(found.map(|saved| saved.dir))
    }

    fn saved(&self, reader: &Reader<'_>, version: &Version) -> Result<Arc<Vec<Saved>>> {
        let Root::Tree { content, .. } = version.root else {
            return Ok(Arc::default());
        };
        let memory = || self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = memory().get(&content) {
            return Ok(Arc::clone(known));
        }
        let mut found = within(reader, &content)?;
        if let Some(hub) = subtree(reader, &content, "hub")? {
            found.extend(within(reader, &hub)?);
        }
        let found = Arc::new(found);
        let mut memory = memory();
        if memory.len() >= TREES_KNOWN_MAX {
            memory.clear();
        }
        memory.insert(content, Arc::clone(&found));
        Ok(found)
    }
}

impl Repo {
    pub(in crate::serve::hub) fn new(
        named: &Named,
        name: RefName,
        is_saved: bool,
        is_mirror: bool,
    ) -> Self {
        Self {
            named: named.clone(),
            name,
            is_saved,
            is_mirror,
        }
    }

    /// Whether everybody who may see the namespace may see the repo.
    pub(crate) fn is_open(&self) -> bool {
        !self.name.path().starts_with(GATED)
    }

    /// Whether the repo is part of a saved cache.
    pub(crate) fn is_saved(&self) -> bool {
        self.is_saved
    }

    /// The commit id of a version with this root.
    pub(crate) fn hex(&self, root: &Root) -> String {
        let content = root.content();
        let is_tree = matches!(root, Root::Tree { .. });
        let kind = self.named.kind.plural();
        derived(&format!(
            "{kind} {is_tree} {} {}",
            content.root, content.size
        ))
    }
}

impl Named {
    /// Whether its owner is the namespace itself.
    pub(crate) fn is_of_namespace(&self) -> bool {
        let own = self.namespace.as_str().rsplit('/').next();
        let owner = self.id.as_str().split_once('/').map(|(owner, _)| owner);
        owner.is_none() || own == owner
    }

    /// The ref of a repo that is created through the door.
    pub(crate) fn own_ref(&self) -> Result<RefName> {
        let (namespace, kind, id) = (&self.namespace, self.kind.plural(), self.id.as_str());
        format!("{namespace}/{kind}/{id}").parse()
    }

    /// The ref of the mirror of a repo that is not public.
    pub(crate) fn gated_ref(&self) -> Result<RefName> {
        let (namespace, kind, id) = (&self.namespace, self.kind.plural(), self.id.as_str());
        format!("{namespace}/{GATED}{kind}/{id}").parse()
    }
}

pub(in crate::serve::hub) fn is_live(reader: &Reader<'_>, name: &RefName) -> Result<bool> {
    let head = reader.view().state.refs.head(name)?;
    Ok(head.is_some_and(|head| head.live > 0))
}

/// The refs that may be this repo, in order of precedence.
fn candidates(named: &Named) -> Vec<RefName> {
    let Named {
        namespace,
        kind,
        id,
    } = named;
    let (id, kind) = (id.as_str(), kind.plural());
    let mut names = vec![
        format!("{namespace}/{kind}/{id}"),
        format!("{namespace}/{id}"),
    ];
    if let Some((owner, name)) = id.split_once('/') {
        let own = namespace.as_str().rsplit('/').next();
        names.extend((own == Some(owner)).then(|| format!("{namespace}/{name}")));
        let is_deep = owner.contains('.');
        names.extend(is_deep.then(|| format!("{namespace}/{}/{name}", owner.replace('.', "/"))));
    }
    names
        .into_iter()
        .filter_map(|name| name.parse().ok())
        .collect()
}

/// The id of a ref as a repo of this type; `None` if it has another type, or no valid id.
fn id_of(namespace: &Namespace, name: &RefName, kind: Type) -> Option<Id> {
    let path = name.path();
    if let Some((first, rest)) = path.split_once('/')
        && let Some(of) = Type::parse(first)
        && let Some(id) = Id::parse(rest)
    {
        return (of == kind).then_some(id);
    }
    let own = namespace.as_str().rsplit('/').next()?;
    let id = match path.rsplit_once('/') {
        None => format!("{own}/{path}"),
        Some((owner, name)) => format!("{}/{name}", owner.replace('/', ".")),
    };
    Id::parse(&id)
}

/// The commit of a version that is not a saved repo.
fn plain(repo: &Repo, number: u64, version: &Version) -> Commit {
    let content = *version.root.content();
    let is_tree = matches!(version.root, Root::Tree { .. });
    Commit {
        hex: repo.hex(&version.root),
        number,
        title: title(number, version),
        time: version.time,
        files: FilesOf::Root(Top { content, is_tree }),
    }
}

fn title(number: u64, version: &Version) -> String {
    match version.message.lines().next() {
        Some(first) if !first.is_empty() => first.to_owned(),
        _ => format!("version {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(id: &str) -> Named {
        Named {
            namespace: "project/llama-ft".parse().unwrap(),
            kind: Type::Dataset,
            id: Id::parse(id).unwrap(),
        }
    }

    #[test]
    fn refs_have_names_as_repos_and_repos_have_refs() {
        for (path, id) in [
            ("imagenet", "llama-ft/imagenet"),
            ("org/data", "org/data"),
            ("a/b/c", "a.b/c"),
            ("datasets/org/data", "org/data"),
        ] {
            let name: RefName = format!("project/llama-ft/{path}").parse().unwrap();
            let found = id_of(&name.namespace(), &name, Type::Dataset).unwrap();
            assert_eq!(found.as_str(), id);
            assert!(candidates(&named(id)).contains(&name), "{path}");
        }
        let model: RefName = "project/llama-ft/models/a/b".parse().unwrap();
        assert_eq!(id_of(&model.namespace(), &model, Type::Dataset), None);
        let deep: RefName = "project/llama-ft/a--b/c".parse().unwrap();
        assert_eq!(id_of(&deep.namespace(), &deep, Type::Dataset), None);
    }
}
