//! The entries of a ref: what they are, whether they are complete, and which of them the store has lost.
//!
//! A lost entry is no hit, a pull brings the others, and a push of the same entry stores it again.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use store::check;
use store::inspect::{self, ListOptions};
use store::{Error, Node, Reader, RefName, RefSpec, Result, Root};

use super::entries::{self, Entries, Entry, Look, Part, State, Thing};
use super::profile::{Profile, Shape};
use crate::ui::names;

/// The newest version of a ref: its number and its entries.
pub(super) struct Stored {
    pub(super) version: u64,
    /// Whether the tree has nothing in it.
    pub(super) is_empty: bool,
    pub(super) entries: Entries,
    pub(super) beside: Beside,
}

/// Paths of a ref that may be temporary files beside entries.
#[derive(Default)]
pub(super) struct Beside(BTreeSet<PathBuf>);

impl Stored {
    /// Whether it has an entry that is complete by names and sizes, in the making, or lost.
    pub(super) fn has_any(&self, profile: &Profile) -> bool {
        let mut all = self.entries.iter();
        all.any(|(path, entry)| {
            let is_any = matches!(entry.state(profile), State::Complete | State::Lost);
            is_any || self.beside.is_of(path, profile.entry.get(entry.shape))
        })
    }
}

impl Beside {
    fn add(&mut self, path: &[u8], profile: &Profile) {
        let mut shapes = profile.entry.iter();
        if shapes.any(|shape| shape.may_be_beside(path)) {
            self.0.insert(OsStr::from_bytes(path).into());
        }
    }

    /// Whether one of them shows that the entry at `path` is in the making.
    pub(super) fn is_of(&self, path: &[u8], shape: Option<&Shape>) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        let mut places = shape
            .into_iter()
            .flat_map(|shape| shape.places_beside(path));
        places.any(|place| self.0.contains(&place))
    }
}

/// Reads the entries of a ref from its tree; `None` if the ref does not exist. A ref that is a file is invalid input.
pub(super) fn read(
    reader: &Reader<'_>,
    name: &RefName,
    profile: &Profile,
) -> Result<Option<Stored>> {
    let Ok((version, found)) = reader.view().state.version(name, None) else {
        return Ok(None);
    };
    let Root::Tree { totals, .. } = &found.root else {
        return Err(Error::invalid(format!(
            "{name}@{version}: is a file, expected the directory of a compile cache"
        ))
        .hint("name a ref of a compile cache"));
    };
    let spec: RefSpec = format!("{name}@{version}").parse()?;
    let options = ListOptions {
        recursive: true,
        times: true,
        lost: true,
    };
    let (mut entries, mut lost) = (Entries::new(), Vec::new());
    let mut beside = Beside::default();
    inspect::ls(reader, &spec, options, &mut |listed| {
        let (thing, content) = match listed.node {
            Node::Tree { content, .. } => (Thing::Dir, Some(content)),
            Node::File { content, .. } => (
                Thing::File {
                    bytes: content.size,
                },
                Some(content),
            ),
            Node::Symlink { target } => {
                // A relative link stays inside the tree. Its target is not looked up; it counts as one byte.
                let bytes = (!target.starts_with(b"/")).then_some(1);
                (Thing::Link { target, bytes }, None)
            }
        };
        beside.add(&listed.path, profile);
        if listed.is_lost {
            lost.push(listed.path.clone());
        }
        let time = listed.time.map(|time| (time.secs, i64::from(time.nanos)));
        entries::add(
            &mut entries,
            profile,
            &listed.path,
            Part {
                thing,
                time,
                identity: None,
            },
            content,
        );
        Ok(())
    })?;
    for (path, entry) in &mut entries {
        if beside.is_of(path, profile.entry.get(entry.shape)) {
            entry.mark_in_the_making();
        }
    }
    for path in lost {
        mark(&mut entries, &path, profile).map_err(|error| error.within(spec.to_string()))?;
    }
    let is_empty = totals.entries == 0;
    Ok(Some(Stored {
        version,
        is_empty,
        entries,
        beside,
    }))
}

/// Calls [`Entry::look_into`] for the entries that seem complete by names and sizes and that `is_asked` selects.
pub(super) fn look_into(
    entries: &mut Entries,
    (reader, look): (&Reader<'_>, Look),
    profile: &Profile,
    is_asked: impl Fn(&[u8], &Entry) -> bool,
) -> Result<()> {
    entries::each_asked(entries, profile, is_asked, |path, entry| {
        entry.look_into(reader, (path, profile), look)
    })
}

/// Marks the entries that cannot be read. Returns how many there are.
pub(super) fn look_for_lost(
    stored: &mut Stored,
    (reader, name): (&Reader<'_>, &RefName),
    profile: &Profile,
) -> Result<usize> {
    let spec = format!("{name}@{}", stored.version).parse()?;
    let mut lost = check::lost(reader, &spec)?;
    if !lost.is_empty() {
        // A collector may have moved what this state names.
        let newest = Reader::new(reader.store())?;
        lost = check::lost(&newest, &spec).unwrap_or(lost);
    }
    for path in lost {
        mark(&mut stored.entries, &path, profile)
            .map_err(|error| error.within(format!("{name}@{}", stored.version)))?;
    }
    let lost = stored.entries.values().filter(|entry| entry.is_lost);
    Ok(lost.count())
}

/// Marks the entry that a lost path belongs to. What belongs to none is left alone; an error, if it is a directory of
/// entries.
fn mark(entries: &mut Entries, path: &[u8], profile: &Profile) -> Result<()> {
    let all: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    for depth in 1..=all.len() {
        let own = all.get(..depth).unwrap_or_default().join(&b'/');
        if let Some(entry) = entries.get_mut(&own) {
            entry.is_lost = true;
            return Ok(());
        }
    }
    match path.is_empty() || profile.may_lead_to(&all) {
        true => Err(Error::corrupt(format!(
            "{} is lost, so that its entries are not known",
            match path {
                b"" => "the directory itself".to_owned(),
                path => format!("the directory {}", names::shown(path)),
            }
        ))
        .hint("run `store verify` to see what is hit")),
        false => Ok(()),
    }
}
