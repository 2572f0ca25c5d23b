//! Certificates: their subject and their period of validity. A server uses an invalid certificate too, since clients
//! may be configured to accept it, but logs that.

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::time::Time;

use crate::ui::{human, names};

/// How long before its end a certificate should be replaced. For short-lived ones, the last part of their period.
const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);
const SOON_PART: i32 = 3;
/// Maximum number of names to show for a certificate without a subject.
const NAMES_MAX: usize = 3;

/// The validity period of a chain of certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// The latest start of a certificate, and its subject.
    from: Timestamp,
    last: String,
    /// The earliest end of a certificate, and its subject.
    until: Timestamp,
    first: String,
}

/// The state of a certificate at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Good,
    /// It is not valid yet.
    NotYet,
    /// It ends soon.
    EndsSoon,
    Ended,
}

impl Term {
    /// The period in which all certificates of a chain are valid; `None` if no certificate can be parsed.
    pub(crate) fn of(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let terms = chain.iter().filter_map(Self::of_one);
        terms.reduce(|mut all, one| {
            if all.from < one.from {
                (all.from, all.last) = (one.from, one.last);
            }
            if one.until < all.until {
                (all.until, all.first) = (one.until, one.first);
            }
            all
        })
    }

    fn of_one(certificate: &CertificateDer<'_>) -> Option<Self> {
        // Parses leniently: only issuers must follow the strict rules.
        let read = CertificateInner::<Raw>::from_der(certificate).ok()?;
        let all = read.tbs_certificate();
        let subject = match all.subject().is_empty() {
            false => all.subject().to_string(),
            true => alternatives(all.get_extension().ok().flatten()),
        };
        let subject = names::shown(subject.as_bytes());
        Some(Self {
            from: time(all.validity().not_before),
            last: subject.clone(),
            until: time(all.validity().not_after),
            first: subject,
        })
    }

    /// The end of the period.
    pub(crate) fn until(&self) -> Timestamp {
        self.until
    }

    pub(crate) fn phase(&self, now: Timestamp) -> Phase {
        let whole = self.until.duration_since(self.from);
        let soon = SOON.min(whole / SOON_PART);
        match self.until.duration_since(now) {
            _ if now < self.from => Phase::NotYet,
            left if left <= SignedDuration::ZERO => Phase::Ended,
            left if left <= soon => Phase::EndsSoon,
            _ => Phase::Good,
        }
    }

    /// The message for a phase; `None` if the certificate is good.
    pub(crate) fn told(&self, phase: Phase) -> Option<String> {
        let (subject, last) = (&self.first, &self.last);
        let (from, until) = (human::time(self.from), human::time(self.until));
        match phase {
            Phase::Good => None,
            Phase::NotYet => Some(format!(
                "the certificate of {last} begins on {from} UTC: clients refuse it until then, or the clock of this host is \
                 behind"
            )),
            Phase::EndsSoon => Some(format!(
                "the certificate of {subject} ends on {until} UTC: a new one in its place is taken without a restart"
            )),
            Phase::Ended => Some(format!(
                "the certificate of {subject} ended on {until} UTC: clients refuse it; a new one in its place is taken without \
                 a restart"
            )),
        }
    }
}

/// The first alternative names of a certificate without a subject.
fn alternatives(found: Option<(bool, SubjectAltName)>) -> String {
    let all = found
        .map(|(_, SubjectAltName(all))| all)
        .unwrap_or_default();
    let shown = all.iter().filter_map(|name| match name {
        GeneralName::DnsName(name) => Some(name.to_string()),
        GeneralName::UniformResourceIdentifier(name) => Some(name.to_string()),
        _ => None,
    });
    let shown: Vec<String> = shown.take(NAMES_MAX).collect();
    match shown.is_empty() {
        true => "nobody that it names".to_owned(),
        false => shown.join(", "),
    }
}

/// Converts a time. Times out of range become the largest one.
fn time(at: Time) -> Timestamp {
    let secs = i64::try_from(at.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(secs).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(from: i64, until: i64) -> Term {
        Term {
            from: Timestamp::from_second(from).unwrap(),
            last: "CN=x".to_owned(),
            until: Timestamp::from_second(until).unwrap(),
            first: "CN=x".to_owned(),
        }
    }

    #[test]
    fn a_term_has_a_beginning_and_an_end_before_which_it_warns() {
        let day = 86_400;
        let phase = |term: &Term, at: i64| term.phase(Timestamp::from_second(at).unwrap());
        let year = term(day, 366 * day);
        assert_eq!(phase(&year, day - 1), Phase::NotYet);
        assert_eq!(phase(&year, day), Phase::Good);
        assert_eq!(phase(&year, 352 * day - 1), Phase::Good);
        assert_eq!(phase(&year, 352 * day), Phase::EndsSoon);
        assert_eq!(phase(&year, 366 * day), Phase::Ended);
        // Short-lived certificates are renewed in the last third of their period.
        let week = term(0, 6 * day);
        assert_eq!(phase(&week, 4 * day - 1), Phase::Good);
        assert_eq!(phase(&week, 4 * day), Phase::EndsSoon);
        assert_eq!(phase(&term(5, 5), 5), Phase::Ended);
        assert!(year.told(Phase::Good).is_none());
    }

    #[test]
    fn what_is_no_certificate_says_nothing() {
        for bytes in [
            &b""[..],
            b"x",
            &[0x30, 0x80],
            &[0x30, 0x03, 0x30, 0x01, 0x00],
        ] {
            assert_eq!(Term::of(&[CertificateDer::from(bytes)]), None);
        }
        assert_eq!(Term::of(&[]), None);
    }
}
