//! The S3 door's answers to requests made by hand: objects, errors, attacks, and access control.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use support::{TestEnvironment, check, environment};

use crate::server::{Answer, Connection, Server};

pub(crate) const OPEN: [&str; 2] = ["--s3-listen", "127.0.0.1:0"];
pub(crate) const ID: &str = "AKIAIOSFODNN7EXAMPLE";
pub(crate) const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

/// Sends a request to the S3 door.
pub(crate) fn ask(server: &Server, request: &str) -> Answer {
    Connection::open(server.s3_address()).ask(request)
}

/// The texts of all elements with this name.
pub(crate) fn texts(answer: &Answer, name: &str) -> Vec<String> {
    let text = String::from_utf8(answer.body.clone()).unwrap();
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let parts = text.split(&open).skip(1);
    parts
        .map(|part| part.split(&close).next().unwrap().to_owned())
        .collect()
}

/// The status and the error code.
fn fault(answer: &Answer) -> (u16, String) {
    (answer.status, texts(answer, "Code").concat())
}

fn expected(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

/// A server with keys for the namespaces that match `globs`.
pub(crate) fn with_keys(env: &TestEnvironment, globs: &str) -> Server {
    let keys = env.write(
        "keys",
        format!("[[key]]\nid = \"{ID}\"\nsecret = \"{SECRET}\"\nnamespaces = {globs}\n"),
    );
    fs::set_permissions(keys, fs::Permissions::from_mode(0o600)).unwrap();
    Server::start(env, &[OPEN[0], OPEN[1], "--s3-keys", "keys"])
}

fn put(env: &TestEnvironment) {
    let file = env.write("in/a/b.txt", "0123456789");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = fs::File::options().write(true).open(file).unwrap();
    file.set_modified(time).unwrap();
    env.write("in/a/empty", "");
    symlink("a/b.txt", env.path("in/link")).unwrap();
    symlink("../secret.txt", env.path("in/out")).unwrap();
    symlink("link2", env.path("in/link2")).unwrap();
    env.write("secret.txt", "outside");
    env.ok(["put", "in", "project/demo/data"]);
    env.ok(["put", "in", "project/other/private"]);
}

#[test]
fn a_file_is_an_object_whole_or_in_part() {
    let env = environment!();
    put(&env);
    let server = Server::start(&env, &OPEN);
    let path = "/project.demo/data/a/b.txt";
    let whole = ask(&server, &format!("GET {path}"));
    assert_eq!(
        (whole.status, whole.body.as_slice()),
        (200, &b"0123456789"[..])
    );
    let etag = whole.header("etag").unwrap().to_owned();
    assert!(
        etag.len() > 66 && etag.starts_with('"') && etag.ends_with("-0\""),
        "{etag}"
    );
    assert_eq!(
        whole.header("last-modified"),
        Some("Sun, 09 Sep 2001 01:46:40 GMT")
    );
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    assert_eq!(whole.header("content-type"), Some("binary/octet-stream"));
    for same in [
        "/project.demo/data/link",
        "/project.demo/data@1/a/b.txt",
        "/project.demo/data/a%2Fb.txt",
    ] {
        let answer = ask(&server, &format!("GET {same}"));
        assert_eq!(
            (&answer.body, answer.header("etag")),
            (&whole.body, Some(&*etag)),
            "{same}"
        );
    }
    for (range, bytes, told) in [
        ("bytes=2-4", &b"234"[..], "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=0-99", b"0123456789", "bytes 0-9/10"),
    ] {
        let part = ask(&server, &format!("GET {path}\nRange: {range}"));
        assert_eq!((part.status, part.body.as_slice()), (206, bytes), "{range}");
        assert_eq!(part.header("content-range"), Some(told));
    }
    let head = ask(&server, &format!("HEAD {path}"));
    for (known, status) in [
        (head.header("etag").unwrap(), 206),
        (head.header("last-modified").unwrap(), 206),
        ("\"other\"", 200),
        ("Thu, 01 Jan 1970 00:01:39 GMT", 200),
    ] {
        let words = format!("GET {path}\nRange: bytes=0-1\nIf-Range: {known}");
        assert_eq!(ask(&server, &words).status, status, "{known}");
    }
    let none = ask(&server, &format!("GET {path}\nRange: bytes=10-"));
    assert_eq!(fault(&none), expected(416, "InvalidRange"));
    assert_eq!(texts(&none, "ActualObjectSize"), ["10"]);
    assert_eq!(none.header("content-range"), Some("bytes */10"));
    let head = ask(&server, &format!("HEAD {path}"));
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("10"))
    );
    assert_eq!(head.header("etag"), Some(&*etag));
    let empty = ask(&server, "GET /project.demo/data/a/empty");
    assert_eq!((empty.status, empty.body.len()), (200, 0));
}

