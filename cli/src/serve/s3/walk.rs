//! Lists the keys of a bucket in byte order, from any point on.
//!
//! The entries below a name come from up to three sources: the tree of a version, refs with that name, and refs whose
//! names continue from it. Each step and each seek searches the directories on its way and reads no others.

use std::sync::Arc;

use store::{Content, Result};

use crate::serve::s3::bucket::{Bucket, Object, Owner};
use crate::serve::s3::shelf::{Dir, What};

/// Maximum names to look at in one walk, since a page must end even in a tree without files.
const LOOKED_MAX: usize = 20_000;

/// A walk through a bucket.
pub(crate) struct KeyWalk<'b> {
    bucket: &'b Bucket,
    /// The frame at which every seek begins.
    root: Option<Frame>,
    /// From the outermost directory to the innermost.
    frames: Vec<Frame>,
    /// The end of the wanted keys, exclusive.
    until: Option<Vec<u8>>,
    looked: usize,
    /// The last name that was looked at.
    last: String,
}

/// A key and its file.
pub(crate) struct Found {
    pub(crate) key: String,
    pub(crate) object: Object,
}

/// The entries below a name.
#[derive(Clone)]
struct Frame {
    /// The prefix of its keys.
    above: String,
    /// The first part that was not looked at yet.
    from: Vec<u8>,
    place: Option<Place>,
    /// Whether names of refs continue from here.
    has_refs: bool,
}

/// A directory of a version.
#[derive(Clone)]
struct Place {
    owner: Owner,
    dir: Arc<Dir>,
    /// The number of entries of the version before it.
    before: u64,
}

/// The next name in a frame.
struct Next {
    name: String,
    kind: Kind,
}

enum Kind {
    /// An item of the tree, with the number of entries of the version before it.
    Item(What, u64),
    /// A ref, which may be a file.
    Single,
    /// Names of refs that continue, and the directory of the tree with this name.
    Group(Option<(Content, u64)>),
}

impl Next {
    /// The part of a key.
    fn key(&self) -> String {
        let is_dir = matches!(self.kind, Kind::Item(What::Dir(_), _) | Kind::Group(_));
        format!("{}{}", self.name, if is_dir { "/" } else { "" })
    }

    /// The first text after the name and everything below it.
    fn after(&self) -> Vec<u8> {
        after(&self.key())
    }
}

/// The first text after a key, or after everything below a directory.
fn after(key: &str) -> Vec<u8> {
    match key.strip_suffix('/') {
        Some(name) => format!("{name}0").into_bytes(),
        None => format!("{key}\0").into_bytes(),
    }
}

/// The first text after all that begin with `prefix`.
pub(crate) fn behind(prefix: &str) -> Option<Vec<u8>> {
    let mut bytes = prefix.as_bytes().to_vec();
    // UTF-8 never contains the byte 255.
    let last = bytes.last_mut()?;
    *last = last.saturating_add(1);
    Some(bytes)
}

impl<'b> KeyWalk<'b> {
    /// A walk over the keys that begin with `prefix` and are at least `bound`. Blocks.
    pub(crate) fn new(bucket: &'b Bucket, prefix: &str, bound: &[u8]) -> Result<Self> {
        let mut walk = Self {
            bucket,
            root: Some(Frame {
                above: String::new(),
                from: Vec::new(),
                place: None,
                has_refs: true,
            }),
            frames: Vec::new(),
            until: behind(prefix),
            looked: 0,
            last: String::new(),
        };
        let names = prefix.match_indices('/').rev();
        let names = names.filter_map(|(end, _)| prefix.get(..end));
        for name in names.filter(|name| name.contains('@')) {
            // Versions are listed only for a prefix that names one.
            if let Some(owner) = bucket.owner(name)? {
                walk.root = walk.top(name, owner)?;
                break;
            }
        }
        walk.seek(bound)?;
        Ok(walk)
    }

    /// Continues with the first key that is at least `bound`. Blocks.
    pub(crate) fn seek(&mut self, bound: &[u8]) -> Result<()> {
        self.frames.clear();
        let Some(mut frame) = self.root.clone() else {
            return Ok(());
        };
        let Some(mut rest) = bound.strip_prefix(frame.above.as_bytes()) else {
            self.frames
                .extend((bound < frame.above.as_bytes()).then_some(frame));
            return Ok(());
        };
        while let Some(slash) = rest.iter().position(|byte| *byte == b'/') {
            let (part, below) = rest.split_at(slash + 1);
            frame.from = part.to_vec();
            let next = self.least(&frame)?;
            let next = next.filter(|next| next.key().as_bytes() == part);
            let Some(next) = next else {
                self.frames.push(frame);
                return Ok(());
            };
            frame.from = next.after();
            let child = self.below(&frame, next)?;
            self.frames.push(frame);
            let Some(child) = child else {
                return Ok(());
            };
            (frame, rest) = (child, below);
        }
        frame.from = rest.to_vec();
        self.frames.push(frame);
        Ok(())
    }

