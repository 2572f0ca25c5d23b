//! What Hub clients can read.

use serde_json::{Value, json};
use support::hub::{Cache, Generation, cache, git_name, sha256};
use support::{Random, TestEnvironment, environment};

use crate::server::Server;

const SAVED: &str = "/project/demo/org/tiny";
const API: &str = "/project/demo/api/models/org/tiny";

fn saved(env: &TestEnvironment) -> Cache {
    let cache = cache(&env.path("hf"), 7, Generation::Listed);
    env.ok(["put", "hf", "project/demo/hf"]);
    cache
}

/// Puts a ref that is not a saved repo. Returns its files by path.
fn plain(env: &TestEnvironment) -> Vec<(&'static str, Vec<u8>)> {
    let files = vec![
        ("README.md", b"# data\n".to_vec()),
        ("data/a b+c.txt", Random::new(1).text(3000)),
        ("data/empty.txt", Vec::new()),
        ("data/zeros.txt", vec![0; 600]),
        ("large.safetensors", Random::new(2).bytes(3_000_000)),
    ];
    for (path, bytes) in &files {
        env.write(format!("in/{path}"), bytes);
    }
    std::os::unix::fs::symlink("data/a b+c.txt", env.path("in/link.txt")).unwrap();
    std::os::unix::fs::symlink("data", env.path("in/directory")).unwrap();
    env.ok(["put", "in", "project/demo/org/data", "--message", "first"]);
    files
}

fn paths(listing: &Value) -> Vec<&str> {
    let entries = listing.as_array().unwrap().iter();
    entries
        .map(|entry| entry["path"].as_str().unwrap())
        .collect()
}

#[test]
fn a_saved_repo_has_its_commit_its_branches_and_its_hashes() {
    let env = environment!();
    let cache = saved(&env);
    let server = Server::start(&env, &[]);
    for path in [
        "",
        "/revision/main",
        &format!("/revision/{}", cache.commit),
        "/revision/refs%2Fpr%2F1",
    ] {
        let info = server.json(&format!("{API}{path}"));
        assert_eq!(
            (&info["id"], &info["sha"]),
            (&json!("org/tiny"), &json!(cache.commit)),
            "{path}"
        );
        let names: Vec<_> = info["siblings"].as_array().unwrap().iter().collect();
        let expected = ["config.json", "poetry.lock", "sub/model.safetensors"];
        assert_eq!(
            names,
            expected
                .map(|name| json!({"rfilename": name}))
                .iter()
                .collect::<Vec<_>>()
        );
    }
    let [small, large] = &cache.names;
    let tree = server.json(&format!("{API}/tree/main?recursive=True&expand=False"));
    assert_eq!(
        paths(&tree),
        ["config.json", "poetry.lock", "sub", "sub/model.safetensors"]
    );
    assert_eq!(
        (&tree[0]["oid"], &tree[0]["size"]),
        (&json!(small), &json!(600))
    );
    assert_eq!(tree[3]["lfs"]["oid"], json!(large));
    let refs = server.json(&format!("{API}/refs?include_prs=1"));
    assert_eq!(refs["branches"][0]["targetCommit"], json!(cache.commit));
    assert_eq!(refs["pullRequests"][0]["ref"], "refs/pr/1");
    for (path, name) in [("config.json", small), ("sub/model.safetensors", large)] {
        let expected = std::fs::read(cache.repo.join("blobs").join(name)).unwrap();
        let url = format!("{SAVED}/resolve/main/{path}");
        for (is_head, answer) in [(true, server.head(&url)), (false, server.get(&url))] {
            assert_eq!(answer.status, 200, "{url}");
            assert_eq!(answer.header("etag"), Some(format!("\"{name}\"").as_str()));
            assert_eq!(answer.header("x-repo-commit"), Some(cache.commit.as_str()));
            assert_eq!(
                answer.header("content-length"),
                Some(expected.len().to_string().as_str())
            );
            assert!(is_head || answer.body == expected, "{path}");
        }
    }
    let head = server.head(&format!("{SAVED}/resolve/main/sub/model.safetensors"));
    assert_eq!(head.header("x-linked-etag"), head.header("etag"));
    assert_eq!(head.header("x-linked-size"), head.header("content-length"));
    assert_eq!(head.header("x-xet-hash"), None);
}

