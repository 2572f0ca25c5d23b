//! Who is let in, and what others learn.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use support::{Finished, TestEnvironment, check, environment, under};

use crate::page::base64;
use crate::s3::{OPEN, ask, texts};
use crate::server::Server;

fn token(env: &TestEnvironment, words: &[&str]) -> String {
    let words = ["token", "add"].into_iter().chain(words.iter().copied());
    env.ok(words).trim().to_owned()
}

fn tree(env: &TestEnvironment) {
    env.write("in/a.txt", "inside");
    env.ok(["put", "in", "project/demo/org/data"]);
    env.ok(["put", "in", "project/other/org/data"]);
}

#[test]
fn another_namespace_is_as_if_it_were_not_there() {
    let env = environment!();
    tree(&env);
    let token = token(&env, &["reader", "--namespace", "project/demo"]);
    let server = Server::start(&env, &[]);
    let ask =
        |path: &str, token: &str| server.ask(&format!("GET {path}\nAuthorization: Bearer {token}"));
    let own = ask("/project/demo/org/data/resolve/main/a.txt", &token);
    assert_eq!((own.status, own.body.as_slice()), (200, &b"inside"[..]));
    for path in [
        "org/data/resolve/main/a.txt",
        "api/models/org/data",
        "api/models/org/data/tree/main",
        "api/models/org/data/refs",
    ] {
        let there = ask(&format!("/project/other/{path}"), &token);
        let nowhere = ask(&format!("/project/none/{path}"), &token);
        assert_eq!(there.failure(), (404, Some("RepoNotFound")), "{path}");
        assert_eq!(there.body, nowhere.body, "{path}");
    }
    assert_eq!(ask("/project/other/api/models", &token).json(), json!([]));
    let nobody = server.get("/project/demo/api/models/org/data");
    assert_eq!(nobody.failure(), (401, None));
    let wrong = ask("/project/demo/api/models/org/data", "hf_wrong");
    assert_eq!(
        wrong.header("x-error-message"),
        Some("Invalid credentials in Authorization header")
    );
    assert_eq!(server.get("/project/demo/api/whoami-v2").status, 401);
    let me = ask("/project/demo/api/whoami-v2", &token).json();
    assert_eq!(
        (&me["name"], &me["auth"]["accessToken"]["role"]),
        (&json!("demo"), &json!("read"))
    );
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.stop(), Some(0));
    let log = fs::read_to_string(env.path("log")).unwrap();
    assert!(
        log.contains("\"token\":\"reader\"") && !log.contains(&token),
        "{log}"
    );
}

