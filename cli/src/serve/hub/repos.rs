//! Which ref is a repo, and which version or snapshot is a revision of it.
//!
//! `OWNER/NAME` in a namespace is, the first of these that is there: the ref `models/OWNER/NAME` (or `datasets/`, ...), the ref
//! `OWNER/NAME`; `NAME`, where OWNER is the namespace's own name; `a/b/NAME`, where OWNER is `a.b`; a repo in a saved cache
//! of a Hub, any ref of the namespace that holds `models--OWNER--NAME` at its top or in `hub/`.
//! A saved repo has the commits that it came with. All others have commits that are derived from the content and the type: the
//! same on every cluster, without looking at a file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use store::{Content, Namespace, Node, Reader, RefName, Result, Root, Version};

use crate::serve::hub::hashes::derived;
use crate::serve::hub::route::{Id, Named, Type};
use crate::serve::source;
use crate::serve::text::is_hex;

/// Versions of a ref in which a commit of a saved cache is looked for.
const VERSIONS_SEARCHED_MAX: usize = 64;
/// Trees whose saved repos are remembered.
const TREES_KNOWN_MAX: usize = 10_000;
/// Most bytes of a file in `refs/`.
const REF_BYTES_MAX: u64 = 1024;
/// Names below `refs/` that are told.
const BRANCHES_MAX: usize = 10_000;

/// Saved repos by the tree that holds them.
#[derive(Default)]
pub(crate) struct Repos {
    saved: Mutex<HashMap<Content, Arc<Vec<Saved>>>>,
}

/// A repo in a saved cache.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Saved {
    kind: Type,
    id: Id,
    /// `models--OWNER--NAME`.
    dir: Content,
}

/// A repo that is there.
#[derive(Clone, Debug)]
pub(crate) struct Repo {
    pub(crate) named: Named,
    pub(crate) name: RefName,
    is_saved: bool,
}

/// One revision of a repo.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) hex: String,
    pub(crate) title: String,
    pub(crate) time: Timestamp,
    pub(crate) files: FilesOf,
}

/// Where the files of a revision are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FilesOf {
    /// What a version is.
    Root(Top),
    /// A snapshot of a saved repo: its tree, and that of the repo.
    Snapshot { snapshot: Content, repo: Content },
}

/// The root of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Top {
    pub(crate) content: Content,
    pub(crate) is_tree: bool,
}

impl Repos {
    /// The repo of this name, if there is one. Blocks.
    pub(crate) fn find(&self, reader: &Reader<'_>, named: &Named) -> Result<Option<Repo>> {
        let view = reader.view();
        let found = |name: RefName, is_saved| {
            Some(Repo {
                named: named.clone(),
                name,
                is_saved,
            })
        };
        for name in candidates(named) {
            if view
                .state
                .refs
                .head(&name)?
                .is_some_and(|head| head.live > 0)
            {
                return Ok(found(name, false));
            }
        }
        for one in view.state.refs.within(Some(&named.namespace)) {
            let (name, known) = one?;
            if let Some(version) = known.versions.values().next_back()
                && self.saved_repo(reader, version, named)?.is_some()
            {
                return Ok(found(name, true));
            }
        }
        Ok(None)
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

    /// What `rev` means in a repo, if it means anything. Blocks.
    pub(crate) fn commit(
        &self,
        reader: &Reader<'_>,
        repo: &Repo,
        rev: &str,
    ) -> Result<Option<Commit>> {
        let view = reader.view();
        if let Some(number) = rev.strip_prefix('v').and_then(|digits| digits.parse().ok()) {
            return match view.state.refs.version(&repo.name, number)? {
                Some(version) => self.of_version(reader, repo, number, &version, "main"),
                None => Ok(None),
            };
        }
        let versions = view.state.versions(&repo.name)?;
        let is_commit = is_hex(rev, 40);
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

    /// The commits of a repo from `rev` back, the newest first. Blocks.
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

    /// Branches by name with their commits, and tags: versions by their numbers. Blocks.
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
        let tags = versions.iter().rev().take(BRANCHES_MAX);
        let tags =
            tags.map(|(number, version)| (format!("v{number}"), plain(repo, *number, version).hex));
        Ok([vec![("main".to_owned(), main.hex)], tags.collect()])
    }

    /// What `rev` means in this version, if it means anything there.
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
        let snapshots = subtree(reader, &dir, "snapshots")?;
        let Some(snapshots) = snapshots else {
            return Ok(None);
        };
        let snapshot = subtree(reader, &snapshots, &hex)?;
        Ok(snapshot.map(|snapshot| Commit {
            hex,
            title: title(number, version),
            time: version.time,
            files: FilesOf::Snapshot {
                snapshot,
                repo: dir,
            },
        }))
    }