#[test]
fn a_file_is_sent_if_what_is_asked_holds() {
    let env = environment!();
    put(&env);
    let server = Server::start(&env, &OPEN);
    let path = "/project.demo/data/a/b.txt";
    let head = ask(&server, &format!("HEAD {path}"));
    let etag = head.header("etag").unwrap();
    for (condition, status) in [
        (format!("If-Match: {etag}"), 200),
        ("If-Match: \"x\"".to_owned(), 412),
        (format!("If-None-Match: {etag}"), 304),
        ("If-None-Match: \"x\"".to_owned(), 200),
        (
            "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT".to_owned(),
            304,
        ),
        (
            "If-Modified-Since: Sun, 09 Sep 2001 01:46:41 GMT".to_owned(),
            200,
        ),
        (
            "If-Unmodified-Since: Sun, 09 Sep 2001 01:46:40 GMT".to_owned(),
            200,
        ),
        (
            "If-Unmodified-Since: Sun, 09 Sep 2001 01:46:39 GMT".to_owned(),
            412,
        ),
    ] {
        let answer = ask(&server, &format!("GET {path}\n{condition}"));
        assert_eq!(answer.status, status, "{condition}");
        assert_eq!(answer.body.is_empty(), status == 304, "{condition}");
    }
    let query =
        "response-content-type=text/html&response-content-disposition=attachment%3B%20filename%3Dx";
    let other = ask(&server, &format!("GET {path}?{query}"));
    assert_eq!(other.header("content-type"), Some("text/html"));
    assert_eq!(
        other.header("content-disposition"),
        Some("attachment; filename=x")
    );
    let bad = ask(&server, &format!("GET {path}?response-expires=a%0Ab"));
    assert_eq!(fault(&bad), expected(400, "InvalidArgument"));
    let part = ask(&server, &format!("GET {path}?partNumber=1"));
    assert_eq!((part.status, part.body.len()), (206, 10));
    for (query, code) in [
        ("partNumber=2", (416, "InvalidPartNumber")),
        ("partNumber=0", (400, "InvalidArgument")),
        ("versionId=1", (400, "InvalidArgument")),
        ("acl", (501, "NotImplemented")),
    ] {
        let answer = ask(&server, &format!("GET {path}?{query}"));
        assert_eq!(fault(&answer), expected(code.0, code.1), "{query}");
    }
    let both = ask(
        &server,
        &format!("GET {path}?partNumber=1\nRange: bytes=0-1"),
    );
    assert_eq!(fault(&both), expected(400, "InvalidRequest"));
}

#[test]
fn an_etag_is_that_of_the_bytes() {
    let env = environment!();
    env.write("one/a", "same");
    env.write("two/b/c", "same");
    env.write("two/d", "another");
    env.ok(["put", "one", "project/demo/one"]);
    env.ok(["put", "two", "team/t/two"]);
    let server = Server::start(&env, &OPEN);
    let etag = |path: &str| {
        let answer = ask(&server, &format!("HEAD {path}"));
        answer.header("etag").unwrap().to_owned()
    };
    assert_eq!(etag("/project.demo/one/a"), etag("/team.t/two/b/c"));
    assert_ne!(etag("/project.demo/one/a"), etag("/team.t/two/d"));
}

#[test]
fn a_version_is_part_of_the_key() {
    let env = environment!();
    env.write("in/x", "first");
    env.ok(["put", "in", "project/demo/data"]);
    env.write("in/x", "second");
    env.ok(["put", "in", "project/demo/data"]);
    let server = Server::start(&env, &OPEN);
    let body = |key: &str| ask(&server, &format!("GET /project.demo/{key}")).body;
    assert_eq!(body("data/x"), b"second");
    assert_eq!(
        (body("data@1/x"), body("data@2/x")),
        (b"first".to_vec(), b"second".to_vec())
    );
    for none in [
        "data@3/x",
        "data@0/x",
        "data@/x",
        "data@01/x",
        "data@x/x",
        "none@1/x",
        "data@1:x",
        "data:x",
    ] {
        let answer = ask(&server, &format!("GET /project.demo/{none}"));
        assert_eq!(fault(&answer), expected(404, "NoSuchKey"), "{none}");
    }
    // A running server sees new versions.
    env.write("in/x", "third");
    env.ok(["put", "in", "project/demo/data"]);
    assert_eq!(body("data/x"), b"third");
}

