//! The upload of one object: its parts, and what their errors mean for its key.

use bytes::Bytes;

use super::Objects;
use crate::error::Result;
use crate::remote::Upload;
use crate::remote::bucket::Parts;
use crate::remote::failure::WRITE;

/// An upload to one key of a backend.
pub(super) struct NamedUpload {
    pub(super) parts: Parts,
    pub(super) objects: Objects,
    pub(super) key: String,
}

impl Upload for NamedUpload {
    fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.parts
            .write(bytes)
            .map_err(self.objects.failed(&self.key, WRITE))
    }

    fn seal(&mut self) -> Result<()> {
        self.parts
            .seal()
            .map_err(self.objects.failed(&self.key, WRITE))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Self {
            parts,
            objects,
            key,
        } = *self;
        parts.finish().map_err(objects.failed(&key, WRITE))?;
        match &objects.directory {
            Some(directory) => directory
                .share(&key)
                .map_err(objects.io_failed(&key, WRITE)),
            None => Ok(()),
        }
    }
}
