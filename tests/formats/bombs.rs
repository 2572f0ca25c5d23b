//! Checkpoints of a few kilobytes that expand to megabytes, and announce it.

use crate::checkpoint::{Named, Packed, Parts, head, index_row};
use crate::sealed::{compress, repeated};

/// The announced and actual size of a part; the decoder accepts less for a few hundred bytes.
const BYTES: usize = 20 << 20;

pub(crate) fn of_checkpoints() -> Named {
    let packed = |bytes: &[u8]| -> Packed { (compress(bytes), bytes.len()) };
    let bomb = (repeated(b' ', BYTES), BYTES);
    let row = index_row("team/a/b", 0, &bomb.0, BYTES, 2);
    let (good, head) = (Parts::default(), packed(head().to_string().as_bytes()));
    vec![
        (
            "head-that-holds-too-much",
            good.around_packed(&[], &bomb, &packed(&[])),
        ),
        (
            "index-that-holds-too-much",
            good.around_packed(&[], &head, &bomb),
        ),
        (
            "block-that-holds-too-much",
            good.around_packed(&bomb.0, &head, &packed(&row)),
        ),
    ]
}
