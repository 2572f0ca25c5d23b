//! Small packs (pure): small puts leave packs far below the usual size, and the collector joins them.
//!
//! As with folds of segments, packs of about one size wait until there are enough of them to make one of the next size.
//! So each byte is copied only a few times, and an idle store is left alone.

use std::collections::HashSet;

use store::PackId;
use store::format::PackKind;

use crate::usage::PackUse;

/// Packs are small if they are this many times smaller than a whole one.
const FAR_BELOW: u64 = 8;
/// The ratio of one size to the one before.
const RATIO: u64 = 8;
/// The number of sizes.
const SIZES: u32 = 4;
/// This many packs of one size are joined.
const ENOUGH: usize = 8;

/// Selects the packs among `left` to join. A whole pack has `target` bytes; at most `budget` bytes are copied.
pub(crate) fn small(left: &[&PackUse], target: u64, mut budget: u64) -> HashSet<PackId> {
    let mut joined = HashSet::new();
    for kind in [PackKind::Data, PackKind::Meta, PackKind::Both] {
        let mut limit = target / FAR_BELOW / RATIO.pow(SIZES - 1);
        let mut packs: Vec<&PackUse> = left
            .iter()
            .filter(|pack| pack.kind == kind)
            .copied()
            .collect();
        packs.sort_by_key(|pack| (pack.bytes, pack.pack));
        let mut packs = packs.into_iter().peekable();
        for _ in 0..SIZES {
            let mut group = Vec::new();
            while let Some(pack) = packs.next_if(|pack| pack.bytes < limit) {
                group.push(pack);
            }
            if group.len() >= ENOUGH {
                let fits = within(budget, &group);
                let bytes: u64 = fits.iter().map(|pack| pack.bytes).sum();
                budget -= bytes;
                joined.extend(fits.iter().map(|pack| pack.pack));
            }
            limit *= RATIO;
        }
    }
    joined
}

/// As many packs of `group` as `budget` allows, if these are enough to be joined.
fn within<'g, 'p>(budget: u64, group: &'g [&'p PackUse]) -> &'g [&'p PackUse] {
    let mut bytes = 0;
    let fits = group.iter().take_while(|pack| {
        bytes += pack.bytes;
        bytes <= budget
    });
    match fits.count() {
        count if count >= ENOUGH => group.split_at(count).0,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: u64 = 64 << 20;

    fn pack(number: u64, kind: PackKind, bytes: u64) -> PackUse {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_be_bytes());
        PackUse {
            pack: PackId(id),
            kind,
            bytes,
            stored_bytes: bytes,
            live_stored_bytes: bytes,
            live_chunks: 1,
        }
    }

    fn joined(packs: &[PackUse], budget: u64) -> usize {
        let packs: Vec<&PackUse> = packs.iter().collect();
        small(&packs, TARGET, budget).len()
    }

    #[test]
    fn packs_of_one_kind_and_about_one_size_are_joined_when_there_are_enough() {
        let of = |kind, count: u64, bytes| (0..count).map(move |at| pack(at, kind, bytes));
        let data: Vec<PackUse> = of(PackKind::Data, 7, 3000).collect();
        assert_eq!(joined(&data, u64::MAX), 0, "too few");
        let both: Vec<_> = data
            .iter()
            .cloned()
            .chain(of(PackKind::Meta, 7, 3000))
            .collect();
        assert_eq!(joined(&both, u64::MAX), 0, "too few of each kind");
        let sizes: Vec<_> = data
            .iter()
            .cloned()
            .chain(of(PackKind::Data, 7, 300_000))
            .collect();
        assert_eq!(joined(&sizes, u64::MAX), 0, "too few of each size");
        let enough: Vec<_> = of(PackKind::Data, 8, 3000).collect();
        assert_eq!(joined(&enough, u64::MAX), 8);
        assert_eq!(joined(&enough, 20_000), 0, "too many bytes");
        let large: Vec<_> = of(PackKind::Data, 20, TARGET / FAR_BELOW).collect();
        assert_eq!(joined(&large, u64::MAX), 0, "not far below");
        let almost: Vec<_> = of(PackKind::Data, 20, TARGET / FAR_BELOW - 1).collect();
        assert_eq!(joined(&almost, u64::MAX), 20);
    }

    #[test]
    fn each_byte_is_copied_a_few_times_however_often_somebody_collects() {
        let (bytes, puts) = (3000, 20_000);
        let mut packs: Vec<PackUse> = Vec::new();
        let (mut copied, mut most) = (0, 0);
        for number in 0..puts {
            packs.push(pack(number, PackKind::Data, bytes));
            let left: Vec<&PackUse> = packs.iter().collect();
            let joined = small(&left, TARGET, u64::MAX);
            if joined.is_empty() {
                continue;
            }
            let (old, kept): (Vec<PackUse>, _) = packs
                .into_iter()
                .partition(|pack| joined.contains(&pack.pack));
            packs = kept;
            let whole = old.iter().map(|pack| pack.bytes).sum();
            copied += whole;
            packs.push(pack(number, PackKind::Data, whole));
            most = most.max(packs.len());
        }
        assert!(most < 40, "{most} packs at once");
        let times = copied / (bytes * puts);
        assert!(times <= 6, "each byte was copied {times} times");
        assert!(joined(&packs, u64::MAX) == 0, "and then nothing is to do");
    }
}
