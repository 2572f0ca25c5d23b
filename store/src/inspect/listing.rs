//! ls: the namespaces of a store, the refs of a namespace, the entries of a ref.
//!
//! Refs come from the log alone. For entries, reads the listed trees, but nothing of the files.

use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    Content, Namespace, Node, RefHead, RefName, RefSpec, RefSums, State, Time, TreeEntry, Version,
};
use crate::read::{Reader, TimesReader};

/// How to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListOptions {
    /// List everything below, rather than the entries of one directory.
    pub recursive: bool,
    /// Include modification times, which are read from a separate list.
    pub times: bool,
    /// Where the entries of a directory are lost, list it without them, rather than end there.
    pub lost: bool,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Path below what was listed; empty if that is a single file or link.
    pub path: Vec<u8>,
    /// What it refers to.
    pub node: Node,
    /// When it was modified, if times were requested.
    pub time: Option<Time>,
    /// Whether it is a directory whose entries are lost; only with [`ListOptions::lost`].
    pub is_lost: bool,
}

/// A namespace and its totals.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct NamespaceLine {
    /// Its name.
    #[serde(rename = "namespace")]
    pub name: Namespace,
    /// Refs that have a version.
    pub refs: u64,
    /// Totals of these refs.
    #[serde(flatten)]
    pub kept: Kept,
}

/// A ref and its totals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefLine {
    /// Its name.
    pub name: RefName,
    /// Number of the newest version.
    pub newest: u64,
    /// The newest version.
    pub version: Version,
    /// Totals of all its versions.
    pub kept: Kept,
}

/// Totals of versions, according to the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Kept {
    /// Live versions.
    pub versions: u64,
    /// Bytes of the newest version of each ref.
    pub bytes: u64,
}

impl State {
    /// Returns the namespaces that have a ref with a version, by name.
    pub fn namespaces(&self) -> Vec<NamespaceLine> {
        let sums = self.refs.sums().iter();
        let line = |(name, sums): (&Namespace, &RefSums)| NamespaceLine {
            name: name.clone(),
            kept: Kept {
                versions: sums.versions,
                bytes: sums.bytes,
            },
            refs: sums.refs,
        };
        sums.map(line).collect()
    }

    /// Iterates over the refs with a version, of a namespace or of all, by name.
    pub fn refs_of(
        &self,
        namespace: Option<&Namespace>,
    ) -> impl Iterator<Item = Result<RefLine>> + use<'_> {
        let heads = self.refs.heads(namespace);
        heads.filter_map(|found| self.line(found).transpose())
    }

    fn line(&self, found: Result<(RefName, RefHead)>) -> Result<Option<RefLine>> {
        let (name, head) = found?;
        if head.live == 0 {
            return Ok(None);
        }
        let (newest, version) = self.version(&name, Some(head.newest))?;
        Ok(Some(RefLine {
            name,
            newest,
            version,
            kept: Kept {
                versions: head.live,
                bytes: head.bytes,
            },
        }))
    }
}

/// Calls `each` with the entries of what `spec` names, in the order of their paths. A file or link is its own only
/// entry.
///
/// # Errors
/// Not found and corrupt as for [`Reader`]; any error of `each`.
pub fn ls(
    reader: &Reader<'_>,
    spec: &RefSpec,
    options: ListOptions,
    each: &mut dyn FnMut(Listed) -> Result<()>,
) -> Result<()> {
    let found = reader.resolve(spec)?;
    let mut times = None;
    if options.times {
        let mut reader = TimesReader::of(reader, &found.version)?;
        reader.skip(found.entries_before)?;
        times = Some(reader);
    }
    let mut listing = Listing {
        reader,
        options,
        times,
        path: Vec::new(),
    };
    let time = listing.time()?;
    match found.node {
        Node::Tree { content, .. } => listing.tree(&content, each),
        node => each(Listed {
            path: Vec::new(),
            node,
            time,
            is_lost: false,
        }),
    }
}

/// Whether an error means that bytes of the store are damaged or gone.
fn is_loss(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound)
}

/// A listing in progress.
struct Listing<'l> {
    reader: &'l Reader<'l>,
    options: ListOptions,
    times: Option<TimesReader<'l>>,
    path: Vec<u8>,
}

impl Listing<'_> {
    /// Lists what is below a tree. Open trees are on the heap, since trees may be too deep for the stack.
    fn tree(
        &mut self,
        content: &Content,
        each: &mut dyn FnMut(Listed) -> Result<()>,
    ) -> Result<()> {
        let mut open = vec![(self.path.len(), self.reader.tree(content)?.into_iter())];
        while let Some((above, entries)) = open.last_mut() {
            self.path.truncate(*above);
            let Some(entry) = entries.next() else {
                open.pop();
                continue;
            };
            self.reader.store().host().check_stop()?;
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&entry.name);
            let below = self.below(&entry.node)?;
            let is_tree = matches!(entry.node, Node::Tree { .. });
            each(Listed {
                path: self.path.clone(),
                node: entry.node.clone(),
                time: self.time()?,
                is_lost: self.options.recursive && is_tree && below.is_none(),
            })?;
            match (below, &entry.node) {
                (Some(below), _) => open.push((self.path.len(), below.into_iter())),
                (None, Node::Tree { totals, .. }) => {
                    if let Some(times) = &mut self.times {
                        times.skip(totals.entries)?;
                    }
                }
                (None, _) => {}
            }
        }
        Ok(())
    }

    /// The entries of a directory that is to be listed, too. None if they are lost, and that is no error.
    fn below(&self, node: &Node) -> Result<Option<Vec<TreeEntry>>> {
        let Node::Tree { content, .. } = node else {
            return Ok(None);
        };
        if !self.options.recursive {
            return Ok(None);
        }
        match self.reader.tree(content) {
            Err(error) if self.options.lost && is_loss(&error) => Ok(None),
            below => below.map(Some),
        }
    }

    fn time(&mut self) -> Result<Option<Time>> {
        self.times.as_mut().map(TimesReader::next).transpose()
    }
}
