//! Repos of an upstream that are not for everybody: who gets them, who learns of them, and where tokens go.

use std::fs;

use serde_json::json;
use support::environment;

use crate::origin::Origin;
use crate::pull::{API, FILES, SMALL, large, origin, start, with_token};
use crate::server::Server;
use crate::write::Client;

#[test]
fn a_token_goes_no_further_than_to_the_upstream() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, _) = origin();
    let elsewhere = Origin::start();
    elsewhere.add("org/m", &[("config.json", SMALL), ("sub/x.bin", &large())]);
    origin.close("org/m", true, &["hf_allowed"]);
    origin.plan(|plan| plan.elsewhere = Some(elsewhere.url()));
    let server = start(&env, &origin, &[]);
    let answer = with_token(&server, &format!("{FILES}/main/sub/x.bin"), "hf_allowed");
    assert!(answer.body == large(), "{}", answer.status);
    let tokens = |asked: &Origin| -> Vec<Option<String>> {
        let asked = asked.asked("/resolve/").into_iter();
        asked.map(|asked| asked.token).collect()
    };
    assert_eq!(tokens(&origin), [Some("hf_allowed".to_owned())]);
    assert_eq!(tokens(&elsewhere), [None]);
}

/// Each request there is a first one: what was left out of the one before must not come back.
#[test]
fn a_token_does_not_come_back_where_another_host_redirects_to_itself() {
    let env = environment!();
    env.ok(["init"]);
    for (at, is_relative) in [true, false].into_iter().enumerate() {
        let (origin, _) = origin();
        origin.close("org/m", true, &["hf_allowed"]);
        let elsewhere = Origin::start();
        elsewhere.add("org/m", &[("config.json", SMALL), ("sub/x.bin", &large())]);
        origin.plan(|plan| plan.elsewhere = Some(elsewhere.url()));
        let there = if is_relative {
            String::new()
        } else {
            elsewhere.url()
        };
        elsewhere.plan(|plan| plan.elsewhere = Some(format!("{there}/moved")));
        let server = start(&env, &origin, &[]);
        let url = format!("/project/demo{at}/org/m/resolve/main/sub/x.bin");
        let answer = with_token(&server, &url, "hf_allowed");
        assert!(answer.body == large(), "{}", answer.status);
        let asked = elsewhere.asked("/resolve/");
        let tokens: Vec<_> = asked.iter().map(|asked| asked.token.as_ref()).collect();
        assert_eq!(tokens, [None, None]);
    }
}

#[test]
fn what_is_not_for_everybody_is_for_those_whom_the_upstream_lets_see_it() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, _) = origin();
    let url = format!("{FILES}/main/config.json");
    for (is_gated, refused, to_nobody) in [
        (true, (403, Some("GatedRepo")), (401, Some("GatedRepo"))),
        (
            false,
            (404, Some("RepoNotFound")),
            (401, Some("RepoNotFound")),
        ),
    ] {
        origin.close("org/m", is_gated, &["hf_allowed"]);
        let server = start(&env, &origin, &[]);
        assert_eq!(with_token(&server, &url, "hf_allowed").body, SMALL);
        assert_eq!(server.get(&url).failure(), to_nobody);
        assert_eq!(with_token(&server, &url, "hf_other").failure(), refused);
        assert_eq!(with_token(&server, API, "hf_other").failure(), refused);
        assert_eq!(server.stop(), Some(0));
    }
    assert_eq!(
        origin.asked("/resolve/").len(),
        1,
        "the second time it was here"
    );
    // Remembered permissions are valid while the upstream is unreachable; nobody else is let in.
    origin.plan(|plan| plan.status = Some((503, "")));
    for (options, refused) in [
        (&[][..], (503, None)),
        (&["--offline"], (404, Some("RepoNotFound"))),
    ] {
        let server = start(&env, &origin, options);
        assert_eq!(with_token(&server, &url, "hf_allowed").body, SMALL);
        assert_eq!(with_token(&server, &url, "hf_new").failure(), refused);
        assert_eq!(server.get(&url).failure(), refused);
    }
    // A server without an upstream lets nobody in, and neither does the S3 door.
    let server = Server::start(&env, &["--s3-listen", "127.0.0.1:0"]);
    assert_eq!(server.get(&url).failure(), (404, Some("RepoNotFound")));
    assert_eq!(with_token(&server, &url, "hf_allowed").status, 404);
    assert_eq!(server.json("/project/demo/api/models"), json!([]));
    for path in [
        "project/demo/.gated/models/org/m",
        "project/demo/.gated/models/org/m@1",
    ] {
        let page = server.ask(&format!("GET /-/{path}\nAccept: text/html"));
        assert_eq!(page.status, 404, "{path}");
    }
    let mut s3 = crate::server::Connection::open(server.s3_address());
    let listed = s3.ask("GET /project.demo?list-type=2");
    let listed = String::from_utf8(listed.body).unwrap();
    assert!(listed.contains("<KeyCount>0</KeyCount>"), "{listed}");
    for text in [
        fs::read_to_string(env.path("log")).unwrap(),
        env.ok(["history", "project/demo/.gated/models/org/m"]),
    ] {
        assert!(
            !text.contains("hf_allowed") && !text.contains("hf_other"),
            "{text}"
        );
    }
}

