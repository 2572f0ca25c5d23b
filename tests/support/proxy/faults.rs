//! What a network and a bucket may do to a request, and when, by dice from a seed.

use super::http::Message;
use crate::random::Random;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 503 with Retry-After: the server was not asked.
    Busy,
    /// 429 with Retry-After: the server was not asked.
    TooMany,
    /// 500: the server was not asked.
    Broken,
    /// The connection is reset before the server is asked.
    Reset,
    /// The server does what was asked, and the connection is reset before it can say so.
    Lost,
    /// Half of the answer's body, then a reset.
    Truncated,
    /// Half of the answer's body, then nothing, until the client gives up.
    Stalled,
    /// A listing without the keys that were written last.
    Late,
    /// 403: the credentials are over.
    Expired,
}

impl Fault {
    /// All that pass when one asks again.
    pub const PASSING: [Self; 8] = [
        Self::Busy,
        Self::TooMany,
        Self::Broken,
        Self::Reset,
        Self::Lost,
        Self::Truncated,
        Self::Stalled,
        Self::Late,
    ];

    /// What the proxy says by itself instead of asking the server.
    pub(super) fn refusal(self) -> Option<Message> {
        let soon = [("retry-after", "0")];
        match self {
            Self::Busy => Some(Message::error(503, "SlowDown", &soon)),
            Self::TooMany => Some(Message::error(429, "TooManyRequests", &soon)),
            Self::Broken => Some(Message::error(500, "InternalError", &[])),
            Self::Expired => Some(Message::error(403, "ExpiredToken", &[])),
            _ => None,
        }
    }
}

/// Which requests meet a fault.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// None.
    Fine,
    /// The request of this number, the first being 1, of those whose method and target contain all of these words.
    At(u64, Vec<String>, Fault),
    /// Every request whose method and target contain all of these words.
    All(Vec<String>, Fault),
    /// Every request from this number on.
    From(u64, Fault),
    /// So many of a thousand, one of these faults each.
    Dice(Random, u64, Vec<Fault>),
}

impl Schedule {
    /// Dice for all faults that pass.
    pub fn dice(seed: u64, per_thousand: u64) -> Self {
        Self::Dice(Random::new(seed), per_thousand, Fault::PASSING.to_vec())
    }

    /// One fault, for the first request that fits.
    pub fn first(words: &[&str], fault: Fault) -> Self {
        Self::At(1, owned(words), fault)
    }

    /// A fault for every request that fits.
    pub fn all(words: &[&str], fault: Fault) -> Self {
        Self::All(owned(words), fault)
    }

    /// The fault of the request with this number.
    pub(super) fn next(&mut self, number: u64, first: &str) -> Option<Fault> {
        match self {
            Self::Fine => None,
            Self::At(left, words, fault) => {
                if !fits(words, first) {
                    return None;
                }
                *left = left.wrapping_sub(1);
                (*left == 0).then_some(*fault)
            }
            Self::All(words, fault) => fits(words, first).then_some(*fault),
            Self::From(begin, fault) => (number >= *begin).then_some(*fault),
            Self::Dice(random, per_thousand, faults) => {
                let hit = random.below(1000) < *per_thousand;
                let which = random.below(faults.len() as u64);
                let which = usize::try_from(which).unwrap_or(0);
                faults.get(which).copied().filter(|_| hit)
            }
        }
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn fits(words: &[String], first: &str) -> bool {
    words.iter().all(|word| first.contains(word.as_str()))
}

/// Takes the keys that `hidden` says out of an answer to a listing.
pub(super) fn hide(answer: &mut Message, hidden: impl Fn(&str) -> bool) {
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, from)) = rest.split_once("<Contents>") {
        let Some((entry, after)) = from.split_once("</Contents>") else {
            break;
        };
        kept.push_str(before);
        let key = entry
            .split_once("<Key>")
            .and_then(|(_, key)| key.split_once("</Key>"));
        if !key.is_some_and(|(key, _)| hidden(key)) {
            kept.push_str(&format!("<Contents>{entry}</Contents>"));
        }
        rest = after;
    }
    kept.push_str(rest);
    answer.body = kept.into_bytes();
    let length = answer.body.len().to_string();
    answer.set("content-length", Some(&length));
}
