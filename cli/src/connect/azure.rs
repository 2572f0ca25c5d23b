//! Azure connection strings, `AccountName=...;AccountKey=...;EndpointSuffix=...`, as settings of a bucket.
//!
//! Account, key, shared access signature and the blob endpoint are used; endpoints of other services are ignored.
//! Messages never contain values.

use std::collections::BTreeMap;
use std::net::IpAddr;

use store::{Error, Result};

/// The endpoint suffix of public Azure.
const USUAL_SUFFIX: &str = "core.windows.net";

/// The settings in a connection string.
///
/// # Errors
/// Invalid input, with the name or the position of the field that is missing or invalid.
pub(crate) fn connection(text: &str) -> Result<Vec<(String, String)>> {
    let fields = Fields::of(text)?;
    if fields.is("usedevelopmentstorage", "true") {
        return Ok(vec![pair("use_emulator", "true")]);
    }
    let endpoint = fields.get("blobendpoint");
    let named = fields.get("accountname").or_else(|| account(endpoint?));
    let account = named.ok_or_else(|| bad("AccountName is missing"))?;
    if !account
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    {
        return Err(bad("AccountName is no name of an account"));
    }
    let mut pairs = vec![pair("account_name", account)];
    match (
        fields.get("accountkey"),
        fields.get("sharedaccesssignature"),
    ) {
        (Some(key), _) => pairs.push(pair("account_key", key)),
        (None, Some(signature)) => {
            pairs.push(pair("sas_key", signature.trim_start_matches('?')));
        }
        (None, None) => {
            return Err(bad("neither AccountKey nor SharedAccessSignature is there"));
        }
    }
    match endpoint {
        Some(endpoint) if !endpoint.contains("://") => {
            return Err(bad("BlobEndpoint does not begin with https:// or http://"));
        }
        Some(endpoint) => pairs.push(pair("endpoint", endpoint.trim_end_matches('/'))),
        None => pairs.extend(fields.usual_endpoint(account)?),
    }
    Ok(pairs)
}

/// The fields by their names in lower case.
struct Fields<'t>(BTreeMap<String, &'t str>);

impl<'t> Fields<'t> {
    fn of(text: &'t str) -> Result<Self> {
        let mut fields = BTreeMap::new();
        for (number, field) in (1..).zip(text.split(';')) {
            let field = field.trim();
            if field.is_empty() {
                continue;
            }
            let (name, value) = field
                .split_once('=')
                .ok_or_else(|| bad(&format!("field {number} is not NAME=VALUE")))?;
            let name = name.trim().to_ascii_lowercase();
            if fields.insert(name, value.trim()).is_some() {
                return Err(bad(&format!("field {number} stands there before")));
            }
        }
        Ok(Self(fields))
    }

    fn get(&self, name: &str) -> Option<&'t str> {
        let value = self.0.get(name).copied();
        value.filter(|value| !value.is_empty())
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.get(name)
            .is_some_and(|found| found.eq_ignore_ascii_case(value))
    }

    /// The endpoint of the account, unless it is the default one.
    fn usual_endpoint(&self, account: &str) -> Result<Option<(String, String)>> {
        let protocol = self.get("defaultendpointsprotocol").unwrap_or("https");
        if !["https", "http"].contains(&protocol) {
            return Err(bad("DefaultEndpointsProtocol is neither https nor http"));
        }
        let suffix = self.get("endpointsuffix").unwrap_or(USUAL_SUFFIX);
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte);
        if !suffix.bytes().all(is_host) {
            return Err(bad("EndpointSuffix is no name of a host"));
        }
        let is_usual = protocol == "https" && suffix == USUAL_SUFFIX;
        let endpoint = format!("{protocol}://{account}.blob.{suffix}");
        Ok((!is_usual).then(|| pair("endpoint", &endpoint)))
    }
}

/// The account in `https://account.blob.example` or `http://127.0.0.1:10000/account`.
fn account(endpoint: &str) -> Option<&str> {
    let (_, rest) = endpoint.split_once("://")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.split(':').next()?;
    let account = match host.split_once('.') {
        Some((first, _)) if host.parse::<IpAddr>().is_err() => first,
        _ => path.split('/').next()?,
    };
    Some(account).filter(|account| !account.is_empty())
}

fn pair(name: &str, value: &str) -> (String, String) {
    (format!("azure_storage_{name}"), value.to_owned())
}

fn bad(why: &str) -> Error {
    Error::invalid(format!("the connection string of Azure: {why}")).hint(
        "copy it whole from the account's access keys, or set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let pairs = connection(text).unwrap();
        let line = |(name, value): &(String, String)| {
            format!("{}={value}", name.trim_start_matches("azure_storage_"))
        };
        pairs.iter().map(line).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn account_key_signature_and_endpoint_are_found() {
        for (text, expected) in [
            (
                "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5==;EndpointSuffix=core.windows.net",
                "account_name=acc account_key=a2V5==",
            ),
            (
                "AccountName=acc;AccountKey=k;EndpointSuffix=core.chinacloudapi.cn;",
                "account_name=acc account_key=k endpoint=https://acc.blob.core.chinacloudapi.cn",
            ),
            (
                "BlobEndpoint=https://acc.blob.core.windows.net/;QueueEndpoint=x;SharedAccessSignature=?sv=1&sig=a%3D",
                "account_name=acc sas_key=sv=1&sig=a%3D endpoint=https://acc.blob.core.windows.net",
            ),
            (
                "accountkey=k;blobendpoint=http://127.0.0.1:10000/devstoreaccount1",
                "account_name=devstoreaccount1 account_key=k endpoint=http://127.0.0.1:10000/devstoreaccount1",
            ),
            ("UseDevelopmentStorage=true", "use_emulator=true"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_nothing_of_it_shows() {
        for (text, why) in [
            ("planted", "field 1 is not NAME=VALUE"),
            ("AccountName=a;;planted", "field 3 is not NAME=VALUE"),
            ("AccountKey=planted", "AccountName is missing"),
            (
                "AccountName=planted planted;AccountKey=k",
                "AccountName is no name of an account",
            ),
            (
                "AccountName=a",
                "neither AccountKey nor SharedAccessSignature is there",
            ),
            (
                "AccountName=a;AccountKey=planted;AccountKey=b",
                "field 3 stands there before",
            ),
            (
                "AccountName=a;AccountKey=planted;BlobEndpoint=planted",
                "BlobEndpoint does not begin with https:// or http://",
            ),
            (
                "AccountName=a;AccountKey=planted;EndpointSuffix=planted/@x",
                "EndpointSuffix is no name of a host",
            ),
            (
                "AccountName=a;AccountKey=planted;DefaultEndpointsProtocol=planted",
                "DefaultEndpointsProtocol is neither https nor http",
            ),
        ] {
            let error = connection(text).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("the connection string of Azure: {why}")
            );
            assert!(!format!("{error:?}").contains("planted"), "{error:?}");
        }
    }
}
