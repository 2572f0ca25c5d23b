//! S3 servers that nobody here wrote, as `tests/servers` started them before the tests began.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::proxy::Proxy;

/// The bucket that each of them has.
pub const BUCKET: &str = "tests";

/// One of them, and how to speak to it.
#[derive(Clone, Debug)]
pub struct Server {
    /// `http://127.0.0.1:9000`
    pub endpoint: String,
    /// The access key's name.
    pub key: String,
    /// The access key's secret.
    pub secret: String,
    /// What requests are signed for.
    pub region: String,
}

impl Server {
    /// moto from PyPI: quick, one request at a time.
    pub fn moto() -> Self {
        Self::named("MOTO")
    }

    /// Ceph's RADOS gateway: a distributed engine.
    pub fn ceph() -> Self {
        Self::named("CEPH")
    }

    /// s3rver from npm: says yes to a conditional put and overwrites.
    pub fn s3rver() -> Self {
        Self::named("S3RVER")
    }

    /// The one of `STORE_TESTS_<name>`. A server that is not there fails the test.
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

    /// The same server on the other side of a proxy.
    pub fn behind(&self, proxy: &Proxy) -> Self {
        Self {
            endpoint: proxy.endpoint(),
            ..self.clone()
        }
    }

    /// The variables of the environment that people set for S3.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL", self.endpoint.clone()),
            ("AWS_ACCESS_KEY_ID", self.key.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.secret.clone()),
            ("AWS_REGION", self.region.clone()),
        ]
    }
}

/// A prefix that no other test uses, with `name` in it.
pub fn fresh_prefix(name: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    format!("{name}-{}-{}-{count}", since.as_nanos(), std::process::id())
}
