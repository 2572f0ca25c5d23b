//! Checks of one file's bytes: their hash is the file's name, they are exactly what was seen before, they hold no
//! credentials.
//!
//! The checks run while the file is read and cut, so that nothing is read twice.

use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::rules::is_hex;
use super::secrets::Search;
use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// What must hold for the bytes of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Check {
    /// The hash in the name of the file.
    pub(crate) name: Option<HashName>,
    /// What was read when the tree around the file was judged.
    pub(crate) exact: Option<Vec<u8>>,
    /// The search for credentials.
    pub(crate) search: Option<Search>,
    /// Whether only this file is left out if its bytes do not match the name.
    pub(crate) is_optional: bool,
}

/// The name of a file in `blobs/`, which the hub calls its etag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HashName {
    /// SHA-256 of the bytes, for large files.
    Sha256([u8; 64]),
    /// SHA-1 of git's header and the bytes, as git computes it, for all other files.
    Git([u8; 40]),
}

/// A check in progress over the bytes of one file.
pub(crate) struct Inspection<'c> {
    check: &'c Check,
    hash: Option<Hash>,
    size: u64,
}

enum Hash {
    Sha256(Sha256),
    Git(Sha1),
}

impl HashName {
    /// The hash that `name` is, if it is one.
    pub(crate) fn parse(name: &[u8]) -> Option<Self> {
        if is_hex(name, 64) {
            return name.try_into().ok().map(Self::Sha256);
        }
        is_hex(name, 40)
            .then(|| name.try_into().ok().map(Self::Git))
            .flatten()
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Sha256(name) => name,
            Self::Git(name) => name,
        }
    }
}

impl Check {
    /// Whether there is anything to check.
    pub(super) fn is_any(&self) -> bool {
        self.name.is_some() || self.exact.is_some() || self.search.is_some()
    }

    /// Whether the put has found credentials, and stores nothing more.
    pub(crate) fn stores_nothing(&self) -> bool {
        self.search.as_ref().is_some_and(Search::is_over)
    }

    /// Begins a check of a file of `size` bytes.
    pub(crate) fn begin(&self, size: u64) -> Inspection<'_> {
        let hash = self.name.map(|name| match name {
            HashName::Sha256(_) => Hash::Sha256(Sha256::new()),
            HashName::Git(_) => Hash::Git(Sha1::new().chain_update(format!("blob {size}\0"))),
        });
        Inspection {
            check: self,
            hash,
            size,
        }
    }

    /// Checks a small file as a whole, before its bytes are passed on.
    ///
    /// # Errors
    /// Corrupt, when the bytes do not match the name, and conflict, when they changed; the caller names the file.
    /// Credentials are recorded, or denied.
    pub(crate) fn whole(&self, bytes: &[u8]) -> Result<()> {
        let size = bytes.len() as u64;
        if let Some(search) = &self.search {
            search.whole(bytes)?;
        }
        if self.exact.as_ref().is_some_and(|exact| exact != bytes) {
            return Err(
                Error::conflict("it changed while the tree around it was read")
                    .hint("put it when nobody downloads into it"),
            );
        }
        let mut inspection = self.begin(size);
        inspection.update(bytes);
        inspection.finish()
    }
}

impl Inspection<'_> {
    /// Adds the next bytes of the file.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match &mut self.hash {
            None => {}
            Some(Hash::Sha256(hash)) => hash.update(bytes),
            Some(Hash::Git(hash)) => hash.update(bytes),
        }
    }

    /// Adds this many zeros that were not read.
    pub(crate) fn zeros(&mut self, count: u64) {
        const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
        let mut left = count;
        while left > 0 && self.hash.is_some() {
            let step = left.min(ZEROS.len() as u64);
            let len = usize::try_from(step).unwrap_or(ZEROS.len());
            self.update(ZEROS.get(..len).unwrap_or_default());
            left -= step;
        }
    }

    /// Ends the check.
    ///
    /// # Errors
    /// Corrupt, when the hash of the bytes is not the file's name.
    pub(crate) fn finish(self) -> Result<()> {
        let (Some(hash), Some(name)) = (self.hash, &self.check.name) else {
            return Ok(());
        };
        let (algorithm, found) = match hash {
            Hash::Sha256(hash) => ("SHA-256", hex(&hash.finalize())),
            Hash::Git(hash) => ("git's SHA-1", hex(&hash.finalize())),
        };
        if found.as_bytes() == name.as_bytes() {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "{algorithm} of its {} bytes: expected its name, found {found}",
            self.size
        ))
        .hint(Remedy::DownloadAgain))
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").ok();
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn check(name: &str) -> Check {
        let name = HashName::parse(name.as_bytes());
        assert!(name.is_some());
        Check {
            name,
            ..Check::default()
        }
    }

    #[test]
    fn names_are_the_hashes_of_git_and_of_large_files() {
        // `echo hello | git hash-object --stdin` and `echo hello | sha256sum`.
        let git = check("ce013625030ba8dba906f756967f9e9ca394464a");
        let large = check("5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
        for check in [git, large] {
            check.whole(b"hello\n").unwrap();
            let error = check.whole(b"hello!").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(
                error.to_string().contains("expected its name, found"),
                "{error}"
            );
            let mut inspection = check.begin(6);
            inspection.update(b"hel");
            inspection.update(b"lo\n");
            inspection.finish().unwrap();
        }
        // `head -c 20000 /dev/zero | git hash-object --stdin`.
        let zeros = check("91cb84fdfbc2a39b865e91949aca505b5c847d90");
        let mut inspection = zeros.begin(20_000);
        inspection.zeros(17_000);
        inspection.zeros(3_000);
        inspection.finish().unwrap();
        assert_eq!(
            HashName::parse(b"CE013625030BA8DBA906F756967F9E9CA394464A"),
            None
        );
    }
}
