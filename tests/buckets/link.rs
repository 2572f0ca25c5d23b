//! Two hosts with a link that is cut and restored: network namespaces and a veth pair. Needs root.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::proxy::{Proxy, Slowness};
use support::servers::Server;
use support::{Finished, Random, assert_same_tree, effort, trees, under};

use crate::bucket::{Bucket, good};

/// The rate of the link in each direction.
const RATE: &str = "400mbit";
/// A little more than the size of a pack.
const PACK_BYTES: u64 = 68_000_000;
/// Maximum bytes in flight.
const IN_FLIGHT_BYTES: u64 = 64_000_000;
/// Fixed traffic in addition to the bytes of objects; there is also a share of them.
const TALK_BYTES: u64 = 2_000_000;

/// How long the link is down. In the long form, until a waiting reader retries.
fn outage() -> Duration {
    Duration::from_secs(effort(3, 45))
}

/// A host in a network namespace of its own, with one link to this one.
pub(crate) struct Host {
    name: String,
    here: String,
    /// The address of this end of the link.
    pub(crate) address: String,
}

impl Host {
    /// At most one host may use a `number` at a time: 1 to 5 are used here, 6 to 13 by seeds, 14 by jobs.
    pub(crate) fn new(number: u32) -> Self {
        let name = format!("st{}x{number}", std::process::id());
        let octet = std::process::id() % 64 * 4;
        // Addresses for benchmarks between hosts, which no network routes.
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
        let slow = format!("root tbf rate {RATE} burst 512kb latency 100ms");
        run("tc", &format!("qdisc add dev {here} {slow}"));
        run("tc", &format!("-n {name} qdisc add dev eth0 {slow}"));
        host
    }

    pub(crate) fn link(&self, state: &str) {
        ip(&format!("link set {} {state}", self.here));
    }

    /// Bytes that the link has carried in both directions, including retransmissions.
    pub(crate) fn carried(&self) -> u64 {
        let count = |what| -> u64 {
            let path = format!("/sys/class/net/{}/statistics/{what}", self.here);
            fs::read_to_string(path).unwrap().trim().parse().unwrap()
        };
        count("rx_bytes") + count("tx_bytes")
    }

    /// The command on that host.
    pub(crate) fn run(&self, command: &Command) -> Command {
        under("ip", ["netns", "exec", &self.name], command)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.name));
    }
}

fn ip(words: &str) {
    run("ip", words);
}

fn run(program: &str, words: &str) {
    let done = Command::new(program).args(words.split(' ')).output();
    let done = done.unwrap_or_else(|error| panic!("{program}: {error}"));
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {words}: {told}");
}

/// How a tree gets over the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Put,
    Push,
    Pull,
}

/// A bucket on this side of the link; on the other side the tree, or a store in the directory `there`.
struct Ends {
    way: Way,
    bytes: u64,
    host: Host,
    proxy: Proxy,
    bucket: Bucket,
}

impl Ends {
    /// The two ends, with `bytes` to transfer.
    fn new(number: u32, way: Way, bytes: u64) -> Self {
        let host = Host::new(number);
        let server = Server::moto();
        let listening = format!("{}:0", host.address);
        let proxy = Proxy::listening(&listening, &server.endpoint, Slowness::default());
        let bucket = Bucket::new("link", server);
        for (file, size) in [(1, bytes / 2), (2, bytes - bytes / 2)] {
            let random = Random::new(file).bytes(usize::try_from(size).unwrap());
            trees::write(&bucket.env.path(format!("tree/{file}")), &random);
        }
        let put = ["put", "tree", "project/a/b"];
        match way {
            Way::Put => {}
            Way::Push => drop((
                bucket.env.ok(["init", "there"]),
                bucket.env.ok(["--store", "there"].into_iter().chain(put)),
            )),
            Way::Pull => drop((bucket.env.ok(["init", "there"]), bucket.ok(put))),
        }
        Self {
            way,
            bytes,
            host,
            proxy,
            bucket,
        }
    }

