//! How a bucket is reached: endpoint, region and credentials, from the environment or from a profile.
//!
//! A profile of the configuration stands alone, so that two clusters in one process do not get each
//! other's credentials: the environment is asked only where the profile says `from-environment`.
//! Never on a command line, and no value in a message.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use store::remote::{self, Settings};
use store::{Error, Result};

use crate::aws;

/// A table `[profile.NAME]`.
#[derive(Default, Deserialize, PartialEq, Eq)]
pub(crate) struct Profile {
    /// A profile of AWS's own files, whose settings are taken.
    #[serde(rename = "aws-profile")]
    aws_profile: Option<String>,
    /// Whether the environment says what the profile does not.
    #[serde(default, rename = "from-environment")]
    from_environment: bool,
    /// Everything else, like `access-key-id` or `endpoint`.
    #[serde(flatten)]
    settings: BTreeMap<String, Value>,
}

/// A value as TOML has it.
#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(untagged, expecting = "expected a string, a number or a truth value")]
enum Value {
    Text(String),
    Number(i64),
    Truth(bool),
}

impl Profile {
    pub(crate) fn holds_secrets(&self) -> bool {
        self.settings.keys().any(|name| remote::is_secret(name))
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

/// Variables of the environment that are not empty, by name.
pub(crate) type Variables = BTreeMap<String, String>;

/// Those of this process.
pub(crate) fn variables() -> Variables {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os()
        .filter_map(text)
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

/// What reaches the bucket at `url`; nothing for a directory.
///
/// # Errors
/// Not found, when there is no such profile, here or in AWS's files.
pub(crate) fn settings(
    url: &str,
    profile: Option<(&str, Option<&Profile>)>,
    variables: &Variables,
) -> Result<Settings> {
    let Some((name, profile)) = profile else {
        return Ok(from_environment(url, variables)?.into_iter().collect());
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
    let own = profile.settings.iter();
    pairs.extend(own.map(|(name, value)| (name.clone(), value.to_string())));
    Ok(pairs.into_iter().collect())
}

fn from_environment(url: &str, variables: &Variables) -> Result<Vec<(String, String)>> {
    let named = variables.iter().filter_map(|(name, value)| {
        let service = ["AWS_", "GOOGLE_", "AZURE_"];
        let name = match name.as_str() {
            "IDENTITY_ENDPOINT" => "azure_msi_endpoint".to_owned(),
            name if service.into_iter().any(|prefix| name.starts_with(prefix)) => {
                name.to_ascii_lowercase()
            }
            _ => return None,
        };
        remote::takes(url, &name).then(|| (name, value.clone()))
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

    fn names(settings: &Settings) -> Vec<&str> {
        settings.names().collect()
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
        let names_for = |url: &str| names(&settings(url, None, &variables).unwrap()).join(" ");
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
        let found = settings("s3://b", Some(("h", Some(&alone))), &variables).unwrap();
        assert_eq!(names(&found), ["access-key-id", "allow-http"]);
        let asking: Profile = toml::from_str(&format!("from-environment = true\n{text}")).unwrap();
        let found = settings("s3://b", Some(("h", Some(&asking))), &variables).unwrap();
        assert_eq!(
            names(&found),
            ["aws_session_token", "access-key-id", "allow-http"]
        );
        let error = settings("s3://b", Some(("h", None)), &variables).unwrap_err();
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
}
