//! Doors to a store in a bucket that does not answer for a while: clients are told to retry before they give up, and
//! are answered once the bucket is back.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use support::Random;
use support::servers::Server;

use crate::bucket::Bucket;

/// Less than the engine's limit for a bucket, and more than that of any door.
const PATIENCE: Duration = Duration::from_secs(25);
/// How often to check whether the bucket is back, and the pause between.
const TRIES_MAX: usize = 300;
const PAUSE: Duration = Duration::from_millis(200);

const WORDS: [&str; 8] = [
    "serve",
    "--listen",
    "127.0.0.1:0",
    "--s3-listen",
    "127.0.0.1:0",
    "--access-log",
    "log",
    "--json",
];

/// The way to a server that can be held: then nothing goes through, and nothing says so.
struct Gate {
    address: String,
    is_held: Arc<AtomicBool>,
}

impl Gate {
    fn new(endpoint: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let is_held = Arc::new(AtomicBool::new(false));
        let (held, behind) = (Arc::clone(&is_held), endpoint.replace("http://", ""));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&behind) else {
                    continue;
                };
                let ways = [
                    (client.try_clone(), server.try_clone()),
                    (Ok(server), Ok(client)),
                ];
                for (from, to) in ways {
                    let held = Arc::clone(&held);
                    // A client that gives up breaks the connection.
                    std::thread::spawn(move || drop(pass(from.unwrap(), to.unwrap(), &held)));
                }
            }
        });
        Self { address, is_held }
    }

    fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::Relaxed);
    }
}

/// Passes bytes unless the gate is held.
fn pass(mut from: TcpStream, mut to: TcpStream, is_held: &AtomicBool) -> std::io::Result<()> {
    let mut bytes = [0; 16 << 10];
    loop {
        let count = from.read(&mut bytes)?;
        while is_held.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        match count {
            0 => return to.shutdown(std::net::Shutdown::Write),
            count => to.write_all(&bytes[..count])?,
        }
    }
}

/// `store serve` on a bucket, with both doors.
struct Doors {
    child: Child,
    hub: String,
    s3: String,
}

