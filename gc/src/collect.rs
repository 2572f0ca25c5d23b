//! A collection from end to end: look, plan, carry out; and again, when others changed the state.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rayon::prelude::*;
use store::access::Uses;
use store::format::{RefName, State, Version, pack_key};
use store::log::{Outside, System};
use store::read::Reader;
use store::remote::Prune;
use store::{Error, Kind, Result, Store, View};

use crate::apply::{Applied, Session};
use crate::census::Census;
use crate::evict::Size;
use crate::lately;
use crate::mark::{Marker, may_be_moved, reached_by};
use crate::plan::{Options, Plan, Uploads, plan, sizes};
use crate::policy::{Drop, Policy};
use crate::report::{Live, Over, Report};

/// How long plans may come to nothing, one after the other.
const PATIENCE: Duration = Duration::from_mins(5);
/// How many states in a row may be gone before they were looked at.
const LOOKS_MAX: u32 = 32;

/// What to collect, and how far.
#[derive(Clone, Debug)]
pub struct Request {
    /// What goes.
    pub policy: Policy,
    /// How far.
    pub options: Options,
    /// Plan only.
    pub dry_run: bool,
    /// Stop in good order after this long.
    pub time_limit: Option<Duration>,
    /// The clock that ages and graces are measured by.
    pub clock: fn() -> Timestamp,
    /// The clock that the time limit is measured by, from any beginning; [`steady`] but in tests.
    pub elapsed: fn() -> Duration,
}

/// When to stop, by a request's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    elapsed: fn() -> Duration,
    end: Option<Duration>,
}

impl Deadline {
    fn of(request: &Request) -> Self {
        let end = |limit| (request.elapsed)().checked_add(limit);
        Self {
            elapsed: request.elapsed,
            end: request.time_limit.and_then(end),
        }
    }

    /// Whether it is time to stop in good order.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| (self.elapsed)() >= end)
    }
}

/// Time since this was asked first, by a clock that is never set.
pub fn steady() -> Duration {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGAN.elapsed()
}

/// What was seen of one state, and what to do about it.
pub(crate) struct Planned<'s> {
    pub(crate) view: View,
    pub(crate) marker: Marker<'s>,
    pub(crate) plan: Plan,
    /// Bytes of listed objects, by key.
    pub(crate) sizes: HashMap<String, u64>,
    over: Vec<Over>,
    live: Live,
    shared: BTreeMap<RefName, u64>,
}

/// Collects the garbage of `store`, whose objects `prune` may delete.
///
/// # Errors
/// Anything that cannot be read, naming it: then nothing was deleted that this run condemned. Conflict,
/// when others kept changing the state.
pub fn collect(store: &Store, prune: &dyn Prune, request: &Request) -> Result<Report> {
    store.format().check_writable()?;
    let began = Instant::now();
    let deadline = Deadline::of(request);
    let mut report = Report {
        dry_run: request.dry_run,
        ..Report::default()
    };
    let mut uploads = Uploads::default();
    let patience = (request.elapsed)().checked_add(PATIENCE);
    for tries in 1.. {
        let planned = prepare(store, prune, request, &mut uploads)?;
        report.plan = planned.plan.clone();
        report.held = planned.plan.held;
        report.live = planned.live;
        report.over.clone_from(&planned.over);
        report.shared.clone_from(&planned.shared);
        if !request.dry_run {
            let mut session = Session::new(store, prune, request, planned, deadline);
            let applied = session.run(&mut report)?;
            uploads.abandoned.extend(session.into_abandoned());
            if applied == Applied::Void {
                report.plans_void += 1;
                let is_over = patience.is_some_and(|end| (request.elapsed)() >= end);
                if !is_over && !deadline.is_over() {
                    System.pause(tries);
                    continue;
                }
                // What was done stands, and the next run goes on.
                if is_over && report.entries.is_empty() && report.freed_objects == 0 {
                    break;
                }
            }
            report.stopped = applied != Applied::Done;
        }
        report.secs = began.elapsed().as_secs_f64();
        return Ok(report);
    }
    Err(Error::conflict(format!(
        "gc: others changed the state during all of {} plans in a row",
        report.plans_void
    ))
    .hint("run it again when fewer collectors run; a longer --min-age leaves what others upload alone"))
}

/// Looks at the newest state until a look succeeds that nobody disturbed.
fn prepare<'s>(
    store: &'s Store,
    prune: &dyn Prune,
    request: &Request,
    uploads: &mut Uploads,
) -> Result<Planned<'s>> {
    for tries in 1.. {
        let view = store.view()?;
        let base = view.state.number;
        match look(store, prune, request, uploads, view) {
            // Another collector may have moved what was looked at; in a state that stands still it is damage.
            Err(error)
                if may_be_moved(&error) && tries < LOOKS_MAX && store.state()?.number != base => {}
            looked => return looked,
        }
    }
    Err(Error::conflict("gc: the state never stood still"))
}

