//! usage: what each namespace takes beside all others, in one walk over all of them.
//!
//! Anything that cannot be read is an error: a number that leaves something out would be a wrong one.

use crate::error::Result;
use crate::format::{Namespace, State};
use crate::graph::reach::Reach;
use crate::graph::shares::{Share, Tally};
use crate::inspect::NamespaceLine;
use crate::policy;
use crate::read::Reader;

/// What a namespace has, takes and may take.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Usage {
    /// Which one, and what the log says of it.
    #[serde(flatten)]
    pub line: NamespaceLine,
    /// Bytes of all files in all its versions, as if each were stored whole.
    pub version_bytes: u64,
    /// Stored bytes of all its chunks, as a quota and the collector count them.
    pub stored_bytes: u64,
    /// Chunks that no other namespace needs.
    pub unique: Share,
    /// Chunks that others need as well.
    pub shared: Share,
    /// Stored bytes that it may take, where a policy limits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
}

/// What each namespace takes, by name. The versions of each are walked once.
///
/// # Errors
/// Not found and corrupt as [`Reader`] has them; interrupted on request.
pub fn usage(reader: &Reader<'_>) -> Result<Vec<Usage>> {
    let walked = by_namespace(reader, |reach, name, state| {
        let mut version_bytes = 0u64;
        for found in state.refs.within(Some(name)) {
            for version in found?.1.versions.values() {
                version_bytes = version_bytes.saturating_add(version.root.bytes());
                reach.version(version)?;
            }
        }
        Ok((version_bytes, ()))
    })?;
    Ok(walked.into_iter().map(|(usage, ())| usage).collect())
}

/// What each namespace takes, by name, and what `walk` found on its way; it reaches all versions of a namespace, and says
/// how many bytes they have.
pub(super) fn by_namespace<T>(
    reader: &Reader<'_>,
    walk: impl Fn(&Reach<'_>, &Namespace, &State) -> Result<(u64, T)>,
) -> Result<Vec<(Usage, T)>> {
    let view = reader.view();
    let mut tally = Tally::new(&view.index);
    let mut walked = Vec::new();
    for line in view.state.namespaces() {
        let reach = Reach::among(reader, view.clone());
        let (version_bytes, found) = walk(&reach, &line.name, &view.state)?;
        tally.add(reach.chunks())?;
        walked.push((line, version_bytes, reach.walked_bytes(), found));
    }
    let usages = walked.into_iter().zip(tally.shares()?);
    let usages = usages.map(
        |((line, version_bytes, stored_bytes, found), (unique, shared))| {
            let usage = Usage {
                quota_bytes: policy::quota(reader.store(), &view.state, &line.name)?,
                line,
                version_bytes,
                unique,
                shared,
                stored_bytes,
            };
            Ok((usage, found))
        },
    );
    usages.collect()
}
