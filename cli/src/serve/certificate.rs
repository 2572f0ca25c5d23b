//! Certificates: whose they are, and from when until when they are valid. A server also uses one that is not valid,
//! since clients may be told to accept it, but says so.

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::time::Time;

use crate::ui::{human, names};

/// How long before its end a certificate should have a successor; one that is for a shorter time: for the last part of that.
const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);
const SOON_PART: i32 = 3;
/// Names that stand for a certificate without a subject.
const NAMES_MAX: usize = 3;

/// When the certificates of a chain are good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// When the last one of them begins, and whose it is.
    from: Timestamp,
    last: String,
    /// When the first one of them ends, and whose it is.
    until: Timestamp,
    first: String,
}

/// What is to be said of it at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Good,
    /// It begins later.
    NotYet,
    /// It ends before long.
    EndsSoon,
    Ended,
}

impl Term {
    /// That of a whole chain: it is good from when the last one begins until the first one ends. None, where no certificate
    /// says anything that can be read.
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
        // The rules for those who make one are not for those who only want to know its end.
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

    /// When it is over.
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

    /// What is wrong with it in a phase; nothing, where it is good.
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

/// The first names of a certificate whose subject has none.
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

/// What lies beyond the calendar is its end.
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
        // Some are for days only, and are renewed in the last third.
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
