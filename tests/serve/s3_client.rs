//! The S3 door with an unmodified client that signs its requests: that of object_store.

use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, RetryConfig,
};
use support::{Random, TestEnvironment, environment};

use crate::s3::{ID, SECRET, with_keys};
use crate::server::{Connection, Server};

fn client(server: &Server, bucket: &str, secret: &str) -> AmazonS3 {
    // Another test may have installed it first.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    AmazonS3Builder::new()
        .with_endpoint(format!("http://{}", server.s3_address()))
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_retry(RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        })
        .with_region("eu-central-1")
        .with_bucket_name(bucket)
        .with_access_key_id(ID)
        .with_secret_access_key(secret)
        .build()
        .unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn put(env: &TestEnvironment) -> Vec<u8> {
    let bytes = Random::new(5).bytes(3_000_000);
    env.write("in/large file+x.bin", &bytes);
    env.write("in/a/1", "one");
    env.write("in/a/2/x", "two");
    env.write("in/a-b", "three");
    env.ok(["put", "in", "project/demo/data"]);
    env.ok(["put", "in", "project/other/private"]);
    bytes
}

#[test]
fn a_client_that_signs_reads_what_its_key_is_for() {
    let env = environment!();
    let bytes = put(&env);
    let server = with_keys(&env, "[\"project/demo\"]");
    let demo = client(&server, "project.demo", SECRET);
    runtime().block_on(async {
        let path = Path::from("data/large file+x.bin");
        let got = demo.get(&path).await.unwrap();
        let meta = got.meta.clone();
        assert!(got.bytes().await.unwrap() == bytes);
        assert_eq!(meta.size, bytes.len() as u64);
        let head = demo.head(&path).await.unwrap();
        assert_eq!(
            (&head.e_tag, head.last_modified),
            (&meta.e_tag, meta.last_modified)
        );
        let part = demo.get_range(&path, 1_000_000..2_000_001).await.unwrap();
        assert!(part == bytes[1_000_000..2_000_001]);
        let with = |range, if_match: Option<&str>, if_none_match: Option<String>| GetOptions {
            range,
            if_match: if_match.map(str::to_owned),
            if_none_match,
            ..GetOptions::default()
        };
        let tail = demo.get_opts(&path, with(Some(GetRange::Suffix(5)), None, None));
        let tail = tail.await.unwrap().bytes().await.unwrap();
        assert!(tail == bytes[bytes.len() - 5..]);
        let other = demo.get_opts(&path, with(None, Some("\"x\""), None)).await;
        assert!(
            matches!(other, Err(Error::Precondition { .. })),
            "{other:?}"
        );
        let same = demo.get_opts(&path, with(None, None, meta.e_tag)).await;
        assert!(matches!(same, Err(Error::NotModified { .. })), "{same:?}");

        let names = |all: &[object_store::ObjectMeta]| -> Vec<String> {
            all.iter().map(|one| one.location.to_string()).collect()
        };
        let prefix = Path::from("data");
        let top = demo.list_with_delimiter(Some(&prefix)).await.unwrap();
        assert_eq!(top.common_prefixes, [Path::from("data/a")]);
        assert_eq!(names(&top.objects), ["data/a-b", "data/large file+x.bin"]);
        let all: Vec<_> = demo.list(None).try_collect().await.unwrap();
        assert_eq!(
            names(&all),
            [
                "data/a-b",
                "data/a/1",
                "data/a/2/x",
                "data/large file+x.bin"
            ]
        );
        let rest = demo.list_with_offset(None, &Path::from("data/a/1"));
        let rest: Vec<_> = rest.try_collect().await.unwrap();
        assert_eq!(names(&rest), ["data/a/2/x", "data/large file+x.bin"]);

        let missing = demo.get(&Path::from("data/none")).await;
        assert!(
            matches!(missing, Err(Error::NotFound { .. })),
            "{missing:?}"
        );
        let written = demo.put(&Path::from("data/new"), "x".into()).await;
        assert!(
            matches!(written, Err(Error::PermissionDenied { .. })),
            "{written:?}"
        );
    });
}

