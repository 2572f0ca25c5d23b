//! Parses requests: the endpoint in the path, the repo, and the call.
//!
//! A path is `[/team/NAME|/project/NAME]` followed by what a client appends to HF_ENDPOINT. It is split before it is
//! decoded, so that a revision or a path with escaped slashes is one segment.

use store::Namespace;

/// Maximum bytes of a repo's id.
const ID_BYTES_MAX: usize = 96;

/// The type of a repo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Type {
    Model,
    Dataset,
    Space,
    Kernel,
}

/// A repo as a client names it: `NAME` or `OWNER/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(String);

/// The name of a repo in a namespace; the repo need not exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Named {
    pub(crate) namespace: Namespace,
    pub(crate) kind: Type,
    pub(crate) id: Id,
}

/// A request to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Root,
    WhoAmI,
    Create,
    Delete,
    ValidateYaml,
    List(Type),
    Repo(Type, Id, Call),
}

/// A request about a repo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Info(Option<String>),
    Tree {
        rev: String,
        path: String,
    },
    PathsInfo(String),
    Refs,
    Commits(String),
    AuthCheck,
    XetToken,
    Preupload(String),
    Commit(String),
    /// Creates or deletes a branch or a tag.
    Branch(String),
    Batch,
    Upload(String),
    Verify(String),
    Resolve {
        rev: String,
        path: String,
    },
}

impl Type {
    pub(crate) const ALL: [Self; 4] = [Self::Model, Self::Dataset, Self::Space, Self::Kernel];

    /// `models` etc., as in API paths, in caches and in names of refs.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::Dataset => "datasets",
            Self::Space => "spaces",
            Self::Kernel => "kernels",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.plural() == text)
    }
}

impl Id {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses segments of a path. An escaped slash does not separate names.
    fn of(names: &[&str]) -> Option<Self> {
        let id = Self::parse(&names.join("/"))?;
        (id.0.split('/').count() == names.len()).then_some(id)
    }

    /// Parses `NAME` or `OWNER/NAME` by the Hub's rules.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let names: Vec<&str> = text.split('/').collect();
        let is_name = |name: &&str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !name.is_empty() && name.bytes().all(is_plain) && !name.starts_with(['.', '-'])
        };
        let fits = text.len() <= ID_BYTES_MAX
            && names.len() <= 2
            && names.iter().all(is_name)
            && !text.contains("--")
            && !text.contains("..")
            && !text.ends_with(".git");
        fits.then(|| Self(text.to_owned()))
    }
}

/// The namespace at the beginning of a path, if any, and the remaining segments.
pub(crate) fn endpoint(segments: &[String]) -> (Option<Namespace>, &[String]) {
    if let [first, second, rest @ ..] = segments
        && matches!(first.as_str(), "team" | "project")
        && let Ok(namespace) = format!("{first}/{second}").parse()
    {
        return (Some(namespace), rest);
    }
    (None, segments)
}

/// Whether this is an address for monitoring, or `/`.
pub(crate) fn is_for_machines(segments: &[String]) -> bool {
    matches!(segments, [name] if ["", "healthz", "metrics"].contains(&name.as_str()))
}

impl Route {
    /// Parses the segments after the endpoint.
    pub(crate) fn parse(segments: &[String]) -> Option<Self> {
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            [] | [""] => Some(Self::Root),
            ["api", "whoami-v2"] => Some(Self::WhoAmI),
            ["api", "repos", "create"] => Some(Self::Create),
            ["api", "repos", "delete"] => Some(Self::Delete),
            ["api", "validate-yaml"] => Some(Self::ValidateYaml),
            ["api", kind] => Type::parse(kind).map(Self::List),
            ["api", kind, rest @ ..] => of_api(Type::parse(kind)?, rest),
            [kind, rest @ ..] if Type::parse(kind).is_some() => of_file(Type::parse(kind)?, rest),
            rest => of_file(Type::Model, rest),
        }
    }
}

/// Parses `OWNER/NAME/CALL...` or `NAME/CALL...`.
fn of_api(kind: Type, rest: &[&str]) -> Option<Route> {
    let split = |names| {
        let (id, what) = rest.split_at_checked(names)?;
        Some(Route::Repo(kind, Id::of(id)?, call(what)?))
    };
    // `NAME/refs` is a call for NAME, not a repo.
    let short = split(1).filter(|route| !matches!(route, Route::Repo(_, _, Call::Info(None))));
    let is_short = rest.len() == 2 && short.is_some();
    match is_short {
        true => short,
        false => split(2).or_else(|| split(1)),
    }
}

fn call(what: &[&str]) -> Option<Call> {
    let owned = |text: &str| text.to_owned();
    Some(match what {
        [] => Call::Info(None),
        ["revision", rev] => Call::Info(Some(owned(rev))),
        ["tree", rev, path @ ..] => Call::Tree {
            rev: owned(rev),
            path: path.join("/").trim_end_matches('/').to_owned(),
        },
        ["paths-info", rev] => Call::PathsInfo(owned(rev)),
        ["refs"] => Call::Refs,
        ["commits", rev] => Call::Commits(owned(rev)),
        ["auth-check"] => Call::AuthCheck,
        ["preupload", rev] => Call::Preupload(owned(rev)),
        ["commit", rev] => Call::Commit(owned(rev)),
        ["branch" | "tag", name] => Call::Branch(owned(name)),
        ["lfs-upload", oid] => Call::Upload(owned(oid)),
        ["lfs-verify", oid] => Call::Verify(owned(oid)),
        ["xet-read-token" | "xet-write-token", _] => Call::XetToken,
        _ => return None,
    })
}

