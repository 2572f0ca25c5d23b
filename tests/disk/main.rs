//! What a store in a local directory requires of the disk, and how the command handles failing disks, power cuts and
//! kills.
#![cfg(test)]

mod faults;
mod full;
mod jobs;
mod journal;
mod killed;
mod killed_save;
mod large;
mod mapped;
mod mounts;
mod power;
mod power_pool;
mod power_save;
mod shared;
mod sweep;
mod syncs;
mod trace;
mod unborn;
mod witness;
