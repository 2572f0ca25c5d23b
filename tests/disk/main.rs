//! What a local directory as a store asks of the disk, seen from outside by `strace`.
#![cfg(test)]

mod faults;
mod syncs;
mod trace;
