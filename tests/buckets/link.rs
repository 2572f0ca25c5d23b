//! Two hosts with a link between them that is cut and comes back: network namespaces and a veth pair. Needs root.

use std::process::{Command, Stdio};
use std::time::Duration;

use support::proxy::{Proxy, Slowness};
use support::servers::Server;
use support::{Finished, assert_same_tree, trees};

use crate::bucket::Bucket;

/// How long the link is down.
const OUTAGE: Duration = Duration::from_secs(3);

/// A host in a namespace of its own, with one link to this one.
struct Host {
    name: String,
    here: String,
    address: String,
}

impl Host {
    /// Of `number` one host exists at a time.
    fn new(number: u32) -> Self {
        let name = format!("st{}x{number}", std::process::id());
        let octet = std::process::id() % 64 * 4;
        // Addresses for measurements between hosts, which no network routes.
        let (address, other) = (
            format!("198.19.{number}.{}", octet + 1),
            format!("198.19.{number}.{}", octet + 2),
        );
        let here = format!("{name}h");
        let host = Self {
            name,
            here,
            address,
        };
        let (name, here, address) = (&host.name, &host.here, &host.address);
        ip(&format!("netns add {name}"));
        ip(&format!(
            "link add {here} type veth peer name eth0 netns {name}"
        ));
        ip(&format!("addr add {address}/30 dev {here}"));
        ip(&format!("link set {here} up"));
        ip(&format!("-n {name} addr add {other}/30 dev eth0"));
        ip(&format!("-n {name} link set eth0 up"));
        host
    }

    fn link(&self, state: &str) {
        ip(&format!("link set {} {state}", self.here));
    }

    /// The command as it runs on that host.
    fn run(&self, command: &Command) -> Command {
        let mut there = Command::new("ip");
        there
            .args(["netns", "exec", &self.name])
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(command.get_current_dir().unwrap())
            .env_clear()
            .stdin(Stdio::null());
        for (name, value) in command.get_envs() {
            there.env(name, value.unwrap());
        }
        there
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.name));
    }
}

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {words}: {told}");
}

#[test]
fn a_put_outlives_a_link_that_is_cut_and_comes_back() {
    let host = Host::new(1);
    let slow = Slowness {
        delay: Duration::from_millis(5),
        bytes_per_second: Some(8_000_000),
    };
    let server = Server::moto();
    let proxy = Proxy::listening(&format!("{}:0", host.address), &server.endpoint, slow);
    let mut bucket = Bucket::new("link", server.behind(&proxy));
    trees::write(
        &bucket.env.path("tree/data"),
        &support::Random::new(5).bytes(24_000_000),
    );
    proxy.take();
    let words = ["put", "tree", "project/a/b"];
    let mut command = host.run(&bucket.command(words));
    command.env_remove("AWS_READ_TIMEOUT");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    while proxy.count() < 4 {
        std::thread::sleep(Duration::from_millis(5));
    }
    host.link("down");
    std::thread::sleep(OUTAGE);
    host.link("up");
    let finished: Finished = child.wait_with_output().unwrap().into();
    assert_eq!(finished.code, Some(0), "{finished}{:?}", proxy.take());
    bucket.server = server;
    bucket.ok(["verify", "--read-data"]);
    bucket.ok(["get", "project/a/b", "out"]);
    assert_same_tree(&bucket.env.path("tree"), &bucket.env.path("out"));
}
