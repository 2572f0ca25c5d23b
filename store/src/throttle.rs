//! Throttle: limits how fast bytes are sent. A token bucket, with its clock from outside.

mod limited;

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::store::Host;

pub use limited::limited;

/// Up to this many seconds of unused speed may be made up for.
const BURST_SECS: f64 = 0.25;
/// The longest sleep between two checks for a request to stop.
const NAP_MAX: Duration = Duration::from_millis(50);

/// The clock of a throttle.
pub(crate) trait Clock {
    /// The time since any fixed moment.
    fn now(&mut self) -> Duration;

    fn sleep(&mut self, time: Duration);
}

/// The machine's clock.
#[derive(Debug)]
pub(crate) struct Machine(Instant);

/// Makes callers wait that send too fast.
#[derive(Debug)]
pub(crate) struct Throttle<C = Machine> {
    clock: C,
    /// Bytes per second; without it, there is no limit.
    rate: Option<f64>,
    /// Bytes that may be sent at once; if negative, bytes that were sent too early.
    tokens: f64,
    seen: Duration,
}

impl Throttle<Machine> {
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self::with(Machine(Instant::now()), bytes_per_second)
    }
}

impl<C: Clock> Throttle<C> {
    fn with(mut clock: C, bytes_per_second: Option<u64>) -> Self {
        #[expect(
            clippy::cast_precision_loss,
            reason = "nobody asks for more than 2^53 bytes in a second"
        )]
        let rate = bytes_per_second
            .filter(|rate| *rate > 0)
            .map(|rate| rate as f64);
        let seen = clock.now();
        Self {
            clock,
            rate,
            tokens: 0.0,
            seen,
        }
    }

    /// Waits until `bytes` more may be sent.
    ///
    /// # Errors
    /// Interrupted, when the caller asked to stop meanwhile.
    pub(crate) fn pass(&mut self, bytes: u32, host: &Host) -> Result<()> {
        let Some(rate) = self.rate else {
            return Ok(());
        };
        self.refill(rate);
        // A request is allowed as soon as nothing is owed, since a frame may be larger than any burst.
        while self.tokens < 0.0 {
            host.check_stop()?;
            let owed = Duration::from_secs_f64(-self.tokens / rate);
            self.clock.sleep(owed.min(NAP_MAX));
            self.refill(rate);
        }
        self.tokens -= f64::from(bytes);
        Ok(())
    }

    fn refill(&mut self, rate: f64) {
        let now = self.clock.now();
        let gained = now.saturating_sub(self.seen).as_secs_f64() * rate;
        self.seen = now;
        self.tokens = (self.tokens + gained).min(rate * BURST_SECS);
    }
}

impl Clock for Machine {
    fn now(&mut self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::ErrorKind;
    use crate::format::Who;

    /// A clock that only moves by sleeping.
    struct Slept(Duration);

    impl Clock for Slept {
        fn now(&mut self) -> Duration {
            self.0
        }

        fn sleep(&mut self, time: Duration) {
            self.0 += time;
        }
    }

    fn host(stop: bool) -> Host {
        Host {
            cache_dir: None,
            who: Who::default(),
            memory_bytes: 0,
            threads: 1,
            stop: Arc::new(stop.into()),
        }
    }

    #[test]
    fn bytes_go_at_the_rate_that_was_asked_for() {
        let mut throttle = Throttle::with(Slept(Duration::ZERO), Some(1000));
        for _ in 0..100 {
            throttle.pass(300, &host(false)).unwrap();
        }
        // 30,000 bytes; nobody waits for the last of them.
        let secs = throttle.clock.0.as_secs_f64();
        assert!((29.6..29.8).contains(&secs), "{secs}");
        throttle.clock.0 += Duration::from_secs(3600);
        let before = throttle.clock.0;
        for _ in 0..10 {
            throttle.pass(300, &host(false)).unwrap();
        }
        let secs = (throttle.clock.0 - before).as_secs_f64();
        assert!((2.4..2.6).contains(&secs), "no more than the burst: {secs}");
    }

    #[test]
    fn without_a_rate_nobody_waits_and_a_wait_ends_when_asked_to_stop() {
        let mut free = Throttle::with(Slept(Duration::ZERO), None);
        free.pass(u32::MAX, &host(true)).unwrap();
        assert_eq!(free.clock.0, Duration::ZERO);
        let mut slow = Throttle::with(Slept(Duration::ZERO), Some(1));
        slow.pass(1 << 20, &host(true)).unwrap();
        let error = slow.pass(1, &host(true)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
    }
}
