//! Settings of a bucket: endpoint, region and credentials, as pairs of name and value.
//!
//! The caller collects them from an environment or a file; this module reads neither. Values never appear in `Debug`
//! output, and [`Settings::redact`] removes them from answers of a bucket.

use std::fmt;
use std::sync::Arc;

/// Shorter values are not redacted: they are no secrets, and occur in too many words.
const SECRET_BYTES_MIN: usize = 6;
/// Replaces a hidden value.
const HIDDEN: &str = "***";

/// Names and values in order; the last one of the same name counts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Settings(Arc<Vec<(String, String)>>);

impl Settings {
    /// Iterates over the pairs in order.
    pub(in crate::remote) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Iterates over the names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    /// Returns the settings without `name`.
    pub(in crate::remote) fn without(&self, name: &str) -> Self {
        let kept = self.0.iter().filter(|(other, _)| other != name);
        kept.cloned().collect()
    }

    /// Removes the values of secret settings, and parts of these values, from `text`.
    pub(in crate::remote) fn redact(&self, text: &str) -> String {
        let secret = self.iter().filter(|(name, _)| is_secret(name));
        hide(text, secret.map(|(_, value)| value))
    }

    /// Removes the values of all settings from `text`.
    pub(in crate::remote) fn redact_all(&self, text: &str) -> String {
        hide(text, self.iter().map(|(_, value)| value))
    }
}

/// Removes values from `text`, including the fields of a shared access signature.
fn hide<'v>(text: &str, values: impl Iterator<Item = &'v str>) -> String {
    let with_parts = values.flat_map(|value| {
        let fields = value.split('&').filter(|_| value.contains('&'));
        let parts = fields.filter_map(|field| Some(field.split_once('=')?.1));
        std::iter::once(value).chain(parts)
    });
    let mut secrets: Vec<&str> = with_parts
        .filter(|value| value.len() >= SECRET_BYTES_MIN)
        .collect();
    secrets.sort_by_key(|value| std::cmp::Reverse(value.len()));
    secrets
        .into_iter()
        .fold(text.to_owned(), |text, secret| text.replace(secret, HIDDEN))
}

impl FromIterator<(String, String)> for Settings {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self(Arc::new(pairs.into_iter().collect()))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.names()).finish()
    }
}

/// Whether a setting of this name holds a secret. A name that contains `file`, or names an account or a service
/// account, only says where something is.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let says = |word: &str| name.contains(word);
    let holds = [
        "key",
        "secret",
        "token",
        "sas",
        "password",
        "proxy_url",
        "proxy-url",
    ];
    holds.into_iter().any(says) && !says("file") && !says("kms")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn values_show_neither_in_debug_nor_in_a_text() {
        let settings = settings(&[
            ("aws_secret_access_key", "planted-secret"),
            ("aws_region", "eu-west-1"),
            ("azure_storage_sas_key", "sv=2024&sig=planted%2Bsignature"),
        ]);
        assert_eq!(
            format!("{settings:?}"),
            r#"["aws_secret_access_key", "aws_region", "azure_storage_sas_key"]"#
        );
        let text = "eu-west-1: planted-secret, sig=planted%2Bsignature&x, sv=2024";
        assert_eq!(settings.redact(text), "eu-west-1: ***, sig=***&x, sv=2024");
        assert_eq!(settings.redact_all("in eu-west-1"), "in ***");
    }

    #[test]
    fn names_tell_what_is_secret() {
        for name in [
            "aws_access_key_id",
            "secret-access-key",
            "aws_session_token",
            "google_service_account_key",
            "azure_storage_client_secret",
            "proxy_url",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "aws_region",
            "endpoint",
            "aws_web_identity_token_file",
            "google_service_account",
            "azure_storage_account_name",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
