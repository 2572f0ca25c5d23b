//! The Hub door: what clients of a Hugging Face Hub ask for, answered out of the refs of a namespace.
//!
//! `route` says what is meant, `find`, `repos` and `mirrors` which ref and version that is, `files` what is in it, `hashes` how clients call it;
//! `pull` brings what an upstream has; `look` answers what is asked of the API, `download` sends files; `write`, `uploads` and `commit` take them, by `incoming` and
//! `stream`; `fault` says what is wrong in the words of these clients.

mod commit;
mod download;
mod fault;
mod files;
mod find;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod hashes;
mod incoming;
mod look;
mod mirrors;
pub(crate) mod pull;
mod repos;
mod route;
mod saved;
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
use crate::serve::tokens::{Caller, Role, Tokens};
use crate::serve::{Asked, Door, Shared, numbers, text};
use fault::{Fault, Outcome};
use files::{Entry, Etag, Shelf, What};
use hashes::Known;
use pull::{Pull, Who};
use repos::Repos;
use route::{Call, Id, Route, Type};
use used::Used;
use writers::Writers;

/// Files whose hashes are computed at once.
const HASHERS: usize = 4;
/// How long a look at the store may take until it is said to be away, and how often there is one at most.
const HEALTH_TIME: Duration = Duration::from_secs(5);
const HEALTH_PAUSE: Duration = Duration::from_millis(500);
/// Most bytes of the name of a revision.
const REVISION_BYTES_MAX: usize = 256;
/// Bodies that are stored at once, if memory allows; and the memory that one of them takes.
const WRITERS_MAX: usize = 16;
const WRITER_BYTES: u64 = 16 << 20;
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// What `/` says.
const WELCOME: &str = "store serve: a Hugging Face endpoint for each namespace\n\n    HF_ENDPOINT=http://HOST:PORT/project/NAME hf download OWNER/NAME\n\n`store help doors` tells the rest. /metrics and /healthz are for machines.\n";

/// The door.
pub(crate) struct Hub {
    source: Arc<Source>,
    shared: Arc<Shared>,
    /// What repos are taken from where the path names no namespace.
    root: Option<Namespace>,
    inner: Arc<Inner>,
    hashers: Arc<Semaphore>,
    writers: Writers,
    tokens: Arc<Tokens>,
    /// The way to an upstream, if there is one.
    pull: Option<Arc<Pull>>,
}

/// What is remembered between requests.
struct Inner {
    repos: Repos,
    shelf: Shelf,
    known: Known,
    used: Used,
}

/// A request on its way through the door.
struct Request<'r> {
    head: &'r Parts,
    query: Vec<(String, String)>,
    namespace: Namespace,
    /// What the client calls this endpoint.
    endpoint: String,
    caller: Caller,
    /// For the access log: why the answer may be an old one.
    note: Mutex<Option<String>>,
}

impl Hub {
    /// A door to the store behind `source`, and through it to an upstream.
    ///
    /// # Errors
    /// When the upstream is none.
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

    /// The server is asked to stop: what came from the upstream does not wait for more.
    pub(crate) fn stop(&self) {
        if let Some(pull) = &self.pull {
            pull.stop();
        }
    }

    /// Comes back when what came from the upstream is stored.
    pub(crate) async fn finish(&self) {
        if let Some(pull) = &self.pull {
            pull.finish().await;
        }
    }

