//! Claims: if many want the same thing, one makes it and the others wait, without clocks and without locks.
//!
//! A claim is an object that is created only if it is absent; its owner shows by beats that it works. A process that
//! waits takes the next number when the owner says that it has ended, or when the beat has stood still for as long as
//! the waiting process has patience, by its own steady clock. Two owners at once only do work twice: what they make is
//! published by the log. Neither commits nor collectors look at claims to decide anything.

mod beating;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use self::beating::Beating;
use crate::error::{Error, Kind, Result};
use crate::format::{
    Beat, ClaimPart, Claimed, Ended, Who, claim_key, claim_prefix, parse_claim_key,
};
use crate::id::{ClaimId, OwnerId};
use crate::remote::{Created, Write};
use crate::store::Store;

/// One who wants something, and what it has seen of those that make it.
#[derive(Debug)]
pub struct Claims {
    remote: Arc<dyn Write>,
    id: ClaimId,
    own: Claimed,
    patience: Duration,
    sight: Option<Seen>,
}

/// What was seen last, and since when.
#[derive(Debug)]
struct Seen {
    number: u64,
    holder: Option<Claimed>,
    beat: Option<Bytes>,
    since: Duration,
}

/// What a look came to.
#[derive(Debug)]
pub enum Look {
    /// It is the caller's to make, unless it is there by now.
    Mine(Claim),
    /// Somebody makes it, as far as is known.
    Held {
        /// Who that is.
        who: Who,
    },
    /// It was waited for, and could not be made.
    Failed {
        /// Who tried.
        who: Who,
        /// What they said.
        said: String,
    },
}

/// A claim that is held, until somebody takes over.
#[derive(Debug)]
pub struct Claim {
    remote: Arc<dyn Write>,
    id: ClaimId,
    owner: OwnerId,
    number: u64,
    beats: u64,
}

impl Claims {
    /// Of what is called `key`, for one who takes over what stands still for `patience`.
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

    /// One look, which takes the claim where nobody has it. `now`: by a clock that is never set, from any beginning.
    ///
    /// # Errors
    /// When the store does not answer: look again.
    pub fn look(&mut self, now: Duration) -> Result<Look> {
        let Some(newest) = self.newest()? else {
            return self.take(1, now);
        };
        let known = self.sight.take().filter(|seen| seen.number == newest);
        let is_waited_for = known.is_some();
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
            // The answer to the caller's own create was lost.
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
        // DESIGN, claims: how long it stood still is measured by this clock alone.
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

    /// The highest number that is taken, as far as a listing tells.
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
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// Takes a number, unless somebody was quicker.
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

/// How the owner of the newest claim ended, if it did and if the beat is its own.
fn ended(beat: Option<&Bytes>, newest: u64, holder: Option<&Claimed>) -> Option<Ended> {
    let beat = Beat::decode(beat?)?;
    let is_own = beat.claim == newest && Some(beat.owner) == holder.map(|holder| holder.owner);
    beat.ended.filter(|_| is_own)
}

impl Claim {
    /// Shows that the owner works. False when somebody has taken over, or a collector has taken the claim away: then
    /// what is made is made twice.
    ///
    /// # Errors
    /// When the store does not answer: try again, others wait for a while.
    pub fn beat(&mut self) -> Result<bool> {
        self.show(None)
    }

    /// Whether nobody is known to have had it before.
    pub fn is_first(&self) -> bool {
        self.number == 1
    }

    /// Says how it ended, so that nobody waits any longer.
    ///
    /// # Errors
    /// When the store does not answer: then others wait for their patience.
    pub fn end(mut self, how: Ended) -> Result<()> {
        self.show(Some(how)).map(drop)
    }

    /// Beats at intervals on a thread of its own.
    pub fn beating(self) -> Beating {
        Beating::new(self)
    }

    fn show(&mut self, ended: Option<Ended>) -> Result<bool> {
        if !self.is_newest()? {
            // Beats of one that was taken over would keep others waiting.
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
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        let next = self.number.checked_add(1);
        let next = next.ok_or_else(|| Error::conflict("there are no more numbers for claims"))?;
        Ok(!is_there(next)? && is_there(self.number)?)
    }
}

#[cfg(test)]
mod tests;
