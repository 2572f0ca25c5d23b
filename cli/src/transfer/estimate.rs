//! Estimates the time of a transfer from its limit and from earlier runs between the same stores.

use std::time::Duration;

use store::StoreId;

use crate::journal::{JobDir, Numbers, Status};

/// Smaller runs are ignored: their start and end take more time than the transfer.
const TELLING_BYTES: u64 = 1 << 20;

/// Bytes per second; `None` if nothing is known.
pub(super) fn rate(limit: Option<u64>, from: StoreId, to: StoreId) -> Option<u64> {
    let jobs = JobDir::all().unwrap_or_default();
    let known = jobs.iter().filter_map(Status::read);
    let runs = known
        .filter(|status| status.facts.stores == Some((from, to)))
        .flat_map(|status| status.runs)
        .map(|run| run.numbers);
    let earlier = earlier(runs);
    match (limit, earlier) {
        (Some(limit), Some(earlier)) => Some(limit.min(earlier)),
        (limit, earlier) => limit.or(earlier),
    }
}

/// The time for this many bytes.
pub(super) fn time(bytes: u64, rate: u64) -> Duration {
    let millis = u128::from(bytes) * 1000 / u128::from(rate.max(1));
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

fn earlier(runs: impl Iterator<Item = Numbers>) -> Option<u64> {
    let mut bytes = 0_u128;
    let mut millis = 0_u128;
    for run in runs.filter(|run| run.sent_bytes >= TELLING_BYTES) {
        bytes += u128::from(run.sent_bytes);
        let took = Duration::try_from_secs_f64(run.secs).unwrap_or_default();
        millis += took.as_millis();
    }
    let rate = (bytes * 1000).checked_div(millis)?;
    u64::try_from(rate).ok().filter(|rate| *rate > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_earlier_runs_counts_those_that_moved_something() {
        let run = |sent_bytes, secs| Numbers {
            sent_bytes,
            secs,
            ..Numbers::default()
        };
        assert_eq!(earlier([].into_iter()), None);
        assert_eq!(
            earlier([run(10, 5.0), run(5_000_000, 0.0)].into_iter()),
            None
        );
        let runs = [run(6_000_000, 2.0), run(2_000_000, 2.0), run(100, 900.0)];
        assert_eq!(earlier(runs.into_iter()), Some(2_000_000));
        assert_eq!(time(3_000_000, 2_000_000), Duration::from_millis(1500));
        assert_eq!(time(1, 0), Duration::from_secs(1));
    }
}
