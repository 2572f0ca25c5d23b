//! A server on a port of its own, and hand-made requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::TestEnvironment;

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `store serve`.
pub(crate) struct Server {
    child: Child,
    address: String,
    s3_address: Option<String>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A connection for any number of requests.
pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
}

impl Server {
    /// Starts a server for the store of `env`, with its access log in `log`.
    pub(crate) fn start(env: &TestEnvironment, options: &[&str]) -> Self {
        let words = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--access-log",
            "log",
            "--json",
        ];
        let mut child = env
            .command(words.iter().chain(options))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let address = |name: &str| {
            let url = told[name].as_str()?;
            let address = url.split_once("://")?.1;
            Some(address.to_owned())
        };
        Self {
            child,
            address: address("url").unwrap(),
            s3_address: address("s3_url"),
        }
    }

    /// The address of the Hub door.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The address of the S3 door.
    pub(crate) fn s3_address(&self) -> &str {
        self.s3_address.as_deref().unwrap()
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(&self.address)
    }

    /// Asks for a file on a new connection, and reads nothing yet.
    pub(crate) fn begin(&self, path: &str) -> Connection {
        let mut connection = self.connect();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        connection.send(request.as_bytes());
        connection
    }

    /// Sends one request on a new connection.
    pub(crate) fn ask(&self, request: &str) -> Answer {
        self.connect().ask(request)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"))
    }

    /// What `HEAD` of a file says, where a client is led.
    pub(crate) fn head(&self, path: &str) -> Answer {
        let first = self.ask(&format!("HEAD {path}"));
        match first.header("location") {
            Some(place) => self.ask(&format!("HEAD {place}")),
            None => first,
        }
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The most bytes that it had in memory so far.
    pub(crate) fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line
            .and_then(|line| line.trim().strip_suffix(" kB"))
            .unwrap();
        kib.parse::<u64>().unwrap() << 10
    }

    /// Stops it gracefully. Returns its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.child.wait().unwrap().code()
    }

    /// Waits for its end. Returns its exit code.
    pub(crate) fn code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.child.kill();
        let _waited = self.child.wait();
    }
}

impl Connection {
    pub(crate) fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            reader: BufReader::new(stream),
        }
    }

    /// Sends `GET /path` with further lines of the head; the rest is added.
    pub(crate) fn ask(&mut self, request: &str) -> Answer {
        self.ask_with(request, b"")
    }

    pub(crate) fn ask_with(&mut self, request: &str, body: &[u8]) -> Answer {
        let (line, more) = request.split_once('\n').unwrap_or((request, ""));
        let more: String = more.lines().map(|line| format!("{line}\r\n")).collect();
        let length = match body {
            b"" => String::new(),
            body => format!("Content-Length: {}\r\n", body.len()),
        };
        let host = match more.contains("Host: ") {
            true => "",
            false => "Host: hub.localhost:80\r\n",
        };
        let head = format!("{line} HTTP/1.1\r\n{host}{more}{length}\r\n");
        self.send(head.as_bytes());
        self.send(body);
        self.answer(line.starts_with("HEAD"))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    pub(crate) fn answer(&mut self, is_head: bool) -> Answer {
        let mut answer = self.head();
        let len = answer
            .header("content-length")
            .map_or(0, |len| len.parse().unwrap());
        let has_body = !is_head && answer.status != 304;
        answer.body.resize(if has_body { len } else { 0 }, 0);
        self.reader.read_exact(&mut answer.body).unwrap();
        answer
    }

    pub(crate) fn head(&mut self) -> Answer {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let bytes = self.reader.read_line(&mut line).unwrap();
            assert!(bytes > 0, "the connection ended within a head: {lines:?}");
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let status = lines.first().unwrap().split(' ').nth(1).unwrap();
        let headers = lines.iter().skip(1).map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        });
        Answer {
            status: status.parse().unwrap(),
            headers: headers.collect(),
            body: Vec::new(),
        }
    }

    /// Reads until the other side closes the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A broken connection may cause an error.
        let _broken = self.reader.read_to_end(&mut rest);
        rest
    }

    pub(crate) fn read(&mut self, bytes: &mut [u8]) {
        self.reader.read_exact(bytes).unwrap();
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The status and `X-Error-Code`.
    pub(crate) fn failure(&self) -> (u16, Option<&str>) {
        (self.status, self.header("x-error-code"))
    }
}
