//! The configuration file. A flag or an environment variable overrides its values.
//!
//! An unknown name in the file is an error, so that a typing mistake does not silently select a default.

pub(crate) mod clusters;
pub(crate) mod edit;
pub(crate) mod jobs;
pub(crate) mod layouts;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use store::{Error, Result};
use store::{Extra, Pattern, Policy, Rules, Scope};

use crate::config::clusters::{Cluster, Label};
use crate::config::jobs::Job;
use crate::config::layouts::Layout;
use crate::connect::Profile;
use crate::host::files;
use crate::ui::human::{Life, Percent, Span, Versions};
use crate::ui::{home, names, remedy, suggest};

/// The content of `config.toml`.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The store: a directory or a URL.
    pub(crate) store: Option<String>,
    /// The profile that reaches the bucket of that store.
    #[serde(rename = "store-profile")]
    pub(crate) store_profile: Option<String>,
    /// Bytes that buffers may take, like `256MiB`.
    pub(crate) memory: Option<Size>,
    /// How long to retry a failed request to a bucket, like `30s`. A profile may have its own value.
    pub(crate) deadline: Option<Span>,
    /// The pool that trees link to.
    #[serde(default)]
    pub(crate) pool: Pool,
    /// How `store gc` collects.
    #[serde(default)]
    pub(crate) gc: Gc,
    /// Retention and quotas, as `[[keep]]`. If several match a ref, the first one applies.
    #[serde(default)]
    pub(crate) keep: Vec<Keep>,
    /// Named stores, as `[cluster.NAME]`.
    #[serde(default)]
    pub(crate) cluster: BTreeMap<Label, Cluster>,
    /// Named duplications, as `[job.NAME]`.
    #[serde(default)]
    pub(crate) job: BTreeMap<Label, Job>,
    /// Where `store run` makes caches, as `[layout.NAME]`.
    #[serde(default)]
    pub(crate) layout: BTreeMap<String, Layout>,
    /// Settings that reach buckets, as `[profile.NAME]`.
    #[serde(default, rename = "profile")]
    pub(crate) profiles: BTreeMap<String, Profile>,
}

/// Where the pool is and what it may take.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Pool {
    pub(crate) path: Option<PathBuf>,
    /// Maximum total size of the pool's files, in bytes.
    pub(crate) max: Option<Size>,
    /// Bytes of the file system that the pool leaves free for others.
    pub(crate) free: Option<Size>,
}

/// The defaults of `store gc`.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Gc {
    pub(crate) min_age: Option<Span>,
    pub(crate) grace: Option<Span>,
    pub(crate) max_unused: Option<Percent>,
    pub(crate) max_repack: Option<Size>,
    pub(crate) max_size: Option<Limit>,
}

/// Retention and quota of the refs that match a pattern.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Keep {
    /// The pattern of refs, like `project/*`.
    pub(crate) refs: String,
    pub(crate) last: Option<Versions>,
    pub(crate) within: Option<Life>,
    pub(crate) daily: Option<Versions>,
    pub(crate) weekly: Option<Versions>,
    pub(crate) monthly: Option<Versions>,
    /// Stored bytes that each namespace may take.
    pub(crate) quota: Option<Limit>,
}

impl Config {
    /// The configured retention rules and limits.
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            keep: self.keep.iter().map(Scope::from).collect(),
            bytes_max: self.gc.max_size.map(|size| size.0),
            extra: Extra::new(),
        }
    }
}

impl From<&Keep> for Scope {
    fn from(keep: &Keep) -> Self {
        let count = |versions: Option<Versions>| versions.map(|Versions(count)| count);
        Self {
            pattern: Pattern::new(keep.refs.clone()),
            rules: Rules {
                keep_last: count(keep.last),
                keep_within_secs: keep.within.map(|Life(time)| time.as_secs()),
                keep_daily: count(keep.daily),
                keep_weekly: count(keep.weekly),
                keep_monthly: count(keep.monthly),
            },
            quota_bytes: keep.quota.map(|size| size.0),
            extra: Extra::new(),
        }
    }
}

/// A size as people write it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Size(pub(crate) u64);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        crate::ui::human::parse_size(&text).map(Self)
    }
}

/// A size that versions may take, as people write it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Limit(pub(crate) u64);

impl TryFrom<String> for Limit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        crate::ui::human::parse_limit(&text).map(Self)
    }
}

