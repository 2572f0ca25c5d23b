//! The table of decisions. Each case is a path that is wanted or not, that was made or not, with what is on the disk.

use std::collections::BTreeMap;

use super::*;
use crate::ChunkId;
use crate::materialize::list::ListReader;
use crate::materialize::plan::each_op;
use crate::progress::Unwatched;

const THEN: Time = Time {
    secs: 1_000,
    nanos: 0,
};

/// A tree by paths: `d` is a directory, `l` and a target is a symlink, anything else is the bytes of a file. A `+`
/// before the bytes marks a linked file.
type Tree<'t> = BTreeMap<&'t str, &'t str>;

fn thing(text: &str) -> Thing {
    match text.split_at(1) {
        ("d", _) => Thing::Dir { time: THEN },
        ("l", target) => Thing::Symlink {
            target: target.as_bytes().to_vec(),
            time: THEN,
        },
        (first, _) => Thing::File {
            key: PoolKey {
                content: Content {
                    size: text.len() as u64,
                    depth: 0,
                    root: ChunkId::of(text.as_bytes()),
                },
                executable: false,
            },
            time: THEN,
            is_private: first != "+",
        },
    }
}

fn children<'t>(tree: &Tree<'t>, dir: &str) -> Vec<(&'t str, &'t str)> {
    let is_child = |path: &str| match path.rsplit_once('/') {
        Some((above, _)) => above == dir,
        None => dir.is_empty(),
    };
    let all = tree.iter().filter(|(path, _)| is_child(path));
    all.map(|(path, what)| (*path, *what)).collect()
}

fn last(path: &str) -> Vec<u8> {
    path.rsplit('/').next().unwrap().as_bytes().to_vec()
}

/// The wanted tree and the disk. On the disk, a file that ends with `~` was touched but has the same bytes, and `job`
/// was written later than everything that was made.
struct World<'t> {
    tree: Tree<'t>,
    dirs: Vec<(String, std::vec::IntoIter<(&'t str, &'t str)>)>,
    told: String,
    reads: u32,
}

impl<'t> World<'t> {
    fn new(tree: &[(&'t str, &'t str)]) -> Self {
        let tree: Tree<'t> = tree.iter().copied().collect();
        let root = children(&tree, "").into_iter();
        Self {
            tree,
            dirs: vec![(String::new(), root)],
            told: String::new(),
            reads: 0,
        }
    }

    fn at(&self, name: &[u8]) -> (String, Option<&'t str>) {
        let name = std::str::from_utf8(name).unwrap();
        let dir = &self.dirs.last().unwrap().0;
        let path = match dir.as_str() {
            "" => name.to_owned(),
            dir => format!("{dir}/{name}"),
        };
        let what = self.tree.get(path.as_str()).copied();
        (path, what)
    }

    fn go(&mut self, path: &str) {
        let below = children(&self.tree, path).into_iter();
        self.dirs.push((path.to_owned(), below));
    }
}

impl Wants for World<'_> {
    fn next(&mut self) -> Result<Option<(Vec<u8>, Thing)>> {
        let Some((path, what)) = self.dirs.last_mut().and_then(|(_, rest)| rest.next()) else {
            self.dirs.pop();
            return Ok(None);
        };
        self.told = path.to_owned();
        Ok(Some((last(path), thing(what))))
    }

    fn enter(&mut self) -> Result<()> {
        self.go(&self.told.clone());
        Ok(())
    }

    fn skip(&mut self) -> Result<()> {
        Ok(())
    }

    fn selects(&self, _path: &[u8], _is_dir: bool) -> bool {
        false
    }
}

