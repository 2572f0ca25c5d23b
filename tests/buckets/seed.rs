//! Seeding a ref in a bucket from several hosts: the script runs once, and a dead seeder is replaced.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::proxy::{Proxy, Slowness};
use support::servers::Server;
use support::{Finished, effort};

use crate::bucket::Bucket;
use crate::link::Host;

const REF: &str = "project/demo/seeded";
const HOSTS: usize = 3;
const SCRIPT: &str = "echo $$ >> runs; while [ -n \"$GO\" ] && [ ! -e \"$GO\" ]; do sleep 0.05; done; \
                      sleep ${SLOW:-1}; echo made > $STORE_SEED_DIR/file";

#[test]
fn of_many_on_3_hosts_one_runs_the_script_and_is_replaced_when_it_dies_on_moto() {
    seeded(&Bucket::new("seed", Server::moto()), 8);
}

#[test]
fn of_many_on_3_hosts_one_runs_the_script_and_is_replaced_when_it_dies_on_ceph() {
    seeded(&Bucket::new("seed", Server::ceph()), 11);
}

/// The script of the seeder without a connection continues, but nobody waits for it.
#[test]
fn one_that_is_cut_off_from_the_bucket_is_replaced() {
    let bucket = Bucket::new("cut-off", Server::moto());
    let proxy = Proxy::new(&bucket.server.endpoint, Slowness::default());
    let mut command = command(&bucket, 0, "600");
    command.envs(bucket.server.behind(&proxy).variables());
    let mut first = command.spawn().unwrap();
    while runs(&bucket) == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(proxy);
    let done: Finished = start(&bucket, 1, "0").wait_with_output().unwrap().into();
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(runs(&bucket), 2);
    first.kill().unwrap();
    first.wait().unwrap();
}

/// On a link that is down, requests are lost without an error, and connections hang. Each of the two hosts is a network
/// namespace. Once its link is restored, the replaced seeder succeeds with the other one's result.
#[test]
fn one_whose_link_is_down_is_replaced_and_takes_what_came_instead() {
    let bucket = Bucket::new("link-down", Server::moto());
    let (first, second) = (Host::new(6), Host::new(7));
    let (_one, mut command) = behind(&first, &bucket, 0);
    let mut cut_off = command.env("GO", "go").spawn().unwrap();
    while runs(&bucket) == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    first.link("down");
    let carried = first.carried();
    let (_two, mut command) = behind(&second, &bucket, 1);
    let done: Finished = command.output().unwrap().into();
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("project/demo/seeded@1"), "{done}");
    assert!(cut_off.try_wait().unwrap().is_none());
    assert_eq!((runs(&bucket), first.carried()), (2, carried));
    first.link("up");
    bucket.env.write("go", "");
    let done: Finished = cut_off.wait_with_output().unwrap().into();
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("theirs came first"), "{done}");
    assert_eq!(bucket.ok(["history", REF, "--json"]).lines().count(), 1);
}

/// The command on a host that reaches the bucket only through its link.
fn behind(host: &Host, bucket: &Bucket, number: usize) -> (Proxy, Command) {
    let proxy = link(host, bucket);
    let there = through(host, &proxy, bucket, number, "0");
    (proxy, there)
}

/// The bucket, as a host reaches it.
fn link(host: &Host, bucket: &Bucket) -> Proxy {
    let listening = format!("{}:0", host.address);
    Proxy::listening(&listening, &bucket.server.endpoint, Slowness::default())
}

fn through(host: &Host, link: &Proxy, bucket: &Bucket, number: usize, slow: &str) -> Command {
    let mut command = command(bucket, number, slow);
    command.envs(bucket.server.behind(link).variables());
    let mut there = host.run(&command);
    there.stdout(Stdio::null()).stderr(Stdio::piped());
    there
}

fn runs(bucket: &Bucket) -> usize {
    let text = fs::read_to_string(bucket.env.path("runs")).unwrap_or_default();
    text.lines().count()
}

fn start(bucket: &Bucket, number: usize, slow: &str) -> Child {
    command(bucket, number, slow).spawn().unwrap()
}

fn command(bucket: &Bucket, number: usize, slow: &str) -> Command {
    let host = format!("host-{}", number % HOSTS);
    let words = [
        "run",
        "--seed",
        REF,
        "--patience",
        effort("20s", "60s"),
        "--base",
        &host,
        "--",
        "/bin/sh",
        "-c",
        SCRIPT,
    ];
    let mut command = bucket.on_host(&host, words);
    command
        .env("SLOW", slow)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Many processes on 3 hosts, numbered from `first_host` on. Each host is a network namespace with a link to the
/// bucket.
fn seeded(bucket: &Bucket, first_host: u32) {
    let hosts: [Host; HOSTS] = [0, 1, 2].map(|at| Host::new(first_host + at));
    let links: Vec<Proxy> = hosts.iter().map(|host| link(host, bucket)).collect();
    let begin = |number: usize, slow: &str| {
        let at = number % HOSTS;
        let mut command = through(&hosts[at], &links[at], bucket, number, slow);
        command.spawn().unwrap()
    };
    let mut first = begin(0, "600");
    while runs(bucket) == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    // All of them share one core, and each must beat in time.
    let processes = effort(12, 32);
    let others: Vec<Child> = (1..processes).map(|number| begin(number, "1")).collect();
    first.kill().unwrap();
    first.wait().unwrap();
    for child in others {
        let done: Finished = child.wait_with_output().unwrap().into();
        assert_eq!(done.code, Some(0), "{done}");
        assert!(done.stderr.contains("project/demo/seeded@1"), "{done}");
    }
    assert_eq!(runs(bucket), 2);
    assert_eq!(bucket.ok(["cat", "project/demo/seeded:file"]), "made\n");
    bucket.ok(["verify", "--read-data"]);
}
