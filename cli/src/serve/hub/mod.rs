//! The Hub door: answers clients of a Hugging Face Hub from the refs of a namespace.
//!
//! `route` parses requests; `find` and `repos` find the ref and the version, `files` its files, `hashes`
//! their etags. `pull` fetches from an upstream. `look` answers API requests and `download` sends files; `write`,
//! `uploads` and `commit` store them through `incoming` and `stream`. `fault` words errors for these clients, and
//! `generation` knows what theirs takes for temporary.

mod commit;
mod download;
mod fault;
mod files;
mod find;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod generation;
mod hashes;
mod incoming;
mod listing;
mod look;
pub(crate) mod pull;
mod repos;
mod route;
mod saved;
mod siblings;
mod stream;
mod uploads;
mod used;
mod write;
mod writers;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HOST, HeaderName, USER_AGENT};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use store::{Namespace, Reader, Result};
use tokio::sync::Semaphore;

use crate::serve::answer::Answer;
use crate::serve::patience::{ANSWER_TIME, within};
use crate::serve::source::{Source, block};
use crate::serve::spool::{Rooms, Spool};
use crate::serve::tokens::{self, Caller, Role, Tokens};
use crate::serve::{Asked, Door, Shared, numbers, person, text};
use crate::ui::failure::one_line;
use fault::{Fault, Outcome};
use files::{Entry, Etag, Shelf, What};
use hashes::Known;
use pull::{Pull, Who};
use repos::Repos;
use route::{Call, Id, Route, Type};
use used::Used;
use writers::Writers;

/// Number of files to hash at once.
const HASHERS: usize = 4;
/// How long a health check may take, and the minimum time between two reads of the store.
const HEALTH_TIME: Duration = Duration::from_secs(5);
const HEALTH_PAUSE: Duration = Duration::from_millis(500);
/// Maximum bytes of a revision's name.
const REVISION_BYTES_MAX: usize = 256;
/// Number of bodies to store at once if memory allows, and the memory for one of them.
const WRITERS_MAX: usize = 16;
const WRITER_BYTES: u64 = 16 << 20;
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The answer to `/`.
const WELCOME: &str = "store serve: a Hugging Face endpoint for each namespace\n\n    HF_ENDPOINT=http://HOST:PORT/project/NAME hf download OWNER/NAME\n\n`store help doors` tells the rest. /metrics and /healthz are for machines.\n";

/// The door.
pub(crate) struct Hub {
    source: Arc<Source>,
    shared: Arc<Shared>,
    /// The namespace for paths that name none.
    root: Option<Namespace>,
    inner: Arc<Inner>,
    hashers: Arc<Semaphore>,
    writers: Writers,
    tokens: Arc<Tokens>,
    /// Access to an upstream, if there is one.
    pull: Option<Arc<Pull>>,
}

/// Caches between requests.
struct Inner {
    repos: Repos,
    shelf: Shelf,
    known: Known,
    used: Used,
    /// What files that wait on disk will still take.
    rooms: Rooms,
}

impl Inner {
    /// A file of `size` bytes that waits on disk for its clients. Blocks.
    ///
    /// # Errors
    /// If there is no room for it.
    fn spool(&self, source: &Source, size: u64) -> Result<Spool> {
        let dir = source.cache_dir().map(|dir| dir.join("hub-arriving"));
        Spool::new(dir.as_deref(), size, &self.rooms)
    }
}

/// A request with its parsed properties.
struct Request<'r> {
    head: &'r Parts,
    query: Vec<(String, String)>,
    namespace: Namespace,
    /// The endpoint's URL as the client knows it.
    endpoint: String,
    caller: Caller,
    /// Why the answer may be outdated, for the access log.
    note: Mutex<Option<String>>,
}

