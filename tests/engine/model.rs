//! Random sequences of put, get, rm, pin and diff, compared with a map from versions to trees as they were put. Every
//! step's seed is printed, and differences are named byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::GetRequest;
use store::format::RefName;
use store::host::walk::WalkOptions;
use store::inspect::{diff, diff_with_directory};
use store::read::Reader;
use store::remote::{Objects, Write};
use store::{ErrorKind, Store, Unwatched, get, put, refs};
use support::{Random, Seen, effort, seen};
use tempfile::TempDir;

use crate::stores::{host, name, request, spec};

const REFS: [&str; 3] = ["project/m/a", "project/m/b/c", "team/t/x"];
const STEPS: u64 = 60;

/// A tree as it was put: every entry by path.
type Tree = BTreeMap<OsString, Seen>;

/// The store, the directories that are put, and the expected content of the store.
struct Run {
    dir: TempDir,
    store: Store,
    random: Random,
    versions: BTreeMap<(RefName, u64), Tree>,
    last: BTreeMap<RefName, u64>,
    pinned: BTreeSet<(RefName, u64)>,
}

#[test]
fn a_store_in_memory_does_what_a_map_does() {
    (0..effort(6, 100)).for_each(|seed| run(seed, |_| Arc::new(Objects::memory())));
}

#[test]
fn a_store_in_a_directory_does_what_a_map_does() {
    let remote = |dir: &Path| -> Arc<dyn Write> {
        Arc::new(Objects::directory(&dir.join("store")).unwrap())
    };
    (1000..effort(1003, 1100)).for_each(|seed| run(seed, remote));
}

fn run(seed: u64, remote: impl Fn(&Path) -> Arc<dyn Write>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::init(remote(dir.path()), host(dir.path())).unwrap();
    let mut run = Run {
        dir,
        store,
        random: Random::new(seed),
        versions: BTreeMap::new(),
        last: BTreeMap::new(),
        pinned: BTreeSet::new(),
    };
    for source in 0..2 {
        fs::create_dir(run.source(source)).unwrap();
    }
    for step in 0..STEPS {
        println!("seed {seed}, step {step}");
        run.step();
        run.check_listing();
    }
    run.check_all();
}

impl Run {
    fn step(&mut self) {
        match self.random.below(14) {
            0..=4 => self.edit(),
            5..=7 => self.put(),
            8 => self.get(),
            9 => self.get_below(),
            10 => self.pin(),
            11 => self.diff(),
            12 => self.diff_with_source(),
            _ => self.remove(),
        }
    }

    fn source(&self, number: u64) -> PathBuf {
        self.dir.path().join(format!("source-{number}"))
    }

    fn some_source(&mut self) -> PathBuf {
        let number = self.random.below(2);
        self.source(number)
    }

    fn some_ref(&mut self) -> RefName {
        name(REFS[usize::try_from(self.random.below(3)).unwrap()])
    }

    fn some_version(&mut self) -> Option<(RefName, u64)> {
        let count = self.versions.len() as u64;
        let at = self.random.below(count.max(1));
        let mut keys = self.versions.keys();
        keys.nth(usize::try_from(at).unwrap()).cloned()
    }

    fn put(&mut self) {
        let (source, target) = (self.some_source(), self.some_ref());
        let mut request = request(&source, "project/m/a");
        request.target = target.clone();
        request.read_all = self.random.below(4) == 0;
        let report = put(&self.store, &request, &Unwatched).unwrap();
        let number = self.last.entry(target.clone()).or_default();
        *number += 1;
        assert_eq!(report.version, Some(*number));
        self.versions.insert((target, *number), seen(&source));
    }

    fn get(&mut self) {
        if let Some((name, number)) = self.some_version() {
            self.compare(&name, number);
        }
    }

    fn compare(&self, name: &RefName, number: u64) {
        let found = self.fetched(&format!("{name}@{number}"));
        let expected = &self.versions[&(name.clone(), number)];
        assert!(
            *expected == found,
            "{name}@{number}: {expected:#?}, found {found:#?}"
        );
    }

    fn fetched(&self, from: &str) -> Tree {
        let out = tempfile::tempdir_in(self.dir.path()).unwrap();
        let out = out.path().join("out");
        get(&self.store, &GetRequest::new(spec(from), &out), &Unwatched).unwrap();
        seen(&out)
    }

    /// A get of a path in a version returns that part of the tree.
    fn get_below(&mut self) {
        let Some((name, number)) = self.some_version() else {
            return;
        };
        let tree = &self.versions[&(name.clone(), number)];
        let at = usize::try_from(self.random.below(tree.len() as u64)).unwrap();
        let path = tree.keys().nth(at).unwrap().to_str().unwrap();
        let found = self.fetched(&format!("{name}@{number}:{}", path.trim_start_matches('/')));
        let below = |(known, entry): (&OsString, &Seen)| {
            let rest = known.to_str()?.strip_prefix(path)?;
            let inside = rest.is_empty() || rest.starts_with('/');
            inside.then(|| (OsString::from(rest), entry.clone()))
        };
        let expected: Tree = tree.iter().filter_map(below).collect();
        assert!(
            expected == found,
            "{name}@{number}:{path}: {expected:#?}, found {found:#?}"
        );
    }

    fn diff(&mut self) {
        let (Some(before), Some(after)) = (self.some_version(), self.some_version()) else {
            return;
        };
        let expected = different(&self.versions[&before], &self.versions[&after]);
        let [before, after] = [before, after].map(|(name, number)| format!("{name}@{number}"));
        let reader = Reader::new(&self.store).unwrap();
        let mut found = BTreeSet::new();
        let count = diff(&reader, &spec(&before), &spec(&after), &mut |event| {
            found.insert(event.path);
            Ok(())
        });
        assert_eq!(found, expected, "{before} {after}");
        assert_eq!(count.unwrap(), expected.len() as u64, "{before} {after}");
    }