impl Lies for World<'_> {
    fn enter(&mut self, name: &[u8]) -> Result<()> {
        let (path, _) = self.at(name);
        self.go(&path);
        Ok(())
    }

    fn leave(&mut self) {
        self.dirs.pop();
    }

    fn names(&mut self) -> Result<Vec<Vec<u8>>> {
        let dir = self.dirs.last().unwrap().0.clone();
        let mut names: Vec<_> = children(&self.tree, &dir)
            .into_iter()
            .map(|(path, _)| last(path))
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    fn stat(&mut self, name: &[u8]) -> Result<Option<Stat>> {
        let (_, Some(what)) = self.at(name) else {
            return Ok(None);
        };
        let bytes = what.trim_end_matches('~');
        let (kind, mtime) = match what.split_at(1).0 {
            "d" => (0o040_755, THEN),
            "l" => (0o120_777, THEN),
            "+" => (0o100_444, crate::host::pool::POOL_TIME),
            _ if bytes == what && bytes != "job" => (0o100_644, THEN),
            _ => (0o100_644, NEVER),
        };
        Ok(Some(Stat {
            size: bytes.len() as u64,
            mtime,
            ctime: mtime,
            ino: inode_of(ChunkId::of(bytes.as_bytes())),
            dev: 1,
            mode: kind,
            nlink: 1 + u64::from(what.starts_with('+')),
            blocks: 0,
            uid: 0,
            gid: 0,
        }))
    }

    fn own_time(&mut self) -> Result<Time> {
        Ok(THEN)
    }

    fn target(&mut self, name: &[u8]) -> Result<Vec<u8>> {
        Ok(self
            .at(name)
            .1
            .unwrap_or_default()
            .as_bytes()
            .split_off_first())
    }

    fn is_pooled(&mut self, key: &PoolKey, found: &Stat) -> Result<bool> {
        Ok(inode_of(key.content.root) == found.ino)
    }

    fn is_written_through(&mut self, _key: &PoolKey, _found: &Stat) -> Result<bool> {
        Ok(false)
    }

    fn may_be_torn(&mut self, _found: &Stat, _is_settled: bool) -> bool {
        false
    }

    fn is_untouched(&mut self, _found: &Stat) -> bool {
        true
    }

    fn has_bytes(&mut self, name: &[u8], content: &Content) -> Result<bool> {
        self.reads += 1;
        let bytes = self.at(name).1.unwrap_or_default().trim_end_matches('~');
        Ok(ChunkId::of(bytes.as_bytes()) == content.root)
    }
}