impl Hub {
    /// A door to the store behind `source`, and to an upstream.
    ///
    /// # Errors
    /// If the upstream's URL is invalid.
    pub(crate) fn new(
        source: Arc<Source>,
        shared: Arc<Shared>,
        root: Option<Namespace>,
        tokens: Arc<Tokens>,
        upstream: Option<pull::Options>,
    ) -> Result<Self> {
        let writers = source.store().host().memory_bytes / WRITER_BYTES;
        let writers = usize::try_from(writers).unwrap_or(1).clamp(1, WRITERS_MAX);
        let inner = Arc::new(Inner {
            repos: Repos::default(),
            shelf: Shelf::default(),
            known: Known::new(source.cache_dir(), Arc::clone(&shared.numbers)),
            used: Used::default(),
            rooms: Rooms::default(),
        });
        let pull = upstream.map(|options| {
            let (source, shared) = (Arc::clone(&source), Arc::clone(&shared));
            Pull::new(options, source, shared, Arc::clone(&inner))
        });
        Ok(Self {
            source,
            shared,
            root,
            inner,
            hashers: Arc::new(Semaphore::new(HASHERS)),
            writers: Writers::new(writers),
            tokens,
            pull: pull.transpose()?.map(Arc::new),
        })
    }

    /// Called when the server stops: fetched files are stored without waiting for more.
    pub(crate) fn stop(&self) {
        if let Some(pull) = &self.pull {
            pull.stop();
        }
    }

    /// Waits until fetched files are stored.
    pub(crate) async fn finish(&self) {
        if let Some(pull) = &self.pull {
            pull.finish().await;
        }
    }

    async fn route(&self, head: &Parts, asked: &mut Asked, caller: Caller) -> Outcome<Answer> {
        let segments = text::segments(head.uri.path())
            .ok_or_else(|| Fault::bad("the path is not UTF-8, or has a NUL"))?;
        if let Some(answer) = self.of_machines(head, &segments).await {
            return answer;
        }
        let (namespace, rest) = route::endpoint(&segments);
        let is_named = namespace.is_some();
        let route = Route::parse(rest);
        let Some(namespace) = namespace.or_else(|| self.root.clone()) else {
            return Err(Fault::no_route());
        };
        let request = Request {
            head,
            query: text::pairs(head.uri.query().unwrap_or_default()),
            endpoint: endpoint(head, is_named.then_some(&namespace)),
            namespace,
            caller,
            note: Mutex::default(),
        };
        let is_api = rest.first().is_some_and(|first| first == "api");
        let route = route.ok_or_else(|| match is_api {
            true => Fault::no_call(),
            false => Fault::no_route(),
        })?;
        let mut answer = match (&head.method, route) {
            (&Method::GET | &Method::HEAD, Route::Root) => {
                Ok(Answer::text(StatusCode::OK, WELCOME))
            }
            (_, route) if request.is_signed(&route) => self.take(&request, route, asked).await,
            // Lists may take longer, and limit their steps themselves.
            (
                &Method::GET | &Method::HEAD,
                route @ Route::Repo(_, _, Call::Info(_) | Call::Tree { .. }),
            ) => {
                check_known(&request.caller)?;
                self.look(&request, route).await
            }
            (&Method::GET | &Method::HEAD, route) => {
                check_known(&request.caller)?;
                self.in_time(self.look(&request, route)).await
            }
            (&Method::POST | &Method::PUT | &Method::DELETE, route) => {
                check_known(&request.caller)?;
                self.take(&request, route, asked).await
            }
            _ => Err(not_so()),
        }?;
        let note = request.note.into_inner();
        answer.error = answer
            .error
            .or_else(|| note.unwrap_or_else(PoisonError::into_inner));
        Ok(answer)
    }

    /// Answers requests that only read.
    async fn look(&self, request: &Request<'_>, route: Route) -> Outcome<Answer> {
        let (kind, id, call) = match route {
            Route::WhoAmI => return Ok(look::who_am_i(request)),
            Route::List(kind) => return self.list(request, kind).await,
            Route::Repo(kind, id, call) => (kind, id, call),
            _ => return Err(not_so()),
        };
        match call {
            Call::Info(rev) => self.info(request, kind, id, rev.as_deref()).await,
            Call::Tree { rev, path } => self.tree(request, kind, id, &rev, &path).await,
            Call::Refs => self.refs(request, kind, id).await,
            Call::Commits(rev) => self.commits(request, kind, id, &rev).await,
            Call::Resolve { rev, path } => self.resolve(request, kind, id, &rev, &path).await,
            Call::AuthCheck => {
                self.find(request, kind, id).await?;
                Ok(Answer::json(StatusCode::OK, &serde_json::json!({})))
            }
            Call::XetToken => Err(Fault::new(
                StatusCode::NOT_FOUND,
                "this endpoint does not speak Xet: set HF_HUB_DISABLE_XET=1",
            )),
            _ => Err(not_so()),
        }
    }

