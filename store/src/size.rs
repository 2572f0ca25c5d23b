//! Sizes for people, in errors and reports: decimal (1 MB = 1,000,000 bytes), as `ls --si`, disks and networks count.

use std::fmt;

const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];

/// A number of bytes, shown with three significant digits: `0 B`, `999 B`, `1.50 kB`, `12.3 MB`, `456 GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut unit, mut divisor) = (0, 1_u64);
        // Takes the next unit if rounding to three digits would show 1000 of this one.
        while unit + 1 < UNITS.len()
            && self.0.saturating_add(divisor / 2) >= divisor.saturating_mul(1000)
        {
            divisor *= 1000;
            unit += 1;
        }
        let name = UNITS.get(unit).copied().unwrap_or_default();
        match (divisor, ratio(self.0, divisor)) {
            (1, _) => write!(out, "{} {name}", self.0),
            (_, value @ ..9.995) => write!(out, "{value:.2} {name}"),
            (_, value @ ..99.95) => write!(out, "{value:.1} {name}"),
            (_, value) => write!(out, "{value:.0} {name}"),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
