//! Profiles of the AWS files `~/.aws/credentials` and `~/.aws/config`.
//!
//! Keys, region, endpoint, certificates, web identity and `credential_process` are used. Sources that ask a browser or
//! another profile (single sign-on, `source_profile`) are refused by name. Messages never contain values.

use std::path::{Path, PathBuf};

use configparser::ini::Ini;
use store::{Error, Result};

use crate::connect::{CA_BUNDLE, CREDENTIAL_PROCESS, Variables};
use crate::host::files;
use crate::ui::remedy;

/// The supported keys, and their names in the engine.
const TAKEN: [(&str, &str); 9] = [
    ("aws_access_key_id", "aws_access_key_id"),
    ("aws_secret_access_key", "aws_secret_access_key"),
    ("aws_session_token", "aws_session_token"),
    ("role_arn", "aws_role_arn"),
    ("role_session_name", "aws_role_session_name"),
    ("web_identity_token_file", "aws_web_identity_token_file"),
    ("region", "aws_region"),
    ("endpoint_url", "aws_endpoint_url"),
    ("ca_bundle", CA_BUNDLE),
];
/// Sources of credentials that are not supported.
const REFUSED: [&str; 4] = [
    "login_session",
    "source_profile",
    "sso_session",
    "sso_start_url",
];

