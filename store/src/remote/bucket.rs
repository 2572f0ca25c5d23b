//! Buckets: which services are supported, and the modules for what is special about buckets.
//!
//! `open` turns a URL and `settings` into an open bucket. `connect` sends requests and watches the answers; `credentials`
//! provides what signs them. `errors` interprets answers, `retry` repeats requests whose answers broke off, and
//! `upload` sends an object in parts.

use std::str::FromStr;

use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;

mod connect;
mod credentials;
mod errors;
mod open;
mod retry;
mod settings;
mod upload;

pub use connect::Waits;
pub(super) use connect::{Alive, Unconditional, by_status};
pub(super) use errors::{NO_STORE, bucket_failure, is_conflict, is_without_credentials};
pub(super) use open::open;
pub(super) use retry::retry;
pub use settings::{Settings, is_secret};
pub(super) use upload::{Parts, PartsMax};

/// The service, which determines the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    S3,
    Google,
    Azure,
}

impl Service {
    pub(super) fn of(scheme: &str) -> Option<Self> {
        match scheme {
            "s3" => Some(Self::S3),
            "gs" => Some(Self::Google),
            "az" => Some(Self::Azure),
            _ => None,
        }
    }

    /// Whether a bucket of this service has a setting of this name.
    pub(super) fn takes(self, name: &str) -> bool {
        let name = &spelled(name);
        match self {
            Self::S3 => AmazonS3ConfigKey::from_str(name).is_ok(),
            Self::Google => GoogleConfigKey::from_str(name).is_ok(),
            Self::Azure => AzureConfigKey::from_str(name).is_ok(),
        }
    }
}

/// Converts a name to the spelling of object_store.
fn spelled(name: &str) -> String {
    name.replace('-', "_").to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
