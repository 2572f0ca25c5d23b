//! The doors with TLS: certificates, their replacement, and clients that do not complete the handshake.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use support::proxy::{make_authority, make_pair};
use support::{TestEnvironment, check, environment};

use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(60);
const TLS: [&str; 4] = ["--tls-cert", "pair.pem", "--tls-key", "pair.key"];

fn world() -> TestEnvironment {
    let env = environment!();
    env.write("in/a.txt", "inside");
    env.ok(["put", "in", "project/demo/org/data"]);
    make_authority(&env.root());
    make_pair(&env.root(), "pair");
    env
}

fn client(env: &TestEnvironment) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(env.path("authority.pem")).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

/// The answer to a GET, and the server's certificate.
fn get(env: &TestEnvironment, address: &str, path: &str) -> (String, Vec<u8>) {
    let name: ServerName<'static> = "127.0.0.1".try_into().unwrap();
    let connection = ClientConnection::new(client(env), name).unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    let host = address;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let shown = stream.conn.peer_certificates().unwrap();
    let shown = shown.first().unwrap().to_vec();
    (String::from_utf8(answer).unwrap(), shown)
}

#[test]
fn both_doors_speak_tls_and_say_so_in_their_addresses() {
    let env = world();
    let options = [&TLS[..], &["--s3-listen", "127.0.0.1:0"]].concat();
    let server = Server::start(&env, &options);
    let (answer, shown) = get(
        &env,
        server.address(),
        "/project/demo/org/data/resolve/main/a.txt",
    );
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("inside"),
        "{answer}"
    );
    let own = CertificateDer::from_pem_file(env.path("pair.pem")).unwrap();
    assert_eq!(shown, own.to_vec());
    let (listed, _) = get(&env, server.s3_address(), "/project.demo/org/data/a.txt");
    assert!(listed.ends_with("inside"), "{listed}");
    let (info, _) = get(&env, server.address(), "/project/demo/api/models/org/data");
    assert!(!info.contains("http://"), "{info}");
    // A client without TLS gets an answer, and does not block others.
    let mut plain = TcpStream::connect(server.address()).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut told = String::new();
    // The rest of the request may break the connection.
    let _broken = plain.read_to_string(&mut told);
    assert!(
        told.starts_with("HTTP/1.1 400 ") && told.contains("https://"),
        "{told}"
    );
    let (head, body) = told.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains(&format!("Content-Length: {}", body.len())),
        "{told}"
    );
    assert_eq!(server.stop(), Some(0));
}

