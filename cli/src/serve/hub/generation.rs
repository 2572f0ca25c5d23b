//! Generations of `huggingface_hub`, by what they say of themselves in User-Agent: what each needs to hear.

use hyper::Method;
use hyper::StatusCode;
use hyper::header::{RETRY_AFTER, USER_AGENT};
use hyper::http::request::Parts;

use crate::serve::answer::Answer;

/// From this version on, a client does not repeat the request for a file after 503, but after 429.
const FILES_AFTER_429: (u32, u32) = (1, 0);

/// The version of the library in a User-Agent, and what comes before it there.
pub(super) fn version(agent: &str) -> Option<(&str, (u32, u32))> {
    let (before, rest) = agent.split_once("hf_hub/")?;
    let mut numbers = rest
        .split(['.', ';', ' '])
        .map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next()?, numbers.next().unwrap_or(0));
    Some((before, version))
}

/// The answer, with the status after which this client asks for a file again if it is to ask again.
pub(super) fn suited(head: &Parts, answer: Answer) -> Answer {
    let is_for_later = answer.status == StatusCode::SERVICE_UNAVAILABLE
        && answer.headers.contains_key(RETRY_AFTER);
    let is_file = head.method == Method::GET && head.uri.path().contains("/resolve/");
    let agent = head.headers.get(USER_AGENT);
    let agent = agent.and_then(|agent| agent.to_str().ok());
    let version = agent.and_then(version).map(|(_, version)| version);
    match is_for_later && is_file && version >= Some(FILES_AFTER_429) {
        true => Answer {
            status: StatusCode::TOO_MANY_REQUESTS,
            ..answer
        },
        false => answer,
    }
}
