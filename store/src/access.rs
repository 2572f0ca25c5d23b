//! Access records: the days on which each version was read. Size limits drop the least recently used versions first.
//!
//! A record is an empty object; its key holds the day and the version. `get`, `cat` and `materialize` write a record
//! when they finish, and servers write one per day for each version that they serve. Nothing depends on a record: a
//! reader that cannot write a record goes on without an error and without waiting. Any record may vanish at any time.
//! The clocks behind the days decide only the order in which versions are dropped.

use std::collections::{BTreeSet, HashMap};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::error::{Error, ErrorKind, Result};
use crate::format::{RefName, USES_PREFIX, parse_use_key, use_key};
use crate::fs::{read_regular, write_atomically};
use crate::id::VersionId;
use crate::remote::Read;
use crate::store::Store;

/// Most bytes of the notes of a day.
const NOTES_BYTES_MAX: u64 = 256 << 20;

/// The access records of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses(HashMap<VersionId, BTreeSet<Date>>);

impl Uses {
    /// Reads the records from a listing of their keys.
    ///
    /// # Errors
    /// When the remote cannot be listed.
    pub fn read(remote: &dyn Read) -> Result<Self> {
        let listed = remote.list(USES_PREFIX)?;
        Ok(listed
            .iter()
            .filter_map(|info| parse_use_key(&info.key))
            .collect())
    }

    /// Returns the day on which a version was last used, as of `now`. A day later than tomorrow comes from a wrong
    /// clock and is ignored.
    pub fn last(&self, version: VersionId, now: Timestamp) -> Option<Date> {
        let last = day(now).saturating_add(1.day());
        let days = self.0.get(&version)?;
        days.range(..=last).next_back().copied()
    }

    /// Iterates over all records.
    pub fn iter(&self) -> impl Iterator<Item = (Date, VersionId)> {
        self.0
            .iter()
            .flat_map(|(version, days)| days.iter().map(|day| (*day, *version)))
    }
}

impl FromIterator<(Date, VersionId)> for Uses {
    fn from_iter<I: IntoIterator<Item = (Date, VersionId)>>(uses: I) -> Self {
        let mut found: HashMap<VersionId, BTreeSet<Date>> = HashMap::new();
        for (day, version) in uses {
            found.entry(version).or_default().insert(day);
        }
        Self(found)
    }
}

/// Returns the day of `time` in UTC.
pub fn day(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

/// Records that version `number` of `name` was used today. Failures are dropped silently.
pub fn leave(store: &Store, name: &RefName, number: u64) {
    if store.format().check_writable().is_err() {
        return;
    }
    let (day, version) = (day(Timestamp::now()), VersionId::of(name, number));
    let touch = || store.remote().touch(&use_key(day, version));
    match store.host().cache_dir_of(store.format().id) {
        Some(dir) if store.is_far() => {
            let path = dir.join("uses");
            if !is_noted(&path, day, version) && is_settled(&touch()) {
                drop(note(&path, day, version));
            }
        }
        _ => drop(touch()),
    }
}

/// Whether trying again today would be useless.
fn is_settled(touched: &Result<()>) -> bool {
    match touched {
        Ok(()) => true,
        Err(error) => matches!(
            error.kind(),
            ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::InvalidInput
        ),
    }
}

/// The notes in a file of this host; none, if it has no such file.
fn text_of(path: &Path) -> String {
    let bytes = read_regular(path, NOTES_BYTES_MAX).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// Whether this host has already recorded that use, or was refused. The file has a line for the day, and then one line
/// for each version.
fn is_noted(path: &Path, day: Date, version: VersionId) -> bool {
    let text = text_of(path);
    let mut lines = text.lines();
    lines.next() == Some(&day.to_string()) && lines.any(|line| line == version.to_string())
}

/// Adds a use to the file. If two processes start a new day at the same time, one note is lost, which costs a request.
fn note(path: &Path, day: Date, version: VersionId) -> Result<()> {
    let text = text_of(path);
    if text.lines().next() != Some(&day.to_string()) {
        return write_atomically(path, format!("{day}\n{version}\n").as_bytes());
    }
    let mut file = OpenOptions::new()
        .append(true)
        .open(path)
        .map_err(|source| Error::io("open", path, source))?;
    file.write_all(format!("{version}\n").as_bytes())
        .map_err(|source| Error::io("write", path, source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use jiff::civil::date;

    use crate::format::Who;
    use crate::remote::testing::faulty::Faults;
    use crate::remote::{Faulty, Objects};
    use crate::store::Host;

    fn id(number: u8) -> VersionId {
        VersionId([number; 16])
    }

    #[test]
    fn the_last_day_counts_unless_it_lies_ahead() {
        let days = [
            date(2026, 1, 2),
            date(2026, 3, 4),
            date(2026, 3, 6),
            date(2099, 1, 1),
        ];
        let uses: Uses = days.into_iter().map(|day| (day, id(1))).collect();
        let last = |now: &str| uses.last(id(1), now.parse().unwrap());
        for (now, expected) in [
            ("2026-01-01T00:00:00Z", Some(date(2026, 1, 2))),
            ("2025-12-31T23:59:59Z", None),
            ("2026-03-04T23:59:59Z", Some(date(2026, 3, 4))),
            ("2026-03-05T00:00:00Z", Some(date(2026, 3, 6))),
            ("2026-12-31T00:00:00Z", Some(date(2026, 3, 6))),
        ] {
            assert_eq!(last(now), expected, "{now}");
        }
        assert_eq!(uses.last(id(2), Timestamp::now()), None);
        assert_eq!(uses.iter().count(), 4);
    }

    #[test]
    fn a_host_leaves_a_use_once_a_day_and_tries_again_where_nobody_answered() {
        let dir = tempfile::tempdir().unwrap();
        let remote = Arc::new(Faulty::new(Arc::new(Objects::memory()), Faults::default()));
        let host = Host {
            cache_dir: Some(dir.path().into()),
            who: Who::default(),
            memory_bytes: 1 << 20,
            threads: 1,
            stop: Arc::new(AtomicBool::new(false)),
        };
        let store = Store::init(remote.clone(), host).unwrap();
        let name: RefName = "project/a/b".parse().unwrap();
        let requests = |number| {
            let before = remote.counts().requests;
            leave(&store, &name, number);
            remote.counts().requests - before
        };
        remote.set(Faults {
            before: 1000,
            ..Faults::default()
        });
        assert_eq!((requests(1), requests(1)), (1, 1));
        remote.set(Faults::default());
        assert_eq!((requests(1), requests(1)), (1, 0));
        assert_eq!((requests(2), requests(2), requests(1)), (1, 0, 0));
        // A note of another day counts for nothing.
        let path = dir.path().join(store.format().id.to_string()).join("uses");
        let text = std::fs::read_to_string(&path).unwrap();
        let (_, versions) = text.split_once('\n').unwrap();
        std::fs::write(&path, format!("2001-01-01\n{versions}")).unwrap();
        assert_eq!((requests(1), requests(2), requests(2)), (1, 1, 0));
        let uses = Uses::read(remote.as_ref()).unwrap();
        assert_eq!(uses.iter().count(), 2);
        assert!(
            uses.last(VersionId::of(&name, 2), Timestamp::now())
                .is_some()
        );
    }
}
