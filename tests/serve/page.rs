//! The pages in a browser: every link leads somewhere, nothing private is shown, and empty, odd and unreachable stores
//! have pages, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use support::{TestEnvironment, environment};

use crate::server::{Answer, Server};

const HTML: &str = "Accept: text/html,*/*;q=0.8";
/// Longer than a survey takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// A name that is dangerous wherever it is not escaped.
const ODD: &[u8] = b"<script>alert(1)</script>\n\"'&amp;\xff%2f..;?#@3:x \xe2\x80\xaeevil";

pub(crate) fn page(server: &Server, path: &str, more: &str) -> Answer {
    server.ask(&format!("GET {path}\n{HTML}\n{more}"))
}

pub(crate) fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).unwrap()
}

/// The page, once its survey is complete.
fn surveyed(server: &Server, path: &str, more: &str) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = page(server, path, more);
        assert_eq!(answer.status, 200, "{path}");
        let found = text(&answer);
        if found.contains("as of <time") || Instant::now() > until {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The values of all attributes `name`, without HTML escapes.
pub(crate) fn values(html: &str, name: &str) -> Vec<String> {
    let begin = format!(" {name}=\"");
    let parts = html.split(&begin).skip(1);
    let parts = parts.map(|part| part.split('"').next().unwrap());
    parts.map(|part| part.replace("&amp;", "&")).collect()
}

/// Visits everything that can be reached from `/`. Returns the pages by path.
fn crawl(server: &Server, more: &str) -> BTreeMap<String, Answer> {
    let mut pages = BTreeMap::new();
    let mut pending = BTreeSet::from(["/".to_owned()]);
    surveyed(server, "/", more);
    while let Some(path) = pending.pop_first() {
        let answer = page(server, &path, more);
        assert_eq!(answer.status, 200, "{path}");
        if answer.header("content-type") == Some("text/html; charset=utf-8") {
            let html = text(&answer);
            check(&path, &answer, &html);
            for href in values(&html, "href") {
                let is_known = pages.contains_key(&href) || href == path;
                match href.strip_prefix('#') {
                    Some(id) => assert!(
                        values(&html, "id").contains(&id.to_owned()),
                        "{path}: #{id}"
                    ),
                    None if href.starts_with("data:") || is_known => {}
                    None => drop(pending.insert(href)),
                }
            }
        }
        pages.insert(path, answer);
    }
    pages
}

/// Asserts what must hold for every page.
fn check(path: &str, answer: &Answer, html: &str) {
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert!(
        !policy.contains("unsafe") && !policy.contains("script"),
        "{policy}"
    );
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    for forbidden in [
        "<script",
        " style=",
        "javascript:",
        "http://",
        "https://",
        " onload",
        "\u{202e}",
        "alert(1)<",
    ] {
        // The icon's namespace is a URL that is never requested.
        let html = html.replace("xmlns='http://www.w3.org/2000/svg'", "");
        assert!(!html.contains(forbidden), "{path}: {forbidden}");
    }
    assert!(
        html.chars().all(|c| !c.is_control() || "\n\t".contains(c)),
        "{path}"
    );
    assert_eq!(html.matches("<h1").count(), 1, "{path}");
    assert_eq!(html.matches("<main").count(), 1, "{path}");
    let ids = values(html, "id");
    let distinct: BTreeSet<&String> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "{path}: {ids:?}");
    // Each element is closed.
    for name in [
        "div", "table", "tr", "td", "th", "a", "svg", "g", "p", "ul", "ol", "li", "dl", "bdi",
        "span", "section", "figure",
    ] {
        let open =
            html.matches(&format!("<{name} ")).count() + html.matches(&format!("<{name}>")).count();
        assert_eq!(
            open,
            html.matches(&format!("</{name}>")).count(),
            "{path}: {name}"
        );
    }
    assert!(!html.contains("for-those-let-in"), "{path}");
    let heads = html.matches("<table").count();
    assert!(html.matches("scope=\"col\"").count() >= heads, "{path}");
    assert!(
        html.matches("<svg class=\"wide\"").count() <= html.matches("<desc").count(),
        "{path}"
    );
}