impl Config {
    /// Reads the configuration at its usual path. Returns the defaults if there is none.
    pub(crate) fn load() -> Result<Self> {
        config_file().map_or_else(|| Ok(Self::default()), |path| Self::read(&path))
    }

    /// The cluster of this name, if there is one.
    pub(crate) fn cluster(&self, name: &str) -> Option<&Cluster> {
        self.cluster.get(&name.parse().ok()?)
    }

    /// The profile that the configuration gives for the store at `url`: that of the configured store, or the one that
    /// all clusters with this URL share.
    pub(crate) fn profile_of(&self, url: &str) -> Option<&str> {
        let is_same = |other: &str| other.trim_end_matches('/') == url.trim_end_matches('/');
        let configured = self.store.as_deref().filter(|store| is_same(store));
        if let (Some(_), Some(profile)) = (configured, &self.store_profile) {
            return Some(profile);
        }
        let clusters = self.cluster.values();
        let mut profiles = clusters
            .filter(|cluster| is_same(&cluster.url))
            .map(|cluster| cluster.profile.as_deref());
        let first = profiles.next()??;
        profiles.all(|other| other == Some(first)).then_some(first)
    }

    /// The error for an unknown cluster name.
    pub(crate) fn no_cluster(&self, name: &str) -> Error {
        let near = suggest::nearest(name, self.cluster.keys().map(Label::as_str));
        let near = near.map_or_else(String::new, |near| format!("did you mean {near}? "));
        Error::not_found(format!("{name}: no such cluster")).hint(format!(
            "{near}list them with `store cluster ls`, or say where it is with `store cluster add {} URL`",
            names::quoted(name)
        ))
    }

    /// Adds a hint to `error`: the configured profile whose name is most like `name`.
    pub(crate) fn near_profile(&self, error: Error, name: &str) -> Error {
        let known = self.profiles.keys().map(String::as_str);
        let near = suggest::nearest(name, known).filter(|near| *near != name);
        match (near, error.remedy().map(remedy::words)) {
            (Some(near), Some(hint)) => {
                let hint = format!("did you mean {near}? {hint}");
                error.hint(hint)
            }
            _ => error,
        }
    }

    /// The error for an unknown job name.
    pub(crate) fn no_job(&self, name: &Label) -> Error {
        let near = suggest::nearest(name.as_str(), self.job.keys().map(Label::as_str));
        let near = near.map_or_else(String::new, |near| format!("did you mean {near}? "));
        Error::not_found(format!("{name}: no such job")).hint(format!(
            "{near}jobs are defined in the configuration, as [job.{name}]"
        ))
    }

    fn read(path: &Path) -> Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let dir = path.parent().unwrap_or(Path::new("/"));
                Self::parse(path, &text).map(|config| config.rooted(dir))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(files::unread("read the configuration", path, error)),
        }
    }

    /// Makes relative paths absolute. They start at the directory of the file, wherever a command runs.
    fn rooted(mut self, dir: &Path) -> Self {
        let labels: Vec<Label> = self.cluster.keys().cloned().collect();
        let is_cluster = |url: &str| labels.iter().any(|label| label.as_str() == url);
        let clusters = self.cluster.values_mut();
        clusters.for_each(|cluster| root(dir, &mut cluster.url));
        let stores = self.store.iter_mut();
        let ends = self.job.values_mut();
        // A plain word is the name of a cluster, so it is not made a path. If no cluster has the name, that is an error
        // later.
        let ends = ends.flat_map(|job| [&mut job.from, &mut job.to]);
        let ends = ends.filter(|url| url.contains(['/', '.']));
        stores
            .chain(ends)
            .filter(|url| !url.is_empty() && !is_cluster(url))
            .for_each(|url| root(dir, url));
        if let Some(path) = &mut self.pool.path {
            *path = dir.join(home::path_at_home(std::mem::take(path)));
        }
        for profile in self.profiles.values_mut() {
            profile.root(dir);
        }
        self
    }

    /// Parses the file. Errors give the position of a mistake but never quote the line, which may hold a secret.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self> {
        toml::from_str(text)
            .map_err(|error| {
                Error::invalid(format!("configuration {}", path.display()))
                    .because(mistake(text, &error))
            })
            .and_then(|config: Self| config.checked(path))
    }

    /// Refuses a cluster that nobody could name, and one that is nowhere.
    fn checked(self, path: &Path) -> Result<Self> {
        let wrong = |name: &Label, why: &str| {
            Error::invalid(format!(
                "configuration {}: cluster {name}: {why}",
                path.display()
            ))
        };
        for (name, cluster) in &self.cluster {
            if name.as_str() == clusters::HERE {
                let why = "`store where` and `store duplicate` call the store of this host so";
                return Err(wrong(name, why).hint("choose another name"));
            }
            if cluster.url.trim().is_empty() {
                return Err(wrong(name, "its url is empty"));
            }
        }
        Ok(self)
    }

    /// The path of the file, if it holds credentials and other users may read it.
    pub(crate) fn exposed(&self) -> Option<PathBuf> {
        if !self.profiles.values().any(Profile::holds_secrets) {
            return None;
        }
        let path = config_file()?;
        let mode = std::fs::metadata(&path).ok()?.permissions().mode();
        (mode & 0o077 != 0).then_some(path)
    }
}