/// The settings of the profile `named`, else of `$AWS_PROFILE`, else of `default`. The profile `default` may be
/// missing.
///
/// # Errors
/// Not found, if a named profile is in neither file; unsupported, if its source of credentials is not
/// supported; invalid input, if a file is not an INI file.
pub(crate) fn profile(named: Option<&str>, variables: &Variables) -> Result<Vec<(String, String)>> {
    let chosen = named.or(variables.get("AWS_PROFILE").map(String::as_str));
    let name = chosen.unwrap_or("default");
    let credentials = file(variables, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
    let config = file(variables, "AWS_CONFIG_FILE", "config");
    let of_credentials = section(credentials.as_deref(), name)?;
    let of_config = match name {
        "default" => section(config.as_deref(), name)?,
        _ => section(config.as_deref(), &format!("profile {name}"))?,
    };
    if chosen.is_some() && of_credentials.is_none() && of_config.is_none() {
        let shown = |path: &Option<PathBuf>| match path {
            Some(path) => path.display().to_string(),
            None => "no file".to_owned(),
        };
        let (first, second) = (shown(&credentials), shown(&config));
        return Err(Error::not_found(format!(
            "profile {name} of AWS is neither in {first} nor in {second}"
        ))
        .hint("`aws configure list-profiles` lists the names"));
    }
    let mut found = of_config.unwrap_or_default();
    found.extend(of_credentials.unwrap_or_default());
    let value = |key: &str| found.iter().rev().find(|(name, _)| name == key);
    let usable = value("aws_access_key_id").is_some() || value("web_identity_token_file").is_some();
    let process = value(CREDENTIAL_PROCESS).filter(|_| !usable);
    if let (Some(_), false, Some(way)) = (
        chosen,
        usable || process.is_some(),
        REFUSED.into_iter().find(|way| value(way).is_some()),
    ) {
        return Err(Error::new(
            store::ErrorKind::Unsupported,
            format!("profile {name} of AWS: {way} is not supported"),
        )
        .hint(format!(
            "make a profile that asks AWS's command for them: credential_process = aws configure \
                 export-credentials --profile {name} --format process"
        )));
    }
    let taken = TAKEN.into_iter().filter_map(|(key, setting)| {
        // Roles are supported with web identity only.
        if key.starts_with("role_") && value("web_identity_token_file").is_none() {
            return None;
        }
        Some((setting.to_owned(), value(key)?.1.clone()))
    });
    Ok(taken.chain(process.cloned()).collect())
}

/// Why the implicit default profile has unsupported credentials; `None` if that is not the case.
pub(crate) fn why_none(variables: &Variables) -> Option<String> {
    let error = profile(Some("default"), variables).err()?;
    let is_refused = error.kind() == store::ErrorKind::Unsupported;
    is_refused.then(|| match error.remedy() {
        Some(remedy) => format!("{error}; {}", remedy::words(remedy)),
        None => error.to_string(),
    })
}

fn file(variables: &Variables, variable: &str, usual: &str) -> Option<PathBuf> {
    let named = variables.get(variable).map(PathBuf::from);
    named.or_else(|| Some(Path::new(variables.get("HOME")?).join(".aws").join(usual)))
}

/// Names and values of the section `[name]`, if the file has it.
fn section(path: Option<&Path>, name: &str) -> Result<Option<Vec<(String, String)>>> {
    let Some(path) = path else { return Ok(None) };
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| files::unread("read", path, error))?,
    };
    let mut ini = Ini::new_cs();
    // Keys may contain the usual comment symbols.
    ini.set_inline_comment_symbols(Some(&[]));
    // The message of the parser repeats the line.
    let mut sections = ini
        .read(text)
        .map_err(|_repeated| Error::invalid(format!("{}: is no INI file", path.display())))?;
    let pairs = |values: std::collections::HashMap<String, Option<String>>| {
        values
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?)))
            .collect()
    };
    Ok(sections.remove(name).map(pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "[default]\naws_access_key_id = d\naws_secret_access_key = a;b#c=\n\
                               # a comment\n[h200]\naws_access_key_id=h\naws_secret_access_key=s\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\n[profile h200]\nendpoint_url = https://h200\n\
                          s3 =\n  addressing_style = path\n[profile sso]\nsso_session = x\n";

    fn home() -> (tempfile::TempDir, Variables) {
        let home = tempfile::tempdir().unwrap();
        let aws = home.path().join(".aws");
        std::fs::create_dir(&aws).unwrap();
        std::fs::write(aws.join("credentials"), CREDENTIALS).unwrap();
        std::fs::write(aws.join("config"), CONFIG).unwrap();
        let path = home.path().to_str().unwrap().to_owned();
        (home, [("HOME".to_owned(), path)].into())
    }

    fn shown(found: &[(String, String)]) -> Vec<String> {
        let line = |(name, value): &(String, String)| format!("{name}={value}");
        found.iter().map(line).collect()
    }

    #[test]
    fn both_files_tell_of_a_profile() {
        let (_home, mut variables) = home();
        let default = profile(None, &variables).unwrap();
        assert_eq!(
            shown(&default),
            [
                "aws_access_key_id=d",
                "aws_secret_access_key=a;b#c=",
                "aws_region=eu-west-1"
            ]
        );
        let h200 = [
            "aws_access_key_id=h",
            "aws_secret_access_key=s",
            "aws_endpoint_url=https://h200",
        ];
        assert_eq!(shown(&profile(Some("h200"), &variables).unwrap()), h200);
        variables.insert("AWS_PROFILE".to_owned(), "h200".to_owned());
        assert_eq!(shown(&profile(None, &variables).unwrap()), h200);
    }

    #[test]
    fn what_is_missing_or_not_supported_is_named() {
        let (_home, variables) = home();
        let error = profile(Some("other"), &variables).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("profile other of AWS is neither in /"),
            "{error}"
        );
        let error = profile(Some("sso"), &variables).unwrap_err();
        assert_eq!(
            error.to_string(),
            "profile sso of AWS: sso_session is not supported"
        );
        assert!(profile(None, &Variables::new()).unwrap().is_empty());
    }

    #[test]
    fn a_program_that_prints_credentials_is_taken_where_there_are_no_others() {
        let (home, variables) = home();
        let config = home.path().join(".aws/config");
        let process = "[profile program]\ncredential_process = /opt/login --as 'a b'\n\
                       [profile h200]\ncredential_process = no\n";
        std::fs::write(config, process).unwrap();
        let found = shown(&profile(Some("program"), &variables).unwrap());
        assert_eq!(found, ["credential_process=/opt/login --as 'a b'"]);
        let keys = shown(&profile(Some("h200"), &variables).unwrap());
        assert_eq!(keys, ["aws_access_key_id=h", "aws_secret_access_key=s"]);
    }

    #[test]
    fn a_default_profile_of_single_sign_on_says_why_it_is_of_no_use() {
        let (home, variables) = home();
        assert_eq!(why_none(&variables), None);
        assert_eq!(why_none(&Variables::new()), None);
        let aws = home.path().join(".aws");
        std::fs::remove_file(aws.join("credentials")).unwrap();
        std::fs::write(aws.join("config"), "[default]\nsso_session = x\n").unwrap();
        assert!(profile(None, &variables).unwrap().is_empty());
        let why = why_none(&variables).unwrap();
        let expected = "profile default of AWS: sso_session is not supported; make a profile that asks AWS's command";
        assert!(why.starts_with(expected), "{why}");
    }
}