fn filled(env: &TestEnvironment) {
    env.write("in/a.txt", "plain text, <b>not</b> bold\n");
    env.write("in/deep/er/b.bin", [0, 1, 2, 255].repeat(5000));
    env.write("in/empty", "");
    std::os::unix::fs::symlink("deep/er/b.bin", env.path("in/link")).unwrap();
    let odd = env.path("in").join(OsStr::from_bytes(
        &ODD.iter()
            .map(|byte| match byte {
                b'/' => b'_',
                byte => *byte,
            })
            .collect::<Vec<u8>>(),
    ));
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("inside"), "x").unwrap();
    env.ok([
        "put",
        "in",
        "project/demo/org/<data> \"&\u{fc}",
        "--message",
        "<script>alert(1)</script>",
    ]);
    env.ok(["put", "in/a.txt", "project/demo/single"]);
    env.write("in/more", "more");
    env.ok(["put", "in", "project/demo/org/<data> \"&\u{fc}"]);
    env.ok(["put", "in", "team/other/hidden-ref"]);
    env.write("gated/of-some-size", [7; 50_000]);
    env.ok([
        "put",
        "gated",
        "project/demo/.gated/models/org/for-those-let-in",
    ]);
    env.ok(["pin", "team/other/hidden-ref"]);
    for (cluster, namespace) in [
        ("far-cluster", "team/other"),
        ("own-cluster", "project/demo"),
    ] {
        let dir = env.path(cluster);
        let dir = dir.to_str().unwrap();
        env.ok(["init", dir]);
        env.ok(["cluster", "add", cluster, dir]);
        let here = env.path("home/.local/share/store");
        let here = here.to_str().unwrap();
        env.ok(["duplicate", namespace, "--from", here, "--to", cluster]);
    }
    let store = env.path("home/.local/share/store");
    let store = store.to_str().unwrap();
    let line = |name: &str, read: u64| {
        format!(
            "{{\"time\":\"2026-11-20T10:00:00Z\",\"store\":\"{store}\",\"profile\":\"neff\",\"refs\":[\"{name}\"],\"there\":90,\"pulled\":1,\"read\":{read},\"added\":1}}\n"
        )
    };
    // As earlier programs wrote it: reads are unknown.
    let old = line("project/demo/single", 0)
        .replace("there", "hits")
        .replace("pulled", "avoided")
        .replace("\"read\":0,\"added\"", "\"misses\"");
    let lines = [
        line("project/demo/single", 1),
        line("project/demo/single", 6),
        line("team/other/hidden-ref", 3),
        line("project/demo/gone", 0),
        old,
    ];
    env.write("home/.local/state/store/compiles.jsonl", lines.concat());
}

