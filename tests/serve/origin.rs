//! A small Hub on loopback as an upstream: it records requests, and fails as planned.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use support::hub::{git_name, sha256};

/// Files of at least this size are LFS files.
const LARGE_BYTES: usize = 100_000;

/// A running upstream.
pub(crate) struct Origin {
    address: String,
    state: Arc<Mutex<State>>,
}

/// Its repos, the requests so far, and the planned failures.
#[derive(Default)]
pub(crate) struct State {
    repos: BTreeMap<String, Repo>,
    asked: Vec<Asked>,
    pub(crate) plan: Plan,
}

#[derive(Clone, Default)]
struct Repo {
    branches: BTreeMap<String, String>,
    commits: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// The tokens that may see the repo; `None` if it is public.
    tokens: Option<Vec<String>>,
    /// Whether the repo is gated: everybody may see it and its list of files.
    is_gated: bool,
}

/// The planned failures.
#[derive(Clone, Default)]
pub(crate) struct Plan {
    /// All answers have this status.
    pub(crate) status: Option<(u16, &'static str)>,
    /// Answers with files have this status.
    pub(crate) file_status: Option<u16>,
    /// This many answers with files end after this many bytes.
    pub(crate) cuts: usize,
    pub(crate) cut_bytes: usize,
    /// One byte of each file is wrong.
    pub(crate) is_wrong: bool,
    /// Files are redirected to this address; those below `/moved` are not.
    pub(crate) elsewhere: Option<String>,
    /// Files are sent one byte at a time, with this pause between them, if the client asks for all of them.
    pub(crate) drip: Option<Duration>,
    /// Files are sent up to this offset, until the plan changes: those with this in their path, or all.
    pub(crate) hold_bytes: Option<usize>,
    pub(crate) hold_path: Option<&'static str>,
    /// Whether a token may have files is answered with this status.
    pub(crate) check_status: Option<u16>,
    /// Listings have no last page.
    pub(crate) endless: Option<Endless>,
}

/// How a listing goes on for ever: with the same page, or with ever new ones of the same files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Endless {
    Same,
    Counted,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    host: String,
    pub(crate) range: Option<String>,
    pub(crate) token: Option<String>,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                // A client that gives up breaks the connection.
                std::thread::spawn(move || drop(converse(stream, &state)));
            }
        });
        Self { address, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a commit to a repo and moves `main` to it. Returns its id.
    pub(crate) fn add(&self, id: &str, files: &[(&str, &[u8])]) -> String {
        let files: BTreeMap<String, Vec<u8>> = files
            .iter()
            .map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec()))
            .collect();
        let text: String = files
            .iter()
            .map(|(path, bytes)| format!("{path} {}\n", sha256(bytes)))
            .collect();
        let commit = git_name(text.as_bytes());
        let mut state = self.state();
        let repo = state.repos.entry(id.to_owned()).or_default();
        repo.branches.insert("main".to_owned(), commit.clone());
        repo.commits.insert(commit.clone(), files);
        commit
    }

    /// Restricts a repo, or its files, to these tokens.
    pub(crate) fn close(&self, id: &str, is_gated: bool, tokens: &[&str]) {
        let mut state = self.state();
        let repo = state.repos.get_mut(id).unwrap();
        repo.tokens = Some(tokens.iter().map(|token| (*token).to_owned()).collect());
        repo.is_gated = is_gated;
    }

    pub(crate) fn plan(&self, change: impl FnOnce(&mut Plan)) {
        change(&mut self.state().plan);
    }

    /// The requests with this text in the path.
    pub(crate) fn asked(&self, part: &str) -> Vec<Asked> {
        let asked = &self.state().asked;
        let found = asked.iter().filter(|asked| asked.path.contains(part));
        found.cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// What is answered.
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Reply {
    fn of(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    fn json(value: &Value) -> Self {
        Self {
            body: value.to_string().into_bytes(),
            ..Self::of(200)
        }
    }

    fn failure(status: u16, code: &str) -> Self {
        Self::of(status).with("X-Error-Code", code)
    }

    fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

fn converse(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut line, mut lines) = (String::new(), Vec::new());
        reader.read_line(&mut line)?;
        loop {
            let mut more = String::new();
            if reader.read_line(&mut more)? == 0 {
                return Ok(());
            }
            if more == "\r\n" {
                break;
            }
            lines.push(more.trim_end().to_owned());
        }
        let header = |name: &str| {
            let prefix = format!("{name}: ");
            lines.iter().find_map(|line| {
                let begin = line.get(..prefix.len())?;
                let is_it = begin.eq_ignore_ascii_case(&prefix);
                is_it.then(|| line[prefix.len()..].to_owned())
            })
        };
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let token = header("authorization");
        let asked = Asked {
            token: token.and_then(|token| Some(token.strip_prefix("Bearer ")?.to_owned())),
            range: header("range"),
            host: header("host").unwrap_or_default(),
            path,
        };
        let reply = {
            let mut state = state.lock().unwrap();
            state.asked.push(asked.clone());
            state.reply(&asked)
        };
        let mut head = format!("HTTP/1.1 {} x\r\n", reply.status);
        for (name, value) in &reply.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n", reply.body.len());
        stream.write_all(head.as_bytes())?;
        match asked.path.contains("/resolve/") && reply.status < 300 {
            true => send(&mut stream, state, &asked, &reply.body)?,
            false => stream.write_all(&reply.body)?,
        }
    }
}

/// Sends a file as far as the plan permits.
fn send(
    stream: &mut TcpStream,
    state: &Mutex<State>,
    asked: &Asked,
    body: &[u8],
) -> std::io::Result<()> {
    let mut at = 0;
    while at < body.len() {
        let plan = state.lock().unwrap().plan.clone();
        let is_held = plan.hold_path.is_none_or(|part| asked.path.contains(part));
        let hold = plan.hold_bytes.filter(|_| is_held).unwrap_or(usize::MAX);
        if plan.cuts > 0 && at >= plan.cut_bytes {
            state.lock().unwrap().plan.cuts -= 1;
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        if at >= hold {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let cut = if plan.cuts > 0 {
            plan.cut_bytes
        } else {
            usize::MAX
        };
        let pause = plan.drip.filter(|_| asked.range.is_none());
        let most = if pause.is_some() { 1 } else { 64_000 };
        let end = body.len().min(at + most).min(hold).min(cut);
        stream.write_all(&body[at..end])?;
        at = end;
        std::thread::sleep(pause.unwrap_or_default());
    }
    Ok(())
}

impl State {
    fn reply(&mut self, asked: &Asked) -> Reply {
        if let Some((status, code)) = self.plan.status {
            return Reply::failure(status, code).with("Retry-After", "7");
        }
        let path = asked.path.split('?').next().unwrap();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match parts.as_slice() {
            ["api", "models", owner, name, rest @ ..] => {
                self.api(asked, &format!("{owner}/{name}"), rest)
            }
            [owner, name, "resolve", rev, path @ ..]
            | ["moved", owner, name, "resolve", rev, path @ ..] => {
                self.file(asked, &format!("{owner}/{name}"), rev, &path.join("/"))
            }
            _ => Reply::of(404),
        }
    }

    fn repo(&self, asked: &Asked, id: &str, is_file: bool) -> Result<Repo, Reply> {
        let repo = self.repos.get(id);
        // To somebody without a token, a repo that is not there is like a private one.
        let status = if asked.token.is_none() { 401 } else { 404 };
        let repo = repo.ok_or_else(|| Reply::failure(status, "RepoNotFound"))?;
        let is_let_in = repo.tokens.as_ref().is_none_or(|tokens| {
            let token = asked.token.as_ref();
            token.is_some_and(|token| tokens.contains(token))
        });
        match (is_let_in, repo.is_gated, is_file) {
            (true, ..) | (false, true, false) => Ok(repo.clone()),
            (false, true, true) => Err(Reply::failure(403, "GatedRepo")),
            (false, false, _) if asked.token.is_none() => Err(Reply::failure(401, "RepoNotFound")),
            (false, false, _) => Err(Reply::failure(404, "RepoNotFound")),
        }
    }

    fn api(&self, asked: &Asked, id: &str, rest: &[&str]) -> Reply {
        let is_check = rest == ["auth-check"];
        if let (true, Some(status)) = (is_check, self.plan.check_status) {
            return Reply::of(status);
        }
        let repo = match self.repo(asked, id, is_check) {
            Ok(repo) => repo,
            Err(reply) => return reply,
        };
        let rev = rest.get(1).copied().unwrap_or("main");
        let commit = repo.branches.get(rev).map_or(rev, String::as_str);
        let Some(files) = repo.commits.get(commit) else {
            return Reply::failure(404, "RevisionNotFound");
        };
        match rest {
            ["auth-check"] => Reply::json(&json!({})),
            [] | ["revision", _] => {
                let gated = if repo.is_gated {
                    json!("manual")
                } else {
                    json!(false)
                };
                Reply::json(&json!({"id": id, "sha": commit, "gated": gated}))
            }
            ["tree", _] => {
                let files = files.iter().map(|(path, bytes)| match bytes.len() >= LARGE_BYTES {
                    true => json!({"type": "file", "path": path, "oid": "0".repeat(40), "size": bytes.len(), "lfs": {"oid": sha256(bytes)}}),
                    false => json!({"type": "file", "path": path, "oid": git_name(bytes), "size": bytes.len()}),
                });
                let reply = Reply::json(&files.collect());
                let place = format!("http://{}{}", asked.host, asked.path);
                match self.plan.endless {
                    None => reply,
                    Some(Endless::Same) => reply.with("Link", format!("<{place}>; rel=\"next\"")),
                    Some(Endless::Counted) => {
                        reply.with("Link", format!("<{place}&again>; rel=\"next\""))
                    }
                }
            }
            _ => Reply::of(404),
        }
    }

    fn file(&self, asked: &Asked, id: &str, rev: &str, path: &str) -> Reply {
        if let Some(status) = self.plan.file_status {
            return Reply::of(status);
        }
        let elsewhere = self.plan.elsewhere.as_ref();
        if let Some(elsewhere) = elsewhere.filter(|_| !asked.path.starts_with("/moved/")) {
            return Reply::of(302).with("Location", format!("{elsewhere}{}", asked.path));
        }
        let repo = match self.repo(asked, id, true) {
            Ok(repo) => repo,
            Err(reply) => return reply,
        };
        let commit = repo.branches.get(rev).map_or(rev, String::as_str);
        let Some(mut bytes) = repo
            .commits
            .get(commit)
            .and_then(|files| files.get(path).cloned())
        else {
            return Reply::failure(404, "EntryNotFound");
        };
        if self.plan.is_wrong {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        let from = asked.range.as_ref().and_then(|range| {
            let from = range.strip_prefix("bytes=")?.strip_suffix('-')?;
            from.parse::<usize>().ok()
        });
        let Some(from) = from else {
            let body = bytes;
            return Reply {
                body,
                ..Reply::of(200)
            };
        };
        let told = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
        let body = bytes.split_off(from);
        Reply {
            body,
            ..Reply::of(206)
        }
        .with("Content-Range", told)
    }
}
