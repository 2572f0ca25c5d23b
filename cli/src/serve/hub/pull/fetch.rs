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
use crate::serve::hub::pull::upstream::{Failure, Upstream};
use crate::serve::numbers::Numbers;
use crate::serve::spool::Spool;
use crate::serve::text::hex;

/// Maximum number of parts that wait for the disk.
const PARTS_WAITING_MAX: usize = 16;
/// Attempts in a row without any bytes, and the first pause between them.
const TRIES_MAX: u32 = 5;
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
) -> Result<(), Failure> {
    let (sender, parts) = channel(PARTS_WAITING_MAX);
    let (name, onto) = (wanted.name.clone(), Arc::clone(spool));
    let (done, written) = oneshot::channel();
    // A thread of its own: blocking threads are few, and this one runs as long as the upstream sends.
    let writing = std::thread::Builder::new()
        .name("pull".to_owned())
        .spawn(move || drop(done.send(write(parts, &name, &onto))));
    writing.map_err(|error| Failure::Own(error.to_string()))?;
    let received = receive(upstream, wanted, &sender, numbers).await;
    drop(sender);
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

/// Sends requests until all bytes have arrived.
async fn receive(
    upstream: &Upstream,
    wanted: &Wanted,
    to: &Sender<Bytes>,
    numbers: &Numbers,
) -> Result<(), Failure> {
    let (mut at, mut tries) = (0, 0);
    loop {
        let before = at;
        let tries_max = if at > 0 { TRIES_MAX } else { FIRST_TRIES_MAX };
        match ask(upstream, wanted, to, &mut at, numbers).await {
            Ok(()) if at >= wanted.size => return Ok(()),
            Err(failure) if !failure.is_silence() => return Err(failure),
            Err(failure) if tries >= tries_max => return Err(failure),
            Ok(()) if tries >= tries_max => {
                return Err(Failure::Away(format!("it ends after {at} bytes")));
            }
            _ => {}
        }
        tries = if at > before { 0 } else { tries + 1 };
        tokio::time::sleep(PAUSE * 2_u32.pow(tries)).await;
    }
}

/// Sends one request, from `at` on.
async fn ask(
    upstream: &Upstream,
    wanted: &Wanted,
    to: &Sender<Bytes>,
    at: &mut u64,
    numbers: &Numbers,
) -> Result<(), Failure> {
    let (place, token) = (
        (wanted.commit.as_str(), wanted.path.as_str()),
        &wanted.token,
    );
    let mut answer = upstream
        .file(&wanted.named, place, token.as_deref(), *at)
        .await?;
    // A server without support for ranges sends the whole file again.
    let mut skip = match answer.status() {
        StatusCode::PARTIAL_CONTENT => {
            let said = answer.headers().get(CONTENT_RANGE);
            let said = said
                .and_then(|range| range.to_str().ok())
                .unwrap_or_default();
            match said.starts_with(&format!("bytes {at}-")) {
                true => 0,
                false => {
                    return Err(Failure::Away(
                        "it sends another part of the file".to_owned(),
                    ));
                }
            }
        }
        _ => *at,
    };
    loop {
        let part = answer.chunk().await;
        let part = part.map_err(|_| Failure::Away("it broke off within a file".to_owned()))?;
        let Some(mut part) = part else {
            return Ok(());
        };
        let passed = part.len().min(usize::try_from(skip).unwrap_or(usize::MAX));
        skip -= passed as u64;
        drop(part.split_to(passed));
        if part.is_empty() {
            continue;
        }
        numbers.pulled_bytes.add(part.len() as u64);
        *at += part.len() as u64;
        if *at > wanted.size {
            return Err(Failure::Wrong(format!(
                "the upstream sends more than the {} bytes that it announced",
                wanted.size
            )));
        }
        // The send fails if writing failed; the writer knows why.
        if to.send(part).await.is_err() {
            return Err(Failure::Own("it could not be written".to_owned()));
        }
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
