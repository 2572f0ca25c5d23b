//! What a local directory as a store asks of the disk, seen from outside by `strace`.

mod syncs;
mod trace;
