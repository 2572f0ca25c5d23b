//! Times: modification times of all entries of a version, in depth-first order, beginning with the root.
//!
//! Each time is stored as its difference to the previous one, so that a tree that was unpacked at once takes few bytes.
//! The list has no count: the trees tell how many entries there are.

use super::cursor::{Cursor, corrupt};
use crate::error::Result;

/// The first bytes of a list of times.
pub const TIMES_MAGIC: [u8; 4] = *b"time";
/// Version of lists of times.
pub const TIMES_VERSION: u8 = 1;
/// Bytes before the first time: magic, version, padding.
pub const TIMES_HEADER_LEN: usize = 4 + 1 + 3;
/// Most bytes of one time: ten for the seconds and five for the nanoseconds.
pub const TIME_BYTES_MAX: usize = 10 + 5;
/// The highest value of [`Time::nanos`].
pub const TIME_NANOS_MAX: u32 = 999_999_999;

const _: () = assert!(TIMES_HEADER_LEN == 8);
const OBJECT: &str = "times";

/// A modification time: seconds since 1970 and nanoseconds below 10^9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds; may be negative.
    pub secs: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

/// Writes times one by one, each as its difference to the previous one.
#[derive(Debug, Default)]
pub struct TimesEncoder {
    last: i64,
}

impl TimesEncoder {
    /// Begins a list: appends its header to `out`.
    pub fn new(out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&TIMES_MAGIC);
        out.extend_from_slice(&[TIMES_VERSION, 0, 0, 0]);
        Self::default()
    }

    /// Appends one time to `out`: at most 15 bytes. Nanoseconds are limited to [`TIME_NANOS_MAX`].
    pub fn push(&mut self, time: Time, out: &mut Vec<u8>) {
        push_varint(zigzag(time.secs.wrapping_sub(self.last)), out);
        push_varint(time.nanos.min(TIME_NANOS_MAX).into(), out);
        self.last = time.secs;
    }
}

/// Decodes times one by one from bytes that arrive in pieces.
#[derive(Debug, Default)]
pub struct TimesDecoder {
    last: i64,
    started: bool,
}

impl TimesDecoder {
    /// A decoder at the start of a list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the next time and how many bytes of `input` it took, including the header the first time. Returns `None`
    /// when `input` does not hold a whole time.
    ///
    /// # Errors
    /// Corrupt, when a number is not in its shortest form or out of range; unsupported, when the version is unknown.
    pub fn next(&mut self, input: &[u8]) -> Result<Option<(Time, usize)>> {
        let header = if self.started { 0 } else { TIMES_HEADER_LEN };
        let Some((header, rest)) = input.split_at_checked(header) else {
            return Ok(None);
        };
        if !self.started {
            check_header(header)?;
        }
        let Some((delta, delta_len)) = take_varint(OBJECT, rest)? else {
            return Ok(None);
        };
        let Some((nanos, nanos_len)) =
            take_varint(OBJECT, rest.get(delta_len..).unwrap_or_default())?
        else {
            return Ok(None);
        };
        let secs = self.last.wrapping_add(unzigzag(delta));
        let nanos = u32::try_from(nanos).ok().filter(|n| *n <= TIME_NANOS_MAX);
        let nanos = nanos.ok_or_else(|| {
            corrupt(
                OBJECT,
                format_args!("nanoseconds: expected at most {TIME_NANOS_MAX}, found more"),
            )
        })?;
        self.started = true;
        self.last = secs;
        let taken = header.len() + delta_len + nanos_len;
        Ok(Some((Time { secs, nanos }, taken)))
    }
}

/// Decodes all times of a complete list; `object` names it in errors.
///
/// # Errors
/// Corrupt, when a time is not encoded as [`TimesEncoder`] would, or is incomplete.
pub fn decode_times(object: &str, bytes: &[u8]) -> Result<Vec<Time>> {
    let mut decoder = TimesDecoder::new();
    let mut times = Vec::new();
    let mut rest = bytes;
    while let Some((time, taken)) = decoder.next(rest).map_err(|error| error.within(object))? {
        times.push(time);
        rest = rest.get(taken..).unwrap_or_default();
    }
    let empty = times.is_empty() && rest.len() == TIMES_HEADER_LEN;
    if empty {
        check_header(rest).map_err(|error| error.within(object))?;
    }
    if empty || rest.is_empty() && !times.is_empty() {
        return Ok(times);
    }
    let at = bytes.len() - rest.len();
    Err(corrupt(
        object,
        format_args!(
            "time at offset {at}: expected a whole one, found {} bytes",
            rest.len()
        ),
    ))
}

