//! A namespace's saved caches next to an upstream, and incomplete compiled modules.

use std::fs;

use serde_json::{Value, json};
use support::hub::{Cache, Generation, cache};
use support::{TestEnvironment, environment};

use crate::origin::Origin;
use crate::server::{Answer, Server};

const API: &str = "/project/demo/api/models/org/tiny";
const FILES: &str = "/project/demo/org/tiny/resolve";

fn start(env: &TestEnvironment, origin: &Origin) -> Server {
    Server::start(env, &["--upstream", &origin.url()])
}

/// Puts a saved cache. Also returns the content of its `config.json`.
fn saved(env: &TestEnvironment) -> (Cache, Vec<u8>) {
    let cache = cache(&env.path("hf"), 7, Generation::Listed);
    env.ok(["put", "hf", "project/demo/hf"]);
    let config = fs::read(cache.repo.join("blobs").join(&cache.names[0])).unwrap();
    (cache, config)
}

fn with_token(server: &Server, path: &str, token: &str) -> Answer {
    server.ask(&format!("GET {path}\nAuthorization: Bearer {token}"))
}

/// Asserts that a server shows the saved repo, by branch and by commit.
fn shows(server: &Server, (cache, config): &(Cache, Vec<u8>), what: &str) {
    for rev in ["main", &cache.commit] {
        let answer = server.get(&format!("{FILES}/{rev}/config.json"));
        assert_eq!(answer.status, 200, "{what}: {rev}: {answer:?}");
        assert!(answer.body == *config, "{what}: {rev}");
        let commit = answer.header("x-repo-commit");
        assert_eq!(commit, Some(cache.commit.as_str()), "{what}: {rev}");
    }
    assert_eq!(server.json(API)["sha"], json!(cache.commit), "{what}");
    let refs = server.json(&format!("{API}/refs"));
    let branches = refs["branches"].as_array().unwrap();
    assert!(!branches.is_empty(), "{what}: {refs}");
}

#[test]
fn a_saved_repo_is_there_whatever_the_upstream_says_of_it() {
    let env = environment!();
    let saved = saved(&env);
    for (status, code) in [
        (401, ""),
        (403, "GatedRepo"),
        (404, "RepoNotFound"),
        (404, "RevisionNotFound"),
        (404, ""),
        (500, ""),
        (503, ""),
    ] {
        let origin = Origin::start();
        origin.plan(|plan| plan.status = Some((status, code)));
        let server = start(&env, &origin);
        shows(&server, &saved, &format!("{status} {code}"));
        let none = server.get("/project/demo/api/models/org/none");
        assert!(none.status >= 400, "{none:?}");
        assert_eq!(server.stop(), Some(0));
    }
    let log = fs::read_to_string(env.path("log")).unwrap();
    assert!(log.contains("the upstream answers 403"), "{log}");
}

#[test]
fn a_saved_repo_does_not_open_what_the_upstream_keeps_from_others() {
    let env = environment!();
    let saved = saved(&env);
    for is_gated in [true, false] {
        let origin = Origin::start();
        let commit = origin.add("org/tiny", &[("config.json", b"theirs\n")]);
        origin.close("org/tiny", is_gated, &["hf_allowed"]);
        let server = start(&env, &origin);
        let url = format!("{FILES}/main/config.json");
        assert_eq!(with_token(&server, &url, "hf_allowed").body, b"theirs\n");
        shows(&server, &saved, "as nobody");
        assert_eq!(with_token(&server, &url, "hf_other").body, saved.1);
        let theirs = format!("{FILES}/{commit}/config.json");
        assert_eq!(with_token(&server, &theirs, "hf_allowed").body, b"theirs\n");
        for answer in [
            server.get(&theirs),
            with_token(&server, &theirs, "hf_other"),
        ] {
            assert!(
                (400..500).contains(&answer.status) && answer.body != b"theirs\n",
                "{answer:?}"
            );
        }
        assert_eq!(server.stop(), Some(0));
    }
}

#[test]
fn what_was_open_once_is_not_shown_for_a_saved_repo() {
    let env = environment!();
    let saved = saved(&env);
    let origin = Origin::start();
    origin.add("org/tiny", &[("config.json", b"theirs\n")]);
    let server = start(&env, &origin);
    let url = format!("{FILES}/main/config.json");
    assert_eq!(server.get(&url).body, b"theirs\n");
    assert_eq!(server.stop(), Some(0));
    origin.close("org/tiny", false, &["hf_allowed"]);
    let server = start(&env, &origin);
    shows(&server, &saved, "closed");
    assert_eq!(server.stop(), Some(0));
    // A commit of the saved repo alone is found even while the upstream is unreachable.
    origin.plan(|plan| plan.status = Some((503, "")));
    let server = start(&env, &origin);
    let url = format!("{FILES}/{}/config.json", saved.0.commit);
    assert_eq!(server.get(&url).body, saved.1);
}

#[test]
fn a_module_without_its_mark_does_not_come_through() {
    let env = environment!();
    env.ok(["init"]);
    let origin = Origin::start();
    let commit = origin.add(
        "org/neff",
        &[
            ("neuronxcc-2/MODULE_1/model.neff", b"one"),
            ("neuronxcc-2/MODULE_1/model.done", b""),
            ("neuronxcc-2/MODULE_2/model.neff", b"two"),
            ("neuronxcc-2/MODULE_2/model.log", b"half"),
        ],
    );
    let server = start(&env, &origin);
    let api = "/project/demo/api/models/org/neff";
    for rev in ["main", &commit] {
        let tree = server.json(&format!("{api}/tree/{rev}?recursive=true"));
        let entries = tree.as_array().unwrap().iter();
        let paths: Vec<_> = entries
            .map(|entry| entry["path"].as_str().unwrap())
            .collect();
        assert_eq!(
            paths,
            [
                "neuronxcc-2",
                "neuronxcc-2/MODULE_1",
                "neuronxcc-2/MODULE_1/model.done",
                "neuronxcc-2/MODULE_1/model.neff"
            ]
        );
    }
    let info: Value = server.json(api);
    assert_eq!(info["siblings"].as_array().unwrap().len(), 2, "{info}");
    let file = |module: u32| {
        server.get(&format!(
            "/project/demo/org/neff/resolve/main/neuronxcc-2/MODULE_{module}/model.neff"
        ))
    };
    assert_eq!(file(1).body, b"one");
    assert_eq!(file(2).failure(), (404, Some("EntryNotFound")));
    assert!(origin.asked("MODULE_2").is_empty());
}
