//! Doubles of a remote for tests: faults, schedules, scripts, a server that answers as told, and the suite
//! that every backend must pass. Nothing of it is used outside of tests.

pub mod conformance;
pub mod faulty;
#[cfg(test)]
pub(crate) mod overwriting;
pub mod schedule;
pub mod scripted;
#[cfg(test)]
pub(in crate::remote) mod server;