#[test]
fn any_other_ref_is_a_repo_with_true_hashes_and_a_commit_that_is_the_same_everywhere() {
    let env = environment!();
    let files = plain(&env);
    let server = Server::start(&env, &[]);
    let commit = server.json("/project/demo/api/models/org/data")["sha"].clone();
    let commit = commit.as_str().unwrap().to_owned();
    assert!(commit.len() == 40 && commit.bytes().all(|c| b"0123456789abcdef".contains(&c)));
    for (path, bytes) in &files {
        let path = path.replace(' ', "%20").replace('+', "%2B");
        let answer = server.get(&format!("/project/demo/org/data/resolve/{commit}/{path}"));
        let is_large = path.ends_with(".safetensors") || bytes.contains(&0);
        let name = if is_large {
            sha256(bytes)
        } else {
            git_name(bytes)
        };
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(
            answer.header("etag"),
            Some(format!("\"{name}\"").as_str()),
            "{path}"
        );
        assert!(answer.body == *bytes, "{path}");
    }
    let tree = server.json("/project/demo/api/models/org/data/tree/main");
    assert_eq!(
        paths(&tree),
        ["README.md", "data", "large.safetensors", "link.txt"]
    );
    let sub = server.json("/project/demo/api/models/org/data/tree/main/data%2F");
    assert_eq!(
        paths(&sub),
        ["data/a b+c.txt", "data/empty.txt", "data/zeros.txt"]
    );
    let dataset = server.json("/project/demo/api/datasets/org/data");
    assert_ne!(dataset["sha"], json!(commit));
    assert_eq!(server.stop(), Some(0));

    // Another store, without cached hashes.
    let other = environment!();
    plain(&other);
    other.ok([
        "put",
        "in",
        "project/demo/org/data",
        "--always",
        "--message",
        "again",
    ]);
    let server = Server::start(&other, &["--root", "project/demo"]);
    let commits = server.json("/api/models/org/data/commits/main");
    assert_eq!(commits.as_array().unwrap().len(), 1);
    assert_eq!(commits[0]["id"], json!(commit));
    assert_eq!(
        server.json("/api/models/org/data/revision/v1")["sha"],
        json!(commit)
    );
}

#[test]
fn hashes_are_computed_once() {
    let env = environment!();
    plain(&env);
    let path = "/project/demo/org/data/resolve/main/large.safetensors";
    let hashed = |server: &Server| {
        let text = String::from_utf8(server.get("/metrics").body).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("store_serve_hashed_bytes_total "));
        line.unwrap()
            .rsplit(' ')
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let server = Server::start(&env, &[]);
    let first = server.ask(&format!("HEAD {path}"));
    assert_eq!(hashed(&server), 3_000_000);
    server.ask(&format!("HEAD {path}"));
    assert_eq!(hashed(&server), 3_000_000);
    drop(server);
    let server = Server::start(&env, &[]);
    let second = server.ask(&format!("HEAD {path}"));
    assert_eq!(
        (first.header("etag"), hashed(&server)),
        (second.header("etag"), 0)
    );
}

