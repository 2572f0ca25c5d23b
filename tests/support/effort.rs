//! How much open-ended tests try: little in the ordinary suite, much in the slow one.

/// Set by the slow suite (`tests/run slow`).
const SLOW: &str = "STORE_TESTS_SLOW";

/// `ordinary`, or `slow` in the slow suite.
pub fn effort<T>(ordinary: T, slow: T) -> T {
    match std::env::var_os(SLOW) {
        Some(_) => slow,
        None => ordinary,
    }
}
