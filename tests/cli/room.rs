//! Transfers into a namespace with a quota: what fits comes, and what does not is told before it is sent.

use support::{Finished, Random, TestEnvironment, environment};

/// A store here with a quota of 100 kB for `project/small`, and another one with refs of so many kB.
fn stores(refs: &[(&str, usize)]) -> TestEnvironment {
    let env = environment!();
    env.ok(["init"]);
    env.ok(["init", "there"]);
    env.ok(["cluster", "add", "far", "there"]);
    env.ok(["policy", "keep", "project/small", "--quota", "100kB"]);
    for (at, (name, size)) in refs.iter().enumerate() {
        env.write("in/file", Random::new(at as u64).bytes(size * 1000));
        env.ok(["--store", "there", "put", "in", name]);
    }
    env
}

fn parsed(text: &[u8]) -> serde_json::Value {
    serde_json::from_slice(text).unwrap()
}

/// What became of each ref.
fn statuses(finished: &Finished) -> Vec<String> {
    let report = parsed(&finished.stdout);
    let refs = report["refs"].as_array().unwrap().iter();
    let told = refs.map(|of| format!("{} {}", of["ref"], of["status"]).replace('"', ""));
    let mut told: Vec<String> = told.collect();
    told.sort();
    told
}

#[test]
fn of_several_refs_those_that_fit_come() {
    let env = stores(&[
        ("project/small/a", 40),
        ("project/small/b", 150),
        ("project/small/c", 30),
        ("project/large/d", 150),
    ]);
    let all = ["project/small", "project/large"];
    let pull = |options: &[&str]| {
        let words = [&["pull", "far"], &all[..], options].concat();
        env.store(words)
    };
    let expected = [
        "project/large/d published",
        "project/small/a published",
        "project/small/b failed",
        "project/small/c published",
    ];
    let dry = pull(&["-n", "--json"]);
    assert_eq!(
        (dry.code, statuses(&dry)),
        (Some(6), expected.map(String::from).to_vec())
    );
    assert!(env.ok(["ls", "--json"]).is_empty());
    let told = pull(&["-n"]);
    let why = "failed: project/small/b@1: project/small: its quota is 100 kB, it uses 4";
    assert!(told.stderr.contains(why), "{told}");
    assert!(told.stderr.contains(" kB, and this adds 15"), "{told}");
    let done = pull(&["--json"]);
    assert_eq!(
        (done.code, statuses(&done)),
        (Some(6), expected.map(String::from).to_vec())
    );
    let sent = |finished: &Finished| parsed(&finished.stdout)["sent_bytes"].as_u64().unwrap();
    assert!(sent(&dry).abs_diff(sent(&done)) < 1000, "{dry}{done}");
    assert!(
        sent(&done) < 230_000,
        "nothing of what does not fit was sent: {done}"
    );
    let there = env.ok(["ls", "project/small"]);
    assert!(
        there.contains('a') && there.contains('c') && !there.contains('b'),
        "{there}"
    );
    // Again: what is there is there.
    let again = pull(&["-n", "--json"]);
    assert_eq!(again.code, Some(6), "{again}");
    assert_eq!(
        statuses(&again)[1..],
        [
            "project/small/a unchanged",
            "project/small/b failed",
            "project/small/c unchanged"
        ]
    );
}

#[test]
fn a_ref_that_does_not_fit_ends_a_dry_run_as_it_ends_the_run() {
    let env = stores(&[("project/small/b", 150)]);
    for options in [&["-n"][..], &[], &["-n", "--json"]] {
        let finished = env.store([&["pull", "far", "project/small/b"], options].concat());
        assert_eq!(finished.code, Some(1), "{finished}");
        assert!(
            finished.stderr.contains("its quota is 100 kB"),
            "{finished}"
        );
    }
    assert!(env.ok(["ls", "--json"]).is_empty());
}

/// What the store has, but for another namespace, counts; what the namespace has, or is brought twice, does not.
#[test]
fn what_is_shared_counts_once_in_each_namespace() {
    let env = stores(&[("project/small/a", 60), ("project/other/b", 70)]);
    let there = |words: &[&str]| env.ok([&["--store", "there"], words].concat());
    env.write("in/file", Random::new(0).bytes(60_000));
    env.write("in/more", "a few words");
    there(&["put", "in", "project/small/a2"]);
    env.write("in/file", Random::new(1).bytes(70_000));
    there(&["put", "in", "project/small/b"]);
    env.ok(["pull", "far", "project/other"]);
    let finished = env.store(["pull", "far", "project/small", "-n", "--json"]);
    let expected = [
        "project/small/a published",
        "project/small/a2 published",
        "project/small/b failed",
    ];
    assert_eq!(
        (finished.code, statuses(&finished)),
        (Some(6), expected.map(String::from).to_vec())
    );
    let finished = env.store(["pull", "far", "project/small", "--json"]);
    assert_eq!(
        (finished.code, statuses(&finished)),
        (Some(6), expected.map(String::from).to_vec())
    );
}
