//! Faults of networks and buckets, and when they occur; random choices come from a seed.

use super::http::Message;
use crate::random::Random;

/// A fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 503 with Retry-After; the server is not asked.
    Busy,
    /// 429 with Retry-After; the server is not asked.
    TooMany,
    /// 500; the server is not asked.
    Broken,
    /// The connection is reset before the server is asked.
    Reset,
    /// The server handles the request, but the connection is reset before its answer.
    Lost,
    /// Half of the answer's body, then a reset.
    Truncated,
    /// Half of the answer's body, then nothing until the client gives up.
    Stalled,
    /// A listing without the most recent keys.
    Late,
    /// 403: the credentials have expired.
    Expired,
}

impl Fault {
    /// All faults that a retry overcomes.
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

    /// The answer that the proxy gives in place of the server, if any.
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
    /// Of the requests whose method and target contain all of these words, the one with this number, from 1 on.
    At(u64, Vec<String>, Fault),
    /// Every request whose method and target contain all of these words.
    All(Vec<String>, Fault),
    /// Every request from this number on.
    From(u64, Fault),
    /// This many of a thousand requests, each with one of these faults.
    Dice(Random, u64, Vec<Fault>),
}

impl Schedule {
    /// Random choice among the faults that a retry overcomes.
    pub fn dice(seed: u64, per_thousand: u64) -> Self {
        Self::Dice(Random::new(seed), per_thousand, Fault::PASSING.to_vec())
    }

    /// One fault, for the first request that matches.
    pub fn first(words: &[&str], fault: Fault) -> Self {
        Self::At(1, owned(words), fault)
    }

    /// A fault for every request that matches.
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

/// Removes the keys that `hidden` selects from a listing.
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
