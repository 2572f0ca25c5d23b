//! Merges of small random trees: laws that hold for all, and a naive model that knows only paths.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;
use crate::id::ChunkId;

/// A tree by its paths: a number for a file, none for a directory.
type Paths = BTreeMap<String, Option<u8>>;

#[derive(Default)]
struct Memory {
    trees: HashMap<ChunkId, Vec<TreeEntry>>,
    /// The trees that were read.
    opened: std::cell::RefCell<Vec<ChunkId>>,
    left_out: BTreeSet<String>,
}

impl Trees for Memory {
    fn read(&self, content: &Content) -> Result<Vec<TreeEntry>> {
        self.opened.borrow_mut().push(content.root);
        Ok(self.trees[&content.root].clone())
    }

    fn write(&mut self, entries: &[TreeEntry]) -> Result<Content> {
        let root = ChunkId::of(format!("{entries:?}").as_bytes());
        self.trees.insert(root, entries.to_vec());
        Ok(Content {
            size: 1 + entries.len() as u64,
            depth: 0,
            root,
        })
    }

    fn leaves_out(&self) -> bool {
        !self.left_out.is_empty()
    }

    fn is_left_out(&self, path: &[u8], _is_dir: bool) -> bool {
        self.left_out.contains(std::str::from_utf8(path).unwrap())
    }
}

fn file(number: u8) -> Node {
    Node::File {
        content: Content {
            size: 1,
            depth: 0,
            root: ChunkId([number; 32]),
        },
        executable: false,
    }
}