fn look<'s>(
    store: &'s Store,
    prune: &dyn Prune,
    request: &Request,
    uploads: &mut Uploads,
    view: View,
) -> Result<Planned<'s>> {
    let now = (request.clock)();
    verify_segments(&view)?;
    let reader = Reader::at(store, view.clone());
    let policy = request.policy.in_force(&view.state);
    let mut drops = policy.drops(&view.state, now);
    let uses = Uses::read(prune)?;
    let size = Size {
        store,
        reader: &reader,
        view: &view,
        uses: &uses,
        now,
    };
    let over = size.evict(&policy, &mut drops)?;
    let (marker, live, shared) = mark(store, &reader, &view, &drops)?;
    let mut census = Census::list(prune, &view.state)?;
    census.uses = uses;
    census.count(&marker, &view.state)?;
    check_packs(prune, &census)?;
    if !request.dry_run {
        census.compare_clocks(prune, &view.state)?;
    }
    if uploads.first.is_none() {
        uploads.first = Some(sizes(&census).into_keys().collect());
    }
    let plan = plan(&view.state, &census, &drops, uploads, &request.options, now);
    Ok(Planned {
        view,
        marker,
        plan,
        sizes: sizes(&census),
        over,
        live,
        shared,
    })
}

/// A flipped bit in a segment could lead to the wrong pack, so that is found out before anything is planned.
fn verify_segments(view: &View) -> Result<()> {
    let segments: Vec<_> = view.index.segments().collect();
    segments
        .par_iter()
        .try_for_each(|segment| segment.damage().map_or(Ok(()), Err))
}

/// A pack that lives and is not there: deleting anything now might take the last copy of what was in it.
fn check_packs(prune: &dyn Prune, census: &Census) -> Result<()> {
    let listed: HashSet<_> = census.pack_objects.iter().map(|object| object.id).collect();
    let missing = census
        .packs
        .iter()
        .filter(|usage| usage.live_chunks > 0 && !listed.contains(&usage.pack));
    for usage in missing {
        let key = pack_key(usage.pack);
        prune.size(&key).map_err(|error| match error.kind() {
            Kind::NotFound => Error::corrupt(format!("{key}: is missing, and live versions need it"))
                .hint("run `store verify` to see which, then put the originals again or drop the versions")
                .because(error),
            _ => error,
        })?;
    }
    Ok(())
}

/// Marks what stays, class after class, so that each byte is explained by the first that needs it.
fn mark<'s>(
    store: &'s Store,
    reader: &Reader<'s>,
    view: &View,
    drops: &BTreeSet<Drop>,
) -> Result<(Marker<'s>, Live, BTreeMap<RefName, u64>)> {
    let mut marker = Marker::new(store, view);
    if let Some(watched) = reached_by_drops(store, reader, view, drops) {
        marker = marker.watching(watched);
    }
    let mut live = Live::default();
    let mut shared = BTreeMap::new();
    let classes = classes(&view.state, drops);
    let mut held = Vec::new();
    for class in &classes {
        let before = marker.stored_bytes();
        for (name, number, version) in class {
            let watched = marker.watched_bytes();
            marker.version(reader, &format!("{name}@{number}"), version)?;
            live.versions += 1;
            match marker.watched_bytes() - watched {
                0 => {}
                bytes => *shared.entry((*name).clone()).or_default() += bytes,
            }
        }
        held.push(marker.stored_bytes() - before);
    }
    if let [newest, older, pinned] = held.as_slice() {
        (
            live.newest_bytes,
            live.by_retention_bytes,
            live.by_pins_bytes,
        ) = (*newest, *older, *pinned);
    }
    live.chunks = marker.reached().count();
    live.refs = view
        .state
        .refs
        .values()
        .filter(|known| !known.versions.is_empty())
        .count() as u64;
    Ok((marker, live, shared))
}

/// A version of a ref, by its name and number.
pub(crate) type Named<'v> = (&'v RefName, u64, &'v Version);

/// The versions that stay: the newest of each ref, older ones, pinned ones.
fn classes<'v>(state: &'v State, drops: &BTreeSet<Drop>) -> [Vec<Named<'v>>; 3] {
    let dropped = names(drops);
    let mut classes = [const { Vec::new() }; 3];
    let [newest, older, pinned] = &mut classes;
    for (name, number, version) in versions(state) {
        if dropped.contains(&(name, number)) {
            continue;
        }
        let last = state
            .refs
            .get(name)
            .and_then(|known| known.versions.last_key_value());
        let is_newest = last.is_some_and(|(last, _)| *last == number);
        match (version.pinned, is_newest) {
            (true, _) => pinned.push((name, number, version)),
            (false, true) => newest.push((name, number, version)),
            (false, false) => older.push((name, number, version)),
        }
    }
    classes
}

pub(crate) fn names(drops: &BTreeSet<Drop>) -> HashSet<(&RefName, u64)> {
    let names = drops.iter().map(|drop| (&drop.name, drop.version));
    names.collect()
}

pub(crate) fn versions(state: &State) -> impl Iterator<Item = Named<'_>> {
    state.refs.iter().flat_map(|(name, known)| {
        known
            .versions
            .iter()
            .map(move |(number, version)| (name, *number, version))
    })
}

/// What the versions that go now, and those that went lately, reach; none when there are none.
fn reached_by_drops(
    store: &Store,
    reader: &Reader<'_>,
    view: &View,
    drops: &BTreeSet<Drop>,
) -> Option<store::index::Marks> {
    // Damage far back in the log is for a verification to name; here it makes a report shorter.
    let gone = lately::dropped(store, &view.state).unwrap_or_default();
    let going = drops
        .iter()
        .filter_map(|drop| view.state.version(&drop.name, Some(drop.version)).ok())
        .map(|(_, version)| version);
    let versions = || going.clone().chain(&gone);
    versions().next()?;
    Some(reached_by(store, reader, view, versions()))
}
