//! Size limits and the policy of a store: which versions are evicted, and which never are.

use gc::CollectReport;
use gc::policy::{Pattern, Rules, Scope};
use jiff::Timestamp;
use jiff::civil::Date;
use store::format::use_key;
use store::{VersionId, access};
use support::trees;

use crate::collect::{eager, keys, run, world};
use crate::stores::noise;
use crate::world::World;

#[test]
fn a_limit_of_size_takes_the_oldest_first() {
    let world = world();
    let remote = world.memory();
    let mut request = eager();
    request.policy.store_bytes_max = Some(3_600_000);
    let report = run(&world, &remote, &request).unwrap();
    let dropped: Vec<_> = report.plan.drop.iter().map(|drop| drop.version).collect();
    assert_eq!(dropped, [1], "{:?}", report.plan.drop);
    let left = world.check(remote, "limit");
    assert_eq!(left, ["project/a/data@2", "team/b/data@1"]);
}

/// However small the limit, recently used versions are evicted before the newest version of a ref.
#[test]
fn a_limit_of_size_never_takes_the_newest_version() {
    let world = world();
    let remote = world.memory();
    let mut request = eager();
    request.policy.store_bytes_max = Some(1);
    let read = use_key(
        access::day(Timestamp::now()),
        VersionId::of(&"project/a/data".parse().unwrap(), 1),
    );
    remote.touch(&read).unwrap();
    let report = run(&world, &remote, &request).unwrap();
    let dropped: Vec<_> = report.plan.drop.iter().map(|drop| drop.version).collect();
    assert_eq!(dropped, [1], "{:?}", report.plan.drop);
    let over: Vec<_> = report.over.iter().map(|over| over.bytes_max).collect();
    assert_eq!(over, [1], "{:?}", report.over);
    let left = world.check(remote.clone(), "newest");
    assert_eq!(left, ["project/a/data@2", "team/b/data@1"]);
    request.policy.given.may_drop_newest = true;
    run(&world, &remote, &request).unwrap();
    assert_eq!(world.check(remote, "none"), [""; 0]);
}

/// Evicting a version whose bytes others need would free nothing, so it stays.
#[test]
fn a_limit_of_size_spares_what_would_free_nothing() {
    let mut world = World::new();
    for (name, target) in [
        ("a", "project/a/data"),
        ("b", "project/a/data"),
        ("a", "team/b/data"),
    ] {
        let seed = u64::from(name.as_bytes()[0]);
        trees::write(&world.tree(name).join("f"), &noise(seed, 200_000));
        world.prepare(name, target);
    }
    let remote = world.memory();
    let mut request = eager();
    request.policy.scopes = vec![Scope {
        pattern: Pattern::new("project/*"),
        rules: Rules::default(),
        quota_bytes: Some(1),
        extra: store::format::Extra::new(),
    }];
    let report = run(&world, &remote, &request).unwrap();
    assert_eq!(report.plan.drop, []);
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &"team/b/data".parse().unwrap(), None).unwrap();
    let report = run(&world, &remote, &request).unwrap();
    assert_eq!(report.plan.drop.len(), 1, "{:?}", report.plan.drop);
    let left = world.check(remote, "sharing");
    assert_eq!(left, ["project/a/data@2"]);
}

/// The store's own policy applies to the collectors of all hosts.
#[test]
fn the_policy_of_the_store_comes_before_that_of_the_host() {
    let world = world();
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    let keep = |keep_last| Scope {
        pattern: Pattern::new("project/*"),
        rules: Rules {
            keep_last: Some(keep_last),
            ..Rules::default()
        },
        quota_bytes: None,
        extra: store::format::Extra::new(),
    };
    let policy = |keep_last| store::format::Policy {
        keep: vec![keep(keep_last)],
        bytes_max: None,
        extra: store::format::Extra::new(),
    };
    store::policy::set(&store, |_| Ok(policy(9))).unwrap();
    let mut request = eager();
    request.policy.scopes = vec![keep(1)];
    let report = run(&world, &remote, &request).unwrap();
    assert_eq!(report.plan.drop, []);
    store::policy::set(&store, |_| Ok(policy(1))).unwrap();
    request.policy.scopes = Vec::new();
    let report = run(&world, &remote, &request).unwrap();
    assert_eq!(report.plan.drop.len(), 1, "{:?}", report.plan.drop);
}

/// Among versions of the same day, the last used one goes last. A use on a day before the other's put does not help.
#[test]
fn a_limit_of_size_spares_what_was_used_last() {
    let world = world();
    let remote = world.memory();
    let mut request = eager();
    request.policy.store_bytes_max = Some(3_600_000);
    let name = "project/a/data".parse().unwrap();
    let used = |number: u64, day: Date| {
        let key = use_key(day, VersionId::of(&name, number));
        remote.touch(&key).unwrap();
        key
    };
    let today = access::day(Timestamp::now());
    used(1, today.yesterday().unwrap());
    request.dry_run = true;
    request.policy.given.may_drop_newest = true;
    let report = run(&world, &remote, &request).unwrap();
    let dropped = |report: &CollectReport| -> Vec<_> {
        let drops = report.plan.drop.iter();
        drops.map(|drop| (drop.version, drop.last_use)).collect()
    };
    assert_eq!(dropped(&report), [(1, Some(today))]);
    let store = world.open(remote.clone()).unwrap();
    let spec = "project/a/data@1:sub/deep/3".parse().unwrap();
    store::cat(&store, &spec, &(0..1), &mut |_| Ok(())).unwrap();
    let stays = use_key(today, VersionId::of(&name, 1));
    request.dry_run = false;
    let report = run(&world, &remote, &request).unwrap();
    assert_eq!(dropped(&report), [(2, Some(today))]);
    assert_eq!(keys(&*remote, "uses"), std::slice::from_ref(&stays));
    // Records of uses of a dropped version go with the next run.
    used(2, today);
    run(&world, &remote, &request).unwrap();
    assert_eq!(keys(&*remote, "uses"), [stays]);
    let left = world.check(remote, "limit");
    assert_eq!(left, ["project/a/data@1", "team/b/data@1"]);
}

/// A quota counts bytes that others have already stored, in a dry run as in a put.
#[test]
fn a_dry_run_counts_what_is_there_towards_a_quota() {
    let mut world = World::new();
    trees::write(&world.tree("in").join("file"), &noise(1, 300_000));
    world.prepare("in", "team/b/data");
    let store = world.open(world.memory()).unwrap();
    store::policy::set(&store, |_| {
        Ok(store::format::Policy {
            keep: vec![Scope {
                pattern: Pattern::new("project/small"),
                rules: Rules::default(),
                quota_bytes: Some(200_000),
                extra: store::format::Extra::new(),
            }],
            bytes_max: None,
            extra: store::format::Extra::new(),
        })
    })
    .unwrap();
    for dry_run in [true, false] {
        let request = store::PutRequest {
            dry_run,
            ..crate::stores::request(&world.tree("in"), "project/small/data")
        };
        let error = store::put(&store, &request, &store::Unwatched).unwrap_err();
        assert_eq!(
            error.kind(),
            store::ErrorKind::Denied,
            "{dry_run}: {error:?}"
        );
    }
}
