//! How much open-ended tests try: little in the ordinary suite, much in the slow one.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many seeds are tried at a time: in a schedule, most time passes with pauses before another attempt.
const AT_A_TIME: usize = 4;

/// Set by the slow suite (`tests/run slow`).
const SLOW: &str = "STORE_TESTS_SLOW";

/// `ordinary`, or `slow` in the slow suite.
pub fn effort<T>(ordinary: T, slow: T) -> T {
    match std::env::var_os(SLOW) {
        Some(_) => slow,
        None => ordinary,
    }
}

/// Tries this many seeds, a few at a time.
///
/// # Panics
/// If one of them does.
pub fn each_seed(count: u64, run: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(0);
    let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < count);
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| std::iter::from_fn(take).for_each(&run));
        }
    });
}
