//! Combines chunks into frames: neighbours of one class share a frame of about 1 MiB, incompressible chunks get their
//! own. Numbers that are similar to those of existing chunks are stored as deltas.
//!
//! The only place that decides how chunks are framed and encoded. Put, replicate, repair and the collector all use it,
//! so that none undoes the choices of another.

use crossbeam_channel::Sender;

use super::EncodedFrame;
use super::near::{BaseSource, Near, NearFrame, NoSource, Try};
use crate::codec::{Class, Decoder, DeltaBase, Elements, Encoder};
use crate::error::{Error, Result};
use crate::format::{FrameKind, PackChunk};
use crate::id::ChunkId;

/// A frame is encoded when it has about this many bytes.
const FRAME_BYTES_TARGET: usize = 1 << 20;
/// A chunk of at least this size may get a frame of its own; smaller ones gain more from their neighbours.
const ALONE_BYTES_MIN: usize = 16 << 10;

/// A frame, and the kind of pack that it is for.
pub type KindFrame = (FrameKind, EncodedFrame);

/// Takes finished frames.
pub trait FrameSink {
    /// Takes a frame for a pack of `kind`.
    ///
    /// # Errors
    /// When the frame cannot be written, or the receiver has stopped.
    fn frame(&mut self, kind: FrameKind, frame: EncodedFrame) -> Result<()>;
}

impl FrameSink for Sender<KindFrame> {
    fn frame(&mut self, kind: FrameKind, frame: EncodedFrame) -> Result<()> {
        self.send((kind, frame))
            .map_err(|_| Error::interrupted("the packer stopped"))
    }
}

/// Combines chunks into frames; one for each thread that stores chunks.
pub struct Framer<S, B = NoSource> {
    kind: FrameKind,
    encoder: Encoder,
    check: Option<Decoder>,
    raw: Vec<u8>,
    /// Where frames are encoded. Its capacity is that of the worst case, so finished frames are copied out of it.
    stored: Vec<u8>,
    chunks: Vec<PackChunk>,
    /// The class of the gathered chunks; `None` if all are too small to be judged.
    class: Option<Class>,
    /// The possible base of the gathered chunks.
    near: Option<NearFrame>,
    base_bytes: Vec<u8>,
    delta: Vec<u8>,
    sources: B,
    sink: S,
}

impl<S: FrameSink> Framer<S> {
    /// Creates a framer that encodes at zstd's `level` for packs of `kind`. With `verify`, decodes each frame and
    /// compares it.
    ///
    /// # Errors
    /// When the codec cannot be set up.
    pub fn new(kind: FrameKind, level: i32, verify: bool, sink: S) -> Result<Self> {
        Self::with_bases(kind, level, verify, sink, NoSource)
    }
}

#[cfg_attr(
    feature = "internals",
    expect(private_bounds, reason = "others make framers without bases only")
)]
impl<S: FrameSink, B: BaseSource> Framer<S, B> {
    /// Like [`Framer::new`], but tries deltas with bases from `sources`.
    ///
    /// # Errors
    /// As for [`Framer::new`].
    pub(crate) fn with_bases(
        kind: FrameKind,
        level: i32,
        verify: bool,
        sink: S,
        sources: B,
    ) -> Result<Self> {
        Ok(Self {
            kind,
            encoder: Encoder::new(level)?,
            check: verify.then(Decoder::new).transpose()?,
            raw: Vec::new(),
            stored: Vec::new(),
            chunks: Vec::new(),
            class: None,
            near: None,
            base_bytes: Vec::new(),
            delta: Vec::new(),
            sources,
            sink,
        })
    }

    /// Adds a chunk, which is stored now or with later chunks.
    ///
    /// # Errors
    /// When a frame cannot be encoded, or the sink does not take it; corrupt, when a frame decodes to other bytes.
    pub fn push(&mut self, id: ChunkId, bytes: &[u8]) -> Result<()> {
        self.push_near(id, bytes, &mut || Ok(None))
    }

    /// Like [`Self::push`], for a chunk that may become the difference to what `near` returns, which is called only if
    /// a delta may be worth it.
    ///
    /// # Errors
    /// As for [`Self::push`]; any error of `near`.
    pub(crate) fn push_near(
        &mut self,
        id: ChunkId,
        bytes: &[u8],
        near: &mut dyn FnMut() -> Result<Option<Near>>,
    ) -> Result<()> {
        let chunk = PackChunk {
            id,
            len: length(bytes)?,
        };
        if self.kind == FrameKind::Data && bytes.len() >= ALONE_BYTES_MIN {
            let class = Class::of(bytes);
            if class == Class::Noise {
                return self.send_raw(chunk, bytes);
            }
            let near = match class {
                Class::Elements(_) => near()?,
                _ => None,
            };
            self.flush_others(class, bytes.len(), near)?;
        } else if self.raw.len() + bytes.len() > FRAME_BYTES_TARGET || self.near.is_some() {
            self.flush()?;
        }
        self.raw.extend_from_slice(bytes);
        self.chunks.push(chunk);
        Ok(())
    }

    /// Adds an encoded frame after the gathered chunks. Its chunks must have been verified.
    ///
    /// # Errors
    /// As for [`Self::push`].
    pub fn push_frame(&mut self, frame: EncodedFrame) -> Result<()> {
        self.flush()?;
        self.send(frame)
    }