/// Certificates are renewed at night, when no client may come.
#[test]
fn a_key_that_is_gone_is_told_although_nobody_asks() {
    let env = world();
    let server = Server::start(&env, &TLS);
    fs::remove_file(env.path("pair.key")).unwrap();
    let log = || fs::read_to_string(env.path("log")).unwrap();
    let until = Instant::now() + PATIENCE;
    while !log().contains("pair.key") && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
    }
    let told = log();
    assert!(told.contains("\"door\":\"tls\""), "{told}");
    assert!(told.contains("No such file or directory"), "{told}");
    let mode = fs::metadata(env.path("log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_new_pair_is_taken_and_one_that_cannot_be_used_is_not() {
    let env = world();
    let server = Server::start(&env, &TLS);
    let (_, first) = get(&env, server.address(), "/healthz");
    let shows = |wanted: &dyn Fn(&[u8]) -> bool| {
        let until = Instant::now() + PATIENCE;
        loop {
            let (_, shown) = get(&env, server.address(), "/healthz");
            if wanted(&shown) || Instant::now() > until {
                return shown;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    // The key belongs to another pair: the old pair stays, and the log says why.
    make_pair(&env.root(), "next");
    fs::copy(env.path("next.key"), env.path("pair.key")).unwrap();
    let log = || fs::read_to_string(env.path("log")).unwrap();
    let until = Instant::now() + PATIENCE;
    while !log().contains("is not the key of the first certificate") && Instant::now() < until {
        assert_eq!(shows(&|_| true), first);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(
        log().contains("pair.key: is not the key of the first certificate in pair.pem"),
        "{}",
        log()
    );
    fs::copy(env.path("next.pem"), env.path("pair.pem")).unwrap();
    let next = CertificateDer::from_pem_file(env.path("next.pem")).unwrap();
    assert_eq!(shows(&|shown| shown == next.as_ref()), next.to_vec());
    // A file that never answers blocks nobody.
    fs::remove_file(env.path("pair.pem")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(env.path("pair.pem"))
        .status();
    assert!(made.unwrap().success());
    let until = Instant::now() + PATIENCE;
    while !log().contains("pair.pem: is not a regular file") && Instant::now() < until {
        assert_eq!(shows(&|_| true), next.to_vec());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(
        log().contains("pair.pem: is not a regular file"),
        "{}",
        log()
    );
}

#[test]
fn a_client_that_never_agrees_is_given_up() {
    let env = world();
    let server = Server::start(&env, &TLS);
    let mut mute = TcpStream::connect(server.address()).unwrap();
    let mut half = TcpStream::connect(server.address()).unwrap();
    half.write_all(&[0x16, 3, 1]).unwrap();
    for stream in [&mut mute, &mut half] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // It ends; how does not matter.
        let ended = stream.read_to_end(&mut Vec::new());
        let is_late = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!ended.as_ref().is_err_and(is_late), "{ended:?}");
    }
    // They are counted once their streams are closed.
    let began = Instant::now();
    loop {
        let (metrics, _) = get(&env, server.address(), "/metrics");
        if metrics.contains("store_serve_failed_handshakes_total 2\n") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{metrics}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of what is said")]
fn pairs_that_cannot_be_used_are_named() {
    let env = world();
    make_pair(&env.root(), "other");
    env.write("empty.pem", "");
    let key = fs::read_to_string(env.path("pair.key")).unwrap();
    env.write("locked.key", key.replace("PRIVATE", "ENCRYPTED PRIVATE"));
    let serve = |cert: &str, key: &str| {
        env.store([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            cert,
            "--tls-key",
            key,
        ])
    };
    check!(env, serve("pair.pem", "other.key"), @"
    exit code: 2
    --- stdout
    --- stderr
    error: other.key: is not the key of the first certificate in pair.pem
    hint: the server's own certificate comes first in its file, those of the authorities between behind it
    ");
    check!(env, serve("pair.key", "pair.pem"), @"
    exit code: 2
    --- stdout
    --- stderr
    error: pair.key: expected a certificate in PEM, found none
    hint: it holds a key: --tls-cert and --tls-key may have been mixed up
    ");
    check!(env, serve("pair.pem", "pair.pem"), @"
    exit code: 2
    --- stdout
    --- stderr
    error: pair.pem: expected a private key in PEM, found none
    hint: it holds a certificate: --tls-cert and --tls-key may have been mixed up
    ");
    check!(env, serve("empty.pem", "pair.key"), @"
    exit code: 2
    --- stdout
    --- stderr
    error: empty.pem: expected a certificate in PEM, found none
    hint: a certificate in PEM begins with -----BEGIN CERTIFICATE-----
    ");
    check!(env, serve("pair.pem", "locked.key"), @"
    exit code: 2
    --- stdout
    --- stderr
    error: locked.key: expected a private key in PEM, found none
    hint: the key is encrypted, and nobody can be asked for its password: take that away with `openssl pkey`
    ");
    check!(env, serve("none.pem", "pair.key"), @"
    exit code: 3
    --- stdout
    --- stderr
    error: read none.pem
      caused by: No such file or directory (os error 2)
    ");
    let made = std::process::Command::new("mkfifo")
        .arg(env.path("pipe"))
        .status();
    assert!(made.unwrap().success());
    check!(env, serve("pipe", "pair.key"), @"
    exit code: 2
    --- stdout
    --- stderr
    error: pipe: is not a regular file
    ");
    env.write("long.pem", "x".repeat((1 << 20) + 1));
    check!(env, serve("long.pem", "pair.key"), @"
    exit code: 2
    --- stdout
    --- stderr
    error: long.pem: is longer than a certificate or key can be, 1048576 bytes
    ");
    check!(env, env.store(["serve", "--tls-cert", "pair.pem"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: the following required arguments were not provided:
      --tls-key <FILE>

    Usage: store serve --tls-cert <FILE> --tls-key <FILE>

    For more information, try '--help'.
    ");
}

#[test]
fn a_unit_runs_the_server_with_its_keys_and_no_more_rights_than_it_needs() {
    let env = world();
    let words = [
        "serve",
        "--listen",
        "127.0.0.1:443",
        "--s3-listen",
        "127.0.0.1:8711",
        "--systemd",
        "--access-log",
        "logs/access.log",
    ];
    env.write("keys.toml", "");
    env.write("logs/older.log", "");
    let words = [&words[..], &TLS, &["--s3-keys", "keys.toml"]].concat();
    let unit = env.ok(&words);
    let root = env.root();
    let root = root.to_str().unwrap();
    for line in [
        format!("LoadCredential=tls-key:{root}/pair.key"),
        format!("LoadCredential=tls-cert:{root}/pair.pem"),
        format!("LoadCredential=s3-keys:{root}/keys.toml"),
        format!("ReadWritePaths={root}/logs"),
        format!("ReadWritePaths={root}/home/.local/share/store"),
        "ProtectSystem=strict".to_owned(),
        "NoNewPrivileges=yes".to_owned(),
        "CapabilityBoundingSet=CAP_NET_BIND_SERVICE".to_owned(),
    ] {
        assert!(unit.lines().any(|found| found == line), "{line}\n{unit}");
    }
    let start = unit
        .lines()
        .find(|line| line.starts_with("ExecStart=/"))
        .unwrap();
    assert!(
        start.contains(" --tls-key %d/tls-key") && start.contains(" --s3-keys %d/s3-keys"),
        "{start}"
    );
    assert!(
        !start.contains("--systemd") && start.contains(&format!("--store {root}/home")),
        "{start}"
    );
    let plain = env.ok(["serve", "--systemd"]);
    assert!(
        plain.contains("\nCapabilityBoundingSet=\n") && !plain.contains("LoadCredential"),
        "{plain}"
    );
    verify(&env, &unit);
}

/// A unit that cannot start would be started again and again.
#[test]
fn a_unit_that_could_not_start_is_not_printed() {
    let env = world();
    for (code, words, told) in [
        (
            1,
            &["--listen", "0.0.0.0:8710"][..],
            "the server lets everybody in",
        ),
        (
            1,
            &["--s3-listen", "0.0.0.0:8711"],
            "there are no --s3-keys",
        ),
        (
            3,
            &["--s3-listen", "127.0.0.1:8711", "--s3-keys", "none"],
            "--s3-keys: open ",
        ),
        (
            3,
            &["--tls-cert", "none", "--tls-key", "pair.key"],
            "--tls-cert: open ",
        ),
        (2, &["--upstream", "notaurl"], "upstream: this is no URL"),
        (2, &["--s3-listen", "127.0.0.1:8710"], "the same address"),
        (
            5,
            &["--access-log", "home/.local/share/store/log"],
            "belongs to this program",
        ),
        (5, &["--access-log", "home"], "is no regular file"),
        (3, &["--access-log", "none/log"], "--access-log: look at "),
        (
            5,
            &[
                "--access-log",
                "pair.pem",
                "--tls-cert",
                "pair.pem",
                "--tls-key",
                "pair.key",
            ],
            "is the file of --tls-cert",
        ),
    ] {
        let refused = env.store([&["serve", "--systemd"], words].concat());
        assert!(
            refused.code == Some(code) && refused.stdout.is_empty(),
            "{refused}"
        );
        assert!(refused.stderr.contains(told), "{refused}");
    }
}

/// systemd checks the unit.
fn verify(env: &TestEnvironment, unit: &str) {
    let path = env.write("store-serve.service", unit);
    let mut systemd = std::process::Command::new("systemd-analyze");
    let verified = systemd.arg("verify").arg(&path).output().unwrap();
    let told = String::from_utf8_lossy(&verified.stderr);
    let of_unit: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("store-serve"))
        .collect();
    assert!(
        of_unit.is_empty() && !told.contains("not executable"),
        "{told}"
    );
}

#[test]
fn a_unit_says_where_the_token_of_an_upstream_belongs_and_does_not_hold_it() {
    let env = world();
    let printed = |name: &str| {
        let upstream = ["--upstream", "https://hub.example", "--upstream-token-env"];
        let words = [&["serve", "--systemd"][..], &upstream, &[name]].concat();
        let mut command = env.command(words);
        command.env("HUB_TOKEN", "hf_qVzKxTfRbYvNmLpHsJdGcXrQ");
        support::Finished::from(command.output().unwrap())
    };
    let done = printed("HUB_TOKEN");
    assert_eq!(done.code, Some(0), "{done}");
    let unit = String::from_utf8(done.stdout).unwrap();
    let settings: Vec<&str> = unit.lines().collect();
    let file = "EnvironmentFile=/etc/store/serve.env";
    assert!(settings.contains(&file), "{unit}");
    let advice =
        "# /etc/store/serve.env, of root and of mode 0600, must have the line HUB_TOKEN=TOKEN";
    assert!(unit.contains(advice), "{unit}");
    assert!(unit.contains(" --upstream-token-env HUB_TOKEN "), "{unit}");
    assert!(!unit.contains("qVzK"), "{unit}");
    verify(&env, &unit);
    // systemd would ignore such a name; and it may be a token, so it is not printed.
    for name in ["hf-qVzKxTfRbYvNmLpHsJdGcXrQ", "1A", "A B", ""] {
        let done = printed(name);
        assert_eq!(done.code, Some(2), "{done}");
        assert!(!done.stderr.contains("qVzK"), "{done}");
    }
    let plain = env.ok(["serve", "--systemd", "--upstream", "https://hub.example"]);
    assert!(!plain.contains("EnvironmentFile"), "{plain}");
}

/// If the store belongs to another user, the service does not see the tokens of the user who prints the unit.
#[test]
fn a_unit_says_whose_tokens_do_not_count() {
    let env = environment!();
    env.ok(["init", "theirs"]);
    env.ok(["token", "add", "ci"]);
    let unit = || env.ok(["--store", "theirs", "serve", "--systemd"]);
    assert!(!unit().contains("token"));
    std::os::unix::fs::chown(env.path("theirs"), Some(4242), Some(4242)).unwrap();
    let told = unit();
    assert!(
        told.contains("\n# 1 token of user 0 will not count: it runs as user 4242"),
        "{told}"
    );
    assert!(told.contains("\nUser=4242\n"), "{told}");
}
