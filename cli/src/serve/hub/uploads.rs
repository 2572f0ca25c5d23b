//! Uploads of large files for a later commit, by the batch API of git LFS.
//!
//! An upload is stored as it arrives, as a version of the ref `.uploads/SHA-256` in its namespace, which expires after
//! a day. So every server of the store finds it, a killed server loses nothing that it acknowledged, and quotas count
//! it. The upload URL is signed, since clients send no token to it.

use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};
use store::{Content, EditRequest, Error, Namespace, Reader, RefName, Result, Root, Version};

use bytes::Bytes;
use std::sync::Arc;

use crate::serve::answer::Answer;
use crate::serve::hub::fault::{Fault, Outcome};
use crate::serve::hub::incoming::{File, feed};
use crate::serve::hub::route::{Id, Type};
use crate::serve::hub::{Hub, Request};
use crate::serve::source::{UPLOADS, block};
use crate::serve::text::is_hex;
use crate::serve::{Asked, text};

/// How long an upload is kept for its commit.
const KEPT_HOURS: i64 = 24;
/// If less time is left, the client uploads again, since its commit may come late.
const LEFT_HOURS: i64 = 12;
/// How long an upload URL is valid.
const SIGNED_SECS: i64 = 6 * 60 * 60;
/// Maximum bytes of the body that announces uploads, and of one that verifies an upload.
const BATCH_BYTES_MAX: usize = 1 << 20;
const LFS_TYPE: &str = "application/vnd.git-lfs+json";

impl Hub {
    /// `POST ID.git/info/lfs/objects/batch`: says which files to upload, and where to.
    pub(super) async fn batch(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        asked: &mut Asked,
    ) -> Outcome<Answer> {
        let body = asked.whole(BATCH_BYTES_MAX).await?;
        let wanted = announced(&body).ok_or_else(|| {
            Fault::bad("expected the operation upload, and objects with the SHA-256 of a file as oid, and its size")
        })?;
        let (sight, repo) = self.find_to_write(request, kind, id).await?;
        let namespace = request.namespace.clone();
        let found = wanted.clone();
        let soon = Timestamp::now().checked_add(LEFT_HOURS.hours()).ok();
        let there = block(move || {
            let there = |(oid, _): &(String, u64)| {
                let found = version(&sight, &namespace, oid)?;
                let found = found.filter(|found| lasts(found, soon));
                Ok(found
                    .and_then(|found| content(&found))
                    .map(|found| found.size))
            };
            found
                .iter()
                .map(there)
                .collect::<Result<Vec<Option<u64>>>>()
        });
        let until = Timestamp::now().as_second() + SIGNED_SECS;
        let place = format!(
            "{}/api/{}/{}",
            request.endpoint,
            kind.plural(),
            repo.named.id.as_str()
        );
        let by = request.caller.name().unwrap_or_default();
        let mut told = Vec::new();
        for ((oid, size), there) in wanted.iter().zip(there.await?) {
            let mut object = json!({"oid": oid, "size": size});
            let Some(fields) = object.as_object_mut() else {
                continue;
            };
            if let Some(found) = there.filter(|found| found != size) {
                let message = format!("the file of this hash has {found} bytes, and not {size}");
                fields.insert("error".to_owned(), json!({"code": 422, "message": message}));
            } else if there.is_none() {
                let id = repo.named.id.as_str();
                let signature = self
                    .tokens
                    .sign(
                        by,
                        &request.namespace,
                        &format!("{id} {oid} {size} {until}"),
                    )
                    .map_err(|error| Fault::no_tokens(&error))?;
                let signature = signature.ok_or_else(Fault::wrong_token)?;
                let upload = format!(
                    "{place}/lfs-upload/{oid}?size={size}&until={until}&by={}&signature={signature}",
                    text::escaped(by)
                );
                let verify = format!("{place}/lfs-verify/{oid}");
                let actions = json!({"upload": {"href": upload}, "verify": {"href": verify}});
                fields.insert("actions".to_owned(), actions);
            }
            told.push(object);
        }
        let told = json!({"transfer": "basic", "hash_algo": "sha256", "objects": told});
        Ok(Answer::json(StatusCode::OK, &told).with(CONTENT_TYPE, LFS_TYPE))
    }