#[test]
fn ranges_and_conditions() {
    let env = environment!();
    let files = plain(&env);
    let (_, bytes) = files.last().unwrap();
    let server = Server::start(&env, &[]);
    let url = "/project/demo/org/data/resolve/main/large.safetensors";
    let mut connection = server.connect();
    for (range, start, end) in [
        ("0-0", 0, 1),
        ("1000000-1999999", 1_000_000, 2_000_000),
        ("2999990-9999999", 2_999_990, 3_000_000),
        ("-7", 2_999_993, 3_000_000),
        ("2500000-", 2_500_000, 3_000_000),
    ] {
        let answer = connection.ask(&format!("GET {url}\nRange: bytes={range}"));
        let told = format!("bytes {start}-{}/3000000", end - 1);
        assert_eq!(
            (answer.status, answer.header("content-range")),
            (206, Some(told.as_str()))
        );
        assert!(answer.body == bytes[start..end], "{range}");
    }
    let answer = connection.ask(&format!("GET {url}\nRange: bytes=3000000-"));
    assert_eq!(
        (answer.status, answer.header("content-range")),
        (416, Some("bytes */3000000"))
    );
    // An empty file has no ranges, but clients that request its first byte to learn its size cannot handle a refusal.
    for range in ["0-0", "0-"] {
        let url = "/project/demo/org/data/resolve/main/data/empty.txt";
        let answer = connection.ask(&format!("GET {url}\nRange: bytes={range}"));
        assert_eq!(
            (answer.status, answer.header("content-range")),
            (200, Some("bytes */0"))
        );
        assert_eq!(answer.header("content-length"), Some("0"));
        assert!(answer.header("x-repo-commit").is_some() && answer.body.is_empty());
    }
    let etag = connection
        .ask(&format!("HEAD {url}"))
        .header("etag")
        .unwrap()
        .to_owned();
    let weak = format!("W/{etag}");
    for (known, status) in [(etag.as_str(), 206), (&weak, 200), ("\"other\"", 200)] {
        let answer = connection.ask(&format!("GET {url}\nRange: bytes=0-9\nIf-Range: {known}"));
        assert_eq!(answer.status, status, "{known}");
    }
    for (known, status) in [(etag.as_str(), 200), ("\"other\"", 412)] {
        let answer = connection.ask(&format!("GET {url}\nIf-Match: {known}"));
        assert_eq!(answer.status, status, "{known}");
    }
    let answer = connection.ask(&format!("GET {url}\nIf-None-Match: {etag}"));
    assert_eq!((answer.status, answer.body.len()), (304, 0));
}

#[test]
fn a_listing_goes_on_page_by_page_at_the_endpoint_that_was_called() {
    let env = environment!();
    for number in 0..25 {
        env.write(format!("in/d/{number:02} +.txt"), number.to_string());
    }
    env.ok(["put", "in", "project/demo/org/many"]);
    let server = Server::start(&env, &[]);
    let mut found = Vec::new();
    let mut next =
        Some("/project/demo/api/datasets/org/many/tree/main/d?recursive=true&limit=10".to_owned());
    let mut pages = 0;
    while let Some(path) = next {
        let answer = server.ask(&format!(
            "GET {path}\nX-Forwarded-Proto: https\nX-Forwarded-Prefix: /hub"
        ));
        found.extend(paths(&answer.json()).iter().map(|path| (*path).to_owned()));
        pages += 1;
        next = answer.header("link").map(|link| {
            let link = link.strip_prefix("<https://hub.localhost:80/hub").unwrap();
            link.strip_suffix(">; rel=\"next\"").unwrap().to_owned()
        });
    }
    let expected: Vec<_> = (0..25)
        .map(|number| format!("d/{number:02} +.txt"))
        .collect();
    assert_eq!((pages, found), (3, expected));
    let bad = server.get("/project/demo/api/datasets/org/many/tree/main?cursor=zz");
    assert_eq!(bad.status, 400);
}

#[test]
fn paths_are_told_of_whatever_form_asks() {
    let env = environment!();
    plain(&env);
    let server = Server::start(&env, &[]);
    let mut connection = server.connect();
    let url = "POST /project/demo/api/models/org/data/paths-info/main";
    for body in [
        &b"paths=README.md&paths=data%2Fa+b%2Bc.txt&paths=none&paths=data&expand=False"[..],
        br#"{"paths": ["README.md", "data/a b+c.txt", "none", "data"], "expand": false}"#,
    ] {
        let answer = connection.ask_with(url, body).json();
        assert_eq!(paths(&answer), ["README.md", "data/a b+c.txt", "data"]);
        assert_eq!(answer[0]["oid"], json!(git_name(b"# data\n")));
    }
}

