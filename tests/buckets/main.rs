//! Stores in buckets, on servers that nobody here wrote, over networks as they are.
#![cfg(test)]

mod conformance;
mod proxied;
