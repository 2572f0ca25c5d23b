//! Records what was acknowledged, and compares it with the store: the command writes, and the library reads.
//!
//! The message of every version names the directory that it was put from.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use store::GetRequest;
use store::format::{RefSpec, Who};
use store::remote::{Objects, Write};
use store::{Host, Store, Unwatched, get};
use support::{Finished, TestEnvironment, assert_same_tree, environment, trees};

/// A store, trees to put into it, and the acknowledged versions.
pub(crate) struct Witness {
    pub(crate) env: TestEnvironment,
    store: PathBuf,
    acknowledged: Vec<String>,
}

impl Witness {
    /// A new store at `store`, and the first `count` of a series of trees of `bytes` bytes.
    pub(crate) fn new(store: &Path, count: u64, bytes: usize) -> Self {
        let witness = Self::without_store(store, count, bytes);
        witness.env.ok(["init".as_ref(), store.as_os_str()]);
        witness
    }

    /// The same without creating the store.
    pub(crate) fn without_store(store: &Path, count: u64, bytes: usize) -> Self {
        let env = environment!();
        for number in 0..count {
            trees::version(&env.path(number.to_string()), 11, number, bytes);
        }
        Self {
            env,
            store: store.to_owned(),
            acknowledged: Vec::new(),
        }
    }

    /// Moves to a store at another place, with the same trees and acknowledged versions.
    pub(crate) fn moved_to(&mut self, store: &Path) {
        store.clone_into(&mut self.store);
    }

    /// The command that puts the tree `name`.
    pub(crate) fn command(&self, name: &str, target: &str) -> Command {
        let store = self.store.to_str().unwrap();
        let mut command = self
            .env
            .command(["--store", store, "--json", "put", "--always", name, target]);
        command.args(["--message", name]);
        command
    }

    /// Puts the tree `name`, and records what was acknowledged.
    pub(crate) fn put(&mut self, name: &str, target: &str) -> Finished {
        let finished = self.command(name, target).output().unwrap().into();
        self.note(&finished);
        finished
    }

    /// Puts the tree `name`, and asserts that this succeeds.
    pub(crate) fn put_ok(&mut self, name: &str, target: &str) {
        let finished = self.put(name, target);
        assert_eq!(finished.code, Some(0), "{finished}");
    }

    /// Records the version that a put acknowledged, if any. Asserts that it did not panic.
    pub(crate) fn note(&mut self, finished: &Finished) {
        assert!(!finished.stderr.contains("panicked"), "{finished}");
        self.acknowledged.extend(acknowledged(finished));
    }

    /// Adds versions that were acknowledged elsewhere.
    pub(crate) fn note_all(&mut self, versions: Vec<String>) {
        self.acknowledged.extend(versions);
    }

    /// The number of acknowledged versions.
    pub(crate) fn count(&self) -> usize {
        self.acknowledged.len()
    }

    /// Asserts that every acknowledged version exists, and that every existing version equals its tree.
    pub(crate) fn check(&self, what: &str) -> Vec<String> {
        let found = self
            .found(what)
            .unwrap_or_else(|error| panic!("{what}: {error:?}"));
        for version in &self.acknowledged {
            assert!(
                found.contains(version),
                "{what}: {version} was acknowledged, found {found:?}"
            );
        }
        found
    }

    /// The existing versions, after each was compared with its tree.
    pub(crate) fn found(&self, what: &str) -> store::Result<Vec<String>> {
        let remote: Arc<dyn Write> = Arc::new(Objects::directory(&self.store)?);
        let store = Store::open(remote, host())?;
        let mut found = Vec::new();
        for (name, known) in &store.state()?.refs.all().unwrap() {
            for (number, version) in &known.versions {
                let spec = format!("{name}@{number}");
                let out = tempfile::tempdir().unwrap();
                get(
                    &store,
                    &GetRequest::new(spec.parse::<RefSpec>()?, out.path()),
                    &Unwatched,
                )
                .map_err(|error| error.within(format!("{what}: {spec}")))?;
                assert_same_tree(&self.env.path(&version.message), out.path());
                found.push(spec);
            }
        }
        Ok(found)
    }
}

/// The version that a put reports, as `REF@N`.
pub(crate) fn acknowledged(finished: &Finished) -> Option<String> {
    if finished.code != Some(0) {
        return None;
    }
    let report: serde_json::Value = serde_json::from_slice(&finished.stdout).unwrap();
    let name = report["ref"].as_str().unwrap();
    Some(format!("{name}@{}", report["version"]))
}

/// A host without memory of earlier runs.
pub(crate) fn host() -> Host {
    Host {
        cache_dir: None,
        who: Who::default(),
        memory_bytes: 128 << 20,
        threads: 2,
        stop: Arc::default(),
    }
}
