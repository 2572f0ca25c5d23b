//! A small HTTP server on loopback with answers that a test defines, including invalid ones. For tests.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request.
#[derive(Clone, Debug)]
pub(in crate::remote) struct Asked {
    /// Its number; the first is 0.
    pub(in crate::remote) number: usize,
    /// The method, like `GET`.
    pub(in crate::remote) method: String,
    /// Path and query.
    pub(in crate::remote) path: String,
    /// Header lines, with names in lower case.
    pub(in crate::remote) headers: Vec<String>,
    /// The body.
    pub(in crate::remote) body: Vec<u8>,
}

/// What to send back.
pub(in crate::remote) enum Reply {
    /// Sends these bytes and waits for the next request.
    Whole(Vec<u8>),
    /// Sends these bytes and closes the connection.
    Cut(Vec<u8>),
}

/// A running server. Its threads end with the process.
pub(in crate::remote) struct Server {
    pub(in crate::remote) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub(in crate::remote) fn start(
        answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (answer, seen) = (Arc::new(answer), Arc::clone(&asked));
        // Nothing joins this thread, which waits for connections until the process ends.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                std::thread::spawn(move || serve(&stream.unwrap(), &*answer, &seen));
            }
        });
        Self { url, asked }
    }

    pub(in crate::remote) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(stream: &TcpStream, answer: &dyn Fn(&Asked) -> Reply, seen: &Mutex<Vec<Asked>>) {
    let mut reader = BufReader::new(stream);
    while let Some(mut asked) = read_request(&mut reader) {
        {
            let mut seen = seen.lock().unwrap();
            asked.number = seen.len();
            seen.push(asked.clone());
        }
        let mut writer = stream;
        // A client that closes the connection is not an error.
        match answer(&asked) {
            Reply::Whole(bytes) => drop(writer.write_all(&bytes)),
            Reply::Cut(bytes) => return drop(writer.write_all(&bytes)),
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<Asked> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut first = lines.first()?.split(' ').map(str::to_owned);
    let (method, path) = (first.next()?, first.next()?);
    let lower = |line: &String| {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        format!("{}: {}", name.to_ascii_lowercase(), value.trim())
    };
    let headers: Vec<_> = lines.iter().skip(1).map(lower).collect();
    let length = headers
        .iter()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(Asked {
        number: 0,
        method,
        path,
        headers,
        body,
    })
}

/// An answer: `status` like `200 OK`, further header lines and a body.
pub(in crate::remote) fn http(status: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    http_of_length(status, headers, body.len(), body)
}

/// An answer that declares `length` bytes but sends `body`.
pub(in crate::remote) fn http_of_length(
    status: &str,
    headers: &[&str],
    length: usize,
    body: &[u8],
) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n");
    for header in headers {
        text += header;
        text += "\r\n";
    }
    [text.as_bytes(), b"\r\n", body].concat()
}

/// An error in the format of S3.
pub(in crate::remote) fn error(status: &str, code: &str, message: &str) -> Vec<u8> {
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    );
    http(status, &["content-type: application/xml"], body.as_bytes())
}
