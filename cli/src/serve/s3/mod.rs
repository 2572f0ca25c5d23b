//! The S3 door: a namespace is a bucket, and the files of its refs are the objects; read-only.
//!
//! `route` parses requests, `keys` and `sign` authenticate them. `bucket` maps keys to files, `walk` lists keys with
//! the help of `names` and the cache in `shelf`. `list` and `object` answer; `fault` and `xml` encode answers.

mod bucket;
mod fault;
pub(crate) mod keys;
pub(in crate::serve) mod list;
mod names;
mod object;
pub(in crate::serve) mod route;
mod shelf;
pub(in crate::serve) mod sign;
mod walk;
mod xml;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::header::HeaderName;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use jiff::Timestamp;
use store::Namespace;

use crate::serve::answer::Answer;
use crate::serve::patience::{LOOK_TIME, within};
use crate::serve::source::{Sight, Source, block};
use crate::serve::tokens::{Caller, Tokens};
use crate::serve::{Asked, Door, text};
use bucket::Bucket;
use fault::{Fault, Outcome};
use keys::{Key, Keys};
use list::Page;
use route::{Call, Target};
use shelf::Shelf;
use xml::Xml;

/// The region of all buckets.
const REGION: &str = "us-east-1";
const REQUEST: HeaderName = HeaderName::from_static("x-amz-request-id");
const BUCKET_REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");

/// The door.
pub(crate) struct S3 {
    source: Arc<Source>,
    /// The keys. Without them, everybody may read everything unless the server has tokens.
    keys: Option<Keys>,
    tokens: Arc<Tokens>,
    shelf: Arc<Shelf>,
    requests: AtomicU64,
}

/// A request with its parsed properties.
struct Request<'r> {
    head: &'r Parts,
    query: &'r [(String, String)],
    key: Option<&'r Key>,
}

impl S3 {
    /// A door to the store behind `source`.
    pub(crate) fn new(source: Arc<Source>, keys: Option<Keys>, tokens: Arc<Tokens>) -> Self {
        Self {
            source,
            keys,
            tokens,
            shelf: Arc::default(),
            // Starts at the current time, so that request ids of different servers differ.
            requests: AtomicU64::new(Timestamp::now().as_microsecond().unsigned_abs() << 8),
        }
    }

    /// The key that signed a request; `None` if everybody is let in.
    fn key(&self, head: &Parts) -> Outcome<Option<&Key>> {
        if let Some(keys) = &self.keys {
            return sign::check(head, keys, Timestamp::now()).map(Some);
        }
        let caller = self.tokens.caller(None).map_err(|error| {
            let message = "Access Denied: the server cannot read its tokens, so that nobody knows whether this endpoint may answer without keys. Mend them as its log says, or start it again with `--s3-keys FILE`.";
            Fault::denied(message).because(&error)
        })?;
        match (&caller, caller.refusal(head)) {
            (Caller::Everybody, None) => Ok(None),
            (_, Some(why)) => Err(Fault::denied(format!("Access Denied: {why}"))),
            _ => Err(Fault::denied(
                "Access Denied: there are tokens by now, and this endpoint has no keys. Start the server again with `--s3-keys FILE`, which says who may read what: `store help doors`.",
            )),
        }
    }

    async fn route(&self, head: &Parts, key: Option<&Key>) -> Outcome<Answer> {
        let query = text::pairs(head.uri.query().unwrap_or_default());
        let target = Target::parse(head.uri.path())?;
        let call = target.call(&head.method, &query)?;
        let request = Request {
            head,
            query: &query,
            key,
        };
        match &target {
            Target::Service => self.buckets(&request).await,
            Target::Bucket(name) => self.bucket(&request, name, call).await,
            Target::Object(name, object) => self.object(&request, name, object).await,
        }
    }

    async fn buckets(&self, request: &Request<'_>) -> Outcome<Answer> {
        let sight = self.source.newest_soon().await?;
        let view = sight.view();
        let namespaces = view.state.refs.sums().keys();
        Ok(list::buckets(
            namespaces.filter(|namespace| request.may_read(namespace)),
        ))
    }

    async fn bucket(&self, request: &Request<'_>, name: &str, call: Call) -> Outcome<Answer> {
        let (sight, namespace) = self.find(request, name).await?;
        match call {
            Call::Location => {
                // The default region us-east-1 has an empty name here.
                Ok(Xml::new("LocationConstraint").answer(StatusCode::OK))
            }
            Call::Versioning => Ok(Xml::new("VersioningConfiguration").answer(StatusCode::OK)),
            Call::List => {
                let asked = list::Asked::parse(request.query)?;
                let shelf = Arc::clone(&self.shelf);
                let (page, asked) = block(move || {
                    let bucket = Bucket::open(sight, shelf, namespace)?;
                    Ok((Page::of(&bucket, &asked)?, asked))
                })
                .await?;
                Ok(page.answer(name, &asked))
            }
            Call::Buckets | Call::Bucket | Call::Object => {
                Ok(Answer::new(StatusCode::OK).with(BUCKET_REGION, REGION))
            }
        }
    }

    async fn object(&self, request: &Request<'_>, name: &str, key: &str) -> Outcome<Answer> {
        let (shelf, wanted) = (Arc::clone(&self.shelf), key.to_owned());
        let (sight, namespace) = self.find(request, name).await?;
        let seen = Arc::clone(&sight);
        let found = block(move || {
            let bucket = Bucket::open(seen, shelf, namespace)?;
            Ok(match bucket.find(&wanted)? {
                Some(object) => Some((bucket.changed(&object)?, object)),
                None => None,
            })
        });
        let (changed, object) = found.await?.ok_or_else(|| Fault::no_key(key))?;
        let asked = object::Asked {
            headers: &request.head.headers,
            query: request.query,
            is_head: request.head.method == Method::HEAD,
        };
        asked.answer(&self.source, sight, &object, changed).await
    }

    /// The namespace of a bucket, if it exists and the caller may see it.
    async fn find(&self, request: &Request<'_>, name: &str) -> Outcome<(Sight, Namespace)> {
        let namespace = request.namespace(name)?;
        let sight = self.source.newest_soon().await?;
        match sight.view().state.refs.sums().contains_key(&namespace) {
            true => Ok((Arc::clone(&sight), namespace)),
            false => Err(Fault::no_bucket(name)),
        }
    }
}

impl Request<'_> {
    /// The namespace of a bucket, if the caller may read it; it need not exist.
    fn namespace(&self, name: &str) -> Outcome<Namespace> {
        let namespace = route::namespace(name).filter(|namespace| self.may_read(namespace));
        namespace.ok_or_else(|| Fault::no_bucket(name))
    }

    fn may_read(&self, namespace: &Namespace) -> bool {
        self.key.is_none_or(|key| key.may_read(namespace))
    }
}

impl Door for S3 {
    const NAME: &'static str = "s3";

    async fn answer(&self, head: &Parts, _asked: &mut Asked) -> Answer {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let number = format!("{number:016X}");
        let (key, outcome) = match self.key(head) {
            Ok(key) => (key, within(LOOK_TIME, self.route(head, key)).await),
            Err(fault) => (None, Err(fault)),
        };
        let is_head = head.method == Method::HEAD;
        let answer =
            outcome.unwrap_or_else(|fault| fault.answer(head.uri.path(), &number, is_head));
        let mut answer = answer.with(REQUEST, number);
        answer.token = key.map(|key| key.id.clone());
        answer
    }
}