    fn diff_with_source(&mut self) {
        let Some(version) = self.some_version() else {
            return;
        };
        let source = self.some_source();
        let expected = different(&self.versions[&version], &seen(&source));
        let before = format!("{}@{}", version.0, version.1);
        let reader = Reader::new(&self.store).unwrap();
        let mut found = BTreeSet::new();
        let options = WalkOptions::default();
        diff_with_directory(&reader, &spec(&before), &source, options, &mut |event| {
            found.insert(event.path);
            Ok(())
        })
        .unwrap();
        assert_eq!(found, expected, "{before} {}", source.display());
    }

    fn pin(&mut self) {
        if let Some((name, number)) = self.some_version() {
            let pinned = self.random.below(2) == 0;
            refs::pin(&self.store, &name, Some(number), pinned).unwrap();
            if pinned {
                self.pinned.insert((name, number));
            } else {
                self.pinned.remove(&(name, number));
            }
        }
    }

    fn remove(&mut self) {
        let Some((name, number)) = self.some_version() else {
            return;
        };
        let number = (self.random.below(3) > 0).then_some(number);
        let chosen: Vec<_> = self
            .versions
            .keys()
            .filter(|(known, at)| *known == name && number.is_none_or(|number| number == *at))
            .cloned()
            .collect();
        let dropped = refs::drop_versions(&self.store, &name, number);
        if chosen.iter().any(|version| self.pinned.contains(version)) {
            assert_eq!(dropped.unwrap_err().kind(), ErrorKind::Conflict);
            return;
        }
        assert_eq!(dropped.unwrap().versions, chosen);
        chosen
            .iter()
            .for_each(|version| drop(self.versions.remove(version)));
        if let Some((name, number)) = chosen.first() {
            let gone = spec(&format!("{name}@{number}"));
            let out = self.dir.path().join("gone");
            let error = get(
                &self.store,
                &GetRequest::new(gone.clone(), &out),
                &Unwatched,
            )
            .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
    }

    fn check_listing(&self) {
        let state = self.store.state().unwrap();
        let mut listed = BTreeSet::new();
        let mut pinned = BTreeSet::new();
        for (name, known) in &state.refs.all().unwrap() {
            for (number, version) in &known.versions {
                listed.insert((name.clone(), *number));
                if version.pinned {
                    pinned.insert((name.clone(), *number));
                }
            }
        }
        let expected: BTreeSet<_> = self.versions.keys().cloned().collect();
        assert_eq!(listed, expected);
        assert_eq!(pinned, self.pinned);
    }

    fn check_all(&self) {
        for (name, number) in self.versions.keys() {
            self.compare(name, *number);
        }
    }

    /// Changes one entry of one of the directories.
    fn edit(&mut self) {
        let dir = self.some_source();
        let sub = ["", "one", "one/two", "three"][usize::try_from(self.random.below(4)).unwrap()];
        let path = dir.join(sub).join(format!("f{}", self.random.below(8)));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match self.random.below(10) {
            0 => remove(&path),
            1 => {
                remove(&path);
                symlink(format!("f{}", self.random.below(8)), &path).unwrap();
            }
            2 => {
                remove(&path);
                fs::create_dir(&path).unwrap();
            }
            3 if path.is_file() && !path.is_symlink() => {
                let mode = if self.random.below(2) == 0 {
                    0o755
                } else {
                    0o644
                };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            4..=6 if path.is_file() && !path.is_symlink() => self.splice(&path),
            _ => {
                remove(&path);
                let bytes = self.bytes();
                fs::write(&path, bytes).unwrap();
            }
        }
    }

    /// Replaces some bytes in the middle by the same number, fewer or more.
    fn splice(&mut self, path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        let from = usize::try_from(self.random.below(bytes.len() as u64 + 1)).unwrap();
        let to = (from + usize::try_from(self.random.below(2000)).unwrap()).min(bytes.len());
        let len = match self.random.below(2) {
            0 => to - from,
            _ => usize::try_from(self.random.below(2000)).unwrap(),
        };
        bytes.splice(from..to, self.random.bytes(len));
        fs::write(path, bytes).unwrap();
    }

    fn bytes(&mut self) -> Vec<u8> {
        let most = [0, 10, 5_000, 70_000, 600_000, 2_500_000];
        let most = most[usize::try_from(self.random.below(6)).unwrap()];
        let len = usize::try_from(self.random.below(most + 1)).unwrap();
        match self.random.below(4) {
            0 => vec![0; len],
            1 => self.random.text(len),
            2 => {
                let mut bytes = self.random.bytes(len);
                bytes
                    .iter_mut()
                    .skip(len / 4)
                    .take(len / 2)
                    .for_each(|byte| *byte = 0);
                bytes
            }
            _ => self.random.bytes(len),
        }
    }
}

/// The paths of entries that differ in more than their times.
fn different(before: &Tree, after: &Tree) -> BTreeSet<Vec<u8>> {
    let what = |tree: &Tree, path: &OsString| {
        let entry = tree.get(path)?;
        Some((entry.kind, entry.bytes.clone()))
    };
    let paths = before.keys().chain(after.keys());
    paths
        .filter(|path| what(before, path) != what(after, path))
        .map(|path| path.as_bytes().iter().copied().skip(1).collect())
        .collect()
}

fn remove(path: &Path) {
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path).unwrap();
    } else if path.is_symlink() || path.exists() {
        fs::remove_file(path).unwrap();
    }
}
