//! Limited: a remote to which objects are written no faster than a number of bytes per second.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::Throttle;
use crate::error::Result;
use crate::remote::{Created, ObjectInfo, Read, Upload, Write};
use crate::store::{Host, Store};

/// Bytes that are sent between two waits.
const PIECE_BYTES: usize = 256 << 10;

/// The same store, written to no faster than this many bytes per second; 0: without a limit.
#[must_use]
pub fn limited(store: Store, bytes_per_second: u64) -> Store {
    if bytes_per_second == 0 {
        return store;
    }
    let host = store.host().clone();
    store.through(|inner| Arc::new(Limited::new(inner, bytes_per_second, host)))
}

/// A remote behind a throttle; all uploads share it.
#[derive(Clone, Debug)]
struct Limited {
    inner: Arc<dyn Write>,
    pace: Pace,
}

#[derive(Clone, Debug)]
struct Pace {
    throttle: Arc<Mutex<Throttle>>,
    host: Host,
}

impl Limited {
    fn new(inner: Arc<dyn Write>, bytes_per_second: u64, host: Host) -> Self {
        let throttle = Throttle::new(Some(bytes_per_second));
        Self {
            inner,
            pace: Pace {
                throttle: Arc::new(Mutex::new(throttle)),
                host,
            },
        }
    }
}

impl Pace {
    fn pass(&self, bytes: &Bytes) -> Result<()> {
        let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.chunks(PIECE_BYTES).try_for_each(|piece| {
            let len = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            throttle.pass(len, &self.host)
        })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Read for Limited {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn get(&self, key: &str) -> Result<Bytes> {
        self.inner.get(key)
    }

    fn get_run(&self, keys: &[String]) -> Result<Vec<Bytes>> {
        self.inner.get_run(keys)
    }

    fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(key, ranges)
    }

    fn size(&self, key: &str) -> Result<u64> {
        self.inner.size(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.inner.list(prefix)
    }

    fn keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>> {
        self.inner.keys_after(prefix, after)
    }

    fn local_path(&self, key: &str) -> Option<PathBuf> {
        self.inner.local_path(key)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Write for Limited {
    fn create(&self, key: &str, bytes: Bytes) -> Result<Created> {
        self.pace.pass(&bytes)?;
        self.inner.create(key, bytes)
    }

    fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.pace.pass(&bytes)?;
        self.inner.put(key, bytes)
    }

    fn touch(&self, key: &str) -> Result<()> {
        self.inner.touch(key)
    }

    fn give_up(&self, key: &str) -> Result<()> {
        self.inner.give_up(key)
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload>> {
        Ok(Box::new(LimitedUpload {
            inner: self.inner.upload(key)?,
            pace: self.pace.clone(),
        }))
    }
}

struct LimitedUpload {
    inner: Box<dyn Upload>,
    pace: Pace,
}

#[deny(clippy::missing_trait_methods)]
impl Upload for LimitedUpload {
    fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.pace.pass(&bytes)?;
        self.inner.write(bytes)
    }

    fn seal(&mut self) -> Result<()> {
        self.inner.seal()
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.inner.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::Who;
    use crate::remote::Objects;

    #[test]
    fn whatever_is_written_waits_its_turn_and_what_is_read_does_not() {
        let host = Host {
            cache_dir: None,
            who: Who::default(),
            memory_bytes: 0,
            threads: 1,
            // Set, so that every wait is interrupted.
            stop: Arc::new(true.into()),
        };
        let ways: [fn(&Limited) -> Result<()>; 3] = [
            |limited| limited.put("a", Bytes::from_static(&[0; 9])),
            |limited| limited.create("b", Bytes::from_static(&[0; 9])).map(drop),
            |limited| limited.upload("c")?.write(Bytes::from_static(&[0; 9])),
        ];
        for write in ways {
            let limited = Limited::new(Arc::new(Objects::memory()), 1, host.clone());
            write(&limited).unwrap();
            let error = write(&limited).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Interrupted);
            limited.list("").unwrap();
        }
    }
}
