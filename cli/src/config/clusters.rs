//! Names of clusters and jobs, and the settings of a cluster.

use std::fmt;

use serde::{Deserialize, Serialize};
use store::{Error, Result};

use crate::ui::home;

/// Maximum bytes of a name.
const LABEL_BYTES_MAX: usize = 64;
const LABEL_EXPECTED: &str = "expected letters, digits, `-` and `_`, a letter or digit first";

/// What `store where`, `store duplicate` and its jobs call the store of this host.
pub(crate) const HERE: &str = "here";

/// The name of a cluster or a job: never a path, never a URL.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String")]
pub(crate) struct Label(String);

/// A named store.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cluster {
    /// A directory or a URL.
    pub(crate) url: String,
    /// The profile that opens the store.
    pub(crate) profile: Option<String>,
}

impl Label {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Label {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if first && text.len() <= LABEL_BYTES_MAX && text.chars().all(plain) {
            Ok(Self(text))
        } else {
            Err(format!("name {text:?}: {LABEL_EXPECTED}"))
        }
    }
}

impl std::str::FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::try_from(text.to_owned())
    }
}

impl fmt::Display for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Fails if `url` cannot be the URL of a store, or if it holds a secret that would be shown.
pub(crate) fn check_url(url: &str) -> Result<()> {
    if url.is_empty() {
        return Err(Error::invalid("the name of the other store is empty")
            .hint("name a cluster, a directory, or a URL like s3://bucket/prefix"));
    }
    if masked(url) != url {
        return Err(
            Error::invalid("the URL of the other store holds credentials").hint(
                "they come from the environment, or stand in a [profile.NAME] of the configuration that the cluster names",
            ),
        );
    }
    Ok(())
}

/// Whether `url` is a directory of this host, mounted file systems included.
pub(crate) fn is_directory(url: &str) -> bool {
    !url.contains("://") || url.starts_with("file:")
}

/// The URL to write into the configuration: directories are absolute, since commands run in any directory.
pub(crate) fn lasting_url(url: &str) -> Result<String> {
    check_url(url)?;
    if url.contains("://") || url.starts_with("file:") {
        return Ok(url.to_owned());
    }
    let absolute = std::path::absolute(home::text_at_home(url))
        .map_err(|source| Error::io("find the path of", url, source))?;
    Ok(absolute.to_string_lossy().into_owned())
}

/// Masks user, password and query, where people put credentials; no URL of a store needs them. Keeps the container of
/// `abfss://container@account`, which is no user.
pub(crate) fn masked(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let is_user_named = rest.split('/').next().unwrap_or_default().contains('@');
    if scheme.ends_with("file") && !is_user_named {
        return url.to_owned();
    }
    let (rest, query) = match rest.split_once('?') {
        Some((rest, _)) => (rest, "?***"),
        None => (rest, ""),
    };
    let authority = rest.split('/').next().unwrap_or_default();
    // A secret may hold slashes; a prefix may hold an `@`.
    let user = match authority.rsplit_once('@') {
        None if !authority.contains(':') => None,
        None => rest.rsplit_once('@').map(|(user, _)| user),
        Some((user, _)) => Some(user),
    };
    let is_container = |user: &str| scheme.ends_with("abfss") && !user.contains([':', '/']);
    match user {
        Some(user) if !is_container(user) => {
            let rest = rest.get(user.len()..).unwrap_or_default();
            format!("{scheme}://***{rest}{query}")
        }
        _ => format!("{scheme}://{rest}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_no_path_and_no_url() {
        for good in ["h200", "a", "eu-west_2", "7"] {
            assert!(good.parse::<Label>().is_ok(), "{good}");
        }
        let long = "x".repeat(65);
        for bad in ["", "-a", "_", "a/b", "a:b", "a.b", "a b", "\u{e9}", &long] {
            assert!(bad.parse::<Label>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_written_is_read_from_anywhere_and_holds_no_password() {
        assert_eq!(lasting_url("s3://b/p").unwrap(), "s3://b/p");
        assert_eq!(lasting_url("/a/b").unwrap(), "/a/b");
        assert!(lasting_url("a").unwrap().ends_with("/a"));
        assert!(lasting_url("abfss://box@account/p").is_ok());
        for bad in [
            "",
            "s3://key:secret@bucket/p",
            "s3://secret@bucket/p",
            "az://box/p?sig=secret",
            "abfss://a:secret@account/p",
        ] {
            let error = lasting_url(bad).unwrap_err();
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn what_may_hold_a_secret_does_not_show() {
        for (url, shown) in [
            ("s3://key:se/cret@bucket/p", "s3://***@bucket/p"),
            ("--from=s3://key@bucket", "--from=s3://***@bucket"),
            ("s3://key:secret@bucket/p@q", "s3://***@bucket/p@q"),
            ("s3://bucket/p@q", "s3://bucket/p@q"),
            ("az://box/p?sv=1&sig=x", "az://box/p?***"),
            ("s3://bucket/p", "s3://bucket/p"),
            ("file:///a@b?c", "file:///a@b?c"),
            ("file://ana:secret@/x", "file://***@/x"),
            ("/a@b?c", "/a@b?c"),
        ] {
            assert_eq!(masked(url), shown);
        }
    }
}
