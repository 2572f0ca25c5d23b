//! trim: removes paths from the newest version of a ref, as a new version with the rest. Only metadata is read and
//! written.
//!
//! What stays keeps its trees with their ids and times, and its modes, owners and attributes if the version had them.
//! The entry is added to a state in which the trimmed version is still the newest. A live version is whole, so
//! everything that stays is in the store, unless packs were lost: then the user is warned. The trimmed version itself
//! remains until it is dropped.

mod edit;
mod frees;

use crate::codec::LEVEL;
use crate::error::{Error, Result};
use crate::format::{
    Change, Content, Extra, FrameKind, Id, RefName, Root, Sides, Time, TreeEntry, Version,
};
use crate::id::{ChunkId, PassId};
use crate::lists::{Rewrite, warn_of_unknown};
use crate::log::{Outside, System};
use crate::pack::{Framer, PackSink};
use crate::read::Reader;
use crate::session::{Published, Relied, Session};
use crate::sound::carried::check_carried;
use crate::store::Store;
use crate::tree::MetaBuilder;

use edit::{Edit, Write};

pub use edit::{Removed, TrimFilter};
pub use frees::Frees;

/// How many races a commit may lose before it waits a little.
const TRIES_AT_ONCE: u32 = 2;

/// A request to remove paths from a ref.
#[derive(Clone, Debug)]
pub struct TrimRequest {
    /// The ref.
    pub target: RefName,
    /// Whole paths in the newest version; none: the whole tree.
    pub paths: Vec<Vec<u8>>,
    /// What to remove below these paths; without any filter, everything.
    pub filter: TrimFilter,
    /// The message of the new version.
    pub message: String,
    /// Do everything except write, and count how much space would be freed.
    pub dry_run: bool,
}

/// The report of a trim.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TrimReport {
    /// The version that was trimmed.
    #[serde(rename = "from_version")]
    pub from: u64,
    /// The number of the new version; none after a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The id of the new version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// What was removed.
    #[serde(flatten)]
    pub removed: Removed,
    /// How much space the removed paths take, and what still holds it; after a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frees: Option<Frees>,
}

/// The result of a commit.
enum Committed {
    Version(u64),
    /// Another commit was faster.
    Late,
    /// A collector took what the pass relied on.
    Stale,
}

/// Adds a version of a ref without what `request` names.
///
/// # Errors
/// Not found, when there is no such ref or path, or the filters match nothing; conflict, when nothing would be left.
pub fn trim(store: &Store, request: &TrimRequest) -> Result<TrimReport> {
    store.format().check_writable()?;
    for tries in 1.. {
        let view = store.view()?;
        store.check_writable(&view.state)?;
        let (number, version) = view.state.version(&request.target, None)?;
        let reader = Reader::at(store, view.clone());
        let Root::Tree { content, totals } = version.root else {
            return Err(Error::invalid(format!(
                "{}@{number}: is a file, and has no paths",
                request.target
            )));
        };
        let relied = Relied::new(view.index.clone());
        let mut sink = store.pack_sink();
        let framer = match request.dry_run {
            true => None,
            false => Some(Framer::new(FrameKind::Meta, LEVEL, false, &mut sink)?),
        };
        let mut writer = Writer {
            store,
            relied: &relied,
            framer,
        };
        let mut edit = Edit::new(&reader, request, &version, &mut writer)?;
        let root = edit.run(&content, totals)?;
        let (removed, steps, kept) = edit.into_parts();
        let mut report = TrimReport {
            from: number,
            version: None,
            id: None,
            removed,
            frees: None,
        };
        if request.dry_run {
            warn_of_unknown(store, &request.target, number, &version);
            let frees = frees::count(&reader, request, &version, &report.removed, &kept)?;
            report.frees = Some(frees);
            return Ok(report);
        }
        let rewrite = Rewrite {
            reader: &reader,
            before: Some((&request.target, number, &version)),
            steps: &steps,
            time: Time::default(),
        };
        let sides = rewrite.sides(&mut |bytes| writer.put(bytes))?;
        writer.finish()?;
        sink.close()?;
        let session = Session::new(store, &relied, view, PassId::random()?);
        for pack in sink.into_finished() {
            session.add(&pack)?;
        }
        match commit(&session, request, (number, &version), (root, sides))? {
            Committed::Version(made) => {
                report.version = Some(made);
                report.id = Some(Id::of(&root));
                warn_of_unknown(store, &request.target, number, &version);
                check_carried(store, &request.target, (number, made), &root, u64::MAX);
                return Ok(report);
            }
            Committed::Late | Committed::Stale => {}
        }
        store.host().check_stop()?;
        if tries > TRIES_AT_ONCE {
            System.pause(tries);
        }
    }
    Err(Error::conflict("others were always quicker"))
}

/// Adds the version, if the trimmed one is still the newest.
fn commit(
    session: &Session<'_>,
    request: &TrimRequest,
    (number, trimmed): (u64, &Version),
    (root, sides): (Root, Sides),
) -> Result<Committed> {
    let (mut made, mut is_late) = (0, false);
    let committed = session.commit(&mut |state, refused| {
        if let Some((namespace, over)) = refused.first_key_value() {
            return Err(over.error(namespace));
        }
        let newest = state.version(&request.target, None).ok();
        let is_same =
            newest.is_some_and(|(now, version)| now == number && version.root == trimmed.root);
        if !is_same {
            is_late = true;
            return Err(Error::conflict(format!(
                "{}: another version came first",
                request.target
            )));
        }
        made = state.refs.last(&request.target)? + 1;
        Ok(vec![Change::SetRef {
            name: request.target.clone(),
            version: made,
            root,
            sides: sides.clone(),
            message: request.message.clone(),
            expires: trimmed.expires,
            origin: None,
            ends: Vec::new(),
            private: trimmed.private,
            extra: Extra::new(),
        }])
    });
    match committed {
        Err(_) if is_late => Ok(Committed::Late),
        Err(error) => Err(error),
        Ok(Published::Stale) => Ok(Committed::Stale),
        Ok(Published::Nothing | Published::Entry(_)) => Ok(Committed::Version(made)),
    }
}

/// Writes metadata that the store does not have. In a dry run, it only computes the ids.
struct Writer<'w> {
    store: &'w Store,
    relied: &'w Relied,
    framer: Option<Framer<&'w mut PackSink>>,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<ChunkId> {
        let id = ChunkId::of(bytes);
        if let Some(framer) = &mut self.framer
            && !self.relied.is_offered(&id)?
        {
            framer.push(id, bytes)?;
        }
        Ok(id)
    }

    /// Writes what is pending into packs.
    fn finish(self) -> Result<()> {
        self.framer
            .map_or(Ok(()), |framer| framer.finish().map(drop))
    }
}

impl Write for Writer<'_> {
    fn tree(&mut self, entries: &[TreeEntry]) -> Result<Content> {
        let chunker = self.store.chunker().clone();
        MetaBuilder::tree(chunker, entries, &mut |bytes| self.put(bytes))
    }
}
