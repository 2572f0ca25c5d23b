//! Reading chunks: locate the chunk, fetch its frame, decode, verify, and only then use the bytes.
//!
//! If an object is missing, the state may have changed, since repacking moves chunks. So the state is loaded again
//! once. An object that is still missing was deleted meanwhile, or the store is damaged. No byte is returned
//! unverified.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;

use crate::codec::{Decoder, copy_raw};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    Content, ListNode, Node, RefName, RefSpec, TreeEntry, Version, decode_tree, pack_key,
};
use crate::id::{ChunkId, PackId};
use crate::index::Location;
use crate::remedy::Remedy;
use crate::store::{Store, View};

mod at_hand;
mod bases;
pub mod fetch;
mod frames;
mod kept;
mod neighbours;
mod ordered;
mod times;

pub(crate) use bases::VerifiedBases;
use frames::{FrameCache, Gates};
pub(crate) use kept::KeptReader;
use neighbours::Neighbours;
pub use times::TimesReader;

/// Most bytes of metadata that are read whole: a tree of about twenty million entries.
const WHOLE_BYTES_MAX: u64 = 1 << 30;

/// Reads from one store, and follows its state as that changes.
#[derive(Debug)]
pub struct Reader<'s> {
    store: &'s Store,
    view: RwLock<Arc<View>>,
    frames: Mutex<FrameCache>,
    /// Decoders that no thread uses. Reusing them avoids touching new memory.
    decoders: Mutex<Vec<Decoder>>,
    gates: Gates,
    /// Metadata that is in no segment yet, or in none any more.
    known: RwLock<HashMap<ChunkId, Vec<u8>>>,
    /// Locations of chunks that were put together with chunks that were looked up in a bucket.
    neighbours: Neighbours,
    /// The number of the entry that the first state ended with.
    began: u64,
    /// The versions that were resolved.
    asked: Mutex<Vec<(RefName, u64)>>,
}

/// What a ref spec resolves to.
#[derive(Clone, Debug)]
pub struct Found {
    /// The version's number.
    pub number: u64,
    /// The version.
    pub version: Version,
    /// The node at the path inside the version.
    pub node: Node,
    /// Entries before the node in depth-first order; its time is found by this number.
    pub entries_before: u64,
}

/// Gets id, depth, offset and bytes below of a chunk, and returns whether to descend below it.
type Visitor<'v> = dyn FnMut(ChunkId, u8, u64, u64) -> Result<bool> + 'v;

impl<'s> Reader<'s> {
    /// Makes a reader at the newest state.
    ///
    /// # Errors
    /// When the state cannot be loaded.
    pub fn new(store: &'s Store) -> Result<Self> {
        Ok(Self::at(store, store.readable_view()?))
    }

    /// Makes a reader at `view`.
    pub fn at(store: &'s Store, view: View) -> Self {
        Self {
            store,
            began: view.state.number,
            view: RwLock::new(Arc::new(view)),
            frames: Mutex::default(),
            decoders: Mutex::default(),
            gates: Gates::default(),
            known: RwLock::default(),
            neighbours: Neighbours::default(),
            asked: Mutex::default(),
        }
    }

