//! Checkpoints of some kilobytes that hold megabytes, and say so.

use crate::checkpoint::{Named, Packed, Parts, head, index_row};
use crate::sealed::{compress, repeated};

/// What a part is said to hold, and does: more than its few hundred bytes are believed to.
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