/// What is wrong with a text in TOML, and where, on one line.
pub(crate) fn mistake(text: &str, error: &toml::de::Error) -> String {
    let before = error
        .span()
        .and_then(|span| text.get(..span.start))
        .unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|&at| at != '\n').count() + 1;
    format!("line {line}, column {column}: {}", error.message())
}

/// Makes a relative directory absolute, starting at `dir`, and one that begins with `~/`. Leaves URLs alone.
fn root(dir: &Path, url: &mut String) {
    let is_url = url
        .split_once(':')
        .is_some_and(|(scheme, _)| !scheme.contains('/'));
    if is_url || url.is_empty() {
        return;
    }
    if let Some(path) = dir.join(home::text_at_home(url)).to_str() {
        *url = path.to_owned();
    }
}

/// `$XDG_CONFIG_HOME/store/config.toml`.
pub(crate) fn config_file() -> Option<PathBuf> {
    Some(xdg("XDG_CONFIG_HOME", ".config")?.join("config.toml"))
}

/// The tokens that a server of this user accepts, beside `config.toml`.
pub(crate) fn tokens_file() -> Option<PathBuf> {
    Some(config_file()?.with_file_name("tokens.json"))
}

/// `$XDG_DATA_HOME/store`: the embedded store.
pub(crate) fn data_dir() -> Option<PathBuf> {
    xdg("XDG_DATA_HOME", ".local/share")
}

/// `$XDG_CACHE_HOME/store`: derived data that may be lost.
pub(crate) fn cache_dir() -> Option<PathBuf> {
    xdg("XDG_CACHE_HOME", ".cache")
}

/// `$XDG_STATE_HOME/store`: what a host remembers between runs and may lose.
pub(crate) fn state_dir() -> Option<PathBuf> {
    xdg("XDG_STATE_HOME", ".local/state")
}

/// Paths that no tree may be made at, in or around.
pub(crate) fn precious() -> store::Precious {
    let config = config_file().and_then(|file| Some(file.parent()?.to_path_buf()));
    let own = [data_dir(), state_dir(), cache_dir(), config];
    // $HOME may not be the home of the user, as under `sudo` and in jobs.
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    let users = std::fs::read("/etc/passwd").unwrap_or_default();
    store::Precious {
        homes: home.into_iter().chain(homes(&users)).collect(),
        own: own.into_iter().flatten().collect(),
    }
}

/// The home directories in a user list. Leaves out `/`, which is refused anyway.
fn homes(users: &[u8]) -> impl Iterator<Item = PathBuf> {
    users.split(|byte| *byte == b'\n').filter_map(|line| {
        let home = line.split(|byte| *byte == b':').nth(5)?;
        let home = Path::new(OsStr::from_bytes(home));
        (home.is_absolute() && home.parent().is_some()).then(|| home.to_path_buf())
    })
}

