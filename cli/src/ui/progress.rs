//! Progress of a pipeline on standard error: a bar on a terminal; otherwise, with `--progress`, one line per second.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use store::Progress;

use crate::ui::global::Global;
use crate::ui::output::json_line;
use crate::ui::{human, names};

const BAR: &str = "{files} [{wide_bar}] {sizes}  {rate}  {left}";
const TICK: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Shows the progress of one pipeline. Dropping it clears the bar from the terminal.
pub(crate) struct Watch {
    far: Arc<Far>,
    /// Whether to print notes.
    notes: bool,
    /// Whether the output is JSON.
    is_json: bool,
    bar: Option<ProgressBar>,
    /// When the next line is due; `None` if no lines are wanted.
    next_line: Option<Mutex<Instant>>,
}

/// The progress.
struct Far {
    started: Instant,
    /// The name of one counted item; bytes are counted as well.
    one: &'static str,
    files: AtomicU64,
    bytes: AtomicU64,
    files_total: AtomicU64,
    bytes_total: AtomicU64,
}

impl Watch {
    /// Shows progress on standard error, counting files.
    pub(crate) fn new(global: &Global) -> Self {
        Self::counting(global, "file")
    }

    /// The same, for a pipeline that counts other items than files.
    pub(crate) fn counting(global: &Global, one: &'static str) -> Self {
        let far = Arc::new(Far::new(one));
        let terminal = io::stderr().is_terminal() && !global.quiet && !global.json;
        let bar = terminal.then(|| bar(&far));
        let lines = global.progress && !terminal;
        let next_line = lines.then(|| Mutex::new(far.started + LINE_EVERY));
        Self {
            far,
            notes: !global.quiet && !global.json,
            is_json: global.json,
            bar,
            next_line,
        }
    }

    /// Prints a note at once, above the bar, if notes are wanted.
    fn note(&self, text: fmt::Arguments<'_>) {
        if !self.notes {
            return;
        }
        let say = || {
            // A note that cannot be printed is lost.
            let _unread = writeln!(io::stderr(), "note: {text}");
        };
        match &self.bar {
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }

    /// Announces a loss before it happens, in JSON as well, since a killed run prints no report.
    fn loss(&self, text: fmt::Arguments<'_>) {
        if !self.is_json {
            return self.note(text);
        }
        let line = json_line(&serde_json::json!({ "warning": text.to_string() }));
        let _unread = writeln!(io::stderr(), "{}", line.unwrap_or_default());
    }

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.far.started.elapsed()
    }
}

impl Progress for Watch {
    fn total(&self, files: u64, bytes: u64) {
        self.far.files_total.store(files, Ordering::Relaxed);
        self.far.bytes_total.store(bytes, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.set_length(bytes);
        }
    }

    fn advance(&self, files: u64, bytes: u64) {
        self.far.files.fetch_add(files, Ordering::Relaxed);
        self.far.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
        // If another thread holds the lock, that thread prints the line.
        if let Some(mut next) = self
            .next_line
            .as_ref()
            .and_then(|next| next.try_lock().ok())
            && Instant::now() >= *next
        {
            *next = Instant::now() + LINE_EVERY;
            // A line that cannot be printed is lost.
            let _unread = writeln!(io::stderr(), "{}", self.far.line());
        }
    }

    fn replaces(&self, destination: &Path, files: u64, bytes: u64, all: bool) {
        self.loss(format_args!(
            "{}: {} ({}) that this command did not make: {}",
            destination.display(),
            human::counted(files, "file"),
            human::bytes(bytes),
            match all {
                true => "all of it is removed",
                false => "those whose names the ref has are replaced, the others stay",
            }
        ));
    }

    fn overrules(
        &self,
        destination: &Path,
        files: u64,
        bytes: u64,
        first: &[&Path],
        is_made: bool,
    ) {
        self.loss(format_args!(
            "{}: {} ({}) that {}: replaced or removed now: {}",
            destination.display(),
            human::counted(files, "file"),
            human::bytes(bytes),
            match is_made {
                true => "a job changed or added",
                false => "this command did not make",
            },
            names::some(files, first.iter().copied())
        ));
    }

    fn is_watched(&self) -> bool {
        self.bar.is_some() || self.next_line.is_some()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Far {
    fn new(one: &'static str) -> Self {
        Self {
            started: Instant::now(),
            one,
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            files_total: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
        }
    }

    fn line(&self) -> String {
        format!(
            "{}, {}, {}, {}",
            self.counted(),
            self.sizes(),
            self.rate(),
            self.left()
        )
    }

    fn counted(&self) -> String {
        let (done, total) = (load(&self.files), load(&self.files_total));
        match total {
            0 => human::counted(done, self.one),
            _ => format!(
                "{} of {}",
                human::count(done),
                human::counted(total.max(done), self.one)
            ),
        }
    }

    fn sizes(&self) -> String {
        let (done, total) = (load(&self.bytes), load(&self.bytes_total));
        match total {
            0 => human::bytes(done),
            _ => format!(
                "{} of {}",
                human::bytes(done),
                human::bytes(total.max(done))
            ),
        }
    }

    fn rate(&self) -> String {
        human::rate(load(&self.bytes), self.started.elapsed())
    }

    fn left(&self) -> String {
        time_left(
            load(&self.bytes),
            load(&self.bytes_total),
            self.started.elapsed(),
        )
        .map_or_else(
            || "time left unknown".to_owned(),
            |left| format!("{} left", human::duration(left)),
        )
    }
}

fn load(number: &AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}

/// The remaining time at the average rate so far; unknown until something is done.
fn time_left(done: u64, total: u64, elapsed: Duration) -> Option<Duration> {
    let left = u128::from(total.checked_sub(done)?);
    let nanos = (elapsed.as_nanos() * left).checked_div(u128::from(done))?;
    Some(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

fn bar(far: &Arc<Far>) -> ProgressBar {
    let bar = ProgressBar::new(u64::MAX);
    let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
    let key = |show: fn(&Far) -> String| {
        let far = Arc::clone(far);
        move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            // After an error the bar is drawn again shortly.
            let _undrawn = out.write_str(&show(&far));
        }
    };
    bar.set_style(
        style
            .with_key("files", key(Far::counted))
            .with_key("sizes", key(Far::sizes))
            .with_key("rate", key(Far::rate))
            .with_key("left", key(Far::left))
            .progress_chars("=> "),
    );
    bar.enable_steady_tick(TICK);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_rate() {
        let secs = Duration::from_secs;
        assert_eq!(time_left(0, 100, secs(5)), None);
        assert_eq!(time_left(25, 100, secs(5)), Some(secs(15)));
        assert_eq!(time_left(100, 100, secs(5)), Some(secs(0)));
        assert_eq!(time_left(120, 0, secs(5)), None);
    }

    #[test]
    fn a_line_says_how_far_it_is() {
        let far = Far::new("file");
        far.files.store(1, Ordering::Relaxed);
        far.files_total.store(1_000, Ordering::Relaxed);
        far.bytes_total.store(5_000_000, Ordering::Relaxed);
        let line = far.line();
        assert_eq!(
            line,
            "1 of 1,000 files, 0 B of 5.00 MB, 0 B/s, time left unknown"
        );
    }
}
