//! Uploads in parts: what is written is collected, never copied, and sent part by part.
//!
//! An upload of less than one part is a plain put. Memory: one part being collected and
//! [`PARTS_IN_FLIGHT`] on their way.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::FutureExt;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload, Result};
use tokio::task::JoinHandle;

use super::wait::Wait;

/// Bytes of every part but the last: some buckets want them equal.
pub(super) const PART_BYTES: usize = 8 << 20;
/// Parts on their way at once.
const PARTS_IN_FLIGHT: usize = 2;

/// An upload to one backend.
pub(super) struct Parts {
    store: Arc<dyn ObjectStore>,
    wait: Wait,
    path: Path,
    collected: Vec<Bytes>,
    collected_bytes: usize,
    begun: Option<Begun>,
}

struct Begun {
    upload: Box<dyn MultipartUpload>,
    in_flight: VecDeque<JoinHandle<Result<()>>>,
}

impl Parts {
    pub(super) fn new(store: Arc<dyn ObjectStore>, wait: Wait, path: Path) -> Self {
        Self {
            store,
            wait,
            path,
            collected: Vec::new(),
            collected_bytes: 0,
            begun: None,
        }
    }

    pub(super) fn write(&mut self, mut bytes: Bytes) -> Result<()> {
        while self.collected_bytes + bytes.len() >= PART_BYTES {
            let rest = bytes.split_off(PART_BYTES - self.collected_bytes);
            self.collect(bytes);
            self.send()?;
            bytes = rest;
        }
        self.collect(bytes);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<()> {
        if self.begun.is_none() {
            let payload: PutPayload = std::mem::take(&mut self.collected).into_iter().collect();
            return self.wait.on(self.store.put(&self.path, payload)).map(drop);
        }
        if self.collected_bytes > 0 {
            self.send()?;
        }
        self.settle(0)?;
        let Some(begun) = &mut self.begun else {
            return Ok(());
        };
        self.wait.on(begun.upload.complete())?;
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
        self.settle(PARTS_IN_FLIGHT - 1)?;
        let payload: PutPayload = std::mem::take(&mut self.collected).into_iter().collect();
        self.collected_bytes = 0;
        let begun = match &mut self.begun {
            Some(begun) => begun,
            None => {
                let upload = self.wait.on(self.store.put_multipart(&self.path))?;
                self.begun.insert(Begun {
                    upload,
                    in_flight: VecDeque::new(),
                })
            }
        };
        let part = begun.upload.put_part(payload);
        match &self.wait {
            Wait::Here => self.wait.on(part),
            Wait::Shared(runtime) => {
                begun.in_flight.push_back(runtime.spawn(part));
                Ok(())
            }
        }
    }

    /// Waits until no more than `count` parts are on their way.
    fn settle(&mut self, count: usize) -> Result<()> {
        let Some(begun) = &mut self.begun else {
            return Ok(());
        };
        while begun.in_flight.len() > count {
            if let Some(part) = begun.in_flight.pop_front() {
                self.wait.on(part.map(|joined| joined?))?;
            }
        }
        Ok(())
    }
}

impl Drop for Parts {
    /// Gives up what was not finished. It cannot fail loudly; what stays is found by `stale_uploads`.
    fn drop(&mut self) {
        let Some(mut begun) = self.begun.take() else {
            return;
        };
        begun.in_flight.iter().for_each(JoinHandle::abort);
        drop(self.wait.on(begun.upload.abort()));
    }
}
