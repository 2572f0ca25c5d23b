//! Clients of a file that is still arriving: when they are to ask again, what they get of a part of it, and what it takes.

use support::{Random, environment};

use crate::origin::Origin;
use crate::places::Small;
use crate::server::Server;

/// Clients from 1.0 on do not ask for a file again after 503, and older ones not after 429.
#[test]
fn a_client_that_is_to_ask_for_a_file_again_hears_so_in_its_own_words() {
    let env = environment!();
    env.ok(["init"]);
    let origin = Origin::start();
    origin.add("org/m", &[("sub/x.bin", b"bytes")]);
    let url = origin.url();
    let server = Server::start(&env, &["--upstream", &url]);
    let file = "/project/demo/org/m/resolve/main/sub/x.bin";
    assert_eq!(server.head(file).status, 200);
    origin.plan(|plan| plan.file_status = Some(503));
    let ask = |what: &str, agent: &str| {
        let answer = server.ask(&format!("{what}\nUser-Agent: {agent}"));
        let is_told_when = answer.header("retry-after").is_some();
        (answer.status, is_told_when)
    };
    for (agent, status) in [
        ("unknown/None; hf_hub/2.4.0; python/3.11.2", 429),
        ("transformers/5.2; hf_hub/1.0.0; python/3.11.2", 429),
        ("unknown/None; hf_hub/0.36.2; python/3.11.2", 503),
        ("curl/8", 503),
    ] {
        let found = ask(&format!("GET {file}"), agent);
        assert_eq!(found, (status, true), "{agent}");
    }
    // What it asks for with HEAD, or in lists, it asks for again after 503.
    origin.plan(|plan| plan.status = Some((503, "")));
    let newest = "unknown/None; hf_hub/2.4.0; python/3.11.2";
    let unknown = "/project/demo/org/other/resolve/main/x";
    assert_eq!(ask(&format!("HEAD {unknown}"), newest), (503, true));
    let unknown = "/project/demo/api/models/org/other";
    assert_eq!(ask(&format!("GET {unknown}"), newest), (503, true));
    drop(server);
    // Nothing is better later where the upstream is never asked.
    let server = Server::start(&env, &["--upstream", &url, "--offline"]);
    let answer = server.ask(&format!("GET {file}\nUser-Agent: {newest}"));
    let later = answer.header("retry-after");
    assert_eq!((answer.status, later), (503, None));
}

/// Who wants a part of a file compares no hash.
#[test]
fn a_part_of_a_cold_file_is_whole_only_when_all_of_the_file_is_right() {
    let env = environment!();
    env.ok(["init"]);
    let origin = Origin::start();
    let bytes = Random::new(13).bytes(3_000_000);
    for (name, is_wrong) in [("right", false), ("wrong", true)] {
        origin.add(&format!("org/{name}"), &[("x.bin", &bytes)]);
        origin.plan(|plan| (plan.is_wrong, plan.hold_bytes) = (is_wrong, Some(1_000_000)));
        let server = Server::start(&env, &["--upstream", &origin.url()]);
        let mut connection = server.connect();
        let url = format!("/project/demo/org/{name}/resolve/main/x.bin");
        connection.send(
            format!("GET {url} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nRange: bytes=5-50004\r\n\r\n")
                .as_bytes(),
        );
        assert_eq!(connection.head().status, 206);
        let mut begun = vec![0; 48_000];
        connection.read(&mut begun);
        origin.plan(|plan| plan.hold_bytes = None);
        let rest = connection.rest();
        match is_wrong {
            true => assert!(rest.len() < 2_000, "{}", rest.len()),
            false => assert!(bytes[5..50_005] == [begun, rest].concat()),
        }
    }
}

/// Few bytes could not come one by one for long. The first byte alone is asked for the size, and its body is not read.
#[test]
fn few_bytes_of_a_cold_file_are_to_be_asked_for_again() {
    let env = environment!();
    env.ok(["init"]);
    let origin = Origin::start();
    let bytes = Random::new(15).bytes(3_000_000);
    origin.add("org/m", &[("x.bin", &bytes)]);
    origin.plan(|plan| plan.hold_bytes = Some(1_000_000));
    let server = Server::start(&env, &["--upstream", &origin.url()]);
    let file = "/project/demo/org/m/resolve/main/x.bin";
    let mut first = server.connect();
    first.send(
        format!("GET {file} HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-0\r\n\r\n").as_bytes(),
    );
    assert_eq!(first.head().status, 206);
    let few = || server.ask(&format!("GET {file}\nRange: bytes=0-7"));
    let answer = few();
    assert!(answer.status == 503 && answer.header("retry-after").is_some());
    origin.plan(|plan| plan.hold_bytes = None);
    while few().status == 503 {}
    assert!(few().body == bytes[..8]);
}

