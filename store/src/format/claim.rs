//! Claims: which process makes something, and whether it is still working. Pure.
//!
//! Claims only save work, so an object that cannot be parsed is treated as missing.

use serde::{Deserialize, Serialize};

use super::Who;
use crate::error::{Error, Result};
use crate::id::{ClaimId, OwnerId};

/// Prefix of all claims.
pub const CLAIMS_PREFIX: &str = "claims";
/// Most bytes of any object of a claim.
pub const CLAIM_BYTES_MAX: u64 = 64 << 10;
/// Most bytes of the failure message of an owner.
const SAID_BYTES_MAX: usize = 4 << 10;

/// The object `claims/<id>/<n>`, which is written once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// The name of what is being made.
    pub key: String,
    /// The owner: a random name for one wait and the work that follows it.
    pub owner: OwnerId,
    /// Host, user and program of the owner, for people.
    pub who: Who,
}

/// The object `claims/<id>/beat`: overwritten by the owner as long as it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The number of the owner's claim.
    pub claim: u64,
    /// The owner.
    pub owner: OwnerId,
    /// Incremented with each beat.
    pub beat: u64,
    /// How the work ended; `None` while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

/// How the owner's work ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The thing has been made.
    Done,
    /// The owner gave up, so that another process can make it.
    Left,
    /// It cannot be made, for the reason given. Processes that waited for this claim need not try.
    Failed(String),
}

/// The object `claims/<id>/seen`, in which a collector records what it saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// The number of the newest claim.
    pub claim: u64,
    /// The text of the beat; empty if there was none.
    pub beat: String,
}

/// The kind of an object below `claims`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimPart {
    /// The claim of this number, from 1.
    Claim(u64),
    /// The beat.
    Beat,
    /// What a collector saw last.
    Seen,
}

impl ClaimId {
    /// Returns the id of the thing named `key`.
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

/// Parses a key into the claim and the part of it.
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
            /// Encodes the object as JSON.
            ///
            /// # Errors
            /// When it is longer than readers accept.
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

            /// Parses `bytes`; `None` if they are malformed or too long.
            pub fn decode(bytes: &[u8]) -> Option<Self> {
                let is_short = bytes.len() as u64 <= CLAIM_BYTES_MAX;
                serde_json::from_slice(bytes).ok().filter(|_| is_short)
            }
        }
    )*};
}

json!(Claimed: "claim", Beat: "beat of a claim", Sight: "sight of a claim");

impl Ended {
    /// A failure with this message, which is shortened if necessary.
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
        // A character that does not fit as a whole is left out.
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