    /// The next key; `None` at the end, and after too many names. Blocks.
    pub(crate) fn next(&mut self) -> Result<Option<Found>> {
        while !self.is_tired() {
            let Some(frame) = self.frames.last() else {
                return Ok(None);
            };
            let Some(next) = self.least(frame)? else {
                self.frames.pop();
                continue;
            };
            let key = format!("{}{}", frame.above, next.key());
            if self
                .until
                .as_ref()
                .is_some_and(|until| key.as_bytes() >= until.as_slice())
            {
                self.frames.clear();
                return Ok(None);
            }
            let mut frame = frame.clone();
            frame.from = next.after();
            self.looked += 1;
            self.last.clone_from(&key);
            let object = self.object(&frame, &key, &next)?;
            let child = match object {
                None => self.below(&frame, next)?,
                Some(_) => None,
            };
            if let Some(last) = self.frames.last_mut() {
                last.from = frame.from;
            }
            self.frames.extend(child);
            if let Some(object) = object {
                return Ok(Some(Found { key, object }));
            }
        }
        Ok(None)
    }

    /// If the walk ended after too many names: the text after which to continue.
    pub(crate) fn tired(&self) -> Option<&str> {
        self.is_tired().then_some(self.last.as_str())
    }

    fn is_tired(&self) -> bool {
        self.looked >= LOOKED_MAX
    }

    /// The first name that was not looked at. A ref takes precedence over a directory of the same name.
    fn least(&self, frame: &Frame) -> Result<Option<Next>> {
        let mut from = frame.from.clone();
        loop {
            let Some(next) = self.least_from(frame, &from) else {
                return Ok(None);
            };
            let is_hidden = frame.has_refs
                && matches!(next.kind, Kind::Item(..))
                && next.name.contains('@')
                && self
                    .bucket
                    .owner(&format!("{}{}", frame.above, next.name))?
                    .is_some();
            if !is_hidden {
                return Ok(Some(next));
            }
            from = next.after();
        }
    }

    fn least_from(&self, frame: &Frame, from: &[u8]) -> Option<Next> {
        let item = frame.place.as_ref().and_then(|place| {
            let entry = place.dir.at_least(from)?;
            let before = place.before.saturating_add(entry.before).saturating_add(1);
            let kind = Kind::Item(entry.what.clone(), before);
            let name = entry.name.to_owned();
            Some(Next { name, kind })
        });
        let named = |name: Option<&str>, kind| {
            let name = name?.to_owned();
            Some(Next { name, kind })
        };
        let names = &self.bucket.names;
        let (single, group) = match frame.has_refs {
            true => (
                named(names.single(&frame.above, from), Kind::Single),
                named(names.group(&frame.above, from), Kind::Group(None)),
            ),
            false => (None, None),
        };
        let refs = [single, group].into_iter().flatten();
        let first = refs.min_by_key(Next::key);
        match (item, first) {
            (Some(item), Some(first)) if item.key() == first.key() => Some(match item.kind {
                Kind::Item(What::Dir(tree), before) => Next {
                    name: first.name,
                    kind: Kind::Group(Some((tree, before))),
                },
                _ => first,
            }),
            (Some(item), Some(first)) if first.key() < item.key() => Some(first),
            (item, first) => item.or(first),
        }
    }

    /// The file with this name, if it is a file.
    fn object(&self, frame: &Frame, key: &str, next: &Next) -> Result<Option<Object>> {
        match (&next.kind, &frame.place) {
            (Kind::Single, _) => {
                let owner = self.bucket.owner(key)?;
                Ok(owner.and_then(|owner| owner.whole()))
            }
            (Kind::Item(What::Dir(_), _) | Kind::Group(_), _) | (_, None) => Ok(None),
            (Kind::Item(what, before), Some(place)) => {
                let path = key.strip_prefix(place.owner.name.as_str());
                let path = path.and_then(|path| path.strip_prefix('/'));
                let path = path.unwrap_or_default();
                self.bucket.object(&place.owner, path, what, *before)
            }
        }
    }

    /// The frame below a name, if there can be one.
    fn below(&self, frame: &Frame, next: Next) -> Result<Option<Frame>> {
        let name = format!("{}{}", frame.above, next.name);
        let (tree, is_group) = match next.kind {
            Kind::Item(What::Dir(tree), before) => (Some((tree, before)), false),
            Kind::Group(tree) => (tree, true),
            _ => return Ok(None),
        };
        if is_group && self.bucket.names.has(&name) {
            let Some(owner) = self.bucket.owner(&name)? else {
                return Ok(None);
            };
            let top = self.top(&name, owner)?;
            return Ok(Some(self.with_refs(top.unwrap_or_else(|| Frame {
                above: format!("{name}/"),
                from: Vec::new(),
                place: None,
                has_refs: false,
            }))));
        }
        let place = match (tree, &frame.place) {
            (Some((tree, before)), Some(place)) => Some(Place {
                owner: place.owner.clone(),
                dir: self.bucket.dir(&tree)?,
                before,
            }),
            _ => None,
        };
        let child = Frame {
            above: format!("{name}/"),
            from: Vec::new(),
            place,
            has_refs: false,
        };
        Ok(Some(match frame.has_refs {
            true => self.with_refs(child),
            false => child,
        }))
    }

    fn with_refs(&self, frame: Frame) -> Frame {
        let has_refs = self.bucket.names.group(&frame.above, b"").is_some();
        Frame { has_refs, ..frame }
    }

    /// The frame of a version, if it is a tree.
    fn top(&self, name: &str, owner: Owner) -> Result<Option<Frame>> {
        let Some(tree) = owner.tree() else {
            return Ok(None);
        };
        Ok(Some(Frame {
            above: format!("{name}/"),
            from: Vec::new(),
            place: Some(Place {
                dir: self.bucket.dir(&tree)?,
                owner,
                before: 0,
            }),
            has_refs: false,
        }))
    }
}
