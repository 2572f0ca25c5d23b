//! All files of a revision in one answer. There may be a million, and clients who read slowly: a long list is written part by
//! part into a file on disk, and sent from there.

use std::sync::Arc;
use std::time::Instant;

use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::serve::answer::Answer;
use crate::serve::body::Content;
use crate::serve::hub::Hub;
use crate::serve::hub::fault::{Fault, Outcome};
use crate::serve::hub::files::{Entry, Etag};
use crate::serve::hub::find::{LIST_TIME, Revision};
use crate::serve::source::block;
use crate::serve::spool::Following;

/// How many entries are written at a time.
const PART_ENTRIES: usize = 1000;
/// A list of more parts goes through a file.
const LONG_PARTS: usize = 10;
/// What follows the files.
const END: &str = "]}";

/// The list of a revision's files, with their hashes or without.
pub(super) struct Siblings<'h> {
    hub: &'h Hub,
    revision: &'h Revision,
    with_hashes: bool,
    began: Instant,
}

impl<'h> Siblings<'h> {
    pub(super) fn new(hub: &'h Hub, revision: &'h Revision, with_hashes: bool) -> Self {
        let began = Instant::now();
        Self {
            hub,
            revision,
            with_hashes,
            began,
        }
    }

    /// The answer with the object `info` and the list in it.
    pub(super) async fn answer(&self, info: String) -> Outcome<Answer> {
        let info = info.strip_suffix('}').unwrap_or(&info);
        let head = format!("{info},\"siblings\":[");
        if self.parts() > LONG_PARTS
            && let Some(content) = self.long(&head).await?
        {
            let mut answer = Answer::new(StatusCode::OK).with(CONTENT_TYPE, "application/json");
            answer.content = content;
            return Ok(answer);
        }
        let mut text = head;
        for number in 0..self.parts() {
            text += &self.part(number).await?;
        }
        Ok(Answer::json_text(StatusCode::OK, text + END))
    }

    /// The list in a file. It is computed twice: its length has to be known first. `None` if there is no room on disk.
    async fn long(&self, head: &str) -> Outcome<Option<Content>> {
        let mut size = head.len() + END.len();
        for number in 0..self.parts() {
            size += self.part(number).await?.len();
        }
        let source = Arc::clone(&self.hub.source);
        let (inner, onto) = (Arc::clone(&self.hub.inner), Arc::clone(&source));
        let spool = block(move || inner.spool(&onto, size as u64));
        let Ok(spool) = spool.await.map(Arc::new) else {
            return Ok(None);
        };
        let mut at = 0;
        let mut text = head.to_owned();
        for number in 0..=self.parts() {
            text += &match number == self.parts() {
                true => END.to_owned(),
                false => self.part(number).await?,
            };
            let (onto, bytes) = (Arc::clone(&spool), std::mem::take(&mut text));
            let end = at + bytes.len() as u64;
            block(move || onto.write(at, bytes.as_bytes())).await?;
            at = end;
        }
        if at != spool.size() {
            return Err(Fault::later("the list has changed meanwhile: ask again"));
        }
        spool.is_right();
        let following = Following::open(source, spool, 0..at).await?;
        Ok(Some(Content::Arriving(Box::new(following))))
    }

    fn parts(&self) -> usize {
        self.revision.files.entries().len().div_ceil(PART_ENTRIES)
    }

    /// The files of one part, and the comma before them.
    async fn part(&self, number: usize) -> Outcome<String> {
        let entries = self.revision.files.entries();
        let is_file = |entry: &&Entry| entry.size().is_some();
        let start = number * PART_ENTRIES;
        let (before, rest) = entries.split_at(start.min(entries.len()));
        let files = rest.iter().take(PART_ENTRIES).filter(is_file);
        let files: Vec<&Entry> = files.collect();
        let etags = match self.with_hashes {
            false => vec![None; files.len()],
            true => {
                let time = LIST_TIME.saturating_sub(self.began.elapsed());
                let (sight, files) = (&self.revision.sight, files.iter().copied().cloned());
                self.hub.etags(sight, files.collect(), time).await?
            }
        };
        let mut is_first = !before.iter().any(|entry| is_file(&entry));
        let mut text = String::new();
        for told in files.into_iter().zip(etags).map(sibling) {
            if !std::mem::take(&mut is_first) {
                text.push(',');
            }
            text += &told.to_string();
        }
        // Others want to be answered meanwhile.
        tokio::task::yield_now().await;
        Ok(text)
    }
}

fn sibling((file, etag): (&Entry, Option<Etag>)) -> Value {
    let mut told = json!({"rfilename": file.path});
    if let (Some(told), Some(size), Some(etag)) = (told.as_object_mut(), file.size(), etag) {
        told.insert("size".to_owned(), json!(size));
        told.insert("blobId".to_owned(), json!(etag.oid));
        if let Some(sha256) = &etag.sha256 {
            let lfs = json!({"sha256": sha256, "size": size, "pointerSize": etag.pointer_bytes});
            told.insert("lfs".to_owned(), lfs);
        }
    }
    told
}
