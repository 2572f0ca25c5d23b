//! Checkpoints: a state as an object whose refs are looked up in place.
//!
//! Derived: losing one costs time, never data. A checkpoint may name older checkpoints, its layers, and leave out what
//! they contain.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::cursor::corrupt;
use super::extra::carries_unknown;
use super::ref_table::{RefTable, Source};
use super::ref_writer::TableWriter;
use super::sealed::parse;
use crate::error::{Error, Result};
use crate::format::{
    Condemned, Extra, Features, Namespace, Policy, RefSums, Refs, SegmentInfo, State,
    parse_checkpoint_key,
};
use crate::id::{CheckpointId, EntryId, PackId, SegmentId, StoreId};

/// The most checkpoints that a checkpoint may name as its layers.
pub const CHECKPOINT_LAYERS_MAX: usize = 8;

/// An older checkpoint whose rows are valid unless a newer one overrides them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Its number.
    pub number: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its checksum.
    pub id: CheckpointId,
}

/// The fields of a checkpoint apart from its rows.
#[derive(Debug, Serialize)]
struct Head {
    store: StoreId,
    number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<EntryId>,
    #[serde(skip_serializing_if = "is_zero")]
    until: u64,
    layers: Vec<Layer>,
    namespaces: BTreeMap<String, RefSums>,
    segments: BTreeMap<SegmentId, SegmentInfo>,
    dropped: BTreeMap<SegmentId, Condemned>,
    condemned: BTreeMap<PackId, Condemned>,
    #[serde(skip_serializing_if = "Policy::is_empty")]
    policy: Policy,
    #[serde(skip_serializing_if = "Features::is_empty")]
    features: Features,
    #[serde(flatten)]
    extra: Extra,
}

carries_unknown!(Head {
    store,
    number,
    entry = None,
    until = 0,
    layers,
    namespaces,
    segments,
    dropped,
    condemned,
    policy = Policy::default(),
    features = Features::default(),
});

/// A checkpoint whose rows have not been read yet.
#[derive(Debug)]
pub struct Checkpoint {
    table: RefTable,
    head: Head,
}

impl Checkpoint {
    /// Reads the head and the trailer of an object of `len` bytes.
    ///
    /// # Errors
    /// Corrupt, when the bytes are not what was written; unsupported, when a newer program wrote them.
    pub fn open(object: &str, source: Arc<dyn Source>, len: u64) -> Result<Self> {
        let table = RefTable::open(object, source, len, None)?;
        let head: Head = parse(object, table.head())?;
        head.features.check_readable(object)?;
        if head.layers.len() > CHECKPOINT_LAYERS_MAX {
            let found = head.layers.len();
            let detail =
                format_args!("layers: expected at most {CHECKPOINT_LAYERS_MAX}, found {found}");
            return Err(corrupt(object, detail));
        }
        let mut above = head.number.saturating_add(1);
        for layer in &head.layers {
            if layer.number >= above {
                let found = layer.number;
                let detail = format_args!("layers: expected one before {above}, found {found}");
                return Err(corrupt(object, detail));
            }
            above = layer.number;
        }
        Ok(Self { table, head })
    }

    /// The older checkpoints that it needs, newest first.
    pub fn layers(&self) -> &[Layer] {
        &self.head.layers
    }

    /// Its rows.
    pub fn table(&self) -> &RefTable {
        &self.table
    }

    /// Builds the state from its own rows and those of `layers`, its layers.
    ///
    /// # Errors
    /// Corrupt, when the checkpoint contradicts itself or `layers` are not its layers.
    pub fn into_state(self, layers: Vec<Arc<RefTable>>) -> Result<State> {
        let Self { table, head } = self;
        let object = table.object().to_owned();
        let named = head.layers.iter().map(|layer| (layer.bytes, layer.id));
        if !named.eq(layers.iter().map(|table| (table.bytes(), table.id()))) {
            return Err(corrupt(
                &object,
                "expected the checkpoints that it names, found others",
            ));
        }
        let mut sums = BTreeMap::new();
        for (name, found) in head.namespaces {
            let namespace: Namespace = name
                .parse()
                .map_err(|error: Error| corrupt(&object, error))?;
            sums.insert(namespace, found);
        }
        let tables = std::iter::once(Arc::new(table)).chain(layers);
        let state = State {
            store: head.store,
            number: head.number,
            entry: head.entry,
            until: head.until,
            segments: head.segments,
            dropped: head.dropped,
            condemned: head.condemned,
            refs: Refs::over(tables.collect(), sums),
            policy: head.policy,
            features: head.features,
            extra: head.extra,
            ..State::default()
        };
        match state.defect() {
            None => Ok(state),
            Some(defect) => Err(corrupt(&object, defect)),
        }
    }
}

