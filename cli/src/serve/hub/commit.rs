//! A commit: its lines arrive, their files are stored as they come, and all together become one version.
//!
//! The parent commit is a precondition. If a client repeats a commit because the answer was lost, it gets the same
//! answer: the version after the parent is the one that this commit makes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hyper::StatusCode;
use jiff::Timestamp;
use serde_json::json;
use store::{Content, Edit, EditReport, EditRequest, Error, ErrorKind, Result};

use crate::serve::answer::Answer;
use crate::serve::hub::fault::{Fault, Outcome};
use crate::serve::hub::files::{Files, What};
use crate::serve::hub::incoming::{File, Parts, feed};
use crate::serve::hub::repos::Repo;
use crate::serve::hub::route::{Id, Type};
use crate::serve::hub::stream::{Event, Line, Stream, Value};
use crate::serve::hub::uploads::kept;
use crate::serve::hub::write::check_head;
use crate::serve::hub::{Hub, Inner, Request};
use crate::serve::source::{Sight, block};
use crate::serve::{Asked, text};

/// Maximum bytes up to the end of the first line.
const HEADER_BYTES_MAX: usize = 1 << 20;

/// The context in which the lines of a commit are applied.
struct Applying<'a> {
    inner: &'a Inner,
    sight: &'a Sight,
    repo: &'a Repo,
    files: &'a Files,
    changed: Changed,
}

impl Hub {
    pub(super) async fn commit(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        rev: &str,
        asked: &mut Asked,
    ) -> Outcome<Answer> {
        let (sight, repo) = self.find_to_write(request, kind, id).await?;
        check_head(rev)?;
        if text::is_on(&request.query, "create_pr") {
            return Err(Fault::forbidden("this endpoint has no pull requests"));
        }
        let (header, rest) = header(asked).await?;
        let onto = match &header.parent_commit {
            None => None,
            Some(parent) => Some(self.parent(&sight, &repo, parent).await?),
        };
        let message = match header.description.as_str() {
            "" => header.summary.clone(),
            more => format!("{}\n\n{more}", header.summary),
        };
        let edited = EditRequest {
            target: repo.name.clone(),
            onto,
            message,
            expires: None,
            time: Timestamp::now(),
        };
        let clash = Arc::new(OnceLock::new());
        let noted = Arc::clone(&clash);
        let turns = (&self.writers, request.caller.name());
        let (source, inner, own) = (
            Arc::clone(&self.source),
            Arc::clone(&self.inner),
            repo.clone(),
        );
        let done = feed(asked, rest, turns, move |parts| {
            let files = match inner.repos.commit(&sight, &own, "main")? {
                Some(commit) => inner.shelf.files(&sight, &commit, own.name.path())?,
                None => Arc::default(),
            };
            let mut applying = Applying {
                inner: &inner,
                sight: &sight,
                repo: &own,
                files: &files,
                changed: Changed::default(),
            };
            let (report, ()) = store::edit(source.store(), &edited, |edit| {
                applying.run(edit, parts)?;
                match applying.changed.clash(&files) {
                    Some(why) => {
                        let error = Error::invalid(&why);
                        noted.get_or_init(|| why);
                        Err(error)
                    }
                    None => Ok(()),
                }
            })?;
            Ok(report)
        });
        let done = done.await;
        if let Some(why) = clash.get() {
            return Err(Fault::new(StatusCode::UNPROCESSABLE_ENTITY, why));
        }
        let report = match done {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                return Err(Fault::new(
                    StatusCode::PRECONDITION_FAILED,
                    "A commit has happened since. Please refresh and try again.",
                ));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // A collector deleted an uploaded file. That is not the client's fault, and with this status it tries
                // again.
                return Err(Fault::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "a file of this commit is not there any more: send it again",
                ));
            }
            done => done?,
        };
        Ok(answer(request, &repo, &report))
    }

    /// The number of the version with the commit `parent`.
    async fn parent(&self, sight: &Sight, repo: &Repo, parent: &str) -> Outcome<u64> {
        let (inner, sight, repo, wanted) = (
            Arc::clone(&self.inner),
            Arc::clone(sight),
            repo.clone(),
            parent.to_owned(),
        );
        let number = block(move || inner.repos.number(&sight, &repo, &wanted)).await?;
        number.ok_or_else(|| {
            let what = match parent {
                "" => "an empty parent".to_owned(),
                parent => format!("the parent {parent}"),
            };
            Fault::new(
                StatusCode::PRECONDITION_FAILED,
                format!("{what} is no commit of this repo"),
            )
        })
    }
}

