//! What a local directory as a store asks of the disk, and what the command does when disks fail,
//! power is cut and processes are killed.
#![cfg(test)]

mod faults;
mod full;
mod jobs;
mod journal;
mod killed;
mod large;
mod mapped;
mod mounts;
mod power;
mod power_pool;
mod sweep;
mod syncs;
mod trace;
mod witness;
