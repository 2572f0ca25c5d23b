//! A damaged chunk in the store is never sent as if it were right.

use std::fs;
use std::path::{Path, PathBuf};

use support::{Random, environment};

use crate::server::Server;

fn packs(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(packs(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Flips a bit of these bytes in their pack. Random bytes are stored raw, so they can be found.
fn damage(store: &Path, wanted: &[u8]) {
    for path in packs(&store.join("packs")) {
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(wanted.len()).position(|part| part == wanted);
        let Some(at) = at else {
            continue;
        };
        bytes[at] ^= 1;
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        return;
    }
    panic!("no pack has these bytes");
}

#[test]
fn a_wrong_byte_is_an_error_before_the_head_or_the_end_of_the_connection() {
    let env = environment!();
    let bytes = Random::new(3).bytes(6_000_000);
    env.write("in/x.bin", &bytes);
    env.ok(["put", "in", "project/demo/org/data"]);
    let server = Server::start(&env, &[]);
    let url = "/project/demo/org/data/resolve/main/x.bin";
    // With known hashes, only the transfer of the bytes can find the damage.
    let etag = server
        .ask(&format!("HEAD {url}"))
        .header("etag")
        .unwrap()
        .to_owned();
    drop(server);
    damage(
        &env.path("home/.local/share/store"),
        &bytes[5_400_000..5_400_100],
    );
    let server = Server::start(&env, &[]);
    let mut connection = server.connect();
    connection.send(format!("GET {url} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    let head = connection.head();
    assert_eq!(
        (head.status, head.header("etag")),
        (200, Some(etag.as_str()))
    );
    let got = connection.rest();
    assert!(got.len() < bytes.len(), "{} bytes came", got.len());
    assert!(bytes.starts_with(&got));
    let mut refused = 0;
    for start in (0..bytes.len()).step_by(250_000) {
        let end = start + 250_000;
        let part = server.ask(&format!("GET {url}\nRange: bytes={start}-{}", end - 1));
        match part.status {
            206 => assert!(part.body == bytes[start..end], "{start}"),
            500 => {
                refused += 1;
                assert!(
                    part.json()["error"]
                        .as_str()
                        .unwrap()
                        .contains("store verify")
                );
            }
            status => panic!("{start}: {status}"),
        }
    }
    // One chunk is damaged, which two parts may share.
    assert!((1..=2).contains(&refused), "{refused}");
    assert_eq!(server.stop(), Some(0));
    let log = fs::read_to_string(env.path("log")).unwrap();
    let broken: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("\"error\":"))
        .collect();
    assert_eq!(broken.len(), 1 + refused, "{log}");
    assert!(broken[0].contains("\"whole\":false"), "{log}");
    assert!(broken[1].contains("\"whole\":true"), "{log}");
}

#[test]
fn of_a_file_of_the_pool_only_what_is_right_is_sent() {
    let env = environment!();
    let bytes = Random::new(5).bytes(3_000_000);
    env.write("in/x.bin", &bytes);
    env.ok(["put", "in", "project/demo/org/data"]);
    env.ok(["materialize", "project/demo/org/data", "out"]);
    let url = "/project/demo/org/data/resolve/main/x.bin";
    let server = Server::start(&env, &[]);
    assert_eq!(server.head(url).status, 200);
    drop(server);
    // Only the pool has the bytes now.
    let packs = env.path("home/.local/share/store/packs");
    let mut data = Vec::new();
    for path in self::packs(&packs) {
        let found = fs::read(&path).unwrap();
        if found
            .windows(100)
            .any(|part| part == &bytes[1_000_000..1_000_100])
        {
            fs::remove_file(&path).unwrap();
            data.push((path, found));
        }
    }
    assert!(!data.is_empty());
    let server = Server::start(&env, &[]);
    assert!(server.get(url).body == bytes);
    let part = server.ask(&format!("GET {url}\nRange: bytes=1000000-1999999"));
    assert!(part.body == bytes[1_000_000..2_000_000]);
    drop(server);
    // A job writes to the file that it shares with the pool.
    let shared = env.path("out/x.bin");
    let mut wrong = bytes.clone();
    wrong[1_500_000] ^= 1;
    let mut permissions = fs::metadata(&shared).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
    fs::set_permissions(&shared, permissions).unwrap();
    let mut of_others = fs::metadata(&shared).unwrap().permissions();
    let before = fs::metadata(&shared).unwrap().modified().unwrap();
    fs::write(&shared, &wrong).unwrap();
    // The file looks unchanged.
    fs::File::options()
        .write(true)
        .open(&shared)
        .unwrap()
        .set_modified(before)
        .unwrap();
    std::os::unix::fs::PermissionsExt::set_mode(&mut of_others, 0o444);
    fs::set_permissions(&shared, of_others).unwrap();
    let server = Server::start(&env, &[]);
    let mut connection = server.begin(url);
    let got = connection.rest();
    assert!(
        got.len() < bytes.len()
            && !got
                .windows(100)
                .any(|part| part == &wrong[1_499_950..1_500_050])
    );
    for (path, found) in data {
        fs::write(path, found).unwrap();
    }
    assert!(server.get(url).body == bytes, "from the store");
}
