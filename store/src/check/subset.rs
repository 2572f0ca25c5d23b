//! Selects the packs that a partial verification reads (pure): a share, a number of bytes, or the slot of today.
//!
//! The calendar forms need no state: the name of a pack determines its slot, and each day or week reads one slot, so
//! that a full round reads every pack. Shares and bytes first select packs that were never read, and then those read
//! longest ago.

use jiff::civil::Date;

use crate::error::{Error, Result};
use crate::id::PackId;

/// Which part of the packs is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subset {
    /// Millionths of all bytes.
    Share(u32),
    /// Bytes.
    Bytes(u64),
    /// Packs of slot `slot` of `slots`.
    Slot {
        /// The slot, counted from 0.
        slot: u32,
        /// How many slots there are.
        slots: u32,
    },
}

const EXPECTED: &str =
    "expected a share like 5%, a size like 10G, or daily/week, weekly/month or daily/month";

impl Subset {
    /// Parses `5%`, `10G`, `daily/week`, `weekly/month` or `daily/month`; the calendar forms select the slot of
    /// `today`. A month counts as 4 weeks or 28 days, so that even the shortest month reads everything; the rest of a
    /// longer month repeats the last slot.
    ///
    /// # Errors
    /// Invalid input, listing the valid forms.
    pub fn parse(text: &str, today: Date) -> Result<Self> {
        let day = u32::try_from(today.day() - 1).unwrap_or(0);
        let weekday = u32::try_from(today.weekday().to_monday_zero_offset()).unwrap_or(0);
        let slot = |slot: u32, slots: u32| {
            let slot = slot.min(slots - 1);
            Some(Self::Slot { slot, slots })
        };
        let subset = match text {
            "daily/week" => slot(weekday, 7),
            "weekly/month" => slot(day / 7, 4),
            "daily/month" => slot(day, 28),
            _ => match text.strip_suffix('%') {
                Some(percent) => share(percent),
                None => bytes(text),
            },
        };
        subset.ok_or_else(|| Error::invalid(format!("subset {text:?}: {EXPECTED}")))
    }

    /// Returns the packs to read. `packs` gives for each pack its length and when it was last read (`None`: never).
    pub fn choose(self, packs: &[(PackId, u32, Option<i64>)]) -> Vec<PackId> {
        let limit = match self {
            Self::Slot { slot, slots } => {
                let in_slot = |id: &PackId| slot_of(*id, slots) == slot;
                let ids = packs.iter().map(|(id, _, _)| *id);
                return ids.filter(in_slot).collect();
            }
            Self::Bytes(bytes) => bytes,
            Self::Share(millionths) => {
                let all: u128 = packs.iter().map(|(_, len, _)| u128::from(*len)).sum();
                u64::try_from((all * u128::from(millionths)).div_ceil(1_000_000))
                    .unwrap_or(u64::MAX)
            }
        };
        let mut packs = packs.to_vec();
        packs.sort_by_key(|(id, _, read)| (*read, *id));
        let mut taken = 0;
        packs
            .iter()
            .take_while(|(_, len, _)| {
                let goes_on = taken < limit;
                taken += u64::from(*len);
                goes_on
            })
            .map(|(id, _, _)| *id)
            .collect()
    }
}

fn slot_of(id: PackId, slots: u32) -> u32 {
    let slot = u128::from_le_bytes(id.0) % u128::from(slots.max(1));
    u32::try_from(slot).unwrap_or(0)
}

/// Parses a percentage like `5` or `0.25` into millionths.
fn share(percent: &str) -> Option<Subset> {
    let (whole, fraction) = percent.split_once('.').unwrap_or((percent, ""));
    if fraction.len() > 4 || !is_digits(whole) || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let millionths: u32 = format!("{whole}{fraction:0<4}").parse().ok()?;
    (1..=1_000_000)
        .contains(&millionths)
        .then_some(Subset::Share(millionths))
}

/// Parses a size like `4096`, `500M`, `10GB` or `10GiB`.
fn bytes(text: &str) -> Option<Subset> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix('b').unwrap_or(&unit);
    let (letter, base) = match unit.strip_suffix('i') {
        Some(letter) => (letter, 1024_u64),
        None => (unit, 1000),
    };
    let power = match letter {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(base.pow(power))?;
    (bytes > 0).then_some(Subset::Bytes(bytes))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::civil::date;

    use super::*;

    fn packs(count: u32) -> Vec<(PackId, u32, Option<i64>)> {
        (0..count)
            .map(|at| (PackId(u128::from(at).to_be_bytes()), 100, None))
            .map(|(id, len, read)| {
                let mut hash = [0; 16];
                hash.copy_from_slice(&blake3::hash(&id.0).as_bytes()[..16]);
                (PackId(hash), len, read)
            })
            .collect()
    }

    #[test]
    fn every_form_is_read() {
        let today = date(2026, 11, 21);
        for (text, subset) in [
            ("5%", Subset::Share(50_000)),
            ("0.25%", Subset::Share(2_500)),
            ("100%", Subset::Share(1_000_000)),
            ("10G", Subset::Bytes(10_000_000_000)),
            ("1KiB", Subset::Bytes(1024)),
            ("77", Subset::Bytes(77)),
            ("daily/week", Subset::Slot { slot: 5, slots: 7 }),
            ("weekly/month", Subset::Slot { slot: 2, slots: 4 }),
            (
                "daily/month",
                Subset::Slot {
                    slot: 20,
                    slots: 28,
                },
            ),
        ] {
            assert_eq!(Subset::parse(text, today).unwrap(), subset, "{text}");
        }
        for bad in [
            "",
            "%",
            "0%",
            "101%",
            "-5%",
            "0",
            "5x",
            "1.5G",
            "+5",
            "daily",
            "hourly/day",
        ] {
            let error = Subset::parse(bad, today).unwrap_err();
            assert_eq!(error.to_string(), format!("subset {bad:?}: {EXPECTED}"));
        }
    }

    #[test]
    fn a_round_of_slots_reads_every_pack() {
        let packs = packs(500);
        let all: BTreeSet<PackId> = packs.iter().map(|(id, _, _)| *id).collect();
        let rounds: [(&str, Vec<Date>); 3] = [
            (
                "daily/week",
                (2..=8).map(|day| date(2026, 3, day)).collect(),
            ),
            (
                "weekly/month",
                (1..=28).map(|day| date(2026, 2, day)).collect(),
            ),
            (
                "daily/month",
                (1..=31).map(|day| date(2026, 1, day)).collect(),
            ),
        ];
        for (text, days) in rounds {
            let mut read = BTreeSet::new();
            for day in days {
                let chosen = Subset::parse(text, day).unwrap().choose(&packs);
                assert!(
                    chosen.len() < 250,
                    "{text}: {} packs on {day}",
                    chosen.len()
                );
                read.extend(chosen);
            }
            assert_eq!(read, all, "{text}");
        }
    }

    #[test]
    fn what_was_never_read_comes_first_then_the_oldest() {
        let mut packs = packs(10);
        for (at, pack) in packs.iter_mut().enumerate().skip(3) {
            pack.2 = Some(1000 - at as i64);
        }
        let chosen = Subset::Bytes(450).choose(&packs);
        let mut never: Vec<_> = packs[..3].iter().map(|pack| pack.0).collect();
        never.sort();
        assert_eq!(chosen[..3], never);
        assert_eq!(chosen[3..], [packs[9].0, packs[8].0]);
        assert_eq!(Subset::Share(50_000).choose(&packs).len(), 1);
        assert_eq!(Subset::Share(1_000_000).choose(&packs).len(), 10);
    }
}
