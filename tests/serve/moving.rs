//! A branch that moves while a client downloads: it gets the bytes of the commit that it was told of, or nothing.

use serde_json::Value;
use support::environment;
use support::hub::{Generation, cache};

use crate::server::Server;

const FILE: &str = "/project/demo/org/data/resolve/main/sub/a%20b.bin";

/// Clients ask by `HEAD` for commit and etag, and keep under these names what they get afterwards.
#[test]
fn a_client_is_led_to_the_commit_that_it_is_told_of() {
    let env = environment!();
    let put = |bytes: &str| {
        env.write("in/sub/a b.bin", bytes);
        env.ok(["put", "in", "project/demo/org/data"]);
    };
    put("first");
    let server = Server::start(&env, &[]);
    let head = server.ask(&format!("HEAD {FILE}"));
    assert_eq!(head.status, 307);
    let commit = head.header("x-repo-commit").unwrap().to_owned();
    let place = head.header("location").unwrap().to_owned();
    assert_eq!(place, FILE.replace("main", &commit));
    put("other");
    let fixed = server.ask(&format!("HEAD {place}"));
    assert_eq!(fixed.status, 200);
    assert_eq!(fixed.header("x-repo-commit"), Some(commit.as_str()));
    for header in ["etag", "x-linked-etag", "x-linked-size"] {
        assert_eq!(fixed.header(header), head.header(header), "{header}");
    }
    assert_eq!(server.get(&place).body, b"first");
    let rest = server.ask(&format!("GET {place}\nRange: bytes=2-"));
    assert_eq!((rest.status, rest.body.as_slice()), (206, &b"rst"[..]));
    // Who only gets the file gets one version of it, at once.
    assert_eq!(server.get(FILE).body, b"other");
}

#[test]
fn a_client_is_led_by_a_path_that_a_proxy_understands() {
    let env = environment!();
    env.write("in/a.txt", "text");
    env.ok(["put", "in", "project/demo/models/org/m"]);
    let server = Server::start(&env, &["--root", "project/demo"]);
    for (path, headers, place) in [
        ("/org/m", "", "/org/m"),
        ("/project/demo/org/m", "", "/project/demo/org/m"),
        ("/org/m", "\nX-Forwarded-Prefix: /hub", "/hub/org/m"),
    ] {
        let head = server.ask(&format!("HEAD {path}/resolve/v1/a.txt{headers}"));
        let commit = head.header("x-repo-commit").unwrap();
        let place = format!("{place}/resolve/{commit}/a.txt");
        assert_eq!(head.header("location"), Some(place.as_str()));
    }
    // What is missing is missing at once.
    let head = server.ask("HEAD /org/m/resolve/main/none");
    assert_eq!(head.failure(), (404, Some("EntryNotFound")));
}

/// A client of the cache deletes what it does not need, and the commit is the same. Clients ask by the commit in the end.
#[test]
fn a_version_of_a_saved_repo_keeps_the_files_that_a_later_one_lacks() {
    let env = environment!();
    let cache = cache(&env.path("hf"), 7, Generation::Listed);
    env.ok(["put", "hf", "project/demo/hf"]);
    let file = "sub/model.safetensors";
    let snapshot = cache.repo.join("snapshots").join(&cache.commit);
    std::fs::remove_file(snapshot.join(file)).unwrap();
    env.ok(["put", "hf", "project/demo/hf"]);
    let server = Server::start(&env, &[]);
    let of = |rev: &str| format!("/project/demo/org/tiny/resolve/{rev}/{file}");
    for (rev, status) in [
        ("v1", 200),
        ("v2", 404),
        ("main", 404),
        (&cache.commit, 200),
    ] {
        assert_eq!(server.head(&of(rev)).status, status, "{rev}");
        assert_eq!(server.get(&of(rev)).status, status, "{rev}");
    }
    let files = |rev: &str| {
        let info = server.json(&format!("/project/demo/api/models/org/tiny/revision/{rev}"));
        (
            info["sha"].clone(),
            info["siblings"].as_array().unwrap().len(),
        )
    };
    let (commit, of_first) = files("v1");
    assert_eq!(commit, cache.commit.as_str());
    assert_eq!(files(&cache.commit).1, of_first);
    assert_eq!(files("v2").1, of_first - 1);
}

/// Equal bytes are one content, and refs that are files have nothing else.
#[test]
fn refs_that_are_equal_files_have_their_own_names() {
    let env = environment!();
    env.write("a.csv", "1,2\n");
    for name in ["project/secret/salaries.csv", "project/demo/mine.csv"] {
        env.ok(["put", "a.csv", name]);
    }
    let server = Server::start(&env, &[]);
    for (namespace, name) in [("secret", "salaries.csv"), ("demo", "mine.csv")] {
        let repo = format!("/project/{namespace}/api/models/{namespace}/{name}");
        let info = server.json(&repo);
        assert_eq!(info["siblings"][0]["rfilename"], name);
        let file = format!("/project/{namespace}/{namespace}/{name}/resolve/main/{name}");
        assert_eq!(server.get(&file).body, b"1,2\n");
    }
}

/// A long list is written on disk, and sent from there.
#[test]
fn a_long_list_has_each_file_once() {
    let env = environment!();
    // Few bytes to hash, and many names.
    for number in 0..11_000 {
        let path = format!("in/{}/{number}.txt", number % 40);
        env.write(path, (number % 7).to_string());
    }
    env.ok(["put", "in", "project/demo/models/org/many"]);
    let server = Server::start(&env, &[]);
    let api = "/project/demo/api/models/org/many";
    let mut paged: Vec<Value> = Vec::new();
    let mut next = Some(format!("{api}/tree/main?recursive=1"));
    while let Some(path) = next {
        let page = server.get(&path);
        let entries = page.json();
        let entries = entries.as_array().unwrap().iter();
        let files = entries.filter(|entry| entry["type"] == "file");
        paged.extend(files.map(|file| serde_json::json!([file["path"], file["oid"]])));
        let link = page.header("link").map(str::to_owned);
        next = link.map(|link| {
            let url = link.split('>').next().unwrap();
            url[url.find("/project/").unwrap()..].to_owned()
        });
    }
    assert_eq!(paged.len(), 11_000);
    for (query, with_hashes) in [("", false), ("?blobs=true", true)] {
        let info = server.json(&format!("{api}{query}"));
        assert_eq!(
            (&info["id"], info["sha"].is_string()),
            (&"org/many".into(), true)
        );
        let listed = info["siblings"].as_array().unwrap().iter();
        let listed: Vec<Value> = listed
            .map(|file| serde_json::json!([file["rfilename"], file["blobId"]]))
            .collect();
        assert_eq!(listed.len(), paged.len());
        for (found, expected) in listed.iter().zip(&paged) {
            assert_eq!(found[0], expected[0]);
            assert_eq!(found[1] == expected[1], with_hashes, "{found}");
        }
    }
}