#[test]
fn a_token_to_read_does_not_write_and_a_change_counts_at_once() {
    let env = environment!();
    tree(&env);
    let reader = token(&env, &["reader"]);
    let server = Server::start(&env, &[]);
    let create = |token: &str| {
        let head = format!("POST /project/demo/api/repos/create\nAuthorization: Bearer {token}");
        server
            .connect()
            .ask_with(&head, br#"{"name": "new"}"#)
            .status
    };
    let probe = |token: &str| {
        let head = format!(
            "DELETE /project/demo/api/models/org/data/branch/x\nAuthorization: Bearer {token}"
        );
        server.ask(&head).status
    };
    assert_eq!(
        (create(&reader), probe(&reader), create("none")),
        (403, 403, 401)
    );
    let writer = token(&env, &["writer", "--role", "write"]);
    assert_eq!(
        (create(&writer), create(&writer), probe(&writer)),
        (200, 409, 404)
    );
    env.ok(["token", "rm", "writer"]);
    assert_eq!(create(&writer), 401);
    env.ok(["token", "rm", "reader"]);
    // All tokens are removed, and still nobody is let in.
    assert_eq!(
        (
            create(&reader),
            server.get("/project/demo/api/models/org/data").status
        ),
        (401, 401)
    );
}

#[test]
fn an_s3_door_without_keys_is_closed_by_the_first_token() {
    let env = environment!();
    tree(&env);
    let server = Server::start(&env, &OPEN);
    let path = "/project.demo/org/data/a.txt";
    let asked = || {
        let answer = ask(&server, &format!("GET {path}"));
        let told = match answer.status {
            200 => String::new(),
            _ => [texts(&answer, "Code"), texts(&answer, "Message")]
                .concat()
                .join(": "),
        };
        (answer.status, told)
    };
    assert_eq!(asked().0, 200);
    env.ok(["token", "add", "ci", "--namespace", "project/other"]);
    let (status, told) = asked();
    assert_eq!(status, 403);
    assert!(
        told.starts_with("AccessDenied: ") && told.contains("--s3-keys FILE"),
        "{told}"
    );
    let listed = ask(&server, "GET /project.demo?list-type=2");
    assert_eq!((listed.status, ask(&server, "GET /").status), (403, 403));
    assert_eq!(server.get("/project/demo/api/models").status, 401);
    // A damaged file of tokens does not count as one without tokens.
    let file = env.path("home/.config/store/tokens.json");
    fs::write(&file, "{").unwrap();
    let (status, told) = asked();
    assert_eq!(status, 403);
    assert!(told.contains("cannot read its tokens"), "{told}");
    assert!(
        !told.contains("tokens.json"),
        "no places of this host: {told}"
    );
    let told = server.get("/project/demo/api/models");
    let text = String::from_utf8_lossy(&told.body).into_owned();
    assert_eq!(told.status, 503, "{text}");
    assert!(
        text.contains("cannot read its tokens") && !text.contains("tokens.json"),
        "{text}"
    );
    // Who replaces the last token opens nothing in between.
    fs::remove_file(&file).unwrap();
    assert_eq!(asked().0, 403);
    assert_eq!(server.get("/project/demo/api/models").status, 401);
    assert_eq!(server.stop(), Some(0));
    let log = fs::read_to_string(env.path("log")).unwrap();
    assert!(
        log.contains("tokens.json: expected a list of tokens"),
        "{log}"
    );
}

#[test]
fn tokens_are_made_listed_and_removed() {
    let env = environment!();
    let text = token(
        &env,
        &[
            "ci",
            "--role",
            "write",
            "--namespace",
            "team/*",
            "--namespace",
            "project/a",
        ],
    );
    assert!(text.starts_with("hf_store") && text.len() == 56, "{text}");
    let file = fs::read_to_string(env.path("home/.config/store/tokens.json")).unwrap();
    assert!(!file.contains(&text));
    check!(env, env.store(["token", "ls"]), @"
    exit code: 0
    --- stdout
    name  role   created              expires  namespaces
    ci    write  [TIME]           team/* project/a
    --- stderr
    ");
    check!(env, env.store(["token", "add", "ci"]), @"
    exit code: 5
    --- stdout
    --- stderr
    error: ci: there is a token of this name
    hint: choose another name, or `store token rm ci` first
    ");
    check!(env, env.store(["token", "add", "x", "--namespace", "demo"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: invalid value 'demo' for '--namespace <GLOB>': expected a namespace, in which * stands for anything, like project/llama-ft or 'team/*'

    For more information, try '--help'.
    ");
    check!(env, env.store(["token", "rm", "none"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: none: no such token
    hint: list them with `store token ls`
    ");
    check!(env, env.store(["token", "rm", "ci"]), @"
    exit code: 0
    --- stdout
    ci lets nobody in any more; it was the last one: servers that run let nobody in, and one that starts now asks nobody for a token
    --- stderr
    ");
}

#[test]
fn a_token_that_would_let_nobody_in_is_refused() {
    let env = environment!();
    let refused = env.store(["token", "add", "x", "--expires", "0d"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    // What cannot be kept is not shown.
    env.write("home/.config", "");
    let refused = env.store(["token", "add", "x"]);
    assert!(
        refused.code == Some(1) && refused.stdout.is_empty(),
        "{refused}"
    );
    fs::remove_file(env.path("home/.config")).unwrap();
    env.ok([
        "token",
        "add",
        "x",
        "--namespace",
        "team/a",
        "--namespace",
        "team/a",
    ]);
    assert_eq!(env.ok(["token", "ls"]).matches("team/a").count(), 1);
}

/// Runs `store token add` with a standard output that takes nothing.
fn unseen(env: &TestEnvironment, out: &str) -> Finished {
    let script = format!(r#"exec "$0" "$@" {out}"#);
    let command = env.command(["token", "add", "first", "--role", "write"]);
    under("/bin/sh", ["-c", &script], &command)
        .output()
        .unwrap()
        .into()
}

#[test]
fn a_token_that_cannot_be_shown_is_none() {
    let env = environment!();
    tree(&env);
    let server = Server::start(&env, &[]);
    let file = env.path("home/.config/store/tokens.json");
    for out in [">/dev/full", ">&-"] {
        let finished = unseen(&env, out);
        assert_eq!(finished.code, Some(1), "{out}: {finished}");
        assert!(!file.exists(), "{out}");
        // The server stays open.
        let answer = server.get("/project/demo/org/data/resolve/main/a.txt");
        assert_eq!(answer.status, 200, "{out}");
    }
    assert_eq!(unseen(&env, ">/dev/null").code, Some(0));
    assert!(file.exists());
}

#[test]
fn a_list_of_tokens_that_others_may_read_or_write_is_not_used() {
    let env = environment!();
    tree(&env);
    token(&env, &["reader"]);
    let file = env.path("home/.config/store/tokens.json");
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    let server = Server::start(&env, &[]);
    for open in [0o666, 0o620, 0o640, 0o604] {
        mode(open);
        assert_eq!(
            server.get("/project/demo/api/models").status,
            503,
            "{open:o}"
        );
        for words in [
            &["token", "ls"][..],
            &["token", "add", "other"],
            &["serve", "--listen", "127.0.0.1:0"],
        ] {
            let finished = env.store(words);
            assert_eq!(finished.code, Some(1), "{finished}");
            let expected = format!("its mode is {open:o}, and it says who is let in");
            assert!(finished.stderr.contains(&expected), "{finished}");
        }
    }
    mode(0o600);
    assert_eq!(server.get("/project/demo/api/models").status, 401);
    assert_eq!(server.stop(), Some(0));
}

/// Whoever removes the file opens the next server.
#[test]
fn tokens_that_everybody_may_remove_are_not_used() {
    let env = environment!();
    tree(&env);
    token(&env, &["reader"]);
    let dir = env.path("home/.config/store");
    let mode = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
    let refused = |is_refused: bool| {
        for words in [&["token", "ls"][..], &["serve", "--systemd"]] {
            let finished = env.store(words);
            let expected = "and it holds the file that says who is let in";
            let found = (finished.code, finished.stderr.contains(expected));
            let expected = if is_refused {
                (Some(1), true)
            } else {
                (Some(0), false)
            };
            assert_eq!(found, expected, "{finished}");
        }
    };
    refused(false);
    mode(0o777);
    refused(true);
    fs::remove_file(dir.join("tokens.json")).unwrap();
    refused(true);
    mode(0o1777);
    refused(false);
}

#[test]
fn a_glob_that_no_namespace_can_have_is_refused() {
    let env = environment!();
    for glob in [
        "project/pub/",
        "project/pub/repo",
        "project/a,project/b",
        "project/",
        "*/a/b",
        "team/*/x",
    ] {
        let refused = env.store(["token", "add", "x", "--namespace", glob]);
        assert_eq!(refused.code, Some(2), "{glob}: {refused}");
        assert!(
            refused.stderr.contains("no namespace has such a name"),
            "{glob}: {refused}"
        );
    }
    for (number, glob) in [
        "*",
        "project/*",
        "team/a",
        "*/a",
        "*/*",
        "*-x",
        "project/a*b*",
        "*ject/a",
        "team/llama-*",
    ]
    .iter()
    .enumerate()
    {
        env.ok(["token", "add", &format!("t{number}"), "--namespace", glob]);
    }
}

/// Starts these at once, and waits for all.
fn at_once(env: &TestEnvironment, all: &[Vec<String>]) -> Vec<Finished> {
    let start = |words: &Vec<String>| {
        let mut command = env.command(words);
        let piped = std::process::Stdio::piped;
        command.stdout(piped()).stderr(piped()).spawn().unwrap()
    };
    let started: Vec<_> = all.iter().map(start).collect();
    let finished = started.into_iter().map(|child| child.wait_with_output());
    finished.map(|output| output.unwrap().into()).collect()
}

#[test]
fn tokens_that_are_made_and_removed_at_once_are_all_kept_and_gone() {
    let env = environment!();
    token(&env, &["leaked"]);
    let mut all: Vec<Vec<String>> = Vec::new();
    for number in 0..8 {
        all.push(
            ["token", "add", &format!("t{number}")]
                .map(str::to_owned)
                .into(),
        );
    }
    all.insert(4, ["token", "rm", "leaked"].map(str::to_owned).into());
    for finished in at_once(&env, &all) {
        assert_eq!(finished.code, Some(0), "{finished}");
    }
    let listed = env.ok(["token", "ls"]);
    let names: Vec<&str> = listed
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() == 8 && !names.contains(&"leaked"), "{listed}");
}