#[test]
fn what_is_not_there_is_said_in_words_that_clients_know() {
    let env = environment!();
    let cache = saved(&env);
    let server = Server::start(&env, &[]);
    let missing = server.get(&format!("{SAVED}/resolve/main/none.json"));
    assert_eq!(missing.failure(), (404, Some("EntryNotFound")));
    assert_eq!(missing.header("x-repo-commit"), Some(cache.commit.as_str()));
    assert!(
        missing.json()["error"]
            .as_str()
            .unwrap()
            .contains("none.json")
    );
    for (path, status, code) in [
        (
            format!("{SAVED}/resolve/main/sub"),
            404,
            Some("EntryNotFound"),
        ),
        (format!("{API}/tree/main/none"), 404, Some("EntryNotFound")),
        (
            format!("{SAVED}/resolve/none/config.json"),
            404,
            Some("RevisionNotFound"),
        ),
        (
            format!("{API}/revision/{}", "0".repeat(40)),
            404,
            Some("RevisionNotFound"),
        ),
        (
            "/project/demo/api/models/org/none".to_owned(),
            404,
            Some("RepoNotFound"),
        ),
        (
            "/project/none/api/models/org/tiny".to_owned(),
            404,
            Some("RepoNotFound"),
        ),
        (
            "/project/demo/api/datasets/org/tiny".to_owned(),
            404,
            Some("RepoNotFound"),
        ),
        ("/api/models/org/tiny".to_owned(), 404, None),
        (format!("{API}/xet-read-token/main"), 404, None),
    ] {
        assert_eq!(server.get(&path).failure(), (status, code), "{path}");
    }
    let found = server.json("/project/demo/api/models?search=TIN&limit=5");
    assert_eq!(found[0]["id"], "org/tiny");
}

#[test]
fn a_new_version_is_seen_at_once_and_the_old_commit_stays() {
    let env = environment!();
    env.write("in/a.txt", "one");
    env.ok(["put", "in", "project/demo/run/out"]);
    let server = Server::start(&env, &[]);
    let sha = || {
        server.json("/project/demo/api/models/run/out")["sha"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let first = sha();
    env.write("in/a.txt", "two");
    env.ok(["put", "in", "project/demo/run/out"]);
    assert_ne!(sha(), first);
    for (rev, expected) in [(first.as_str(), "one"), ("main", "two"), ("v1", "one")] {
        let answer = server.get(&format!("/project/demo/run/out/resolve/{rev}/a.txt"));
        assert_eq!(answer.body, expected.as_bytes(), "{rev}");
    }
    env.ok(["rm", "project/demo/run/out", "--yes"]);
    assert_eq!(server.get("/project/demo/api/models/run/out").status, 404);
}

#[test]
fn what_clients_read_counts_as_used() {
    let env = environment!();
    plain(&env);
    let last_use = || {
        let line = env.ok(["ls", "project/demo", "--json"]);
        serde_json::from_str::<Value>(&line).unwrap()["last_use"].clone()
    };
    let server = Server::start(&env, &[]);
    let url = "/project/demo/org/data/resolve/main/README.md";
    server.ask(&format!("HEAD {url}"));
    assert!(last_use().is_null());
    server.get(url);
    // The use is recorded after the answer, and before the server has ended.
    server.stop();
    assert!(last_use().is_string());
}

#[test]
fn a_compiled_module_is_there_when_it_is_whole() {
    let env = environment!();
    for (module, file) in [("1", "model.done"), ("2", "model.log")] {
        env.write(format!("in/neuronxcc-2/MODULE_{module}/model.neff"), "neff");
        env.write(format!("in/neuronxcc-2/MODULE_{module}/{file}"), "");
    }
    env.ok(["put", "in", "project/demo/org/neff", "--profile", "none"]);
    let server = Server::start(&env, &[]);
    let tree = server.json("/project/demo/api/models/org/neff/tree/main?recursive=true");
    let found = paths(&tree);
    assert_eq!(
        found,
        [
            "neuronxcc-2",
            "neuronxcc-2/MODULE_1",
            "neuronxcc-2/MODULE_1/model.done",
            "neuronxcc-2/MODULE_1/model.neff"
        ]
    );
    let hidden = server.get("/project/demo/org/neff/resolve/main/neuronxcc-2/MODULE_2/model.neff");
    assert_eq!(hidden.failure(), (404, Some("EntryNotFound")));
}