/// A client that gets no head at all is told nothing of why.
#[test]
fn a_small_file_that_comes_wrong_is_refused_in_words() {
    let env = environment!();
    env.ok(["init"]);
    let origin = Origin::start();
    let large = Random::new(18).bytes(1 << 20);
    origin.add("org/m", &[("x", b"ab"), ("y", b"a"), ("large", &large)]);
    origin.plan(|plan| plan.is_wrong = true);
    let server = Server::start(&env, &["--upstream", &origin.url()]);
    for path in ["x", "y", "large"].repeat(8) {
        let file = format!("/project/demo/org/m/resolve/main/{path}");
        let asked: Vec<_> = (0..4).map(|_| server.begin(&file)).collect();
        for mut one in asked {
            let status = one.head().status;
            assert!(status == 502 || path == "large", "{path}: {status}");
        }
        // So clients ask for the size.
        let first = server.ask(&format!("GET {file}\nRange: bytes=0-0"));
        assert_eq!(first.status, 502, "{path}");
    }
    origin.plan(|plan| plan.is_wrong = false);
    let file = "/project/demo/org/m/resolve/main/x";
    assert!(server.get(file).body == b"ab");
}

/// They may have had the right ones all along.
#[test]
fn wrong_bytes_for_one_repo_keep_nothing_from_the_clients_of_another() {
    let env = environment!();
    env.ok(["init"]);
    let origin = Origin::start();
    let bytes = Random::new(19).bytes(1 << 20);
    for name in ["org/right", "org/wrong"] {
        origin.add(name, &[("x.bin", &bytes)]);
    }
    let server = Server::start(&env, &["--upstream", &origin.url()]);
    let file = |name: &str| format!("/project/demo/org/{name}/resolve/main/x.bin");
    assert!(server.get(&file("right")).body == bytes);
    origin.plan(|plan| plan.is_wrong = true);
    // Another namespace shares nothing that was fetched.
    let elsewhere = file("wrong").replace("/project/demo/", "/project/other/");
    let mut asked = server.begin(&elsewhere);
    assert_eq!(asked.head().status, 200);
    assert!(asked.rest().len() < bytes.len());
    let rest = |file: &str| server.ask(&format!("GET {file}\nRange: bytes=1000-1999"));
    let right = rest(&file("right"));
    assert!(right.status == 206 && right.body == bytes[1000..2000]);
    assert_eq!(rest(&elsewhere).status, 502);
    assert_eq!(server.stop(), Some(0));
    let log = std::fs::read_to_string(env.path("log")).unwrap();
    let refused = log.lines().filter(|line| line.contains("\"status\":502"));
    assert!(refused.clone().count() > 0, "{log}");
    for line in refused {
        assert!(
            line.contains("sent wrong bytes of this file in the last hour"),
            "{line}"
        );
    }
}

/// A client is told so before any byte, so that it asks again, and the log says which directory is too small.
#[test]
fn a_file_for_which_there_is_no_room_is_not_promised() {
    let env = environment!();
    env.ok(["init"]);
    let origin = Origin::start();
    let (large, small) = (
        Random::new(16).bytes(20_000_000),
        Random::new(17).bytes(2_000_000),
    );
    origin.add("org/m", &[("large", &large), ("small", &small)]);
    let dir = env.path("home/.cache/store");
    for (namespace, cache) in [("demo", Small::new as fn(&_) -> _), ("other", Small::ext2)] {
        let _cache = cache(&dir);
        let server = Server::start(&env, &["--upstream", &origin.url()]);
        let file = |path: &str| format!("/project/{namespace}/org/m/resolve/main/{path}");
        for _ in 0..2 {
            let answer = server.get(&file("large"));
            assert_eq!(answer.status, 503);
            assert!(answer.header("retry-after").is_some());
        }
        assert!(server.get(&file("small")).body == small);
        assert_eq!(server.stop(), Some(0));
    }
    let log = std::fs::read_to_string(env.path("log")).unwrap();
    let dir = dir.display();
    let full = format!("org/m: large: reserve 20000000 bytes for a file that arrives in {dir}/");
    assert!(
        log.contains(&full) && log.contains("No space left"),
        "{log}"
    );
}

#[test]
fn a_file_that_arrives_is_not_in_memory() {
    let env = environment!();
    env.ok(["init"]);
    let origin = Origin::start();
    let bytes = Random::new(14).bytes(150_000_000);
    origin.add("org/m", &[("x.bin", &bytes)]);
    let server = Server::start(&env, &["--upstream", &origin.url(), "--memory", "16MiB"]);
    assert!(server.get("/project/demo/org/m/resolve/main/x.bin").body == bytes);
    let ls = ["ls", "project/demo/models/org/m:models--org--m/blobs"];
    while env.store(ls).stdout.is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(server.peak() < 130 << 20, "{}", server.peak());
}
