//! The command with a store in a bucket, configured only by its environment.

use std::path::PathBuf;
use std::process::Command;

use support::proxy::{Proxy, Slowness};
use support::servers::{BUCKET, Server, fresh_prefix};
use support::{Finished, TestEnvironment, environment};

/// A collection of everything possible at once.
pub(crate) const GREEDY: [&str; 8] = [
    "gc",
    "--grace",
    "0",
    "--min-age",
    "0",
    "--max-unused",
    "0",
    "--quiet",
];

/// One store in one bucket.
pub(crate) struct Bucket {
    pub(crate) env: TestEnvironment,
    pub(crate) server: Server,
    pub(crate) url: String,
}

impl Bucket {
    /// A new store on `server`.
    pub(crate) fn new(name: &str, server: Server) -> Self {
        let bucket = Self::without_store(name, server);
        bucket.ok(["init"]);
        bucket
    }

    /// A prefix without a store.
    pub(crate) fn without_store(name: &str, server: Server) -> Self {
        Self {
            env: environment!().in_full_portions(),
            server,
            url: format!("s3://{BUCKET}/{}", fresh_prefix(name)),
        }
    }

    /// A new store on `server`, reached through a proxy.
    pub(crate) fn proxied(name: &str, server: &Server) -> (Self, Proxy) {
        let proxy = Proxy::new(&server.endpoint, Slowness::default());
        let bucket = Self::new(name, server.behind(&proxy));
        proxy.take();
        (bucket, proxy)
    }

    /// The command with this store, not yet started.
    pub(crate) fn command<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.env.command(["--store", &self.url]);
        command.args(words);
        command.envs(self.server.variables());
        // A short timeout, since some faults stop a body in the middle.
        command.env("AWS_READ_TIMEOUT", "3 seconds");
        command
    }

    /// The command on a host with this name, which shares no memory with others.
    pub(crate) fn on_host<'a>(
        &self,
        host: &str,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Command {
        let mut command = self.command(words);
        command.env("HOME", self.env.path(host));
        command
    }

    /// Runs the command and waits for its end.
    pub(crate) fn store<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Finished {
        self.command(words).output().unwrap().into()
    }

    /// Runs the command, asserts that it succeeds, and returns its standard output.
    pub(crate) fn ok<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> String {
        good(self.command(words))
    }

    /// An unused path in the working directory.
    pub(crate) fn fresh(&self, name: &str) -> PathBuf {
        self.env.path(fresh_prefix(name))
    }
}

/// Runs a command, asserts that it succeeds, and returns its standard output; replaces what is not UTF-8.
pub(crate) fn good(mut command: Command) -> String {
    let finished: Finished = command.output().unwrap().into();
    assert_eq!(finished.code, Some(0), "{command:?}: {finished}");
    String::from_utf8_lossy(&finished.stdout).into_owned()
}