/// An XDG directory. The XDG base directory specification says to ignore relative paths in these variables.
fn xdg(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    let named = std::env::var_os(variable).and_then(absolute);
    let base = named.or_else(|| {
        Some(
            std::env::var_os("HOME")
                .and_then(absolute)?
                .join(below_home),
        )
    });
    base.map(|base| base.join("store"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_has_a_home() {
        let users =
            b"root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n\nbad\n\
                      ana:x:1000:1000:Ana,,,:/home/ana:/bin/sh";
        let found: Vec<_> = homes(users).collect();
        assert_eq!(found, [Path::new("/root"), Path::new("/home/ana")]);
    }

    #[test]
    fn a_configuration_says_what_holds() {
        let config = Config::parse(
            Path::new("c"),
            "store = \"/data/store\"\nmemory = \"64MiB\"\n",
        )
        .unwrap();
        let expected = Config {
            store: Some("/data/store".to_owned()),
            memory: Some(Size(64 << 20)),
            ..Config::default()
        };
        assert_eq!(config, expected);
        assert_eq!(
            Config::parse(Path::new("c"), "").unwrap(),
            Config::default()
        );
    }

    #[test]
    fn retention_and_quotas_are_configured_by_pattern() {
        let text = "[gc]\ngrace = \"2h\"\nmax-unused = \"10%\"\nmax-size = \"1TB\"\n\
                    [[keep]]\nrefs = \"project/*\"\nlast = 3\nwithin = \"30d\"\nquota = \"5GB\"\n";
        let config = Config::parse(Path::new("c"), text).unwrap();
        let policy = config.policy();
        assert_eq!(policy.bytes_max, Some(1_000_000_000_000));
        let name = "project/a/b".parse().unwrap();
        let scope = policy.keep.first().unwrap();
        assert_eq!(scope.rules.keep_within_secs, Some(30 * 24 * 3600));
        assert_eq!(policy.quota(&name), Some(5_000_000_000));
        assert_eq!(policy.quota(&"team/a/b".parse().unwrap()), None);
    }

    #[test]
    fn one_url_has_one_profile() {
        let text = "store = \"s3://a\"\nstore-profile = \"own\"\n[cluster.b]\nurl = \"s3://b/\"\nprofile = \"p\"\n\
                    [cluster.c]\nurl = \"s3://c\"\nprofile = \"p\"\n[cluster.d]\nurl = \"s3://c\"\nprofile = \"q\"\n";
        let config = Config::parse(Path::new("c"), text).unwrap();
        for (url, profile) in [
            ("s3://a", Some("own")),
            ("s3://a/", Some("own")),
            ("s3://b", Some("p")),
            ("s3://c", None),
            ("s3://x", None),
        ] {
            assert_eq!(config.profile_of(url), profile, "{url}");
        }
    }

    #[test]
    fn relative_paths_begin_at_the_file() {
        let text = "store = \"own\"\n[pool]\npath = \"pool\"\n[cluster.far]\nurl = \"../far\"\n\
                    [job.a]\nfrom = \"./near\"\nto = \"far\"\nrefs = []\n\
                    [job.b]\nfrom = \"s3://x/y\"\nto = \"/abs\"\nrefs = []\n";
        let config = Config::parse(Path::new("c"), text).unwrap();
        let config = config.rooted(Path::new("/etc/store"));
        assert_eq!(config.store.as_deref(), Some("/etc/store/own"));
        assert_eq!(
            config.pool.path.as_deref(),
            Some(Path::new("/etc/store/pool"))
        );
        assert_eq!(config.cluster("far").unwrap().url, "/etc/store/../far");
        let jobs: Vec<_> = config.job.values().collect();
        assert_eq!((&*jobs[0].from, &*jobs[0].to), ("/etc/store/./near", "far"));
        assert_eq!((&*jobs[1].from, &*jobs[1].to), ("s3://x/y", "/abs"));
    }

    #[test]
    fn a_mistake_beside_a_secret_does_not_repeat_it() {
        for text in [
            "[profile.h]\nsecret-access-key = \"planted\n",
            "[profile.h]\nsecret-access-key = [\"planted\"]\n",
            "secret-access-key = \"planted\"\n",
        ] {
            let error = Config::parse(Path::new("config.toml"), text).unwrap_err();
            assert!(!format!("{error:?}").contains("planted"), "{error:?}");
        }
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        for (text, cause) in [
            (
                "stroe = \"/x\"",
                "unknown field `stroe`, expected one of `store`, `store-profile`, `memory`, `deadline`, `pool`, `gc`, `keep`, `cluster`, `job`, `layout`, `profile`",
            ),
            (
                "memory = \"lots\"",
                "expected a size like 4096, 64k, 10MB or 1.5GiB",
            ),
            ("store = ", "line 1, column 9"),
        ] {
            let error = Config::parse(Path::new("config.toml"), text).unwrap_err();
            assert_eq!(error.to_string(), "configuration config.toml");
            assert!(format!("{error:?}").contains(cause), "{error:?}");
        }
    }
}
