//! The S3 door: a namespace is a bucket, the files of its refs are its objects; for reading.
//!
//! `route` says what is asked for, `keys` and `sign` who asks. `bucket` says which file a key is, `walk` which keys there
//! are, over `names` and what `shelf` keeps; `list` and `object` answer, `fault` and `xml` put it into the words of S3.

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

/// Where all buckets are, as far as a client asks.
const REGION: &str = "us-east-1";
const REQUEST: HeaderName = HeaderName::from_static("x-amz-request-id");
const BUCKET_REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");

/// The door.
pub(crate) struct S3 {
    source: Arc<Source>,
    /// Without them everybody may read everything, as long as there are no tokens.
    keys: Option<Keys>,
    tokens: Arc<Tokens>,
    shelf: Arc<Shelf>,
    requests: AtomicU64,
}

/// A request on its way through the door.
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
            // The numbers of two servers differ, so that a log is found by them.
            requests: AtomicU64::new(Timestamp::now().as_microsecond().unsigned_abs() << 8),
        }
    }

    /// The key that a request is signed with; none, where everybody is let in.
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
        let sight = self.newest().await?;
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
                // The region that was there before regions has no name.
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
        let namespace = request.namespace(name)?;
        let (shelf, wanted) = (Arc::clone(&self.shelf), key.to_owned());
        let source = Arc::clone(&self.source);
        // In one go: most files are small, and to hand work to another thread takes as long as to send them.
        let found = block(move || {
            let sight = source.newest()?;
            if !sight.view().state.refs.sums().contains_key(&namespace) {
                return Ok(None);
            }
            let bucket = Bucket::open(Arc::clone(&sight), shelf, namespace)?;
            let found = match bucket.find(&wanted)? {
                Some(object) => Some((bucket.changed(&object)?, object)),
                None => None,
            };
            Ok(Some((sight, found)))
        });
        let (sight, found) = found.await?.ok_or_else(|| Fault::no_bucket(name))?;
        let (changed, object) = found.ok_or_else(|| Fault::no_key(key))?;
        let asked = object::Asked {
            headers: &request.head.headers,
            query: request.query,
            is_head: request.head.method == Method::HEAD,
        };
        asked.answer(&self.source, sight, &object, changed).await
    }

    /// The namespace of a bucket, if the one who asks may see it.
    async fn find(&self, request: &Request<'_>, name: &str) -> Outcome<(Sight, Namespace)> {
        let namespace = request.namespace(name)?;
        let sight = self.newest().await?;
        match sight.view().state.refs.sums().contains_key(&namespace) {
            true => Ok((Arc::clone(&sight), namespace)),
            false => Err(Fault::no_bucket(name)),
        }
    }

    async fn newest(&self) -> Outcome<Sight> {
        let source = Arc::clone(&self.source);
        Ok(block(move || source.newest()).await?)
    }
}

impl Request<'_> {
    /// The namespace that a bucket of this name is, if it may be read; it need not be there.
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
