//! A commit: W8. Lines arrive, files among them are stored as they come, and one version is made of all.
//!
//! A parent is a precondition. Who sends a commit again, since its answer was lost, gets that answer: what it makes of the
//! parent is the version that came next.

use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use jiff::Timestamp;
use serde_json::json;
use store::{Content, Edit, EditReport, EditRequest, Error, Kind, Result};

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

/// Most bytes that come before the end of the first line.
const HEADER_BYTES_MAX: usize = 1 << 20;

/// What the lines of a commit mean something in.
struct Applying<'a> {
    inner: &'a Inner,
    sight: &'a Sight,
    repo: &'a Repo,
    files: &'a Files,
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
        let turn = self.writers.clone().acquire_owned().await;
        let (source, inner, own) = (
            Arc::clone(&self.source),
            Arc::clone(&self.inner),
            repo.clone(),
        );
        let done = feed(asked, rest, move |parts| {
            let _turn = turn;
            let files = match inner.repos.commit(&sight, &own, "main")? {
                Some(commit) => inner.shelf.files(&sight, &commit, own.name.path())?,
                None => Arc::default(),
            };
            let applying = Applying {
                inner: &inner,
                sight: &sight,
                repo: &own,
                files: &files,
            };
            let (report, ()) =
                store::edit(source.store(), &edited, |edit| applying.run(edit, parts))?;
            Ok(report)
        });
        let report = match done.await {
            Err(error) if error.kind() == Kind::Conflict => {
                return Err(Fault::new(
                    StatusCode::PRECONDITION_FAILED,
                    "A commit has happened since. Please refresh and try again.",
                ));
            }
            Err(error) if error.kind() == Kind::NotFound => {
                return Err(Fault::bad(
                    "a file of this commit is not there any more: send it again",
                ));
            }
            done => done?,
        };
        Ok(answer(request, &repo, &report))
    }

    /// The number of the version that a commit is to follow.
    async fn parent(&self, sight: &Sight, repo: &Repo, parent: &str) -> Outcome<u64> {
        let (inner, sight, repo, wanted) = (
            Arc::clone(&self.inner),
            Arc::clone(sight),
            repo.clone(),
            parent.to_owned(),
        );
        let number = block(move || inner.repos.number(&sight, &repo, &wanted)).await?;
        number.ok_or_else(|| {
            Fault::new(
                StatusCode::PRECONDITION_FAILED,
                format!("the parent {parent} is no commit of this repo"),
            )
        })
    }
}

impl Applying<'_> {
    /// Applies lines until the body ends.
    fn run(&self, edit: &mut Edit<'_>, mut parts: Parts) -> Result<()> {
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
        &self,
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
        &self,
        edit: &mut Edit<'_>,
        line: &Line,
        has_file: bool,
        file: Option<File>,
    ) -> Result<()> {
        let value = &line.value;
        let path = value.path.as_bytes();
        match line.key.as_str() {
            "header" => Err(Error::invalid("a second header")),
            "file" if has_file && value.encoding == "base64" => {
                let file = file.unwrap_or_else(|| File::new(edit, None));
                let arrived = file.finish(edit)?;
                edit.add(path, arrived.content)
            }
            "lfsFile" if value.algo == "sha256" => edit.add(path, self.uploaded(&value.oid)?),
            "deletedFile" => edit.remove(path),
            "deletedFolder" => edit.remove(value.path.trim_end_matches('/').as_bytes()),
            key => Err(Error::invalid(format!(
                "a line {key:?} that this endpoint does not take"
            ))),
        }
    }

    /// The file with this SHA-256: one that was sent, or one of the newest version.
    fn uploaded(&self, oid: &str) -> Result<Content> {
        if let Some(content) = kept(self.sight, &self.repo.named.namespace, oid)? {
            return Ok(content);
        }
        let mut contents = self
            .files
            .entries()
            .iter()
            .filter_map(|entry| match &entry.what {
                What::File(content, _) => Some(content),
                What::Directory(_) => None,
            });
        let is_it = |content: &&Content| {
            let hashes = self.inner.known.look_up(content);
            hashes.is_some_and(|hashes| hashes.sha256 == oid)
        };
        let found = contents.find(is_it).copied();
        found.ok_or_else(|| Error::invalid(format!("the file {oid} was never sent")))
    }
}

/// The first line, and what came with it of those behind.
async fn header(asked: &mut Asked) -> Outcome<(Value, Bytes)> {
    let mut stream = Stream::new();
    let mut came = 0;
    while let Some(part) = asked.part().await? {
        let (used, event) = stream.take(&part)?;
        came += used;
        match event {
            Some(Event::Line(line, false)) if line.key == "header" => {
                return Ok((line.value, part.slice(used..)));
            }
            None if came <= HEADER_BYTES_MAX && used == part.len() => {}
            _ => break,
        }
    }
    match stream.finish() {
        Ok(Some(Event::Line(line, false))) if line.key == "header" => {
            Ok((line.value, Bytes::new()))
        }
        _ => Err(Fault::bad("a commit begins with its header")),
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