    async fn route(&self, head: &Parts, asked: &mut Asked, caller: Caller) -> Outcome<Answer> {
        let segments =
            text::segments(head.uri.path()).ok_or_else(|| Fault::bad("the path is no UTF-8"))?;
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
        let route = route.ok_or_else(Fault::no_route)?;
        let mut answer = match (&head.method, route) {
            (&Method::GET | &Method::HEAD, Route::Root) => {
                Ok(Answer::text(StatusCode::OK, WELCOME))
            }
            (_, route) if request.is_signed(&route) => self.take(&request, route, asked).await,
            (&Method::GET | &Method::HEAD, route) => {
                request.check_known()?;
                within(ANSWER_TIME, self.look(&request, route)).await
            }
            (&Method::POST | &Method::PUT | &Method::DELETE, route) => {
                request.check_known()?;
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

    /// What only looks.
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

    /// What comes with a body, or changes something.
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

    /// What watches the server asks, and people who look what it is.
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

    /// Whether the store can be read.
    async fn health(&self) -> Answer {
        let source = Arc::clone(&self.source);
        let looked = block(move || source.check_there(HEALTH_PAUSE));
        let why = match tokio::time::timeout(HEALTH_TIME, looked).await {
            Ok(Ok(())) => return Answer::text(StatusCode::OK, "ok\n"),
            Ok(Err(error)) => error.to_string(),
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
            // A proxy in between may have looked at the other one.
            return Fault::bad("more than one Authorization").into();
        }
        let authorization = head.headers.get(AUTHORIZATION);
        // What is no text is no token of ours.
        let authorization = authorization.map(|value| value.to_str().unwrap_or_default());
        let caller = match self.tokens.caller(authorization) {
            Ok(caller) => caller,
            Err(error) => return Fault::from(error).into(),
        };
        if let Some(why) = caller.refusal(head) {
            return Fault::forbidden(why).into();
        }
        let name = caller.name().map(str::to_owned);
        let mut answer = match self.route(head, asked, caller).await {
            Ok(answer) => answer,
            Err(fault) => fault.into(),
        };
        answer.token = name;
        answer
    }
}

impl Request<'_> {
    fn is_head(&self) -> bool {
        self.head.method == Method::HEAD
    }

    /// Whether the URL itself says that it may be asked.
    fn is_signed(&self, route: &Route) -> bool {
        self.head.method == Method::PUT && matches!(route, Route::Repo(_, _, Call::Upload(_)))
    }

    /// That it is known who asks, where that matters.
    fn check_known(&self) -> Outcome<()> {
        match self.caller {
            Caller::Everybody | Caller::Bearer(_) => Ok(()),
            Caller::Nobody => Err(Fault::unknown()),
            Caller::Wrong => Err(Fault::wrong_token()),
        }
    }

    /// Tells the access log why the answer may be an old one.
    fn note(&self, why: String) {
        let mut note = self.note.lock().unwrap_or_else(PoisonError::into_inner);
        *note = Some(why);
    }

    /// Who asks, as far as an upstream is concerned: a token of this server is none of its.
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

    /// Whose repos those are that a client names without an owner.
    fn owner(&self) -> &str {
        self.namespace
            .as_str()
            .rsplit('/')
            .next()
            .unwrap_or_default()
    }

    /// What the client calls itself.
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

/// What the client calls the endpoint: every URL in an answer begins with it.
fn endpoint(head: &Parts, namespace: Option<&Namespace>) -> String {
    let value = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
    let is_host = |host: &&str| {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        !host.is_empty() && host.bytes().all(is_fit)
    };
    let is_prefix =
        |prefix: &&str| prefix.starts_with('/') && text::is_inside(prefix.trim_matches('/'));
    let scheme = match value(&FORWARDED_PROTO) {
        Some("https") => "https",
        _ => "http",
    };
    let host = value(&FORWARDED_HOST).filter(is_host);
    let host = host
        .or_else(|| value(&HOST).filter(is_host))
        .unwrap_or("localhost");
    let prefix = value(&FORWARDED_PREFIX)
        .filter(is_prefix)
        .unwrap_or_default();
    let prefix = text::escaped_path(prefix.trim_end_matches('/'));
    let namespace = namespace.map_or_else(String::new, |name| format!("/{name}"));
    format!("{scheme}://{host}{prefix}{namespace}")
}

fn not_so() -> Fault {
    Fault::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "there is something here, but not for this method",
    )
}
