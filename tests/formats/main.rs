//! Malformed objects: files named for their defect, each refused with exactly the message beside it; and the fuzz
//! targets with random input.
//!
//! `REGENERATE=1` rewrites files and messages; a person then reviews the changes.
#![cfg(test)]

mod beside;
mod binary;
mod bombs;
mod bundle;
mod checkpoint;
mod dice;
#[path = "../fuzz/src/lib.rs"]
mod fuzz;
mod malformed;
mod packs;
mod sealed;
mod seeds;
