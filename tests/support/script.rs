//! A process that does what it is told, a line at a time.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A script of Python that says each line again when it has done what it asks for. It is killed when this is dropped.
pub struct Script {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Script {
    /// Starts a script, and waits until it says `ready`.
    ///
    /// # Panics
    /// If it cannot be started, or says something else.
    pub fn start<A: AsRef<OsStr>>(
        text: &str,
        arguments: impl IntoIterator<Item = A>,
        ready: &str,
    ) -> Self {
        let mut process = Command::new("python3")
            .args(["-c", text])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut script = Self {
            process,
            input,
            output,
        };
        script.expect(ready);
        script
    }

    /// Lets it do what a line asks for.
    ///
    /// # Panics
    /// If it fails.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        self.expect(line);
    }

    /// Lets it end by itself.
    ///
    /// # Panics
    /// If it fails.
    pub fn end(mut self) {
        drop(self.input.take());
        assert!(self.process.wait().unwrap().success());
    }

    fn expect(&mut self, line: &str) {
        let mut said = String::new();
        self.output.read_line(&mut said).unwrap();
        assert_eq!(said.trim(), line);
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.process.kill();
        let _waited = self.process.wait();
    }
}
