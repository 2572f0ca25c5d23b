//! The refs of a namespace by name, in the two orders that keys need.
//!
//! The key of a ref that is a file is its name; the keys of other refs begin with the name and a slash. `a-b/` comes
//! before `a/`, though `a` comes before `a-b`. Each lookup searches one of two sorted lists.

use std::cmp::Ordering;

use store::{Namespace, Reader, Result};

use crate::serve::source::{GATED, UPLOADS};

/// Prefixes of refs that are not in a bucket: uploads before their commit, and mirrors of repos that are not public.
const HIDDEN: [&str; 2] = [UPLOADS, GATED];

/// Refs with a live version.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// By name.
    sorted: Vec<Box<str>>,
    /// Indexes into `sorted`, ordered by name and a slash.
    deep: Vec<u32>,
}

impl Names {
    /// The refs of a namespace. Blocks.
    pub(crate) fn of(reader: &Reader<'_>, namespace: &Namespace) -> Result<Self> {
        let view = reader.view();
        let mut names = Vec::new();
        for head in view.state.refs.heads(Some(namespace)) {
            let (name, head) = head?;
            if head.live > 0 && !HIDDEN.iter().any(|begin| name.path().starts_with(begin)) {
                names.push(name.path().into());
            }
        }
        Ok(Self::new(names))
    }

    fn new(mut sorted: Vec<Box<str>>) -> Self {
        sorted.sort_unstable();
        let mut deep: Vec<u32> = (0..).take(sorted.len()).collect();
        let name = |place: &u32| sorted.get(*place as usize).map_or("", |name| &**name);
        deep.sort_by(|one, other| {
            let (one, other) = (name(one), name(other));
            one.bytes().chain([b'/']).cmp(other.bytes().chain([b'/']))
        });
        Self { sorted, deep }
    }

    pub(crate) fn len(&self) -> usize {
        self.sorted.len()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.sorted
            .binary_search_by(|known| (**known).cmp(name))
            .is_ok()
    }

    /// The next ref directly below `above` whose last part is at least `from`. Returns that part.
    pub(crate) fn single(&self, above: &str, from: &[u8]) -> Option<&str> {
        let mut wanted = [above.as_bytes(), from].concat();
        loop {
            let at = self
                .sorted
                .partition_point(|name| name.as_bytes() < wanted.as_slice());
            let rest = self.sorted.get(at)?.strip_prefix(above)?;
            match rest.split_once('/') {
                None => return Some(rest),
                // Skips everything that begins with the part and a slash.
                Some((part, _)) => wanted = format!("{above}{part}0").into_bytes(),
            }
        }
    }

    /// The next part below `above` in the names of refs, which, with a slash, is at least `from`.
    pub(crate) fn group(&self, above: &str, from: &[u8]) -> Option<&str> {
        let wanted = [above.as_bytes(), from].concat();
        let name = |place: &u32| self.sorted.get(*place as usize).map_or("", |name| &**name);
        let key = |place: &u32| name(place).bytes().chain([b'/']);
        // Skips the ref named `above` itself.
        let is_before = |place: &u32| {
            key(place).cmp(wanted.iter().copied()) == Ordering::Less || key(place).eq(above.bytes())
        };
        let at = self.deep.partition_point(is_before);
        let rest = name(self.deep.get(at)?).strip_prefix(above)?;
        Some(rest.split('/').next().unwrap_or(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Names {
        Names::new(names.iter().map(|name| (*name).into()).collect())
    }

    fn singles<'n>(names: &'n Names, above: &str) -> Vec<&'n str> {
        let mut found: Vec<&str> = Vec::new();
        let mut from = String::new();
        while let Some(part) = names.single(above, from.as_bytes()) {
            from = format!("{part}\0");
            found.push(part);
        }
        found
    }

    fn groups<'n>(names: &'n Names, above: &str) -> Vec<&'n str> {
        let mut found: Vec<&str> = Vec::new();
        let mut from = String::new();
        while let Some(part) = names.group(above, from.as_bytes()) {
            from = format!("{part}0");
            found.push(part);
        }
        found
    }

    #[test]
    fn parts_come_in_the_order_of_keys() {
        let names = names(&["a", "a-b", "a/c", "a/c/d", "a/e", "b/x/y", "b0"]);
        assert_eq!(singles(&names, ""), ["a", "a-b", "b0"]);
        assert_eq!(groups(&names, ""), ["a-b", "a", "b", "b0"]);
        assert_eq!(singles(&names, "a/"), ["c", "e"]);
        assert_eq!(groups(&names, "a/"), ["c", "e"]);
        assert_eq!(groups(&names, "b/"), ["x"]);
        assert_eq!(singles(&names, "b/"), [] as [&str; 0]);
        assert!(names.has("a/c") && !names.has("b/x"));
    }
}