    /// Answers requests that have a body or change something.
    async fn take(
        &self,
        request: &Request<'_>,
        route: Route,
        asked: &mut Asked,
    ) -> Outcome<Answer> {
        let method = &request.head.method;
        let (kind, id, call) = match (method, route) {
            (&Method::POST, Route::Create) => return self.create(request, asked).await,
            (&Method::POST, Route::ValidateYaml) => return self.validate(asked).await,
            (&Method::DELETE, Route::Delete) => {
                return Err(Fault::forbidden(
                    "repos are not deleted here: `store rm` drops a ref",
                ));
            }
            (_, Route::Repo(kind, id, call)) => (kind, id, call),
            _ => return Err(not_so()),
        };
        match (method, call) {
            (&Method::POST, Call::PathsInfo(rev)) => {
                self.paths_info(request, kind, id, &rev, asked).await
            }
            (&Method::POST, Call::Preupload(rev)) => {
                self.preupload(request, kind, id, &rev, asked).await
            }
            (&Method::POST, Call::Batch) => self.batch(request, kind, id, asked).await,
            (&Method::PUT, Call::Upload(oid)) => self.upload(request, id, &oid, asked).await,
            (&Method::POST, Call::Verify(oid)) => self.verify(request, kind, id, &oid, asked).await,
            (&Method::POST, Call::Commit(rev)) => self.commit(request, kind, id, &rev, asked).await,
            (&Method::POST | &Method::DELETE, Call::Branch(name)) => {
                self.branch(request, kind, id, &name).await
            }
            _ => Err(not_so()),
        }
    }

    /// Answers monitoring requests, and people who open `/`.
    async fn of_machines(&self, head: &Parts, segments: &[String]) -> Option<Outcome<Answer>> {
        let [name] = segments else { return None };
        let is_read = [Method::GET, Method::HEAD].contains(&head.method);
        let answer = match name.as_str() {
            "" => Answer::text(StatusCode::OK, WELCOME),
            "healthz" => self.health().await,
            "metrics" => Answer::text(StatusCode::OK, self.shared.numbers.text())
                .with(hyper::header::CONTENT_TYPE, numbers::MEDIA_TYPE),
            _ => return None,
        };
        is_read.then_some(Ok(answer))
    }

    /// Answers whether the store can be read.
    async fn health(&self) -> Answer {
        let source = Arc::clone(&self.source);
        let looked = block(move || source.check_there(HEALTH_PAUSE));
        let why = match tokio::time::timeout(HEALTH_TIME, looked).await {
            Ok(Ok(())) => return Answer::text(StatusCode::OK, "ok\n"),
            Ok(Err(error)) => one_line(&error),
            Err(_) => "the store does not answer".to_owned(),
        };
        let text = "the store cannot be read: the log of the server says why\n";
        let mut answer = Answer::text(StatusCode::SERVICE_UNAVAILABLE, text);
        answer.error = Some(why);
        answer
    }
}

impl Inner {
    fn etag(&self, reader: &Reader<'_>, entry: &Entry) -> store::Result<Option<Etag>> {
        if let Some(known) = self.known_etag(entry) {
            return Ok(known);
        }
        let What::File(content, _) = &entry.what else {
            return Ok(None);
        };
        let hashes = self.known.of(reader, content)?;
        Ok(Some(Etag::by_rule(&entry.path, content.size, &hashes)))
    }
}

impl Door for Hub {
    const NAME: &'static str = "hub";

    async fn answer(&self, head: &Parts, asked: &mut Asked) -> Answer {
        if head.headers.get_all(AUTHORIZATION).iter().count() > 1 {
            // A proxy may have checked another one than this server would use.
            return Fault::bad("more than one Authorization").into();
        }
        let printed = self.printed(head);
        let is_printed = printed.is_some();
        let caller = match printed {
            Some(_) => person::caller(&self.tokens, head),
            None => self.tokens.caller(tokens::authorization(head)),
        };
        let caller = match caller {
            Ok(caller) => caller,
            Err(error) => return Fault::no_tokens(&error).into(),
        };
        if let Some(why) = caller.refusal(head) {
            return Fault::forbidden(why).into();
        }
        let name = caller.name().map(str::to_owned);
        let outcome = match printed {
            Some(named) => self.page(head, named, &caller).await,
            None => self.route(head, asked, caller).await,
        };
        let answer = outcome.unwrap_or_else(Answer::from);
        let mut answer = match is_printed {
            true => person::challenged(answer),
            false => answer,
        };
        answer.token = name;
        generation::suited(head, answer)
    }
}

