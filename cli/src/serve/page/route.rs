//! Addresses of pages: paths below `/-/`, and links to them. Pure.
//!
//! `/-/project/NAME/REF@N/PATH` is PATH in version N; without PATH it is the whole version, without `@N` the ref. Names
//! of refs contain no `@`, so this is unambiguous. Paths are bytes, and links preserve them.

use hyper::http::request::Parts;
use maud::{Markup, Render};
use percent_encoding::{percent_decode_str, percent_encode};
use store::{Namespace, RefName, RefSpec};

use crate::serve::text::{self, PATH, SEGMENT};

/// Maximum page number.
const PAGES_MAX: u64 = 1 << 40;

/// The page for a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PagePlace {
    Overview,
    /// The use of space.
    Space,
    /// Clusters and jobs.
    Host,
    /// Compile caches.
    Caches,
    Namespace(Namespace),
    Ref(RefName),
    /// A version, or a path in it.
    Entry(RefSpec),
}

impl PagePlace {
    /// Parses a path; `None` if it is no page.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let names: Vec<Vec<u8>> = match path {
            "/" => return Some(Self::Overview),
            path => {
                let rest = path.strip_prefix("/-/")?;
                let rest = rest.strip_suffix('/').unwrap_or(rest);
                rest.split('/').map(decoded).collect()
            }
        };
        let is_name = |name: &Vec<u8>| !matches!(name.as_slice(), b"" | b"." | b"..");
        if !names.iter().all(is_name) {
            return None;
        }
        if let [one] = names.as_slice() {
            return match one.as_slice() {
                b"space" => Some(Self::Space),
                b"host" => Some(Self::Host),
                b"caches" => Some(Self::Caches),
                _ => None,
            };
        }
        match names.iter().position(|name| name.contains(&b'@')) {
            Some(at) => entry(&names, at),
            None => {
                let name = String::from_utf8(names.join(&b'/')).ok()?;
                match names.len() {
                    2 => name.parse().ok().map(Self::Namespace),
                    _ => name.parse().ok().map(Self::Ref),
                }
            }
        }
    }
}

/// Parses the version at the end of component `at`, and the path after it.
fn entry(names: &[Vec<u8>], at: usize) -> Option<PagePlace> {
    let (name, path) = names.split_at_checked(at + 1)?;
    let name = String::from_utf8(name.join(&b'/')).ok()?;
    let spec: RefSpec = name.parse().ok()?;
    let is_version = spec.version.is_some() && spec.path.is_empty();
    is_version.then(|| {
        PagePlace::Entry(RefSpec {
            path: path.join(&b'/'),
            ..spec
        })
    })
}

fn decoded(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}

/// The target of a link. Only [`Links`] makes it, so it is never another host and never a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Href(String);

impl Render for Href {
    fn render(&self) -> Markup {
        self.0.as_str().render()
    }
}

impl AsRef<str> for Href {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Makes links.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    base: String,
}

impl Links {
    /// The links as the client of this request sees the server.
    pub(crate) fn of(head: &Parts) -> Self {
        Self {
            base: text::forwarded_prefix(head),
        }
    }

    pub(crate) fn overview(&self) -> Href {
        Href(format!("{}/", self.base))
    }

    /// The overview from a namespace on.
    pub(crate) fn overview_from(&self, from: usize) -> Href {
        Href(format!("{}/?from={from}", self.base))
    }

    /// A page without parameters: `space`, `host`, `caches`.
    pub(crate) fn page(&self, name: &'static str) -> Href {
        Href(format!("{}/-/{name}", self.base))
    }

    pub(crate) fn namespace(&self, namespace: &Namespace) -> Href {
        self.below(namespace.as_str().as_bytes(), "")
    }

    /// The refs of a namespace with this prefix, from one on.
    pub(crate) fn refs(&self, namespace: &Namespace, begin: &str, from: &str) -> Href {
        let mut query = Vec::new();
        for (name, value) in [("begin", begin), ("from", from)] {
            if !value.is_empty() {
                query.push(format!(
                    "{name}={}",
                    percent_encode(value.as_bytes(), SEGMENT)
                ));
            }
        }
        let query = query.join("&");
        match query.as_str() {
            "" => self.namespace(namespace),
            query => self.below(namespace.as_str().as_bytes(), &format!("?{query}")),
        }
    }

