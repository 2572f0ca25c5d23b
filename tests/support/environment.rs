//! The command in an isolated environment: no variable, home or store of the person who runs the tests.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A [`TestEnvironment`] with the command of this workspace.
#[macro_export]
macro_rules! environment {
    () => {
        $crate::TestEnvironment::new(env!("CARGO_BIN_EXE_store-under-test"))
    };
}

/// Compares the output of a command with an inline snapshot. Paths, ids and times are blanked.
#[macro_export]
macro_rules! check {
    ($environment:expr, $finished:expr, @$expected:literal) => {{
        $crate::settings(&$environment).bind(|| insta::assert_snapshot!($finished, @$expected));
    }};
}

/// A temporary directory that is the home and the working directory of the command.
pub struct TestEnvironment {
    program: PathBuf,
    root: TempDir,
    /// Whether the command uses small portions, so that small trees take several.
    is_small: bool,
}

/// The output of a command and how it ended.
pub struct Finished {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl TestEnvironment {
    /// An environment for `program`; see [`environment!`].
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            root: tempfile::tempdir().unwrap(),
            is_small: true,
        }
    }

    /// Uses the normal portions, with packs of 64 MiB.
    #[must_use]
    pub fn in_full_portions(self) -> Self {
        Self {
            is_small: false,
            ..self
        }
    }

    /// The working directory of every command.
    pub fn root(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap()
    }

    /// A path in the working directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join(name)
    }

    /// Writes a file, and creates its directories.
    pub fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// The command with arguments, not yet started, with empty standard input.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .current_dir(self.root())
            .env_clear()
            .stdin(Stdio::null());
        command
            .env("HOME", self.path("home"))
            .env("USER", "tester")
            .env("LANG", "C.UTF-8");
        if self.is_small {
            command.env("STORE_TESTS_PORTIONS", "small");
        }
        command
    }

    /// Runs the command and waits for its end.
    pub fn store<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Finished {
        self.command(arguments).output().unwrap().into()
    }

    /// Runs the command, asserts that it succeeds, and returns its standard output.
    pub fn ok<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> String {
        let finished = self.store(arguments);
        assert_eq!(finished.code, Some(0), "{finished}");
        String::from_utf8(finished.stdout).unwrap()
    }
}

/// Runs `command` under another program that traces, limits or moves it, with the same directory and environment and
/// with empty standard input.
pub fn under<A: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = A>,
    command: &Command,
) -> Command {
    let mut outer = Command::new(program);
    outer
        .args(arguments)
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    if let Some(place) = command.get_current_dir() {
        outer.current_dir(place);
    }
    let set = command.get_envs();
    outer.envs(set.filter_map(|(name, value)| Some((name, value?))));
    outer
}

/// Runs `command` in a mount namespace of its own, after a shell has run `mounts` in it.
pub fn with_mounts(mounts: &str, command: &Command) -> Command {
    let script = format!("{mounts} && exec \"$0\" \"$@\"");
    let words = [
        "--user",
        "--map-root-user",
        "--mount",
        "/bin/sh",
        "-c",
        &script,
    ];
    under("unshare", words, command)
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => writeln!(out, "exit code: {code}")?,
            None => writeln!(out, "killed by a signal")?,
        }
        let stdout = String::from_utf8_lossy(&self.stdout);
        write!(out, "--- stdout\n{stdout}--- stderr\n{}", self.stderr)
    }
}

/// Filters that blank what differs between runs.
pub fn settings(environment: &TestEnvironment) -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    let literal = |text: &str| text.replace('.', "\\.");
    let root = environment.root();
    let host = rustix::system::uname();
    let host = literal(&host.nodename().to_string_lossy());
    settings.add_filter(&literal(root.to_str().unwrap()), "[ROOT]");
    settings.add_filter(&format!("tester@{host}"), "tester@[HOST]");
    settings.add_filter(&format!("tester,{host}\\b"), "tester,[HOST]");
    settings.add_filter(&format!("\"host\":\"{host}\""), "\"host\":\"[HOST]\"");
    for (what, stand_in) in [
        (r"\bt[0-9a-f]{12}([0-9a-f]{52})?\b", "[VERSION-ID]"),
        (r"\b[0-9a-f]{64}\b", "[CHUNK-ID]"),
        (r"\b[0-9a-f]{32}\b", "[ID]"),
        (r"\bpacks/[0-9a-f]{2}/", "packs/[..]/"),
        (r"\bstore [0-9a-f]{8}\b", "store [ID]"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "[TIME]"),
        (r"\d[\d.]* [kMGT]?B/s", "[RATE]"),
        (r"\b\d+\.\d+ s\b", "[SECS]"),
        (
            r"(new [\d.]+ [kMGT]?B), stored \d[\d.]* k?B( \([\d.]+ % of its size\))?",
            "$1, stored [SIZE]",
        ),
        // How many bytes are read depends on which files count as unchanged.
        (r"read \d[\d.]* [kMGT]?B, ", "read [SIZE], "),
        // Whether a file counts as unchanged depends on the time since it was written.
        (r", \d+ files? unchanged", ""),
        (r#""unchanged_files":\d+"#, "\"unchanged_files\":[COUNT]"),
        (r#""stored_bytes":\d+"#, "\"stored_bytes\":[SIZE]"),
        (r#""secs":[\d.e-]+"#, "\"secs\":[SECS]"),
        (r"store \d+\.\d+\.\d+", "store [VERSION]"),
        // Every object of `--json` has this field, as tests/cli/json.rs checks.
        (r#""schema":1,"#, ""),
    ] {
        settings.add_filter(what, stand_in);
    }
    settings
}
