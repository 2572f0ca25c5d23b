//! Invalid certificates: a server uses them, and says so.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use support::proxy::make_authority;
use support::{Finished, TestEnvironment, environment};

use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(60);
const TLS: [&str; 4] = ["--tls-cert", "pair.pem", "--tls-key", "pair.key"];
const HOUR: i64 = 3600;

fn world() -> TestEnvironment {
    let env = environment!();
    env.ok(["init"]);
    make_authority(&env.root());
    // Files that `openssl ca` needs.
    env.write("index.txt", "");
    env.write("index.txt.attr", "unique_subject = no\n");
    env.write(
        "ca.conf",
        "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\nnew_certs_dir = .\nrand_serial = yes\n\
         default_md = sha256\npolicy = names\nunique_subject = no\n[names]\ncommonName = optional\n\
         [bare]\nsubjectAltName = DNS:node-1.example,DNS:node-2.example\n",
    );
    env
}

fn openssl(dir: &Path, words: &[&str]) {
    let mut command = Command::new("openssl");
    let done = done_of(command.args(words).current_dir(dir));
    assert!(done.code == Some(0), "openssl: {done}");
}

fn done_of(command: &mut Command) -> Finished {
    command.output().unwrap().into()
}

fn in_secs(secs: i64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_secs(secs)
}

/// Makes `pair.pem` and `pair.key` of `subject`, valid between these times.
fn pair(env: &TestEnvironment, subject: &str, from: Timestamp, until: Timestamp) {
    let time = |at: Timestamp| at.strftime("%Y%m%d%H%M%SZ").to_string();
    let dir = env.root();
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
    let asked = ["-nodes", "-keyout", "pair.key", "-out", "pair.csr"];
    let asked = [&["req"][..], &curve, &asked, &["-subj", subject]];
    openssl(&dir, &asked.concat());
    let (from, until) = (time(from), time(until));
    let signed = ["ca", "-batch", "-notext", "-config", "ca.conf"];
    let by = ["-cert", "authority.pem", "-keyfile", "authority.key"];
    let term = ["-startdate", &from, "-enddate", &until];
    let files = ["-in", "pair.csr", "-out", "new.pem", "-extensions", "bare"];
    openssl(&dir, &[&signed[..], &by, &term, &files].concat());
    fs::rename(env.path("new.pem"), env.path("pair.pem")).unwrap();
}

/// What a server prints about its certificate when it starts.
fn told(env: &TestEnvironment) -> String {
    // Warnings are printed even with --quiet.
    let words = ["serve", "--quiet", "--listen", "127.0.0.1:0"];
    let mut command = env.command(words.iter().chain(&TLS));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let stdout = child.stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    assert!(line.contains("listening on https://"), "{line}");
    child.kill().unwrap();
    let done: Finished = child.wait_with_output().unwrap().into();
    done.stderr
}

#[test]
fn a_certificate_that_is_not_good_is_named_when_the_server_begins() {
    let env = world();
    let day = 24 * HOUR;
    pair(&env, "/CN=door-7", in_secs(-2 * day), in_secs(60 * day));
    assert_eq!(told(&env), "");
    let shown = |at: Timestamp| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    let (from, until) = (in_secs(-40 * day), in_secs(-day));
    pair(&env, "/CN=door-7", from, until);
    let expired = told(&env);
    let expected = format!(
        "warning: pair.pem: the certificate of CN=door-7 ended on {}: clients refuse it; a new one in its place is taken \
         without a restart\n",
        shown(until)
    );
    assert_eq!(expired, expected);
    let (from, until) = (in_secs(day), in_secs(90 * day));
    pair(&env, "/CN=door-7", from, until);
    let early = told(&env);
    let expected = format!(
        "warning: pair.pem: the certificate of CN=door-7 begins on {}: clients refuse it until then, or the clock of this host \
         is behind\n",
        shown(from)
    );
    assert_eq!(early, expected);
    // A certificate without a subject is named by its alternative names.
    let until = in_secs(13 * day);
    pair(&env, "/", in_secs(-80 * day), until);
    let soon = told(&env);
    let expected = format!(
        "warning: pair.pem: the certificate of node-1.example, node-2.example ends on {}: a new one in its place is taken \
         without a restart\n",
        shown(until)
    );
    assert_eq!(soon, expected);
    // The chain ends with its first certificate to expire, here an intermediate one.
    pair(&env, "/CN=between", in_secs(-80 * day), in_secs(-day));
    let between = fs::read_to_string(env.path("pair.pem")).unwrap();
    pair(&env, "/CN=door-7", in_secs(-day), in_secs(60 * day));
    let own = fs::read_to_string(env.path("pair.pem")).unwrap();
    env.write("pair.pem", own + &between);
    let told = told(&env);
    assert!(
        told.contains("the certificate of CN=between ended on"),
        "{told}"
    );
}

#[test]
fn the_end_of_a_certificate_is_counted_down_and_told_once() {
    let env = world();
    let until = in_secs(6);
    pair(&env, "/CN=door-7", in_secs(-HOUR), until);
    let server = Server::start(&env, &TLS);
    let metrics = || {
        // A client that accepts any certificate.
        let mut client = Command::new("openssl");
        client.args([
            "s_client",
            "-quiet",
            "-verify_quiet",
            "-connect",
            server.address(),
        ]);
        client
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut client = client.spawn().unwrap();
        let mut asked = client.stdin.take().unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        asked.write_all(request.as_bytes()).unwrap();
        let got: Finished = client.wait_with_output().unwrap().into();
        drop(asked);
        let text = String::from_utf8(got.stdout).unwrap();
        let mut lines = text.lines();
        let left = lines.find_map(|line| line.strip_prefix("store_serve_certificate_seconds "));
        left.unwrap().parse::<i64>().unwrap()
    };
    let left = metrics();
    assert!((-5..=6).contains(&left), "{left}");
    let log = || fs::read_to_string(env.path("log")).unwrap();
    let begin = Instant::now();
    while !log().contains("ended on") && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(Timestamp::now().as_second() >= until.as_second());
    std::thread::sleep(Duration::from_millis(300));
    let left = metrics();
    assert!((-60..=0).contains(&left), "{left}");
    let told = "pair.pem: the certificate of CN=door-7 ended on";
    assert_eq!(log().matches(told).count(), 1, "{}", log());
    // A new, valid certificate replaces it.
    pair(&env, "/CN=door-8", in_secs(-HOUR), in_secs(60 * 24 * HOUR));
    let begin = Instant::now();
    while metrics() <= 0 && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(metrics() > 59 * 24 * HOUR);
    assert!(!log().contains("door-8"), "{}", log());
}
