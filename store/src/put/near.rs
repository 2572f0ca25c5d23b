//! Which chunks of the store may be the base of a new chunk: chunks of the same tensor or at the same place of a file.
//! The file is the one at the same path in the newest version of the ref, or of another ref of its namespace.
//!
//! Bases are only looked for if a sample finds numbers, so other files cost nothing. A chunk that cannot be read is not
//! used as a base; a put never fails for lack of one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::dedup::Dedup;
use crate::chunk::Tensor;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Content, Node, RefName, RefSpec, TreeEntry};
use crate::id::{ChunkId, PackId};
use crate::index::Index;
use crate::pack::near::{BaseSource, Family, Near, Trial, Verdicts};
use crate::read::{Reader, read_frames};

mod file;

use file::BaseFile;

/// Where a put looks for bases of deltas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeltaBase {
    /// In the newest version of the ref, then in the newest versions of other refs of its namespace.
    #[default]
    Auto,
    /// Nowhere. Each frame is stored by itself, so that reading one never needs another.
    None,
    /// In this version, or below a path of it.
    Version(RefSpec),
}

/// Most other refs of a namespace that are searched.
const SIBLINGS_MAX: usize = 16;
/// Larger files are no bases, since the list of their chunks would take too much memory.
const FILE_BYTES_MAX: u64 = 64 << 30;
/// Most files whose chunk lists are kept in memory.
const FILES_KEPT: usize = 256;
/// Directories with larger trees are not searched; for other refs, the limit is lower.
const TREE_BYTES_MAX: u64 = 8 << 20;
const SIBLING_TREE_BYTES_MAX: u64 = 512 << 10;
/// Most decoded directories that are kept in memory.
const TREES_KEPT: usize = 2 * SIBLINGS_MAX;
/// The offset in a delta frame of the number of bytes that it skips in its bases: a u32.
const SKIP_AT: u32 = 4;

/// Finds files that may be bases.
pub(super) struct Finder<'p> {
    reader: Reader<'p>,
    dedup: &'p Dedup,
    from: DeltaBase,
    target: RefName,
    /// The roots of versions, nearest first. Those of other refs are loaded only when they are needed.
    first: Option<Node>,
    siblings: OnceLock<Vec<Node>>,
    files: Mutex<HashMap<ChunkId, Option<Arc<BaseFile>>>>,
    /// Directories, the most recently used last.
    trees: Mutex<Vec<(ChunkId, Arc<Vec<TreeEntry>>)>>,
    family: Arc<Family>,
    skips: Mutex<HashMap<(PackId, u32), u32>>,
}

/// Knowledge about one file of the put.
pub(super) struct FileNear {
    path: Arc<[u8]>,
    size: u64,
    tensors: Vec<Tensor>,
    bases: OnceLock<Vec<Arc<BaseFile>>>,
    /// By the index of the tensor. Bytes outside of tensors have the index after the last one.
    trials: Mutex<HashMap<usize, Arc<Trial>>>,
    verdicts: Arc<Verdicts>,
}

/// Bytes of a chunk that is in a plain frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    id: ChunkId,
    len: u32,
    from: u32,
    to: u32,
}

impl<'p> Finder<'p> {
    /// Prepares to look where `from` says for a put of `target`; none, if it says nowhere.
    ///
    /// # Errors
    /// Not found, when the named version does not exist.
    pub(super) fn new(
        reader: Reader<'p>,
        dedup: &'p Dedup,
        from: &DeltaBase,
        target: &RefName,
    ) -> Result<Option<Self>> {
        let first = match from {
            DeltaBase::None => return Ok(None),
            DeltaBase::Version(spec) => Some(reader.resolve(spec)?.node),
            DeltaBase::Auto => match reader.view().state.version(target, None) {
                Ok((_, version)) => Some(version.root.into()),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            },
        };
        Ok(Some(Self {
            reader,
            dedup,
            from: from.clone(),
            target: target.clone(),
            first,
            siblings: OnceLock::new(),
            files: Mutex::default(),
            trees: Mutex::default(),
            family: Arc::default(),
            skips: Mutex::default(),
        }))
    }

