//! Remotes for tests: faults, schedules, scripts, a server with defined answers, and the suite that every backend must
//! pass. Only used in tests.

pub mod conformance;
pub mod faulty;
#[cfg(test)]
pub(crate) mod overwriting;
pub mod schedule;
pub mod scripted;
#[cfg(test)]
pub(in crate::remote) mod server;
