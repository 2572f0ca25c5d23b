//! Claims: when many processes want the same thing, one makes it and the others wait, without locks or synchronized
//! clocks.
//!
//! A claim is an object that is created only if it is absent. Its owner rewrites a beat to show that it is still
//! working. A waiting process takes the next number when the owner says that it has ended, or when the beat has not
//! changed for as long as the waiting process has patience, by that process's own steady clock. Two owners at once only
//! do the work twice, because the log decides what is published. Neither commits nor collectors base decisions on
//! claims.

mod beating;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use self::beating::Beating;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    Beat, ClaimPart, Claimed, Ended, Who, claim_key, claim_prefix, parse_claim_key,
};
use crate::id::{ClaimId, OwnerId};
use crate::remote::{Created, Write};
use crate::store::Store;

/// A process that wants something, and the state of the claim that it saw last.
#[derive(Debug)]
pub struct Claims {
    remote: Arc<dyn Write>,
    id: ClaimId,
    own: Claimed,
    patience: Duration,
    sight: Option<Seen>,
}

/// The newest claim and its beat as seen last; `since` is when this beat was first seen.
#[derive(Debug)]
struct Seen {
    number: u64,
    holder: Option<Claimed>,
    beat: Option<Bytes>,
    since: Duration,
}

/// The result of a look at a claim.
#[derive(Debug)]
pub enum Look {
    /// The caller holds the claim. It should first check whether the result has been made by now.
    Mine(Claim),
    /// Somebody else holds the claim, as far as is known.
    Held {
        /// The holder.
        who: Who,
    },
    /// This process waited, and the holder reported a failure.
    Failed {
        /// The holder that failed.
        who: Who,
        /// The message of the holder.
        said: String,
    },
}

/// A claim that this process holds until another process takes over.
#[derive(Debug)]
pub struct Claim {
    remote: Arc<dyn Write>,
    id: ClaimId,
    owner: OwnerId,
    number: u64,
    beats: u64,
}

