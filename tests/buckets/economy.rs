//! The number of requests and bytes of each verb, counted on the wire.

use std::process::Command;

use support::servers::Server;
use support::{Finished, Random, trees, under};

use crate::bucket::{Bucket, good};

#[test]
fn a_thousand_small_files_are_a_handful_of_requests() {
    let (bucket, proxy) = Bucket::proxied("small", &Server::moto());
    let mut random = Random::new(11);
    for number in 0..1000 {
        let path = bucket.env.path(format!("tree/{}/{number}", number % 10));
        trees::write(&path, &random.bytes(700));
    }
    // The get records a use, and the host remembers that when it materializes.
    for (words, most, puts) in [
        (&["put", "tree", "project/a/b"][..], 12, 4),
        (&["get", "project/a/b", "out"], 12, 1),
        (&["materialize", "project/a/b", "linked"], 12, 0),
    ] {
        bucket.ok(words.iter().copied());
        let traffic = proxy.take();
        assert!(traffic.requests() <= most, "{words:?}: {traffic:?}");
        let put = traffic.with(&["PUT"]).requests();
        assert_eq!(put, puts, "{words:?}: {traffic:?}");
    }
}

/// Runs the command on the first core that this process may use.
fn on_one_core(command: &Command) -> Command {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = allowed.unwrap().trim().split(['-', ',']).next().unwrap();
    under("taskset", ["--cpu-list", first], command)
}

#[test]
fn a_look_takes_what_it_needs() {
    let (bucket, proxy) = Bucket::proxied("look", &Server::moto());
    let mut random = Random::new(12);
    for number in 0..8 {
        let path = bucket.env.path(format!("tree/{number}"));
        trees::write(&path, &random.bytes(1_000_000));
    }
    trees::write(&bucket.env.path("tree/note"), b"a few words");
    // One thread, so that each file is contiguous; otherwise the frames of several files mix.
    good(on_one_core(&bucket.command(["put", "tree", "project/a/b"])));
    proxy.take();
    for (words, requests, bytes) in [
        (&["ls", "project/a/b"][..], 10, 100_000),
        (&["ls"], 8, 50_000),
        (&["cat", "project/a/b:note"], 12, 100_000),
        (&["cat", "project/a/b:3"], 20, 2_500_000),
        (&["diff", "project/a/b", "project/a/b"], 10, 100_000),
    ] {
        let command = bucket.on_host(&format!("{words:?}"), words.iter().copied());
        crate::bucket::good(command);
        let traffic = proxy.take();
        assert!(
            traffic.requests() <= requests && traffic.received() <= bytes,
            "{words:?}: {traffic:?}"
        );
    }
}

/// Missing keys of a compile cache cost no more than a single one: one read of one tree.
#[test]
fn a_thousand_keys_that_are_missing_cost_what_one_costs() {
    let (bucket, proxy) = Bucket::proxied("misses", &Server::moto());
    for number in 0..200 {
        let module = format!("near/neuronxcc-2.21/MODULE_{number}+a");
        trees::write(&bucket.env.path(format!("{module}/model.neff")), &[7; 500]);
        trees::write(&bucket.env.path(format!("{module}/model.done")), b"");
    }
    bucket.ok(["neff", "push", "near", "project/a/neff"]);
    let keys: Vec<String> = (1000..2000)
        .map(|number| format!("MODULE_{number}+a"))
        .collect();
    let mut asked = Vec::new();
    for count in [1, 1000] {
        let keys = keys.iter().take(count).map(String::as_str);
        let words = ["neff", "lookup", "project/a/neff"].into_iter().chain(keys);
        let command = bucket.on_host("home", words);
        proxy.take();
        let done: Finished = { command }.output().unwrap().into();
        assert_eq!(done.code, Some(3), "{done}");
        asked.push(proxy.take().requests());
    }
    assert!(asked[1] <= asked[0] && asked[0] <= 10, "{asked:?}");
}

/// On a host that already has the caches, a run asks the store once for changes, however many caches there are.
#[test]
fn a_run_on_a_warm_host_looks_once_before_the_command() {
    let (bucket, proxy) = Bucket::proxied("run", &Server::moto());
    let run = |script: &str| {
        let caches = ["run", "--project", "p", "--team", "t", "--base", "base"];
        bucket.command(caches.into_iter().chain(["--", "/bin/sh", "-c", script]))
    };
    good(run(
        "echo 1 > $STORE_PROJECT_CACHE_DIR/a; echo 2 > $STORE_TEAM_CACHE_DIR/b",
    ));
    good(run("true"));
    proxy.take();
    let waits = "touch started; while [ ! -e go ]; do sleep 0.02; done";
    let mut running = run(waits).spawn().unwrap();
    while !bucket.env.path("started").exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let start = proxy.take();
    bucket.env.write("go", "");
    assert!(running.wait().unwrap().success());
    let looks = start.with(&["GET", "checkpoints"]).requests();
    assert_eq!(looks, 1, "{start:?}");
    // The format, the log, objects that no log entry names, and one tree for each cache.
    assert!(start.requests() <= 10, "{start:?}");
}

/// The caches of a run are saved one after another with one read of the log.
#[test]
fn the_end_of_a_run_looks_once_for_all_caches() {
    let (bucket, proxy) = Bucket::proxied("end", &Server::moto());
    let run = |script: &str| {
        let caches = ["run", "--project", "p", "--team", "t", "--base", "base"];
        let waits = format!("{script}; touch started; while [ ! -e go ]; do sleep 0.02; done");
        let words = caches.into_iter().chain(["--", "/bin/sh", "-c", &waits]);
        let mut running = bucket.command(words).spawn().unwrap();
        while !bucket.env.path("started").exists() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        proxy.take();
        bucket.env.write("go", "");
        assert!(running.wait().unwrap().success());
        for name in ["go", "started"] {
            std::fs::remove_file(bucket.env.path(name)).unwrap();
        }
        proxy.take()
    };
    run("echo 1 > $STORE_PROJECT_CACHE_DIR/a; echo 2 > $STORE_TEAM_CACHE_DIR/b");
    run("true");
    let end = run("true");
    assert_eq!(end.with(&["GET", "/format"]).requests(), 1, "{end:?}");
    let looks = end.with(&["GET", "checkpoints"]).requests();
    assert_eq!(looks, 1, "{end:?}");
    assert_eq!(end.with(&["PUT"]).requests(), 0, "{end:?}");
    // The format and one read of the log; for each cache the check for condemned packs, its segments and packs, and new
    // entries.
    assert!(end.requests() <= 16, "{end:?}");
    // The second cache finds chunks that the first one stored, so equal bytes are stored once.
    let script = "head -c 300000 /dev/urandom > $STORE_PROJECT_CACHE_DIR/c; cp $STORE_PROJECT_CACHE_DIR/c $STORE_TEAM_CACHE_DIR";
    let end = run(script);
    let packs = end.with(&["PUT", "/packs/"]);
    assert!(packs.sent() < 500_000, "{end:?}");
    let looks = end.with(&["GET", "checkpoints"]).requests();
    assert_eq!(looks, 1, "{end:?}");
}
