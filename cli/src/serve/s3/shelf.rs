//! A cache of directories and times.
//!
//! Directories are kept in the order of keys, in which `a-b` comes before paths in `a/`. So a page of a listing costs
//! one search in each directory on its way, and does not read the tree. Names that are not UTF-8 have no key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use store::{Content, Namespace, Node, Reader, Result, TimesReader};

use crate::serve::s3::names::Names;

/// Maximum entries in cached directories, and maximum cached names of refs.
const ENTRIES_KEPT_MAX: usize = 200_000;
/// Maximum cached times, of four bytes each. All files of a larger version have one time.
pub(crate) const TIMES_KEPT_MAX: u64 = 4_000_000;

/// One directory.
#[derive(Debug)]
pub(crate) struct Dir {
    /// The names of all items, concatenated.
    text: String,
    items: Vec<Item>,
}

#[derive(Debug)]
struct Item {
    start: usize,
    len: u8,
    /// The number of entries in the directory, and below it, before this one.
    before: u64,
    what: What,
}

/// The kind of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    File(Content),
    Link(Box<[u8]>),
    Dir(Content),
}

/// An item with its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'d> {
    pub(crate) name: &'d str,
    pub(crate) before: u64,
    pub(crate) what: &'d What,
}

/// The cache.
#[derive(Default)]
pub(crate) struct Shelf {
    dirs: Mutex<Kept<Content, Dir>>,
    /// By the number of the state.
    names: Mutex<Kept<(u64, Namespace), Names>>,
    times: Mutex<Kept<Content, [u32]>>,
}

/// Values by key. All are dropped when their total weight is too large.
struct Kept<K, T: ?Sized> {
    things: HashMap<K, Arc<T>>,
    weight: u64,
}

impl<K, T: ?Sized> Default for Kept<K, T> {
    fn default() -> Self {
        Self {
            things: HashMap::new(),
            weight: 0,
        }
    }
}

impl Entry<'_> {
    pub(crate) fn is_dir(&self) -> bool {
        matches!(self.what, What::Dir(_))
    }

    /// The bytes by which the item is sorted.
    pub(crate) fn key(&self) -> impl Iterator<Item = u8> + use<'_> {
        let slash = self.is_dir().then_some(b'/');
        self.name.bytes().chain(slash)
    }
}

impl Dir {
    /// Reads the directory `tree`. Blocks.
    fn read(reader: &Reader<'_>, tree: &Content) -> Result<Self> {
        let mut dir = Self {
            text: String::new(),
            items: Vec::new(),
        };
        let mut before: u64 = 0;
        for entry in reader.tree(tree)? {
            let below = match &entry.node {
                Node::Tree { totals, .. } => totals.entries,
                _ => 0,
            };
            if let Ok(name) = std::str::from_utf8(&entry.name)
                && let Ok(len) = u8::try_from(name.len())
            {
                dir.items.push(Item {
                    start: dir.text.len(),
                    len,
                    before,
                    what: match entry.node {
                        Node::File { content, .. } => What::File(content),
                        Node::Symlink { target } => What::Link(target.into()),
                        Node::Tree { content, .. } => What::Dir(content),
                    },
                });
                dir.text.push_str(name);
            }
            before = before.saturating_add(below).saturating_add(1);
        }
        let (text, items) = (&dir.text, &mut dir.items);
        items.sort_by(|one, other| one.entry(text).key().cmp(other.entry(text).key()));
        Ok(dir)
    }

    /// The first item whose name, with a slash if it is a directory, is at least `from`.
    pub(crate) fn at_least(&self, from: &[u8]) -> Option<Entry<'_>> {
        let is_before = |item: &Item| item.entry(&self.text).key().lt(from.iter().copied());
        let at = self.items.partition_point(is_before);
        Some(self.items.get(at)?.entry(&self.text))
    }

    /// The item of this name.
    pub(crate) fn find(&self, name: &str) -> Option<Entry<'_>> {
        let has_name = |entry: &Entry<'_>| entry.name == name;
        let dir = [name.as_bytes(), b"/"].concat();
        let file = self.at_least(name.as_bytes()).filter(has_name);
        file.or_else(|| self.at_least(&dir).filter(has_name))
    }
}

impl Item {
    fn entry<'d>(&'d self, text: &'d str) -> Entry<'d> {
        let end = self.start + usize::from(self.len);
        Entry {
            name: text.get(self.start..end).unwrap_or_default(),
            before: self.before,
            what: &self.what,
        }
    }
}

