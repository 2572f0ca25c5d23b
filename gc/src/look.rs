//! Look: one state, what is live in it, and what to do about the rest.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use store::access::Uses;
use store::format::{RefName, State, pack_key, segment_key};
use store::index::check_segments;
use store::log::witness;
use store::read::Reader;
use store::remote::Prune;
use store::{Error, ErrorKind, Remedy, Result, Store, View};

use crate::clock::Clock;
use crate::idle::Note;
use crate::limits::Size;
use crate::mark::{Marker, may_be_moved, reached_by};
use crate::nameless::checkpoints_left;
use crate::plan::{Plan, Uploads, plan};
use crate::policy::Drop;
use crate::recent_drops;
use crate::report::{Live, Over};
use crate::request::Request;
use crate::usage::{Sizes, Usage};
use crate::versions::{Class, each_of};

/// How many states in a row may become outdated during a look.
const LOOKS_MAX: u32 = 32;

/// What was found in one state, and what to do about it.
pub(crate) struct Planned<'s> {
    pub(crate) view: View,
    pub(crate) clock: Clock,
    pub(crate) marker: Marker<'s>,
    pub(crate) plan: Plan,
    pub(crate) sizes: Sizes,
    pub(crate) over: Vec<Over>,
    pub(crate) live: Live,
    pub(crate) shared: BTreeMap<RefName, u64>,
    /// The note for the next run, if there was nothing to do.
    pub(crate) idle: Option<Note>,
}

/// Looks at the newest state, again until no other collector interferes.
pub(crate) fn look<'s>(
    store: &'s Store,
    prune: &dyn Prune,
    request: &Request,
    uploads: &mut Uploads,
) -> Result<Planned<'s>> {
    let mut clock = Clock::own(request);
    for tries in 1.. {
        // DESIGN, collector 1: evidence of loss is an error here, and ends the run.
        let view = store.view()?;
        store.check_writable(&view.state)?;
        let base = view.state.number;
        match look_at(store, prune, (request, &mut clock), uploads, view) {
            // By the right clock, other versions are dropped.
            Ok(None) => {}
            // Another collector may have moved objects meanwhile. If the state has not changed, it is damage.
            Err(error)
                if may_be_moved(&error) && tries < LOOKS_MAX && store.state()?.number != base => {}
            Ok(Some(planned)) => return Ok(planned),
            Err(error) => return Err(error),
        }
    }
    Err(Error::conflict("gc: the state never stood still"))
}

fn look_at<'s>(
    store: &'s Store,
    prune: &dyn Prune,
    (request, clock): (&Request, &mut Clock),
    uploads: &mut Uploads,
    view: View,
) -> Result<Option<Planned<'s>>> {
    let now = clock.now();
    // A flipped bit in a segment could lead to the wrong pack, so segments are checked before anything is planned.
    check_segments(&view.index.segments().collect::<Vec<_>>())?;
    let reader = Reader::at(store, view.clone());
    let policy = request.policy.in_force(&view.state);
    let mut drops = policy.drops(&view.state, now)?;
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
    let mut usage = Usage::list(prune, &view.state)?;
    usage.nameless.uses = uses;
    usage.whole_pack_bytes = store.portions().pack_bytes.into();
    usage.count(&marker, &view.state)?;
    check_listed(prune, &view.state, &usage)?;
    check_packs(prune, &usage)?;
    let strange = strange(&view.state, &usage);
    // Objects that no entry names will be deleted, so first check that they belong to this store and that its log is
    // whole.
    if let Some(witness) = witness::ask(prune, &view.state, &strange)? {
        return Err(witness.damage);
    }
    if !request.dry_run && clock.is_set_back(store, prune)? {
        return Ok(None);
    }
    let now = clock.now();
    usage.ahead = clock.ahead_of_store();
    (uploads.first).get_or_insert_with(|| strange.into_iter().collect());
    usage.nameless.layers = layers(store, &view.state, &usage)?;
    let plan = plan(&view.state, &usage, &drops, uploads, &request.options, now)?;
    let is_told = over.is_empty() && shared.is_empty();
    let idle = Note::of(&view.state, &usage, &plan, live, request).filter(|_| is_told);
    Ok(Some(Planned {
        view,
        clock: *clock,
        marker,
        plan,
        sizes: usage.into_sizes(),
        over,
        live,
        shared,
        idle,
    }))
}

