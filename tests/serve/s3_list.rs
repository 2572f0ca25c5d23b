//! Listings of the S3 door, page by page, compared with a sorted list of the same keys.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use support::{Random, TestEnvironment, environment};

use crate::s3::{OPEN, texts};
use crate::server::{Answer, Connection, Server};

/// Keys and common prefixes, each in order.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    keys: Vec<String>,
    prefixes: Vec<String>,
}

/// One connection, and the parameters of its requests.
struct Pages {
    connection: Connection,
    is_second: bool,
    is_encoded: bool,
}

impl Pages {
    fn all(&mut self, prefix: &str, delimiter: &str, max: usize) -> Listed {
        let mut all = Listed {
            keys: Vec::new(),
            prefixes: Vec::new(),
        };
        let mut next = String::new();
        loop {
            let page = self.page(prefix, delimiter, max, &next);
            assert_eq!(page.status, 200, "{page:?}");
            let (mut keys, mut prefixes) = (texts(&page, "Key"), prefixes(&page));
            let count = keys.len() + prefixes.len();
            assert!(count <= max, "{page:?}");
            if self.is_second {
                assert_eq!(texts(&page, "KeyCount"), [count.to_string()]);
            }
            all.keys.append(&mut keys);
            all.prefixes.append(&mut prefixes);
            let name = if self.is_second {
                "NextContinuationToken"
            } else {
                "NextMarker"
            };
            let token = texts(&page, name);
            assert_eq!(
                texts(&page, "IsTruncated"),
                [(!token.is_empty()).to_string()]
            );
            let Some(token) = token.into_iter().next() else {
                break;
            };
            assert_eq!(count, max, "{page:?}");
            next = if self.is_encoded && !self.is_second {
                plain(&token)
            } else {
                token
            };
        }
        if self.is_encoded {
            for text in all.keys.iter_mut().chain(&mut all.prefixes) {
                *text = plain(text);
            }
        }
        all
    }

    fn page(&mut self, prefix: &str, delimiter: &str, max: usize, next: &str) -> Answer {
        let kind = match (self.is_second, next) {
            (true, "") => "&list-type=2".to_owned(),
            (true, token) => format!("&list-type=2&continuation-token={token}"),
            (false, marker) => format!("&marker={}", escaped(marker)),
        };
        let encoding = if self.is_encoded {
            "&encoding-type=url"
        } else {
            ""
        };
        let (prefix, delimiter) = (escaped(prefix), escaped(delimiter));
        self.connection.ask(&format!(
            "GET /project.demo?prefix={prefix}&delimiter={delimiter}&max-keys={max}{kind}{encoding}"
        ))
    }
}

fn prefixes(page: &Answer) -> Vec<String> {
    let text = String::from_utf8(page.body.clone()).unwrap();
    let parts = text.split("<CommonPrefixes><Prefix>").skip(1);
    parts
        .map(|part| part.split("</Prefix>").next().unwrap().to_owned())
        .collect()
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn plain(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        bytes.push(u8::from_str_radix(&after[..2], 16).unwrap());
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).unwrap()
}

/// What S3 would list for these keys.
fn expected(keys: &BTreeSet<String>, prefix: &str, delimiter: &str) -> Listed {
    let mut listed = Listed {
        keys: Vec::new(),
        prefixes: Vec::new(),
    };
    for key in keys {
        let Some(rest) = key.strip_prefix(prefix) else {
            continue;
        };
        match rest.split_once(delimiter).filter(|_| !delimiter.is_empty()) {
            None => listed.keys.push(key.clone()),
            Some((name, _)) => {
                let common = format!("{prefix}{name}{delimiter}");
                if listed.prefixes.last() != Some(&common) {
                    listed.prefixes.push(common);
                }
            }
        }
    }
    listed
}

/// Puts refs whose names and trees overlap. Returns their keys.
fn put(env: &TestEnvironment) -> BTreeSet<String> {
    for path in [
        "a-b",
        "a.txt",
        "a/1",
        "a/2/x",
        "a0",
        "b c+d.txt",
        "e/\u{e9}",
        "e/deep@1/q",
        "e/deep@9/q",
        "hid/old",
        "empty/x",
    ] {
        env.write(format!("data/{path}"), path);
    }
    std::fs::remove_file(env.path("data/empty/x")).unwrap();
    for (link, target) in [
        ("a/link", "../a-b"),
        ("no", "nothing"),
        ("dir", "a"),
        ("out", "/etc/passwd"),
    ] {
        symlink(target, env.path("data").join(link)).unwrap();
    }
    env.write("more/z", "z");
    env.ok(["put", "data", "project/demo/data"]);
    for name in ["data-2", "data/e/deep", "data/hid", "b/c"] {
        env.ok(["put", "more", &format!("project/demo/{name}")]);
    }
    for name in ["one.bin", "data/a0"] {
        env.ok(["put", "more/z", &format!("project/demo/{name}")]);
    }
    env.ok(["put", "more/z", "project/demo/.uploads/waiting"]);
    env.ok(["put", "more", "project/demo/gone"]);
    env.ok(["rm", "project/demo/gone"]);
    env.ok(["put", "more", "team/other/x"]);
    [
        "b/c/z",
        "data-2/z",
        "data/a-b",
        "data/a.txt",
        "data/a/1",
        "data/a/2/x",
        "data/a/link",
        "data/a0",
        "data/b c+d.txt",
        "data/e/deep/z",
        "data/e/deep@9/q",
        "data/e/\u{e9}",
        "data/hid/z",
        "one.bin",
    ]
    .map(str::to_owned)
    .into()
}

