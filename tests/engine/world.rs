//! A store in memory that can be copied repeatedly in its original state, and the trees of its refs.
//!
//! The message of every version names the directory that it was put from, so that the content of a store can be
//! compared with the trees.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use store::GetRequest;
use store::format::{ChunkerParams, FORMAT_KEY, Format, RefSpec};
use store::remote::testing::faulty::Faults;
use store::remote::{Objects, Prune, Read, Write};
use store::{Error, ErrorKind, Host, Portions, PutReport, Result, Store, Unwatched, get, put};
use support::{Random, assert_same_tree};
use tempfile::TempDir;

use crate::stores::{host, request};

/// Trees in a directory of their own, and the objects of a store.
pub(crate) struct World {
    dir: TempDir,
    objects: Vec<(String, Bytes)>,
    /// The portions in which stores opened here are written.
    pub(crate) portions: Portions,
}

impl World {
    /// An empty store without trees.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let remote = Arc::new(Objects::memory());
        Store::init(remote.clone(), host(dir.path())).unwrap();
        let objects = objects(&*remote);
        let portions = Portions {
            commit_chunks: 20,
            together_bytes: 0,
            ..Portions::default()
        };
        Self {
            dir,
            objects,
            portions,
        }
    }

    /// A store with such small chunks that every directory and every file has several, and whose passes write many
    /// packs, commit several times, and fold often.
    pub(crate) fn fine() -> Self {
        let mut world = Self::new();
        world.portions = Portions {
            pack_bytes: 2 << 10,
            commit_bytes: 6 << 10,
            commit_chunks: 5,
            fold: 3,
            together_bytes: 500,
        };
        let remote = world.memory();
        let mut format = Format::decode(&remote.get(FORMAT_KEY).unwrap()).unwrap();
        format.chunker = ChunkerParams {
            min: 64,
            avg: 256,
            max: 1024,
            ..format.chunker
        };
        let bytes = format.encode().unwrap();
        remote.put(FORMAT_KEY, bytes.into()).unwrap();
        world.objects = objects(&*remote);
        world
    }

    /// The path of the tree `name`, which need not exist.
    pub(crate) fn tree(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts the tree `name` as `target` into the original store.
    pub(crate) fn prepare(&mut self, name: &str, target: &str) {
        let remote = self.memory();
        self.put(remote.clone(), name, target).unwrap();
        self.objects = objects(&*remote);
    }

    /// Changes the original store.
    pub(crate) fn change(&mut self, change: impl FnOnce(&Store)) {
        let remote = self.memory();
        change(&self.open(remote.clone()).unwrap());
        self.objects = objects(&*remote);
    }

    /// A copy of the store in memory.
    pub(crate) fn memory(&self) -> Arc<dyn Prune> {
        let remote = Objects::memory();
        self.fill(&remote);
        Arc::new(remote)
    }

    /// A copy of the store in the directory `name`.
    pub(crate) fn directory(&self, name: &str) -> Arc<dyn Prune> {
        let remote = Objects::directory(&self.tree(name)).unwrap();
        self.fill(&remote);
        Arc::new(remote)
    }

    /// A host without memory of earlier runs.
    pub(crate) fn host(&self) -> Host {
        Host {
            cache_dir: None,
            ..host(self.dir.path())
        }
    }

    /// Opens the store at `remote` on a host without memory.
    pub(crate) fn open(&self, remote: Arc<dyn Write>) -> Result<Store> {
        self.open_as(remote, self.host())
    }

    /// Opens the store at `remote` on this host, with this world's portions.
    pub(crate) fn open_as(&self, remote: Arc<dyn Write>, host: Host) -> Result<Store> {
        Ok(Store::open(remote, host)?.in_portions(self.portions))
    }

    /// Puts the tree `name` as `target`.
    pub(crate) fn put(
        &self,
        remote: Arc<dyn Write>,
        name: &str,
        target: &str,
    ) -> Result<PutReport> {
        self.put_with(&self.open(remote)?, name, target)
    }

    /// Puts the tree `name` as `target` through an open store.
    pub(crate) fn put_with(&self, store: &Store, name: &str, target: &str) -> Result<PutReport> {
        let mut request = request(&self.tree(name), target);
        name.clone_into(&mut request.message);
        put(store, &request, &Unwatched)
    }

    /// Asserts that every version of every ref equals the tree that it was put from. Returns the versions as `REF@N`.
    pub(crate) fn check(&self, remote: Arc<dyn Write>, what: &str) -> Vec<String> {
        let store = self.open(remote).unwrap();
        let mut found = Vec::new();
        for (name, known) in &store.state().unwrap().refs.all().unwrap() {
            for (number, version) in &known.versions {
                let spec = format!("{name}@{number}");
                let out = self.get(&store, &spec).unwrap_or_else(|error| {
                    panic!("{what}: {spec} of {}: {error:?}", version.message)
                });
                assert_same_tree(&self.tree(&version.message), out.path());
                found.push(spec);
            }
        }
        found
    }

    /// Gets `spec` to a temporary directory. Asserts that the directory is empty after an error.
    pub(crate) fn get(&self, store: &Store, spec: &str) -> Result<TempDir> {
        let spec: RefSpec = spec.parse()?;
        let out = tempfile::tempdir_in(self.dir.path()).unwrap();
        match get(
            store,
            &GetRequest::new(spec.clone(), out.path()),
            &Unwatched,
        ) {
            Ok(_) => Ok(out),
            Err(error) => {
                assert!(
                    is_empty(out.path()),
                    "{spec}: {error:?}, and something is there"
                );
                Err(error)
            }
        }
    }

    fn fill(&self, remote: &dyn Write) {
        for (key, bytes) in &self.objects {
            remote.put(key, bytes.clone()).unwrap();
        }
    }
}

/// Random faults per thousand calls: draws a maximum from `rates`, then a rate up to it for each kind.
pub(crate) fn random_faults(random: &mut Random, rates: [u64; 4]) -> Faults {
    let most = rates[usize::try_from(random.below(4)).unwrap()];
    let mut rate = || u32::try_from(random.below(most + 1)).unwrap();
    Faults {
        before: rate(),
        after: rate(),
        retold: rate(),
        truncated: rate(),
        late: rate(),
        overtaken: rate(),
        seed: random.draw(),
        ..Faults::default()
    }
}

fn objects(remote: &dyn Read) -> Vec<(String, Bytes)> {
    let listed = remote.list("").unwrap();
    let read = |key: String| {
        let bytes = remote.get(&key).unwrap();
        (key, bytes)
    };
    listed.into_iter().map(|info| read(info.key)).collect()
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

/// Asserts that the error is one that a failing backend or concurrent changes may cause.
pub(crate) fn assert_expected(error: &Error, seed: u64) {
    let expected = [
        ErrorKind::Unavailable,
        ErrorKind::Conflict,
        ErrorKind::NotFound,
        ErrorKind::Corrupt,
        ErrorKind::Io,
    ];
    assert!(expected.contains(&error.kind()), "seed {seed}: {error:?}");
}
