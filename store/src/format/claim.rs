//! Claims: who is making something, and that they still are. Pure.
//!
//! Nothing but work done twice depends on them: a text that cannot be read counts as one that says nothing.

use serde::{Deserialize, Serialize};

use super::Who;
use crate::error::{Error, Result};
use crate::id::{ClaimId, OwnerId};

/// Prefix of all claims.
pub const CLAIMS_PREFIX: &str = "claims";
/// Most bytes of each of their objects.
pub const CLAIM_BYTES_MAX: u64 = 64 << 10;
/// Most bytes of what an owner says of its failure.
const SAID_BYTES_MAX: usize = 4 << 10;

/// The object `claims/<id>/<n>`: written once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// What is being made.
    pub key: String,
    /// By whom; a random name for one wait and what came of it.
    pub owner: OwnerId,
    /// Where that is, for people.
    pub who: Who,
}

/// The object `claims/<id>/beat`: overwritten by the owner as long as it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The number of the owner's claim.
    pub claim: u64,
    /// Whose it is.
    pub owner: OwnerId,
    /// Grows with each one.
    pub beat: u64,
    /// How it ended; nothing while it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

/// How an owner ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It is made.
    Done,
    /// It was given up, for somebody else to make.
    Left,
    /// It cannot be made, as the text says: who waited for this claim need not try.
    Failed(String),
}

/// The object `claims/<id>/seen`: what a collector saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// The number of the newest claim.
    pub claim: u64,
    /// The text of the beat; empty if there was none.
    pub beat: String,
}

/// What lies under a key below `claims`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimPart {
    /// The claim of this number, from 1.
    Claim(u64),
    /// The beat.
    Beat,
    /// What a collector saw.
    Seen,
}

impl ClaimId {
    /// The name of what is being made.
    pub fn of(key: &str) -> Self {
        Self(*blake3::hash(key.as_bytes()).as_bytes())
    }
}

/// Prefix of all objects of one claim: `claims/<64 hex>`.
pub fn claim_prefix(id: ClaimId) -> String {
    format!("{CLAIMS_PREFIX}/{id}")
}

/// Key of an object of a claim: `claims/<64 hex>/7`, `.../beat`, `.../seen`.
pub fn claim_key(id: ClaimId, part: ClaimPart) -> String {
    let prefix = claim_prefix(id);
    match part {
        ClaimPart::Claim(number) => format!("{prefix}/{number}"),
        ClaimPart::Beat => format!("{prefix}/beat"),
        ClaimPart::Seen => format!("{prefix}/seen"),
    }
}

/// Which claim, and which part of it, lies under `key`.
pub fn parse_claim_key(key: &str) -> Option<(ClaimId, ClaimPart)> {
    let (prefix, name) = key.rsplit_once('/')?;
    let (_, id) = prefix.rsplit_once('/')?;
    let id = id.parse().ok()?;
    let part = match name {
        "beat" => ClaimPart::Beat,
        "seen" => ClaimPart::Seen,
        number => ClaimPart::Claim(number.parse().ok().filter(|number| *number > 0)?),
    };
    (claim_key(id, part) == key).then_some((id, part))
}

macro_rules! json {
    ($($name:ident: $what:literal),*) => {$(
        impl $name {
            /// As JSON.
            ///
            /// # Errors
            /// When it is longer than readers take.
            pub fn encode(&self) -> Result<Vec<u8>> {
                let bytes = serde_json::to_vec(self)
                    .map_err(|source| Error::invalid($what).because(source))?;
                match bytes.len() as u64 {
                    len if len > CLAIM_BYTES_MAX => Err(Error::invalid(format!(
                        concat!($what, ": {} bytes, expected at most {}"),
                        len, CLAIM_BYTES_MAX
                    ))),
                    _ => Ok(bytes),
                }
            }

            /// What `bytes` say; nothing, where they cannot be read.
            pub fn decode(bytes: &[u8]) -> Option<Self> {
                let is_short = bytes.len() as u64 <= CLAIM_BYTES_MAX;
                serde_json::from_slice(bytes).ok().filter(|_| is_short)
            }
        }
    )*};
}

json!(Claimed: "claim", Beat: "beat of a claim", Sight: "sight of a claim");

impl Ended {
    /// A failure, in as many words as fit.
    pub fn failed(said: &str) -> Self {
        let mut said = said.to_owned();
        let mut end = said.len().min(SAID_BYTES_MAX);
        while !said.is_char_boundary(end) {
            end -= 1;
        }
        said.truncate(end);
        Self::Failed(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_back_to_their_claims() {
        let id = ClaimId::of("seed project/demo/data");
        for part in [
            ClaimPart::Claim(1),
            ClaimPart::Claim(u64::MAX),
            ClaimPart::Beat,
            ClaimPart::Seen,
        ] {
            assert_eq!(parse_claim_key(&claim_key(id, part)), Some((id, part)));
        }
        for name in ["0", "01", "+1", "-1", "", "1/beat", "beat ", "other"] {
            let key = format!("claims/{id}/{name}");
            assert_eq!(parse_claim_key(&key), None, "{key}");
        }
        assert_eq!(parse_claim_key(&format!("claims/{id}")), None);
        assert_eq!(parse_claim_key(&format!("x/claims/{id}/1")), None);
    }

    #[test]
    fn texts_survive_and_what_is_no_text_says_nothing() {
        let owner = OwnerId([7; 16]);
        let beat = Beat {
            claim: 2,
            owner,
            beat: 9,
            ended: Some(Ended::failed("exit code 3")),
        };
        assert_eq!(Beat::decode(&beat.encode().unwrap()), Some(beat.clone()));
        let claimed = Claimed {
            key: "k".into(),
            owner,
            who: Who::default(),
        };
        assert_eq!(Claimed::decode(&claimed.encode().unwrap()), Some(claimed));
        assert_eq!(Beat::decode(b""), None);
        let long = [&beat.encode().unwrap()[..], &[b' '; 64 << 10]].concat();
        assert_eq!(Beat::decode(&long), None);
        let Ended::Failed(said) = Ended::failed(&"\u{e9}".repeat(4 << 10)) else {
            panic!("a failure");
        };
        assert_eq!(said.len(), SAID_BYTES_MAX);
        // A letter that does not fit as a whole is left out.
        let Ended::Failed(said) = Ended::failed(&format!("a{}", "\u{e9}".repeat(4 << 10))) else {
            panic!("a failure");
        };
        assert_eq!(said.len(), SAID_BYTES_MAX - 1);
        let long = Claimed {
            key: "k".repeat(65 << 10),
            owner,
            who: Who::default(),
        };
        long.encode().unwrap_err();
    }
}