impl State {
    /// Encodes this state as a checkpoint without layers.
    ///
    /// # Errors
    /// Invalid input, when the state contradicts itself; also when a checkpoint that it is based on cannot be read.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write(&[], &mut |piece| {
            bytes.extend_from_slice(&piece);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Writes a checkpoint of this state into `sink`, piece by piece. `layers` are the checkpoints of its last tables;
    /// rows that these tables hold are left out.
    ///
    /// # Errors
    /// As for [`Self::encode`]; any error of `sink`.
    pub fn write(&self, layers: &[Layer], sink: &mut dyn FnMut(Bytes) -> Result<()>) -> Result<()> {
        if let Some(defect) = self.defect() {
            return Err(Error::invalid(format!("checkpoint: {defect}")));
        }
        let namespaces = self.refs.sums().iter();
        let head = Head {
            store: self.store,
            number: self.number,
            entry: self.entry,
            until: self.until,
            layers: layers.to_vec(),
            namespaces: namespaces
                .map(|(name, sums)| (name.as_str().to_owned(), *sums))
                .collect(),
            segments: self.segments.clone(),
            dropped: self.dropped.clone(),
            condemned: self.condemned.clone(),
            policy: self.policy.clone(),
            features: self.features.clone(),
            extra: self.extra.clone(),
        };
        let head = serde_json::to_vec(&head)
            .map_err(|source| Error::invalid("checkpoint: value is no JSON").because(source))?;
        let mut writer = TableWriter::new(sink)?;
        self.refs.write(layers.len(), &mut writer)?;
        writer.finish(&head)
    }

    /// Parses a checkpoint without layers, and checks every row.
    ///
    /// # Errors
    /// Corrupt, when the bytes are not what was written; unsupported, when a newer program wrote them.
    pub fn decode(object: &str, bytes: &[u8]) -> Result<Self> {
        let source = Arc::new(Bytes::copy_from_slice(bytes));
        let checkpoint = Checkpoint::open(object, source, bytes.len() as u64)?;
        let state = checkpoint.into_state(Vec::new())?;
        state.check(object)?;
        Ok(state)
    }

    /// Checks every row of its refs, and the sums of the namespaces.
    ///
    /// # Errors
    /// Corrupt, when a row or a sum is wrong.
    pub fn check(&self, object: &str) -> Result<()> {
        self.refs
            .tables()
            .iter()
            .try_for_each(|table| table.verify())?;
        let mut sums: BTreeMap<Namespace, RefSums> = BTreeMap::new();
        for found in self.refs.iter() {
            let (name, known) = found?;
            if let Some(last) = known.versions.last_key_value() {
                let own = RefSums::of(&known, last.1);
                let sums = sums.entry(name.namespace()).or_default();
                *sums = sums.and(&own);
            }
        }
        match sums == *self.refs.sums() {
            true => Ok(()),
            false => Err(corrupt(
                object,
                "namespaces: expected the sums of its refs, found others",
            )),
        }
    }
}

