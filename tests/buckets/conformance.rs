//! One suite for every server, and what the server with false promises gets wrong.

use std::sync::Arc;

use bytes::Bytes;
use store::remote::testing::conformance::conformance;
use store::remote::{Created, Options, Prune, open};
use support::servers::{BUCKET, Server, fresh_prefix};

fn bucket(server: &Server) -> Arc<dyn Prune> {
    let settings = server.variables();
    let settings = settings.map(|(name, value)| (name.to_owned(), value));
    let options = Options {
        settings: settings.into_iter().collect(),
        ..Options::default()
    };
    let url = format!("s3://{BUCKET}/{}", fresh_prefix("conformance"));
    open(&url, &options).unwrap()
}

#[test]
fn moto_conforms() {
    conformance(&*bucket(&Server::moto())).unwrap();
}

#[test]
fn ceph_conforms() {
    conformance(&*bucket(&Server::ceph())).unwrap();
}

#[test]
fn s3rver_takes_a_conditional_put_for_a_plain_one() {
    let error = conformance(&*bucket(&Server::s3rver())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "create: second create: expected Exists, found Created"
    );
    let bucket = bucket(&Server::s3rver());
    for bytes in ["first", "second"] {
        let created = bucket.create("key", Bytes::from_static(bytes.as_bytes()));
        assert_eq!(created.unwrap(), Created::Created);
        assert_eq!(bucket.get("key").unwrap(), bytes);
    }
}
