//! Whether versions that the destination already has are still whole there. Missing and damaged packs are condemned, so
//! that the run sends their chunks again.
//!
//! Costs a walk over the versions' metadata on the nearer side, and a check of each pack that they need: of a bucket, a
//! listing or one request per pack, whichever takes fewer requests.

use super::ReplicateRequest;
use super::copy::{at_destination, at_source};
use super::missing::{Missing, Unreadable, is_its_own};
use super::select::Kept;
use crate::error::{ErrorKind, Result};
use crate::format::{SegmentPack, State};
use crate::index::Index;
use crate::progress::Progress;
use crate::read::Reader;
use crate::session::Relied;
use crate::sound::mend;
use crate::sound::segments::{self, Compared};
use crate::store::{Store, View};

/// The two sides of a run.
struct Sides<'s> {
    from: Reader<'s>,
    to: Reader<'s>,
}

/// The versions of `kept` that are not whole at the destination. Condemns the damaged packs that they need; a dry run
/// returns the state as it would be then.
pub(super) fn incomplete(
    from: &Store,
    to: &Store,
    request: &ReplicateRequest,
    kept: &[Kept],
    states: (&State, &State),
    progress: &dyn Progress,
) -> Result<(Vec<Kept>, Option<State>)> {
    if kept.is_empty() {
        return Ok((Vec::new(), None));
    }
    let there = opened(to, states.1).map_err(at_destination)?;
    let may_be_listed = !request.verify && from.is_far() && to.is_far();
    if may_be_listed && has_all(to, &there).map_err(at_destination)? {
        return Ok((Vec::new(), None));
    }
    let source = opened(from, states.0).map_err(at_source)?;
    let relied = Relied::new(there.index.clone());
    let sides = Sides {
        from: Reader::at(from, source.clone()),
        to: Reader::at(to, there.clone()),
    };
    let lacking = sides.lacking(kept, &relied)?;
    let bad = match request.verify {
        true => segments::check(to, &relied, Compared::Bytes)
            .and_then(|()| mend::damaged(to, &there, &relied.packs()?, progress)),
        false => mend::unsound(to, &there.state, &relied),
    }
    .map_err(at_destination)?;
    if bad.is_empty() {
        return Ok((lacking, None));
    }
    let there = match request.dry_run {
        true => mend::without(&there, &bad)?,
        false => {
            mend::condemn(to, &bad)?;
            to.view()?
        }
    };
    let relied = Relied::new(there.index.clone());
    let without = request.dry_run.then(|| there.state.clone());
    let sides = Sides {
        from: Reader::at(from, source),
        to: Reader::at(to, there),
    };
    Ok((sides.lacking(kept, &relied)?, without))
}

fn opened(store: &Store, state: &State) -> Result<View> {
    let mut view = View {
        state: state.clone(),
        index: Index::default(),
    };
    match store.open_index(state, &view.index) {
        // A collector was faster: there is a newer state.
        Err(error) if error.kind() == ErrorKind::NotFound => store.follow(&mut view)?,
        index => view.index = index?,
    }
    Ok(view)
}

/// Whether every live pack is there in its whole length, whichever version needs it. Fails when a segment is not.
fn has_all(store: &Store, view: &View) -> Result<bool> {
    let segments: Vec<_> = view.index.segments().cloned().collect();
    segments::check_offered(store, &segments, Compared::Lengths)?;
    let is_live = |pack: &SegmentPack| !view.state.condemned.contains_key(&pack.id);
    let live: Vec<SegmentPack> = view.index.packs().filter(is_live).collect();
    Ok(mend::broken(store.remote().as_ref(), &live, live.len())?.is_empty())
}

impl Sides<'_> {
    /// The versions of which the destination does not offer every chunk. Relies on the chunks that it offers.
    fn lacking(&self, kept: &[Kept], relied: &Relied) -> Result<Vec<Kept>> {
        let none = Unreadable::new();
        let is_far = self.from.store().is_far() && !self.to.store().is_far();
        let near = if is_far { &self.to } else { &self.from };
        let walk = Missing::new(near, relied, &none);
        let mut lacking = Vec::new();
        for one in kept {
            near.store().host().check_stop()?;
            let before = walk.chunks();
            let walked = match walk.version(&one.bring.version) {
                // The version is damaged at the destination. The source knows what else it needs there.
                Err(error) if is_far && is_its_own(&error) => {
                    let source = Missing::new(&self.from, relied, &none);
                    source.version(&one.bring.version).map(|()| true)
                }
                // If the source cannot read the version's metadata, the destination may.
                Err(error) if is_its_own(&error) => {
                    let there = Missing::new(&self.to, relied, &none);
                    there
                        .version(&one.bring.version)
                        .map(|()| there.chunks() > 0)
                }
                walked => walked.map(|()| walk.chunks() > before),
            };
            let is_lacking = match walked {
                Err(error) if is_its_own(&error) => true,
                walked => walked?,
            };
            if is_lacking {
                lacking.push(one.clone());
            }
        }
        Ok(lacking)
    }
}