    /// Encodes the gathered chunks.
    ///
    /// # Errors
    /// As for [`Self::push`].
    pub fn flush(&mut self) -> Result<()> {
        if self.raw.is_empty() {
            return Ok(());
        }
        let class = self.class.take().unwrap_or(Class::Bytes);
        let bases = match (self.near.take(), class) {
            (Some(near), Class::Elements(elements)) => self.encode_near(&near, elements)?,
            _ => {
                self.encode_plain(class)?;
                Vec::new()
            }
        };
        self.compare(&bases)?;
        let frame = EncodedFrame {
            stored: self.stored.clone(),
            raw_len: length(&self.raw)?,
            chunks: std::mem::take(&mut self.chunks),
            bases,
        };
        self.raw.clear();
        self.send(frame)
    }

    /// Stores everything gathered, and returns the sink.
    ///
    /// # Errors
    /// As for [`Self::push`].
    pub fn finish(mut self) -> Result<S> {
        self.flush()?;
        Ok(self.sink)
    }

    /// Encodes the gathered chunks, unless a chunk of `class` and `len` may join them.
    fn flush_others(&mut self, class: Class, len: usize, near: Option<Near>) -> Result<()> {
        let joined = class.behind(self.raw.len());
        let has_room = self.raw.len() + len <= FRAME_BYTES_TARGET;
        let is_alike = self.class.is_none_or(|gathered| gathered == joined);
        let joins = has_room
            && is_alike
            && match (&mut self.near, &near) {
                (Some(gathered), Some(near)) => gathered.join(near, len),
                (None, None) => true,
                _ => false,
            };
        if !joins {
            self.flush()?;
            self.near = near.map(|near| NearFrame::begin(near, len));
        }
        self.class = Some(class.behind(self.raw.len()));
        Ok(())
    }

    fn encode_plain(&mut self, class: Class) -> Result<()> {
        self.stored.clear();
        self.encoder.encode_as(class, &self.raw, &mut self.stored)
    }

    /// Encodes the frame as a delta if that is much smaller; returns the bases, or none if it is plain.
    fn encode_near(&mut self, near: &NearFrame, elements: Elements) -> Result<Vec<ChunkId>> {
        let (base, plain) = (near.base(), Class::Elements(elements));
        let how = match self.bring(&base)? {
            true => near.trial.next(self.raw.len()),
            false => Try::No,
        };
        if how == Try::No {
            self.encode_plain(plain)?;
            return Ok(Vec::new());
        }
        self.delta.clear();
        let bytes = &self.base_bytes;
        (self.encoder).encode_delta(&self.raw, elements, &base, bytes, &mut self.delta)?;
        let is_small = match how {
            Try::Delta(most) => self.delta.len() <= most,
            _ => false,
        };
        let is_kept = is_small || {
            self.encode_plain(plain)?;
            let (plain, delta) = (self.stored.len(), self.delta.len());
            near.trial.decide(self.raw.len(), plain, delta)
        };
        if is_kept && self.sources.rely(&base.ids)? {
            std::mem::swap(&mut self.stored, &mut self.delta);
            return Ok(base.ids);
        }
        if is_small {
            self.encode_plain(plain)?;
        }
        Ok(Vec::new())
    }

    /// Reads the bytes of a base; returns whether there are enough.
    fn bring(&mut self, base: &DeltaBase) -> Result<bool> {
        self.base_bytes.clear();
        let is_there = (self.sources).append(&base.ids, &mut self.base_bytes)?;
        let needed = self.raw.len() + usize::try_from(base.skip).unwrap_or(usize::MAX / 2);
        Ok(is_there && self.base_bytes.len() >= needed)
    }

    fn send_raw(&mut self, chunk: PackChunk, bytes: &[u8]) -> Result<()> {
        let mut stored = Vec::with_capacity(bytes.len() + 1);
        Encoder::encode_raw(bytes, &mut stored);
        self.send(EncodedFrame {
            stored,
            raw_len: chunk.len,
            chunks: vec![chunk],
            bases: Vec::new(),
        })
    }

    fn compare(&mut self, bases: &[ChunkId]) -> Result<()> {
        let Some(decoder) = &mut self.check else {
            return Ok(());
        };
        let (mut out, raw_len) = (Vec::new(), length(&self.raw)?);
        let (object, stored) = ("frame just encoded", &self.stored);
        let decoded = match bases.is_empty() {
            true => decoder.decode_plain(object, stored, raw_len, &mut out)?,
            false => decoder.decode_on(object, stored, raw_len, &self.base_bytes, &mut out)?,
        };
        if decoded == self.raw {
            return Ok(());
        }
        Err(
            Error::corrupt("frame just encoded: it decodes to other bytes")
                .hint("the memory of this host is likely to be damaged; nothing was published"),
        )
    }

    fn send(&mut self, frame: EncodedFrame) -> Result<()> {
        self.sink.frame(self.kind, frame)
    }
}

fn length(bytes: &[u8]) -> Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| Error::invalid("a frame would outgrow 32-bit lengths"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_frame_that_decodes_to_other_bytes_fails_the_put_that_verifies() {
        let (frames, _packer) = crossbeam_channel::unbounded();
        let mut framer = Framer::new(FrameKind::Data, 3, true, frames).unwrap();
        let encode = |framer: &mut Framer<Sender<KindFrame>>, bytes: &[u8]| {
            framer.stored.clear();
            framer.encoder.encode(bytes, &mut framer.stored).unwrap();
        };
        framer.raw = b"what was read".to_vec();
        encode(&mut framer, b"what was read");
        framer.compare(&[]).unwrap();
        // Of the same length, and itself a valid frame.
        encode(&mut framer, b"what was Read");
        let error = framer.compare(&[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        framer.check = None;
        framer.compare(&[]).unwrap();
    }
}
