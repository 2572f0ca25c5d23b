//! The upload of one object: its parts, and what their errors mean for its key; and all that is written into a directory
//! that a group shares.

use std::sync::Arc;

use bytes::Bytes;
use object_store::PutMode;

use super::Objects;
use crate::error::Result;
use crate::remote::Upload;
use crate::remote::bucket::Parts;
use crate::remote::directory::{Directory, Staged, Taken};
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
                .judge(&key)
                .map_err(objects.io_failed(&key, WRITE)),
            None => Ok(()),
        }
    }
}

/// An upload to one key of a directory that a group shares. Its file is made by the first write.
pub(super) struct SharedUpload {
    directory: Arc<Directory>,
    staged: Option<Staged>,
    objects: Objects,
    key: String,
}

impl SharedUpload {
    pub(super) fn new(directory: Arc<Directory>, objects: Objects, key: &str) -> Self {
        Self {
            directory,
            staged: None,
            objects,
            key: key.to_owned(),
        }
    }

    fn staged(&mut self) -> std::io::Result<Option<&mut Staged>> {
        if self.staged.is_none() {
            self.staged = self.directory.stage(&self.key)?;
        }
        Ok(self.staged.as_mut())
    }
}

impl Upload for SharedUpload {
    fn write(&mut self, bytes: Bytes) -> Result<()> {
        let staged = self.staged();
        let written = staged.and_then(|staged| staged.map_or(Ok(()), |file| file.write(&bytes)));
        written.map_err(self.objects.io_failed(&self.key, WRITE))
    }

    fn seal(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let made = self.staged().map(drop);
        let staged = self.staged.take();
        let named = |staged: Staged| staged.publish(Taken::Replace);
        made.and_then(|()| staged.map_or(Ok(()), named))
            .map_err(self.objects.io_failed(&self.key, WRITE))
    }
}

impl Objects {
    /// Puts in a store that a group shares.
    pub(super) fn put_staged(
        &self,
        key: &str,
        mut staged: Staged,
        bytes: &[u8],
        mode: &PutMode,
    ) -> Result<object_store::Result<()>> {
        let taken = match mode {
            PutMode::Create => Taken::Fail,
            _ => Taken::Replace,
        };
        let put = staged.write(bytes).and_then(|()| staged.publish(taken));
        let check = |directory: &Arc<Directory>| directory.check_root();
        match put {
            Err(source) if source.kind() == std::io::ErrorKind::AlreadyExists => {
                let (path, source) = (key.to_owned(), source.into());
                Ok(Err(object_store::Error::AlreadyExists { path, source }))
            }
            put => put
                .and_then(|()| self.directory.as_ref().map_or(Ok(()), check))
                .map(Ok)
                .map_err(self.io_failed(key, WRITE)),
        }
    }
}
