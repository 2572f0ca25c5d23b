//! Arriving bytes: passes the body of a request to a thread of the engine, which hashes, cuts and stores it.
//!
//! At most a few parts are queued. `--memory` limits how many bodies are stored at once, since each needs buffers to
//! cut and encode. A body takes its turn only after its first bytes have arrived.

use std::time::Instant;

use bytes::Bytes;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use store::{Arriving, Content, Edit, Error, Result};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::serve::Asked;
use crate::serve::hub::hashes::{HEAD_BYTES, Hashes, git_hash, is_binary_head};
use crate::serve::hub::writers::{Pace, Writers};
use crate::serve::source::block;
use crate::serve::text::hex;

/// Maximum number of queued parts.
const PARTS_WAITING_MAX: usize = 8;
/// Bytes of a body that must arrive before it takes a turn.
const BEGUN_BYTES: usize = 64 << 10;

/// The parts of a body, or why there are no more.
pub(super) struct Parts(Receiver<Result<Bytes>>);

impl Parts {
    /// The next part; `None` at the end of the body. Blocks.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>> {
        match self.0.blocking_recv() {
            Some(Ok(part)) if part.is_empty() => Ok(None),
            Some(part) => part.map(Some),
            None => Err(Error::interrupted("the request was given up")),
        }
    }
}

/// Runs `work` on a thread that may block, and passes it `first` and then the body of `asked`.
///
/// # Errors
/// Those of `work`; the body comes too slowly.
pub(super) async fn feed<T: Send + 'static>(
    asked: &mut Asked,
    first: Bytes,
    (writers, caller): (&Writers, Option<&str>),
    work: impl FnOnce(Parts) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (begun, is_all) = begin(asked, first).await?;
    let turn = writers.turn(caller).await?;
    let (sender, parts) = channel(PARTS_WAITING_MAX);
    let working = tokio::spawn(block(move || {
        let _turn = turn;
        work(Parts(parts))
    }));
    for part in begun {
        // The send fails if the work has ended, and its result says why.
        let _ended = sender.send(Ok(part)).await;
    }
    match is_all {
        true => drop(sender.send(Ok(Bytes::new())).await),
        false => send(asked, sender, writers).await,
    }
    match working.await {
        Ok(done) => done,
        Err(panic) => Err(Error::unavailable("the work on a request").because(panic)),
    }
}

/// Reads the beginning of a body. Returns it, and whether that is the whole body.
async fn begin(asked: &mut Asked, first: Bytes) -> Result<(Vec<Bytes>, bool)> {
    let mut bytes = first.len();
    let mut begun = vec![first];
    while bytes < BEGUN_BYTES {
        match asked.part().await? {
            None => return Ok((filled(begun), true)),
            Some(part) => {
                bytes += part.len();
                begun.push(part);
            }
        }
    }
    Ok((filled(begun), false))
}

/// Removes empty parts, since an empty part marks the end.
fn filled(mut parts: Vec<Bytes>) -> Vec<Bytes> {
    parts.retain(|part| !part.is_empty());
    parts
}

/// Passes parts on until the work takes no more.
async fn send(asked: &mut Asked, to: Sender<Result<Bytes>>, writers: &Writers) {
    let mut pace = Pace::default();
    loop {
        let began = Instant::now();
        let part = match asked.part().await {
            Ok(Some(part)) if part.is_empty() => continue,
            Ok(Some(part)) => {
                let checked = writers.check(&mut pace, began.elapsed(), part.len() as u64);
                checked.map(|()| part)
            }
            Ok(None) => Ok(Bytes::new()),
            Err(error) => Err(error),
        };
        let is_last = !matches!(&part, Ok(part) if !part.is_empty());
        if to.send(part).await.is_err() || is_last {
            return;
        }
    }
}

/// A file that is being stored, and its hashes.
pub(super) struct File {
    arriving: Arriving,
    sha256: Sha256,
    /// Git's id depends on the size, so it is computed only if the size is known in advance.
    git: Option<Sha1>,
    head: Vec<u8>,
    bytes: u64,
}

/// A stored file.
pub(super) struct Arrived {
    pub(super) content: Content,
    pub(super) sha256: String,
    /// All hashes, if the size was known in advance.
    pub(super) hashes: Option<Hashes>,
}

impl File {
    pub(super) fn new(edit: &Edit<'_>, size: Option<u64>) -> Self {
        Self {
            arriving: edit.arriving(size),
            sha256: Sha256::new(),
            git: size.map(git_hash),
            head: Vec::new(),
            bytes: 0,
        }
    }

    pub(super) fn push(&mut self, edit: &mut Edit<'_>, bytes: &[u8]) -> Result<()> {
        self.sha256.update(bytes);
        if let Some(git) = &mut self.git {
            git.update(bytes);
        }
        if self.head.len() < HEAD_BYTES {
            self.head
                .extend_from_slice(bytes.get(..bytes.len().min(HEAD_BYTES)).unwrap_or_default());
        }
        self.bytes += bytes.len() as u64;
        self.arriving.push(edit, bytes)
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn finish(self, edit: &mut Edit<'_>) -> Result<Arrived> {
        let content = self.arriving.finish(edit)?;
        let sha256 = hex(&self.sha256.finalize());
        let hashes = self.git.map(|git| Hashes {
            git: hex(&git.finalize()),
            sha256: sha256.clone(),
            is_binary: is_binary_head(&self.head),
        });
        Ok(Arrived {
            content,
            sha256,
            hashes,
        })
    }
}
