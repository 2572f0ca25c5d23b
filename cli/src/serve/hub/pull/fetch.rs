//! Fetches one file from the upstream to this host's disk: hashed while it arrives, and resumed after interruptions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::CONTENT_RANGE;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use crate::serve::hub::hashes::git_hash;
use crate::serve::hub::pull::Wanted;
use crate::serve::hub::pull::places::Place;
use crate::serve::hub::pull::upstream::{Failure, Upstream};
use crate::serve::numbers::Numbers;
use crate::serve::spool::Spool;
use crate::serve::text::hex;

/// Maximum number of parts that wait for the disk.
const PARTS_WAITING_MAX: usize = 16;
/// Attempts in a row without any bytes, and the first pause between them.
const TRIES_MAX: u32 = 5;
/// As many of them does one count in which the upstream sent nothing, or little, until the time was over.
const STALL_TRIES: u32 = 3;
/// After so many bytes, earlier attempts are forgotten.
const PROGRESS_BYTES: u64 = 1 << 20;
/// Attempts before the first byte: clients retry by themselves.
const FIRST_TRIES_MAX: u32 = 1;
const PAUSE: Duration = Duration::from_millis(200);
/// Computes the kind of hash that the upstream named.
enum Hasher {
    Git(Sha1),
    Sha256(Sha256),
}

impl Hasher {
    fn of(name: &str, size: u64) -> Self {
        match name.len() {
            40 => Self::Git(git_hash(size)),
            _ => Self::Sha256(Sha256::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Git(hash) => hash.update(bytes),
            Self::Sha256(hash) => hash.update(bytes),
        }
    }

    fn finish(self) -> String {
        match self {
            Self::Git(hash) => hex(&hash.finalize()),
            Self::Sha256(hash) => hex(&hash.finalize()),
        }
    }
}

/// Fetches a file. On success, the file is complete and verified.
pub(super) async fn fetch(
    upstream: &Upstream,
    wanted: &Wanted,
    spool: &Arc<Spool>,
    numbers: &Numbers,
    place: Place<'_>,
) -> Result<(), Failure> {
    let (sender, parts) = channel(PARTS_WAITING_MAX);
    let (name, onto) = (wanted.name.clone(), Arc::clone(spool));
    let (done, written) = oneshot::channel();
    // A thread of its own: blocking threads are few, and this one runs as long as the upstream sends.
    let writing = std::thread::Builder::new()
        .name("pull".to_owned())
        .spawn(move || drop(done.send(write(parts, &name, &onto))));
    writing.map_err(|error| Failure::Own(error.to_string()))?;
    let receiving = Receiving {
        upstream,
        wanted,
        to: sender,
        numbers,
        place,
        at: 0,
    };
    let received = receiving.run().await;
    let written = written.await;
    let written = written.unwrap_or_else(|_| Err(Failure::Own("the server stops".to_owned())));
    match (received, written) {
        // A failure of the disk is the cause if both failed.
        (_, Err(failure @ (Failure::Full(_) | Failure::Own(_)))) => Err(failure),
        (Err(failure), _) | (Ok(()), Err(failure)) => Err(failure),
        (Ok(()), Ok(())) => Ok(()),
    }
}

/// Writes the parts as they come, and checks the announced hash. Blocks.
fn write(mut parts: Receiver<Bytes>, name: &str, spool: &Spool) -> Result<(), Failure> {
    let mut hash = Hasher::of(name, spool.size());
    let mut at = 0;
    while let Some(part) = parts.blocking_recv() {
        let written = spool.write(at, &part);
        written.map_err(|error| Failure::own(&error))?;
        hash.update(&part);
        at += part.len() as u64;
        spool.came(at);
    }
    let found = hash.finish();
    match at == spool.size() && found == name {
        true => Ok(()),
        false => Err(Failure::Wrong(format!(
            "the upstream sent {at} bytes with hash {found}, announced were {} with {name}",
            spool.size()
        ))),
    }
}

/// Receives a file.
struct Receiving<'r> {
    upstream: &'r Upstream,
    wanted: &'r Wanted,
    to: Sender<Bytes>,
    numbers: &'r Numbers,
    place: Place<'r>,
    /// The number of bytes that have arrived.
    at: u64,
}

