//! The paths of the pages, for fuzzing only.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a broken word ends the run"
)]

use hyper::Request;
use store::RefSpec;

use crate::serve::page::route::{Links, PagePlace};

/// The path of a page, then optionally a newline and the `X-Forwarded-Prefix` of a proxy. The link to an accepted page
/// leads to the same page, and stays on this host.
pub fn path(data: &[u8]) -> bool {
    let Ok(asked) = std::str::from_utf8(data) else {
        return false;
    };
    let (path, prefix) = asked.split_once('\n').unwrap_or((asked, ""));
    let Some(place) = PagePlace::parse(path) else {
        return false;
    };
    let request = Request::builder().header("x-forwarded-prefix", prefix);
    let Ok(request) = request.body(()) else {
        return false;
    };
    let (head, ()) = request.into_parts();
    for links in [Links::default(), Links::of(&head)] {
        let href = match &place {
            PagePlace::Overview => links.overview(),
            PagePlace::Space => links.page("space"),
            PagePlace::Host => links.page("host"),
            PagePlace::Caches => links.page("caches"),
            PagePlace::Namespace(namespace) => links.namespace(namespace),
            PagePlace::Ref(name) => links.name(name),
            PagePlace::Entry(spec) => match number(spec) {
                Some(number) => links.entry(&spec.name, number, &spec.path),
                None => continue,
            },
        };
        let base = links.overview();
        let base = base.as_ref().trim_end_matches('/');
        let below = href.as_ref().strip_prefix(base).unwrap();
        assert_eq!(PagePlace::parse(below), Some(place.clone()), "{href:?}");
        let is_of_host = href.as_ref().starts_with('/') && !href.as_ref().starts_with("//");
        assert!(is_of_host, "{href:?}");
    }
    true
}

/// The version number, if `spec` names the version by its number.
fn number(spec: &RefSpec) -> Option<u64> {
    spec.version.as_ref()?.to_string().parse().ok()
}