#[test]
fn every_link_of_every_page_leads_somewhere() {
    let env = environment!();
    filled(&env);
    let server = Server::start(&env, &[]);
    let pages = crawl(&server, "");
    let has = |path: &str| pages.contains_key(path);
    for path in [
        "/",
        "/-/space",
        "/-/host",
        "/-/caches",
        "/-/project/demo",
        "/-/project/demo/single@1",
        "/-/team/other/hidden-ref@1/deep/er/b.bin?download",
    ] {
        assert!(has(path), "{path}: {:?}", pages.keys());
    }
    let odd: Vec<&String> = pages
        .keys()
        .filter(|path| path.contains("%3Cscript%3E") && path.ends_with("/inside"))
        .collect();
    assert_eq!(odd.len(), 3, "in each version: {odd:?}");
    let bytes = &pages["/-/team/other/hidden-ref@1/deep/er/b.bin?download"];
    assert_eq!(bytes.body, [0, 1, 2, 255].repeat(5000));
    assert!(
        bytes
            .header("content-disposition")
            .unwrap()
            .starts_with("attachment")
    );
    assert!(bytes.header("content-security-policy").is_some());
    let front = text(&pages["/"]);
    assert!(
        front.contains("team/other") && front.contains("<svg class=\"wide\""),
        "{front}"
    );
    assert!(text(&pages["/-/space"]).contains("What holds the rest"));
    let host = text(&pages["/-/host"]);
    for told in [
        "far-cluster",
        "own-cluster",
        "team/<wbr>other",
        ">done</span>",
    ] {
        assert!(host.contains(told), "{told}: {host}");
    }
    let caches = text(&pages["/-/caches"]);
    for told in [
        "77.8 %",
        "75.0 %",
        "0.0 %",
        "href=\"/-/project/demo/single\"",
    ] {
        assert!(caches.contains(told), "{told}: {caches}");
    }
    assert!(
        !caches.contains("href=\"/-/project/demo/gone\""),
        "{caches}"
    );
    assert!(text(&pages["/-/team/other/hidden-ref"]).contains("pinned"));
    let file = text(&pages["/-/team/other/hidden-ref@1/a.txt"]);
    assert!(file.contains("&lt;b&gt;not&lt;/b&gt;"), "{file}");
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one world, looked at by several tokens"
)]
fn a_token_shows_its_namespaces_and_not_that_there_are_others() {
    let env = environment!();
    filled(&env);
    let token = env.ok(["token", "add", "reader", "--namespace", "project/demo"]);
    let basic = |name: &str, password: &str| {
        let typed = base64(format!("{name}:{password}").as_bytes());
        format!("Authorization: Basic {typed}")
    };
    let server = Server::start(&env, &[]);
    for nobody in [
        "",
        &basic("me", "wrong"),
        "Authorization: Basic %%%",
        "Authorization: Bearer x",
    ] {
        for path in ["/", "/-/project/demo", "/-/none", "/-/space"] {
            let answer = page(&server, path, nobody);
            assert_eq!(answer.status, 401, "{path}");
            assert!(
                answer
                    .header("www-authenticate")
                    .unwrap()
                    .starts_with("Basic realm=")
            );
            assert!(!text(&answer).contains("demo"), "{path}");
        }
    }
    let own = basic("anybody", token.trim());
    let pages = crawl(&server, &own);
    assert!(pages.contains_key("/-/project/demo/single@1"));
    for (path, answer) in &pages {
        let shown = String::from_utf8_lossy(&answer.body).into_owned();
        for hidden in [
            "other",
            "hidden-ref",
            "far-cluster",
            "Unique",
            "Shared",
            "What holds the rest",
            "Log entry",
            "log entry",
            env.root().to_str().unwrap(),
        ] {
            let shown = shown
                .replace("<wbr>", "")
                .replace("needed by others", "")
                .replace("What several namespaces", "")
                .replace("all others", "");
            assert!(!shown.contains(hidden), "{path}: {hidden}");
        }
    }
    // Jobs and caches whose refs are all in the caller's own namespaces are shown.
    let host = text(&pages["/-/host"]);
    assert!(
        host.contains("own-cluster") && host.contains("project/<wbr>demo"),
        "{host}"
    );
    assert!(text(&pages["/-/caches"]).contains("77.8 %"));
    let count = text(&pages["/"]);
    assert!(count.contains("<dt>Namespaces</dt><dd>1</dd>"), "{count}");
    let bodies = [
        "/-/team/other",
        "/-/team/none",
        "/-/team/other/hidden-ref",
        "/-/team/other/hidden-ref@1/a.txt",
        "/-/team/other/hidden-ref@1/a.txt?download",
    ];
    let bodies: BTreeSet<Vec<u8>> = bodies
        .iter()
        .map(|path| {
            let answer = page(&server, path, &own);
            assert_eq!(answer.status, 404, "{path}");
            answer.body
        })
        .collect();
    assert_eq!(
        bodies.len(),
        1,
        "what is hidden looks like what is not there"
    );
    // Another site must not make an authenticated browser write.
    let write = server.connect().ask_with(
        &format!("POST /project/demo/api/repos/create\n{own}"),
        b"{\"name\": \"x\"}",
    );
    assert_eq!(write.status, 401);
    assert_eq!(server.stop(), Some(0));
    let log = fs::read_to_string(env.path("log")).unwrap();
    assert!(
        log.contains("\"token\":\"reader\"") && !log.contains(token.trim()),
        "{log}"
    );
}

