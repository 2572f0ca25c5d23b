//! Buckets, tested against a server whose answers the tests define.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::open::is_plain;
use crate::error::{Error, ErrorKind};
use crate::remote::testing::server::{Asked, Reply, Server, error, http, http_of_length};
use crate::remote::{Created, Options, Prune, open as open_url};

mod mistaken;

/// A secret that must never be shown; base64, like account keys of Azure.
const PLANTED: &str = "cGxhbnRlZHNlY3JldA==";

fn options(pairs: &[(&str, &str)]) -> Options {
    let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    Options {
        settings: pairs.iter().map(owned).collect(),
        deadline: Duration::ZERO,
        ..Options::default()
    }
}

fn s3(server: &Server) -> Arc<dyn Prune> {
    let pairs = [
        ("aws_endpoint_url", server.url.as_str()),
        ("aws_access_key_id", PLANTED),
        ("aws_secret_access_key", PLANTED),
        ("aws_session_token", PLANTED),
    ];
    open_url("s3://bkt/pre/fix", &options(&pairs)).unwrap()
}

/// One bucket of each service, all with the planted secret.
fn all(server: &Server) -> Vec<Arc<dyn Prune>> {
    let google = [
        ("google_base_url", server.url.as_str()),
        ("google_bearer_token", PLANTED),
    ];
    let azure = [
        ("azure_storage_endpoint", server.url.as_str()),
        ("azure_storage_account_name", "account"),
    ];
    let key = [("azure_storage_account_key", PLANTED)];
    let signature = format!("sv=2024-01-01&sp=rwdl&sig={PLANTED}");
    let signature = [("azure_storage_sas_key", signature.as_str())];
    vec![
        s3(server),
        open_url("gs://bkt/pre", &options(&google)).unwrap(),
        open_url("az://bkt", &options(&[azure.as_slice(), &key].concat())).unwrap(),
        open_url(
            "az://bkt",
            &options(&[azure.as_slice(), &signature].concat()),
        )
        .unwrap(),
    ]
}

/// Everything that is shown of an error.
fn shown(error: &Error) -> String {
    format!("{error}\n{error:?}\n{:?}", error.remedy())
}

/// Repeats the whole request in every element in which services are known to repeat it, and in others.
fn repeats(asked: &Asked) -> Reply {
    let all = format!(
        "{} {} {:?} {}",
        asked.method,
        asked.path,
        asked.headers,
        String::from_utf8_lossy(&asked.body)
    );
    let all = format!("{all} {PLANTED}").replace(['<', '>'], " ");
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><Message>of {all}</Message>\
         <Token-0>{all}</Token-0><CanonicalRequest>{all}</CanonicalRequest></Error>"
    );
    Reply::Whole(http("403 Forbidden", &[], body.as_bytes()))
}

#[test]
fn no_credential_shows_in_an_error_nor_in_debug() {
    let server = Server::start(repeats);
    for remote in all(&server) {
        let key = "packs/ab/c".to_owned();
        let mut upload = remote.upload(&key).unwrap();
        let large = Bytes::from(vec![0; 17 << 20]);
        let errors = [
            remote.get(&key).unwrap_err(),
            remote.get_ranges(&key, &[0..1, 5..6]).unwrap_err(),
            remote.size(&key).unwrap_err(),
            remote.list("packs").unwrap_err(),
            remote.put(&key, Bytes::new()).unwrap_err(),
            remote.create(&key, Bytes::new()).unwrap_err(),
            remote.delete(std::slice::from_ref(&key)).unwrap_err(),
            upload
                .write(large)
                .and_then(|()| upload.finish())
                .unwrap_err(),
        ];
        let everything = errors.iter().map(shown).collect::<String>() + &format!("{remote:?}");
        assert!(everything.contains(&remote.url()), "{everything}");
        assert!(!everything.contains(PLANTED), "{everything}");
        for error in &errors {
            assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        }
        assert!(
            everything.contains("403 Forbidden: SignatureDoesNotMatch"),
            "{everything}"
        );
    }
}

