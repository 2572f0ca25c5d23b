//! Independent S3 servers, which `tests/servers` starts before the tests.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::proxy::Proxy;

/// The bucket that each server has.
pub const BUCKET: &str = "tests";

/// A server, and how to reach it.
#[derive(Clone, Debug)]
pub struct Server {
    /// For example `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// The id of the access key.
    pub key: String,
    /// The access key's secret.
    pub secret: String,
    /// The region for signatures.
    pub region: String,
}

impl Server {
    /// moto from PyPI: fast, one request at a time.
    pub fn moto() -> Self {
        Self::named("MOTO")
    }

    /// Ceph's RADOS gateway: a distributed implementation.
    pub fn ceph() -> Self {
        Self::named("CEPH")
    }

    /// s3rver from npm: accepts a conditional put and overwrites.
    pub fn s3rver() -> Self {
        Self::named("S3RVER")
    }

    /// The server of `STORE_TESTS_<name>`. The test fails if there is none.
    pub fn named(name: &str) -> Self {
        let variable = format!("STORE_TESTS_{name}");
        let told = std::env::var(&variable).unwrap_or_else(|_| {
            panic!("{variable} is not set: run `tests/run` or `cargo nextest run`, which start the servers")
        });
        let words: Vec<_> = told.split(' ').map(str::to_owned).collect();
        let [endpoint, key, secret, region] = <[String; 4]>::try_from(words).unwrap();
        Self {
            endpoint,
            key,
            secret,
            region,
        }
    }

    /// The same server through a proxy.
    pub fn behind(&self, proxy: &Proxy) -> Self {
        Self {
            endpoint: proxy.endpoint(),
            ..self.clone()
        }
    }

    /// The environment variables for S3 clients.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL", self.endpoint.clone()),
            ("AWS_ACCESS_KEY_ID", self.key.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.secret.clone()),
            ("AWS_REGION", self.region.clone()),
        ]
    }
}

/// A prefix with `name` in it that no other test uses.
pub fn fresh_prefix(name: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    format!("{name}-{}-{}-{count}", since.as_nanos(), std::process::id())
}
