//! Lookups: finds a chunk in a plain frame if any live segment has one there, otherwise in a delta that stands.
//!
//! A delta stands while each of its bases is offered in a plain frame. A chunk in a delta that does not stand is not
//! offered, just like a chunk in a condemned pack. So whoever relies on a chunk, or needs it, also relies on its bases.

use super::{Found, Index, LiveSegment, Location, Position, open};
use crate::error::{Error, Result};
use crate::format::pack_key;
use crate::id::ChunkId;

impl Index {
    /// Returns the location of a chunk, or `None` when no live segment offers it.
    pub fn find(&self, id: &ChunkId) -> Result<Option<Location>> {
        let found = self.locate_surely(id, true)?;
        found.map(|found| self.place(found)).transpose()
    }

    /// Returns the position of a chunk, or `None` when no live segment offers it. A chunk that is stored twice has only
    /// one position: the one that [`Self::find`] uses.
    ///
    /// # Errors
    /// Corrupt, when a segment refers to something outside of itself.
    pub fn position(&self, id: &ChunkId) -> Result<Option<Position>> {
        Ok(self.locate_surely(id, true)?.map(|(position, _)| position))
    }

    /// Returns the location of a chunk in a plain frame, as a base requires.
    ///
    /// # Errors
    /// Corrupt, when a segment refers to something outside of itself.
    pub fn find_plain(&self, id: &ChunkId) -> Result<Option<Location>> {
        let found = self.locate_surely(id, false)?;
        found.map(|found| self.place(found)).transpose()
    }

    /// Returns the position of a chunk in a plain frame, or `None` when no live segment offers one.
    ///
    /// # Errors
    /// Corrupt, when a segment refers to something outside of itself.
    pub fn position_plain(&self, id: &ChunkId) -> Result<Option<Position>> {
        Ok(self.locate_surely(id, false)?.map(|(position, _)| position))
    }

    /// Like [`Self::position`], but also marks the chunk and its bases as relied on. Returns whether the chunk is in a
    /// delta.
    pub fn rely(&self, id: &ChunkId) -> Result<Option<(Position, bool)>> {
        let Some((at, _)) = self.locate(id, true)? else {
            return Ok(None);
        };
        let bases = self.bases_of(at)?;
        for base in &bases {
            self.rely_on_plain(base)?;
        }
        self.mark_relied(at);
        Ok(Some((at, !bases.is_empty())))
    }

    /// Marks a chunk as relied on to become a base, for which it must be in a plain frame. Returns whether it is in
    /// one.
    ///
    /// # Errors
    /// Corrupt, when a segment refers to something outside of itself.
    pub fn rely_on_plain(&self, id: &ChunkId) -> Result<bool> {
        let found = self.locate_surely(id, false)?;
        if let Some((at, _)) = found {
            self.mark_relied(at);
        }
        Ok(found.is_some())
    }