    fn saved_repo(
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

/// Refs that may be this repo, the first of them first.
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

/// How a client names the ref as a repo of this type; none, where it is of another one or no client can.
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

/// The commit of a version that is no saved repo.
fn plain(repo: &Repo, number: u64, version: &Version) -> Commit {
    let content = *version.root.content();
    let is_tree = matches!(version.root, Root::Tree { .. });
    let kind = repo.named.kind.plural();
    Commit {
        hex: derived(&format!(
            "{kind} {is_tree} {} {}",
            content.root, content.size
        )),
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

/// What a name in a tree stands for.
pub(crate) fn child(reader: &Reader<'_>, tree: &Content, name: &str) -> Result<Option<Node>> {
    let entries = reader.tree(tree)?;
    let mut entries = entries.into_iter();
    Ok(entries
        .find(|entry| entry.name == name.as_bytes())
        .map(|entry| entry.node))
}

pub(crate) fn subtree(reader: &Reader<'_>, tree: &Content, name: &str) -> Result<Option<Content>> {
    Ok(match child(reader, tree, name)? {
        Some(Node::Tree { content, .. }) => Some(content),
        _ => None,
    })
}

/// Saved repos in one directory.
fn within(reader: &Reader<'_>, tree: &Content) -> Result<Vec<Saved>> {
    let entries = reader.tree(tree)?.into_iter();
    let saved = entries.filter_map(|entry| {
        let Node::Tree { content, .. } = entry.node else {
            return None;
        };
        let (kind, id) = std::str::from_utf8(&entry.name).ok()?.split_once("--")?;
        Some(Saved {
            kind: Type::parse(kind)?,
            id: Id::parse(&id.replacen("--", "/", 1))?,
            dir: content,
        })
    });
    Ok(saved.collect())
}

/// The commit that a branch of a saved repo is at, or the commit itself.
fn named_commit(reader: &Reader<'_>, dir: &Content, rev: &str) -> Result<Option<String>> {
    if is_hex(rev, 40) {
        return Ok(Some(rev.to_owned()));
    }
    let mut at = subtree(reader, dir, "refs")?;
    let mut names = rev.split('/').peekable();
    while let (Some(tree), Some(name)) = (at, names.next()) {
        if names.peek().is_some() {
            at = subtree(reader, &tree, name)?;
            continue;
        }
        if let Some(Node::File { content, .. }) = child(reader, &tree, name)? {
            return of_file(reader, &content);
        }
        break;
    }
    // Who fetched one commit by its name has no branch.
    let only = match rev {
        "main" => subtree(reader, dir, "snapshots")?,
        _ => None,
    };
    let Some(only) = only else {
        return Ok(None);
    };
    let names: BTreeSet<Vec<u8>> = reader
        .tree(&only)?
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    let name = names.first().filter(|_| names.len() == 1);
    Ok(name.and_then(|name| String::from_utf8(name.clone()).ok()))
}

fn of_file(reader: &Reader<'_>, content: &Content) -> Result<Option<String>> {
    if content.size > REF_BYTES_MAX {
        return Ok(None);
    }
    let bytes = match content.size {
        0 => Vec::new(),
        size => source::read(reader, content, 0, size, size)?,
    };
    let text = String::from_utf8(bytes).unwrap_or_default();
    let hex = text.trim();
    Ok(is_hex(hex, 40).then(|| hex.to_owned()))
}

/// What is in `refs/` of a saved repo.
fn branches(reader: &Reader<'_>, dir: &Content) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut waiting = vec![(String::new(), subtree(reader, dir, "refs")?)];
    while let Some((above, tree)) = waiting.pop() {
        let Some(tree) = tree else { continue };
        for entry in reader.tree(&tree)? {
            let Ok(name) = String::from_utf8(entry.name) else {
                continue;
            };
            let name = format!("{above}{name}");
            match entry.node {
                Node::Tree { content, .. } => waiting.push((name + "/", Some(content))),
                Node::File { content, .. } if found.len() < BRANCHES_MAX => {
                    found.extend(of_file(reader, &content)?.map(|hex| (name, hex)));
                }
                _ => {}
            }
        }
    }
    if found.is_empty() {
        let main = named_commit(reader, dir, "main")?;
        found.extend(main.map(|hex| ("main".to_owned(), hex)));
    }
    found.sort();
    Ok(found)
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
