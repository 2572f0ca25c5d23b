//! Servers that are silent, do not support conditions or speak another protocol, and the errors for each.

use super::*;
use crate::remedy::Remedy;

const LAST_MODIFIED: &str = "last-modified: Thu, 01 Jan 1970 00:00:00 GMT";

/// A server that accepts requests and never answers.
fn silent() -> Server {
    Server::start(|_| {
        std::thread::sleep(Duration::from_secs(3600));
        Reply::Cut(Vec::new())
    })
}

#[test]
fn a_server_that_never_answers_is_not_waited_for_longer_than_the_deadline() {
    let server = silent();
    let remote = unsigned(&server.url, 1);
    let error = remote.get("log/1").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        format!("{error:?}").contains("nothing came for 5 s"),
        "{error:?}"
    );
    assert!(server.asked().len() < 3, "{:?}", server.asked());
}

#[test]
fn who_is_asked_to_stop_does_not_wait_for_a_server_that_is_silent() {
    let server = silent();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let options = Options {
        deadline: Duration::from_secs(3600),
        stop: Arc::clone(&stop),
        ..options(&[("endpoint", &server.url), ("skip_signature", "true")])
    };
    let remote = open_url("s3://bkt", &options).unwrap();
    let asking = std::thread::spawn(move || {
        let mut upload = remote.upload("packs/ab/c").unwrap();
        let large = Bytes::from(vec![0; 17 << 20]);
        [
            remote.get("log/1").unwrap_err(),
            remote.get_run(&["log/1".to_owned()]).unwrap_err(),
            remote.list("log").unwrap_err(),
            remote.create("log/2", Bytes::new()).unwrap_err(),
            upload
                .write(large)
                .and_then(|()| upload.finish())
                .unwrap_err(),
        ]
    });
    while server.asked().is_empty() {
        std::thread::yield_now();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for error in asking.join().unwrap() {
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{error:?}");
        assert!(
            error
                .to_string()
                .contains("stopped on request, while s3://bkt"),
            "{error}"
        );
    }
}

#[test]
fn a_server_that_answers_is_waited_for_also_by_who_is_asked_to_stop() {
    let server = Server::start(|_| Reply::Whole(http("200 OK", &["etag: \"a\""], b"")));
    let options = Options {
        stop: Arc::new(std::sync::atomic::AtomicBool::new(true)),
        ..options(&[("endpoint", &server.url), ("skip_signature", "true")])
    };
    let remote = open_url("s3://bkt", &options).unwrap();
    for _ in 0..3 {
        remote.put("key", Bytes::from_static(b"x")).unwrap();
    }
}

#[test]
fn whoever_answers_and_is_no_object_store_is_told_so() {
    type Answer = fn(&Asked) -> Reply;
    let answers: [(&str, Answer); 4] = [
        ("a page", |_| {
            let headers = ["content-type: text/html", "etag: \"a\"", LAST_MODIFIED];
            let page = b"\n<!DOCTYPE html><html><title>Log in</title></html>";
            Reply::Whole(http("200 OK", &headers, page))
        }),
        ("a page without what objects have", |_| {
            Reply::Whole(http("200 OK", &[], b"<HTML>log in</HTML>"))
        }),
        ("501", |_| {
            Reply::Whole(http("501 Not Implemented", &[], b""))
        }),
        ("a way in circles", |asked| {
            let host = asked
                .headers
                .iter()
                .find_map(|line| line.strip_prefix("host: "));
            let location = format!("location: http://{}{}", host.unwrap(), asked.path);
            Reply::Whole(http("302 Found", &[&location], b""))
        }),
    ];
    for (what, answer) in answers {
        let server = Server::start(answer);
        let remote = unsigned(&server.url, 0);
        let keys = ["log/000000/00000001".to_owned()];
        for error in [
            remote.get("format").unwrap_err(),
            remote.get_run(&keys).unwrap_err(),
        ] {
            assert!(!error.is_damage() || what == "501", "{what}: {error:?}");
            let hint = error.remedy().unwrap().to_string();
            assert!(
                hint.starts_with("this is no object store"),
                "{what}: {error:?}"
            );
        }
    }
    let server = Server::start(|_| Reply::Whole(http("200 OK", &[], b"<html>")));
    let error = crate::remote::keeps_first(unsigned(&server.url, 0).as_ref()).unwrap_err();
    let hint = error.remedy().unwrap().to_string();
    assert!(hint.starts_with("this is no object store"), "{error:?}");
}

#[test]
fn an_endpoint_that_does_not_know_conditions_is_told_so_once() {
    let server = Server::start(|asked| {
        let is_conditional = asked
            .headers
            .iter()
            .any(|line| line.starts_with("if-none-match"));
        Reply::Whole(match (asked.method.as_str(), is_conditional) {
            ("PUT", true) => error("501 Not Implemented", "NotImplemented", "A header"),
            ("HEAD", _) => http("404 Not Found", &[], b""),
            ("GET", _) => http(
                "200 OK",
                &[
                    "etag: \"a\"",
                    "last-modified: Thu, 01 Jan 1970 00:00:00 GMT",
                ],
                b"abc",
            ),
            _ => http("200 OK", &["etag: \"a\""], b""),
        })
    });
    let remote = unsigned(&server.url, 3600);
    let refused = remote
        .create("log/1", Bytes::from_static(b"abc"))
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!(refused.remedy(), Some(&Remedy::SingleWriter), "{refused:?}");
    assert_eq!(server.asked().len(), 1);
    assert!(!crate::remote::keeps_first(remote.as_ref()).unwrap());
    remote.touch("uses/x").unwrap();
    let single = crate::remote::SingleWriter(remote);
    let created = crate::remote::Write::create(&single, "log/1", Bytes::from_static(b"abc"));
    assert_eq!(created.unwrap(), Created::Created);
}

#[test]
fn tls_spoken_to_who_does_not_speak_it_is_found_out_and_the_other_way_round() {
    let plain = Server::start(|_| Reply::Whole(http("400 Bad Request", &[], b"")));
    let remote = unsigned(&plain.url.replace("http:", "https:"), 3600);
    let error = remote.get("log/1").unwrap_err();
    assert!(
        error
            .remedy()
            .unwrap()
            .to_string()
            .starts_with("does it speak http:// there?"),
        "{error:?}"
    );
    assert!(
        format!("{error:?}").contains("nothing there speaks TLS"),
        "{error:?}"
    );
    for answer in [
        // A TLS alert.
        b"\x15\x03\x01\x00\x02\x02\x16".to_vec(),
        http(
            "400 Bad Request",
            &[],
            b"Client sent an HTTP request to an HTTPS server.\n",
        ),
    ] {
        let tls = Server::start(move |_| Reply::Cut(answer.clone()));
        let error = unsigned(&tls.url, 3600).get("log/1").unwrap_err();
        assert!(
            error
                .remedy()
                .unwrap()
                .to_string()
                .starts_with("does it speak https:// there?"),
            "{error:?}"
        );
    }
}

#[test]
fn without_its_bucket_there_is_no_store() {
    let server = Server::start(|_| Reply::Whole(error("404 Not Found", "NoSuchBucket", "no")));
    let remote = unsigned(&server.url, 0);
    let missing = remote.get("format").unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(
        missing
            .remedy()
            .unwrap()
            .to_string()
            .starts_with("make the bucket"),
        "{missing:?}"
    );
    // If a missing entry were reported as not found, the log would seem to end there.
    assert_eq!(
        remote.get("log/1").unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    let run = remote.get_run(&["log/1".to_owned()]).unwrap_err();
    assert_eq!(run.kind(), ErrorKind::Unavailable);
}

#[test]
fn what_keeps_credentials_away_is_told_as_that() {
    let server = Server::start(|asked| match asked.path.as_str() {
        "/latest/api/token" => Reply::Whole(http("404 Not Found", &[], b"")),
        path => panic!("{path}: asked without credentials"),
    });
    let pairs = [
        ("aws_metadata_endpoint", server.url.as_str()),
        ("aws_endpoint_url", server.url.as_str()),
    ];
    let remote = open_url("s3://bkt", &options(&pairs)).unwrap();
    for error in [
        remote.get("format").unwrap_err(),
        remote.list("log").unwrap_err(),
        remote.create("log/1", Bytes::new()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert_eq!(error.remedy(), Some(&Remedy::Credentials), "{error:?}");
        assert!(
            format!("{error:?}").ends_with(": 404 Not Found"),
            "{error:?}"
        );
    }
}

#[test]
fn what_a_program_prints_signs_the_requests() {
    let server = Server::start(|asked| {
        let is_signed = |line: &String| {
            line.starts_with("authorization: AWS4-HMAC-SHA256 Credential=of-program/")
        };
        Reply::Whole(match asked.headers.iter().any(is_signed) {
            true => http("200 OK", &["etag: \"a\""], b""),
            false => error("403 Forbidden", "AccessDenied", "no"),
        })
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("printed");
    let opened = || {
        let command = format!("cat {}", file.display());
        let options = Options {
            credential_process: Some(command),
            ..options(&[("endpoint", &server.url)])
        };
        open_url("s3://bkt", &options).unwrap()
    };
    let failed = opened().put("key", Bytes::new()).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Denied, "{failed:?}");
    assert_eq!(failed.remedy(), Some(&Remedy::Credentials), "{failed:?}");
    assert!(
        format!("{failed:?}").contains("credential_process exit status: 1: cat: "),
        "{failed:?}"
    );
    let printed =
        format!(r#"{{"Version": 1, "AccessKeyId": "of-program", "SecretAccessKey": "{PLANTED}"}}"#);
    std::fs::write(&file, printed).unwrap();
    opened().put("key", Bytes::new()).unwrap();
}

#[test]
fn plain_http_is_spoken_only_where_the_endpoint_says_so() {
    let server = Server::start(|asked| match asked.path.as_str() {
        "/elsewhere" => Reply::Whole(http("200 OK", &["etag: \"a\""], b"of somebody else")),
        _ => Reply::Whole(http("200 OK", &[], b"")),
    });
    // A plain endpoint of another service does not permit plain HTTP to the bucket.
    for (name, value) in [
        ("aws_metadata_endpoint", server.url.as_str()),
        ("aws_endpoint_url", "https://127.0.0.1:1"),
    ] {
        assert!(!is_plain(name, value), "{name}");
    }
    assert!(is_plain("endpoint", &server.url));
    let pairs = [
        ("aws_metadata_endpoint", server.url.as_str()),
        ("aws_access_key_id", PLANTED),
        ("aws_secret_access_key", PLANTED),
        ("aws_virtual_hosted_style_request", "false"),
        ("aws_endpoint_url", "https://127.0.0.1:1"),
    ];
    let remote = open_url("s3://bkt", &options(&pairs)).unwrap();
    assert_eq!(
        remote.get("key").unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    assert!(server.asked().is_empty(), "{:?}", server.asked());
}
