//! Malformed objects: files named for their defect, each refused with exactly the words beside it.
//!
//! `REGENERATE=1` writes files and words anew; what it changes is then read by a person.
#![cfg(test)]

mod beside;
mod binary;
mod checkpoint;
mod malformed;
mod packs;
mod sealed;
