//! Plans without a walk: for a single file, and for no change at all.

use std::fs::File;

use super::{Counts, Lies, ListWriter, Made, Op, Overruled, Phase, Thing, Why};
use crate::error::Result;
use crate::format::{Content, Time};
use crate::host::pool::PoolKey;
use crate::host::walk::Stat;

/// Plans one file or symlink under `name`, where nothing is.
pub(in crate::materialize) fn alone(
    name: &[u8],
    thing: Thing,
    (plan, record): (File, File),
) -> Result<Made> {
    let path = [name.to_vec()];
    let mut counts = Counts {
        steps: [1, 0, 0, 0],
        ..Counts::default()
    };
    match &thing {
        Thing::File { key, .. } => (counts.files, counts.bytes) = (1, key.content.size),
        _ => counts.symlinks = 1,
    }
    let mut records = ListWriter::new(record)?;
    records.push(&path, &thing)?;
    let mut steps = ListWriter::new(plan)?;
    steps.push(&path, &Op::Make(thing, Phase::New, true))?;
    made(steps, records, counts)
}

/// Plans no step.
pub(in crate::materialize) fn nothing((plan, record): (File, File)) -> Result<Made> {
    made(
        ListWriter::new(plan)?,
        ListWriter::new(record)?,
        Counts::default(),
    )
}

/// Plans no step, because the destination itself stays as it is.
pub(in crate::materialize) fn kept(why: Why, (plan, record): (File, File)) -> Result<Made> {
    let mut steps = ListWriter::new(plan)?;
    steps.push(&[], &Op::Keep(why))?;
    made(steps, ListWriter::new(record)?, Counts::default())
}

fn made(steps: ListWriter<Op>, records: ListWriter<Thing>, counts: Counts) -> Result<Made> {
    let (_, plan) = steps.finish()?;
    let (record_sum, record) = records.finish()?;
    Ok(Made {
        plan,
        record,
        record_sum,
        counts,
        overruled: Overruled::default(),
    })
}

/// An empty disk, for a new tree.
pub(in crate::materialize) struct Nothing;

impl Lies for Nothing {
    fn enter(&mut self, _name: &[u8]) -> Result<()> {
        Ok(())
    }

    fn leave(&mut self) {}

    fn names(&mut self) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn stat(&mut self, _name: &[u8]) -> Result<Option<Stat>> {
        Ok(None)
    }

    fn own_time(&mut self) -> Result<Time> {
        Ok(Time::default())
    }

    fn target(&mut self, _name: &[u8]) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn is_pooled(&mut self, _key: &PoolKey, _found: &Stat) -> Result<bool> {
        Ok(false)
    }

    fn is_written_through(&mut self, _key: &PoolKey, _found: &Stat) -> Result<bool> {
        Ok(false)
    }

    fn may_be_torn(&mut self, _found: &Stat, _is_settled: bool) -> bool {
        false
    }

    fn is_untouched(&mut self, _found: &Stat) -> bool {
        false
    }

    fn has_bytes(&mut self, _name: &[u8], _content: &Content) -> Result<bool> {
        Ok(false)
    }
}
