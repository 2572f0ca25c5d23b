//! The Hub door: what clients of a Hugging Face Hub ask for, answered out of the refs of a namespace.
//!
//! `route` says what is meant, `repos` which ref and version that is, `files` what is in it, `hashes` how clients call it;
//! `look` answers what is asked of the API, `download` sends files; `write`, `uploads` and `commit` take them, by `incoming` and
//! `stream`; `fault` says what is wrong in the words of these clients.

mod commit;
mod download;
mod fault;
mod files;
mod hashes;
mod incoming;
mod look;
mod repos;
mod route;
mod saved;
mod stream;
mod uploads;
mod used;
mod write;

use std::sync::Arc;
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HOST, HeaderName, USER_AGENT};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use store::{Content, Namespace, Reader};
use tokio::sync::Semaphore;

use crate::serve::answer::Answer;
use crate::serve::source::{Sight, Source, block};
use crate::serve::tokens::{Caller, Role, Tokens};
use crate::serve::{Asked, Door, Shared, numbers, text};
use fault::{Fault, Outcome};
use files::{Entry, Etag, Files, Shelf, What};
use hashes::Known;
use repos::{Commit, Repo, Repos};
use route::{Call, Id, Named, Route, Type};
use used::Used;

/// Files whose hashes are computed at once.
const HASHERS: usize = 4;
/// How long a request waits for hashes; clients take a slower answer for none.
const HASHES_TIME: Duration = Duration::from_secs(8);
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
    writers: Arc<Semaphore>,
    tokens: Tokens,
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
}

/// A revision of a repo and what is in it.
struct Revision {
    sight: Sight,
    repo: Repo,
    commit: Commit,
    files: Arc<Files>,
}

impl Hub {
    /// A door to the store behind `source`.
    pub(crate) fn new(
        source: Arc<Source>,
        shared: Arc<Shared>,
        root: Option<Namespace>,
        tokens: Tokens,
    ) -> Self {
        let writers = source.store().host().memory_bytes / WRITER_BYTES;
        let writers = usize::try_from(writers).unwrap_or(1).clamp(1, WRITERS_MAX);
        let known = Known::new(source.cache_dir(), Arc::clone(&shared.numbers));
        Self {
            source,
            shared,
            root,
            inner: Arc::new(Inner {
                repos: Repos::default(),
                shelf: Shelf::default(),
                known,
                used: Used::default(),
            }),
            hashers: Arc::new(Semaphore::new(HASHERS)),
            writers: Arc::new(Semaphore::new(writers)),
            tokens,
        }
    }