    /// Starts the transfer on the other side of the link.
    fn begin(&self) -> Child {
        let url = self.bucket.url.as_str();
        let words = match self.way {
            Way::Put => ["--store", url, "put", "tree", "project/a/b"],
            Way::Push => ["--store", "there", "push", "project/a/b", url],
            Way::Pull => ["--store", "there", "pull", url, "project/a/b"],
        };
        let mut command = self.bucket.env.command(words);
        command.envs(self.bucket.server.behind(&self.proxy).variables());
        let mut command = self.host.run(&command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Waits until `holds` is true, which must be before the end.
    fn until(&self, child: &mut Child, holds: impl Fn() -> bool) {
        while !holds() {
            assert!(child.try_wait().unwrap().is_none(), "it was over too soon");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until this many more bytes were carried.
    fn until_carried(&self, child: &mut Child, bytes: u64) {
        let begin = self.host.carried();
        self.until(child, || self.host.carried() - begin >= bytes);
    }

    /// Whether a pack of data is complete at the destination.
    fn has_whole_pack(&self) -> bool {
        let place = self.bucket.env.path("there/packs");
        match self.way {
            Way::Pull => has_large_file(&place),
            _ => {
                let uploaded = ["POST", "/packs/", "uploadId="];
                self.proxy.take().with(&uploaded).requests() > 0
            }
        }
    }

    /// Asserts that everything has arrived, and that at most `again` bytes were carried twice.
    fn finish(&self, child: Child, carried_before: u64, again: u64) {
        let finished: Finished = child.wait_with_output().unwrap().into();
        assert_eq!(finished.code, Some(0), "{finished}{:?}", self.proxy.take());
        let carried = self.host.carried() - carried_before;
        let most = self.bytes + self.bytes / 10 + TALK_BYTES + again;
        assert!(carried <= most, "{carried} of {}: {finished}", self.bytes);
        let url = self.bucket.url.as_str();
        let place = if self.way == Way::Pull { "there" } else { url };
        for words in [
            vec!["verify", "--read-data"],
            vec!["get", "project/a/b", "out"],
        ] {
            let mut command = self.bucket.env.command(["--store", place]);
            command.args(words).envs(self.bucket.server.variables());
            good(command);
        }
        let [tree, out] = ["tree", "out"].map(|name| self.bucket.env.path(name));
        assert_same_tree(&tree, &out);
    }
}

/// Whether a file below `dir` has nearly the size of a whole pack, and the name of a pack.
fn has_large_file(dir: &Path) -> bool {
    let entries = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map_while(Result::ok);
    entries.into_iter().any(|entry| {
        let is_pack = entry.file_name().len() == 32;
        match entry.metadata() {
            Ok(found) if found.is_dir() => has_large_file(&entry.path()),
            Ok(found) => is_pack && found.len() > PACK_BYTES / 2,
            Err(_) => false,
        }
    })
}

/// The link is cut in the middle and restored: the transfer continues where it was.
fn outlives(number: u32, way: Way) {
    let ends = Ends::new(number, way, effort(48_000_000, 200_000_000));
    let before = ends.host.carried();
    let mut child = ends.begin();
    ends.until_carried(&mut child, ends.bytes / 3);
    ends.host.link("down");
    let carried = ends.host.carried();
    std::thread::sleep(outage());
    assert_eq!(ends.host.carried(), carried, "the link is cut");
    assert!(child.try_wait().unwrap().is_none(), "it was over too soon");
    ends.host.link("up");
    ends.finish(child, before, effort(0, IN_FLIGHT_BYTES));
}

#[test]
fn a_put_outlives_a_link_that_is_cut_and_comes_back() {
    outlives(1, Way::Put);
}

#[test]
fn a_push_outlives_a_link_that_is_cut_and_comes_back() {
    outlives(2, Way::Push);
}

#[test]
fn a_pull_outlives_a_link_that_is_cut_and_comes_back() {
    outlives(3, Way::Pull);
}

/// A transfer that is killed while the link is down, with one complete pack, adopts that pack in its next run.
fn resumes(number: u32, way: Way) {
    let ends = Ends::new(number, way, 160_000_000);
    let mut child = ends.begin();
    ends.until(&mut child, || ends.has_whole_pack());
    ends.until_carried(&mut child, 1_000_000);
    ends.host.link("down");
    child.kill().unwrap();
    child.wait().unwrap();
    ends.host.link("up");
    let before = ends.host.carried();
    let pack = PACK_BYTES - PACK_BYTES / 50;
    let again = Ends {
        bytes: ends.bytes - pack,
        ..ends
    };
    // A quarter of a pack is room for what TCP sends twice on a busy machine; the pack itself would be four of them.
    again.finish(again.begin(), before, PACK_BYTES / 4);
}

#[test]
fn a_push_that_is_killed_while_the_link_is_down_goes_on_when_it_runs_again() {
    resumes(4, Way::Push);
}

#[test]
fn a_pull_that_is_killed_while_the_link_is_down_goes_on_when_it_runs_again() {
    resumes(5, Way::Pull);
}
