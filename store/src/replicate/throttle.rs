//! How fast bytes may go: a token bucket, with its clock from outside.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::store::Host;

/// Seconds of unused speed that may be made up for.
const BURST_SECS: f64 = 0.25;
/// How long a wait takes at most before it is looked whether to stop.
const NAP_MAX: Duration = Duration::from_millis(50);

/// What a throttle takes from outside.
pub(super) trait Clock {
    /// Since any fixed moment.
    fn now(&mut self) -> Duration;

    fn sleep(&mut self, time: Duration);
}

/// The machine's clock.
#[derive(Debug)]
pub(super) struct Machine(Instant);

/// Holds back whoever sends too fast.
#[derive(Debug)]
pub(super) struct Throttle<C = Machine> {
    clock: C,
    /// Bytes in a second; without, as fast as it goes.
    rate: Option<f64>,
    /// Bytes that may go at once; below 0, those that went too early.
    tokens: f64,
    seen: Duration,
}

impl Throttle<Machine> {
    pub(super) fn new(bytes_per_second: Option<u64>) -> Self {
        Self::with(Machine(Instant::now()), bytes_per_second)
    }
}

impl<C: Clock> Throttle<C> {
    fn with(mut clock: C, bytes_per_second: Option<u64>) -> Self {
        #[expect(
            clippy::cast_precision_loss,
            reason = "nobody asks for more than 2^53 bytes in a second"
        )]
        let rate = bytes_per_second.map(|rate| rate.max(1) as f64);
        let seen = clock.now();
        Self {
            clock,
            rate,
            tokens: 0.0,
            seen,
        }
    }

    /// Waits until `bytes` more may go.
    ///
    /// # Errors
    /// Interrupted, when the caller asked to stop meanwhile.
    pub(super) fn pass(&mut self, bytes: u32, host: &Host) -> Result<()> {
        let Some(rate) = self.rate else {
            return Ok(());
        };
        self.refill(rate);
        // What is asked for goes as soon as nothing is owed: a frame may be larger than any burst.
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
