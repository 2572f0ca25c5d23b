//! Rules of the house that no compiler checks: what files say, how long they are, which way imports go, which words are
//! used, and that no file is forgotten.
//!
//! Each test lists all offences at once, as `file:line: what`.
#![cfg(test)]

mod circles;
mod files;
mod imports;
mod promises;
mod source;
mod suites;
mod words;
