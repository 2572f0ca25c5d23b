//! trim: paths of the newest version of a ref go; a new version has the rest. Only metadata is read and written.
//!
//! What is kept stays the same trees, by the same ids, with its times, and its modes, owners and attributes where the version
//! had them. The entry goes to a state in which the version that was trimmed is
//! still the newest, and a live version is whole: so what is kept is there. That version stays until it is dropped.

mod edit;
mod frees;

use crate::codec::LEVEL;
use crate::error::{Error, Kind, Result};
use crate::format::{
    Change, Content, Extra, FrameKind, Id, Keep, RefName, Root, Side, Sides, Time, TimesEncoder,
    TreeEntry, Version,
};
use crate::id::{ChunkId, PassId};
use crate::log::{Outside, System};
use crate::pack::{Framer, PackSink};
use crate::read::{KeptReader, Reader, TimesReader};
use crate::session::{Published, Relied, Session};
use crate::store::Store;
use crate::tree::MetaBuilder;

use edit::{Edit, Step, Write};

pub use edit::{Removed, TrimFilter};
pub use frees::Frees;

/// How often another commit may be quicker before this one waits a little.
const TRIES_AT_ONCE: u32 = 2;

/// What goes.
#[derive(Clone, Debug)]
pub struct TrimRequest {
    /// The ref.
    pub target: RefName,
    /// Whole paths in its newest version; none: the whole tree.
    pub paths: Vec<Vec<u8>>,
    /// What of that; without any filter all.
    pub filter: TrimFilter,
    /// What the person says about the new version.
    pub message: String,
    /// Do everything but write, and count what that would give back.
    pub dry_run: bool,
}

/// What was removed.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TrimReport {
    /// The version that was trimmed.
    #[serde(rename = "from_version")]
    pub from: u64,
    /// The new one; none after a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// What is not in it.
    #[serde(flatten)]
    pub removed: Removed,
    /// What that takes, and what still holds it; after a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frees: Option<Frees>,
}

/// What became of a commit.
enum Committed {
    Version(u64),
    /// Another commit was quicker.
    Late,
    /// A collector took what the pass had counted on.
    Stale,
}

/// Makes a version of a ref that lacks what `request` names.
///
/// # Errors
/// Not found, when there is no such ref or path, or nothing that the filters take; conflict, when nothing would be left.
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
            warn_of_unknown(store, request, number, &version);
            let frees = frees::count(&reader, request, &version, &report.removed, &kept)?;
            report.frees = Some(frees);
            return Ok(report);
        }
        let sides = writer.sides(&reader, &steps, (request, number, &version))?;
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
                warn_of_unknown(store, request, number, &version);
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

/// Adds the version, if the one that was trimmed is still the newest.
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

/// What a newer program kept beside the tree cannot be cut to what is left of it.
fn warn_of_unknown(store: &Store, request: &TrimRequest, number: u64, version: &Version) {
    let is_known = |kind: &str| Keep::ALL.iter().any(|keep| keep.as_str() == kind);
    let kinds = version.sides.others().map(|side| side.kind.as_str());
    let kinds: Vec<&str> = kinds.filter(|kind| !is_known(kind)).collect();
    if !kinds.is_empty() {
        store.warn(Error::new(Kind::Unsupported, format!(
            "{}@{number}: {} were kept beside its tree by a newer program, and are not beside the new one",
            request.target,
            kinds.join(" and ")
        )));
    }
}

/// Writes metadata that the store does not have; in a dry run only names it.
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

    /// The times of what is kept.
    fn times(&mut self, reader: &Reader<'_>, steps: &[Step], version: &Version) -> Result<Content> {
        let mut theirs = TimesReader::of(reader, version)?;
        let mut bytes = MetaBuilder::new(self.store.chunker().clone());
        let mut encoder = TimesEncoder::new(&mut bytes.bytes);
        for step in steps {
            match step {
                Step::Pass(count) => theirs.skip(*count)?,
                Step::Keep(count) => {
                    for _ in 0..*count {
                        let time: Time = theirs.next()?;
                        encoder.push(time, &mut bytes.bytes);
                        bytes.cut(&mut |bytes| self.put(bytes))?;
                    }
                }
            }
        }
        bytes.finish(&mut |bytes| self.put(bytes))
    }

    /// The times of what is kept, and what else was kept of it.
    fn sides(
        &mut self,
        reader: &Reader<'_>,
        steps: &[Step],
        (request, number, version): (&TrimRequest, u64, &Version),
    ) -> Result<Sides> {
        let mut sides = Sides::of_times(self.times(reader, steps, version)?);
        for keep in Keep::ALL {
            match self.kept(reader, steps, keep, version) {
                Ok(side) => sides = side.into_iter().fold(sides, Sides::with),
                // As with times: what is left of the tree is no less whole.
                Err(error) if error.kind() == Kind::Corrupt => {
                    self.store.warn_of_part(Error::corrupt(format!(
                        "the {keep} of {}@{number} are lost, and the new version has none: {error}",
                        request.target
                    )));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(sides)
    }

    /// One list of what is left.
    fn kept(
        &mut self,
        reader: &Reader<'_>,
        steps: &[Step],
        keep: Keep,
        version: &Version,
    ) -> Result<Option<Side>> {
        let Some(mut theirs) = KeptReader::of(reader, keep, &version.sides)? else {
            return Ok(None);
        };
        let mut bytes = MetaBuilder::new(self.store.chunker().clone());
        keep.begin(&mut bytes.bytes);
        for step in steps {
            match step {
                Step::Pass(count) => theirs.skip(*count)?,
                Step::Keep(count) => {
                    for _ in 0..*count {
                        theirs.next()?.push(&mut bytes.bytes);
                        bytes.cut(&mut |bytes| self.put(bytes))?;
                    }
                }
            }
        }
        let content = bytes.finish(&mut |bytes| self.put(bytes))?;
        let kind = keep.as_str().to_owned();
        Ok(Some(Side { kind, content }))
    }

    /// Sees to it that all of it is in packs.
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
