//! The counters of a server, and `/metrics`, which shows them in OpenMetrics format.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

/// The media type of [`Numbers::text`].
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Classes of status codes, 1xx to 5xx.
const CLASSES: usize = 5;

/// Counters and gauges of one process.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    answers: [AtomicU64; CLASSES],
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    broken_off: AtomicU64,
    pub(crate) connections: Gauge,
    pub(crate) requests: Gauge,
    pub(crate) hashed_bytes: Counter,
    pub(crate) pulled_bytes: Counter,
    pub(crate) lost_lines: Counter,
    pub(crate) failed_handshakes: Counter,
    /// The end of the current certificate.
    certificate: Mutex<Option<Timestamp>>,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

/// A number that grows and shrinks.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Gauge {
    pub(crate) fn enter(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts a request while it runs.
pub(super) struct Running(Arc<Numbers>);

impl Running {
    pub(super) fn new(numbers: Arc<Numbers>) -> Self {
        numbers.requests.enter();
        Self(numbers)
    }

    /// Counts its answer, complete or not.
    pub(super) fn answered(&self, status: u16, sent: u64, received: u64, is_whole: bool) {
        self.0.answered(status, sent, received, is_whole);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.requests.leave();
    }
}

impl Numbers {
    fn answered(&self, status: u16, sent: u64, received: u64, is_whole: bool) {
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(count) = self.answers.get(class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sent_bytes.fetch_add(sent, Ordering::Relaxed);
        self.received_bytes.fetch_add(received, Ordering::Relaxed);
        if !is_whole {
            self.broken_off.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sets the end of the current certificate.
    pub(crate) fn certificate(&self, until: Option<Timestamp>) {
        *self.lock() = until;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Timestamp>> {
        let certificate = self.certificate.lock();
        certificate.unwrap_or_else(PoisonError::into_inner)
    }

    /// All numbers as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        head(
            &mut text,
            "requests",
            "counter",
            "Requests by class of their status.",
        );
        for (class, count) in (1..).zip(&self.answers) {
            let count = count.load(Ordering::Relaxed);
            // Writing to a string cannot fail.
            let _always = writeln!(
                text,
                "store_serve_requests_total{{status=\"{class}xx\"}} {count}"
            );
        }
        let counters = [
            (
                "sent_bytes",
                &self.sent_bytes,
                "Bytes of bodies that were sent.",
            ),
            (
                "received_bytes",
                &self.received_bytes,
                "Bytes of bodies that were received.",
            ),
            (
                "broken_off",
                &self.broken_off,
                "Answers that ended before their end.",
            ),
            (
                "hashed_bytes",
                &self.hashed_bytes.0,
                "Bytes that were read for their hashes.",
            ),
            (
                "pulled_bytes",
                &self.pulled_bytes.0,
                "Bytes of files that came from the upstream.",
            ),
            (
                "lost_lines",
                &self.lost_lines.0,
                "Lines that the access log could not take.",
            ),
            (
                "failed_handshakes",
                &self.failed_handshakes.0,
                "Connections that could not agree on TLS, or took too long.",
            ),
        ];
        for (name, count, help) in counters {
            head(&mut text, name, "counter", help);
            let count = count.load(Ordering::Relaxed);
            let _always = writeln!(text, "store_serve_{name}_total {count}");
        }
        let gauges = [
            ("connections", &self.connections, "Open connections."),
            (
                "running",
                &self.requests,
                "Requests that are being answered.",
            ),
        ];
        for (name, gauge, help) in gauges {
            head(&mut text, name, "gauge", help);
            let _always = writeln!(text, "store_serve_{name} {}", gauge.value());
        }
        if let Some(until) = *self.lock() {
            let left = until.duration_since(Timestamp::now()).as_secs();
            let help = "Seconds until the certificate ends; below zero once it has.";
            head(&mut text, "certificate_seconds", "gauge", help);
            let _always = writeln!(text, "store_serve_certificate_seconds {left}");
        }
        text + "# EOF\n"
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _always = writeln!(
        text,
        "# TYPE store_serve_{name} {kind}\n# HELP store_serve_{name} {help}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_lines_and_the_end_is_marked() {
        let numbers = Numbers::default();
        numbers.answered(206, 10, 3, true);
        numbers.answered(404, 5, 0, false);
        numbers.connections.enter();
        let text = numbers.text();
        for line in [
            "store_serve_requests_total{status=\"2xx\"} 1",
            "store_serve_requests_total{status=\"4xx\"} 1",
            "store_serve_sent_bytes_total 15",
            "store_serve_received_bytes_total 3",
            "store_serve_broken_off_total 1",
            "store_serve_connections 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n") && !text.contains("certificate"));
        numbers.certificate(Some(Timestamp::UNIX_EPOCH));
        let text = numbers.text();
        let left = text
            .lines()
            .find_map(|line| line.strip_prefix("store_serve_certificate_seconds "));
        let left: i64 = left.unwrap().parse().unwrap();
        assert!(left < 0 && text.ends_with("# EOF\n"), "{text}");
    }
}