/// A browser sends a password with whatever it asks this server, so that it counts for looking only.
#[test]
fn a_browser_at_a_printed_address_is_asked_for_a_password() {
    let env = environment!();
    tree(&env);
    let token = token(
        &env,
        &["writer", "--role", "write", "--namespace", "project/demo"],
    );
    let server = Server::start(&env, &["--root", "project/demo"]);
    let basic = |password: &str| {
        let typed = base64(format!("me:{password}").as_bytes());
        format!("Authorization: Basic {typed}")
    };
    let look =
        |path: &str, more: &str| server.ask(&format!("GET {path}\nAccept: text/html\n{more}"));
    let own = basic(&token);
    for shown in ["", "/", "/tree/main", "/blob/main/a.txt"] {
        for path in ["/project/demo/org/data", "/org/data"] {
            let path = format!("{path}{shown}");
            for nobody in ["", "Authorization: Bearer x", &basic("x")] {
                let answer = look(&path, nobody);
                let asked = answer.header("www-authenticate").unwrap_or_default();
                assert!(
                    answer.status == 401 && asked.starts_with("Basic realm="),
                    "{path}: {answer:?}"
                );
            }
            let answer = look(&path, &own);
            assert_eq!(
                (answer.status, answer.header("location")),
                (303, Some("/-/project/demo/org/data")),
                "{path}"
            );
        }
    }
    assert_eq!(look("/project/other/org/data", &own).status, 404);
    assert_eq!(look("/metrics", "").status, 200);
    let file = look("/project/demo/org/data/resolve/main/a.txt", &own);
    assert_eq!(
        (file.status, file.header("www-authenticate")),
        (401, Some("Bearer"))
    );
    let create = format!("POST /project/demo/api/repos/create\nAccept: text/html\n{own}");
    let refused = server.connect().ask_with(&create, br#"{"name": "new"}"#);
    assert_eq!(refused.status, 401);
    // The pages say that nobody is let in, as the other doors do.
    fs::write(env.path("home/.config/store/tokens.json"), "{").unwrap();
    for path in ["/", "/-/space", "/org/data"] {
        assert_eq!(look(path, &own).status, 503, "{path}");
    }
}
