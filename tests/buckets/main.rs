//! Stores in buckets, on servers that nobody here wrote, over networks as they are.
#![cfg(test)]

mod bucket;
mod conformance;
mod credentials;
mod economy;
mod faults;
mod host;
mod jobs;
mod link;
mod proxied;
mod push;
mod reach;
mod seed;
mod serving;
mod several;
mod transfers;
mod verbs;
