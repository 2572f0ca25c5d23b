//! Kinds of frames and packs: bytes of files and metadata are told apart, so that nobody reads the one for the other.

use std::fmt;

/// The bit of a frame's raw length that says that the frame holds metadata.
const META_BIT: u32 = 1 << 31;

/// What a frame holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    /// Chunks of files.
    #[default]
    Data,
    /// Trees, list nodes, times and other side objects.
    Meta,
}

impl FrameKind {
    /// The four bytes that say the length and kind of a frame, once decoded.
    pub(super) fn with(self, raw_len: u32) -> u32 {
        match self {
            Self::Data => raw_len,
            Self::Meta => raw_len | META_BIT,
        }
    }

    /// The kind and the length that these four bytes say.
    pub(super) fn split(word: u32) -> (Self, u32) {
        match word & META_BIT {
            0 => (Self::Data, word),
            _ => (Self::Meta, word & !META_BIT),
        }
    }
}

/// What a pack holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PackKind {
    /// Chunks of files.
    Data,
    /// Trees, list nodes, times and other side objects.
    Meta,
    /// A little of both.
    Both,
}

impl From<FrameKind> for PackKind {
    fn from(kind: FrameKind) -> Self {
        match kind {
            FrameKind::Data => Self::Data,
            FrameKind::Meta => Self::Meta,
        }
    }
}

impl PackKind {
    /// The kind that `byte` stands for.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Data),
            1 => Some(Self::Meta),
            2 => Some(Self::Both),
            _ => None,
        }
    }

    /// The byte that stands for it.
    pub fn byte(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Meta => 1,
            Self::Both => 2,
        }
    }

    /// Whether a frame of `kind` may lie in such a pack.
    pub fn admits(self, kind: FrameKind) -> bool {
        self == Self::Both || self == kind.into()
    }
}

impl fmt::Display for FrameKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        PackKind::from(*self).fmt(out)
    }
}

impl fmt::Display for PackKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Data => "data",
            Self::Meta => "metadata",
            Self::Both => "data or metadata",
        })
    }
}
