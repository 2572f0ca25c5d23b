//! Repeats a pass that others made stale, as long as the passes make progress.

use crate::error::Result;

/// How many passes in a row may make no progress.
pub(crate) const VAIN_MAX: u32 = 8;

/// Returns the first result of `pass`, in at most [`VAIN_MAX`] passes; `None` when others make every pass stale.
pub(crate) fn retry<T>(mut pass: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    for _ in 0..VAIN_MAX {
        if let Some(done) = pass()? {
            return Ok(Some(done));
        }
    }
    Ok(None)
}

/// Whether stale passes will come to an end. Each pass stores again what was taken from the one before. While that
/// becomes less from pass to pass, they will; otherwise a few more passes are allowed.
#[derive(Debug)]
pub(crate) struct Headway {
    least: u64,
    vain: u32,
}

impl Headway {
    /// Starts before the first pass.
    pub(crate) fn new() -> Self {
        Self {
            least: u64::MAX,
            vain: 0,
        }
    }

    /// Records a stale pass, which stored `bytes`. Returns how long to wait before the next pass, in units of what a
    /// race costs; `None` when the passes make no progress.
    pub(crate) fn stale(&mut self, bytes: u64) -> Option<u32> {
        self.vain = match bytes < self.least {
            true => 0,
            false => self.vain + 1,
        };
        self.least = self.least.min(bytes);
        // Waiting longer each time avoids meeting a collector of the same pace again and again.
        (self.vain < VAIN_MAX).then_some(self.vain + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_end_at_the_first_that_brings_something_or_after_eight() {
        let mut left = 3;
        let done = retry(|| {
            left -= 1;
            Ok((left == 0).then_some("done"))
        });
        assert_eq!(done.unwrap(), Some("done"));
        let mut passes = 0;
        let none: Option<()> = retry(|| {
            passes += 1;
            Ok(None)
        })
        .unwrap();
        assert_eq!((none, passes), (None, VAIN_MAX));
    }

    #[test]
    fn headway_lasts_as_long_as_less_is_left() {
        let mut headway = Headway::new();
        for bytes in (0..100).rev() {
            assert_eq!(headway.stale(bytes), Some(1));
        }
        for vain in 2..=VAIN_MAX {
            assert_eq!(headway.stale(0), Some(vain));
        }
        assert_eq!(headway.stale(0), None);
    }
}
