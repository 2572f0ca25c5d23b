//! How to reach a bucket: endpoint, region and credentials, from the environment or from a profile.
//!
//! If a profile of the configuration is used, the environment is ignored unless the profile sets `from-environment`. So
//! two clusters in one process do not get each other's credentials. Credentials never appear on a command line or in a
//! message.

mod aws;
mod azure;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use store::remote::{self, Settings};
use store::{Error, Result};

use crate::ui::home;
use crate::ui::human::Span;

/// The pair that names a file of certificates. It is read and removed before the pairs become bucket settings.
pub(crate) const CA_BUNDLE: &str = "aws_ca_bundle";
/// The pair that names a program which prints AWS credentials. It is removed before the pairs become bucket settings.
pub(crate) const CREDENTIAL_PROCESS: &str = "credential_process";
const PROCESS_FAILED: &str =
    "run the program that `credential_process` of the AWS profile names, and see what it says";
/// Overrides the other Azure variables.
const AZURE_CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";

/// A table `[profile.NAME]`.
#[derive(Default, Deserialize, PartialEq, Eq)]
pub(crate) struct Profile {
    /// A profile of the AWS CLI's own files, whose settings are used.
    #[serde(rename = "aws-profile")]
    aws_profile: Option<String>,
    /// Whether the environment supplies settings that the profile lacks.
    #[serde(default, rename = "from-environment")]
    from_environment: bool,
    /// A file of certificates to trust, in addition to those of the host.
    #[serde(rename = "ca-bundle")]
    ca_bundle: Option<String>,
    /// How long to retry a failed request.
    deadline: Option<Span>,
    /// An Azure connection string.
    #[serde(rename = "connection-string")]
    connection_string: Option<String>,
    /// Everything else, like `access-key-id` or `endpoint`.
    #[serde(flatten)]
    settings: BTreeMap<String, Value>,
}

/// A TOML value.
#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(untagged, expecting = "expected a string, a number or a truth value")]
enum Value {
    Text(String),
    Number(i64),
    Truth(bool),
}

impl Profile {
    /// Makes relative paths start at the directory of the configuration, and those in `~/` at the home.
    pub(crate) fn root(&mut self, dir: &Path) {
        if let Some(path) = &mut self.ca_bundle
            && let Some(rooted) = dir.join(home::text_at_home(path)).to_str()
        {
            *path = rooted.to_owned();
        }
    }

    pub(crate) fn holds_secrets(&self) -> bool {
        self.connection_string.is_some() || self.settings.keys().any(|name| remote::is_secret(name))
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.settings.keys()).finish()
    }
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => out.write_str(text),
            Self::Number(number) => write!(out, "{number}"),
            Self::Truth(truth) => write!(out, "{truth}"),
        }
    }
}

/// Environment variables by name, without empty ones.
pub(crate) type Variables = BTreeMap<String, String>;

/// The environment variables of this process.
pub(crate) fn variables() -> Variables {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os()
        .filter_map(text)
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

/// Everything needed to reach a bucket.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    pub(crate) settings: Settings,
    /// Certificates to trust in addition to those of the host, as PEM.
    pub(crate) ca_bundle: Option<Vec<u8>>,
    /// How long to retry a failed request, according to the profile.
    pub(crate) deadline: Option<Duration>,
    /// A program that prints AWS credentials.
    pub(crate) credential_process: Option<String>,
    /// Why there are no credentials, if known.
    pub(crate) no_credentials: Option<String>,
}