    /// Files that may be bases of the file at `path`, nearest first.
    fn bases(&self, path: &[u8]) -> Result<Vec<Arc<BaseFile>>> {
        let mut bases = Vec::new();
        let siblings = match self.from {
            DeltaBase::Auto => self.siblings()?,
            _ => &[],
        };
        let first = self.first.iter().map(|root| (root, TREE_BYTES_MAX));
        let siblings = siblings.iter().map(|root| (root, SIBLING_TREE_BYTES_MAX));
        for (root, most) in first.chain(siblings) {
            bases.extend(self.base_at(root, path, most)?);
        }
        Ok(bases)
    }

    /// The newest versions of other refs of the namespace, most recently put first.
    fn siblings(&self) -> Result<&[Node]> {
        if let Some(siblings) = self.siblings.get() {
            return Ok(siblings);
        }
        let view = self.reader.view();
        let mut newest = Vec::new();
        for found in view.state.refs.within(Some(&self.target.namespace())) {
            let (name, known) = found?;
            if name != self.target
                && let Some((_, version)) = known.versions.last_key_value()
            {
                newest.push((version.time, Node::from(version.root)));
            }
        }
        newest.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        newest.truncate(SIBLINGS_MAX);
        let roots = newest.into_iter().map(|(_, root)| root).collect();
        Ok(self.siblings.get_or_init(|| roots))
    }

    /// The file at `path` below `root`. If the root is a file, it stands for any path of a single name.
    fn base_at(&self, root: &Node, path: &[u8], most: u64) -> Result<Option<Arc<BaseFile>>> {
        let mut node = root.clone();
        if matches!(node, Node::Tree { .. }) {
            for name in path.split(|byte| *byte == b'/') {
                let Node::Tree { content, .. } = &node else {
                    return Ok(None);
                };
                if content.size > most {
                    return Ok(None);
                }
                let Some(entries) = readable(self.tree(content))? else {
                    return Ok(None);
                };
                let found = entries.binary_search_by(|entry| entry.name.as_slice().cmp(name));
                match found.ok().and_then(|at| entries.get(at)) {
                    Some(entry) => node = entry.node.clone(),
                    None => return Ok(None),
                }
            }
        } else if path.contains(&b'/') {
            return Ok(None);
        }
        match node {
            Node::File { content, .. } => self.file(&content),
            _ => Ok(None),
        }
    }