impl Doors {
    /// Those that `command` opens.
    fn open(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let address = |name: &str| told[name].as_str().unwrap().replace("http://", "");
        Self {
            hub: address("url"),
            s3: address("s3_url"),
            child,
        }
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// Both doors to a bucket behind a gate.
struct Served {
    bucket: Bucket,
    gate: Gate,
    doors: Doors,
}

impl Served {
    fn new(name: &str) -> Self {
        let server = Server::moto();
        let gate = Gate::new(&server.endpoint);
        let endpoint = gate.address.clone();
        let bucket = Bucket::new(name, Server { endpoint, ..server });
        bucket.env.write("in/a.txt", "inside");
        bucket.ok(["put", "in", "project/demo/org/data"]);
        let mut command = bucket.command(WORDS);
        // The command's own patience with a bucket.
        command.env_remove("AWS_READ_TIMEOUT");
        let doors = Doors::open(&mut command);
        Self {
            bucket,
            gate,
            doors,
        }
    }

    /// Asserts that a door answers 503 with `told` while the bucket does not answer, and `body` before and afterwards.
    fn check(&self, address: &str, path: &str, (body, told): (&str, &str)) {
        assert!(ask(address, path).ends_with(body));
        self.gate.hold(true);
        let answer = ask(address, path);
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        let answer = answer.to_ascii_lowercase();
        assert!(answer.contains("\r\nretry-after: "), "{answer}");
        assert!(answer.contains(told), "{answer}");
        self.gate.hold(false);
        let back = (0..TRIES_MAX).find_map(|_| {
            let answer = ask(address, path);
            if answer.starts_with("HTTP/1.1 503 ") {
                std::thread::sleep(PAUSE);
                return None;
            }
            Some(answer)
        });
        let back = back.expect("it is back");
        assert!(
            back.starts_with("HTTP/1.1 200 ") && back.ends_with(body),
            "{back}"
        );
        let log = std::fs::read_to_string(self.bucket.env.path("log")).unwrap();
        assert!(log.contains("\"status\":503"), "{log}");
    }
}

/// All that comes back, as a client hears it that gives up after a while.
fn ask(address: &str, path: &str) -> String {
    let answer = heard(
        address,
        &format!("{path} HTTP/1.1\r\nAccept: text/html, */*"),
    );
    String::from_utf8(answer).unwrap()
}

fn heard(address: &str, asked: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("GET {asked}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .unwrap_or_else(|error| panic!("{asked}: a client gave up: {error}"));
    answer
}

/// The body of an answer with this status. Where the bucket's server stands still for longer than a door waits, the door
/// says so (503), and it is asked again, as clients do.
fn body(address: &str, asked: &str, status: u16) -> Vec<u8> {
    let mut answer = heard(address, asked);
    for _ in 0..3 {
        let text = String::from_utf8_lossy(&answer);
        if text.starts_with("HTTP/1.1 503 ") && text.contains("\r\nretry-after: ") {
            std::thread::sleep(std::time::Duration::from_secs(1));
            answer = heard(address, asked);
        }
    }
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.unwrap() + 4);
    let head = String::from_utf8_lossy(head);
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    body.to_vec()
}

/// Files of which nothing is on the host, put side by side so that their frames lie in turn in one pack.
#[test]
fn clients_of_one_cold_file_share_what_is_read_of_it() {
    const FILE_BYTES: usize = 12 << 20;
    let (bucket, proxy) = Bucket::proxied("serving-cold", &Server::moto());
    let mut random = Random::new(3);
    let files = ["one", "other"].map(|name| {
        let mut file = random.bytes(FILE_BYTES);
        // Text, zeros, and bytes of a chunk that come twice.
        file[3 << 20..][..2 << 20].fill(b'x');
        file[6 << 20..][..1 << 20].fill(0);
        file.copy_within(0..1 << 20, 8 << 20);
        bucket.env.write(format!("in/{name}"), &file);
        file
    });
    bucket.ok(["put", "in", "project/demo/data"]);
    let doors = Doors::open(&mut bucket.on_host("cold", WORDS));
    let path = "/project.demo/data/one";
    let first = body(
        &doors.s3,
        &format!("{path} HTTP/1.1\r\nRange: bytes=5-9"),
        206,
    );
    assert_eq!(first, files[0][5..10]);
    let few = proxy.take().received();
    assert!(few < 6 << 20, "{few} bytes for five");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (doors, files) = (&doors, &files);
            scope.spawn(move || {
                // Who begins later meets the same stretches.
                let start = number * 100_000;
                let asked = format!("{path} HTTP/1.1\r\nRange: bytes={start}-");
                assert!(
                    body(&doors.s3, &asked, 206) == files[0][start..],
                    "{number}"
                );
            });
        }
    });
    let together = proxy.take().received();
    assert!(
        together < 2 * FILE_BYTES as u64,
        "{together} bytes for eight"
    );
    for (name, file) in ["one", "other"].iter().zip(&files) {
        let path = format!("/project/demo/demo/data/resolve/main/{name} HTTP/1.1");
        assert!(body(&doors.hub, &path, 200) == *file, "{name}");
        for start in [0, (1 << 20) - 1, 1 << 20, 6 << 20, FILE_BYTES - 1] {
            let asked = format!("{path}\r\nRange: bytes={start}-{}", start + 70_000);
            let end = FILE_BYTES.min(start + 70_001);
            assert!(
                body(&doors.hub, &asked, 206) == file[start..end],
                "{name} {start}"
            );
        }
    }
}

#[test]
fn clients_of_a_hub_are_told_that_the_bucket_is_away() {
    let served = Served::new("serving-hub");
    let path = "/project/demo/org/data/resolve/main/a.txt";
    served.check(&served.doors.hub, path, ("inside", "x-error-message: "));
}

#[test]
fn clients_of_s3_are_told_that_the_bucket_is_away() {
    let served = Served::new("serving-s3");
    let told = "<code>serviceunavailable</code>";
    served.check(
        &served.doors.s3,
        "/project.demo/org/data/a.txt",
        ("inside", told),
    );
}

#[test]
fn readers_of_the_page_are_told_that_the_bucket_is_away() {
    let served = Served::new("serving-page");
    served.check(&served.doors.hub, "/-/project/demo", ("</html>", "<html"));
}