#[test]
fn what_is_not_there_and_what_writes_is_refused() {
    let env = environment!();
    put(&env);
    let server = Server::start(&env, &OPEN);
    for (request, status, code) in [
        ("GET /project.none/x", 404, "NoSuchBucket"),
        ("GET /project.none", 404, "NoSuchBucket"),
        ("GET /nobucket/x", 404, "NoSuchBucket"),
        ("GET /project.demo/none", 404, "NoSuchKey"),
        ("GET /project.demo/data", 404, "NoSuchKey"),
        ("GET /project.demo/data/", 404, "NoSuchKey"),
        ("GET /project.demo/data/a/", 404, "NoSuchKey"),
        ("GET /project.demo/data/a/b.txt/c", 404, "NoSuchKey"),
        ("GET /project.demo/data/out", 404, "NoSuchKey"),
        ("GET /project.demo/data/link2", 404, "NoSuchKey"),
        ("GET /project.demo?uploads", 501, "NotImplemented"),
        ("GET /project.demo?max-keys=x", 400, "InvalidArgument"),
        ("PUT /project.demo/data/new", 403, "AccessDenied"),
        ("POST /project.demo/data/new?uploads", 403, "AccessDenied"),
        ("POST /project.demo?delete", 403, "AccessDenied"),
        ("DELETE /project.demo/data/a/b.txt", 403, "AccessDenied"),
        ("PUT /project.new", 403, "AccessDenied"),
        ("DELETE /project.demo", 403, "AccessDenied"),
        ("PATCH /project.demo/data/new", 405, "MethodNotAllowed"),
        ("OPTIONS /", 405, "MethodNotAllowed"),
    ] {
        let answer = ask(&server, request);
        assert_eq!(fault(&answer), expected(status, code), "{request}");
        let path = request.split(' ').nth(1).unwrap();
        let path = path.split('?').next().unwrap();
        assert_eq!(texts(&answer, "Resource"), [path]);
        let id = answer.header("x-amz-request-id").unwrap();
        assert_eq!(texts(&answer, "RequestId"), [id]);
        assert_eq!(answer.header("content-type"), Some("application/xml"));
    }
    for (request, status) in [
        ("HEAD /project.demo", 200),
        ("HEAD /project.none", 404),
        ("HEAD /project.demo/none", 404),
    ] {
        let answer = ask(&server, request);
        assert_eq!(
            (answer.status, answer.header("content-length")),
            (status, Some("0"))
        );
    }
    let location = ask(&server, "GET /project.demo?location");
    assert_eq!((location.status, texts(&location, "Code").len()), (200, 0));
    let upload = Connection::open(server.s3_address())
        .ask_with("PUT /project.demo/data/new", &[b'x'; 300_000]);
    assert_eq!(upload.status, 403);
}

#[test]
fn tricks_with_paths_find_nothing() {
    let env = environment!();
    put(&env);
    let server = Server::start(&env, &OPEN);
    let deep = format!("data{}", "/a".repeat(1000));
    let long = format!("data/{}", "a".repeat(5000));
    let many = format!("data/{}b.txt", "a/../".repeat(1000));
    for key in [
        "data/../../secret.txt",
        "data/a/../a/b.txt",
        "data/./a/b.txt",
        "data//a/b.txt",
        "/data/a/b.txt",
        "data/a/b.txt/",
        "data/%2e%2e/secret.txt",
        "data/..%2f..%2fetc%2fpasswd",
        "%2e%2e/project.other/private/a/b.txt",
        "../project.other/private/a/b.txt",
        "data%252fa%252fb.txt",
        "data/a%5cb.txt",
        "data/%2fa/b.txt",
        &deep,
        &long,
        &many,
    ] {
        let answer = ask(&server, &format!("GET /project.demo/{key}"));
        assert_eq!(fault(&answer), expected(404, "NoSuchKey"), "{key}");
    }
    for path in [
        "//project.demo/data/a/b.txt",
        "/./project.demo/data/a/b.txt",
        "/project.demo%2fdata/a/b.txt",
        "/project%2fdemo/data/a/b.txt",
        "/project.demo%2f..%2fproject.other/private/a/b.txt",
        "/project.../x",
        "/..",
    ] {
        let answer = ask(&server, &format!("GET {path}"));
        assert_eq!(fault(&answer), expected(404, "NoSuchBucket"), "{path}");
    }
    for key in [
        "%00",
        "data/a%00/b.txt",
        "data/%ff",
        "data/%c0%ae%c0%ae/b.txt",
    ] {
        let answer = ask(&server, &format!("GET /project.demo/{key}"));
        assert_eq!(fault(&answer), expected(400, "InvalidURI"), "{key}");
    }
    assert_eq!(ask(&server, "GET /project.demo/data/a/b.txt").status, 200);
}

