//! The engine without the command: what goes in comes out, on a directory and in memory.

#![cfg(test)]

mod roundtrip;
mod support;
