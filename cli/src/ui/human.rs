//! Numbers for people: sizes, counts, times, and sizes as people write them.
//!
//! Sizes are decimal (1 MB = 1,000,000 bytes), as `ls --si`, disks and networks count.

use std::time::Duration;

use jiff::{SpanRelativeTo, Timestamp};

/// `0 B`, `999 B`, `1.50 kB`, `12.3 MB`, `456 GB`: three significant digits.
pub(crate) fn bytes(count: u64) -> String {
    store::Size(count).to_string()
}

/// `about 1.50 kB saved`, or what it costs if `by` is negative.
pub(crate) fn saved(by: i64) -> String {
    let about = bytes(by.unsigned_abs());
    match by < 0 {
        true => format!("costs about {about} more"),
        false => format!("about {about} saved"),
    }
}

/// `1,234,567`.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 file`, `2,000 files`.
pub(crate) fn counted(number: u64, one: &str) -> String {
    let many = match one.strip_suffix('y') {
        _ if number == 1 => one.to_owned(),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{one}s"),
    };
    format!("{} {many}", count(number))
}

/// `0.04 s`, `12.3 s`, `4 min 5 s`, `2 h 3 min`.
pub(crate) fn duration(time: Duration) -> String {
    let secs = time.as_secs();
    match secs {
        0 => format!("{:.2} s", time.as_secs_f64()),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3600 => format!("{} min {} s", secs / 60, secs % 60),
        _ => format!("{} h {} min", secs / 3600, secs / 60 % 60),
    }
}

/// `123 MB/s`.
pub(crate) fn rate(count: u64, time: Duration) -> String {
    let nanos = time.as_nanos().max(1);
    let per_sec = u128::from(count) * 1_000_000_000 / nanos;
    format!("{}/s", bytes(u64::try_from(per_sec).unwrap_or(u64::MAX)))
}

/// `4.5 %`.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * ratio(part, whole.max(1)))
}

/// `2026-11-21 04:41:21`, in UTC.
pub(crate) fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Bytes from `4096`, `64k`, `10MB`, `1.5GiB`: decimal, or binary where an `i` says so.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim().to_ascii_lowercase();
    let unit = unit.strip_suffix('b').unwrap_or(&unit);
    let (letter, base) = unit
        .strip_suffix('i')
        .map_or((unit, 1000_u128), |letter| (letter, 1024));
    let power = match letter {
        "" if base == 1000 => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(SIZE_EXPECTED.to_owned()),
    };
    scaled(number, base.pow(power)).ok_or_else(|| SIZE_EXPECTED.to_owned())
}

/// A smaller size limit for versions probably lacks its unit.
const LIMIT_MIN: u64 = 1000;

/// A size limit for versions. Rejects limits below the size of one version, which would keep nothing.
pub(crate) fn parse_limit(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < LIMIT_MIN => Err(format!(
            "{} is less than one version takes: write it with its unit, like 500GB",
            self::bytes(bytes)
        )),
        bytes => Ok(bytes),
    }
}

/// How long something is kept. Rejects less than a second, which would keep nothing.
pub(crate) fn parse_life(text: &str) -> Result<Duration, String> {
    match parse_span(text)? {
        time if time.as_secs() == 0 => {
            Err("0 keeps nothing: say how long, like 30d, or leave it out".to_owned())
        }
        time => Ok(time),
    }
}

/// How often something is done. Rejects less than a second, which would do nothing else.
pub(crate) fn parse_rhythm(text: &str) -> Result<Duration, String> {
    match parse_span(text)? {
        time if time.as_secs() == 0 => Err("expected a second or more, like 10m".to_owned()),
        time => Ok(time),
    }
}

/// How many versions are kept. Rejects zero, which would keep nothing.
pub(crate) fn parse_versions(text: &str) -> Result<usize, String> {
    let count: u64 = (text.parse()).map_err(|_| "expected a number of versions".to_owned())?;
    Versions::try_from(count).map(|Versions(count)| count)
}

/// The number of a version, or 0 for none.
pub(crate) fn parse_version(text: &str) -> Result<u64, String> {
    let parsed = text.trim_start_matches('@').parse();
    parsed
        .map_err(|_| "expected the number of a version, as `store history REF` shows it".to_owned())
}

/// A time from `90s`, `30m`, `12h`, `30d`, `8w`, `1y` (365 days), or from several units, like `1h30m`, `2 days, 6 hours`
/// or `PT36H`.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    one_unit(text)
        .or_else(|| units(text))
        .ok_or_else(|| SPAN_EXPECTED.to_owned())
}

/// Parses one number, which may have a fraction, and one unit; days and longer units may have a fraction, too.
fn one_unit(text: &str) -> Option<Duration> {
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let secs = match unit.trim() {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        "w" => 7 * 24 * 3600,
        "y" => 365 * 24 * 3600,
        "" if number == "0" => 1,
        _ => return None,
    };
    scaled(number, secs).map(Duration::from_secs)
}