    async fn route(&self, head: &Parts, asked: &mut Asked, caller: Caller) -> Outcome<Answer> {
        let segments =
            text::segments(head.uri.path()).ok_or_else(|| Fault::bad("the path is no UTF-8"))?;
        if let Some(answer) = self.of_machines(head, &segments) {
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
        };
        let route = route.ok_or_else(Fault::no_route)?;
        match (&head.method, route) {
            (&Method::GET | &Method::HEAD, Route::Root) => {
                Ok(Answer::text(StatusCode::OK, WELCOME))
            }
            (_, route) if request.is_signed(&route) => self.take(&request, route, asked).await,
            (&Method::GET | &Method::HEAD, route) => {
                request.check_known()?;
                self.look(&request, route).await
            }
            (&Method::POST | &Method::PUT | &Method::DELETE, route) => {
                request.check_known()?;
                self.take(&request, route, asked).await
            }
            _ => Err(not_so()),
        }
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
            (&Method::POST, Call::Verify(oid)) => self.verify(request, kind, id, &oid).await,
            (&Method::POST, Call::Commit(rev)) => self.commit(request, kind, id, &rev, asked).await,
            (&Method::POST | &Method::DELETE, Call::Branch(name)) => {
                self.branch(request, kind, id, &name).await
            }
            _ => Err(not_so()),
        }
    }

    /// What watches the server asks, and people who look what it is.
    fn of_machines(&self, head: &Parts, segments: &[String]) -> Option<Outcome<Answer>> {
        let [name] = segments else { return None };
        let is_read = [Method::GET, Method::HEAD].contains(&head.method);
        let answer = match name.as_str() {
            "" => Answer::text(StatusCode::OK, WELCOME),
            "healthz" => Answer::text(StatusCode::OK, "ok\n"),
            "metrics" => Answer::text(StatusCode::OK, self.shared.numbers.text())
                .with(hyper::header::CONTENT_TYPE, numbers::MEDIA_TYPE),
            _ => return None,
        };
        is_read.then_some(Ok(answer))
    }

    /// The repo that is meant, at the newest state.
    async fn find(&self, request: &Request<'_>, kind: Type, id: Id) -> Outcome<(Sight, Repo)> {
        if request.caller.role(&request.namespace).is_none() {
            return Err(Fault::repo());
        }
        let (source, inner) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let named = Named {
            namespace: request.namespace.clone(),
            kind,
            id,
        };
        let found = block(move || {
            let sight = source.newest()?;
            let repo = inner.repos.find(&sight, &named)?;
            Ok(repo.map(|repo| (sight, repo)))
        });
        found.await?.ok_or_else(Fault::repo)
    }

    /// The revision that is meant, and its files.
    async fn revision(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        rev: &str,
    ) -> Outcome<Revision> {
        let (sight, repo) = self.find(request, kind, id).await?;
        if rev.len() > REVISION_BYTES_MAX {
            return Err(Fault::revision("of this length"));
        }
        let inner = Arc::clone(&self.inner);
        let wanted = rev.to_owned();
        let found = block(move || {
            let Some(commit) = inner.repos.commit(&sight, &repo, &wanted)? else {
                return Ok(None);
            };
            let files = inner.shelf.files(&sight, &commit, repo.name.path())?;
            Ok(Some(Revision {
                sight,
                repo,
                commit,
                files,
            }))
        });
        found.await?.ok_or_else(|| Fault::revision(rev))
    }

    /// How clients call these files; none for directories.
    async fn etags(&self, sight: &Sight, entries: Vec<Entry>) -> Outcome<Vec<Option<Etag>>> {
        let inner = Arc::clone(&self.inner);
        let hashers = Arc::clone(&self.hashers);
        let sight = Arc::clone(sight);
        let work = async move {
            let turn = hashers.acquire_owned().await;
            block(move || {
                let _turn = turn;
                let etags = entries.iter().map(|entry| inner.etag(&sight, entry));
                etags.collect::<store::Result<Vec<_>>>()
            })
            .await
        };
        // The work goes on when nobody waits for it any more, so that who comes again finds it done.
        let work = tokio::spawn(work);
        let Ok(done) = tokio::time::timeout(HASHES_TIME, work).await else {
            return Err(Fault::later(
                "the hashes of these files are being computed: ask again",
            ));
        };
        match done {
            Ok(etags) => Ok(etags?),
            Err(_) => Err(Fault::later(
                "the hashes of these files could not be computed",
            )),
        }
    }
}

impl Inner {
    fn etag(&self, reader: &Reader<'_>, entry: &Entry) -> store::Result<Option<Etag>> {
        let What::File(content, _) = &entry.what else {
            return Ok(None);
        };
        if let Some(etag) = entry.known_etag() {
            return Ok(Some(etag));
        }
        let hashes = self.known.of(reader, content)?;
        Ok(Some(Etag::by_rule(&entry.path, content.size, &hashes)))
    }
}

impl Door for Hub {
    const NAME: &'static str = "hub";

    async fn answer(&self, head: &Parts, asked: &mut Asked) -> Answer {
        let authorization = head.headers.get(AUTHORIZATION);
        // What is no text is no token of ours.
        let authorization = authorization.map(|value| value.to_str().unwrap_or_default());
        let caller = match self.tokens.caller(authorization) {
            Ok(caller) => caller,
            Err(error) => return Fault::from(error).into(),
        };
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

impl Revision {
    fn entry(&self, path: &str) -> Outcome<&Entry> {
        let missing = || Fault::entry(path, &self.commit.hex);
        self.files.at(path).ok_or_else(missing)
    }

    fn file(&self, path: &str) -> Outcome<(&Entry, Content)> {
        let entry = self.entry(path)?;
        match entry.what {
            What::File(content, _) => Ok((entry, content)),
            What::Directory(_) => Err(Fault::entry(path, &self.commit.hex)),
        }
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
