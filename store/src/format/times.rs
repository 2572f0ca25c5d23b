//! Times: modification times of all entries of a ref version, in depth-first order, the root's first.

use crate::error::Result;

/// A modification time: seconds since 1970 and nanoseconds below 10^9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds; may be negative.
    pub secs: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

/// Writes times one after another, each as its difference to the one before.
#[derive(Debug, Default)]
pub struct TimesEncoder {
    last: i64,
}

impl TimesEncoder {
    /// A new list: appends its header to `out`.
    pub fn new(_out: &mut Vec<u8>) -> Self {
        todo!()
    }

    /// Appends one time to `out`: at most 15 bytes.
    pub fn push(&mut self, _time: Time, _out: &mut Vec<u8>) {
        todo!()
    }
}

/// Reads times one after another out of bytes that arrive in pieces.
#[derive(Debug, Default)]
pub struct TimesDecoder {
    last: i64,
    started: bool,
}

impl TimesDecoder {
    /// A decoder at the start of a list.
    pub fn new() -> Self {
        todo!()
    }

    /// The next time and how many bytes of `input` it took (the header included, the first time);
    /// `None` when `input` is too short to hold one.
    pub fn next(&mut self, _input: &[u8]) -> Result<Option<(Time, usize)>> {
        todo!()
    }
}
