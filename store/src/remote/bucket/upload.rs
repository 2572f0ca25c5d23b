//! Uploads in parts: data is collected without copying, and sent part by part.
//!
//! An upload of less than one part becomes a plain put. Memory: one part for each upload that is being collected, and
//! [`PartsMax`] parts in flight for all uploads to one bucket together.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::FutureExt;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::connect::{Alive, by_status};
use crate::remote::wait::Wait;

/// Bytes of every part but the last; some buckets require equal parts.
pub(in crate::remote) const PART_BYTES: usize = 8 << 20;
/// At least this many parts may be in flight: one is sent while the next one is collected.
const PARTS_LEAST: usize = 2;
/// At most this many parts may be in flight: more connections make no upload faster.
const PARTS_MOST: usize = 16;

/// How many parts may be in flight to one bucket. Clones share the count.
#[derive(Clone)]
pub(in crate::remote) struct PartsMax(Arc<Semaphore>);

impl PartsMax {
    /// As many parts as fit into `bytes`, within limits.
    pub(in crate::remote) fn of_bytes(bytes: u64) -> Self {
        let parts = usize::try_from(bytes).unwrap_or(usize::MAX) / PART_BYTES;
        Self(Arc::new(Semaphore::new(
            parts.clamp(PARTS_LEAST, PARTS_MOST),
        )))
    }
}

impl Default for PartsMax {
    fn default() -> Self {
        Self::of_bytes(0)
    }
}

/// An upload to one backend.
pub(in crate::remote) struct Parts {
    store: Arc<dyn ObjectStore>,
    wait: Wait,
    alive: Alive,
    path: Path,
    parts_max: PartsMax,
    collected: Vec<Bytes>,
    collected_bytes: usize,
    begun: Option<Begun>,
}

struct Begun {
    upload: Box<dyn MultipartUpload>,
    in_flight: VecDeque<JoinHandle<Result<()>>>,
}

impl Parts {
    pub(in crate::remote) fn new(
        store: Arc<dyn ObjectStore>,
        wait: Wait,
        alive: Alive,
        path: Path,
        parts_max: PartsMax,
    ) -> Self {
        Self {
            store,
            wait,
            alive,
            path,
            parts_max,
            collected: Vec::new(),
            collected_bytes: 0,
            begun: None,
        }
    }

    pub(in crate::remote) fn write(&mut self, mut bytes: Bytes) -> Result<()> {
        while self.collected_bytes + bytes.len() >= PART_BYTES {
            let rest = bytes.split_off(PART_BYTES - self.collected_bytes);
            self.collect(bytes);
            self.send()?;
            bytes = rest;
        }
        self.collect(bytes);
        Ok(())
    }

    /// Sends the last part, if there were others, and waits for all parts.
    pub(in crate::remote) fn seal(&mut self) -> Result<()> {
        if self.begun.is_some() && self.collected_bytes > 0 {
            self.send()?;
        }
        self.settle(true)
    }

    pub(in crate::remote) fn finish(mut self) -> Result<()> {
        self.seal()?;
        let Some(begun) = &mut self.begun else {
            let payload: PutPayload = std::mem::take(&mut self.collected).into_iter().collect();
            return on(&self.wait, &self.alive, self.store.put(&self.path, payload)).map(drop);
        };
        on(&self.wait, &self.alive, begun.upload.complete())?;
        self.begun = None;
        Ok(())
    }

    fn collect(&mut self, bytes: Bytes) {
        self.collected_bytes += bytes.len();
        if !bytes.is_empty() {
            self.collected.push(bytes);
        }
    }

    fn send(&mut self) -> Result<()> {
        self.settle(false)?;
        let payload: PutPayload = std::mem::take(&mut self.collected).into_iter().collect();
        self.collected_bytes = 0;
        let begun = match &mut self.begun {
            Some(begun) => begun,
            None => {
                let upload = self.store.put_multipart(&self.path);
                let upload = on(&self.wait, &self.alive, upload)?;
                self.begun.insert(Begun {
                    upload,
                    in_flight: VecDeque::new(),
                })
            }
        };
        let Wait::Shared(runtime) = &self.wait else {
            return self.wait.on(begun.upload.put_part(payload));
        };
        let permits = Arc::clone(&self.parts_max.0);
        // The semaphore is never closed; if it were, a part would be sent without a permit, which does no harm.
        let permit = async { Ok(permits.acquire_owned().await.ok()) };
        let permit = on(&self.wait, &self.alive, permit)?;
        let part = begun.upload.put_part(payload);
        begun.in_flight.push_back(runtime.spawn(async move {
            let sent = part.await;
            drop(permit);
            sent
        }));
        Ok(())
    }

    /// Collects the results of finished parts, or waits for all of them.
    fn settle(&mut self, all: bool) -> Result<()> {
        let Some(begun) = &mut self.begun else {
            return Ok(());
        };
        while let Some(part) = begun
            .in_flight
            .pop_front_if(|part| all || part.is_finished())
        {
            on(&self.wait, &self.alive, part.map(|joined| joined?))?;
        }
        Ok(())
    }
}

/// Waits for `future`. After a request to stop, does not wait for a silent bucket.
fn on<T>(wait: &Wait, alive: &Alive, future: impl Future<Output = Result<T>>) -> Result<T> {
    let future = async { future.await.map_err(by_status) };
    match wait {
        Wait::Here => wait.on(future),
        Wait::Shared(_) => wait.on(alive.watch(future)),
    }
}

impl Drop for Parts {
    /// Aborts the upload. Errors cannot be reported; whatever is left is found by `stale_uploads`.
    fn drop(&mut self) {
        let Some(mut begun) = self.begun.take() else {
            return;
        };
        begun.in_flight.iter().for_each(JoinHandle::abort);
        drop(on(&self.wait, &self.alive, begun.upload.abort()));
    }
}
