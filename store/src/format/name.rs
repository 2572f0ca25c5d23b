//! Names of namespaces and refs, as people write them.
//!
//! A value of these types is always valid, because every constructor checks it. Names never contain `@`, `:` or a
//! control character, so a [`RefSpec`] can be parsed in one way only.

use std::fmt;
use std::str::FromStr;

use super::at::{At, Id, LATEST};
use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// Most bytes of a whole ref name.
pub const REF_NAME_BYTES_MAX: usize = 1024;
/// Most bytes of one component of a ref name.
pub const REF_COMPONENT_BYTES_MAX: usize = 255;

const NAMESPACE_HINT: &str =
    "a namespace is team/NAME or project/NAME, for example project/llama-ft";
const REF_HINT: &str =
    "a ref is a namespace and a path below it, for example project/llama-ft/imagenet";
const TARGET_HINT: &str =
    "write a namespace like project/llama-ft, or a ref like project/llama-ft/imagenet[@N][:PATH]";

/// `team/<name>` or `project/<name>`: the owner of refs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(String);

/// `<namespace>/<path>`: a named, versioned tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(String);

/// What a person writes to name something in a store: `REF[@N][:PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefSpec {
    /// The ref.
    pub name: RefName,
    /// The version; `None` for the newest.
    pub version: Option<At>,
    /// The path inside the version, as bytes without a leading slash; empty for the whole version.
    pub path: Vec<u8>,
}

/// An argument of the form `NAMESPACE|REF[@N][:PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// All refs of a namespace.
    Namespace(Namespace),
    /// One ref.
    Ref(RefSpec),
}

impl Namespace {
    /// As written: `project/llama-ft`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `name` is in this namespace.
    pub fn contains(&self, name: &RefName) -> bool {
        name.namespace_str() == self.0
    }
}

impl RefName {
    /// As written: `project/llama-ft/imagenet`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A position in the sort order rather than a valid name: before all names that begin with `prefix`.
    pub(super) fn place(prefix: &str) -> Self {
        Self(prefix.to_owned())
    }

    /// Returns its namespace: the first two components.
    pub fn namespace(&self) -> Namespace {
        Namespace(self.namespace_str().to_owned())
    }

    /// Returns the part after the namespace: `imagenet`.
    pub fn path(&self) -> &str {
        let rest = self.0.strip_prefix(self.namespace_str());
        rest.and_then(|rest| rest.strip_prefix('/'))
            .unwrap_or_default()
    }

    pub(crate) fn namespace_str(&self) -> &str {
        let end = self.0.match_indices('/').nth(1).map(|(at, _)| at);
        end.and_then(|end| self.0.get(..end)).unwrap_or(&self.0)
    }
}

impl RefSpec {
    /// Refers to the whole newest version of `name`.
    pub fn newest(name: RefName) -> Self {
        Self {
            name,
            version: None,
            path: Vec::new(),
        }
    }

    /// Parses `REF[@N][:PATH]`. The path may be any bytes, as given on a command line.
    ///
    /// # Errors
    /// Invalid input, with an example of the right form.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let mut parts = text.splitn(2, |byte| *byte == b':');
        let (name, path) = (parts.next().unwrap_or_default(), parts.next());
        let name = std::str::from_utf8(name).map_err(|source| {
            let shown = text.escape_ascii();
            Error::invalid(format!("ref \"{shown}\": expected UTF-8 before the path"))
                .hint(Remedy::SpellRef)
                .because(source)
        })?;
        let (name, version) = match name.split_once('@') {
            None => (name, None),
            Some((before, version)) => (before, Some(parse_version(name, version)?)),
        };
        Ok(Self {
            name: name.parse()?,
            version,
            path: normal_path(path.unwrap_or_default())?,
        })
    }
}