    /// Whether a live delta has this chunk as a base.
    ///
    /// # Errors
    /// Corrupt, when a segment refers to something outside of itself.
    pub fn is_base(&self, id: &ChunkId) -> Result<bool> {
        for live in &self.segments {
            if live.segment.wants_as_base(id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the bases of the frame at `location`, which holds the chunk at `position`.
    ///
    /// # Errors
    /// Corrupt, when a segment refers to something outside of itself.
    pub fn bases(&self, position: Position, location: &Location) -> Result<Vec<ChunkId>> {
        match location.is_delta {
            true => self.bases_of(position),
            false => Ok(Vec::new()),
        }
    }

    /// Explains in words why a chunk is not offered.
    pub fn lack(&self, id: &ChunkId) -> String {
        match self.fallen(id) {
            Ok(Some((delta, base))) => format!(
                "the frame at offset {} of {} is the difference to chunk {base}, which no live segment offers in a plain frame",
                delta.frame_offset,
                pack_key(delta.pack)
            ),
            _ => "no live segment offers it".to_owned(),
        }
    }

    /// If a chunk is in a delta that does not stand, returns the delta and the base that is missing.
    ///
    /// # Errors
    /// Corrupt, when a segment refers to something outside of itself.
    pub fn fallen(&self, id: &ChunkId) -> Result<Option<(Location, ChunkId)>> {
        let mut deltas = Vec::new();
        self.first_of(0..self.segments.len(), id, None, &mut deltas)?;
        for delta in deltas {
            if let Some(base) = self.fallen_base(delta.0)? {
                return Ok(Some((self.place(delta)?, base)));
            }
        }
        Ok(None)
    }

    fn place(&self, found: Found) -> Result<Location> {
        match found {
            (_, Some(location)) => Ok(location),
            (at, None) => Ok(self.at(at)?.1),
        }
    }

    fn bases_of(&self, at: Position) -> Result<Vec<ChunkId>> {
        match self.segments.get(at.segment) {
            Some(live) if live.segment.has_deltas() => live.segment.bases_at(at.entry),
            _ => Ok(Vec::new()),
        }
    }

    fn mark_relied(&self, at: Position) {
        if let Some(live) = self.segments.get(at.segment) {
            live.segment.relied.set(at.entry);
        }
    }

    /// Like [`Self::locate`], for chunks that should exist: if a cached table leads to nothing, all segments are
    /// searched.
    fn locate_surely(&self, id: &ChunkId, or_delta: bool) -> Result<Option<Found>> {
        let found = self.locate(id, or_delta)?;
        if found.is_some() || !self.hash_index.is_by_file() {
            return Ok(found);
        }
        let mut deltas = Vec::new();
        let found = self.first_of(0..self.segments.len(), id, None, &mut deltas)?;
        let found = match found.is_none() && or_delta {
            true => self.standing(deltas)?,
            false => found,
        };
        if found.is_some() {
            self.hash_index.forget();
        }
        Ok(found)
    }

    /// Returns the chunk in a plain frame of the first segment that offers one; searches segments that are read in
    /// place only if no other has it. If there is none and `or_delta` is set, returns the chunk in a delta that stands.
    fn locate(&self, id: &ChunkId, or_delta: bool) -> Result<Option<Found>> {
        let (mut best, mut deltas): (Option<Found>, _) = (None, Vec::new());
        self.touch_all(self.hash_index.alone(), id);
        self.hash_index.ask(id, &mut |number| {
            let found = self.first_of([number].into_iter(), id, best.as_ref(), &mut deltas)?;
            best = found.or(best);
            Ok::<(), Error>(())
        })?;
        let unguided = self.hash_index.unguided();
        if !unguided.is_empty() {
            let unguided = unguided.iter().copied();
            let found = self.first_of(unguided, id, best.as_ref(), &mut deltas)?;
            best = found.or(best);
            self.hash_index.asked_each(|own| {
                let own = own.iter().filter_map(|number| self.segments.get(*number));
                own.map(|LiveSegment { segment, .. }| {
                    (segment.id, segment.layout.ids(segment.bytes()))
                })
                .collect()
            });
        }
        if best.is_none() && !self.in_place.is_empty() {
            // All at once, because the time is spent on requests. None of these segments has deltas.
            let ask =
                |number: &usize| self.first_of([*number].into_iter(), id, None, &mut Vec::new());
            let found = open::at_once(&self.in_place, ask)?;
            best = found.into_iter().flatten().next();
        }
        match best.is_none() && or_delta {
            true => self.standing(deltas),
            false => Ok(best),
        }
    }

    /// Brings what searches for `id` in several of these segments need into the processor's cache, all at once.
    fn touch_all(&self, numbers: &[usize], id: &ChunkId) {
        if numbers.len() < 2 {
            return;
        }
        for LiveSegment { segment, .. } in numbers.iter().filter_map(|at| self.segments.get(*at)) {
            segment.layout.touch(segment.bytes(), id);
        }
    }

    /// Returns the chunk in a plain frame of the first of these segments that offers one and precedes the segment of
    /// `best`. Adds the places where it is in a delta to `deltas`.
    fn first_of(
        &self,
        numbers: impl Iterator<Item = usize>,
        id: &ChunkId,
        best: Option<&Found>,
        deltas: &mut Vec<Found>,
    ) -> Result<Option<Found>> {
        let limit = best.map_or(usize::MAX, |(at, _)| at.segment);
        for number in numbers.take_while(|number| *number < limit) {
            if let Some(live) = self.segments.get(number)
                && let Some((entry, location)) = live.locate(id)?
            {
                let position = Position {
                    segment: number,
                    entry,
                };
                if !live.segment.is_delta(entry)? {
                    return Ok(Some((position, location)));
                }
                deltas.push((position, location));
            }
        }
        Ok(None)
    }

    /// Returns the first of these deltas that stands.
    fn standing(&self, deltas: Vec<Found>) -> Result<Option<Found>> {
        for delta in deltas {
            if self.fallen_base(delta.0)?.is_none() {
                return Ok(Some(delta));
            }
        }
        Ok(None)
    }

    /// Returns the first base of a delta that no plain frame offers; `None` if the delta stands.
    fn fallen_base(&self, at: Position) -> Result<Option<ChunkId>> {
        for base in self.bases_of(at)? {
            if self.locate_surely(&base, false)?.is_none() {
                return Ok(Some(base));
            }
        }
        Ok(None)
    }
}
