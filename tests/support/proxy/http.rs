//! HTTP/1.1 messages, read and written whole; only what S3 clients and servers use.

use std::io::{self, BufRead, Read, Write};

/// A request or an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    /// The first line: `GET /tests/key HTTP/1.1` or `HTTP/1.1 200 OK`.
    pub(super) first: String,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Message {
    /// Reads the next request; `None` if the client has ended.
    pub(super) fn request(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let Some(mut request) = Self::head(from)? else {
            return Ok(None);
        };
        if request.header("content-length").is_some() || request.is_chunked() {
            request.read_body(from)?;
        }
        Ok(Some(request))
    }

    /// Reads the answer to a request of `method`.
    pub(super) fn answer(from: &mut impl BufRead, method: &str) -> io::Result<Self> {
        loop {
            let mut answer = Self::head(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            match answer.status() {
                100 => continue,
                204 | 304 => {}
                _ if method == "HEAD" => {}
                _ => answer.read_body(from)?,
            }
            return Ok(answer);
        }
    }

    /// An answer of the proxy itself, with an error in S3's form.
    pub(super) fn error(status: u16, code: &str, headers: &[(&str, &str)]) -> Self {
        let body = format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>injected</Message></Error>"
        );
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self {
            first: format!("HTTP/1.1 {status} {code}"),
            headers: headers.collect(),
            body: body.into_bytes(),
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name)?;
        Some(&found.1)
    }

    /// Whether the connection stays open after this message.
    pub(super) fn stays_open(&self) -> bool {
        self.header("connection") != Some("close")
    }

    /// Sets or removes a header.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>) {
        self.headers.retain(|(header, _)| header != name);
        let value = value.map(|value| (name.to_owned(), value.to_owned()));
        self.headers.extend(value);
    }

    /// The status of an answer.
    pub(super) fn status(&self) -> u16 {
        let word = self.first.split(' ').nth(1);
        word.and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// Method and target of a request.
    pub(super) fn asked(&self) -> (&str, &str) {
        let mut words = self.first.split(' ');
        (words.next().unwrap_or(""), words.next().unwrap_or(""))
    }

    /// Encodes the message, with a Content-Length and never chunked. An answer to HEAD has the length of the body that
    /// it omits.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = format!("{}\r\n", self.first).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if self.header("content-length").is_none() && ![204, 304].contains(&self.status()) {
            bytes.extend_from_slice(format!("content-length: {}\r\n", self.body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }

    pub(super) fn send(&self, to: &mut impl Write) -> io::Result<usize> {
        let bytes = self.encode();
        to.write_all(&bytes)?;
        to.flush()?;
        Ok(bytes.len())
    }

    fn head(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut message = Self {
            first: line(from)?,
            ..Self::default()
        };
        if message.first.is_empty() {
            return Ok(None);
        }
        loop {
            let line = line(from)?;
            let Some((name, value)) = line.split_once(':') else {
                return Ok(Some(message));
            };
            let header = (name.to_ascii_lowercase(), value.trim().to_owned());
            message.headers.push(header);
        }
    }

    fn is_chunked(&self) -> bool {
        self.header("transfer-encoding") == Some("chunked")
    }

    fn read_body(&mut self, from: &mut impl BufRead) -> io::Result<()> {
        if self.is_chunked() {
            self.read_pieces(from)?;
            self.set("transfer-encoding", None);
        } else if let Some(length) = self.header("content-length") {
            let length: usize = length.parse().map_err(io::Error::other)?;
            self.body = vec![0; length];
            from.read_exact(&mut self.body)?;
        } else {
            from.read_to_end(&mut self.body)?;
        }
        let length = self.body.len().to_string();
        self.set("content-length", Some(&length));
        Ok(())
    }

    fn read_pieces(&mut self, from: &mut impl BufRead) -> io::Result<()> {
        loop {
            let size = line(from)?;
            let size = size.split(';').next().unwrap_or("");
            let size = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
            from.take(size).read_to_end(&mut self.body)?;
            line(from)?;
            if size == 0 {
                return Ok(());
            }
        }
    }
}

/// Reads a line, and removes its end; empty at the end of the stream.
fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}
