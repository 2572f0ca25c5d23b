//! Abandoned claims: those whose beat has not changed from one collection to a later one.
//!
//! What a collection saw is recorded in an object beside the claim, so the next collection may run on another host.
//! Safety does not depend on claims: if one is deleted while its owner works, work is done twice.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use rayon::prelude::*;
use store::format::{CLAIMS_PREFIX, ClaimPart, Sight, claim_key, parse_claim_key};
use store::remote::{ObjectInfo, Read};
use store::{ClaimId, Error, ErrorKind, Result};

use crate::request::after;

/// The objects of one claim, and what an earlier collection saw of it.
#[derive(Clone, Debug)]
pub struct ClaimUse {
    id: ClaimId,
    keys: Vec<String>,
    now: Sight,
    before: Option<Sight>,
    /// The time of that collection, by the clock of the store's server.
    since: Option<Timestamp>,
}

impl ClaimUse {
    /// Reads all claims that a listing shows.
    ///
    /// # Errors
    /// When they cannot be listed or read.
    pub fn read(remote: &dyn Read) -> Result<Vec<Self>> {
        let mut claims: BTreeMap<ClaimId, Vec<(ClaimPart, ObjectInfo)>> = BTreeMap::new();
        for info in remote.list(CLAIMS_PREFIX)? {
            if let Some((id, part)) = parse_claim_key(&info.key) {
                claims.entry(id).or_default().push((part, info));
            }
        }
        let read = |(id, parts)| Self::of(remote, id, parts);
        claims.into_par_iter().map(read).collect()
    }

    fn of(remote: &dyn Read, id: ClaimId, parts: Vec<(ClaimPart, ObjectInfo)>) -> Result<Self> {
        let text = |part| match remote.get(&claim_key(id, part)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Bytes::new()),
            read => read,
        };
        let number = |part| match part {
            ClaimPart::Claim(number) => number,
            ClaimPart::Beat | ClaimPart::Seen => 0,
        };
        let seen = parts.iter().find(|(part, _)| *part == ClaimPart::Seen);
        let before = match seen {
            Some(_) => Sight::decode(&text(ClaimPart::Seen)?),
            None => None,
        };
        Ok(Self {
            id,
            now: Sight {
                claim: parts
                    .iter()
                    .map(|(part, _)| number(*part))
                    .max()
                    .unwrap_or(0),
                beat: String::from_utf8_lossy(&text(ClaimPart::Beat)?).into_owned(),
            },
            before,
            since: seen.map(|(_, info)| info.modified),
            keys: parts.into_iter().map(|(_, info)| info.key).collect(),
        })
    }

    /// Whether nothing has changed since an earlier collection.
    pub fn stands_still(&self) -> bool {
        self.before.as_ref() == Some(&self.now)
    }

    /// The keys of the claim, if nothing has changed for `grace_secs`. `now` is by the clock of the store's server.
    pub(crate) fn idle(&self, grace_secs: u64, now: Timestamp) -> &[String] {
        let is_over = self
            .since
            .is_some_and(|since| after(since, grace_secs) <= now);
        match self.stands_still() && (is_over || grace_secs == 0) {
            true => &self.keys,
            false => &[],
        }
    }

    /// What this collection records for the next one; none, if that is recorded already.
    pub(crate) fn note(&self) -> Option<(String, Bytes)> {
        if self.stands_still() {
            return None;
        }
        let text = self.now.encode().map_err(drop::<Error>).ok()?;
        Some((claim_key(self.id, ClaimPart::Seen), text.into()))
    }
}

#[cfg(test)]
mod tests {
    use store::remote::{Objects, Prune, Write};

    use super::*;

    const HOUR: u64 = 3600;

    fn at(secs: u64) -> Timestamp {
        after(Timestamp::now(), secs)
    }

    fn one(remote: &Objects) -> ClaimUse {
        let mut all = ClaimUse::read(remote).unwrap();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    fn put(remote: &Objects, part: ClaimPart, text: &'static str) {
        let key = claim_key(ClaimId::of("key"), part);
        remote.put(&key, text.into()).unwrap();
    }

    #[test]
    fn a_claim_goes_when_it_stood_still_from_one_run_to_another_one_a_grace_later() {
        let remote = Objects::memory();
        put(&remote, ClaimPart::Claim(1), "");
        put(&remote, ClaimPart::Beat, "1");
        remote.put("claims/other", Bytes::new()).unwrap();
        let news = |what: &dyn Fn()| {
            what();
            let seen = one(&remote);
            assert!(!seen.stands_still());
            assert!(seen.idle(0, at(2 * HOUR)).is_empty());
            let (key, text) = seen.note().unwrap();
            remote.put(&key, text).unwrap();
        };
        news(&|| {});
        news(&|| put(&remote, ClaimPart::Beat, "2"));
        news(&|| put(&remote, ClaimPart::Claim(2), ""));
        let still = one(&remote);
        assert!(still.stands_still() && still.note().is_none());
        assert!(still.idle(HOUR, at(0)).is_empty());
        assert_eq!(still.idle(0, at(0)).len(), 4);
        let keys = still.idle(HOUR, at(HOUR + 1)).to_vec();
        remote.delete(&keys).unwrap();
        assert_eq!(ClaimUse::read(&remote).unwrap().len(), 0);
        assert_eq!(remote.list("").unwrap().len(), 1, "what is no claim stays");
    }

    #[test]
    fn what_cannot_be_read_as_a_sight_is_none() {
        let remote = Objects::memory();
        put(&remote, ClaimPart::Seen, "{}");
        let seen = one(&remote);
        assert!(!seen.stands_still());
        let (key, text) = seen.note().unwrap();
        remote.put(&key, text).unwrap();
        assert!(one(&remote).stands_still());
    }
}