impl Request<'_> {
    fn is_head(&self) -> bool {
        self.head.method == Method::HEAD
    }

    /// Whether the URL itself may carry a signature in place of a token.
    fn is_signed(&self, route: &Route) -> bool {
        self.head.method == Method::PUT && matches!(route, Route::Repo(_, _, Call::Upload(_)))
    }

    /// Records for the access log why the answer may be outdated.
    fn note(&self, why: String) {
        let mut note = self.note.lock().unwrap_or_else(PoisonError::into_inner);
        *note = Some(why);
    }

    /// The caller's credentials for the upstream. Tokens of this server are not sent there.
    fn who(&self) -> Who {
        let bearer = || {
            let value = self.head.headers.get(AUTHORIZATION)?.to_str().ok()?;
            Some(value.strip_prefix("Bearer ")?.to_owned())
        };
        match &self.caller {
            Caller::Everybody => Who {
                token: bearer(),
                is_trusted: false,
            },
            Caller::Bearer(token) => Who {
                token: None,
                is_trusted: token.upstream,
            },
            Caller::Nobody | Caller::Wrong => Who::default(),
        }
    }

    fn check_may_write(&self) -> Outcome<()> {
        match self.caller.role(&self.namespace) {
            Some(Role::Write) => Ok(()),
            _ => Err(Fault::forbidden("this token may not write here")),
        }
    }

    /// The owner of repos that a client names without one.
    fn owner(&self) -> &str {
        self.namespace
            .as_str()
            .rsplit('/')
            .next()
            .unwrap_or_default()
    }

    /// The User-Agent.
    fn agent(&self) -> &str {
        let agent = self.head.headers.get(USER_AGENT);
        agent
            .and_then(|agent| agent.to_str().ok())
            .unwrap_or_default()
    }

    fn url_of(&self, kind: Type, id: &Id) -> String {
        let prefix = match kind {
            Type::Model => String::new(),
            kind => format!("{}/", kind.plural()),
        };
        format!("{}/{prefix}{}", self.endpoint, id.as_str())
    }
}

/// Refuses a missing or invalid token.
fn check_known(caller: &Caller) -> Outcome<()> {
    match caller {
        Caller::Everybody | Caller::Bearer(_) => Ok(()),
        Caller::Nobody => Err(Fault::unknown()),
        Caller::Wrong => Err(Fault::wrong_token()),
    }
}

/// The endpoint's URL as the client knows it; URLs in answers begin with it.
fn endpoint(head: &Parts, namespace: Option<&Namespace>) -> String {
    let value = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
    let is_host = |host: &&str| {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        !host.is_empty() && host.bytes().all(is_fit)
    };
    let scheme = match value(&FORWARDED_PROTO) {
        Some("https") => "https",
        _ => "http",
    };
    let host = value(&FORWARDED_HOST).filter(is_host);
    let host = host
        .or_else(|| value(&HOST).filter(is_host))
        .unwrap_or("localhost");
    let prefix = text::forwarded_prefix(head);
    let namespace = namespace.map_or_else(String::new, |name| format!("/{name}"));
    format!("{scheme}://{host}{prefix}{namespace}")
}

impl Hub {
    /// The result of `work`, if it is ready in time. With an upstream, it may be that which gives no answer.
    async fn in_time<T>(&self, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        if self.pull.is_none() {
            return within(ANSWER_TIME, work).await;
        }
        let done = tokio::time::timeout(ANSWER_TIME, work).await;
        done.unwrap_or_else(|_| {
            let why = "neither the store nor the upstream answered in time";
            Err(Fault::later("this takes too long: ask again later").because(why.to_owned()))
        })
    }
}

fn not_so() -> Fault {
    Fault::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "there is something here, but not for this method",
    )
}
