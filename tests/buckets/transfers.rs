//! Push, pull and duplicate over faulty networks: every fault at every request, then random faults, then permanent
//! ones. Both stores are always sound; a failure names its object, and the next run transfers the rest.

use std::process::Command;

use support::proxy::{Fault, Proxy, Schedule, Traffic};
use support::servers::{BUCKET, Server, fresh_prefix};
use support::{Finished, assert_same_tree, effort, trees};

use crate::bucket::{Bucket, good};
use crate::faults::{PER_THOUSAND, each_fault, seeds};

const REFS: [&str; 2] = ["project/a/b", "project/a/c"];
/// The versions, each with its original tree.
const VERSIONS: [(&str, &str); 3] = [
    ("project/a/b@1", "tree-1"),
    ("project/a/b@2", "tree-2"),
    ("project/a/c@1", "tree-3"),
];

/// The direction of a transfer; the destination is a new store each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// From a directory to a bucket.
    Push,
    /// From a bucket to a directory.
    Pull,
    /// From one bucket to another.
    Duplicate,
}

const WAYS: [Way; 3] = [Way::Push, Way::Pull, Way::Duplicate];

/// The same versions in a directory and in a bucket behind a proxy.
struct Ends {
    bucket: Bucket,
    proxy: Proxy,
}

/// One transfer to a store of its own, from a host of its own.
struct Transfer<'e> {
    ends: &'e Ends,
    way: Way,
    to: String,
    host: String,
}

impl Ends {
    fn new(name: &str) -> Self {
        let (bucket, proxy) = Bucket::proxied(name, &Server::moto());
        bucket.env.ok(["init", "here"]);
        for (number, (version, tree)) in (1..).zip(VERSIONS) {
            trees::version(&bucket.env.path(tree), 5, number, 400_000);
            let name = version.split_once('@').unwrap().0;
            bucket.env.ok(["--store", "here", "put", tree, name]);
        }
        let ends = Self { bucket, proxy };
        let words = ["push", "project/a", &ends.bucket.url, "--versions", "all"];
        good(ends.command("here", words));
        ends
    }

    /// The command with the store at `place`, and the variables for the bucket.
    fn command<'a>(&self, place: &str, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.bucket.env.command(["--store", place]);
        command.args(words).envs(self.bucket.server.variables());
        command.env("AWS_READ_TIMEOUT", "3 seconds");
        command
    }

    fn verify(&self, place: &str, what: &str) {
        let mut command = self.command(place, ["verify", "--read-data"]);
        let finished: Finished = command.output().unwrap().into();
        assert_eq!(finished.code, Some(0), "{what}: {place}: {finished}");
    }

    /// Asserts that the sources are sound. Once at the end is enough, since damage would remain.
    fn verify_sources(&self) {
        for place in ["here", &self.bucket.url] {
            self.verify(place, "at the end");
        }
    }

    fn transfer(&self, way: Way) -> Transfer<'_> {
        let prefix = fresh_prefix("there");
        let to = match way {
            Way::Pull => prefix,
            Way::Push | Way::Duplicate => format!("s3://{BUCKET}/{prefix}"),
        };
        self.proxy.set(Schedule::Fine);
        good(self.command(&to, ["init"]));
        let host = self.bucket.fresh("host").to_str().unwrap().to_owned();
        Transfer {
            ends: self,
            way,
            to,
            host,
        }
    }
}

impl Transfer<'_> {
    /// Runs the transfer once under `schedule`. Returns its result and the traffic.
    fn run(&self, schedule: Schedule) -> (Finished, Traffic) {
        let Self { ends, to, .. } = self;
        let url = ends.bucket.url.as_str();
        let mut command = match self.way {
            Way::Push => ends.command("here", ["push", REFS[0], REFS[1], to]),
            Way::Pull => ends.command(to, ["pull", url, REFS[0], REFS[1]]),
            Way::Duplicate => {
                let words = ["duplicate", REFS[0], REFS[1], "--from", url, "--to", to];
                ends.command("here", words)
            }
        };
        command.args(["--versions", "all"]).env("HOME", &self.host);
        if matches!(schedule, Schedule::From(..)) {
            command.env("STORE_DEADLINE", "1s");
        }
        ends.proxy.take();
        ends.proxy.set(schedule);
        let finished = command.output().unwrap().into();
        ends.proxy.set(Schedule::Fine);
        (finished, ends.proxy.take())
    }

    /// Asserts that the destination is clean down to the last byte.
    fn verify(&self, what: &str) {
        self.ends.verify(&self.to, what);
    }

    /// Asserts that all versions have arrived as they were put.
    fn check(&self, what: &str) {
        self.verify(what);
        for (version, tree) in VERSIONS {
            let out = self.ends.bucket.fresh("out");
            println!("{what}: {version}");
            good(
                self.ends
                    .command(&self.to, ["get", version, out.to_str().unwrap()]),
            );
            assert_same_tree(&self.ends.bucket.env.path(tree), &out);
            std::fs::remove_dir_all(out).unwrap();
        }
    }
}

