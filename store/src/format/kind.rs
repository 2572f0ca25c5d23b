//! Kinds of frames and packs. File data and metadata are kept apart, so that reading one does not read the other.

use std::fmt;

/// The bit of a frame's raw length that marks metadata.
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
    /// Returns the word that encodes the raw length and the kind of a frame.
    pub(super) fn with(self, raw_len: u32) -> u32 {
        match self {
            Self::Data => raw_len,
            Self::Meta => raw_len | META_BIT,
        }
    }

    /// Splits that word into the kind and the raw length.
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
    /// Data and metadata, when there is little of both.
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
    /// Returns the kind that `byte` encodes.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Data),
            1 => Some(Self::Meta),
            2 => Some(Self::Both),
            _ => None,
        }
    }

    /// Returns the byte that encodes the kind.
    pub fn byte(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Meta => 1,
            Self::Both => 2,
        }
    }

    /// Whether such a pack may hold a frame of `kind`.
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
