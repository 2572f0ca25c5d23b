//! A collection that has nothing to do, and the next one, which skips the work.

use std::sync::Arc;

use gc::policy::{Pattern, Policy, Rules, Scope};
use gc::{CollectReport, Request, collect};
use jiff::{SignedDuration, Timestamp};
use store::format::pack_key;
use store::remote::testing::faulty::Faults;
use store::remote::{Faulty, Prune};
use store::{Host, PackId, Store};

use crate::collect::{eager, world};
use crate::world::World;

/// The number of requests of a collection, and its report.
fn counted(world: &World, remote: &Arc<dyn Prune>, request: &Request) -> (u64, CollectReport) {
    let counted = Arc::new(Faulty::new(remote.clone(), Faults::default()));
    let host = Host {
        cache_dir: Some(world.tree("cache")),
        ..world.host()
    };
    let store = world.open_as(counted.clone(), host).unwrap();
    let report = collect(&store, counted.as_ref(), request).unwrap();
    (counted.counts().requests, report)
}

/// The number of requests to read the newest state and to list packs.
fn least(world: &World, remote: &Arc<dyn Prune>) -> u64 {
    let counted = Arc::new(Faulty::new(remote.clone(), Faults::default()));
    let host = Host {
        cache_dir: Some(world.tree("cache")),
        ..world.host()
    };
    let store: Store = world.open_as(counted.clone(), host).unwrap();
    store.state().unwrap();
    counted.counts().requests + 1
}

#[test]
fn nothing_to_do_is_the_state_and_one_listing_until_something_came() {
    let world = world();
    let remote = world.memory();
    let request = eager();
    // The first collections join and merge what the puts left.
    let mut reports = Vec::new();
    let (first, last) = loop {
        let (requests, report) = counted(&world, &remote, &request);
        if report.plan.is_empty() && report.entries.is_empty() {
            break (requests, report);
        }
        reports.push(report);
        assert!(reports.len() < 6, "{reports:?}");
    };
    let (again, told) = counted(&world, &remote, &request);
    assert_eq!(again, least(&world, &remote));
    assert!(again < first, "{again} of {first}");
    assert_eq!((&told.plan, told.live), (&last.plan, last.live));
    assert_eq!(told.held, last.held);

    // Other rules, an unnamed pack, a later day and a new entry each cause a full collection.
    let looks = |what: &str, request: &Request| {
        let (requests, report) = counted(&world, &remote, request);
        assert!(requests > again, "{what}: {requests}");
        report
    };
    let keep = Policy {
        scopes: vec![Scope {
            pattern: Pattern::new("*"),
            rules: Rules::default(),
            quota_bytes: Some(1 << 40),
            extra: Default::default(),
        }],
        ..Policy::default()
    };
    let limited = Request {
        policy: keep,
        ..request.clone()
    };
    looks("a quota", &limited);
    looks("a quota again", &limited);
    assert_eq!(counted(&world, &remote, &request).0, again);
    let tomorrow = Request {
        clock: || Timestamp::now() + SignedDuration::from_hours(25),
        ..request.clone()
    };
    assert_eq!(counted(&world, &remote, &request).0, again);
    looks("a day later", &tomorrow);
    looks("a note of tomorrow", &request);
    assert_eq!(counted(&world, &remote, &request).0, again);
    remote
        .put(&pack_key(PackId([3; 16])), vec![0; 200].into())
        .unwrap();
    let counts = counted(&world, &remote, &request);
    assert!(
        counts.0 > again && counts.1.freed_objects == 1,
        "{counts:?}"
    );
}

/// As long as something waits for its grace, there is work to do.
#[test]
fn what_is_condemned_is_looked_at_until_it_is_gone() {
    let world = world();
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    let name = "team/b/data".parse().unwrap();
    store::refs::drop_versions(&store, &name, None).unwrap();
    let mut request = eager();
    request.options.grace_secs = 3600;
    for _ in 0..4 {
        let (_, report) = counted(&world, &remote, &request);
        let (requests, _) = counted(&world, &remote, &request);
        assert!(report.held.by_grace.bytes > 0, "{report:?}");
        assert!(requests > least(&world, &remote), "{requests}");
    }
}