    /// The store.
    pub fn store(&self) -> &'s Store {
        self.store
    }

    /// The current state of this reader.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a chunk of metadata that need not be in the store.
    pub(crate) fn know(&self, id: ChunkId, bytes: &[u8]) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(id, bytes.to_vec());
    }

    /// Notes that this version is read: as long as it is live, what is missing is damage.
    pub(crate) fn asks_for(&self, name: &RefName, number: u64) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push((name.clone(), number));
    }

    /// Returns the location of a chunk.
    ///
    /// # Errors
    /// When no live segment of the newest state offers the chunk: not found, if the version that needs it may have been
    /// dropped meanwhile; corrupt, if that version is live.
    pub fn locate(&self, id: &ChunkId) -> Result<Location> {
        // DESIGN, reader 2.
        if let Some(location) = self.neighbours.find(id) {
            return Ok(location);
        }
        let view = self.view();
        let found = match view.index.find(id) {
            // A segment that is read in place may be deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            found => found?,
        };
        if let Some(location) = found {
            if view.index.is_far() {
                self.neighbours.led_to(self.store, &location);
            }
            return Ok(location);
        }
        self.reload()?.index.find(id)?.ok_or_else(|| self.gone(id))
    }

    /// The error for a chunk that no live segment of the newest state offers.
    fn gone(&self, id: &ChunkId) -> Error {
        let state = &self.view().state;
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let lives = |(name, number): &(RefName, u64)| {
            let found = state.version(name, Some(*number));
            !found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let is_live = match asked.as_slice() {
            [] => state.number == self.began,
            asked => asked.iter().all(lives),
        };
        if !is_live {
            return Error::not_found(format!(
                "chunk {id}: no live segment offers it; what it belonged to was deleted meanwhile"
            ));
        }
        let of = match asked.first() {
            Some((name, number)) => format!("{name}@{number} needs it and"),
            None => "a live version may need it, and".to_owned(),
        };
        let why = self.view().index.lack(id);
        let error =
            Error::corrupt(format!("chunk {id}: {of} {why}")).hint(Remedy::VerifyThenRepairOrPut);
        self.blame(error)
    }

    /// Returns the error about a damaged segment, if one can have caused `error`.
    pub(crate) fn blame(&self, error: Error) -> Error {
        if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) {
            return error;
        }
        let view = self.view();
        let damaged = view.index.segments().find_map(|segment| segment.damage());
        match damaged {
            Some(damage) => damage.because(error),
            None => error,
        }
    }

    /// Calls `read` with the location of a chunk. If an object is missing, calls it again with the location that the
    /// newest state gives, as long as that is a different one.
    ///
    /// # Errors
    /// The errors of `read`; not found, when the newest state has no location either.
    pub fn read_at<T>(&self, id: &ChunkId, read: impl Fn(&Location) -> Result<T>) -> Result<T> {
        let mut location = self.locate(id)?;
        let mut is_settled = false;
        loop {
            let error = match read(&location) {
                Err(error) if error.kind() == ErrorKind::NotFound => error,
                outcome => return outcome.map_err(|error| self.blame(error)),
            };
            if is_settled {
                // An unmounted file system is no damage.
                self.store.check_there()?;
                let error = Error::corrupt(format!(
                    "{}: is missing, and chunk {id} is in it",
                    pack_key(location.pack)
                ))
                .hint(Remedy::VerifyThenPut)
                .because(error);
                return Err(self.blame(error));
            }
            // DESIGN, reader 3: repacking moves chunks, so the newest state may have another location.
            let place = self.reload()?.index.find(id)?;
            let place = place.ok_or_else(|| self.gone(id))?;
            is_settled = place == location;
            location = place;
        }
    }

    /// Returns the verified bytes of a chunk and keeps its frame for the neighbours: for metadata, and for data in
    /// order.
    ///
    /// # Errors
    /// Corrupt, when the bytes are not what was written; not found, when they are gone.
    pub fn meta_chunk(&self, id: &ChunkId) -> Result<Vec<u8>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known.get(id) {
            return Ok(bytes.clone());
        }
        drop(known);
        self.read_at(id, |location| {
            // What is wrong now may be mended by the time of the next read.
            let forget = || self.kept().forget(location);
            let frame = self.frame(location).inspect_err(|_| forget())?;
            let verified = location.of(*id).verified(&frame);
            let verified = verified.inspect_err(|_| forget());
            let bytes = verified.map_err(|error| self.blame_base(location, error))?;
            Ok(bytes.to_vec())
        })
    }

    /// Calls `each` with the id and length of every data chunk of `content`, first to last.
    ///
    /// # Errors
    /// The errors of `each`, or what is wrong with the chunk list.
    pub fn chunks(
        &self,
        content: &Content,
        each: &mut dyn FnMut(ChunkId, u64) -> Result<()>,
    ) -> Result<()> {
        self.list(content, &mut |id, depth, size| {
            if depth == 0 { each(id, size) } else { Ok(()) }
        })
    }

    /// Calls `each` with id, depth and bytes below of every chunk that `content` needs: its list nodes, each before its
    /// children, and its data chunks, at depth 0.
    ///
    /// # Errors
    /// The errors of `each`, or what is wrong with the chunk list.
    pub fn list(
        &self,
        content: &Content,
        each: &mut dyn FnMut(ChunkId, u8, u64) -> Result<()>,
    ) -> Result<()> {
        self.visit(content, &mut |id, depth, _, size| {
            each(id, depth, size)?;
            Ok(true)
        })
    }

    /// Calls `each` with id, offset and length of every data chunk of `content` that has a byte in `range`.
    ///
    /// # Errors
    /// The errors of `each`, or what is wrong with the part of the chunk list that leads to the range.
    pub fn chunks_in(
        &self,
        content: &Content,
        range: &Range<u64>,
        each: &mut dyn FnMut(ChunkId, u64, u64) -> Result<()>,
    ) -> Result<()> {
        self.visit(content, &mut |id, depth, start, size| {
            let wanted = start < range.end && range.start < start.saturating_add(size);
            if wanted && depth == 0 {
                each(id, start, size)?;
            }
            Ok(wanted)
        })
    }

    /// Reads a tree or a list of times whole.
    ///
    /// # Errors
    /// Corrupt or not found, or too large to be metadata.
    pub fn meta(&self, content: &Content) -> Result<Vec<u8>> {
        if content.size > WHOLE_BYTES_MAX {
            return Err(Error::corrupt(format!(
                "content {}: {} bytes of metadata, limit {WHOLE_BYTES_MAX}",
                content.root, content.size
            )));
        }
        let mut bytes = Vec::new();
        self.chunks(content, &mut |id, _| {
            bytes.extend_from_slice(&self.meta_chunk(&id)?);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Reads the entries of a tree.
    ///
    /// # Errors
    /// Corrupt or not found.
    pub fn tree(&self, content: &Content) -> Result<Vec<TreeEntry>> {
        decode_tree(&format!("tree {}", content.root), &self.meta(content)?)
    }

    /// Resolves a ref spec.
    ///
    /// # Errors
    /// Not found, when there is no such ref, version or path.
    pub fn resolve(&self, spec: &RefSpec) -> Result<Found> {
        let view = self.view();
        let (number, version) = view.state.at(&spec.name, spec.version.as_ref())?;
        self.asks_for(&spec.name, number);
        let mut node = Node::from(version.root);
        let mut entries_before = 0;
        let mut above: Vec<&[u8]> = Vec::new();
        for name in spec
            .path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            let missing = || no_path(spec, number, &above);
            let Node::Tree { content, .. } = &node else {
                return Err(missing());
            };
            let mut found = None;
            for entry in self.tree(content)? {
                entries_before += 1;
                if entry.name == name {
                    found = Some(entry.node);
                    break;
                }
                if let Node::Tree { totals, .. } = &entry.node {
                    entries_before += totals.entries;
                }
            }
            node = found.ok_or_else(missing)?;
            above.push(name);
        }
        Ok(Found {
            number,
            version,
            node,
            entries_before,
        })
    }

    /// Calls `each` with id, depth, offset and bytes below of the chunks of `content`, and descends below each list
    /// node for which it returns true.
    pub(crate) fn visit(&self, content: &Content, each: &mut Visitor<'_>) -> Result<()> {
        if content.size == 0 {
            return Ok(());
        }
        self.visit_below(&content.root, content.depth, 0, content.size, each)
    }

    fn visit_below(
        &self,
        id: &ChunkId,
        depth: u8,
        start: u64,
        size: u64,
        each: &mut Visitor<'_>,
    ) -> Result<()> {
        let descend = each(*id, depth, start, size)?;
        let Some(level) = depth.checked_sub(1).filter(|_| descend) else {
            return Ok(());
        };
        let node = self.list_node(id, level, size)?;
        let mut start = start;
        node.children.iter().try_for_each(|child| {
            let at = start;
            start += child.size;
            self.visit_below(&child.id, level, at, child.size, each)
        })
    }

    /// Reads the list node `id`, which must be of `level` and have `size` bytes below it.
    ///
    /// # Errors
    /// Corrupt, when level or size differ; otherwise as [`Self::meta_chunk`].
    pub fn list_node(&self, id: &ChunkId, level: u8, size: u64) -> Result<ListNode> {
        let name = format!("list node {id}");
        let node = ListNode::decode(&name, &self.meta_chunk(id)?)?;
        let below = node.size();
        if (node.level, below) == (level, size) {
            return Ok(node);
        }
        Err(Error::corrupt(format!(
            "{name}: level {} over {below} bytes, expected level {level} over {size} bytes",
            node.level
        )))
    }

    /// Returns a decoded frame, from memory if it is kept there.
    fn frame(&self, location: &Location) -> Result<Arc<Vec<u8>>> {
        if let Some(frame) = self.kept().take(location) {
            return Ok(frame);
        }
        let stored = self.stored(location)?;
        // Decoding a delta calls this function again for its bases.
        let spare = self.spare().pop();
        let mut decoder = spare.map_or_else(Decoder::new, Ok)?;
        let mut raw = Vec::new();
        self.decode(&mut decoder, location, &stored, &mut raw)?;
        copy_raw(&stored, &mut raw);
        self.spare().push(decoder);
        let frame = Arc::new(raw);
        self.kept().keep(location, &frame);
        Ok(frame)
    }

    /// Reads the stored bytes of a frame. Over a network, also reads bytes that follow if reads were in order so far.
    fn stored(&self, location: &Location) -> Result<Bytes> {
        let (pack, offset) = (location.pack, location.frame_offset);
        if !self.store.is_far() {
            return read_frames(self.store, pack, offset, location.stored_len);
        }
        if let Some(stored) = self.kept().ahead(location) {
            return Ok(stored);
        }
        // A thread waits for bytes that another thread is already fetching.
        let _gate = self.gates.enter(location);
        if let Some(stored) = self.kept().ahead(location) {
            return Ok(stored);
        }
        let len = self.kept().ahead_len(location);
        let bytes = read_frames(self.store, pack, offset, len)?;
        let stored = bytes.slice(..location.stored_len as usize);
        self.kept().keep_ahead(pack, offset, bytes);
        Ok(stored)
    }

    fn kept(&self) -> MutexGuard<'_, FrameCache> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Decoder>> {
        self.decoders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reload(&self) -> Result<Arc<View>> {
        self.neighbours.forget();
        let mut view = View::clone(&self.view());
        match self.store.refresh(&mut view) {
            // Nothing behind a damaged entry can be known, so a missing object stays missing.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(self.view()),
            refreshed => drop(refreshed?),
        }
        let view = Arc::new(view);
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&view);
        Ok(view)
    }
}

/// Reads the stored bytes of one or more adjacent frames.
///
/// # Errors
/// Not found, when the pack does not exist.
pub(crate) fn read_frames(store: &Store, pack: PackId, offset: u32, len: u32) -> Result<Bytes> {
    let range = u64::from(offset)..u64::from(offset) + u64::from(len);
    let key = pack_key(pack);
    let mut ranges = store
        .remote()
        .get_ranges(&key, std::slice::from_ref(&range))?;
    ranges.pop().ok_or_else(|| {
        Error::unavailable(format!(
            "{key}: no answer for bytes {}..{}",
            range.start, range.end
        ))
    })
}

/// The error for a path that does not exist; `above` is the part of it that does.
fn no_path(spec: &RefSpec, number: u64, above: &[&[u8]]) -> Error {
    let above = RefSpec {
        path: above.join(&b'/'),
        ..spec.clone()
    };
    let error = Error::not_found(format!("{spec}: no such path in version {number}"));
    match spec.with_version_first() {
        Some(meant) => error.hint(format!("a version stands before the path: {meant}")),
        None => error.hint(Remedy::ListBelow {
            place: above.to_string(),
        }),
    }
}