/// The checkpoints that the remaining ones build on.
fn layers(store: &Store, state: &State, usage: &Usage) -> Result<HashSet<u64>> {
    let left = checkpoints_left(&usage.nameless.checkpoints, state);
    let mut layers = HashSet::new();
    if usage.nameless.checkpoints.len() > left.len() {
        for number in left {
            layers.extend(store.layers_of(number)?);
        }
    }
    Ok(layers)
}

/// Fails when a live segment is missing of which this host has a copy: nobody else can read what it names.
fn check_listed(prune: &dyn Prune, state: &State, usage: &Usage) -> Result<()> {
    let listed: HashSet<_> = (usage.segment_objects.iter())
        .map(|object| object.id)
        .collect();
    for id in state.segments.keys().filter(|id| !listed.contains(id)) {
        let key = segment_key(*id);
        prune.size(&key).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::corrupt(format!("{key}: is missing"))
                .hint(Remedy::RepairSegments)
                .because(error),
            _ => error,
        })?;
    }
    Ok(())
}

/// Fails when a live pack is missing: deleting anything now might destroy the last copy of its content.
fn check_packs(prune: &dyn Prune, usage: &Usage) -> Result<()> {
    let listed: HashSet<_> = usage.pack_objects.iter().map(|object| object.id).collect();
    let missing = usage
        .packs
        .iter()
        .filter(|usage| usage.live_chunks > 0 && !listed.contains(&usage.pack));
    for usage in missing {
        let key = pack_key(usage.pack);
        prune.size(&key).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                Error::corrupt(format!("{key}: is missing, and live versions need it"))
                    .hint(Remedy::VerifyThenPutOrDrop)
                    .because(error)
            }
            _ => error,
        })?;
    }
    Ok(())
}

/// Keys of packs and segments that no entry names.
fn strange(state: &State, usage: &Usage) -> Vec<String> {
    let packs = usage.strange_packs(state).map(|pack| pack_key(pack.id));
    let segments = (usage.strange_segments(state)).map(|segment| segment_key(segment.id));
    packs.chain(segments).collect()
}

/// Marks what stays, class by class, so that each byte is attributed to the first class that needs it.
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
    let mut held = Vec::new();
    for class in Class::ALL {
        let before = marker.stored_bytes();
        each_of(&view.state, class, drops, &mut |name, number, version| {
            let watched = marker.watched_bytes();
            marker.version(reader, &format!("{name}@{number}"), version)?;
            live.versions += 1;
            match marker.watched_bytes() - watched {
                0 => {}
                bytes => *shared.entry(name.clone()).or_default() += bytes,
            }
            Ok(())
        })?;
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
    live.refs = view.state.refs.sums().values().map(|sums| sums.refs).sum();
    Ok((marker, live, shared))
}

/// What is reached by versions that are being dropped or were dropped recently; none, if there are none.
fn reached_by_drops(
    store: &Store,
    reader: &Reader<'_>,
    view: &View,
    drops: &BTreeSet<Drop>,
) -> Option<store::index::Marks> {
    // Verification reports damage far back in the log. Here it only makes a report shorter.
    let gone = recent_drops::dropped(store, &view.state).unwrap_or_default();
    let going = drops
        .iter()
        .filter_map(|drop| view.state.version(&drop.name, Some(drop.version)).ok())
        .map(|(_, version)| version);
    let going: Vec<_> = going.collect();
    let versions = || going.iter().chain(&gone);
    versions().next()?;
    Some(reached_by(store, reader, view, versions()))
}