    pub(crate) fn name(&self, name: &RefName) -> Href {
        self.below(name.as_str().as_bytes(), "")
    }

    /// The versions of a ref below a number.
    pub(crate) fn versions_below(&self, name: &RefName, number: u64) -> Href {
        self.below(name.as_str().as_bytes(), &format!("?below={number}"))
    }

    pub(crate) fn entry(&self, name: &RefName, number: u64, path: &[u8]) -> Href {
        self.entry_with(name, number, path, "")
    }

    /// The entries of a directory from one on.
    pub(crate) fn entries(&self, name: &RefName, number: u64, path: &[u8], from: usize) -> Href {
        self.entry_with(name, number, path, &format!("?from={from}"))
    }

    /// The download of a file.
    pub(crate) fn bytes(&self, name: &RefName, number: u64, path: &[u8]) -> Href {
        self.entry_with(name, number, path, "?download")
    }

    fn entry_with(&self, name: &RefName, number: u64, path: &[u8], query: &str) -> Href {
        let Href(top) = self.below(name.as_str().as_bytes(), "");
        let path = match path {
            b"" => String::new(),
            path => format!("/{}", percent_encode(path, PATH)),
        };
        Href(format!("{top}@{number}{path}{query}"))
    }

    fn below(&self, path: &[u8], query: &str) -> Href {
        Href(format!(
            "{}/-/{}{query}",
            self.base,
            percent_encode(path, PATH)
        ))
    }
}

/// The query of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(head: &Parts) -> Self {
        Self(text::pairs(head.uri.query().unwrap_or_default()))
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        text::value(&self.0, name).unwrap_or_default()
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        let number: u64 = self.text(name).parse().ok()?;
        (number < PAGES_MAX).then_some(number)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        text::value(&self.0, name).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str, path: &[u8]) -> PagePlace {
        let spec: RefSpec = text.parse().unwrap();
        PagePlace::Entry(RefSpec {
            path: path.to_vec(),
            ..spec
        })
    }

    #[test]
    fn a_path_has_one_reading() {
        let parse = PagePlace::parse;
        assert_eq!(parse("/"), Some(PagePlace::Overview));
        assert_eq!(parse("/-/space"), Some(PagePlace::Space));
        assert_eq!(
            parse("/-/project/a/"),
            Some(PagePlace::Namespace("project/a".parse().unwrap()))
        );
        assert_eq!(
            parse("/-/project/a/b/c"),
            Some(PagePlace::Ref("project/a/b/c".parse().unwrap()))
        );
        assert_eq!(
            parse("/-/project/a/b@3/x@4/%ff"),
            Some(spec("project/a/b@3", b"x@4/\xff"))
        );
        for none in [
            "/x",
            "/-",
            "/-/",
            "/-/none",
            "/-/project/a//b",
            "/-/project/a/../b",
            "/-/project/a/b@3/%2e%2e/c",
            "/-/project/a/b@",
            "/-/project/a/b@x",
            "/-/elsewhere/a",
            "/-/project/a/%ff",
        ] {
            assert_eq!(parse(none), None, "{none}");
        }
    }

    #[test]
    fn a_link_leads_to_what_it_was_made_of() {
        let links = Links::default();
        let name: RefName = "project/a/<b> \"c\"/\u{fc}?".parse().unwrap();
        assert_eq!(
            PagePlace::parse(links.name(&name).as_ref()),
            Some(PagePlace::Ref(name.clone()))
        );
        let path = b"a b/<script>/%2f/\xff\n?#&;@\"'";
        let href = links.entry(&name, 7, path);
        assert_eq!(
            PagePlace::parse(href.as_ref()),
            Some(spec(&format!("{name}@7"), path))
        );
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%@".contains(&byte);
        assert!(href.as_ref().bytes().all(is_plain), "{href:?}");
    }

    #[test]
    fn a_proxy_says_where_links_begin_and_leads_nowhere_else() {
        let links = |prefix: &str| {
            let request = hyper::Request::builder().header("x-forwarded-prefix", prefix);
            Links::of(&request.body(()).unwrap().into_parts().0).overview()
        };
        assert_eq!(links("/store/").as_ref(), "/store/");
        for elsewhere in ["//evil", "https://evil", "/a/../b", "javascript:x", "/a//b"] {
            assert_eq!(links(elsewhere).as_ref(), "/", "{elsewhere}");
        }
    }
}