fn check_header(header: &[u8]) -> Result<()> {
    let mut cursor = Cursor::new(OBJECT, header);
    cursor.magic(&TIMES_MAGIC)?;
    let version = cursor.u8("version")?;
    cursor.version(version.into(), TIMES_VERSION.into())?;
    cursor.zeros(3)
}

/// Maps small differences of either sign to small numbers: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
fn zigzag(value: i64) -> u64 {
    (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// LEB128: seven bits per byte, lowest first; the high bit is set on all bytes but the last.
pub(super) fn push_varint(mut value: u64, out: &mut Vec<u8>) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            out.push(low & 0x7f);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Reads a number; returns it and its length in bytes, or `None` when `input` ends inside of it.
pub(super) fn take_varint(object: &str, input: &[u8]) -> Result<Option<(u64, usize)>> {
    let mut value: u64 = 0;
    for (at, byte) in input.iter().enumerate() {
        let (bits, last) = (u64::from(byte & 0x7f), byte & 0x80 == 0);
        let fits = at < 9 || at == 9 && bits <= 1 && last;
        if !fits || last && bits == 0 && at > 0 {
            let detail = "number: expected the shortest spelling of at most 64 bits, found another";
            return Err(corrupt(object, detail));
        }
        value |= bits << (7 * at);
        if last {
            return Ok(Some((value, at + 1)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn encode(times: &[Time]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = TimesEncoder::new(&mut out);
        times.iter().for_each(|time| encoder.push(*time, &mut out));
        out
    }

    fn time(secs: i64, nanos: u32) -> Time {
        Time { secs, nanos }
    }

    fn some_times() -> Vec<Time> {
        vec![
            time(0, 0),
            time(1_700_000_000, 999_999_999),
            time(1_700_000_001, 1),
            time(-1, 128),
            time(i64::MIN, 127),
            time(i64::MAX, 0),
            time(i64::MIN, 5),
        ]
    }

    #[test]
    fn times_survive_and_are_short() {
        let bytes = encode(&some_times());
        assert_eq!(decode_times("x", &bytes).unwrap(), some_times());
        assert_eq!(encode(&[time(1, 0), time(0, 300)])[8..], [2, 0, 1, 0xac, 2]);
        assert_eq!(decode_times("x", &encode(&[])).unwrap(), []);
        let longest = encode(&[time(i64::MIN, 999_999_999)]);
        assert_eq!(longest.len(), TIMES_HEADER_LEN + TIME_BYTES_MAX);
        assert_eq!(
            encode(&[time(0, u32::MAX)]),
            encode(&[time(0, TIME_NANOS_MAX)])
        );
    }

    #[test]
    fn bytes_may_arrive_one_by_one() {
        let bytes = encode(&some_times());
        let mut decoder = TimesDecoder::new();
        let (mut found, mut begin) = (Vec::new(), 0);
        for end in 0..=bytes.len() {
            if let Some((time, taken)) = decoder.next(&bytes[begin..end]).unwrap() {
                assert_eq!(begin + taken, end);
                begin = end;
                found.push(time);
            }
        }
        assert_eq!(found, some_times());
    }

    #[test]
    fn other_spellings_are_refused() {
        let number =
            "x: times: number: expected the shortest spelling of at most 64 bits, found another";
        let cases: [(&[u8], &str); 6] = [
            (&[0x80, 0x00, 0x00], number),
            (&[0x00, 0x81, 0x00], number),
            (
                &[
                    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0,
                ],
                number,
            ),
            (
                &[
                    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0,
                ],
                number,
            ),
            (
                &[0x00, 0x80, 0x94, 0xeb, 0xdc, 0x03],
                "x: times: nanoseconds: expected at most 999999999, found more",
            ),
            (
                &[0x00],
                "x: time at offset 0: expected a whole one, found 9 bytes",
            ),
        ];
        for (bytes, message) in cases {
            let bytes = [&encode(&[]), bytes].concat();
            let error = decode_times("x", &bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn another_header_is_refused() {
        let error = decode_times("x", b"time\x02\0\0\0\0\0").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let error = decode_times("x", b"tame\x01\0\0\0").unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: times: magic at offset 0: expected time, found tame"
        );
        assert!(decode_times("x", b"time").is_err());
        assert!(decode_times("x", b"").is_err());
    }
}
