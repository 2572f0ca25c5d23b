//! Jobs whose bucket is unreachable when they end: the exit code is the job's own, the cache is kept and reported, and
//! the next save, run or `save --pending` saves it.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use support::Finished;
use support::proxy::{Proxy, Slowness};
use support::servers::Server;

use crate::bucket::Bucket;
use crate::link::Host;

const REF: &str = "project/llama/cache";
const SCRIPT: &str = "echo new > $STORE_PROJECT_CACHE_DIR/new; : > ready; while [ ! -e go ]; do sleep 0.02; done; exit $CODE";
/// Commands that save what was kept.
const SETTLES: [&[&str]; 4] = [
    &["save", "base/project", REF],
    &["save", "--pending"],
    &["run", "--project", "llama", "--base", "base", "--", "true"],
    &["save", "base/project"],
];

fn check_is_kept(ended: &Finished, code: i32, bucket: &Bucket) {
    assert_eq!(
        ended.code,
        Some(if code == 0 { 1 } else { code }),
        "{ended}"
    );
    for said in ["project/llama/cache: not saved", "--pending` saves it"] {
        assert!(ended.stderr.contains(said), "{said}: {ended}");
    }
    let kept = fs::read_to_string(bucket.env.path("base/project/new"));
    assert_eq!(kept.unwrap(), "new\n", "{ended}");
}

fn settle(bucket: &Bucket, words: &[&str]) {
    let done = bucket.store(words.iter().copied());
    assert_eq!(done.code, Some(0), "{words:?}: {done}");
    let again = bucket.store(["save", "--pending"]);
    assert_eq!(again.code, Some(0), "{again}");
    assert!(
        again.stderr.contains("nothing is to be saved"),
        "{words:?}: {done}{again}"
    );
    assert_eq!(
        bucket.ok(["cat", &format!("{REF}:new")]),
        "new\n",
        "{words:?}"
    );
}

/// On a link that is down, requests are lost without an error. For the first job of a project, and for a later one.
#[test]
fn a_job_that_ends_while_its_link_is_down_is_saved_later() {
    let host = Host::new(14);
    for (number, settles) in SETTLES.into_iter().enumerate() {
        let bucket = Bucket::new("job-link-down", Server::moto());
        let listening = format!("{}:0", host.address);
        let proxy = Proxy::listening(&listening, &bucket.server.endpoint, Slowness::default());
        let code = i32::from(number % 2 == 0) * 9;
        if number > 1 {
            bucket.env.write("in/old", "old");
            bucket.ok(["put", "in", REF]);
        }
        let words = [
            "--deadline",
            "4s",
            "run",
            "--project",
            "llama",
            "--base",
            "base",
        ];
        let mut command = bucket.command(words.into_iter().chain(["--", "/bin/sh", "-c", SCRIPT]));
        command.envs(bucket.server.behind(&proxy).variables());
        command.env("CODE", code.to_string());
        let mut there = host.run(&command);
        let there = there.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = there.spawn().unwrap();
        while !bucket.env.path("ready").exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        host.link("down");
        bucket.env.write("go", "");
        let ended: Finished = child.wait_with_output().unwrap().into();
        host.link("up");
        check_is_kept(&ended, code, &bucket);
        if number <= 1 {
            // Another job of the project has saved first.
            bucket.env.write("in/other", "other");
            bucket.ok(["put", "in", REF]);
        }
        settle(&bucket, settles);
    }
}

/// A save by hand, while connections are refused.
#[test]
fn a_save_while_the_bucket_is_away_is_settled_by_the_next_one() {
    for (settles, named) in SETTLES.into_iter().zip([true, false, true, false]) {
        let bucket = Bucket::new("save-away", Server::moto());
        let proxy = Proxy::new(&bucket.server.endpoint, Slowness::default());
        let away = bucket.server.behind(&proxy);
        bucket.ok(["run", "--project", "llama", "--base", "base", "--", "true"]);
        bucket.env.write("base/project/old", "old\n");
        bucket.ok(["save", "base/project", REF]);
        bucket.env.write("base/project/new", "new\n");
        drop(proxy);
        let target = named.then_some(REF);
        let words = ["--deadline", "2s", "save", "base/project"];
        let mut command = bucket.command(words.into_iter().chain(target));
        command.envs(away.variables());
        let failed: Finished = command.output().unwrap().into();
        assert_eq!(failed.code, Some(1), "{failed}");
        assert!(failed.stderr.contains("--pending` saves it"), "{failed}");
        settle(&bucket, settles);
    }
}

/// The free space of a bucket is unknown, so `--free` is refused.
#[test]
fn a_watch_keeps_no_room_in_a_bucket() {
    let bucket = Bucket::new("watch-free", Server::moto());
    let refused = bucket.store(["watch", "out", REF, "--free", "1GB"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(
        refused.stderr.contains("is on no disk of this host"),
        "{refused}"
    );
    assert!(refused.stderr.contains("--quota"), "{refused}");
}
