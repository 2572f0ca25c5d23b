//! Which paths of one version are lost, told without reading the log, or any pack that is not needed.

use super::walk::RefWalk;
use super::{ReadData, packs_needed, tasks};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{RefSpec, Root, Target};
use crate::progress::Unwatched;
use crate::read::Reader;
use crate::session::{Relied, all_offered};
use crate::sound::VerifyReport;
use crate::sound::mend::unsound;
use crate::sound::packs::{Reading, check_packs};
use crate::sound::record::Record;

/// Returns the paths of a version that cannot be read: those whose chunks no segment offers, and, where that costs no
/// requests, those in packs that are missing or cut off. A lost directory stands for all below it. If nothing is lost,
/// only the version's trees are read.
///
/// # Errors
/// Not found, when the version does not exist; corrupt, when more paths are lost than a report names.
pub fn lost(reader: &Reader<'_>, spec: &RefSpec) -> Result<Vec<Vec<u8>>> {
    let found = reader.resolve(spec)?;
    if is_whole(reader, &found.version.root)? {
        return Ok(Vec::new());
    }
    let (store, view) = (reader.store(), reader.view());
    let target = Target::Ref(spec.clone());
    let needed = packs_needed(store, &view, &target)?;
    let record = Record::load(store);
    let mut tasks = tasks(&view, Some(&needed), ReadData::Nothing, &record)?;
    // What a verification on this host found damaged is read again.
    for task in &mut tasks {
        if record.damaged().contains(&task.pack.id) {
            task.reading = Reading::Decoded;
        }
    }
    let mut report = VerifyReport::default();
    let damage = check_packs(reader, &tasks, false, &Unwatched, &mut report)?;
    RefWalk::new(store, &view, &damage, &mut report).versions(Some(&target))?;
    match report.hits_left_out {
        0 => Ok(report.hits.into_iter().map(|hit| hit.path).collect()),
        more => Err(Error::corrupt(format!(
            "{spec}: {} paths are lost",
            report.hits.len() as u64 + more
        ))),
    }
}

/// Whether nothing below `root` is lost, as far as this is told without requests to a bucket.
fn is_whole(reader: &Reader<'_>, root: &Root) -> Result<bool> {
    let (store, view) = (reader.store(), reader.view());
    if !store.is_far() {
        let relied = Relied::new(view.index.clone());
        relied.count_on(*root);
        if !unsound(store, &view.state, &relied)?.is_empty() {
            return Ok(false);
        }
    }
    match all_offered(reader, &view.index, root) {
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) => Ok(false),
        offered => offered,
    }
}