impl Claims {
    /// Prepares a claim of the thing named `key`. The caller takes over from an owner whose beat stands still for
    /// `patience`.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn new(store: &Store, key: &str, patience: Duration) -> Result<Self> {
        Ok(Self {
            remote: Arc::clone(store.remote()),
            id: ClaimId::of(key),
            own: Claimed {
                key: key.to_owned(),
                owner: OwnerId::random()?,
                who: store.host().who.clone(),
            },
            patience,
            sight: None,
        })
    }

    /// Looks once, and takes the claim if nobody holds it. `now` comes from a monotonic clock with any origin.
    ///
    /// # Errors
    /// When the store does not answer: look again.
    pub fn look(&mut self, now: Duration) -> Result<Look> {
        let Some(newest) = self.newest()? else {
            return self.take(1, now);
        };
        let known = self.sight.take();
        // Who waited for an earlier claim waits for the later ones too: they were taken meanwhile.
        let is_waited_for = known.as_ref().is_some_and(|seen| seen.number <= newest);
        let known = known.filter(|seen| seen.number == newest);
        let holder = match known.as_ref().and_then(|seen| seen.holder.clone()) {
            Some(holder) => Some(holder),
            None => self
                .read(ClaimPart::Claim(newest))?
                .and_then(|bytes| Claimed::decode(&bytes)),
        };
        if holder
            .as_ref()
            .is_some_and(|holder| holder.owner == self.own.owner)
        {
            // This process created the claim, but the response was lost.
            return Ok(Look::Mine(self.held(newest)));
        }
        let beat = self.read(ClaimPart::Beat)?;
        let who = holder
            .as_ref()
            .map(|holder| holder.who.clone())
            .unwrap_or_default();
        match ended(beat.as_ref(), newest, holder.as_ref()) {
            Some(Ended::Failed(said)) if is_waited_for => return Ok(Look::Failed { who, said }),
            Some(_) => return self.take(newest + 1, now),
            None => {}
        }
        let since = match &known {
            Some(seen) if seen.beat == beat => seen.since,
            _ => now,
        };
        // DESIGN, claims: only this process's own clock measures how long the beat stood still.
        if now.saturating_sub(since) >= self.patience {
            return self.take(newest + 1, now);
        }
        self.sight = Some(Seen {
            number: newest,
            holder,
            beat,
            since,
        });
        Ok(Look::Held { who })
    }

    /// Returns the highest number that is taken according to a listing.
    fn newest(&self) -> Result<Option<u64>> {
        let listed = self.remote.list(&claim_prefix(self.id))?;
        let number = |key: &str| match parse_claim_key(key)? {
            (_, ClaimPart::Claim(number)) => Some(number),
            _ => None,
        };
        Ok(listed.iter().filter_map(|info| number(&info.key)).max())
    }

    fn read(&self, part: ClaimPart) -> Result<Option<Bytes>> {
        match self.remote.get(&claim_key(self.id, part)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// Takes a number, unless another process was faster.
    fn take(&mut self, number: u64, now: Duration) -> Result<Look> {
        let key = claim_key(self.id, ClaimPart::Claim(number));
        if self.remote.create(&key, self.own.encode()?.into())? == Created::Created {
            return Ok(Look::Mine(self.held(number)));
        }
        let holder = self
            .read(ClaimPart::Claim(number))?
            .and_then(|bytes| Claimed::decode(&bytes));
        let who = match &holder {
            Some(holder) if holder.owner == self.own.owner => {
                return Ok(Look::Mine(self.held(number)));
            }
            Some(holder) => holder.who.clone(),
            None => Who::default(),
        };
        self.sight = Some(Seen {
            number,
            holder,
            beat: self.read(ClaimPart::Beat)?,
            since: now,
        });
        Ok(Look::Held { who })
    }

    fn held(&self, number: u64) -> Claim {
        Claim {
            remote: Arc::clone(&self.remote),
            id: self.id,
            owner: self.own.owner,
            number,
            beats: 0,
        }
    }
}

/// Returns how the owner of the newest claim ended. `None` if it has not ended, or if the beat belongs to another
/// claim.
fn ended(beat: Option<&Bytes>, newest: u64, holder: Option<&Claimed>) -> Option<Ended> {
    let beat = Beat::decode(beat?)?;
    let is_own = beat.claim == newest && Some(beat.owner) == holder.map(|holder| holder.owner);
    beat.ended.filter(|_| is_own)
}

impl Claim {
    /// Shows that the owner is still working. Returns false when another process has taken over, or when a collector
    /// has removed the claim: the work may then be done twice.
    ///
    /// # Errors
    /// When the store does not answer: try again; other processes keep waiting for their patience.
    pub fn beat(&mut self) -> Result<bool> {
        self.show(None)
    }

    /// Whether no earlier owner is known.
    pub fn is_first(&self) -> bool {
        self.number == 1
    }

    /// Announces how the work ended, so that no other process keeps waiting.
    ///
    /// # Errors
    /// When the store does not answer: the others then wait until their patience ends.
    pub fn end(mut self, how: Ended) -> Result<()> {
        self.show(Some(how)).map(drop)
    }

    /// Writes beats at intervals from a thread of its own.
    pub fn beating(self) -> Beating {
        Beating::new(self)
    }

    fn show(&mut self, ended: Option<Ended>) -> Result<bool> {
        if !self.is_newest()? {
            // A beat from an owner that was replaced would keep others waiting.
            return Ok(false);
        }
        self.beats += 1;
        let beat = Beat {
            claim: self.number,
            owner: self.owner,
            beat: self.beats,
            ended,
        };
        let key = claim_key(self.id, ClaimPart::Beat);
        self.remote.put(&key, beat.encode()?.into())?;
        Ok(true)
    }

    fn is_newest(&self) -> Result<bool> {
        let is_there = |number| match self
            .remote
            .size(&claim_key(self.id, ClaimPart::Claim(number)))
        {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        let next = self.number.checked_add(1);
        let next = next.ok_or_else(|| Error::conflict("there are no more numbers for claims"))?;
        Ok(!is_there(next)? && is_there(self.number)?)
    }
}

#[cfg(test)]
mod tests;