/// The inode of the pool's only file with this content.
fn inode_of(root: ChunkId) -> u64 {
    root.0
        .iter()
        .take(8)
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

trait SplitFirst {
    fn split_off_first(&self) -> Vec<u8>;
}

impl SplitFirst for [u8] {
    fn split_off_first(&self) -> Vec<u8> {
        self.get(1..).unwrap_or_default().to_vec()
    }
}

fn file() -> File {
    tempfile::tempfile().unwrap()
}

fn list(tree: &[(&str, &str)]) -> File {
    let mut list = ListWriter::new(file()).unwrap();
    let tree: Tree<'_> = tree.iter().copied().collect();
    for (path, what) in tree {
        let path: Vec<_> = path
            .split('/')
            .map(|name| name.as_bytes().to_vec())
            .collect();
        list.push(&path, &thing(what)).unwrap();
    }
    list.finish().unwrap().1
}

type Case<'t> = &'t [(&'t str, &'t str)];

/// The steps, one per line, and the names in the new record.
fn diff(made: &[Case<'_>], wanted: Case<'_>, disk: Case<'_>, options: Options) -> (String, String) {
    let mut files = made.iter().map(|tree| list(tree));
    let settled = files.next();
    let records = Records::new(settled, files.collect()).unwrap();
    let (mut wants, mut lies) = (World::new(wanted), World::new(disk));
    let all = (
        &mut wants as &mut dyn Wants,
        records,
        &mut lies as &mut dyn Lies,
    );
    let made = Diff::new(all, options, &Unwatched, (file(), file()))
        .and_then(|diff| diff.run(THEN, false))
        .unwrap();
    let mut steps = String::new();
    each_op(&made.plan, &mut |path, op| {
        let path = String::from_utf8_lossy(path);
        let op = match op {
            Op::Enter | Op::Settle(_) => return Ok(()),
            Op::MakeDir => "mkdir".to_owned(),
            Op::Make(..) => "make".to_owned(),
            Op::Replace(..) => "replace".to_owned(),
            Op::Touch(..) => "touch".to_owned(),
            Op::Remove(..) => "remove".to_owned(),
            Op::RemoveDir(_) => "rmdir".to_owned(),
            Op::RemoveAll(_) => "remove all".to_owned(),
            Op::Keep(why) => format!("keep {why:?}"),
        };
        steps += &format!("{op} {path}\n");
        Ok(())
    })
    .unwrap();
    let mut names = Vec::new();
    let mut record = ListReader::<Thing>::new(made.record).unwrap();
    while let Some((_, name, _)) = record.next().unwrap() {
        names.push(String::from_utf8(name).unwrap());
    }
    (steps, names.join(" "))
}

fn plain() -> Options {
    Options {
        links: true,
        takes_copies: true,
        ..Options::default()
    }
}

#[test]
fn each_name_is_decided_by_what_is_wanted_was_made_and_lies_there() {
    let one: Case<'_> = &[("a", "one")];
    let two: Case<'_> = &[("a", "two")];
    let job: Case<'_> = &[("a", "job")];
    let none: Case<'_> = &[];
    let dir: Case<'_> = &[("a", "d"), ("a/x", "one")];
    let full: Case<'_> = &[("a", "d"), ("a/mine", "job"), ("a/x", "one")];
    let cases: [(Case<'_>, Case<'_>, Case<'_>, &str, &str); 20] = [
        // made, wanted, on the disk
        (one, one, one, "", "a"),
        (one, two, one, "replace a", "a"),
        (one, one, job, "keep Changed a", "a"),
        (one, two, job, "keep Changed a", "a"),
        (one, two, &[("a", "two~")], "touch a", "a"),
        (one, one, none, "keep Deleted a", "a"),
        (one, none, one, "remove a", ""),
        (one, none, job, "keep Dropped a", "a"),
        (one, none, none, "", ""),
        (none, one, none, "make a", "a"),
        (none, one, job, "keep InTheWay a", ""),
        (none, one, one, "", "a"),
        (none, none, job, "keep Added a", ""),
        (one, dir, one, "remove a\nmkdir a\nmake a/x", "a x"),
        (one, dir, job, "keep Changed a", "a"),
        (dir, one, dir, "remove a/x\nrmdir a\nmake a", "a"),
        (
            dir,
            one,
            full,
            "keep Added a/mine\nremove a/x\nkeep InTheWay a",
            "a",
        ),
        (dir, none, full, "keep Added a/mine\nremove a/x", "a"),
        (dir, none, dir, "remove a/x\nrmdir a", ""),
        (dir, dir, none, "keep Deleted a", "a x"),
    ];
    for (at, (made, wanted, disk, steps, record)) in cases.into_iter().enumerate() {
        let (found, names) = diff(&[made], wanted, disk, plain());
        assert_eq!(
            (found.trim_end(), names.as_str()),
            (steps, record),
            "case {at}"
        );
    }
}

#[test]
fn a_request_may_overrule_a_job() {
    let made: Case<'_> = &[("a", "one"), ("b", "one"), ("c", "one")];
    let disk: Case<'_> = &[("a", "job"), ("c", "job"), ("mine", "job")];
    let wanted: Case<'_> = &[("a", "one"), ("b", "one")];
    let force = Options {
        overrules: true,
        ..plain()
    };
    let (steps, _) = diff(&[made], wanted, disk, force);
    assert_eq!(
        steps,
        "replace a\nmake b\nkeep Dropped c\nkeep Added mine\n"
    );
    let exact = Options {
        exact: true,
        ..force
    };
    let (steps, record) = diff(&[made], wanted, disk, exact);
    assert_eq!(steps, "replace a\nmake b\nremove all c\nremove all mine\n");
    assert_eq!(record, "a b");
}

#[test]
fn after_interrupted_updates_each_path_may_be_of_any_of_them() {
    let (one, two): (Case<'_>, Case<'_>) =
        (&[("a", "one"), ("x", "one")], &[("a", "two"), ("y", "two")]);
    let wanted: Case<'_> = &[("a", "three"), ("x", "one"), ("z", "three")];
    for a in ["one", "two"] {
        // x existed and the update may have removed it; the update may have made y.
        let disk = [("a", a), ("y", "two")];
        let (steps, record) = diff(&[one, two], wanted, &disk, plain());
        assert_eq!(steps, "replace a\nmake x\nremove y\nmake z\n");
        assert_eq!(record, "a x z");
    }
    let (steps, _) = diff(&[one, two], wanted, &[("a", "job"), ("x", "one")], plain());
    assert_eq!(steps, "keep Changed a\nmake z\n");
}

#[test]
fn of_an_unknown_tree_nothing_goes_that_is_not_a_pools() {
    let wanted: Case<'_> = &[("a", "new"), ("b", "+linked"), ("c", "same")];
    let disk: Case<'_> = &[("a", "old"), ("b", "+other!"), ("c", "same"), ("d", "old")];
    let unknown = Options {
        is_unknown: true,
        ..plain()
    };
    let (steps, record) = diff(&[], wanted, disk, unknown);
    assert_eq!(steps, "keep Unknown a\nreplace b\nkeep Unknown d\n");
    assert_eq!(record, "a b c d");
}

#[test]
fn a_copy_with_another_time_is_read_before_it_is_taken_for_a_jobs() {
    let one: Case<'_> = &[("a", "one")];
    let touched: Case<'_> = &[("a", "one~")];
    assert_eq!(diff(&[one], one, touched, plain()).0, "touch a\n");
    assert_eq!(
        diff(&[one], &[("a", "two")], touched, plain()).0,
        "replace a\n"
    );
}