#[test]
fn a_create_that_was_tried_until_the_deadline_is_given_up() {
    let server = Server::start(|asked| match asked.number {
        0..3 => Reply::Whole(http("500 Internal Server Error", &[], b"")),
        _ => Reply::Whole(http("403 Forbidden", &[], b"")),
    });
    let remote = s3(&server);
    let key = "log/000000/00000001";
    for error in [
        remote.create(key, Bytes::new()).unwrap_err(),
        remote.get(key).unwrap_err(),
        remote.size(key).unwrap_err(),
    ] {
        assert!(error.is_given_up(), "{error:?}");
    }
    let mut settings = options(&[
        ("aws_endpoint_url", server.url.as_str()),
        ("aws_access_key_id", PLANTED),
        ("aws_secret_access_key", PLANTED),
    ]);
    settings.deadline = Duration::from_secs(3600);
    let remote = open_url("s3://bkt/pre/fix", &settings).unwrap();
    for error in [
        remote.create(key, Bytes::new()).unwrap_err(),
        remote.get(key).unwrap_err(),
    ] {
        assert!(!error.is_given_up(), "{error:?}");
    }
}

#[test]
fn a_wrong_setting_is_named_without_its_value() {
    let plain = [("aws_access_key_id", PLANTED)];
    for (name, value, why) in [
        ("aws_acces_key_id", PLANTED, "is unknown there"),
        ("aws_allow_http", PLANTED, "is not understood"),
        ("connect_timeout", PLANTED, "is not understood"),
        (
            "proxy_url",
            "http://cGxhbnRlZHNlY3JldA== x/",
            "is not understood",
        ),
        (
            "aws_endpoint_url",
            PLANTED,
            ": expected http://host or https://host",
        ),
        (
            "aws_endpoint_url",
            "http://host:99999",
            ": expected http://host",
        ),
        ("aws_endpoint_url", "http://[::1", ": expected http://host"),
        ("aws_endpoint_url", "http://ho<st", ": expected http://host"),
        (
            "aws_endpoint_url",
            "http://host ",
            ": begins or ends with a blank",
        ),
        (
            "aws_region",
            "cGxhbnRlZHNlY3JldA==\n",
            ": begins or ends with a blank",
        ),
        (
            "aws_region",
            "\u{e9}",
            ": has characters that no setting has",
        ),
        (
            "aws_session_token",
            "cGxhbnRlZ\tHNlY3JldA==",
            ": has characters",
        ),
        (
            "aws_endpoint_url",
            "http://user:cGxhbnRlZHNlY3JldA==@host",
            " must not hold credentials",
        ),
    ] {
        let pairs = [
            &plain[..],
            &[("aws_secret_access_key", PLANTED), (name, value)],
        ]
        .concat();
        let error = open_url("s3://bkt", &options(&pairs)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
        let text = shown(&error);
        assert!(
            text.contains(&format!("s3://bkt: setting {name}")),
            "{text}"
        );
        assert!(text.contains(why), "{text}");
        assert!(!text.contains(PLANTED), "{text}");
    }
    let error = open_url("s3://bkt", &options(&plain)).unwrap_err();
    assert!(
        shown(&error).contains("Missing SecretAccessKey"),
        "{error:?}"
    );
    let error = open_url(
        "gs://bkt",
        &options(&[("google_service_account_key", PLANTED)]),
    )
    .unwrap_err();
    assert!(!shown(&error).contains(PLANTED), "{error:?}");
}

#[test]
fn a_url_names_a_bucket_and_holds_no_credentials() {
    for (url, expected) in [
        ("s3://bkt", "s3://bkt"),
        ("s3://bkt/", "s3://bkt"),
        ("s3://bkt/a/b/", "s3://bkt/a/b"),
        ("s3://bkt/a b%20", "s3://bkt/a b%20"),
    ] {
        assert_eq!(open_url(url, &Options::default()).unwrap().url(), expected);
    }
    for (url, why) in [
        ("s3:bkt", "two slashes"),
        ("s3://", "the name of a bucket"),
        ("s3:///x", "the name of a bucket"),
        ("s3://bkt//x", "is no path"),
        (
            "s3://user:cGxhbnRlZHNlY3JldA==@bkt/x",
            "must not hold credentials",
        ),
        ("az://bkt/x?sig=cGxhbnRlZHNlY3JldA==", "neither a query"),
    ] {
        let error = open_url(url, &Options::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
        let text = shown(&error);
        assert!(text.contains(why) && !text.contains(PLANTED), "{text}");
    }
}

#[test]
fn a_failure_says_what_to_do_next() {
    for (status, code, kind, hint) in [
        (
            "400 Bad Request",
            "ExpiredToken",
            ErrorKind::Denied,
            "have expired",
        ),
        (
            "403 Forbidden",
            "ExpiredToken",
            ErrorKind::Denied,
            "have expired",
        ),
        (
            "403 Forbidden",
            "InvalidAccessKeyId",
            ErrorKind::Denied,
            "no credentials of this endpoint",
        ),
        (
            "403 Forbidden",
            "AccessDenied",
            ErrorKind::Denied,
            "what the credentials permit",
        ),
        (
            "403 Forbidden",
            "RequestTimeTooSkewed",
            ErrorKind::Denied,
            "clock",
        ),
        (
            "404 Not Found",
            "NoSuchBucket",
            ErrorKind::Unavailable,
            "make the bucket",
        ),
        (
            "301 Moved Permanently",
            "PermanentRedirect",
            ErrorKind::InvalidInput,
            "set the region",
        ),
        (
            "400 Bad Request",
            "AuthorizationHeaderMalformed",
            ErrorKind::InvalidInput,
            "set the region",
        ),
        (
            "503 Slow Down",
            "SlowDown",
            ErrorKind::Unavailable,
            "run it again",
        ),
    ] {
        let server = Server::start(move |_| Reply::Whole(error(status, code, "because")));
        let error = s3(&server).get("log/000000/00000001").unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        assert_eq!(
            error.to_string(),
            "log/000000/00000001: cannot read from s3://bkt/pre/fix"
        );
        let remedy = error.remedy().map(ToString::to_string).unwrap_or_default();
        assert!(remedy.contains(hint), "{code}: {remedy}");
    }
    let server = Server::start(|_| Reply::Whole(error("404 Not Found", "NoSuchKey", "no")));
    let missing = s3(&server).get("format").unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

/// A port of the loopback interface on which nothing listens.
fn nobody() -> std::net::SocketAddr {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    gone.local_addr().unwrap()
}

/// The error of `get` from an endpoint, with retries until `deadline`.
fn get_at(endpoint: &str, deadline: Duration) -> Error {
    let pairs = [
        ("endpoint", endpoint),
        ("access_key_id", "a"),
        ("secret_access_key", "b"),
    ];
    let options = Options {
        deadline,
        ..options(&pairs)
    };
    let remote = open_url("s3://bkt", &options).unwrap();
    remote.get("format").unwrap_err()
}

#[test]
fn an_endpoint_that_nobody_listens_at_is_not_reachable() {
    let url = format!("http://{}", nobody());
    let error = get_at(&url, Duration::ZERO);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = shown(&error);
    let expected = format!("no connection to {url}: Connection refused (os error 111)\n");
    assert!(text.contains(&expected), "{text}");
    assert!(text.contains("check the setting of the endpoint"), "{text}");
}

#[test]
fn a_first_connection_is_given_up_long_before_the_deadline() {
    let refused = format!("http://{}", nobody());
    for endpoint in [refused.as_str(), "http://no-such-host.invalid"] {
        // Retrying until the deadline would take an hour.
        let error = get_at(endpoint, Duration::from_secs(3600));
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = shown(&error);
        assert!(
            text.contains(&format!("no connection to {endpoint}: ")),
            "{text}"
        );
        assert!(text.contains(" s, and no server responded"), "{text}");
        assert!(text.contains("check the setting of the endpoint"), "{text}");
    }
}

#[test]
fn an_endpoint_that_answered_once_is_tried_until_the_deadline() {
    let address = nobody();
    let listener = std::net::TcpListener::bind(address).unwrap();
    let serving = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        let _asked = stream.read(&mut [0; 4096]).unwrap();
        let answer = http("404 Not Found", &["connection: close"], b"");
        stream.write_all(&answer).unwrap();
    });
    let endpoint = format!("http://{address}");
    let remote = unsigned(&endpoint, 4);
    assert_eq!(
        remote.get("format").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    serving.join().unwrap();
    let text = shown(&remote.get("format").unwrap_err());
    assert!(text.contains("no connection to "), "{text}");
    assert!(!text.contains("no server responded"), "{text}");
}

#[test]
fn a_create_asks_for_absence_and_knows_both_refusals() {
    let server = Server::start(|asked| {
        Reply::Whole(match (asked.method.as_str(), asked.path.as_str()) {
            ("PUT", "/bkt/pre/fix/new") => http("200 OK", &["etag: \"a\""], b""),
            ("PUT", "/bkt/pre/fix/there") => {
                error("412 Precondition Failed", "PreconditionFailed", "")
            }
            ("PUT", _) => error("409 Conflict", "ConditionalRequestConflict", ""),
            ("HEAD", "/bkt/pre/fix/there-now") => http(
                "200 OK",
                &[
                    "etag: \"a\"",
                    "last-modified: Thu, 01 Jan 1970 00:00:00 GMT",
                ],
                b"",
            ),
            _ => http("404 Not Found", &[], b""),
        })
    });
    let remote = s3(&server);
    let create = |key: &str| remote.create(key, Bytes::from_static(b"x"));
    assert_eq!(create("new").unwrap(), Created::Created);
    assert_eq!(create("there").unwrap(), Created::Exists);
    assert_eq!(create("there-now").unwrap(), Created::Exists);
    assert_eq!(
        create("nobody-won").unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    let puts = server
        .asked()
        .into_iter()
        .filter(|asked| asked.method == "PUT");
    for put in puts {
        let condition = "if-none-match: *".to_owned();
        assert!(put.headers.contains(&condition), "{put:?}");
    }
}

#[test]
fn a_body_that_is_cut_short_is_read_on() {
    let server = Server::start(|asked| {
        let dated = [
            "etag: \"a\"",
            "last-modified: Thu, 01 Jan 1970 00:00:00 GMT",
        ];
        if asked.number == 0 {
            return Reply::Cut(http_of_length("200 OK", &dated, 8, b"abcd"));
        }
        assert!(
            asked.headers.contains(&"range: bytes=4-7".to_owned()),
            "{asked:?}"
        );
        let rest = [&dated[..], &["content-range: bytes 4-7/8"]].concat();
        Reply::Whole(http("206 Partial Content", &rest, b"efgh"))
    });
    let remote = unsigned(&server.url, 60);
    assert_eq!(remote.get("key").unwrap(), "abcdefgh");
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn an_endpoint_that_is_busy_or_goes_away_is_asked_again() {
    let server = Server::start(|asked| match asked.number {
        0 => Reply::Whole(http("503 Slow Down", &["retry-after: 0"], b"")),
        1 => Reply::Whole(http("429 Too Many Requests", &[], b"")),
        2 => Reply::Cut(Vec::new()),
        _ => Reply::Whole(http("200 OK", &["etag: \"a\""], b"")),
    });
    let remote = unsigned(&server.url, 60);
    remote.put("key", Bytes::from_static(b"x")).unwrap();
    assert_eq!(server.asked().len(), 4);
}

/// A bucket at `endpoint` without credentials, whose requests are retried for this many seconds.
fn unsigned(endpoint: &str, deadline_secs: u64) -> Arc<dyn Prune> {
    let pairs = [("endpoint", endpoint), ("skip_signature", "true")];
    let options = Options {
        deadline: Duration::from_secs(deadline_secs),
        ..options(&pairs)
    };
    open_url("s3://bkt", &options).unwrap()
}