impl Shelf {
    /// The directory `tree`, cached. Blocks.
    pub(crate) fn dir(&self, reader: &Reader<'_>, tree: &Content) -> Result<Arc<Dir>> {
        kept(&self.dirs, tree, ENTRIES_KEPT_MAX as u64, || {
            let dir = Dir::read(reader, tree)?;
            let weight = 8 + dir.items.len() as u64;
            Ok((Arc::new(dir), weight))
        })
    }

    /// The refs of a namespace, cached. Blocks.
    pub(crate) fn names(&self, reader: &Reader<'_>, namespace: &Namespace) -> Result<Arc<Names>> {
        let key = (reader.view().state.number, namespace.clone());
        kept(&self.names, &key, ENTRIES_KEPT_MAX as u64, || {
            let names = Names::of(reader, namespace)?;
            let weight = 8 + names.len() as u64;
            Ok((Arc::new(names), weight))
        })
    }

    /// The times of a version with this many entries, in seconds since 1970, the root's first. Blocks.
    pub(crate) fn times(
        &self,
        reader: &Reader<'_>,
        times: &Content,
        entries: u64,
    ) -> Result<Arc<[u32]>> {
        kept(&self.times, times, TIMES_KEPT_MAX, || {
            let mut from = TimesReader::new(reader, times)?;
            let secs = (0..entries).map(|_| {
                let secs = from.next()?.secs;
                Ok(u32::try_from(secs.max(0)).unwrap_or(u32::MAX))
            });
            Ok((secs.collect::<Result<_>>()?, entries))
        })
    }
}

fn kept<K: Clone + Eq + std::hash::Hash, T: ?Sized>(
    things: &Mutex<Kept<K, T>>,
    key: &K,
    weight_max: u64,
    read: impl FnOnce() -> Result<(Arc<T>, u64)>,
) -> Result<Arc<T>> {
    let lock = || things.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().things.get(key) {
        return Ok(Arc::clone(known));
    }
    let (thing, weight) = read()?;
    // Limits the weight of a single value, so that two large values do not evict each other.
    let weight = weight.min(weight_max / 2);
    let mut kept = lock();
    if kept.weight.saturating_add(weight) > weight_max {
        *kept = Kept::default();
    }
    kept.weight = kept.weight.saturating_add(weight);
    kept.things.insert(key.clone(), Arc::clone(&thing));
    Ok(thing)
}

#[cfg(test)]
impl Dir {
    /// A directory of these names. Those that end with a slash are directories.
    pub(crate) fn of(names: &[&str]) -> Self {
        let mut dir = Self {
            text: String::new(),
            items: Vec::new(),
        };
        for name in names {
            let (name, what) = match name.strip_suffix('/') {
                Some(name) => (name, What::Dir(Content::empty())),
                None => (*name, What::File(Content::empty())),
            };
            dir.items.push(Item {
                start: dir.text.len(),
                len: u8::try_from(name.len()).unwrap(),
                before: 0,
                what,
            });
            dir.text.push_str(name);
        }
        let (text, items) = (&dir.text, &mut dir.items);
        items.sort_by(|one, other| one.entry(text).key().cmp(other.entry(text).key()));
        dir
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_in_the_order_of_keys() {
        let dir = Dir::of(&["a/", "a-b", "a.c/", "a0", "b"]);
        let mut from = Vec::new();
        let mut found = Vec::new();
        while let Some(entry) = dir.at_least(&from) {
            from = entry.key().chain([0]).collect();
            found.push(entry.key().map(char::from).collect::<String>());
        }
        assert_eq!(found, ["a-b", "a.c/", "a/", "a0", "b"]);
        for name in ["a", "a-b", "a.c", "a0", "b"] {
            assert_eq!(dir.find(name).map(|entry| entry.name), Some(name));
        }
        assert!(dir.find("a/").is_none() && dir.find("").is_none() && dir.find("c").is_none());
    }

    #[test]
    fn what_is_too_much_is_given_up() {
        let things = Mutex::default();
        let read = |key: u64, weight: u64| {
            kept(&things, &key, 10, || Ok((Arc::new(key), weight))).unwrap();
            things.lock().unwrap().things.len()
        };
        assert_eq!([read(1, 4), read(2, 6), read(2, 6)], [1, 2, 2]);
        assert_eq!([read(3, 1), read(4, 20), read(5, 1)], [3, 1, 2]);
    }
}
