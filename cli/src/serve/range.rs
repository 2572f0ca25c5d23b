//! The `Range` header: the part of a file that a request wants.

use std::ops::Range;

/// The requested bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    Part(Range<u64>),
    /// A range outside of the file.
    Nothing,
}

impl Wanted {
    /// Parses `bytes=a-b`, `a-` or `-n`. Anything else, and several ranges, mean the whole file.
    pub(crate) fn parse(text: &str, size: u64) -> Self {
        let Some(text) = text.strip_prefix("bytes=") else {
            return Self::All;
        };
        let Some((first, last)) = text.split_once('-') else {
            return Self::All;
        };
        let (first, last) = (first.trim(), last.trim());
        let number = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| text.parse().unwrap_or(u64::MAX))
        };
        let range = match (first, last) {
            ("", "") => return Self::All,
            ("", tail) => number(tail).map(|tail| size.saturating_sub(tail)..size),
            (first, "") => number(first).map(|first| first..size),
            (first, last) => match (number(first), number(last)) {
                (Some(first), Some(last)) if first > last => return Self::All,
                (Some(first), Some(last)) => Some(first..last.saturating_add(1).min(size)),
                _ => None,
            },
        };
        match range {
            None => Self::All,
            Some(range) if range.start < range.end => Self::Part(range),
            Some(_) => Self::Nothing,
        }
    }
}

/// The header Content-Range for a part of a file of `size` bytes, or for a range outside of it.
pub(crate) fn content_range(part: Option<&Range<u64>>, size: u64) -> String {
    match part {
        Some(part) => format!("bytes {}-{}/{size}", part.start, part.end.saturating_sub(1)),
        None => format!("bytes */{size}"),
    }
}

/// Why a range is refused, for the access log.
pub(crate) fn outside(size: u64) -> String {
    format!("no byte of the range is in the file, which has {size}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_every_form() {
        for (text, expected) in [
            ("bytes=0-", Wanted::Part(0..100)),
            ("bytes=0-0", Wanted::Part(0..1)),
            ("bytes=10-11272", Wanted::Part(10..100)),
            ("bytes=99-", Wanted::Part(99..100)),
            ("bytes=-10", Wanted::Part(90..100)),
            ("bytes=-1000", Wanted::Part(0..100)),
            ("bytes=0-18446744073709551615", Wanted::Part(0..100)),
            ("bytes=100-", Wanted::Nothing),
            ("bytes=100-200", Wanted::Nothing),
            ("bytes=-0", Wanted::Nothing),
            ("bytes=99999999999999999999-", Wanted::Nothing),
            ("bytes=5-4", Wanted::All),
            ("bytes=0-1,3-4", Wanted::All),
            ("bytes=a-b", Wanted::All),
            ("bytes=-", Wanted::All),
            ("lines=0-1", Wanted::All),
        ] {
            assert_eq!(Wanted::parse(text, 100), expected, "{text}");
        }
        assert_eq!(Wanted::parse("bytes=0-", 0), Wanted::Nothing);
    }
}
