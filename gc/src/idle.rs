//! Idle: if a collection finds nothing to do, it leaves a note on this host, so that the next one need not look.
//!
//! If the last entry is the same, so is the state; if the listing is the same, so are the packs. What becomes garbage
//! by time alone is computed from the state each time. Other garbage (an upload that died, damage) is looked for once a
//! day. Losing the note only costs time.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::format::{State, seal, unseal};
use store::remote::Prune;
use store::{ChunkId, EntryId, PackId, Result, Store, read_regular, write_note};

use crate::plan::{Held, Plan};
use crate::report::{CollectReport, Live};
use crate::request::{Request, after};
use crate::usage::{Listed, Usage, pack_objects};

/// For how long a note replaces a look.
const SECS_MAX: u64 = 24 * 3600;
/// Most bytes of a note.
const NOTE_BYTES_MAX: u64 = 1 << 16;

/// The result of a collection that found nothing to do, and what it depends on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    entry: EntryId,
    /// A hash of the rules that were applied.
    asked: String,
    /// A hash of the listing of packs.
    packs: String,
    at: Timestamp,
    live: Live,
    unused_bytes: u64,
    kept_bytes: u64,
}

impl Note {
    /// The note that there is nothing to do at `state` and nothing waits, if `plan` says so.
    pub(crate) fn of(
        state: &State,
        usage: &Usage,
        plan: &Plan,
        live: Live,
        request: &Request,
    ) -> Option<Self> {
        let Held {
            by_grace,
            by_age,
            unused_bytes,
            kept_bytes,
        } = plan.held;
        let waits = by_grace.until.is_some()
            || by_age.until.is_some()
            || !state.condemned.is_empty()
            || !state.dropped.is_empty()
            || state.segments.values().any(|info| info.pass.is_some())
            || usage.nameless.waits();
        let is_idle = plan.is_empty() && !waits && !is_limited(state, request);
        Some(Self {
            entry: state.entry.filter(|_| is_idle)?,
            asked: asked(state, request),
            packs: listing(&usage.pack_objects),
            at: (request.clock)(),
            live,
            unused_bytes,
            kept_bytes,
        })
    }

    /// Writes the note. A failure only costs time.
    pub(crate) fn leave(&self, store: &Store) {
        if let (Some(path), Ok(text)) = (path(store), seal(self)) {
            drop(write_note(&path, &text));
        }
    }

    /// The report of a collection that need not look, because an earlier one left a note.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) fn since(
        store: &Store,
        prune: &dyn Prune,
        request: &Request,
    ) -> Result<Option<CollectReport>> {
        let found = path(store).and_then(|path| read_regular(&path, NOTE_BYTES_MAX).ok());
        let Some(note) = found.and_then(|text| unseal::<Self>("idle", &text).ok()) else {
            return Ok(None);
        };
        let now = (request.clock)();
        if now < note.at || after(note.at, SECS_MAX) < now {
            return Ok(None);
        }
        let state = store.state()?;
        store.check_writable(&state)?;
        if state.entry != Some(note.entry)
            || asked(&state, request) != note.asked
            || !(request.policy.in_force(&state).drops(&state, now)?).is_empty()
        {
            return Ok(None);
        }
        let packs = state.segments.values().map(|info| u64::from(info.packs));
        if listing(&pack_objects(prune, packs.sum())?) != note.packs {
            return Ok(None);
        }
        let held = Held {
            unused_bytes: note.unused_bytes,
            kept_bytes: note.kept_bytes,
            ..Held::default()
        };
        Ok(Some(CollectReport {
            plan: Plan {
                base: state.number,
                held,
                ..Plan::default()
            },
            dry_run: request.dry_run,
            held,
            live: note.live,
            ..CollectReport::default()
        }))
    }
}

/// Whether versions may be dropped because of their bytes, which the state alone does not tell.
fn is_limited(state: &State, request: &Request) -> bool {
    let policy = request.policy.in_force(state);
    policy.bytes_max().is_some()
        || (policy.scopes.iter().chain(&policy.given.scope))
            .any(|scope| scope.quota_bytes.is_some())
}

fn asked(state: &State, request: &Request) -> String {
    let asked = (request.policy.in_force(state), request.options);
    ChunkId::of(format!("{asked:?}").as_bytes()).to_string()
}

fn listing(packs: &[Listed<PackId>]) -> String {
    let mut packs: Vec<_> = packs.iter().map(|pack| (pack.id, pack.bytes)).collect();
    packs.sort_unstable();
    let mut bytes = Vec::with_capacity(packs.len() * 24);
    for (id, len) in packs {
        bytes.extend_from_slice(&id.0);
        bytes.extend_from_slice(&len.to_le_bytes());
    }
    ChunkId::of(&bytes).to_string()
}

fn path(store: &Store) -> Option<PathBuf> {
    let dir = store.host().cache_dir_of(store.format().id)?;
    Some(dir.join("idle"))
}
