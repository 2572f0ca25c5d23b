//! Arguments that `push`, `pull` and `duplicate` share.

use std::ffi::{OsStr, OsString};

use store::Result;
use store::Target;
use store::replicate::{ReplicateRequest, Selection};

use crate::config::jobs::Choice;
use crate::ui::{human, names};

/// How to copy versions.
#[derive(Clone, clap::Args)]
pub(crate) struct How {
    /// Which versions to copy of refs that are named without one [default: latest]
    #[arg(long, value_name = "WHICH")]
    pub(crate) versions: Option<Choice>,

    /// Send at most this many bytes per second, like 200M; 0 is no limit
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size)]
    pub(crate) bwlimit: Option<u64>,

    /// Before a version is published, read back every byte of what it needs, whether it was sent now or was already
    /// there, and send again what is damaged
    #[arg(long)]
    pub(crate) verify: bool,

    /// Show what would be sent and how long it would take, without sending it
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
}

impl How {
    /// The request for `refs`.
    pub(crate) fn request(&self, refs: &[OsString]) -> Result<ReplicateRequest> {
        let what = refs
            .iter()
            .map(|text| selection(text))
            .collect::<Result<_>>()?;
        Ok(ReplicateRequest {
            versions: self.versions.unwrap_or_default().into(),
            verify: self.verify,
            bytes_per_second: self.bwlimit.filter(|limit| *limit > 0),
            dry_run: self.dry_run,
            ..ReplicateRequest::new(what)
        })
    }
}

/// `NAMESPACE|REF[@N]`.
fn selection(text: &OsStr) -> Result<Selection> {
    Ok(match names::target(text)? {
        Target::Namespace(namespace) => Selection::Namespace(namespace),
        Target::Ref(_) => {
            let spec = names::version(text)?;
            match spec.version {
                Some(version) => Selection::Version(spec.name, version),
                None => Selection::Ref(spec.name),
            }
        }
    })
}