/// Stores the directory at `above`.
fn store(memory: &mut Memory, paths: &Paths, above: &str) -> (Content, Totals) {
    let mut entries = Vec::new();
    let mut totals = Totals::default();
    for (path, thing) in paths {
        let Some(name) = path.strip_prefix(above).filter(|name| !name.contains('/')) else {
            continue;
        };
        let node = match thing {
            Some(number) => file(*number),
            None => {
                let (content, totals) = store(memory, paths, &format!("{path}/"));
                Node::Tree { content, totals }
            }
        };
        totals.add(&node);
        entries.push(TreeEntry {
            name: name.as_bytes().to_vec(),
            node,
        });
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    (memory.write(&entries).unwrap(), totals)
}

fn paths(memory: &Memory, content: &Content, above: &str, found: &mut Paths) {
    for entry in &memory.trees[&content.root] {
        let path = format!("{above}{}", std::str::from_utf8(&entry.name).unwrap());
        match &entry.node {
            Node::Tree { content, .. } => {
                paths(memory, content, &format!("{path}/"), found);
                found.insert(path, None);
            }
            Node::File { content, .. } => {
                let [number, ..] = content.root.0;
                found.insert(path, Some(number));
            }
            Node::Symlink { .. } => unreachable!(),
        }
    }
}

struct Outcome {
    paths: Paths,
    totals: Totals,
    merged: Merged,
    clashes: Vec<String>,
}

fn merge_paths(base: Option<&Paths>, ours: &Paths, theirs: &Paths) -> Outcome {
    let mut memory = Memory::default();
    let base = base.map(|base| store(&mut memory, base, "").0);
    let (ours, theirs) = (store(&mut memory, ours, ""), store(&mut memory, theirs, ""));
    let ((content, totals), merged) = merge(&mut memory, base.as_ref(), &ours, &theirs).unwrap();
    let mut found = Paths::new();
    paths(&memory, &content, "", &mut found);
    let clashes = merged.clashes.iter();
    let clashes = clashes.map(|clash| String::from_utf8(clash.path.clone()).unwrap());
    Outcome {
        clashes: clashes.collect(),
        paths: found,
        totals,
        merged,
    }
}

/// The expected result, path by path: theirs if we did not change the path, ours if they did not. If both changed it:
/// ours, or theirs if we deleted it. If a file and a directory have the same path, ours has priority, and is whole.
fn model(base: &Paths, ours: &Paths, theirs: &Paths) -> Paths {
    let all: BTreeSet<&String> = base
        .keys()
        .chain(ours.keys())
        .chain(theirs.keys())
        .collect();
    let file = |side: &Paths, path: &String| side.get(path).copied().flatten();
    let dir = |side: &Paths, path: &String| side.get(path) == Some(&None);
    let mut files: BTreeMap<String, (u8, bool)> = BTreeMap::new();
    let mut dirs: BTreeMap<String, bool> = BTreeMap::new();
    for path in all {
        let (b, o, t) = (file(base, path), file(ours, path), file(theirs, path));
        let (value, is_ours) = match (b, o, t) {
            (b, o, t) if o == b || o == t => (t, false),
            (b, o, t) if t == b => (o, true),
            (_, None, t) => (t, false),
            (_, o, _) => (o, true),
        };
        if let Some(value) = value {
            files.insert(path.clone(), (value, is_ours));
        }
        let (b, o, t) = (dir(base, path), dir(ours, path), dir(theirs, path));
        let (is_dir, is_ours) = if o == b { (t, false) } else { (o, o != t) };
        if is_dir {
            dirs.insert(path.clone(), is_ours);
        }
    }
    settle(files, dirs, ours)
}

/// If a file and other paths exclude each other, ours stays.
fn settle(
    mut files: BTreeMap<String, (u8, bool)>,
    mut dirs: BTreeMap<String, bool>,
    ours: &Paths,
) -> Paths {
    let is_below = |path: &String, above: &String| path.starts_with(&format!("{above}/"));
    for (at, (value, is_ours)) in files.clone() {
        let mut others = files.keys().filter(|path| is_below(path, &at)).count();
        others += dirs
            .keys()
            .filter(|path| is_below(path, &at) || **path == at)
            .count();
        if others == 0 {
            continue;
        }
        let ours_below = files
            .iter()
            .any(|(path, (_, ours))| *ours && is_below(path, &at))
            || dirs
                .iter()
                .any(|(path, ours)| *ours && (is_below(path, &at) || *path == at));
        if is_ours {
            files.retain(|path, _| !is_below(path, &at));
            dirs.retain(|path, _| !is_below(path, &at) && *path != at);
            files.insert(at, (value, is_ours));
        } else if ours_below {
            files.remove(&at);
            for (path, thing) in ours.iter().filter(|(path, _)| is_below(path, &at)) {
                match thing {
                    Some(value) => drop(files.insert(path.clone(), (*value, true))),
                    None => drop(dirs.insert(path.clone(), true)),
                }
            }
        } else {
            dirs.retain(|path, _| !is_below(path, &at) && *path != at);
            files.retain(|path, _| !is_below(path, &at));
            files.insert(at, (value, is_ours));
        }
    }
    let mut found: Paths = dirs.into_keys().map(|path| (path, None)).collect();
    for (path, (value, _)) in files {
        for (at, _) in path.match_indices('/') {
            found.insert(path[..at].to_owned(), None);
        }
        found.insert(path, Some(value));
    }
    let all: Vec<String> = found.keys().cloned().collect();
    for path in all {
        for (at, _) in path.match_indices('/') {
            found.insert(path[..at].to_owned(), None);
        }
    }
    found
}

/// Trees of few names and few contents, so that sides often coincide.
fn tree() -> impl Strategy<Value = Paths> {
    let path = prop::collection::vec(prop::sample::select(vec!["a", "b"]), 1..4);
    let thing = prop::option::weighted(0.8, 0u8..3);
    prop::collection::vec((path, thing), 0..7).prop_map(|things| {
        let mut found = Paths::new();
        for (path, thing) in things {
            let path = path.join("/");
            let above: Vec<String> = path
                .match_indices('/')
                .map(|(at, _)| path[..at].to_owned())
                .collect();
            let is_dir = |path: &String| matches!(found.get(path), None | Some(None));
            if !above.iter().all(is_dir) || found.contains_key(&path) {
                continue;
            }
            above.into_iter().for_each(|path| {
                found.insert(path, None);
            });
            found.insert(path, thing);
        }
        found
    })
}

/// The times that the steps of a merge select; each time is named after its side and path.
fn told(steps: &[Step], ours: &Paths, theirs: &Paths) -> Vec<String> {
    let list = |paths: &Paths| {
        let mut all: Vec<Vec<String>> = paths
            .keys()
            .map(|path| path.split('/').map(str::to_owned).collect())
            .collect();
        all.sort();
        let names = all.into_iter().map(|path| path.join("/"));
        [String::new()]
            .into_iter()
            .chain(names)
            .collect::<Vec<_>>()
            .into_iter()
    };
    let (mut ours, mut theirs) = (list(ours), list(theirs));
    let mut found = Vec::new();
    for step in steps {
        match *step {
            Step::Both => {
                let (one, other) = (ours.next().unwrap(), theirs.next().unwrap());
                assert_eq!(one, other);
                found.push(one);
            }
            Step::Ours(count) => (0..count).for_each(|_| found.push(ours.next().unwrap())),
            Step::Theirs(count) => (0..count).for_each(|_| found.push(theirs.next().unwrap())),
            Step::PassOurs(count) => (0..count).for_each(|_| drop(ours.next().unwrap())),
            Step::PassTheirs(count) => (0..count).for_each(|_| drop(theirs.next().unwrap())),
        }
    }
    assert_eq!((ours.next(), theirs.next()), (None, None));
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_merge_is_what_the_model_says(base in tree(), ours in tree(), theirs in tree()) {
        let found = merge_paths(Some(&base), &ours, &theirs);
        prop_assert_eq!(&found.paths, &model(&base, &ours, &theirs));
        prop_assert_eq!(found.totals.entries, found.paths.len() as u64);
    }

    #[test]
    fn a_merge_from_nothing_is_one_from_an_empty_tree(ours in tree(), theirs in tree()) {
        let found = merge_paths(None, &ours, &theirs);
        prop_assert_eq!(&found.paths, &model(&Paths::new(), &ours, &theirs));
    }

    #[test]
    fn one_side_alone_is_that_side(base in tree(), other in tree()) {
        for (ours, theirs) in [(&base, &other), (&other, &base), (&other, &other)] {
            let found = merge_paths(Some(&base), ours, theirs);
            prop_assert_eq!(&found.paths, &other);
            prop_assert!(found.clashes.is_empty());
        }
    }

    #[test]
    fn what_does_not_clash_is_the_same_from_either_side(base in tree(), ours in tree(), theirs in tree()) {
        let found = merge_paths(Some(&base), &ours, &theirs);
        let other = merge_paths(Some(&base), &theirs, &ours);
        if found.clashes.is_empty() {
            prop_assert_eq!(found.paths, other.paths);
        }
    }

    #[test]
    fn every_change_of_ours_is_in_it_or_named(base in tree(), ours in tree(), theirs in tree()) {
        let found = merge_paths(Some(&base), &ours, &theirs);
        let names: BTreeSet<&String> = base.keys().chain(ours.keys()).collect();
        for path in names {
            let file = |side: &Paths| side.get(path).copied().flatten();
            let is_told = file(&found.paths) == file(&ours) || found.clashes.contains(path);
            prop_assert!(file(&base) == file(&ours) || is_told, "{path}");
        }
    }

    #[test]
    fn every_change_of_theirs_is_in_it_or_named(base in tree(), ours in tree(), theirs in tree()) {
        let found = merge_paths(Some(&base), &ours, &theirs);
        for (path, thing) in &theirs {
            if thing.is_none() || base.get(path) == Some(thing) {
                continue;
            }
            let above = |clash: &String| path == clash || path.starts_with(&format!("{clash}/"));
            let is_told = found.paths.get(path) == Some(thing) || found.clashes.iter().any(above);
            prop_assert!(is_told, "{path}");
        }
    }

    #[test]
    fn times_follow_their_entries(base in tree(), ours in tree(), theirs in tree()) {
        let found = merge_paths(Some(&base), &ours, &theirs);
        let mut expected: Vec<Vec<&str>> = found.paths.keys().map(|path| path.split('/').collect()).collect();
        expected.sort();
        let expected: Vec<String> = [String::new()].into_iter().chain(expected.into_iter().map(|path| path.join("/"))).collect();
        prop_assert_eq!(told(&found.merged.steps, &ours, &theirs), expected);
    }

    #[test]
    fn changes_are_counted(base in tree(), ours in tree()) {
        let mut memory = Memory::default();
        let before = store(&mut memory, &base, "").0;
        let (after, totals) = store(&mut memory, &ours, "");
        let found = count(&memory, Some(&before), (&after, totals.entries)).unwrap();
        let there = |side: &Paths, path: &String| side.contains_key(path);
        let kind = |side: &Paths, path: &String| side.get(path).copied();
        // Changes below a path that became something else count as that path.
        let moved: Vec<&String> = base.keys().filter(|path| {
            there(&ours, path) && kind(&base, path) != kind(&ours, path)
        }).collect();
        let is_below = |path: &String| moved.iter().any(|above| path.starts_with(&format!("{above}/")));
        let expected = Counts {
            added: ours.keys().filter(|path| !there(&base, path) && !is_below(path)).count() as u64,
            changed: moved.iter().filter(|path| !is_below(path)).count() as u64,
            removed: base.keys().filter(|path| !there(&ours, path) && !is_below(path)).count() as u64,
        };
        prop_assert_eq!(found, expected);
    }
}

fn tree_of(things: &[(&str, Option<u8>)]) -> Paths {
    let things = things.iter();
    things
        .map(|(path, thing)| ((*path).to_owned(), *thing))
        .collect()
}

#[test]
fn equal_directories_are_not_opened() {
    let mut paths = tree_of(&[
        ("same", None),
        ("same/x", Some(1)),
        ("mine", None),
        ("theirs", None),
    ]);
    let mut memory = Memory::default();
    let base = store(&mut memory, &paths, "").0;
    paths.insert("mine/new".into(), Some(2));
    let ours = store(&mut memory, &paths, "");
    paths.remove("mine/new");
    paths.insert("theirs/new".into(), Some(3));
    let theirs = store(&mut memory, &paths, "");
    merge(&mut memory, Some(&base), &ours, &theirs).unwrap();
    for dir in ["same/", "theirs/"] {
        let root = store(&mut memory, &paths, dir).0.root;
        assert!(!memory.opened.borrow().contains(&root), "{dir}");
    }
}

#[test]
fn what_was_left_out_was_not_deleted() {
    let before = tree_of(&[("dir", None), ("dir/lock", Some(1)), ("gone", Some(1))]);
    let theirs = tree_of(&[
        ("dir", None),
        ("dir/lock", Some(1)),
        ("gone", Some(1)),
        ("new", Some(2)),
    ]);
    let mut memory = Memory::default();
    memory.left_out.insert("dir".into());
    let base = store(&mut memory, &before, "").0;
    let ours = store(&mut memory, &Paths::new(), "");
    let other = store(&mut memory, &theirs, "");
    let ((content, _), merged) = merge(&mut memory, Some(&base), &ours, &other).unwrap();
    let mut found = Paths::new();
    paths(&memory, &content, "", &mut found);
    assert_eq!(
        found,
        tree_of(&[("dir", None), ("dir/lock", Some(1)), ("new", Some(2))])
    );
    assert_eq!(merged.clashed, 0);
    let removed = count(&memory, Some(&base), (&ours.0, 0)).unwrap().removed;
    assert_eq!(removed, 1);
}

#[test]
fn what_is_gone_is_counted_but_for_what_was_left_out_and_the_directories_above_it() {
    let before = tree_of(&[
        ("dir", None),
        ("dir/a", Some(1)),
        ("dir/deep", None),
        ("dir/deep/lock", Some(1)),
        ("dir/deep/other", Some(1)),
        ("dir/x", Some(1)),
        ("whole", None),
        ("whole/f", Some(1)),
        ("whole/sub", None),
        ("whole/sub/g", Some(1)),
    ]);
    let mut memory = Memory::default();
    memory.left_out.insert("dir/deep/lock".into());
    let base = store(&mut memory, &before, "").0;
    let ours = store(&mut memory, &Paths::new(), "");
    let removed = count(&memory, Some(&base), (&ours.0, 0)).unwrap().removed;
    // Three files of `dir`, and everything in `whole`.
    assert_eq!(removed, 3 + 4);
}

#[test]
fn each_case_is_named() {
    let base = tree_of(&[
        ("a", Some(0)),
        ("b", Some(0)),
        ("c", Some(0)),
        ("d", Some(0)),
    ]);
    let ours = tree_of(&[
        ("a", Some(1)),
        ("b", Some(1)),
        ("d", None),
        ("d/x", Some(1)),
    ]);
    let theirs = tree_of(&[("a", Some(2)), ("c", Some(2)), ("d", Some(2))]);
    let found = merge_paths(Some(&base), &ours, &theirs);
    let cases: Vec<_> = found
        .merged
        .clashes
        .iter()
        .map(|clash| (std::str::from_utf8(&clash.path).unwrap(), clash.case))
        .collect();
    let expected = [
        ("a", Case::BothChanged),
        ("b", Case::DeletedThere),
        ("c", Case::DeletedHere),
        ("d", Case::BothChanged),
    ];
    assert_eq!(cases, expected);
    let expected = tree_of(&[
        ("a", Some(1)),
        ("b", Some(1)),
        ("c", Some(2)),
        ("d", None),
        ("d/x", Some(1)),
    ]);
    assert_eq!(found.paths, expected);
}

/// Somebody put a file in the place of a directory to which we added one.
#[test]
fn a_directory_against_a_file_is_kept_whole() {
    let base = tree_of(&[
        ("model", None),
        ("model/w1", Some(1)),
        ("model/w2", Some(1)),
    ]);
    let theirs = tree_of(&[("model", Some(2))]);
    let mut ours = base.clone();
    ours.insert("model/config".into(), Some(1));
    let found = merge_paths(Some(&base), &ours, &theirs);
    assert_eq!((found.paths, found.clashes), (ours, vec!["model".into()]));
    // Who only deleted in it has nothing of theirs in the way.
    let mut fewer = base.clone();
    fewer.remove("model/w1");
    let found = merge_paths(Some(&base), &fewer, &theirs);
    assert_eq!(found.paths, theirs);
}
