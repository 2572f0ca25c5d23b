//! Decides which frames are read together. Reading a few unneeded bytes is cheaper than another request; how many
//! depends on where the pack is.

use crate::id::PackId;
use crate::index::Location;

/// How reads of one pack are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesce {
    /// The most stored bytes of one read, unless a single frame is larger.
    pub read_bytes_max: u32,
    /// The largest gap between two frames that is read and discarded.
    pub gap_bytes_max: u32,
}

impl Coalesce {
    /// Reads from a local disk, or from a file system that looks local.
    pub const NEAR: Self = Self {
        read_bytes_max: 4 << 20,
        gap_bytes_max: 64 << 10,
    };
    /// Reads from a bucket: a request takes as long as transferring a megabyte.
    pub const FAR: Self = Self {
        read_bytes_max: 8 << 20,
        gap_bytes_max: 1 << 20,
    };
    /// Copies from pack to pack: long reads with small gaps.
    pub const COPY: Self = Self {
        read_bytes_max: 8 << 20,
        gap_bytes_max: 64 << 10,
    };
}

/// Consecutive stored bytes of one pack, which begin and end at frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The pack.
    pub pack: PackId,
    /// Its offset in the pack.
    pub offset: u32,
    /// Its length in bytes.
    pub len: u32,
}

impl Extent {
    /// Returns the extent of the frame that holds a chunk.
    pub fn of(location: &Location) -> Self {
        Self {
            pack: location.pack,
            offset: location.frame_offset,
            len: location.stored_len,
        }
    }

    /// Extends this to `next`, which begins no earlier, if one read may cover both; returns whether it did.
    pub fn join(&mut self, next: &Self, by: Coalesce) -> bool {
        let end = u64::from(self.offset) + u64::from(self.len);
        let next_end = u64::from(next.offset) + u64::from(next.len);
        let is_inside = next.offset >= self.offset && next_end <= end;
        let is_near = u64::from(next.offset) <= end + u64::from(by.gap_bytes_max)
            && next_end.saturating_sub(u64::from(self.offset)) <= u64::from(by.read_bytes_max);
        if self.pack != next.pack || next.offset < self.offset || !(is_inside || is_near) {
            return false;
        }
        let len = end.max(next_end) - u64::from(self.offset);
        self.len = u32::try_from(len).unwrap_or(u32::MAX);
        true
    }
}

/// Sorts `items` by position, and groups those that one read covers, with the extent of the read.
pub fn coalesce<T>(
    mut items: Vec<T>,
    extent_of: impl Fn(&T) -> Extent,
    by: Coalesce,
) -> Vec<(Extent, Vec<T>)> {
    items.sort_by_key(|item| {
        let extent = extent_of(item);
        (extent.pack, extent.offset)
    });
    let mut reads: Vec<(Extent, Vec<T>)> = Vec::new();
    for item in items {
        let extent = extent_of(&item);
        let last = reads.last_mut();
        match last.and_then(|(read, covered)| read.join(&extent, by).then_some(covered)) {
            Some(covered) => covered.push(item),
            None => reads.push((extent, vec![item])),
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY: Coalesce = Coalesce {
        read_bytes_max: 100,
        gap_bytes_max: 10,
    };

    fn extent(offset: u32, len: u32) -> Extent {
        Extent {
            pack: PackId([1; 16]),
            offset,
            len,
        }
    }

    /// Extends `first` by `next`, if one read covers both.
    fn joined(first: Extent, next: Extent) -> Option<(u32, u32)> {
        let mut extent = first;
        extent
            .join(&next, BY)
            .then_some((extent.offset, extent.len))
    }

    #[test]
    fn neighbours_join_up_to_a_gap_and_a_length() {
        assert_eq!(joined(extent(50, 20), extent(70, 20)), Some((50, 40)));
        assert_eq!(joined(extent(50, 20), extent(80, 20)), Some((50, 50)));
        assert_eq!(joined(extent(50, 20), extent(81, 20)), None, "the gap");
        assert_eq!(joined(extent(50, 60), extent(110, 40)), Some((50, 100)));
        assert_eq!(joined(extent(50, 60), extent(110, 41)), None, "the length");
    }

    #[test]
    fn what_is_inside_joins_a_read_of_any_length() {
        assert_eq!(joined(extent(50, 500), extent(50, 500)), Some((50, 500)));
        assert_eq!(joined(extent(50, 500), extent(550, 1)), None);
    }

    #[test]
    fn another_pack_and_what_lies_before_never_join() {
        let other = Extent {
            pack: PackId([2; 16]),
            ..extent(70, 20)
        };
        assert_eq!(joined(extent(50, 20), other), None);
        assert_eq!(joined(extent(50, 20), extent(40, 10)), None);
    }
}
