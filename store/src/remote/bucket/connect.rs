//! Extends the HTTP client of object_store.
//!
//! Reports a long wait, with the name of the object. Fails a body that stalls, so that object_store requests the rest.
//! Limits the wait for an answer to the deadline. Respects `Retry-After`, up to a limit, because object_store does not.
//! Detects missing credentials at once, and a wrong endpoint soon.

mod alive;
mod body;
mod endpoints;
mod refusal;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, HeaderMap};

pub(in crate::remote) use alive::Alive;
pub(super) use alive::Stopped;
use alive::sending_time;
use body::{Body, Patience};
use endpoints::Endpoints;
pub(super) use endpoints::NoConnection;
pub(super) use refusal::Refusal;
use refusal::Refused;
pub(in crate::remote) use refusal::by_status;

/// How often a wait is reported.
const TOLD_EVERY: Duration = Duration::from_secs(30);
/// How long a body may deliver nothing.
const STALL_MAX: Duration = Duration::from_secs(30);
/// The least time that an endpoint has to answer, however short the deadline is.
const ANSWER_LEAST: Duration = Duration::from_secs(5);
/// The longest pause that `Retry-After` may request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// The header that requests put-if-absent on S3.
const IF_ABSENT: &str = "if-none-match";
/// The address at which machines of a cloud get their credentials; elsewhere nothing answers there.
const METADATA_HOST: &str = "169.254.169.254";
/// The path of the first request to that address.
const METADATA_TOKEN: &str = "/latest/api/token";

/// A callback for long waits: it gets the seconds so far and the requested path. Clones share it.
#[derive(Clone, Default)]
pub struct Waits(Option<Arc<Tell>>);

type Tell = dyn Fn(u64, &str) + Send + Sync;

impl Waits {
    /// Calls `tell` for every half minute that a request takes.
    pub fn told_to(tell: impl Fn(u64, &str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Waits")
    }
}

/// Connects like reqwest, and watches requests and answers.
#[derive(Debug)]
pub(super) struct Watched {
    waits: Waits,
    endpoints: Arc<Endpoints>,
    alive: Alive,
    deadline: Duration,
    at_need: bool,
}

/// The error of an endpoint that reports that it does not support put-if-absent.
#[derive(Debug)]
pub(in crate::remote) struct Unconditional;

/// The error after an answer did not begin in time.
#[derive(Debug)]
struct NoAnswer(Duration);

impl Watched {
    /// Creates a connector. After `deadline`, requests are not retried and answers are not awaited.
    pub(super) fn new(
        waits: Waits,
        alive: Alive,
        deadline: Duration,
        proxies: &[(&'static str, String)],
    ) -> Self {
        Self {
            waits,
            endpoints: Arc::new(Endpoints::new(proxies)),
            alive,
            deadline,
            at_need: false,
        }
    }

    /// Delays creating the client until the first request.
    pub(super) fn at_need(self) -> Self {
        Self {
            at_need: true,
            ..self
        }
    }
}

impl HttpConnector for Watched {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = match self.at_need {
            true => OnceLock::new(),
            false => ReqwestConnector::default().connect(options)?.into(),
        };
        Ok(HttpClient::new(Wire {
            client,
            options: options.clone(),
            waits: self.waits.clone(),
            endpoints: Arc::clone(&self.endpoints),
            alive: self.alive.clone(),
            answer_max: self.deadline.max(ANSWER_LEAST),
        }))
    }
}

#[derive(Debug)]
struct Wire {
    client: OnceLock<HttpClient>,
    options: ClientOptions,
    waits: Waits,
    endpoints: Arc<Endpoints>,
    alive: Alive,
    answer_max: Duration,
}

impl Wire {
    /// Sends `request` for `path`, and waits for the answer for at most `most`.
    async fn execute(
        &self,
        request: HttpRequest,
        most: Duration,
        path: &str,
    ) -> Result<HttpResponse, HttpError> {
        let mut answer = std::pin::pin!(self.client()?.execute(request));
        let mut waited = Duration::ZERO;
        loop {
            let part = TOLD_EVERY.min(most.saturating_sub(waited));
            if let Ok(answer) = tokio::time::timeout(part, answer.as_mut()).await {
                return answer;
            }
            waited += part;
            if waited >= most {
                return Err(HttpError::new(HttpErrorKind::Timeout, NoAnswer(most)));
            }
            if let Some(tell) = &self.waits.0 {
                tell(waited.as_secs(), path);
            }
        }
    }