#[test]
fn another_namespace_answers_as_if_it_did_not_exist() {
    let env = environment!();
    put(&env);
    let server = with_keys(&env, "[\"project/demo\"]");
    let texts = |bucket: &str| {
        let client = client(&server, bucket, SECRET);
        runtime().block_on(async {
            let path = Path::from("private/a/1");
            let url = client.signed_url("GET".parse().unwrap(), &path, Duration::from_secs(60));
            get(&server, url.await.unwrap().as_str())
        })
    };
    let [theirs, nobodys] = ["project.other", "project.nobody"].map(texts);
    assert_eq!((theirs.0, nobodys.0), (404, 404));
    let blanked = |text: &str, name: &str| {
        let text = text.replace(name, "NAME");
        text.split("<RequestId>").next().unwrap().to_owned()
    };
    assert!(
        theirs.1.contains("<Code>NoSuchBucket</Code>"),
        "{}",
        theirs.1
    );
    assert_eq!(blanked(&theirs.1, "other"), blanked(&nobodys.1, "nobody"));
}

/// Status and body for a presigned URL.
fn get(server: &Server, url: &str) -> (u16, String) {
    let address = server.s3_address();
    let path = url.strip_prefix(&format!("http://{address}")).unwrap();
    let mut connection = Connection::open(address);
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    connection.send(head.as_bytes());
    let answer = connection.answer(false);
    (answer.status, String::from_utf8(answer.body).unwrap())
}

#[test]
fn a_url_that_was_signed_is_good_for_what_it_says() {
    let env = environment!();
    put(&env);
    let server = with_keys(&env, "[\"*\"]");
    let demo = client(&server, "project.demo", SECRET);
    let sign = |method: &str| {
        let path = Path::from("data/a/1");
        let url = demo.signed_url(method.parse().unwrap(), &path, Duration::from_secs(60));
        runtime().block_on(url).unwrap().to_string()
    };
    let url = sign("GET");
    assert_eq!(get(&server, &url), (200, "one".to_owned()));
    let with_type = format!("{url}&response-content-type=text/html");
    for changed in [
        url.replace("/a/1", "/a-b"),
        url.replace("X-Amz-Expires=60", "X-Amz-Expires=61"),
        with_type,
        sign("PUT"),
    ] {
        let (status, text) = get(&server, &changed);
        assert!(
            status == 403 && text.contains("<Code>SignatureDoesNotMatch</Code>"),
            "{changed}: {text}"
        );
    }
}

#[test]
fn a_wrong_secret_reads_nothing_and_no_secret_is_written_down() {
    let env = environment!();
    put(&env);
    let server = with_keys(&env, "[\"*\"]");
    let wrong = client(&server, "project.demo", "wrong/EXAMPLEKEY/0123456789");
    let refused = runtime().block_on(wrong.get(&Path::from("data/a/1")));
    assert!(
        matches!(refused, Err(Error::PermissionDenied { .. })),
        "{refused:?}"
    );
    let right = client(&server, "project.demo", SECRET);
    runtime()
        .block_on(right.get(&Path::from("data/a/1")))
        .unwrap();
    assert_eq!(server.stop(), Some(0));
    let log = std::fs::read_to_string(env.path("log")).unwrap();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told: Vec<_> = lines
        .iter()
        .map(|line| (&line["door"], &line["status"], &line["token"]))
        .collect();
    let none = serde_json::Value::Null;
    assert_eq!(
        told,
        [
            (&"s3".into(), &403.into(), &none),
            (&"s3".into(), &200.into(), &ID.into())
        ]
    );
    assert!(!log.contains(SECRET) && !log.contains("Signature"), "{log}");
}
