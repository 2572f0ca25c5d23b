//! Opens `s3://bucket/prefix`, `gs://...` and `az://...` with settings.
//!
//! Never reads the environment and never shows the value of a setting; errors name a wrong setting. Plain HTTP is used
//! only if the setting of an endpoint begins with `http://`.

use std::sync::{Arc, Once};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, Certificate, ClientOptions, ObjectStore, RetryConfig};

use super::connect::{Alive, Watched};
use super::credentials::{Found, Process};
use super::{Service, Settings, spelled};
use crate::error::{Error, Result};
use crate::remote::Options;

/// Limit for making a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit for the beginning of an answer, including the time to send a part over a slow line, and for pauses in an
/// answer.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The deadline, rather than this number, limits the attempts.
const RETRIES_MAX: usize = 100;

/// An open bucket, or what is below a prefix in it.
pub(in crate::remote) struct Bucket {
    pub(in crate::remote) url: String,
    pub(in crate::remote) store: Arc<dyn ObjectStore>,
    pub(in crate::remote) alive: Alive,
}

/// Opens the bucket and the prefix that `rest` of `scheme:rest` names.
///
/// # Errors
/// Invalid input, when the URL or a setting is invalid; the error names it but never shows its value.
pub(in crate::remote) fn open(
    service: Service,
    scheme: &str,
    rest: &str,
    options: &Options,
) -> Result<Bucket> {
    let (bucket, prefix) = place(scheme, rest)?;
    let url = match prefix.as_ref() {
        "" => format!("{scheme}://{bucket}"),
        prefix => format!("{scheme}://{bucket}/{prefix}"),
    };
    for (name, value) in options.settings.iter() {
        check_setting(service, &url, name, value)?;
    }
    install_tls();
    check_certificates(&url, options)?;
    let alive = Alive::new(Arc::clone(&options.stop));
    let store = built(service, bucket, options, &options.settings, &alive)
        .map_err(|error| wrong_setting(service, bucket, &url, options, &error))?;
    let store: Arc<dyn ObjectStore> = match prefix.as_ref() {
        "" => store,
        _ => Arc::new(PrefixStore::new(store, prefix)),
    };
    Ok(Bucket { url, store, alive })
}

/// Splits off bucket and prefix. Refuses anything that may contain a secret, without repeating it.
fn place<'u>(scheme: &str, rest: &'u str) -> Result<(&'u str, Path)> {
    let bad = |why: &str| {
        Error::invalid(format!("store {scheme}://...: {why}"))
            .hint(format!("name it as {scheme}://bucket/prefix"))
    };
    let rest = rest
        .strip_prefix("//")
        .ok_or_else(|| bad("expected two slashes and the name of a bucket"))?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains('@') {
        return Err(Error::invalid(format!(
            "store {scheme}://...: the URL of a store must not hold credentials"
        ))
        .hint("credentials come from the environment or from a profile in the configuration"));
    }
    if rest.contains(['?', '#']) {
        return Err(bad("the URL of a store has neither a query nor a fragment"));
    }
    let named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._$".contains(&byte);
    if bucket.is_empty() || !bucket.bytes().all(named) {
        return Err(bad("expected the name of a bucket"));
    }
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let path = Path::parse(prefix).map_err(|error| bad("its prefix is no path").because(error))?;
    if path.as_ref() != prefix {
        return Err(bad("its prefix is no path"));
    }
    Ok((bucket, path))
}

fn check_setting(service: Service, url: &str, name: &str, value: &str) -> Result<()> {
    if !service.takes(name) {
        return Err(
            Error::invalid(format!("{url}: setting {name} is unknown there"))
                .hint("the names are those of the environment's variables, in small letters"),
        );
    }
    if let Some(why) = unusable(name, value) {
        return Err(Error::invalid(format!("{url}: setting {name}: {why}")));
    }
    if !is_address(name) {
        return Ok(());
    }
    let address = value
        .strip_prefix("https://")
        .or_else(|| value.strip_prefix("http://"));
    match address.map(|address| address.split('/').next().unwrap_or_default()) {
        Some(host) if host.contains('@') => Err(Error::invalid(format!(
            "{url}: setting {name} must not hold credentials"
        ))
        .hint("access keys and tokens have settings of their own")),
        Some(host) if !host.is_empty() && is_url(value) => Ok(()),
        _ => Err(Error::invalid(format!(
            "{url}: setting {name}: expected http://host or https://host"
        ))),
    }
}

/// Why a value can be part of no request. Those of a variable that was filled by `echo` end with a newline.
fn unusable(name: &str, value: &str) -> Option<&'static str> {
    let spelled = spelled(name);
    let is_of_host = |word: &str| spelled.contains(word);
    if ["file", "path", "google"].into_iter().any(is_of_host) {
        return None;
    }
    if value.trim() != value {
        return Some("begins or ends with a blank or a newline, which is no part of it");
    }
    let is_plain = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    (!is_plain).then_some("has characters that no setting has")
}

/// Whether both libraries that take endpoints apart take this one.
fn is_url(value: &str) -> bool {
    value.parse::<hyper::Uri>().is_ok() && reqwest::Url::parse(value).is_ok()
}