/// Parses several units with jiff. A day has 24 hours; months are rejected because their length varies.
fn units(text: &str) -> Option<Duration> {
    let span: jiff::Span = text.parse().ok()?;
    let exact = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    exact.try_into().ok()
}

/// Parts per million from `5%` or `0.5%`.
pub(crate) fn parse_percent(text: &str) -> Result<u64, String> {
    let number = text.trim().strip_suffix('%').unwrap_or(text.trim());
    scaled(number.trim(), 10_000)
        .filter(|ppm| *ppm <= 1_000_000)
        .ok_or_else(|| "expected a share like 5% or 0.5%".to_owned())
}

/// A time as people write it.
#[derive(Clone, Copy, Debug, serde::Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Span(pub(crate) Duration);

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_span(&text).map(Self)
    }
}

/// How long something is kept, as people write it.
#[derive(Clone, Copy, Debug, serde::Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Life(pub(crate) Duration);

impl TryFrom<String> for Life {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_life(&text).map(Self)
    }
}

/// How many versions are kept; never none.
#[derive(Clone, Copy, Debug, serde::Deserialize, PartialEq, Eq)]
#[serde(try_from = "u64")]
pub(crate) struct Versions(pub(crate) usize);

impl TryFrom<u64> for Versions {
    type Error = String;

    fn try_from(count: u64) -> Result<Self, String> {
        match count {
            0 => Err(
                "0 keeps nothing: leave it out to drop none; `store rm` drops versions".to_owned(),
            ),
            count => Ok(Self(usize::try_from(count).unwrap_or(usize::MAX))),
        }
    }
}

/// A percentage as people write it, in parts per million.
#[derive(Clone, Copy, Debug, serde::Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Percent(pub(crate) u64);

impl TryFrom<String> for Percent {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_percent(&text).map(Self)
    }
}

const SPAN_EXPECTED: &str = "expected a time like 90s, 12h, 30d or 8w";
const SIZE_EXPECTED: &str = "expected a size like 4096, 64k, 10MB or 1.5GiB";

/// `number` times `factor`; the number may have up to nine fractional digits.
fn scaled(number: &str, factor: u128) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 9 || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let divisor = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    u64::try_from(digits.checked_mul(factor)? / divisor).ok()
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits_and_round_into_the_next_unit() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (1_234, "1.23 kB"),
            (99_949, "99.9 kB"),
            (99_950, "100 kB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (2_800_000_000, "2.80 GB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "file"), "1 file");
        assert_eq!(counted(0, "file"), "0 files");
        assert_eq!(counted(1, "directory"), "1 directory");
        assert_eq!(counted(2, "directory"), "2 directories");
        assert_eq!(counted(2, "day"), "2 days");
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("64k", 64_000),
            ("64KiB", 65_536),
            ("10 MB", 10_000_000),
            ("1.5GiB", 3 << 29),
            (".5k", 500),
            ("2T", 2_000_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for bad in [
            "",
            "x",
            "-1",
            "1.2.3",
            "1ib",
            "1e3",
            "5 apples",
            "99999999P",
            ".",
        ] {
            assert_eq!(parse_size(bad), Err(SIZE_EXPECTED.to_owned()), "{bad}");
        }
    }

    #[test]
    fn spans_and_shares_are_read_as_people_write_them() {
        for (text, secs) in [
            ("0", 0),
            ("90s", 90),
            ("12h", 43_200),
            ("1.5d", 129_600),
            ("2w", 1_209_600),
            ("1y", 31_536_000),
            ("30 min", 1_800),
            ("1h30m", 5_400),
            ("1w2d", 777_600),
            ("2 days, 6 hours", 194_400),
            ("PT36H", 129_600),
        ] {
            assert_eq!(parse_span(text), Ok(Duration::from_secs(secs)), "{text}");
        }
        for bad in ["", "5", "h", "5 parsecs", "-1d", "1mo", "1h ago", "1d-2h"] {
            assert_eq!(parse_span(bad), Err(SPAN_EXPECTED.to_owned()), "{bad}");
        }
        assert_eq!(parse_percent("5%"), Ok(50_000));
        assert_eq!(parse_percent("0.5"), Ok(5_000));
        assert!(parse_percent("101%").is_err() && parse_percent("x").is_err());
    }

    #[test]
    fn durations_and_rates() {
        assert_eq!(duration(Duration::from_millis(40)), "0.04 s");
        assert_eq!(duration(Duration::from_secs(245)), "4 min 5 s");
        assert_eq!(duration(Duration::from_secs(7_400)), "2 h 3 min");
        assert_eq!(rate(1_000_000, Duration::from_millis(500)), "2.00 MB/s");
        assert_eq!(percent(1, 8), "12.5 %");
    }
}