#[test]
fn an_empty_store_has_pages_and_what_is_not_there_has_none() {
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    let first = page(&server, "/", "");
    assert_eq!(first.status, 200);
    assert!(text(&first).contains("Nothing was put here yet"));
    for path in ["/-/space", "/-/host", "/-/caches"] {
        assert_eq!(page(&server, path, "").status, 200, "{path}");
    }
    for path in [
        "/-/",
        "/-",
        "/-/x",
        "/-/project/none",
        "/-/project/none/a",
        "/-/project/none/a@1/b",
        "/-/project/none/a@tffffffff",
        "/-/../etc/passwd",
        "/-/project/a/b@1/%2e%2e",
    ] {
        assert_eq!(page(&server, path, "").status, 404, "{path}");
    }
    assert_eq!(server.ask("POST /-/space").status, 405);
    assert!(
        server.get("/").body.starts_with(b"store serve"),
        "what is no browser gets a text"
    );
    let led = page(&server, "/project/none", "");
    assert_eq!(
        (led.status, led.header("location")),
        (303, Some("/-/project/none"))
    );
    let head = server.ask(&format!("HEAD /\n{HTML}"));
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn a_proxy_in_front_has_its_prefix_in_every_link() {
    let env = environment!();
    filled(&env);
    let server = Server::start(&env, &[]);
    for path in [
        "/",
        "/-/project/demo",
        "/-/project/demo/single",
        "/-/project/demo/single@1",
    ] {
        let found = text(&page(&server, path, "X-Forwarded-Prefix: /store/x"));
        let hrefs = values(&found, "href");
        let mut own = hrefs.iter().filter(|href| !href.starts_with(['#', 'd']));
        assert!(
            own.all(|href| href.starts_with("/store/x/")),
            "{path}: {hrefs:?}"
        );
    }
}

#[test]
fn a_store_that_is_away_is_said_to_be_and_comes_back() {
    let env = environment!();
    env.write("in/a", "a");
    env.ok(["--store", "there", "init", "there"]);
    env.ok(["--store", "there", "put", "in", "project/demo/a"]);
    let server = Server::start(&env, &["--store", "there"]);
    surveyed(&server, "/", "");
    fs::rename(env.path("there"), env.path("away")).unwrap();
    for path in ["/", "/-/project/demo/a", "/-/space"] {
        let answer = page(&server, path, "");
        assert_eq!(answer.status, 503, "{path}: {}", text(&answer));
        assert!(
            !text(&answer).contains("there/"),
            "no places of this host: {}",
            text(&answer)
        );
        assert_eq!(answer.header("retry-after"), Some("5"));
    }
    fs::rename(env.path("away"), env.path("there")).unwrap();
    assert_eq!(page(&server, "/-/project/demo/a", "").status, 200);
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = bytes.chunks(3).map(|three| {
        let number = (0..3).fold(0, |number, at| {
            number << 8 | u32::from(three.get(at).copied().unwrap_or(0))
        });
        let digit = |at: usize| match at <= three.len() {
            true => char::from(DIGITS[(number >> (18 - 6 * at)) as usize & 63]),
            false => '=',
        };
        (0..4).map(digit).collect::<String>()
    });
    digits.collect()
}
