//! The engine without the command: what goes in comes out, on a directory and in memory.

#![cfg(test)]

mod between;
mod broken;
mod collect;
mod collected;
mod collectors;
mod crash;
mod damage;
mod damaged;
mod golden;
mod input;
mod inspect;
mod interleaved;
mod kept;
mod later;
mod limits;
mod long;
mod lost;
mod materializers;
mod meddler;
mod misplaced;
mod model;
mod origins;
mod orphaned;
mod profile;
mod progress;
mod relied;
mod repacked;
mod replicate;
mod replicators;
mod restored;
mod rolled_back;
mod roundtrip;
mod save_bases;
mod save_schedules;
mod saves;
mod schedules;
mod settled;
mod stores;
mod travel;
mod underfoot;
mod uses;
mod verified;
mod wide;
mod world;