impl RefSpec {
    /// What somebody meant who wrote `REF:PATH@N`, which names a path that ends in `@N`.
    pub(crate) fn with_version_first(&self) -> Option<Self> {
        let at = self.path.iter().rposition(|byte| *byte == b'@')?;
        let (path, version) = self.path.split_at_checked(at)?;
        let version = std::str::from_utf8(version.get(1..)?).ok()?;
        let version = parse_version("", version).ok()?;
        self.version.is_none().then(|| Self {
            name: self.name.clone(),
            version: Some(version),
            path: path.to_vec(),
        })
    }
}

impl Target {
    /// Parses `NAMESPACE|REF[@N][:PATH]`, whose path may be any bytes.
    ///
    /// # Errors
    /// Invalid input, with an example of the right forms.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let slashes = text.iter().filter(|byte| **byte == b'/').count();
        let namespace = std::str::from_utf8(text)
            .ok()
            .filter(|text| slashes <= 1 && !text.contains([':', '@']));
        match namespace {
            Some(text) => text.parse().map(Self::Namespace),
            None => RefSpec::parse(text).map(Self::Ref),
        }
        .map_err(|error: Error| error.hint(TARGET_HINT))
    }
}

impl FromStr for Namespace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse =
            |why: String| Error::invalid(format!("namespace {text:?}: {why}")).hint(NAMESPACE_HINT);
        check_name(text).map_err(refuse)?;
        match text.split('/').count() {
            2 => Ok(Self(text.to_owned())),
            count => Err(refuse(format!("expected 2 components, found {count}"))),
        }
    }
}

impl FromStr for RefName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |why: String| Error::invalid(format!("ref {text:?}: {why}")).hint(REF_HINT);
        check_name(text).map_err(refuse)?;
        match text.split('/').count() {
            0..=2 => Err(refuse(
                "expected a path behind the namespace, found none".to_owned(),
            )),
            _ => Ok(Self(text.to_owned())),
        }
    }
}

impl FromStr for RefSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text.as_bytes())
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text.as_bytes())
    }
}

impl fmt::Display for RefSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.name)?;
        if let Some(version) = &self.version {
            write!(out, "@{version}")?;
        }
        if !self.path.is_empty() {
            write!(out, ":{}", String::from_utf8_lossy(&self.path))?;
        }
        Ok(())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(namespace) => namespace.fmt(out),
            Self::Ref(spec) => spec.fmt(out),
        }
    }
}