    /// `PUT` of an upload. The file is durable before the answer.
    pub(super) async fn upload(
        &self,
        request: &Request<'_>,
        id: Id,
        oid: &str,
        asked: &mut Asked,
    ) -> Outcome<Answer> {
        let number =
            |name| text::value(&request.query, name).and_then(|text| text.parse::<i64>().ok());
        let (size, until) = (number("size").unwrap_or(-1), number("until").unwrap_or(0));
        let size =
            u64::try_from(size).map_err(|_| Fault::forbidden("no upload was announced here"))?;
        let by = text::value(&request.query, "by").unwrap_or_default();
        let about = format!("{} {oid} {size} {until}", id.as_str());
        let expected = self
            .tokens
            .sign(by, &request.namespace, &about)
            .map_err(|error| Fault::no_tokens(&error))?;
        let signature = text::value(&request.query, "signature").unwrap_or_default();
        let is_signed = expected.is_some_and(|expected| {
            crate::serve::tokens::is_equal(signature.as_bytes(), expected.as_bytes())
        });
        if !is_signed || !is_hex(oid, 64) {
            return Err(Fault::forbidden(
                "the signature of the upload is wrong, or its token was removed: announce it again",
            ));
        }
        if until < Timestamp::now().as_second() {
            return Err(Fault::forbidden("the upload was announced too long ago"));
        }
        if asked.said_bytes().is_some_and(|said| said != size) {
            return Err(Fault::bad(format!(
                "the upload has another length than {size}"
            )));
        }
        let (source, inner) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let (name, wanted) = (place(&request.namespace, oid)?, oid.to_owned());
        // The signature was made for the holder of a token, whose name is in the URL.
        let by = text::value(&request.query, "by")
            .unwrap_or_default()
            .to_owned();
        let turns = (&self.writers, Some(by.as_str()).filter(|by| !by.is_empty()));
        let done = feed(asked, Bytes::new(), turns, move |mut parts| {
            let now = Timestamp::now();
            let edited = EditRequest {
                target: name,
                onto: None,
                message: "waits for its commit".to_owned(),
                expires: now.checked_add(KEPT_HOURS.hours()).ok(),
                time: now,
            };
            let (_, arrived) = store::edit(source.store(), &edited, |edit| {
                let mut file = File::new(edit, Some(size));
                while let Some(part) = parts.next()? {
                    file.push(edit, &part)?;
                    if file.bytes() > size {
                        return Err(Error::invalid(format!(
                            "the upload has more than {size} bytes"
                        )));
                    }
                }
                let bytes = file.bytes();
                let arrived = file.finish(edit)?;
                if bytes != size || arrived.sha256 != wanted {
                    let found = &arrived.sha256;
                    return Err(Error::invalid(format!(
                        "the upload has {bytes} bytes and SHA-256 {found}, announced were {size} and {wanted}"
                    )));
                }
                edit.replace(arrived.content)?;
                Ok(arrived)
            })?;
            if let Some(hashes) = arrived.hashes {
                inner.known.learn(&arrived.content, hashes);
            }
            Ok(())
        });
        done.await?;
        Ok(Answer::json(StatusCode::OK, &json!({})))
    }

    /// Verifies that an upload is stored.
    pub(super) async fn verify(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        oid: &str,
        asked: &mut Asked,
    ) -> Outcome<Answer> {
        let body = asked.whole(BATCH_BYTES_MAX).await?;
        let said: Option<Value> = serde_json::from_slice(&body).ok();
        let said = said.and_then(|said| said.get("size")?.as_u64());
        let (sight, _) = self.find_to_write(request, kind, id).await?;
        let (namespace, oid) = (request.namespace.clone(), oid.to_owned());
        match block(move || kept(&sight, &namespace, &oid)).await? {
            Some(found) if said.is_some_and(|said| said != found.size) => Err(Fault::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!("the file of this hash has {} bytes", found.size),
            )),
            Some(_) => Ok(Answer::json(StatusCode::OK, &json!({}))),
            None => Err(Fault::new(StatusCode::NOT_FOUND, "it was never sent")),
        }
    }
}

/// The ref of an upload.
fn place(namespace: &Namespace, oid: &str) -> Result<RefName> {
    format!("{namespace}/{UPLOADS}{oid}").parse()
}

/// An existing upload. Blocks.
pub(super) fn kept(
    reader: &Reader<'_>,
    namespace: &Namespace,
    oid: &str,
) -> Result<Option<Content>> {
    let found = version(reader, namespace, oid)?;
    Ok(found.as_ref().and_then(content))
}

/// The version of an upload. Blocks.
fn version(reader: &Reader<'_>, namespace: &Namespace, oid: &str) -> Result<Option<Version>> {
    if !is_hex(oid, 64) {
        return Ok(None);
    }
    let name = place(namespace, oid)?;
    let view = reader.view();
    let Some(head) = view.state.refs.head(&name)?.filter(|head| head.live > 0) else {
        return Ok(None);
    };
    view.state.refs.version(&name, head.newest)
}

fn content(version: &Version) -> Option<Content> {
    match version.root {
        Root::File { content, .. } => Some(content),
        Root::Tree { .. } => None,
    }
}

/// Whether the version is kept until then.
fn lasts(version: &Version, until: Option<Timestamp>) -> bool {
    version.pinned || version.expires.is_none_or(|end| Some(end) >= until)
}

/// The SHA-256 and size of each announced file.
pub(super) fn announced(body: &[u8]) -> Option<Vec<(String, u64)>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    if body.get("operation")?.as_str()? != "upload" {
        return None;
    }
    let objects = body.get("objects")?.as_array()?.iter();
    let object = |object: &Value| {
        let oid = object.get("oid")?.as_str().filter(|oid| is_hex(oid, 64))?;
        // No file has more bytes than a signed number says.
        let size = object.get("size")?.as_i64()?;
        Some((oid.to_owned(), u64::try_from(size).ok()?))
    };
    objects.map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_read_whole_or_not_at_all() {
        let oid = "a".repeat(64);
        let body = |oid: &str| {
            format!(r#"{{"operation":"upload","objects":[{{"oid":"{oid}","size":5}}]}}"#)
        };
        assert_eq!(announced(body(&oid).as_bytes()), Some(vec![(oid, 5)]));
        for bad in [
            body("../x"),
            body("A"),
            "{}".to_owned(),
            r#"{"operation":"download","objects":[]}"#.to_owned(),
        ] {
            assert_eq!(announced(bad.as_bytes()), None, "{bad}");
        }
    }
}
