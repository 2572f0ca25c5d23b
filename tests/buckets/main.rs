//! Stores in buckets, on independent servers, over faulty networks.
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