macro_rules! text_type {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.pad(&self.0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(
                &self,
                out: S,
            ) -> std::result::Result<S::Ok, S::Error> {
                out.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(
                input: D,
            ) -> std::result::Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(input)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

text_type!(Namespace);
text_type!(RefName);

/// Checks the rules that namespaces and refs share: the first component and the characters of all components.
fn check_name(text: &str) -> Result<(), String> {
    if text.len() > REF_NAME_BYTES_MAX {
        let found = text.len();
        return Err(format!(
            "expected at most {REF_NAME_BYTES_MAX} bytes, found {found}"
        ));
    }
    if text.starts_with('/') {
        return Err("expected no `/` at its start".to_owned());
    }
    let first = text.split('/').next().unwrap_or_default();
    if !matches!(first, "team" | "project") {
        return Err(format!("expected team/ or project/ first, found {first:?}"));
    }
    if text.split('/').count() < 2 {
        return Err("expected a name behind it, found none".to_owned());
    }
    text.split('/').try_for_each(check_component)
}

fn check_component(component: &str) -> Result<(), String> {
    let bad = |found: &dyn fmt::Debug| {
        Err(format!(
            "component {component:?}: expected no control character, `@`, `:` or `\\`, found {found:?}"
        ))
    };
    match component {
        "" => return Err("has an empty part: `//`, or `/` at its end".to_owned()),
        "." | ".." => return Err(format!("expected no component {component:?}, found one")),
        _ => (),
    }
    if component.starts_with('-') {
        return Err(format!("component {component:?}: expected no leading `-`"));
    }
    if component.len() > REF_COMPONENT_BYTES_MAX {
        let found = component.len();
        return Err(format!(
            "expected components of at most {REF_COMPONENT_BYTES_MAX} bytes, found one of {found}"
        ));
    }
    match component
        .chars()
        .find(|char| char.is_control() || matches!(char, '@' | ':' | '\\'))
    {
        Some(found) => bad(&found),
        None => Ok(()),
    }
}

/// Parses a version. A number must look as it is printed: at least 1, without sign or leading zeros.
fn parse_version(spec: &str, text: &str) -> Result<At> {
    let number: Option<u64> = text.parse().ok();
    number
        .filter(|number| *number > 0 && number.to_string() == text)
        .map(At::Number)
        .or_else(|| Id::parse(text).map(At::Id))
        .or_else(|| (text == LATEST).then_some(At::Latest))
        .ok_or_else(|| {
            Error::invalid(format!(
                "ref {spec:?}: expected a version number, an id or `latest` behind `@`, found {text:?}"
            ))
            .hint(Remedy::SpellRef)
        })
}

/// Returns `path` without empty components and `.`, joined by single slashes.
fn normal_path(path: &[u8]) -> Result<Vec<u8>> {
    let components: Vec<&[u8]> = path
        .split(|byte| *byte == b'/')
        .filter(|component| !matches!(*component, b"" | b"."))
        .collect();
    let bad = |component: &&&[u8]| **component == b".." || component.contains(&0);
    match components.iter().find(bad) {
        None => Ok(components.join(&b'/')),
        Some(component) => Err(Error::invalid(format!(
            "path \"{}\": expected no component `..` and no NUL, found \"{}\"",
            path.escape_ascii(),
            component.escape_ascii()
        ))
        .hint("name the path from the root of the ref, for example train/0.tar")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn name(text: &str) -> RefName {
        text.parse().unwrap()
    }

    #[test]
    fn names_know_their_parts() {
        let imagenet = name("project/llama-ft/data/imagenet");
        assert_eq!(imagenet.namespace().as_str(), "project/llama-ft");
        assert_eq!(imagenet.path(), "data/imagenet");
        assert!(imagenet.namespace().contains(&imagenet));
        let other: Namespace = "project/llama".parse().unwrap();
        assert!(!other.contains(&imagenet));
        assert_eq!(imagenet.to_string(), "project/llama-ft/data/imagenet");
        let json = serde_json::to_string(&imagenet).unwrap();
        assert_eq!(serde_json::from_str::<RefName>(&json).unwrap(), imagenet);
        assert!(serde_json::from_str::<RefName>("\"x\"").is_err());
    }

    #[test]
    fn bad_names_are_refused_and_the_hint_shows_a_good_one() {
        let long = format!("team/{}/x", "a".repeat(256));
        let longer = format!("team/a{}", "/aaaaaaa".repeat(128));
        let cases = [
            ("", "expected team/ or project/ first, found \"\""),
            (
                "imagenet",
                "expected team/ or project/ first, found \"imagenet\"",
            ),
            ("/project/a/b", "expected no `/` at its start"),
            ("team", "expected a name behind it, found none"),
            ("team/a", "expected a path behind the namespace, found none"),
            ("team/a/", "has an empty part: `//`, or `/` at its end"),
            ("team/a//b", "has an empty part: `//`, or `/` at its end"),
            ("team/a/./b", "expected no component \".\", found one"),
            ("team/../b/c", "expected no component \"..\", found one"),
            ("team/a/-b", "component \"-b\": expected no leading `-`"),
            (
                &long,
                "expected components of at most 255 bytes, found one of 256",
            ),
            (&longer, "expected at most 1024 bytes, found 1030"),
            (
                "team/a/b\n",
                "component \"b\\n\": expected no control character, `@`, `:` or `\\`, found '\\n'",
            ),
            (
                "team/a@b/c",
                "component \"a@b\": expected no control character, `@`, `:` or `\\`, found '@'",
            ),
            (
                "team/a/b:c",
                "component \"b:c\": expected no control character, `@`, `:` or `\\`, found ':'",
            ),
            (
                "team/a/b\\c",
                "component \"b\\\\c\": expected no control character, `@`, `:` or `\\`, found '\\\\'",
            ),
        ];
        for (text, why) in cases {
            let error = text.parse::<RefName>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert_eq!(error.to_string(), format!("ref {text:?}: {why}"));
            assert_eq!(error.remedy(), Some(&Remedy::from(REF_HINT)));
        }
        let error = "team/a/b".parse::<Namespace>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "namespace \"team/a/b\": expected 2 components, found 3"
        );
        assert_eq!(error.remedy(), Some(&Remedy::from(NAMESPACE_HINT)));
    }

    #[test]
    fn a_spec_is_ref_version_and_path() {
        let spec: RefSpec = "team/a/b@12:/x//./y/".parse().unwrap();
        assert_eq!(spec.name, name("team/a/b"));
        assert_eq!(spec.version, Some(At::Number(12)));
        assert_eq!(spec.path, b"x/y");
        assert_eq!(spec.to_string(), "team/a/b@12:x/y");
        let latest = RefSpec::parse(b"team/a/b@latest:x").unwrap();
        assert_eq!(
            (latest.version.as_ref(), latest.to_string().as_str()),
            (Some(&At::Latest), "team/a/b@latest:x")
        );
        let by_id: RefSpec = "team/a/b@t0123456789ab:x".parse().unwrap();
        assert_eq!(by_id.version, Id::parse("t0123456789ab").map(At::Id));
        assert_eq!(by_id.to_string(), "team/a/b@t0123456789ab:x");
        let whole: RefSpec = "team/a/b:.".parse().unwrap();
        assert_eq!(whole, RefSpec::newest(name("team/a/b")));
        let odd = RefSpec::parse(b"team/a/b:\xff@1:z").unwrap();
        assert_eq!(odd.path, b"\xff@1:z");
        assert_eq!(odd.version, None);
    }

    #[test]
    fn bad_specs_are_refused() {
        for (text, message) in [
            (
                "team/a/b@",
                "ref \"team/a/b@\": expected a version number, an id or `latest` behind `@`, found \"\"",
            ),
            (
                "team/a/b@0",
                "ref \"team/a/b@0\": expected a version number, an id or `latest` behind `@`, found \"0\"",
            ),
            (
                "team/a/b@+1",
                "ref \"team/a/b@+1\": expected a version number, an id or `latest` behind `@`, found \"+1\"",
            ),
            (
                "team/a/b@01",
                "ref \"team/a/b@01\": expected a version number, an id or `latest` behind `@`, found \"01\"",
            ),
            (
                "team/a/b:x/../y",
                "path \"x/../y\": expected no component `..` and no NUL, found \"..\"",
            ),
            (
                "team/a/b:x\0",
                "path \"x\\x00\": expected no component `..` and no NUL, found \"x\\x00\"",
            ),
            (
                "team/a",
                "ref \"team/a\": expected a path behind the namespace, found none",
            ),
        ] {
            let error = text.parse::<RefSpec>().unwrap_err();
            assert_eq!(error.to_string(), message);
            assert!(error.remedy().is_some());
        }
        let error = RefSpec::parse(b"team/\xff/b").unwrap_err();
        assert_eq!(
            error.to_string(),
            "ref \"team/\\xff/b\": expected UTF-8 before the path"
        );
    }

    #[test]
    fn a_target_is_a_namespace_or_a_ref() {
        let target: Target = "team/a".parse().unwrap();
        assert_eq!(target, Target::Namespace("team/a".parse().unwrap()));
        assert_eq!(target.to_string(), "team/a");
        let target: Target = "team/a/b@2".parse().unwrap();
        assert_eq!(target, Target::Ref("team/a/b@2".parse().unwrap()));
        for bad in ["", "team", "imagenet", "team/a@1", "team/a:x", "x/y/z"] {
            let error = bad.parse::<Target>().unwrap_err();
            assert_eq!(error.remedy(), Some(&Remedy::from(TARGET_HINT)), "{bad}");
        }
    }
}