fn every_fault_passes(way: Way) {
    let ends = Ends::new("transfer");
    // The first run may take more requests, since this host has nothing cached yet, and a busy one retries.
    let requests = [(); 2].map(|()| {
        let transfer = ends.transfer(way);
        let (finished, traffic) = transfer.run(Schedule::Fine);
        assert_eq!(finished.code, Some(0), "{finished}");
        transfer.check("no fault");
        traffic.requests()
    });
    let (mut tried, mut met) = (0, 0);
    for (fault, number) in each_fault(requests[0].min(requests[1])) {
        let transfer = ends.transfer(way);
        let (finished, traffic) = transfer.run(Schedule::At(number, Vec::new(), fault));
        let what = format!("{fault:?} at {number}: {finished}{traffic:?}");
        assert_eq!(finished.code, Some(0), "{what}");
        transfer.check(&what);
        tried += 1;
        met += traffic.faults();
    }
    assert!(met * 10 >= tried * 9, "{met} faults of {tried}");
    ends.verify_sources();
}

#[test]
fn every_fault_by_itself_passes_a_push() {
    every_fault_passes(Way::Push);
}

#[test]
fn every_fault_by_itself_passes_a_pull() {
    every_fault_passes(Way::Pull);
}

#[test]
fn every_fault_by_itself_passes_a_duplication() {
    every_fault_passes(Way::Duplicate);
}

#[test]
fn faults_by_dice_lose_nothing() {
    for seed in seeds() {
        let ends = Ends::new("dice");
        for way in WAYS {
            let transfer = ends.transfer(way);
            let (finished, traffic) = transfer.run(Schedule::dice(seed, PER_THOUSAND));
            let what = format!("seed {seed}: {way:?}: {finished}{traffic:?}");
            assert_eq!(finished.code, Some(0), "{what}");
            transfer.check(&what);
        }
        ends.verify_sources();
    }
}

/// The prefixes of a store's keys and of listed directories.
const KEYS: [&str; 5] = ["format", "log", "checkpoints", "segments", "packs"];

/// A permanent fault from any request on: the run's error names the object, and the next run transfers the rest.
fn ends_well(way: Way, fault: Fault, first: u64) {
    let ends = Ends::new("stays");
    let (finished, traffic) = ends.transfer(way).run(Schedule::Fine);
    assert_eq!(finished.code, Some(0), "{finished}");
    let last = u64::try_from(traffic.requests()).unwrap();
    for number in (first..=last).step_by(effort(12, 1)) {
        let transfer = ends.transfer(way);
        let (finished, traffic) = transfer.run(Schedule::From(number, fault));
        let what = format!("{way:?}, {fault:?} from {number} of {last} on: {finished}{traffic:?}");
        // The last requests differ between runs.
        if traffic.faults() > 0 {
            assert_eq!(finished.code, Some(1), "{what}");
            let errors = finished.stderr.lines();
            let told = errors
                .filter_map(|line| line.strip_prefix("error: "))
                .next();
            let is_named = |key: &&str| told.is_some_and(|told| told.starts_with(*key));
            assert!(KEYS.iter().any(is_named), "{what}");
        }
        if fault == Fault::Expired && traffic.faults() > 0 {
            assert!(finished.stderr.contains("credentials"), "{what}");
            assert!(traffic.faults() < 12, "no storm: {what}");
        }
        transfer.verify(&what);
        let (finished, _) = transfer.run(Schedule::Fine);
        assert_eq!(finished.code, Some(0), "{what}: then {finished}");
        transfer.check(&what);
    }
    ends.verify_sources();
}

#[test]
fn credentials_that_end_at_any_request_end_the_run_and_nothing_else() {
    WAYS.into_iter()
        .for_each(|way| ends_well(way, Fault::Expired, 1));
}

#[test]
fn an_endpoint_that_fails_for_good_ends_the_run_and_nothing_else() {
    WAYS.into_iter()
        .for_each(|way| ends_well(way, Fault::Broken, 2));
}

#[test]
fn a_network_that_goes_away_ends_the_run_and_nothing_else() {
    WAYS.into_iter()
        .for_each(|way| ends_well(way, Fault::Reset, 3));
}
