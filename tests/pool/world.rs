//! A store with a ref, and helpers for trees.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{Random, TestEnvironment, environment};

/// An environment with a store.
pub(crate) struct World {
    pub(crate) env: TestEnvironment,
    random: std::cell::RefCell<Random>,
}

/// The output of `--json`.
pub(crate) type Report = serde_json::Value;

/// The conflicting paths in a report, with the reasons.
pub(crate) fn conflicting(report: &Report) -> Vec<(String, String)> {
    let text = |value: &Report| value.as_str().unwrap().to_owned();
    let named = report["conflicting"].as_array().unwrap().iter();
    named
        .map(|kept| (text(&kept["path"]), text(&kept["why"])))
        .collect()
}

/// The ref that most tests put.
pub(crate) const REF: &str = "project/demo/data";

impl World {
    /// A new world; `seed` determines all random content.
    pub(crate) fn new(seed: u64) -> Self {
        println!("seed {seed}");
        Self {
            env: environment!(),
            random: Random::new(seed).into(),
        }
    }

    /// A world with `source` as version 1 of [`REF`]: a few large files, small ones, links, and modes.
    pub(crate) fn with_tree(seed: u64) -> Self {
        let world = Self::new(seed);
        world.write("source/big", 3_000_000);
        world.write("source/sub/middle", 200_000);
        world.write("source/sub/deep/other", 70_000);
        world.write("source/sub/deep/tiny", 100);
        world.write("source/exe", 40_000);
        world.write("source/empty", 0);
        set_mode(&world.path("source/exe"), 0o755);
        fs::create_dir_all(world.path("source/hollow")).unwrap();
        std::os::unix::fs::symlink("sub/middle", world.path("source/link")).unwrap();
        std::os::unix::fs::symlink("../../big", world.path("source/sub/deep/up")).unwrap();
        shell(&format!(
            "touch -d 2001-02-03T04:05:06.789 '{}'",
            world.path("source/sub").display()
        ));
        world.put();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.env.path(name)
    }

    /// Writes a file of random bytes.
    pub(crate) fn write(&self, name: &str, len: usize) {
        self.env.write(name, self.random.borrow_mut().bytes(len));
    }

    /// Puts `source`.
    pub(crate) fn put(&self) {
        self.env.ok(["put", "source", REF]);
    }

    /// Materializes [`REF`] and returns the report.
    pub(crate) fn make(&self, destination: &str, options: &[&str]) -> serde_json::Value {
        let said = self
            .env
            .ok([&["materialize", "--json", REF, destination], options].concat());
        serde_json::from_str(&said).unwrap()
    }

    /// Materializes a ref over conflicting changes of a job, with exit code 6. Returns the report.
    pub(crate) fn partly(&self, source: &str, destination: &str, options: &[&str]) -> Report {
        let arguments = [&["materialize", "--json", source, destination], options].concat();
        let finished = self.env.store(arguments);
        assert_eq!(finished.code, Some(6), "{finished}");
        serde_json::from_slice(&finished.stdout).unwrap()
    }

    /// The default pool.
    pub(crate) fn pool(&self) -> PathBuf {
        self.path("home/.cache/store/pool")
    }

    /// The complete files in the pool.
    pub(crate) fn pool_files(&self) -> Vec<PathBuf> {
        files_below(&self.pool().join("files"))
    }

    /// Asserts that the pool is sound, and that nothing is left of ended processes.
    pub(crate) fn assert_sound(&self) {
        self.env.ok(["pool", "verify"]);
        for left in ["tmp", "owners", "claims", "rooms"] {
            let dir = self.pool().join(left);
            let names: Vec<_> = fs::read_dir(&dir)
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            assert!(names.is_empty(), "{}: {names:?}", dir.display());
        }
    }

    /// The command without output, to run under a tracer or as another user.
    pub(crate) fn quiet(&self, arguments: &[&str]) -> Command {
        let mut command = self.env.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// A mount, until it is dropped.
pub(crate) struct Mount(pub(crate) PathBuf);

impl Mount {
    /// Runs `mount` with these arguments at the directory `at`, which it creates.
    pub(crate) fn new(at: PathBuf, arguments: &str) -> Self {
        fs::create_dir_all(&at).unwrap();
        shell(&format!("mount {arguments} '{}'", at.display()));
        Self(at)
    }

    /// A new file system of this kind in a loop file beside `at`.
    pub(crate) fn image(at: PathBuf, make: &str, size: &str) -> Self {
        let image = at.with_extension("img");
        shell(&format!(
            "truncate -s {size} '{0}' && {make} '{0}' >/dev/null",
            image.display()
        ));
        let arguments = format!("-o loop '{}'", image.display());
        Self::new(at, &arguments)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

/// Compares two trees with `diff` and `find`: names, kinds, bytes, targets and executable bits; and times, except those
/// of files, since linked files share one.
pub(crate) fn assert_same(expected: &Path, found: &Path) {
    let list = |dir: &Path| {
        shell(&format!(
            "cd '{}' && find . \\( -type f -printf '%P %y %s\\n' -o -printf '%P %y %T@ %l\\n' \\) | LC_ALL=C sort; \
             find . -type f -perm -u+x | LC_ALL=C sort",
            dir.display()
        ))
    };
    assert_eq!(list(expected), list(found));
    shell(&format!(
        "diff -r --no-dereference '{}' '{}'",
        expected.display(),
        found.display()
    ));
}

/// Runs a shell command, which must succeed. Returns its output.
pub(crate) fn shell(command: &str) -> String {
    let output = Command::new("sh").arg("-c").arg(command).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command}: {}{said}",
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// The regular files below a directory.
pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_below(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files
}