/// Parses `OWNER/NAME/resolve/REV/PATH` or `NAME/resolve/REV/PATH`.
fn of_file(kind: Type, rest: &[&str]) -> Option<Route> {
    [2, 1].into_iter().find_map(|names| {
        let (id, what) = rest.split_at_checked(names)?;
        if what == ["info", "lfs", "objects", "batch"] {
            let id: Vec<&str> = id
                .iter()
                .map(|name| name.strip_suffix(".git").unwrap_or(name))
                .collect();
            return Some(Route::Repo(kind, Id::of(&id)?, Call::Batch));
        }
        let ["resolve", rev, path @ ..] = what else {
            return None;
        };
        let (rev, path) = ((*rev).to_owned(), path.join("/"));
        Some(Route::Repo(kind, Id::of(id)?, Call::Resolve { rev, path }))
    })
}

/// The repo at `OWNER/NAME` or `NAME`, and at what a Hub's web site shows below it, if no client asks for anything there.
/// Clients print such addresses.
pub(crate) fn printed(segments: &[String]) -> Option<(Type, Id)> {
    if Route::parse(segments).is_some() {
        return None;
    }
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (kind, rest) = match segments.as_slice() {
        [kind, rest @ ..] if Type::parse(kind).is_some() => (Type::parse(kind)?, rest),
        rest => (Type::Model, rest),
    };
    [2, 1].into_iter().find_map(|names| {
        let (id, what) = rest.split_at_checked(names)?;
        let is_shown = matches!(what, [] | [""] | ["tree" | "blob" | "commit", ..]);
        Some((kind, Id::of(id).filter(|_| is_shown)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::text;

    fn parse(path: &str) -> (Option<String>, Option<Route>) {
        let segments = text::segments(path).unwrap();
        let (namespace, rest) = endpoint(&segments);
        (namespace.map(|name| name.to_string()), Route::parse(rest))
    }

    fn repo(kind: Type, id: &str, call: Call) -> Option<Route> {
        Some(Route::Repo(kind, Id::parse(id).unwrap(), call))
    }

    fn resolve(rev: &str, path: &str) -> Call {
        let (rev, path) = (rev.to_owned(), path.to_owned());
        Call::Resolve { rev, path }
    }

    #[test]
    fn files_of_all_types_below_an_endpoint_and_without_one() {
        let (namespace, route) = parse("/project/llama-ft/org/m/resolve/refs%2Fpr%2F1/a%20b/c%2Bd");
        assert_eq!(namespace.as_deref(), Some("project/llama-ft"));
        assert_eq!(
            route,
            repo(Type::Model, "org/m", resolve("refs/pr/1", "a b/c+d"))
        );
        let (namespace, route) = parse("/datasets/org/d/resolve/main/x.parquet");
        assert_eq!(namespace, None);
        assert_eq!(
            route,
            repo(Type::Dataset, "org/d", resolve("main", "x.parquet"))
        );
        assert_eq!(
            parse("/gpt2/resolve/main/x").1,
            repo(Type::Model, "gpt2", resolve("main", "x"))
        );
    }

    #[test]
    fn repos_without_an_owner_are_asked_like_others() {
        for (path, call) in [
            ("gpt2", Call::Info(None)),
            ("gpt2/refs", Call::Refs),
            ("gpt2/auth-check", Call::AuthCheck),
            ("gpt2/commits/main", Call::Commits("main".to_owned())),
            ("gpt2/revision/main", Call::Info(Some("main".to_owned()))),
        ] {
            let found = parse(&format!("/api/models/{path}")).1;
            assert_eq!(found, repo(Type::Model, "gpt2", call), "{path}");
        }
        let found = parse("/api/models/refs/refs/refs").1;
        assert_eq!(found, repo(Type::Model, "refs/refs", Call::Refs));
    }

    #[test]
    fn a_path_of_a_tree_may_be_one_segment() {
        let tree = |path: &str| Call::Tree {
            rev: "main".to_owned(),
            path: path.to_owned(),
        };
        for (path, expected) in [
            ("/api/models/o/m/tree/main", ""),
            ("/api/models/o/m/tree/main/", ""),
            ("/api/models/o/m/tree/main/a%2Fb%2Bc%2F", "a/b+c"),
            ("/api/models/o/m/tree/main/a/b+c", "a/b+c"),
        ] {
            assert_eq!(
                parse(path).1,
                repo(Type::Model, "o/m", tree(expected)),
                "{path}"
            );
        }
    }

    #[test]
    fn ids_that_no_hub_gives_out_are_no_repos() {
        for bad in [
            "", "a/b/c", "a--b", "a/..", "../b", ".a/b", "a b", "a/b.git", "a/\u{e9}", "/a", "a/",
        ] {
            assert_eq!(Id::parse(bad), None, "{bad}");
        }
        assert_eq!(Id::parse(&"a".repeat(97)), None);
        assert!(Id::parse(&"a".repeat(96)).is_some());
        for path in [
            "/a/b/resolve/main",
            "/a/b/resolves/main/x",
            "/api/cars/a/b",
            "/%2e%2e/b/resolve/main/x",
        ] {
            let found = parse(path).1;
            let is_a_file = matches!(&found, Some(Route::Repo(_, _, Call::Resolve { path, .. })) if !path.is_empty());
            assert!(!is_a_file, "{path}: {found:?}");
        }
    }
}