/// The configured proxies by scheme: the variable and its host, without credentials.
pub(crate) fn proxies(variables: &Variables) -> Vec<(&'static str, String)> {
    let named = |names: &[&str]| {
        names.iter().find_map(|name| {
            let url = variables.get(*name)?;
            let url = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            let host = url.rsplit_once('@').map_or(url, |(_, host)| host);
            Some(format!("{name} is set to {host}"))
        })
    };
    let https = named(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]);
    let http = named(&["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]);
    let schemes = [("https://", https), ("http://", http)];
    let set = schemes.into_iter();
    set.filter_map(|(scheme, told)| Some((scheme, told?)))
        .collect()
}

/// What is needed to reach the bucket at `url`; empty for a directory.
///
/// # Errors
/// Not found, if the profile does not exist here or in the AWS files; errors of reading the named files.
pub(crate) fn to(
    url: &str,
    profile: Option<(&str, Option<&Profile>)>,
    variables: &Variables,
) -> Result<Reach> {
    let Some((name, profile)) = profile else {
        let no_credentials = url.starts_with("s3:").then(|| aws::why_none(variables));
        let found = Reach::of(from_environment(url, variables)?)?;
        return Ok(Reach {
            no_credentials: no_credentials.flatten().or(found.no_credentials),
            ..found
        });
    };
    let profile = profile.ok_or_else(|| {
        Error::not_found(format!("profile {name} is not in the configuration")).hint(format!(
            "add a table [profile.{name}], or name another profile"
        ))
    })?;
    let mut pairs = Vec::new();
    if profile.from_environment {
        pairs.extend(from_environment(url, variables)?);
    }
    if let Some(named) = &profile.aws_profile {
        pairs.extend(aws::profile(Some(named), variables)?);
    }
    if let Some(text) = &profile.connection_string {
        pairs.extend(azure::connection(text).map_err(|error| error.within(named(name)))?);
    }
    let own = profile.settings.iter();
    pairs.extend(own.map(|(name, value)| (name.clone(), value.to_string())));
    let bundle = profile.ca_bundle.iter();
    pairs.extend(bundle.map(|path| (CA_BUNDLE.to_owned(), path.clone())));
    Ok(Reach {
        deadline: profile.deadline.map(|span| span.0),
        ..Reach::of(pairs)?
    })
}

fn named(profile: &str) -> String {
    format!("profile {profile}")
}

impl Reach {
    fn of(pairs: Vec<(String, String)>) -> Result<Self> {
        let last = |wanted: &str| pairs.iter().rfind(|(name, _)| name == wanted);
        let bundle = last(CA_BUNDLE).map(|(_, path)| {
            std::fs::read(path)
                .map_err(|source| Error::io("read the certificates in", Path::new(path), source))
        });
        let credential_process = last(CREDENTIAL_PROCESS).map(|(_, command)| command.clone());
        let other = |(name, _): &(String, String)| {
            ![CA_BUNDLE, CREDENTIAL_PROCESS].contains(&name.as_str())
        };
        Ok(Self {
            ca_bundle: bundle.transpose()?,
            settings: pairs.into_iter().filter(other).collect(),
            deadline: None,
            no_credentials: credential_process
                .is_some()
                .then(|| PROCESS_FAILED.to_owned()),
            credential_process,
        })
    }
}

fn from_environment(url: &str, variables: &Variables) -> Result<Vec<(String, String)>> {
    if url.starts_with("az:")
        && let Some(text) = variables.get(AZURE_CONNECTION)
    {
        return azure::connection(text).map_err(|error| error.within(AZURE_CONNECTION));
    }
    let named = variables.iter().filter_map(|(name, value)| {
        let service = ["AWS_", "GOOGLE_", "AZURE_"];
        let name = match name.as_str() {
            "IDENTITY_ENDPOINT" => "azure_msi_endpoint".to_owned(),
            name if service.into_iter().any(|prefix| name.starts_with(prefix)) => {
                name.to_ascii_lowercase()
            }
            _ => return None,
        };
        let is_bundle = name == CA_BUNDLE && url.starts_with("s3:");
        (is_bundle || remote::takes(url, &name)).then(|| (name, value.clone()))
    });
    let mut pairs: Vec<_> = named.collect();
    if url.starts_with("s3:") {
        let from_files = aws::profile(None, variables)?;
        let has = |name: &str| variables.contains_key(name);
        let own_credentials = has("AWS_ACCESS_KEY_ID") || has("AWS_WEB_IDENTITY_TOKEN_FILE");
        let wanted = from_files
            .into_iter()
            .filter(|(name, _)| match name.as_str() {
                "aws_region" => !has("AWS_REGION") && !has("AWS_DEFAULT_REGION"),
                "aws_endpoint_url" => !has("AWS_ENDPOINT_URL") && !has("AWS_ENDPOINT_URL_S3"),
                CA_BUNDLE => !has("AWS_CA_BUNDLE"),
                _ => !own_credentials,
            });
        pairs.extend(wanted);
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        pairs.iter().map(owned).collect()
    }

    fn names(reach: &Reach) -> Vec<&str> {
        reach.settings.names().collect()
    }

    #[test]
    fn a_proxy_is_told_without_its_credentials() {
        let variables = variables(&[
            ("https_proxy", "http://ana:planted@proxy.example:3128"),
            ("ALL_PROXY", "socks5://other"),
        ]);
        let told = [
            (
                "https://",
                "https_proxy is set to proxy.example:3128".to_owned(),
            ),
            ("http://", "ALL_PROXY is set to other".to_owned()),
        ];
        assert_eq!(proxies(&variables), told);
    }

    #[test]
    fn the_environment_speaks_to_the_buckets_it_is_for() {
        let variables = variables(&[
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_ENDPOINT_URL", "http://localhost:1"),
            ("AWS_PAGER", "less"),
            ("AZURE_STORAGE_ACCOUNT_KEY", "key"),
            ("GOOGLE_SERVICE_ACCOUNT", "/sa.json"),
            ("HOME", "/nonexistent"),
        ]);
        let names_for = |url: &str| names(&to(url, None, &variables).unwrap()).join(" ");
        assert_eq!(names_for("s3://b/p"), "aws_access_key_id aws_endpoint_url");
        assert_eq!(names_for("gs://b"), "google_service_account");
        assert_eq!(names_for("az://b"), "azure_storage_account_key");
        assert_eq!(names_for("/data/store"), "");
    }

    #[test]
    fn a_profile_stands_alone_unless_it_asks_the_environment() {
        let variables = variables(&[("AWS_SESSION_TOKEN", "of another cluster")]);
        let text = "access-key-id = \"id\"\nallow-http = true\n";
        let alone: Profile = toml::from_str(text).unwrap();
        let found = to("s3://b", Some(("h", Some(&alone))), &variables).unwrap();
        assert_eq!(names(&found), ["access-key-id", "allow-http"]);
        let asking: Profile = toml::from_str(&format!("from-environment = true\n{text}")).unwrap();
        let found = to("s3://b", Some(("h", Some(&asking))), &variables).unwrap();
        assert_eq!(
            names(&found),
            ["aws_session_token", "access-key-id", "allow-http"]
        );
        let error = to("s3://b", Some(("h", None)), &variables).unwrap_err();
        assert_eq!(error.to_string(), "profile h is not in the configuration");
    }

    #[test]
    fn a_profile_shows_names_and_no_values() {
        let profile: Profile = toml::from_str("secret-access-key = \"planted\"").unwrap();
        assert_eq!(format!("{profile:?}"), r#"{"secret-access-key"}"#);
        assert!(profile.holds_secrets());
        let plain: Profile = toml::from_str("region = \"us-east-1\"").unwrap();
        assert!(!plain.holds_secrets());
    }

    #[test]
    fn certificates_are_read_from_the_file_that_is_named_last() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, name).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (home, of_aws) = (file("home"), file("of-aws"));
        let config = file("config");
        std::fs::write(&config, format!("[default]\nca_bundle = {of_aws}\n")).unwrap();
        let mut variables = variables(&[("AWS_CONFIG_FILE", &config)]);
        let bundle = |variables: &Variables, profile: Option<&Profile>| {
            let profile = profile.map(|profile| ("h", Some(profile)));
            let reach = to("s3://b", profile, variables).unwrap();
            assert!(!names(&reach).contains(&CA_BUNDLE));
            reach
                .ca_bundle
                .map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(bundle(&variables, None).as_deref(), Some("of-aws"));
        variables.insert("AWS_CA_BUNDLE".to_owned(), home);
        assert_eq!(bundle(&variables, None).as_deref(), Some("home"));
        let own = format!("from-environment = true\nca-bundle = {:?}\n", file("own"));
        let own: Profile = toml::from_str(&own).unwrap();
        assert_eq!(bundle(&variables, Some(&own)).as_deref(), Some("own"));
        assert!(to("gs://b", None, &variables).unwrap().ca_bundle.is_none());
        variables.insert("AWS_CA_BUNDLE".to_owned(), "/nonexistent".to_owned());
        let error = to("s3://b", None, &variables).unwrap_err();
        assert_eq!(error.to_string(), "read the certificates in /nonexistent");
    }

    #[test]
    fn a_connection_string_stands_for_all_else_of_azure() {
        let mut variables = variables(&[
            ("AZURE_STORAGE_ACCOUNT_KEY", "of another account"),
            (AZURE_CONNECTION, "AccountName=a;AccountKey=k"),
        ]);
        let found = to("az://b", None, &variables).unwrap();
        let expected = ["azure_storage_account_name", "azure_storage_account_key"];
        assert_eq!(names(&found), expected);
        variables.insert(AZURE_CONNECTION.to_owned(), "planted".to_owned());
        let error = to("az://b", None, &variables).unwrap_err();
        assert_eq!(
            error.to_string(),
            "AZURE_STORAGE_CONNECTION_STRING: the connection string of Azure: field 1 is not NAME=VALUE"
        );
        let profile: Profile =
            toml::from_str("connection-string = \"AccountName=a;AccountKey=k\"").unwrap();
        assert!(profile.holds_secrets());
        let found = to("az://b", Some(("h", Some(&profile))), &variables).unwrap();
        assert_eq!(names(&found), expected);
    }
}
