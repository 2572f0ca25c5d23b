//! Saved Hub caches: the repos in a tree, and the commits of their branches.

use std::collections::{BTreeSet, HashMap};

use store::{Content, Error, Node, Reader, Result};

use crate::serve::hub::listing::Listing;
use crate::serve::hub::route::{Id, Type};
use crate::serve::source;
use crate::serve::text::is_hex;

/// Maximum bytes of a file in `refs/`.
const REF_BYTES_MAX: u64 = 1024;
/// Maximum bytes of the listing of a commit.
const LISTING_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of names below `refs/`.
const BRANCHES_MAX: usize = 10_000;

/// A repo in a saved cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) kind: Type,
    pub(super) id: Id,
    /// `models--OWNER--NAME`.
    pub(super) dir: Content,
}

/// The entry of a tree with this name.
fn child(reader: &Reader<'_>, tree: &Content, name: &str) -> Result<Option<Node>> {
    let entries = reader.tree(tree)?;
    let mut entries = entries.into_iter();
    Ok(entries
        .find(|entry| entry.name == name.as_bytes())
        .map(|entry| entry.node))
}

pub(super) fn subtree(reader: &Reader<'_>, tree: &Content, name: &str) -> Result<Option<Content>> {
    Ok(match child(reader, tree, name)? {
        Some(Node::Tree { content, .. }) => Some(content),
        _ => None,
    })
}

/// The saved repos in one directory.
pub(super) fn within(reader: &Reader<'_>, tree: &Content) -> Result<Vec<Saved>> {
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

/// The commit of a branch of a saved repo, or the commit itself.
pub(super) fn named_commit(
    reader: &Reader<'_>,
    dir: &Content,
    rev: &str,
) -> Result<Option<String>> {
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
    // A client that fetched one commit by its id has no branch.
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

/// The file with the listing of a commit.
pub(super) fn listing_of(
    reader: &Reader<'_>,
    dir: &Content,
    commit: &str,
) -> Result<Option<Content>> {
    let Some(trees) = subtree(reader, dir, "trees")? else {
        return Ok(None);
    };
    Ok(match child(reader, &trees, &format!("{commit}.json"))? {
        Some(Node::File { content, .. }) if content.size <= LISTING_BYTES_MAX => Some(content),
        _ => None,
    })
}

/// Reads the file of a listing.
pub(super) fn read_listing(reader: &Reader<'_>, content: &Content) -> Result<Listing> {
    let size = content.size;
    let text = source::read(reader, content, 0, size, size)?;
    let listing = Listing::parse(&text);
    listing.ok_or_else(|| Error::corrupt(format!("content {}: no listing", content.root)))
}

/// The files of a saved repo by hash.
pub(super) fn hashed(reader: &Reader<'_>, dir: &Content) -> Result<HashMap<String, Content>> {
    let Some(hashed) = subtree(reader, dir, "blobs")? else {
        return Ok(HashMap::new());
    };
    let entries = reader.tree(&hashed)?.into_iter();
    let named = entries.filter_map(|entry| {
        let Node::File { content, .. } = entry.node else {
            return None;
        };
        let name = String::from_utf8(entry.name).ok()?;
        let is_hash = is_hex(&name, 40) || is_hex(&name, 64);
        is_hash.then_some((name, content))
    });
    Ok(named.collect())
}

/// How many files of a snapshot are there: as they are, or as links to files of the repo.
pub(super) fn linked(reader: &Reader<'_>, snapshot: &Content, repo: &Content) -> Result<usize> {
    let held = hashed(reader, repo)?;
    let (mut found, mut waiting) = (0, vec![*snapshot]);
    while let Some(tree) = waiting.pop() {
        for entry in reader.tree(&tree)? {
            match entry.node {
                Node::Tree { content, .. } => waiting.push(content),
                Node::File { .. } => found += 1,
                Node::Symlink { target } => {
                    let name = target.rsplit(|byte| *byte == b'/').next();
                    let name = name.and_then(|name| std::str::from_utf8(name).ok());
                    found += usize::from(name.is_some_and(|name| held.contains_key(name)));
                }
            }
        }
    }
    Ok(found)
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

/// The names in `refs/` of a saved repo, with their commits.
pub(super) fn branches(reader: &Reader<'_>, dir: &Content) -> Result<Vec<(String, String)>> {
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