impl Receiving<'_> {
    /// Sends requests until all bytes have arrived.
    async fn run(mut self) -> Result<(), Failure> {
        let mut tries = 0;
        loop {
            let before = self.at;
            let failure = match self.ask().await {
                Ok(()) if self.at >= self.wanted.size => return Ok(()),
                Ok(()) => Failure::Away(format!("it ends after {} bytes", self.at)),
                Err(failure) => failure,
            };
            let is_stalled = failure == Failure::Stalled;
            let needed = if is_stalled { PROGRESS_BYTES } else { 1 };
            if self.at - before >= needed {
                tries = 0;
            }
            tries += if is_stalled { STALL_TRIES } else { 1 };
            let tries_max = if self.at > 0 {
                TRIES_MAX
            } else {
                FIRST_TRIES_MAX
            };
            if !failure.is_silence() || tries > tries_max {
                return Err(failure);
            }
            tokio::time::sleep(PAUSE * 2_u32.pow(tries)).await;
        }
    }

    /// Sends one request, for what has not arrived.
    async fn ask(&mut self) -> Result<(), Failure> {
        let (wanted, token) = (self.wanted, self.wanted.token.as_deref());
        let file = (wanted.commit.as_str(), wanted.path.as_str());
        let asked = self.upstream.file(&wanted.named, file, token, self.at);
        let mut answer = self.place.patiently(asked).await??;
        let mut skip = skipped(&answer, self.at)?;
        loop {
            let part = self.place.patiently(answer.chunk()).await?;
            let part = part.map_err(|error| match error.is_timeout() {
                true => Failure::Stalled,
                false => Failure::Away("it broke off within a file".to_owned()),
            })?;
            let Some(mut part) = part else {
                return Ok(());
            };
            let passed = part.len().min(usize::try_from(skip).unwrap_or(usize::MAX));
            skip -= passed as u64;
            drop(part.split_to(passed));
            if part.is_empty() {
                continue;
            }
            let bytes = part.len() as u64;
            self.numbers.pulled_bytes.add(bytes);
            self.at += bytes;
            if self.at > wanted.size {
                return Err(Failure::Wrong(format!(
                    "the upstream sends more than the {} bytes that it announced",
                    wanted.size
                )));
            }
            // The send fails if writing failed; the writer knows why.
            if self.to.send(part).await.is_err() {
                return Err(Failure::Own("it could not be written".to_owned()));
            }
            if !self.place.came(bytes) {
                return Err(Failure::Stalled);
            }
        }
    }
}

/// How many bytes of an answer have arrived before: a server without support for ranges sends the whole file again.
fn skipped(answer: &reqwest::Response, at: u64) -> Result<u64, Failure> {
    if answer.status() != StatusCode::PARTIAL_CONTENT {
        return Ok(at);
    }
    let said = answer.headers().get(CONTENT_RANGE);
    let said = said.and_then(|range| range.to_str().ok());
    match said.is_some_and(|said| said.starts_with(&format!("bytes {at}-"))) {
        true => Ok(0),
        false => Err(Failure::Strange(
            "it sends another part of the file".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::hub::hashes::git_name;
    use crate::serve::spool::Rooms;

    fn written(name: &str, size: u64, parts: &[&'static [u8]]) -> Result<(), Failure> {
        let spool = Spool::new(None, size, &Rooms::default()).unwrap();
        let (sender, receiver) = channel(PARTS_WAITING_MAX);
        for part in parts {
            sender.try_send(Bytes::from_static(part)).unwrap();
        }
        drop(sender);
        write(receiver, name, &spool)
    }

    #[test]
    fn bytes_are_right_by_both_hashes_or_not_at_all() {
        let sha256 = hex(&Sha256::digest("hello\n"));
        for name in [git_name("hello\n"), sha256] {
            assert_eq!(written(&name, 6, &[b"he", b"llo\n"]), Ok(()));
            for (size, rest) in [(6, &b"LLO\n"[..]), (6, b"llo"), (7, b"llo\n")] {
                let found = written(&name, size, &[b"he", rest]);
                assert!(matches!(found, Err(Failure::Wrong(_))), "{found:?}");
            }
        }
    }
}