#[test]
fn the_token_of_the_server_is_for_those_who_are_trusted_with_it() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, _) = origin();
    let token = |words: &[&str]| {
        let words = ["token", "add"].iter().chain(words);
        env.ok(words).trim().to_owned()
    };
    let trusted = token(&["trusted", "--upstream"]);
    let other = token(&["other"]);
    let listed = env.ok(["token", "ls"]);
    let grants = listed.lines().filter(|line| line.contains("upstream"));
    assert_eq!(grants.count(), 1, "{listed}");
    let url = origin.url();
    let words = ["--upstream", &url, "--upstream-token-env", "LANG"];
    // LANG is a variable that the tests can set, so its value C.UTF-8 serves as the token.
    origin.close("org/m", true, &["C.UTF-8"]);
    let server = Server::start(&env, &words);
    let file = format!("{FILES}/main/config.json");
    assert_eq!(with_token(&server, &file, &trusted).body, SMALL);
    let unknown = (401, Some("GatedRepo"));
    assert_eq!(with_token(&server, &file, &other).failure(), unknown);
    assert_eq!(server.get(&file).failure(), (401, None));
    // Tokens of this server are never sent to the upstream.
    let tokens: Vec<_> = origin
        .asked("")
        .into_iter()
        .filter_map(|asked| asked.token)
        .collect();
    assert!(tokens.iter().all(|token| token == "C.UTF-8"), "{tokens:?}");
}

/// What the store has of a private repo must not show: neither by a status, nor by a code or a text.
#[test]
fn a_private_repo_that_was_fetched_is_answered_like_one_that_is_not_there() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, _) = origin();
    origin.close("org/m", false, &["hf_allowed"]);
    let server = start(&env, &origin, &[]);
    let file = |id: &str| format!("/project/demo/{id}/resolve/main/config.json");
    let there = with_token(&server, &file("org/m"), "hf_allowed");
    assert_eq!(there.body, SMALL);
    assert_eq!(server.stop(), Some(0));
    for (status, options) in [
        (None, &[][..]),
        (Some((503, "")), &[]),
        (None, &["--offline"]),
    ] {
        origin.plan(|plan| plan.status = status);
        let server = start(&env, &origin, options);
        for token in [None, Some("hf_other")] {
            let ask = |path: &str| {
                let answer = match token {
                    None => server.get(path),
                    Some(token) => with_token(&server, path, token),
                };
                let (status, code) = answer.failure();
                let code = code.map(str::to_owned);
                (status, code, answer.body)
            };
            for path in [
                |id: &str| format!("/project/demo/{id}/resolve/main/config.json"),
                |id: &str| format!("/project/demo/api/models/{id}"),
                |id: &str| format!("/project/demo/api/models/{id}/tree/main"),
            ] {
                let found = ask(&path("org/m"));
                assert!(found.0 >= 400, "{options:?} {token:?}");
                assert_eq!(found, ask(&path("org/none")), "{options:?} {token:?}");
            }
        }
    }
}