#[test]
fn every_page_of_every_listing_is_that_of_a_sorted_list() {
    let env = environment!();
    let keys = put(&env);
    let server = Server::start(&env, &OPEN);
    for (is_second, is_encoded) in [(true, false), (true, true), (false, true), (false, false)] {
        let mut pages = Pages {
            connection: Connection::open(server.s3_address()),
            is_second,
            is_encoded,
        };
        for prefix in [
            "",
            "d",
            "data",
            "data/",
            "data/a",
            "data/a/",
            "data/a0",
            "data/e/",
            "data/e/deep",
            "data-2/",
            "one",
            "b/",
            "zzz",
            "data/a/9",
            "/",
            "data//",
            "\u{e9}",
        ] {
            for delimiter in ["", "/", "a", "-", "/a"] {
                let wanted = expected(&keys, prefix, delimiter);
                for max in [1, 3, 1000] {
                    let found = pages.all(prefix, delimiter, max);
                    assert_eq!(
                        found, wanted,
                        "prefix {prefix:?}, delimiter {delimiter:?}, {max}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_is_listed_is_there_and_what_is_hidden_is_not() {
    let env = environment!();
    put(&env);
    let server = Server::start(&env, &OPEN);
    let ask = |query: &str| {
        let page = Connection::open(server.s3_address())
            .ask(&format!("GET /project.demo?list-type=2&{query}"));
        (texts(&page, "Key"), prefixes(&page), page)
    };
    // Every listed key exists, with the listed size and ETag.
    let (all, _, page) = ask("");
    let about = texts(&page, "ETag").into_iter().zip(texts(&page, "Size"));
    for (key, (etag, size)) in all.iter().zip(about) {
        let head = crate::s3::ask(&server, &format!("HEAD /project.demo/{}", escaped(key)));
        assert_eq!(head.status, 200, "{key}");
        assert_eq!(head.header("content-length"), Some(size.as_str()), "{key}");
        assert_eq!(
            head.header("etag").unwrap().replace('"', "&quot;"),
            etag,
            "{key}"
        );
    }
    for hidden in [
        "data/hid/old",
        "data/e/deep@1/q",
        "data/no",
        "data/dir/1",
        ".uploads/waiting",
        "gone/z",
    ] {
        let head = crate::s3::ask(&server, &format!("HEAD /project.demo/{hidden}"));
        assert_eq!(head.status, 404, "{hidden}");
    }
    assert_eq!(ask("start-after=data/e/deep/z").0, all[10..]);
    assert_eq!(
        ask("start-after=data/e/deep/z&delimiter=/").1,
        [] as [&str; 0]
    );
    assert_eq!(ask("start-after=zzz").0, [] as [&str; 0]);
    assert_eq!(ask("max-keys=0").0, [] as [&str; 0]);
    // Versions are listed only for a prefix that names one.
    assert_eq!(
        ask("prefix=data@1/a&delimiter=/").0,
        ["data@1/a-b", "data@1/a.txt", "data@1/a0"]
    );
    assert_eq!(ask("prefix=data@1/a&delimiter=/").1, ["data@1/a/"]);
    assert_eq!(ask("prefix=data@1/hid/").0, ["data@1/hid/old"]);
    assert_eq!(ask("prefix=data@2/").0, [] as [&str; 0]);
}

#[test]
fn trees_that_nobody_thought_of_are_listed_in_order() {
    let env = environment!();
    let mut random = Random::new(11);
    let mut keys = BTreeSet::new();
    let names = ["a", "a-", "a.", "a0", "b", "-", "~", "\u{e9}", "a b"];
    for _ in 0..120 {
        let depth = 1 + random.below(4);
        let parts: Vec<&str> = (0..depth)
            .map(|_| names[usize::try_from(random.below(names.len() as u64)).unwrap()])
            .collect();
        let path = parts.join("/");
        let place = env.path(format!("in/{path}"));
        // The first path decides whether a name is a file or a directory.
        if !place.exists() && std::fs::create_dir_all(place.parent().unwrap()).is_ok() {
            std::fs::write(place, "x").unwrap();
            keys.insert(format!("t/{path}"));
        }
    }
    env.ok(["put", "in", "project/demo/t"]);
    let server = Server::start(&env, &OPEN);
    let mut pages = Pages {
        connection: Connection::open(server.s3_address()),
        is_second: true,
        is_encoded: false,
    };
    let prefixes: BTreeSet<String> = keys
        .iter()
        .flat_map(|key| {
            (0..=key.len())
                .filter_map(|end| key.get(..end))
                .map(str::to_owned)
        })
        .collect();
    for (number, prefix) in (1..).zip(&prefixes) {
        for delimiter in ["", "/"] {
            let found = pages.all(prefix, delimiter, 1 + number % 7);
            assert_eq!(
                found,
                expected(&keys, prefix, delimiter),
                "{prefix:?} {delimiter:?}"
            );
        }
    }
}

#[test]
fn a_listing_is_refused_that_means_nothing() {
    let env = environment!();
    env.write("in/x", "x");
    env.ok(["put", "in", "project/demo/data"]);
    let server = Server::start(&env, &OPEN);
    for query in [
        "list-type=2&continuation-token=k6",
        "max-keys=-1",
        "encoding-type=x",
        "list-type=3",
    ] {
        let answer = crate::s3::ask(&server, &format!("GET /project.demo?{query}"));
        assert_eq!(
            (answer.status, texts(&answer, "Code").concat()),
            (400, "InvalidArgument".to_owned()),
            "{query}"
        );
    }
    let all = crate::s3::ask(&server, "GET /");
    assert_eq!(texts(&all, "Name"), ["project.demo"]);
}
