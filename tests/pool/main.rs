//! Pools and materialized trees: many processes, other file systems, crashes, and users who write where they should
//! not.

#![cfg(test)]

mod cold;
mod crash;
mod damage;
mod evict;
mod hostile;
mod killed;
mod led;
mod life;
mod lost;
mod midway;
mod mixed;
mod mounts;
mod overruled;
mod planted;
mod precious;
mod records;
mod remove;
mod shared;
mod stopped;
mod taken;
mod torn;
mod update;
mod users;
mod world;
