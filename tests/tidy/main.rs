//! The rules of the house that no compiler checks: what files say, how long they are, which
//! way imports point, which words are used, and that no file is forgotten.
//!
//! Each test lists every offence at once, as `file:line: what`.
#![cfg(test)]

mod files;
mod imports;
mod promises;
mod source;
mod suites;
mod words;
