//! usage: the space that each namespace takes compared with all others, in one walk over all of them.
//!
//! Anything that cannot be read is an error, because an incomplete number would be wrong.

use crate::error::Result;
use crate::format::{Namespace, State};
use crate::graph::reach::Reach;
use crate::graph::shares::{Share, Tally};
use crate::inspect::NamespaceLine;
use crate::policy;
use crate::read::Reader;

/// Contents, space and quota of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Usage {
    /// The namespace and its totals according to the log.
    #[serde(flatten)]
    pub line: NamespaceLine,
    /// Bytes of all files in all its versions, as if each were stored whole.
    pub version_bytes: u64,
    /// Stored bytes of all its chunks, as a quota and the collector count them.
    pub stored_bytes: u64,
    /// Chunks that no other namespace needs.
    pub unique: Share,
    /// Chunks that other namespaces need as well.
    pub shared: Share,
    /// How many stored bytes it may take, if a policy sets a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
}

/// Returns the usage of each namespace, by name. Walks the versions of each once.
///
/// # Errors
/// Not found and corrupt as for [`Reader`]; interrupted on request.
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

/// Returns the usage of each namespace, by name, with the results of `walk`. `walk` must reach all versions of the
/// namespace, and return their total size first.
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