/// A job that is told "forbidden" ends; one that is told "later" asks again.
#[test]
fn who_cannot_be_checked_now_is_not_refused_for_good() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, _) = origin();
    origin.close("org/m", true, &["hf_first", "hf_second"]);
    let server = start(&env, &origin, &[]);
    let url = format!("{FILES}/main/config.json");
    assert_eq!(with_token(&server, &url, "hf_first").body, SMALL);
    origin.plan(|plan| plan.check_status = Some(500));
    let answer = with_token(&server, &url, "hf_second");
    assert_eq!(answer.failure(), (503, None));
    assert_eq!(answer.header("retry-after"), Some("5"));
    // What the first one was let in for stays.
    assert_eq!(with_token(&server, &url, "hf_first").body, SMALL);
    assert_eq!(server.stop(), Some(0));
    let log = fs::read_to_string(env.path("log")).unwrap();
    assert!(log.contains("the upstream: it answers 500"), "{log}");
    origin.plan(|plan| plan.check_status = None);
    let server = start(&env, &origin, &[]);
    assert_eq!(with_token(&server, &url, "hf_second").body, SMALL);
}

/// An empty repo of the same name would be what everybody gets from then on.
#[test]
fn no_repo_is_made_that_would_hide_one_of_the_upstream() {
    let env = environment!();
    env.ok(["init"]);
    let (origin, _) = origin();
    for (id, is_gated) in [("org/gated", true), ("org/private", false)] {
        origin.add(id, &[("config.json", SMALL)]);
        origin.close(id, is_gated, &["hf_allowed"]);
    }
    let server = start(&env, &origin, &[]);
    let file = "/project/demo/org/private/resolve/main/config.json";
    assert_eq!(with_token(&server, file, "hf_allowed").body, SMALL);
    let create = |name: &str, owner: &str| {
        let body = json!({"name": name, "organization": owner, "private": true});
        Client::new(&server).post("/project/demo/api/repos/create", body.to_string())
    };
    for name in ["m", "gated", "private"] {
        let answer = create(name, "org");
        assert_eq!(answer.status, 409, "{name}");
        let told = answer.json();
        let why = told["error"].as_str().unwrap();
        assert!(
            why.contains("the upstream has a repo of this name"),
            "{why}"
        );
        // Clients that take "exists" for success go on, and then hear it again.
        let planned = json!({"files": [{"path": "x", "size": 1, "sample": ""}]}).to_string();
        let path = format!("/project/demo/api/models/org/{name}/preupload/main");
        assert_eq!(Client::new(&server).post(&path, planned).status, 403);
    }
    assert_eq!(with_token(&server, file, "hf_allowed").body, SMALL);
    // Other names are free; for those of the namespace itself nobody is asked.
    assert_eq!(create("new", "org").status, 200);
    for (number, status) in [503, 403, 404, 401].into_iter().enumerate() {
        // What no Hub says of a repo may come from a proxy.
        origin.plan(|plan| plan.status = Some((status, "")));
        assert_eq!(create(&format!("own-{number}"), "demo").status, 200);
        assert_eq!(create("other", "org").failure(), (503, None), "{status}");
    }
    assert_eq!(create("new", "org").status, 409);
    let server = start(&env, &origin, &["--offline"]);
    let create = |name: &str, owner: &str| {
        let body = json!({"name": name, "organization": owner, "private": true});
        Client::new(&server).post("/project/demo/api/repos/create", body.to_string())
    };
    assert_eq!(create("other", "org").failure(), (503, None));
    assert_eq!(create("offline", "demo").status, 200);
}

#[test]
fn of_many_who_make_a_repo_one_does() {
    let env = environment!();
    env.ok(["init"]);
    let server = Server::start(&env, &[]);
    let create = || Client::new(&server).create().status;
    let made: Vec<u16> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(
        made.iter().filter(|status| **status == 200).count(),
        1,
        "{made:?}"
    );
    assert_eq!(
        made.iter().filter(|status| **status == 409).count(),
        7,
        "{made:?}"
    );
}
