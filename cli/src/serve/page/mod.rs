//! The pages for browsers: what is in a store, and what takes its space. They only read, and need no scripts.
//!
//! `route` parses requests, `frame` has the common parts, and `words` formats names and numbers; `maud` escapes all
//! text by its type. `overview`, `namespace`, `versions`, `entry`, `space` and `host` are the pages; `treemap`, `map`
//! and `plot` draw. Facts that take long to compute come from `survey`.

mod entry;
mod frame;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod host;
mod map;
mod namespace;
mod overview;
mod plot;
mod route;
mod space;
pub(crate) mod survey;
mod treemap;
mod versions;
mod words;

use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderName, LOCATION};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use store::{Namespace, RefName};

use self::frame::{Fault, Outcome, Sheet};
use self::route::{Links, PagePlace, Query};
use self::survey::{Known, Surveyor};
use crate::serve::answer::Answer;
use crate::serve::patience::{LOOK_TIME, within};
use crate::serve::person;
use crate::serve::source::{GATED, Sight, Source, block};
use crate::serve::tokens::{Caller, Tokens};
pub(crate) use host::{ClusterFacts, HostFacts};

/// The pages of a store.
pub(crate) struct Page {
    source: Arc<Source>,
    tokens: Arc<Tokens>,
    about: Arc<About>,
}

/// Facts that are not in the state of the store.
struct About {
    surveyor: Arc<Surveyor>,
    host: HostFacts,
}

/// A parsed request for a page.
struct Look {
    place: PagePlace,
    query: Query,
    links: Links,
    caller: Caller,
    /// Whether the method is HEAD.
    is_head: bool,
    range: Option<String>,
}

/// A request, at one state of the store.
struct View<'v> {
    look: &'v Look,
    about: &'v About,
    sight: Sight,
}

/// The result of a request.
enum Shown {
    Sheet(Sheet),
    Bytes(entry::Bytes),
}

impl Page {
    /// The pages of the store behind `source`.
    pub(crate) fn new(
        source: Arc<Source>,
        tokens: Arc<Tokens>,
        planner: survey::Planner,
        host: HostFacts,
    ) -> Self {
        let surveyor = Surveyor::new(Arc::clone(&source), planner);
        Self {
            source,
            tokens,
            about: Arc::new(About { surveyor, host }),
        }
    }

    /// Whether a request is for a page: all below `/-/`, and elsewhere those of browsers, since other clients have an
    /// endpoint there.
    pub(crate) fn is_for(head: &Parts) -> bool {
        let path = head.uri.path();
        path.starts_with("/-/") || path == "/-" || (person::is_looking(head) && top(path).is_some())
    }

    /// Answers a request for a page.
    pub(crate) async fn answer(&self, head: &Parts) -> Answer {
        let links = Links::of(head);
        let (token, outcome) = match self.caller(head) {
            Ok(caller) => (
                caller.name().map(str::to_owned),
                within(LOOK_TIME, self.page(head, caller)).await,
            ),
            Err(fault) => (None, Err(fault)),
        };
        let mut answer = outcome.unwrap_or_else(|fault| fault.answer(&links));
        answer.token = token;
        answer
    }

    async fn page(&self, head: &Parts, caller: Caller) -> Outcome<Answer> {
        if let Some(why) = caller.refusal(head) {
            return Err(Fault::Foreign(why));
        }
        if ![Method::GET, Method::HEAD].contains(&head.method) {
            return Err(Fault::Method);
        }
        if matches!(caller, Caller::Nobody | Caller::Wrong) {
            return Err(Fault::Unknown);
        }
        let links = Links::of(head);
        let path = head.uri.path();
        let place = match top(path) {
            Some(Top::Namespace(namespace)) => {
                let href = links.namespace(&namespace);
                return Ok(Answer::new(StatusCode::SEE_OTHER).with(LOCATION, href.as_ref()));
            }
            Some(Top::Store) => PagePlace::Overview,
            None => PagePlace::parse(path).ok_or(Fault::Nowhere)?,
        };
        let look = Look {
            place,
            query: Query::of(head),
            links,
            caller,
            is_head: head.method == Method::HEAD,
            range: text_of(head, hyper::header::RANGE).map(str::to_owned),
        };
        let (source, about) = (Arc::clone(&self.source), Arc::clone(&self.about));
        let shown = block(move || {
            let shown = newest(&source).and_then(|sight| {
                let view = View {
                    look: &look,
                    about: &about,
                    sight,
                };
                view.show()
            });
            Ok((shown, look))
        });
        match shown.await? {
            (Ok(Shown::Sheet(sheet)), look) => Ok(sheet.answer(StatusCode::OK, &look.links)),
            (Ok(Shown::Bytes(bytes)), look) => bytes.answer(&self.source, &look).await,
            (Err(fault), _) => Err(fault),
        }
    }

