//! What the tests share: the command in an isolated environment, trees made from a seed, and a comparison of trees that
//! shares no code with the engine.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod compare;
mod effort;
mod environment;
pub mod hub;
pub mod proxy;
mod random;
mod script;
pub mod servers;
pub mod trees;

pub use compare::{Seen, assert_same_but_file_times, assert_same_tree, seen};
pub use effort::{each_seed, effort};
pub use environment::{Finished, TestEnvironment, settings, under, with_mounts};
pub use random::Random;
pub use script::Script;
