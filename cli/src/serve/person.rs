//! Requests of people, who look with a browser. A browser asks for a token in a dialog, and sends it as a password.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{ACCEPT, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use store::Result;

use crate::serve::answer::Answer;
use crate::serve::tokens::{self, Caller, Tokens};

/// Makes a browser ask for a token.
const CHALLENGE: &str =
    "Basic realm=\"store: any name, and a token as the password\", charset=\"UTF-8\"";

/// Whether a request is of a person who looks at pages.
pub(crate) fn is_looking(head: &Parts) -> bool {
    let accepted = head.headers.get(ACCEPT);
    let accepted = accepted.and_then(|accepted| accepted.to_str().ok());
    [Method::GET, Method::HEAD].contains(&head.method)
        && accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

/// The caller, by a password or as programs send a token. A browser adds the password to whatever it sends here, also
/// when another site makes it do so; so it counts only where a page is read.
///
/// # Errors
/// If the tokens cannot be read.
pub(crate) fn caller(tokens: &Tokens, head: &Parts) -> Result<Caller> {
    let authorization = tokens::authorization(head);
    let typed = authorization
        .and_then(|text| text.strip_prefix("Basic "))
        .map(|text| format!("Bearer {}", password(text).unwrap_or_default()));
    tokens.caller(typed.as_deref().or(authorization))
}

/// Makes a browser ask for a token, where the answer is that one is needed.
pub(crate) fn challenged(answer: Answer) -> Answer {
    match answer.status {
        StatusCode::UNAUTHORIZED => answer.with(WWW_AUTHENTICATE, CHALLENGE),
        _ => answer,
    }
}

/// The password in `NAME:PASSWORD`.
fn password(encoded: &str) -> Option<String> {
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    text.split_once(':')
        .map(|(_, password)| password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_what_stands_behind_the_first_colon() {
        assert_eq!(password(&STANDARD.encode("me:a:b")).as_deref(), Some("a:b"));
        for none in [
            "",
            "%%%",
            &STANDARD.encode("nothing"),
            &STANDARD.encode([0xff, b':']),
        ] {
            assert_eq!(password(none), None, "{none}");
        }
    }
}
