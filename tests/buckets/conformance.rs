//! One suite for every server, and what the one that lies gets wrong.

use std::sync::Arc;

use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use object_store::prefix::PrefixStore;
use store::remote::conformance::conformance;
use store::remote::{Created, Objects, Write};
use support::servers::{BUCKET, Server, fresh_prefix};

fn bucket(server: &Server) -> Objects {
    // The first of several tests of one process installs it.
    let _already_there = rustls::crypto::ring::default_provider().install_default();
    let prefix = fresh_prefix("conformance");
    let s3 = AmazonS3Builder::new()
        .with_bucket_name(BUCKET)
        .with_endpoint(&server.endpoint)
        .with_access_key_id(&server.key)
        .with_secret_access_key(&server.secret)
        .with_region(&server.region)
        .with_allow_http(true)
        .build()
        .unwrap();
    let url = format!("s3://{BUCKET}/{prefix}");
    Objects::bucket(&url, Arc::new(PrefixStore::new(s3, prefix))).unwrap()
}

#[test]
fn moto_conforms() {
    conformance(&bucket(&Server::moto())).unwrap();
}

#[test]
fn ceph_conforms() {
    conformance(&bucket(&Server::ceph())).unwrap();
}

#[test]
fn s3rver_takes_a_conditional_put_for_a_plain_one() {
    let error = conformance(&bucket(&Server::s3rver())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "create: second create: expected Exists, found Created"
    );
    let bucket = bucket(&Server::s3rver());
    for bytes in ["first", "second"] {
        let created = bucket.create("key", Bytes::from_static(bytes.as_bytes()));
        assert_eq!(created.unwrap(), Created::Created);
        assert_eq!(store::remote::Read::get(&bucket, "key").unwrap(), bytes);
    }
}