#[test]
fn who_has_no_key_or_an_old_signature_is_kept_out() {
    let env = environment!();
    put(&env);
    let server = with_keys(&env, "[\"project/demo\"]");
    let path = "/project.demo/data/a/b.txt";
    let scope = "20130524/us-east-1/s3/aws4_request";
    let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
    let signed = |id: &str| {
        format!(
            "GET {path}\nx-amz-date: 20130524T000000Z\nx-amz-content-sha256: UNSIGNED-PAYLOAD\n\
             Authorization: AWS4-HMAC-SHA256 Credential={id}/{scope},\
             SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature={signature}"
        )
    };
    let credential = format!("{ID}/{scope}").replace('/', "%2F");
    let url = format!(
        "GET {path}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date=20130524T000000Z\
         &X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature={signature}"
    );
    for (request, status, code) in [
        (format!("GET {path}"), 403, "AccessDenied"),
        ("GET /".to_owned(), 403, "AccessDenied"),
        ("GET /project.none".to_owned(), 403, "AccessDenied"),
        (signed(ID), 403, "RequestTimeTooSkewed"),
        (signed("nobody"), 403, "InvalidAccessKeyId"),
        (url, 403, "AccessDenied"),
        (
            format!("GET {path}\nAuthorization: AWS {ID}:c2lnbmF0dXJl"),
            400,
            "InvalidRequest",
        ),
        (
            format!("GET {path}\nAuthorization: AWS4-HMAC-SHA256 x"),
            400,
            "AuthorizationHeaderMalformed",
        ),
    ] {
        let answer = ask(&server, &request);
        assert_eq!(fault(&answer), expected(status, code), "{request}");
    }
    assert_eq!(server.stop(), Some(0));
    let log = fs::read_to_string(env.path("log")).unwrap();
    assert_eq!(log.lines().count(), 8, "{log}");
    assert!(!log.contains(SECRET) && !log.contains(signature), "{log}");
}

#[test]
fn keys_are_for_their_owner_and_a_door_without_keys_for_this_host() {
    let env = environment!();
    env.ok(["init"]);
    check!(env, env.store(["serve", "--s3-listen", "0.0.0.0:0"]), @"
    exit code: 1
    --- stdout
    --- stderr
    error: 0.0.0.0:0: others would reach the store there, and there are no --s3-keys
    hint: say with --s3-keys FILE who may read what: `store help doors`
    ");
    env.ok([
        "token",
        "add",
        "ci",
        "--role",
        "read",
        "--namespace",
        "project/demo",
    ]);
    check!(env, env.store(["serve", "--s3-listen", "127.0.0.1:0"]), @"
    exit code: 1
    --- stdout
    --- stderr
    error: 127.0.0.1:0: there are tokens, and without --s3-keys everybody on this host would be let in
    hint: say with --s3-keys FILE who may read what: `store help doors`
    ");
    let keys = env.write("keys", "[[key]]\nid = 5\nsecret = \"hidden\"\n");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o640)).unwrap();
    let serve = ["serve", "--s3-listen", "127.0.0.1:0", "--s3-keys", "keys"];
    check!(env, env.store(serve), @"
    exit code: 1
    --- stdout
    --- stderr
    error: keys: its mode is 640, and it holds secrets
    hint: chmod 600 keys, and change the secrets if others were there
    ");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
    check!(env, env.store(serve), @r#"
    exit code: 2
    --- stdout
    --- stderr
    error: keys in keys: line 2: expected tables [[key]] with id, secret and namespaces, and no more
    hint: the file holds tables like [[key]] id = "trainer" secret = "..." namespaces = ["project/llama-*"], each on lines of its own
    "#);
    check!(env, env.store(["serve", "--s3-keys", "keys"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: the following required arguments were not provided:
      --s3-listen <ADDRESS>

    Usage: store serve --s3-listen <ADDRESS> --s3-keys <FILE>

    For more information, try '--help'.
    ");
}