impl Applying<'_> {
    /// Applies lines until the body ends.
    fn run(&mut self, edit: &mut Edit<'_>, mut parts: Parts) -> Result<()> {
        let mut stream = Stream::new();
        let mut file = None;
        while let Some(part) = parts.next()? {
            let mut rest: &[u8] = &part;
            while !rest.is_empty() {
                let (used, event) = stream.take(rest)?;
                rest = rest.get(used..).unwrap_or_default();
                self.take(edit, event, &mut file)?;
            }
        }
        let last = stream.finish()?;
        self.take(edit, last, &mut file)
    }

    fn take(
        &mut self,
        edit: &mut Edit<'_>,
        event: Option<Event>,
        file: &mut Option<File>,
    ) -> Result<()> {
        match event {
            None => Ok(()),
            Some(Event::Bytes(bytes)) => {
                let file = file.get_or_insert_with(|| File::new(edit, None));
                file.push(edit, &bytes)
            }
            Some(Event::Line(line, has_file)) => self.apply(edit, &line, has_file, file.take()),
        }
    }

    fn apply(
        &mut self,
        edit: &mut Edit<'_>,
        line: &Line,
        has_file: bool,
        file: Option<File>,
    ) -> Result<()> {
        let value = &line.value;
        let path = value.path.as_str();
        let content = match line.key.as_str() {
            "header" => return Err(Error::invalid("a second header")),
            "file" if has_file && value.encoding == "base64" => {
                let file = file.unwrap_or_else(|| File::new(edit, None));
                file.finish(edit)?.content
            }
            "lfsFile" if value.algo == "sha256" => self.uploaded(&value.oid, value.size)?,
            "deletedFile" => return self.remove(edit, path),
            "deletedFolder" => return self.remove(edit, path.trim_end_matches('/')),
            "file" => {
                return Err(Error::invalid(format!(
                    "{path}: expected content in the encoding base64, found {:?}",
                    value.encoding
                )));
            }
            key => {
                return Err(Error::invalid(format!(
                    "a line {key:?} of the commit, which this endpoint does not take"
                )));
            }
        };
        // A download into a checkout of git would change the repository there. Clients refuse such a path, too.
        if path
            .split('/')
            .any(|name| name.eq_ignore_ascii_case(".git"))
        {
            return Err(Error::invalid(format!(
                "{path}: a repo has no folder or file called .git"
            )));
        }
        // Of two files under one name, one would be lost.
        let before = self.changed.added.insert(path.to_owned(), content);
        if before.is_some_and(|before| before != content) {
            return Err(Error::invalid(format!(
                "{path}: the commit has two files of this name, with different bytes"
            )));
        }
        edit.add(path.as_bytes(), content)
    }

    /// Removes a path, unless the same commit adds it. The order of the lines does not matter.
    fn remove(&mut self, edit: &mut Edit<'_>, path: &str) -> Result<()> {
        self.changed.gone.insert(path.to_owned());
        match self.changed.is_added(path) {
            true => Ok(()),
            false => edit.remove(path.as_bytes()),
        }
    }

    /// The file with this SHA-256: an upload, or a file of the newest version.
    fn uploaded(&self, oid: &str, said: Option<u64>) -> Result<Content> {
        let content = self.with_hash(oid)?;
        match said {
            Some(said) if said != content.size => Err(Error::invalid(format!(
                "the file {oid} has {} bytes, and not {said}",
                content.size
            ))),
            _ => Ok(content),
        }
    }

    fn with_hash(&self, oid: &str) -> Result<Content> {
        if let Some(content) = kept(self.sight, &self.repo.named.namespace, oid)? {
            return Ok(content);
        }
        let mut contents = self
            .files
            .entries()
            .iter()
            .filter_map(|entry| match &entry.what {
                What::File(content, _) => Some(content),
                What::Absent(..) | What::Directory(_) => None,
            });
        let is_it = |content: &&Content| {
            let hashes = self.inner.known.look_up(content);
            hashes.is_some_and(|hashes| hashes.sha256 == oid)
        };
        let found = contents.find(is_it).copied();
        found.ok_or_else(|| Error::invalid(format!("the file {oid} was never sent")))
    }
}

/// The changes of the lines so far.
#[derive(Default)]
struct Changed {
    added: BTreeMap<String, Content>,
    gone: BTreeSet<String>,
}

impl Changed {
    /// Why the commit is impossible: a file would replace a directory that the commit leaves, or the other way round.
    fn clash(&self, files: &Files) -> Option<String> {
        self.added.keys().find_map(|path| {
            let mut above = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
            let file = above.find(|above| {
                let is_file = files.at(above).is_some_and(|entry| entry.size().is_some());
                is_file && !self.is_gone(above)
            });
            if let Some(file) = file {
                return Some(format!(
                    "{path}: {file} is a file; delete it within the commit if it is to be a folder"
                ));
            }
            let mut below = files.below(path, true, None)?;
            let is_left = below.any(|entry| entry.size().is_some() && !self.is_gone(&entry.path));
            (is_left && !self.is_gone(path)).then(|| {
                format!("{path} is a folder; delete it within the commit if it is to be a file")
            })
        })
    }

    /// Whether the commit removes the path or a folder above it.
    fn is_gone(&self, path: &str) -> bool {
        starts(path).any(|start| self.gone.contains(start))
    }

    /// Whether the commit adds a file at the path or in place of a folder above it.
    fn is_added(&self, path: &str) -> bool {
        starts(path).any(|start| self.added.contains_key(start))
    }
}

/// The folders above a path, and the path.
fn starts(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at);
    let ends = ends.chain([path.len()]);
    ends.filter_map(|at| path.get(..at))
}

/// Reads the first line. Returns it, and the bytes after it that came with it.
async fn header(asked: &mut Asked) -> Outcome<(Value, Bytes)> {
    let mut stream = Stream::new();
    let mut came = 0;
    while let Some(part) = asked.part().await? {
        let (used, event) = stream.take(&part)?;
        came += used;
        match event {
            Some(Event::Line(line, false)) if line.is_header() => {
                return Ok((line.value, part.slice(used..)));
            }
            None if came <= HEADER_BYTES_MAX && used == part.len() => {}
            _ => break,
        }
    }
    match stream.finish() {
        Ok(Some(Event::Line(line, false))) if line.is_header() => Ok((line.value, Bytes::new())),
        _ => Err(Fault::bad(
            "a commit begins with a header, which has a summary",
        )),
    }
}

fn answer(request: &Request<'_>, repo: &Repo, report: &EditReport) -> Answer {
    let hex = repo.hex(&report.root);
    let url = request.url_of(repo.named.kind, &repo.named.id);
    Answer::json(
        StatusCode::OK,
        &json!({"success": true, "commitOid": hex, "commitUrl": format!("{url}/commit/{hex}"), "hookOutput": ""}),
    )
}
