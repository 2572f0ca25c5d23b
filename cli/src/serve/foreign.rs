//! Refuses requests from pages of other sites, on a server without tokens.
//!
//! Such a server listens on loopback only. But a browser on that host sends requests for any site that its user visits.
//! The browser marks them in `Sec-Fetch-Site` and `Origin`, which no page can change. If a site changes its DNS name to
//! a loopback address (DNS rebinding), the request has the server's own origin, but `Host` is that name. Clients other
//! than browsers send no such headers, and address the server by IP address or as localhost.

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::header::{HOST, HeaderName, ORIGIN};
use hyper::http::request::Parts;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The answer to a page of another site.
const OF_A_SITE: &str = "Refused: a page of another site asks, and without tokens this server answers none; type the address into the browser, or say who may with `store token add`.";
/// The answer to a request with the name of another host.
const OF_A_NAME: &str = "Refused: without tokens this server answers only for localhost and for IP addresses, like http://127.0.0.1:8710, and not for other names of hosts; ask by address, or say who may with `store token add`.";

/// Why a server without tokens refuses a request; `None` if it may answer.
pub(crate) fn refusal(head: &Parts) -> Option<&'static str> {
    let mut hosts = head.headers.get_all(HOST).iter().map(|host| host.to_str());
    let named = head.uri.authority().map(|authority| authority.as_str());
    if !hosts.all(|host| host.is_ok_and(is_here)) || !named.is_none_or(is_here) {
        return Some(OF_A_NAME);
    }
    let mut sites = head.headers.get_all(FETCH_SITE).iter();
    let is_own = sites.all(|site| matches!(site.as_bytes(), b"none" | b"same-origin"));
    let mut origins = head.headers.get_all(ORIGIN).iter();
    let is_own = is_own && origins.all(|origin| origin.to_str().is_ok_and(|it| is_of(it, head)));
    (!is_own).then_some(OF_A_SITE)
}

/// Whether an origin is the host of the request.
fn is_of(origin: &str, head: &Parts) -> bool {
    let (host, port) = match origin.split_once("://") {
        Some(("http", host)) => (host, ":80"),
        Some(("https", host)) => (host, ":443"),
        _ => return false,
    };
    let asked = head.headers.get(HOST).and_then(|asked| asked.to_str().ok());
    asked.is_some_and(|asked| {
        // Some clients leave the default port out.
        let [host, asked] = [host, asked].map(|host| host.strip_suffix(port).unwrap_or(host));
        host.eq_ignore_ascii_case(asked)
    })
}

/// Whether `HOST` or `HOST:PORT` is an IP address or a name of localhost.
fn is_here(authority: &str) -> bool {
    if let Some(rest) = authority.strip_prefix('[') {
        let address = rest.split_once(']').map(|(address, _)| address);
        return address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    let host = authority
        .split_once(':')
        .map_or(authority, |(host, _)| host);
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let is_name = name == "localhost" || name.ends_with(".localhost");
    let is_name = is_name && name.bytes().all(is_fit);
    is_name || host.parse::<Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(headers: &[(&str, &str)]) -> Option<&'static str> {
        let start = hyper::Request::builder().uri("/project/x");
        let request = headers.iter().fold(start, |request, (name, value)| {
            request.header(*name, *value)
        });
        refusal(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn addresses_and_localhost_are_answered_and_no_other_name() {
        for host in [
            "127.0.0.1:8710",
            "127.0.0.1",
            "10.1.2.3:80",
            "[::1]:8710",
            "[::1]",
            "localhost",
            "LocalHost:8710",
            "localhost.:8710",
            "project.x.localhost:8711",
        ] {
            assert_eq!(refused(&[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8710",
            "localhost.evil.example",
            "evil.example#.localhost",
            "evil.example/.localhost",
            "evil.example%00.localhost",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "x",
            "",
            ":8710",
            "[::1",
            "[evil.example]:1",
            "2130706433",
            "caf\u{e9}",
        ] {
            assert_eq!(refused(&[("host", host)]), Some(OF_A_NAME), "{host}");
        }
        let both = [("host", "127.0.0.1"), ("host", "evil.example")];
        assert_eq!(refused(&both), Some(OF_A_NAME));
        // HTTP/1.0 has no Host.
        assert_eq!(refused(&[]), None);
        let named = hyper::Request::get("http://evil.example/").header("host", "127.0.0.1");
        let head = named.body(()).unwrap().into_parts().0;
        assert_eq!(refusal(&head), Some(OF_A_NAME));
    }

    #[test]
    fn a_page_of_another_site_is_known_by_what_the_browser_says() {
        let own = ("host", "127.0.0.1:8710");
        for (name, value) in [
            ("sec-fetch-site", "none"),
            ("sec-fetch-site", "same-origin"),
            ("origin", "http://127.0.0.1:8710"),
        ] {
            assert_eq!(refused(&[own, (name, value)]), None, "{name}: {value}");
        }
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", ""),
            ("origin", "http://evil.example"),
            ("origin", "http://127.0.0.1:8888"),
            ("origin", "http://127.0.0.1"),
            ("origin", "http://localhost:8710"),
            ("origin", "null"),
            ("origin", "file://127.0.0.1:8710"),
        ] {
            let told = refused(&[own, (name, value)]);
            assert_eq!(told, Some(OF_A_SITE), "{name}: {value}");
        }
        let usual = [("host", "localhost"), ("origin", "http://localhost:80")];
        assert_eq!(refused(&usual), None);
        let usual = [("host", "localhost:443"), ("origin", "https://LOCALHOST")];
        assert_eq!(refused(&usual), None);
        assert_eq!(refused(&[("origin", "http://localhost")]), Some(OF_A_SITE));
    }
}