    fn client(&self) -> Result<&HttpClient, HttpError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = ReqwestConnector::default().connect(&self.options);
        let client = client.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let path = request.uri().path().to_owned();
        let endpoint = endpoint(&request);
        let is_metadata = request.uri().host() == Some(METADATA_HOST);
        let is_conditional = request.headers().contains_key(IF_ABSENT);
        let bytes = request.body().content_length();
        self.alive.sending(bytes);
        let most = self.answer_max.saturating_add(sending_time(bytes));
        let answer = self.execute(request, most, &path).await;
        if let Ok(answer) = &answer {
            self.endpoints.answered(&endpoint);
            // A caller that wants to stop must not keep waiting for an endpoint that is always busy.
            if !matches!(answer.status().as_u16(), 429 | 500..) {
                self.alive.sign();
            }
        }
        let answer = match answer {
            // Prevents retries: object_store considers this kind of failure final.
            Err(error) if is_metadata && error.kind() != HttpErrorKind::Decode => {
                Err(HttpError::new(HttpErrorKind::Unknown, error))
            }
            Err(error) if error.kind() == HttpErrorKind::Connect => {
                Err(self.endpoints.failed(&endpoint, error))
            }
            // The endpoint would answer the same until the deadline.
            Ok(answer) if is_conditional && answer.status().as_u16() == 501 => {
                Err(HttpError::new(HttpErrorKind::Unknown, Unconditional))
            }
            Ok(answer) if matches!(answer.status().as_u16(), 429 | 503) => {
                tokio::time::sleep(asked_pause(answer.headers(), Timestamp::now())).await;
                Ok(answer)
            }
            answer => Ok(answer?),
        };
        let alive = self.alive.clone();
        let patience = Patience {
            stall_max: STALL_MAX.min(self.answer_max),
            most: self.answer_max,
        };
        let answer =
            answer?.map(|body| HttpResponseBody::new(Body::new(body, patience, alive, &path)));
        let status = answer.status();
        match status.as_u16() {
            // object_store checks for this status to fall back to another protocol.
            403 if path == METADATA_TOKEN => Ok(answer),
            304 => Ok(answer),
            // object_store does not read the text of redirections.
            300..400 => Err(Refused::error(answer).await),
            _ if status.is_success() => Ok(answer),
            _ => Ok(Refused::body(answer)),
        }
    }
}

impl HttpService for Wire {
    fn call<'s, 'f>(
        &'s self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(self.answer(request))
    }
}

impl fmt::Display for Unconditional {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("501: the endpoint does not know If-None-Match")
    }
}

impl std::error::Error for Unconditional {}

impl fmt::Display for NoAnswer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "nothing came for {} s", self.0.as_secs())
    }
}

impl std::error::Error for NoAnswer {}

/// `https://host:port`
fn endpoint(request: &HttpRequest) -> String {
    let uri = request.uri();
    let scheme = uri.scheme_str().unwrap_or_default();
    let (host, port) = (uri.host().unwrap_or_default(), uri.port());
    let port = port.map_or_else(String::new, |port| format!(":{port}"));
    format!("{scheme}://{host}{port}")
}

/// Returns the pause that `Retry-After` requests, given as seconds or as a date.
fn asked_pause(headers: &HeaderMap, now: Timestamp) -> Duration {
    let asked = headers.get("retry-after");
    let asked = asked.and_then(|value| {
        let text = value.to_str().ok()?.trim();
        let until = |text| Some(rfc2822::parse(text).ok()?.timestamp());
        match text.parse() {
            Ok(secs) => Some(Duration::from_secs(secs)),
            Err(_) => until(text)?.duration_since(now).try_into().ok(),
        }
    });
    asked.unwrap_or_default().min(RETRY_AFTER_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_may_ask_for_a_pause_within_reason() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let pause = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", value.parse().unwrap());
            asked_pause(&headers, now).as_secs()
        };
        assert_eq!(asked_pause(&HeaderMap::new(), now), Duration::ZERO);
        assert_eq!(pause("2"), 2);
        assert_eq!(pause("86400"), 30);
        assert_eq!(pause("Thu, 01 Jan 1970 00:00:00 GMT"), 0);
        assert_eq!(pause("Thu, 01 Jan 2026 00:00:07 GMT"), 7);
        assert_eq!(pause("Fri, 02 Jan 2026 00:00:00 GMT"), 30);
        assert_eq!(pause("soon"), 0);
    }
}
