//! Paths that try to leave their tree.

use support::environment;

use crate::server::Server;

#[test]
fn tricks_with_paths_find_nothing_and_leave_the_server_well() {
    let env = environment!();
    env.write("in/a/b.txt", "inside");
    env.write("secret.txt", "outside");
    env.ok(["put", "in", "project/demo/org/data"]);
    env.ok(["put", "in", "project/other/org/private"]);
    let server = Server::start(&env, &[]);
    let base = "/project/demo/org/data/resolve/main";
    let deep = "/a".repeat(1000);
    let long = "a".repeat(5000);
    for path in [
        "../secret.txt",
        "a/../../secret.txt",
        "a/../a/b.txt",
        "./a/b.txt",
        "a/./b.txt",
        "a//b.txt",
        "/a/b.txt",
        "a/b.txt/",
        "%2e%2e/secret.txt",
        "%2e%2e%2fsecret.txt",
        "..%2f..%2f..%2fetc%2fpasswd",
        "a%2f..%2fa%2fb.txt",
        "%2fetc%2fpasswd",
        "a%5cb.txt",
        "a%252fb.txt",
        &deep,
        &long,
    ] {
        let answer = server.get(&format!("{base}/{path}"));
        assert_eq!(answer.failure(), (404, Some("EntryNotFound")), "{path}");
    }
    for path in [
        "/project/demo/../other/org/private/resolve/main/a/b.txt",
        "/project/demo/%2e%2e/other/org/private/resolve/main/a/b.txt",
        "/project/demo%2f..%2fother/org/private/resolve/main/a/b.txt",
        "//project/demo/org/data/resolve/main/a/b.txt",
        "/project//demo/org/data/resolve/main/a/b.txt",
        "/project/demo//org/data/resolve/main/a/b.txt",
        "/project/demo/org%2fdata/resolve/main/a/b.txt",
        "/project/demo/org/data/resolve//a/b.txt",
        "/project/demo/org/data/resolve/../a/b.txt",
        "/project/demo/org/data/resolve/..%2f..%2frefs/a/b.txt",
        "/project/demo/api/models/..%2fother/private",
        "/project/demo/api/models/org/data/tree/main/..",
        "/project/demo/api/models/org/data/tree/main/a%2f..%2f..",
        "/project/..",
        "/..",
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
    for path in ["%00", "a%00b.txt", "%ff%fe", "a/%c0%ae%c0%ae/b.txt"] {
        assert_eq!(server.get(&format!("{base}/{path}")).status, 400, "{path}");
    }
    let inside = server.get(&format!("{base}/a%2fb.txt"));
    assert_eq!(
        (inside.status, inside.body.as_slice()),
        (200, &b"inside"[..])
    );
}
