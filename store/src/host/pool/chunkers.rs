//! The chunkers of the stores that a pool's files come from. To verify a file without its store, it must be cut as that
//! store cuts it.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use rustix::fs;

use super::{Pool, disk};
use crate::chunk::Chunker;
use crate::error::{Error, Result};
use crate::format::ChunkerParams;

impl Pool {
    /// Records how a store cuts files, before its files come into the pool.
    pub(crate) fn know_chunker(&self, params: &ChunkerParams) -> Result<()> {
        let text = serde_json::to_vec(params)
            .map_err(|source| Error::invalid("parameters of a chunker").because(source))?;
        let hash = blake3::hash(&text).to_hex();
        let name = format!("chunkers/{}", hash.get(..32).unwrap_or_default());
        let known = |file: std::fs::File| -> std::io::Result<Vec<u8>> {
            let mut known = Vec::new();
            file.take(4096).read_to_end(&mut known).map(|_| known)
        };
        let failed = |errno| disk::failed("write", &self.path.join(&name), errno);
        let file = disk::open_file(&self.fd, name.as_bytes());
        if file.is_ok_and(|file| known(file).is_ok_and(|known| known == text)) {
            return Ok(());
        }
        let owner = self.owner()?;
        let temporary = disk::random_name()?;
        disk::write_new(&owner.temporaries, temporary.as_bytes(), &text)
            .and_then(|()| {
                fs::fdatasync(disk::open_file(&owner.temporaries, temporary.as_bytes())?)
            })
            .and_then(|()| fs::renameat(&owner.temporaries, &temporary, &self.fd, &name))
            .map_err(failed)
    }

    /// The recorded chunkers; without any, the chunker of new stores.
    pub(crate) fn chunkers(&self) -> Result<Vec<Chunker>> {
        let dir = self.directory("chunkers")?;
        let mut chunkers = Vec::new();
        for name in disk::names(&dir, &self.path)? {
            let path = || self.path.join("chunkers").join(OsStr::from_bytes(&name));
            let read = disk::open_file(&dir, &name)
                .map_err(|errno| disk::failed("open", &path(), errno))?;
            let text = std::io::read_to_string(std::io::Read::take(read, 4096))
                .map_err(|source| Error::io("read", path(), source))?;
            // An unknown chunker belongs to a store of which this program makes no pool files.
            let params = serde_json::from_str::<ChunkerParams>(&text);
            chunkers.extend(params.ok().and_then(|params| Chunker::new(&params).ok()));
        }
        if chunkers.is_empty() {
            chunkers.push(Chunker::new(&ChunkerParams::default())?);
        }
        Ok(chunkers)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::{PoolKey, PoolLimits, content_of};
    use super::*;
    use crate::progress::Unwatched;

    #[test]
    fn files_of_stores_that_cut_differently_are_verified() {
        let dir = tempfile::tempdir().unwrap();
        let pool = Pool::open(&dir.path().join("pool"), PoolLimits::default()).unwrap();
        let usual = ChunkerParams::default();
        let other = ChunkerParams {
            min: 1024,
            avg: 4096,
            max: 16384,
            ..usual.clone()
        };
        let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let plain = dir.path().join("plain");
        std::fs::write(&plain, &bytes).unwrap();
        for params in [&usual, &other] {
            let file = std::fs::File::open(&plain).unwrap();
            let content = content_of(file, &Chunker::new(params).unwrap()).unwrap();
            let key = PoolKey {
                content,
                executable: false,
            };
            let (draft, mut file) = pool.draft(key, false).unwrap();
            file.write_all(&bytes).unwrap();
            draft.seal(&file).unwrap();
            pool.publish(vec![draft]).unwrap();
        }
        let damaged = |pool: &Pool| pool.verify(&Unwatched).unwrap().damaged.len();
        for params in [&usual, &other, &usual] {
            pool.know_chunker(params).unwrap();
        }
        assert_eq!(pool.chunkers().unwrap().len(), 2);
        assert_eq!(damaged(&pool), 0);
        std::fs::remove_dir_all(pool.path().join("chunkers")).unwrap();
        std::fs::create_dir(pool.path().join("chunkers")).unwrap();
        assert_eq!(
            damaged(&pool),
            1,
            "the one that new stores would cut differently"
        );
    }
}