    fn tree(&self, content: &Content) -> Result<Arc<Vec<TreeEntry>>> {
        let known = {
            let mut trees = lock(&self.trees);
            let at = trees.iter().rposition(|(root, _)| *root == content.root);
            at.map(|at| {
                let hit = trees.remove(at);
                let entries = Arc::clone(&hit.1);
                trees.push(hit);
                entries
            })
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let entries = Arc::new(self.reader.tree(content)?);
        let mut trees = lock(&self.trees);
        if trees.len() >= TREES_KEPT {
            trees.remove(0);
        }
        trees.push((content.root, Arc::clone(&entries)));
        Ok(entries)
    }

    fn file(&self, content: &Content) -> Result<Option<Arc<BaseFile>>> {
        if let Some(known) = lock(&self.files).get(&content.root) {
            return Ok(known.clone());
        }
        let file = match (1..=FILE_BYTES_MAX).contains(&content.size) {
            true => readable(BaseFile::read(&self.reader, content))?.map(Arc::new),
            false => None,
        };
        let mut files = lock(&self.files);
        if files.len() >= FILES_KEPT {
            files.clear();
        }
        files.insert(content.root, file.clone());
        Ok(file)
    }

    /// Finds the bytes from `from` to `to` of a chunk in plain chunks: in the chunk itself, or, if it is a delta, at
    /// the same place of its bases. A base is never a delta itself, and any similar chunk will do.
    fn plain(
        &self,
        index: &Index,
        id: &ChunkId,
        (from, to): (u32, u32),
        pieces: &mut Vec<Piece>,
    ) -> Result<bool> {
        if let Some(at) = index.find_plain(id)? {
            let (id, len) = (*id, at.len);
            pieces.push(Piece { id, len, from, to });
            return Ok(true);
        }
        let Some(position) = index.position(id)? else {
            return Ok(false);
        };
        let (_, at) = index.at(position)?;
        let Some(skip) = readable(self.skip(at.pack, at.frame_offset))? else {
            return Ok(false);
        };
        let mut begin = 0;
        let start = u64::from(skip) + u64::from(at.offset);
        let wanted = start + u64::from(from)..start + u64::from(to);
        for base in index.bases(position, &at)? {
            let Some(location) = index.find_plain(&base)? else {
                return Ok(false);
            };
            let end = begin + u64::from(location.len);
            let part = wanted.start.max(begin)..wanted.end.min(end);
            let inside = |at: u64| u32::try_from(at - begin).unwrap_or(u32::MAX);
            if part.start < part.end {
                pieces.push(Piece {
                    id: base,
                    len: location.len,
                    from: inside(part.start),
                    to: inside(part.end),
                });
            }
            begin = end;
        }
        Ok(wanted.end <= begin)
    }

    /// How many bytes a delta skips at the beginning of its bases.
    fn skip(&self, pack: PackId, frame_offset: u32) -> Result<u32> {
        if let Some(known) = lock(&self.skips).get(&(pack, frame_offset)) {
            return Ok(*known);
        }
        let (store, at) = (self.reader.store(), frame_offset.saturating_add(SKIP_AT));
        let bytes = read_frames(store, pack, at, 4)?;
        let skip = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let skip = skip.ok_or_else(|| Error::corrupt(format!("pack {pack}: is cut")))?;
        lock(&self.skips).insert((pack, frame_offset), skip);
        Ok(skip)
    }
}

impl FileNear {
    /// Prepares for file `number` of a put, with `size` bytes at `path` of the tree and these large tensors. None, if
    /// deltas did not pay for the files before it.
    pub(super) fn new(
        finder: &Finder<'_>,
        number: u64,
        (path, size): (Arc<[u8]>, u64),
        tensors: Vec<Tensor>,
    ) -> Option<Self> {
        finder.family.tries(number).then(|| Self {
            path,
            size,
            tensors,
            bases: OnceLock::new(),
            trials: Mutex::default(),
            verdicts: Arc::new(Verdicts::of(Arc::clone(&finder.family))),
        })
    }

    /// What the `len` bytes at `offset` of the file may be a delta to.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) fn near(&self, finder: &Finder<'_>, offset: u64, len: u32) -> Result<Option<Near>> {
        let number = self.tensor_at(offset);
        let trial = {
            let mut trials = lock(&self.trials);
            let new = || Arc::new(Trial::of(Arc::clone(&self.verdicts)));
            Arc::clone(trials.entry(number).or_insert_with(new))
        };
        if !trial.is_open() {
            return Ok(None);
        }
        if self.bases.get().is_none() {
            let found = finder.bases(&self.path)?;
            self.bases.get_or_init(|| found);
        }
        let bases = self.bases.get().map(Vec::as_slice).unwrap_or_default();
        let Some((base, start)) = self.place_in(bases, number, offset, len) else {
            return Ok(None);
        };
        let index = finder.dedup.relied().index();
        let mut pieces = Vec::new();
        for (id, range) in base.chunks_of(start..start + u64::from(len)) {
            if !finder.plain(&index, &id, range, &mut pieces)? {
                return Ok(None);
            }
        }
        Ok(joined(&pieces).map(|(chunks, skip)| Near {
            chunks,
            skip,
            trial,
        }))
    }

