//! What `push`, `pull` and `duplicate` are told alike.

use std::ffi::{OsStr, OsString};

use store::Result;
use store::Target;
use store::replicate::{ReplicateRequest, Selection};

use crate::config::jobs::Choice;
use crate::ui::{human, names};

/// How to bring versions over.
#[derive(Clone, clap::Args)]
pub(crate) struct How {
    /// Which versions of the refs that are named without one [default: latest]
    #[arg(long, value_name = "WHICH")]
    pub(crate) versions: Option<Choice>,

    /// Send at most so many bytes in a second, like 200M; 0 is no limit
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size)]
    pub(crate) bwlimit: Option<u64>,

    /// Read all that was sent back, down to the last byte, before a version that needs it is published; also what
    /// versions need that are there already, and send again what is damaged
    #[arg(long)]
    pub(crate) verify: bool,

    /// Show what would be sent, and how long that would take, and do nothing
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