    fn caller(&self, head: &Parts) -> Outcome<Caller> {
        if head.headers.get_all(AUTHORIZATION).iter().count() > 1 {
            // A proxy may have checked another one than this server would use.
            return Err(Fault::Unknown);
        }
        person::caller(&self.tokens, head).map_err(Fault::Tokens)
    }
}

/// The newest state of the store. Checks first that the store exists, since a missing directory would look unchanged.
fn newest(source: &Source) -> Outcome<Sight> {
    let there = source.store().remote().size("format");
    there.and_then(|_| source.newest()).map_err(Fault::Store)
}

/// What a browser gets at the path of an endpoint.
enum Top {
    Store,
    Namespace(Namespace),
}

fn top(path: &str) -> Option<Top> {
    if path == "/" {
        return Some(Top::Store);
    }
    let name = path.strip_prefix('/')?;
    let name = name.strip_suffix('/').unwrap_or(name);
    name.parse().ok().map(Top::Namespace)
}

fn text_of(head: &Parts, name: HeaderName) -> Option<&str> {
    head.headers.get(name).and_then(|value| value.to_str().ok())
}

impl View<'_> {
    fn show(&self) -> Outcome<Shown> {
        let name = match &self.look.place {
            PagePlace::Ref(name) => Some(name),
            PagePlace::Entry(spec) => Some(&spec.name),
            _ => None,
        };
        if name.is_some_and(|name| !self.shows(name)) {
            return Err(Fault::Nowhere);
        }
        let sheet = match &self.look.place {
            PagePlace::Overview => self.overview(),
            PagePlace::Space => self.space(),
            PagePlace::Host => self.host(),
            PagePlace::Caches => self.caches(),
            PagePlace::Namespace(namespace) => self.namespace(namespace),
            PagePlace::Ref(name) => self.versions(name),
            PagePlace::Entry(spec) => return self.entry(spec),
        };
        sheet.map(Shown::Sheet)
    }

    fn sees(&self, namespace: &Namespace) -> bool {
        self.look.caller.role(namespace).is_some()
    }

    /// Whether a ref is shown. Mirrors of repos that are not public are hidden, since pages do not ask the upstream for
    /// access.
    fn shows(&self, name: &RefName) -> bool {
        self.sees(&name.namespace()) && !name.path().starts_with(GATED)
    }

    fn sees_all(&self) -> bool {
        self.look.caller.sees_all()
    }

    /// Checks that a namespace exists and that the caller may read it.
    fn check(&self, namespace: &Namespace) -> Outcome<()> {
        let is_there = || self.sight.view().state.refs.sums().contains_key(namespace);
        match self.sees(namespace) && is_there() {
            true => Ok(()),
            false => Err(Fault::Nowhere),
        }
    }

    fn known(&self) -> Known {
        self.about.surveyor.known(self.sight.view().state.number)
    }

    fn links(&self) -> &Links {
        &self.look.links
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::ACCEPT;

    use super::*;

    fn head(path: &str, accept: &str) -> Parts {
        let request = hyper::Request::builder().uri(path).header(ACCEPT, accept);
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn browsers_get_pages_and_other_clients_their_endpoint() {
        let html = "text/html,application/xhtml+xml,*/*;q=0.8";
        for page in ["/", "/-/space", "/-", "/project/demo", "/team/x/"] {
            assert!(Page::is_for(&head(page, html)), "{page}");
        }
        for endpoint in [
            "/project/demo/api/models",
            "/healthz",
            "/metrics",
            "/org/model/resolve/main/x",
        ] {
            assert!(!Page::is_for(&head(endpoint, html)), "{endpoint}");
        }
        for endpoint in ["/", "/project/demo"] {
            assert!(!Page::is_for(&head(endpoint, "*/*")), "{endpoint}");
        }
        assert!(Page::is_for(&head("/-/space", "*/*")));
    }
}