    /// The index of the tensor at `offset`.
    fn tensor_at(&self, offset: u64) -> usize {
        let behind = (self.tensors).partition_point(|tensor| tensor.place.end <= offset);
        match self.tensors.get(behind) {
            Some(tensor) if tensor.place.start <= offset => behind,
            _ => self.tensors.len(),
        }
    }

    /// The same place in a base: in a tensor of the same name and length, or in a file of the same length.
    fn place_in<'b>(
        &self,
        bases: &'b [Arc<BaseFile>],
        number: usize,
        offset: u64,
        len: u32,
    ) -> Option<(&'b BaseFile, u64)> {
        let of_tensor = self.tensors.get(number).and_then(|tensor| {
            let bytes = tensor.place.end - tensor.place.start;
            let same = |base: &'b Arc<BaseFile>| {
                let place = base.tensors.get(&tensor.name)?;
                let is_same = place.end - place.start == bytes;
                is_same.then_some((base.as_ref(), place.start + (offset - tensor.place.start)))
            };
            bases.iter().find_map(same)
        });
        let at_place = || {
            let same = bases.iter().find(|base| base.size == self.size);
            same.map(|base| (base.as_ref(), offset))
        };
        let found = of_tensor.or_else(at_place);
        found.filter(|(base, start)| start.saturating_add(len.into()) <= base.size)
    }
}

/// Reads bases from the store.
pub(super) struct Source<'p>(pub(super) Option<&'p Finder<'p>>);

impl BaseSource for Source<'_> {
    fn append(&mut self, ids: &[ChunkId], out: &mut Vec<u8>) -> Result<bool> {
        let Some(finder) = self.0 else {
            return Ok(false);
        };
        for id in ids {
            if readable(finder.reader.verified_base(id, out))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn rely(&mut self, ids: &[ChunkId]) -> Result<bool> {
        let Some(finder) = self.0 else {
            return Ok(false);
        };
        for id in ids {
            if !finder.dedup.relied().is_base_offered(id)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The whole chunks that hold these pieces, and how many bytes to skip in the first. None, if the pieces are not
/// contiguous.
fn joined(pieces: &[Piece]) -> Option<(Vec<(ChunkId, u32)>, u32)> {
    let (first, behind) = pieces.split_first()?;
    let mut chunks = vec![(first.id, first.len)];
    let mut last = first;
    for piece in behind {
        let goes_on = piece.id == last.id && piece.from == last.to;
        if !goes_on {
            if last.to != last.len || piece.from != 0 {
                return None;
            }
            chunks.push((piece.id, piece.len));
        }
        last = piece;
    }
    Some((chunks, first.from))
}

/// What was read; none, if it is damaged or gone.
fn readable<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(id: u8, from: u32, to: u32) -> Piece {
        let id = ChunkId([id; 32]);
        Piece {
            id,
            len: 10,
            from,
            to,
        }
    }

    #[test]
    fn pieces_are_a_base_where_they_follow_each_other() {
        let ids = |pieces: &[Piece]| {
            let (chunks, skip) = joined(pieces)?;
            Some((
                chunks.iter().map(|(id, _)| id.0[0]).collect::<Vec<u8>>(),
                skip,
            ))
        };
        assert_eq!(ids(&[]), None);
        assert_eq!(ids(&[piece(1, 3, 5)]), Some((vec![1], 3)));
        assert_eq!(
            ids(&[piece(1, 3, 10), piece(2, 0, 10), piece(3, 0, 1)]),
            Some((vec![1, 2, 3], 3))
        );
        assert_eq!(
            ids(&[piece(1, 3, 5), piece(1, 5, 10), piece(2, 0, 1)]),
            Some((vec![1, 2], 3))
        );
        assert_eq!(ids(&[piece(1, 0, 9), piece(2, 0, 1)]), None);
        assert_eq!(ids(&[piece(1, 0, 10), piece(2, 1, 2)]), None);
    }
}