/// Returns the certificates that are trusted in addition to the host's.
fn certificates(options: &Options) -> object_store::Result<Vec<Certificate>> {
    match &options.ca_bundle {
        Some(bundle) => Certificate::from_pem_bundle(bundle),
        None => Ok(Vec::new()),
    }
}

fn check_certificates(url: &str, options: &Options) -> Result<()> {
    let found = certificates(options);
    if options.ca_bundle.is_none() || found.is_ok_and(|found| !found.is_empty()) {
        return Ok(());
    }
    Err(Error::invalid(format!("{url}: the file of certificates holds none")).hint(
        "it is to hold certificates of authorities as PEM, from `-----BEGIN CERTIFICATE-----` on",
    ))
}

fn is_address(name: &str) -> bool {
    let name = spelled(name);
    (name.contains("endpoint") || name.ends_with("base_url")) && !name.ends_with("fabric_endpoint")
}

/// Whether this setting is an endpoint of the bucket itself that is reached without TLS.
pub(super) fn is_plain(name: &str, value: &str) -> bool {
    let other = ["metadata", "msi", "sts"];
    is_address(name)
        && value.starts_with("http://")
        && !other.into_iter().any(|word| spelled(name).contains(word))
}

fn client_options(options: &Options, settings: &Settings) -> object_store::Result<ClientOptions> {
    let plain = settings.iter().any(|(name, value)| is_plain(name, value));
    let client = ClientOptions::new()
        .with_allow_http(plain)
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_read_timeout(READ_TIMEOUT);
    let certificates = certificates(options)?.into_iter();
    Ok(certificates.fold(client, ClientOptions::with_root_certificate))
}

fn built(
    service: Service,
    bucket: &str,
    options: &Options,
    settings: &Settings,
    alive: &Alive,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let client = client_options(options, settings)?;
    let retry = RetryConfig {
        backoff: BackoffConfig {
            max_backoff: PAUSE_MAX,
            ..BackoffConfig::default()
        },
        max_retries: RETRIES_MAX,
        retry_timeout: options.deadline,
    };
    let watched = || {
        Watched::new(
            options.waits.clone(),
            alive.clone(),
            options.deadline,
            &options.proxies,
        )
    };
    let pairs = || settings.iter().map(|(name, value)| (spelled(name), value));
    // Each builder is used twice: first for its provider of credentials, which does not connect until it is asked, and
    // then with that provider.
    Ok(match service {
        Service::S3 => {
            let mut builder = AmazonS3Builder::new()
                .with_client_options(client)
                .with_bucket_name(bucket)
                .with_retry(retry);
            for (name, value) in pairs() {
                builder = builder.with_config(name.parse()?, value);
            }
            let at_need = builder.clone().with_http_connector(watched().at_need());
            let credentials = match &options.credential_process {
                Some(command) => Arc::new(Process::new(command, Arc::clone(&options.stop))),
                None => Arc::clone(at_need.build()?.credentials()),
            };
            let builder = builder.with_http_connector(watched());
            Arc::new(
                builder
                    .with_credentials(Arc::new(Found(credentials)))
                    .build()?,
            )
        }
        Service::Google => {
            let mut builder = GoogleCloudStorageBuilder::new()
                .with_client_options(client)
                .with_bucket_name(bucket)
                .with_retry(retry);
            for (name, value) in pairs() {
                builder = builder.with_config(name.parse()?, value);
            }
            let at_need = builder.clone().with_http_connector(watched().at_need());
            let credentials = Arc::clone(at_need.build()?.credentials());
            let builder = builder.with_http_connector(watched());
            Arc::new(
                builder
                    .with_credentials(Arc::new(Found(credentials)))
                    .build()?,
            )
        }
        Service::Azure => {
            let mut builder = MicrosoftAzureBuilder::new()
                .with_client_options(client)
                .with_container_name(bucket)
                .with_retry(retry);
            for (name, value) in pairs() {
                builder = builder.with_config(name.parse()?, value);
            }
            let at_need = builder.clone().with_http_connector(watched().at_need());
            let credentials = Arc::clone(at_need.build()?.credentials());
            let builder = builder.with_http_connector(watched());
            Arc::new(
                builder
                    .with_credentials(Arc::new(Found(credentials)))
                    .build()?,
            )
        }
    })
}

/// Finds the wrong setting: the one without which the others are valid. Its value is removed from the cause.
fn wrong_setting(
    service: Service,
    bucket: &str,
    url: &str,
    options: &Options,
    error: &object_store::Error,
) -> Error {
    let settings = &options.settings;
    let alive = Alive::default();
    let fits =
        |name: &&str| built(service, bucket, options, &settings.without(name), &alive).is_ok();
    let what = match settings.names().find(fits) {
        Some(name) => format!("{url}: setting {name} is not understood"),
        None => format!("{url}: the settings are incomplete"),
    };
    Error::invalid(what)
        .hint("see the variables of the environment, or the profile in the configuration")
        .because(settings.redact_all(&error.to_string()))
}

/// Installs a TLS provider for the process, before the first connection. A program that has chosen one keeps it.
fn install_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _chosen_before = rustls::crypto::ring::default_provider().install_default();
    });
}
