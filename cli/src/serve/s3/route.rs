//! Parses requests: the bucket and the key in a path, and the call in the query.
//!
//! The path is `/BUCKET/KEY`, each decoded once; a bucket is `project.NAME` or `team.NAME`. A key is a text: an escaped
//! slash is a slash, and no file has a key with `.`, `..` or an empty part.

use hyper::Method;
use store::Namespace;

use crate::serve::s3::fault::{Fault, Outcome};
use crate::serve::text;

/// Query parameters of calls that this door does not support.
const OTHERS: [&str; 33] = [
    "accelerate",
    "acl",
    "analytics",
    "attributes",
    "cors",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "logging",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "session",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versions",
    "website",
    "abac",
    "renameObject",
];

/// The resource that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Service,
    /// The name of a bucket.
    Bucket(String),
    Object(String, String),
}

/// The requested operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Buckets,
    Bucket,
    Location,
    Versioning,
    List,
    Object,
}

impl Target {
    pub(crate) fn parse(path: &str) -> Outcome<Self> {
        let segments = text::segments(path).ok_or_else(Fault::uri)?;
        match segments.as_slice() {
            [] => Err(Fault::uri()),
            [only] if only.is_empty() => Ok(Self::Service),
            [bucket] => Ok(Self::Bucket(bucket.clone())),
            [bucket, rest] if rest.is_empty() => Ok(Self::Bucket(bucket.clone())),
            [bucket, rest @ ..] => Ok(Self::Object(bucket.clone(), rest.join("/"))),
        }
    }

    /// The operation of `method` with this query.
    pub(crate) fn call(&self, method: &Method, query: &[(String, String)]) -> Outcome<Call> {
        match *method {
            Method::GET | Method::HEAD => {}
            Method::PUT | Method::POST | Method::DELETE => {
                return Err(Fault::denied(
                    "Access Denied: this endpoint is for reading. Write with the command `store`, or at the Hub door.",
                ));
            }
            _ => return Err(Fault::method(method.as_str())),
        }
        let is_asked = |name: &str| text::value(query, name).is_some();
        if OTHERS.into_iter().any(is_asked) {
            return Err(Fault::not_here());
        }
        if let Some(version) = text::value(query, "versionId").filter(|id| *id != "null") {
            let message = "Invalid version id specified: a version is part of the key, REF@N/PATH";
            return Err(Fault::argument("versionId", version, message));
        }
        match self {
            Self::Service if *method == Method::GET => Ok(Call::Buckets),
            Self::Service => Err(Fault::method(method.as_str())),
            Self::Bucket(_) if *method == Method::HEAD => Ok(Call::Bucket),
            Self::Bucket(_) if is_asked("location") => Ok(Call::Location),
            Self::Bucket(_) if is_asked("versioning") => Ok(Call::Versioning),
            Self::Bucket(_) => Ok(Call::List),
            Self::Object(..) => Ok(Call::Object),
        }
    }
}

/// The namespace of a bucket.
pub(crate) fn namespace(bucket: &str) -> Option<Namespace> {
    let (kind, name) = bucket.split_once('.')?;
    format!("{kind}/{name}").parse().ok()
}

/// The bucket of a namespace.
pub(crate) fn bucket(namespace: &Namespace) -> String {
    namespace.as_str().replacen('/', ".", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(bucket: &str, key: &str) -> Outcome<Target> {
        Ok(Target::Object(bucket.to_owned(), key.to_owned()))
    }

    #[test]
    fn a_path_is_a_bucket_and_a_key() {
        let bucket = |name: &str| Ok(Target::Bucket(name.to_owned()));
        assert_eq!(Target::parse("/"), Ok(Target::Service));
        assert_eq!(Target::parse("/project.x"), bucket("project.x"));
        assert_eq!(Target::parse("/project.x/"), bucket("project.x"));
        assert_eq!(Target::parse("/b/a%20b+c/d"), object("b", "a b+c/d"));
        assert_eq!(Target::parse("/b/a%2Fb//../c/"), object("b", "a/b//../c/"));
        assert_eq!(Target::parse("//b/c"), object("", "b/c"));
        for bad in ["*", "", "/b/%00", "/b/%ff"] {
            assert_eq!(Target::parse(bad), Err(Fault::uri()), "{bad}");
        }
    }

    #[test]
    fn buckets_are_namespaces() {
        for name in ["project/llama-ft", "team/a.b.c"] {
            let there: Namespace = name.parse().unwrap();
            assert_eq!(namespace(&bucket(&there)), Some(there));
        }
        for bad in [
            "",
            "project",
            "project.",
            "project.a/b",
            "other.a",
            "project...",
            "project/a",
        ] {
            assert_eq!(namespace(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_writes_is_denied_and_what_is_not_there_is_said() {
        let call = |method: Method, path: &str, query: &str| {
            let called = Target::parse(path)
                .unwrap()
                .call(&method, &text::pairs(query));
            called.map_err(|fault| fault.code)
        };
        assert_eq!(call(Method::GET, "/", ""), Ok(Call::Buckets));
        assert_eq!(call(Method::GET, "/b", "location"), Ok(Call::Location));
        assert_eq!(
            call(Method::GET, "/b", "list-type=2&prefix=acl"),
            Ok(Call::List)
        );
        assert_eq!(
            call(Method::HEAD, "/b/k", "versionId=null"),
            Ok(Call::Object)
        );
        assert_eq!(
            call(Method::GET, "/b/k", "versionId=3"),
            Err("InvalidArgument")
        );
        assert_eq!(call(Method::GET, "/b/k", "acl"), Err("NotImplemented"));
        for method in [Method::PUT, Method::POST, Method::DELETE] {
            assert_eq!(call(method, "/b/k", "uploads"), Err("AccessDenied"));
        }
        assert_eq!(call(Method::PATCH, "/b/k", ""), Err("MethodNotAllowed"));
        assert_eq!(call(Method::HEAD, "/", ""), Err("MethodNotAllowed"));
    }
}
