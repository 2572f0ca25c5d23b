//! A job writes to files that it shares with the pool, after a server has verified and sent them: their wrong bytes are
//! never sent.

use std::path::Path;
use std::time::Duration;

use store::host::stat_cache::SETTLED_SECS;
use support::{Random, Script, TestEnvironment, environment};

use crate::server::{Connection, Server};

const LEN: usize = 10_000_000;
/// The bytes that the job changes: more than a connection holds are before them.
const AT: usize = 9_000_000;
const BYTES: usize = 100;
/// Opens and maps a file, and does to it what it reads.
const JOB: &str = "
import mmap, os, sys
path, at, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.chmod(path, 0o644)
fd = os.open(path, os.O_RDWR)
os.chmod(path, 0o444)
map = mmap.mmap(fd, 0)
wrong = bytes(byte ^ 1 for byte in map[at:at + count])
print('open', flush=True)
for line in sys.stdin:
    for word in line.split():
        if word == 'write':
            os.pwrite(fd, wrong, at)
        elif word == 'map':
            map[at:at + count] = wrong
        elif word == 'dirty':
            map[at] = map[at]
        elif word == 'back':
            os.utime(fd, (315532800, 315532800))
        elif word == 'cut':
            os.truncate(fd, at)
    print(line.strip(), flush=True)
";
/// What a job does: before the file is verified, and after it was sent.
const WAYS: [(&str, &str); 7] = [
    ("", "write"),
    ("", "write back"),
    ("", "map"),
    ("", "map back"),
    // Its page is dirty when the file is verified.
    ("dirty back", "map"),
    ("", "cut"),
    ("", "cut back"),
];

/// A job that writes to the file at `path`.
fn job(path: &Path) -> Script {
    let numbers = [AT, BYTES].map(|number| number.to_string());
    let arguments = std::iter::once(path.as_os_str().to_owned()).chain(numbers.map(Into::into));
    Script::start(JOB, arguments, "open")
}

/// A server that has sent a file for each of [`WAYS`] three times, and the jobs that share them.
struct Shared {
    env: TestEnvironment,
    server: Server,
    bytes: Vec<u8>,
    jobs: Vec<Script>,
}

fn url(number: usize) -> String {
    format!("/project/demo/org/data/resolve/main/{number}.bin")
}

impl Shared {
    fn new() -> Self {
        let env = environment!();
        let bytes = Random::new(7).bytes(LEN);
        let of = |number: usize| -> Vec<u8> {
            // Each file has chunks of its own at its start, and the others' at the end.
            let first = u8::try_from(number).unwrap();
            std::iter::once(first)
                .chain(bytes.iter().copied())
                .collect()
        };
        for number in 0..WAYS.len() {
            env.write(format!("in/{number}.bin"), of(number));
        }
        env.ok(["put", "in", "project/demo/org/data"]);
        env.ok(["materialize", "project/demo/org/data", "out"]);
        let jobs = WAYS.iter().enumerate().map(|(number, (before, _))| {
            let mut job = job(&env.path(format!("out/{number}.bin")));
            job.tell(before);
            job
        });
        let jobs = jobs.collect();
        // The server remembers what has not changed for a while.
        std::thread::sleep(Duration::from_secs(SETTLED_SECS) + Duration::from_millis(100));
        let server = Server::start(&env, &[]);
        // The first round finds the states of the files, the second one remembers their parts, the third one uses them.
        for _ in 0..3 {
            for number in 0..WAYS.len() {
                assert!(server.get(&url(number)).body == of(number), "{number}");
            }
        }
        Self {
            env,
            server,
            bytes,
            jobs,
        }
    }

    /// A client of this file that has read a part of it.
    fn slow(&self, number: usize) -> Connection {
        let mut connection = self.server.begin(&url(number));
        let head = connection.head();
        assert_eq!(head.status, 200);
        let mut first = vec![0; 100_001];
        connection.read(&mut first);
        assert!(first[1..] == self.bytes[..100_000]);
        connection
    }
}

#[test]
fn whoever_asks_gets_what_is_in_the_store() {
    let mut shared = Shared::new();
    for (number, (_, after)) in WAYS.iter().enumerate() {
        let mut slow = shared.slow(number);
        shared.jobs[number].tell(after);
        assert!(slow.rest() == shared.bytes[100_000..], "{after}: slow");
        let got = shared.server.get(&url(number)).body;
        assert!(got[1..] == shared.bytes, "{after}");
    }
}

#[test]
fn what_only_the_pool_had_breaks_off() {
    let mut shared = Shared::new();
    let packs = shared.env.path("home/.local/share/store/packs");
    std::fs::remove_dir_all(packs).unwrap();
    for (number, (_, after)) in WAYS.iter().enumerate() {
        let mut slow = shared.slow(number);
        shared.jobs[number].tell(after);
        let rest = slow.rest();
        let expected = &shared.bytes[100_000..];
        assert!(
            rest.len() < AT && expected.starts_with(&rest),
            "{after}: {} bytes",
            rest.len()
        );
    }
}