impl RefTable {
    /// Returns the layer that names this checkpoint; `None` if its object has no key of a checkpoint.
    pub fn layer(&self) -> Option<Layer> {
        Some(Layer {
            number: parse_checkpoint_key(self.object())?,
            bytes: self.bytes(),
            id: self.id(),
        })
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::error::ErrorKind;
    use crate::format::{Content, RefName, RefState, Root, Sides, Version, Who};
    use crate::id::ChunkId;

    fn version(seed: u64) -> Version {
        let content = Content {
            size: 1 + seed % 1000,
            depth: 0,
            root: ChunkId(*blake3::hash(&seed.to_le_bytes()).as_bytes()),
        };
        Version {
            root: Root::File {
                content,
                executable: false,
            },
            sides: Sides::of_times(content),
            time: "2025-01-02T03:04:05Z".parse().unwrap(),
            who: Who::default(),
            message: format!("version {seed}"),
            pinned: false,
            expires: None,
            origin: None,
            private: seed.is_multiple_of(3),
            extra: Extra::new(),
        }
    }

    fn name(number: u64) -> RefName {
        format!("team/t{}/ref-{number:04}", number % 7)
            .parse()
            .unwrap()
    }

    /// `count` refs: the first has `many` versions, the last has none, the others have two each.
    fn refs(count: u64, many: u64) -> BTreeMap<RefName, RefState> {
        let state = |number: u64| {
            let live = match number {
                0 => many,
                _ if number + 1 == count => 0,
                _ => 2,
            };
            RefState {
                last: live + 1,
                versions: (1..=live)
                    .map(|at| (at, version(number * 1000 + at)))
                    .collect(),
                extra: Extra::new(),
            }
        };
        (0..count)
            .map(|number| (name(number), state(number)))
            .collect()
    }

    fn state(number: u64, refs: BTreeMap<RefName, RefState>) -> State {
        State {
            store: StoreId([3; 16]),
            number,
            entry: Some(EntryId([4; 32])),
            refs: refs.into(),
            ..State::default()
        }
    }

    fn written(state: &State, layers: &[Layer]) -> Bytes {
        let mut bytes = Vec::new();
        let mut sink = |piece: Bytes| {
            bytes.extend_from_slice(&piece);
            Ok(())
        };
        state.write(layers, &mut sink).unwrap();
        bytes.into()
    }

    fn opened(number: u64, bytes: &Bytes, layers: Vec<Arc<RefTable>>) -> State {
        let key = crate::format::checkpoint_key(number);
        let source = Arc::new(bytes.clone());
        let checkpoint = Checkpoint::open(&key, source, bytes.len() as u64).unwrap();
        checkpoint.into_state(layers).unwrap()
    }

    #[test]
    fn a_checkpoint_of_many_blocks_is_looked_up_and_read_in_order() {
        let all = refs(700, 2000);
        let state = state(9, all.clone());
        let bytes = state.encode().unwrap();
        let read = State::decode("x", &bytes).unwrap();
        assert_eq!(read, state);
        assert_eq!(read.refs.all().unwrap(), all);
        for (name, known) in all.iter().step_by(97) {
            assert_eq!(read.refs.get(name).unwrap().as_ref(), Some(known));
            assert_eq!(read.refs.last(name).unwrap(), known.last);
            assert_eq!(
                read.refs.version(name, 1).unwrap(),
                known.versions.get(&1).cloned()
            );
            assert_eq!(read.refs.version(name, known.last).unwrap(), None);
        }
        let many = &name(0);
        assert_eq!(read.refs.version(many, 1999).unwrap(), Some(version(1999)));
        assert_eq!(read.refs.head(&"team/t1/a".parse().unwrap()).unwrap(), None);
        let within = "team/t3".parse().unwrap();
        let found: Vec<_> = read
            .refs
            .within(Some(&within))
            .map(|found| found.unwrap().0)
            .collect();
        let expected: Vec<_> = all
            .keys()
            .filter(|name| within.contains(name))
            .cloned()
            .collect();
        assert_eq!(found, expected);
        let heads: Vec<_> = read
            .refs
            .heads(Some(&within))
            .map(|found| found.unwrap().0)
            .collect();
        assert_eq!(heads, expected);
        let sums = read.refs.sums()[&within];
        assert_eq!((sums.refs, sums.versions), (100, 200));
    }

    /// A source that fails on demand, and can rebuild its bytes.
    #[derive(Debug)]
    struct Wavering {
        bytes: Bytes,
        fails: Mutex<Option<ErrorKind>>,
        /// The lowest offset of any read.
        lowest: AtomicU64,
    }

    impl Source for Wavering {
        fn read(&self, range: Range<u64>, is_right: &dyn Fn(&[u8]) -> bool) -> Result<Bytes> {
            self.lowest.fetch_min(range.start, Ordering::Relaxed);
            match *self.fails.lock().unwrap() {
                Some(kind) => Err(Error::new(kind, "no bytes")),
                None => self.bytes.read(range, is_right),
            }
        }

        fn made_again(&self, range: Range<u64>) -> Option<Bytes> {
            self.bytes.read(range, &|_| true).ok()
        }
    }

    fn wavering(state: &State) -> (Arc<Wavering>, Checkpoint) {
        let bytes = written(state, &[]);
        let len = bytes.len() as u64;
        let source = Arc::new(Wavering {
            bytes,
            fails: Mutex::default(),
            lowest: AtomicU64::new(len),
        });
        let key = crate::format::checkpoint_key(state.number);
        let checkpoint = Checkpoint::open(&key, source.clone(), len).unwrap();
        (source, checkpoint)
    }

    #[test]
    fn a_block_that_is_damaged_is_made_again_and_one_that_is_out_of_reach_is_not() {
        let (source, checkpoint) = wavering(&state(9, refs(700, 2000)));
        let state = checkpoint.into_state(Vec::new()).unwrap();
        *source.fails.lock().unwrap() = Some(ErrorKind::Unavailable);
        let error = state.refs.version(&name(0), 1500).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        *source.fails.lock().unwrap() = Some(ErrorKind::Corrupt);
        let found = state.refs.version(&name(0), 1500).unwrap();
        assert_eq!(found, Some(version(1500)));
    }

    /// A head may be longer than the first read. Then it is read in full, but no row is.
    #[test]
    fn a_head_longer_than_the_first_read_is_read_whole_and_alone() {
        let mut state = state(9, refs(700, 2000));
        let condemned = crate::format::Condemned {
            entry: 9,
            time: jiff::Timestamp::UNIX_EPOCH,
        };
        state.condemned = (0..30_000_u32)
            .map(|pack| {
                let [id, ..] = *blake3::hash(&pack.to_le_bytes()).as_bytes().as_chunks().0 else {
                    unreachable!("two halves");
                };
                (crate::id::PackId(id), condemned)
            })
            .collect();
        let (source, checkpoint) = wavering(&state);
        let (lowest, len) = (
            source.lowest.load(Ordering::Relaxed),
            source.bytes.len() as u64,
        );
        assert!(len - lowest > 256 << 10, "{lowest} of {len}");
        assert!(lowest > checkpoint.table().refs_range().end, "{lowest}");
        assert_eq!(checkpoint.into_state(Vec::new()).unwrap(), state);
    }

    #[test]
    fn refs_of_a_checkpoint_without_rows_are_none() {
        let bytes = written(&state(9, BTreeMap::new()), &[]);
        assert!(opened(9, &bytes, Vec::new()).refs.is_empty());
        let bytes = written(&state(9, refs(2, 1)), &[]);
        assert!(!opened(9, &bytes, Vec::new()).refs.is_empty());
    }

    /// Changes override the rows below them, both in memory and in a checkpoint of their own.
    #[test]
    fn layers_are_one_state() {
        let mut all = refs(1500, 400);
        let base = written(&state(9, all.clone()), &[]);
        let mut now = opened(9, &base, Vec::new());
        for at in (0..1500).step_by(50) {
            let name = name(at);
            let known = all.get_mut(&name).unwrap();
            if known.versions.remove(&2).is_some() {
                assert!(now.refs.take(&name, 2).unwrap().is_some());
            }
            known.last += 1;
            known.versions.insert(known.last, version(at));
            now.refs
                .set(&name, known.last, version(at))
                .unwrap()
                .unwrap();
        }
        let new: RefName = "team/t3/new".parse().unwrap();
        now.refs.set(&new, 1, version(1)).unwrap().unwrap();
        let known = RefState {
            last: 1,
            versions: [(1, version(1))].into(),
            extra: Extra::new(),
        };
        all.insert(new.clone(), known);
        now.number = 10;
        let expected = state(10, all.clone());
        assert_eq!(now, expected);
        now.check("x").unwrap();

        let layers = vec![now.refs.tables()[0].layer().unwrap()];
        assert_eq!((layers[0].number, layers[0].bytes), (9, base.len() as u64));
        let top = written(&now, &layers);
        assert!(
            top.len() * 10 < base.len(),
            "{} above {}",
            top.len(),
            base.len()
        );
        let mut above = opened(10, &top, now.refs.tables().to_vec());
        assert_eq!(above, expected);
        above.check("x").unwrap();
        assert_eq!(above.refs.all().unwrap(), all);
        assert_eq!(
            above.refs.version(&name(50), 2).unwrap(),
            None,
            "gone in the layer above"
        );
        let error = State::decode("x", &top).unwrap_err();
        assert!(
            error.to_string().contains("the checkpoints that it names"),
            "{error}"
        );

        // Dropping the newest version makes the one in the layer below the newest.
        assert!(above.refs.take(&name(50), 4).unwrap().is_some());
        let head = above.refs.head(&name(50)).unwrap().unwrap();
        assert_eq!((head.last, head.live, head.newest), (4, 1, 1));
        assert!(above.refs.take(&name(50), 2).unwrap().is_none());
        assert_eq!(
            above.refs.set(&name(50), 9, version(9)).unwrap().err(),
            Some(4)
        );
        // A merged checkpoint needs no layers.
        let merged = State::decode("x", &above.encode().unwrap()).unwrap();
        assert_eq!(merged, above);
        assert_eq!(merged.refs.tables().len(), 1);
    }

    #[test]
    fn a_change_is_undone() {
        let base = written(&state(9, refs(40, 5)), &[]);
        let mut now = opened(9, &base, Vec::new());
        let before = now.clone();
        let new: RefName = "project/p/new".parse().unwrap();
        let undo = [
            now.refs.set(&new, 1, version(8)).unwrap().unwrap(),
            now.refs.take(&name(0), 5).unwrap().unwrap(),
            now.refs.pin(&name(0), 4, true).unwrap().unwrap(),
            now.refs.take(&name(3), 1).unwrap().unwrap(),
            now.refs.take(&name(3), 2).unwrap().unwrap(),
            now.refs.take(&new, 1).unwrap().unwrap(),
        ];
        assert_ne!(now, before);
        assert_eq!(now.refs.head(&name(0)).unwrap().unwrap().newest, 4);
        assert!(now.refs.version(&name(0), 4).unwrap().unwrap().pinned);
        assert_eq!(now.refs.head(&name(3)).unwrap().unwrap().live, 0);
        undo.into_iter().rev().for_each(|undo| now.refs.undo(undo));
        assert_eq!(now, before);
        assert_eq!(now.refs.changed_rows(), 0);
    }

    #[test]
    fn a_checkpoint_with_flipped_or_missing_bytes_is_refused() {
        let bytes = state(9, refs(8, 4)).encode().unwrap();
        State::decode("x", &bytes).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x55;
            let error = State::decode("x", &flipped).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported),
                "{at}: {error}"
            );
            State::decode("x", &bytes[..at]).unwrap_err();
        }
        State::decode("x", &[&bytes[..], b"!"].concat()).unwrap_err();
    }

    /// A block is read only when a row in it is needed; then damage is found, and the error names its offset.
    #[test]
    fn what_is_not_asked_for_is_not_read() {
        let bytes = written(&state(9, refs(700, 2000)), &[]);
        let mut damaged = bytes.to_vec();
        damaged[20] ^= 1;
        let found = opened(9, &damaged.into(), Vec::new());
        assert_eq!(found.refs.version(&name(0), 7).unwrap(), Some(version(7)));
        let error = found.refs.head(&name(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let start = "checkpoints/00000009: block at offset 16: its sum is ";
        assert!(error.to_string().starts_with(start), "{error}");
        found.check("x").unwrap_err();
        assert_ne!(
            found,
            found.clone(),
            "nothing is equal to what cannot be read"
        );
    }

    #[test]
    fn a_state_that_contradicts_itself_is_refused_both_ways() {
        let mut bad = state(9, BTreeMap::new());
        bad.condemned.insert(
            PackId([2; 16]),
            Condemned {
                entry: 10,
                time: "2025-01-02T03:04:05Z".parse().unwrap(),
            },
        );
        let error = bad.encode().unwrap_err();
        let expected = "checkpoint: state of entry 9 names later entry 10";
        assert_eq!(error.to_string(), expected);
        bad.number = 10;
        let text = bad.encode().unwrap();
        assert_eq!(State::decode("x", &text).unwrap(), bad);
        bad.segments
            .insert(SegmentId([1; 16]), SegmentInfo::default());
        bad.dropped
            .insert(SegmentId([1; 16]), bad.condemned[&PackId([2; 16])]);
        assert!(bad.encode().is_err());
    }

    #[test]
    fn a_block_that_unfolds_beyond_what_is_said_is_refused() {
        // The lengths in the trailer are covered by the checksum and checked before anything is decoded.
        let bytes = state(9, BTreeMap::new()).encode().unwrap();
        let at = bytes.len() - 88 + 8;
        let mut huge = bytes.clone();
        huge[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(
            State::decode("x", &huge).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
    }
}
