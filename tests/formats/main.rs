//! Malformed objects: files named for their defect, each refused with exactly the words beside it; and the fuzz targets
//! under dice.
//!
//! `REGENERATE=1` writes files and words anew; what it changes is then read by a person.
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
