//! The symlinks of a put: which are kept as they are, which get another target, which are followed.
//!
//! A link that leads out of the source is useless on another host. It is kept and counted, or replaced by its target. A
//! tree of hardly anything but such links is refused.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::links::{Kept, LinkRoot};
use crate::error::{Error, Result};
use crate::host::walk::{FileWalk, Item, find_file};
use crate::remedy::{Note, Remedy};

/// Most links that a note names.
const NAMED_MAX: usize = 5;
/// Most directories that are entered through links, one inside another.
const NESTED_MAX: usize = 40;
/// Most times that one directory is entered through links: links to directories of links multiply.
const TIMES_MAX: u32 = 1000;

/// What happens to symlinks in a put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkOptions {
    /// Keep absolute links that lead into the source as they are.
    pub keep_absolute: bool,
    /// Replace links that lead out of the source by their targets.
    pub dereference: bool,
    /// Accept a tree that consists almost only of links that lead out of it.
    pub allow_empty: bool,
}

/// The symlinks of one put, and counts for the notes.
#[derive(Debug)]
pub(crate) struct Follow {
    options: LinkOptions,
    given: PathBuf,
    /// Directories that this program itself writes to.
    own: Vec<PathBuf>,
    /// The source, and the directories outside of it that the walk is in, each with its path in the tree.
    roots: Vec<(Vec<u8>, LinkRoot)>,
    times: HashMap<(u64, u64), u32>,
    files: u64,
    links: u64,
    relative: Named,
    outside: Named,
    followed: u64,
    /// Links out of the source that have an existing target.
    left_behind: u64,
}

/// A count of paths, with the names of the first ones.
#[derive(Debug, Default)]
struct Named {
    count: u64,
    names: Vec<String>,
}

impl Follow {
    /// Prepares a put of `given`, whose real path is `root`, by a program that writes to `own`.
    pub(crate) fn new(options: LinkOptions, given: &Path, root: &Path, own: Vec<PathBuf>) -> Self {
        Self {
            options,
            given: given.to_path_buf(),
            own,
            roots: vec![(Vec::new(), LinkRoot::new(root))],
            times: HashMap::new(),
            files: 0,
            links: 0,
            relative: Named::default(),
            outside: Named::default(),
            followed: 0,
            left_behind: 0,
        }
    }

    /// Returns the item that the tree gets for an item of the walk, and its name there, if that differs.
    ///
    /// # Errors
    /// When a link is to be followed and dangles or leads in a circle.
    pub(crate) fn look(
        &mut self,
        walk: &mut FileWalk,
        item: Item,
    ) -> Result<(Item, Option<Vec<u8>>)> {
        let path = walk.path().to_vec();
        while self.roots.len() > 1
            && self
                .roots
                .last()
                .is_some_and(|(root, _)| !is_at_or_below(&path, root))
        {
            self.roots.pop();
        }
        let (name, target, stat) = match item {
            Item::File { .. } => {
                self.files += 1;
                return Ok((item, None));
            }
            Item::Symlink { name, target, stat } => (name, target, stat),
            other => return Ok((other, None)),
        };
        let Some((at, root)) = self.roots.last_mut() else {
            return Ok((Item::Symlink { name, target, stat }, None));
        };
        let inside = path.get(at.len()..).unwrap_or_default();
        let inside = inside.strip_prefix(b"/").unwrap_or(inside);
        let target = match root.keep(inside, &target) {
            Kept::AsIs => target,
            Kept::Relative(_) if self.options.keep_absolute => target,
            Kept::Relative(target) => {
                self.relative.add(&path);
                target
            }
            Kept::Outside if self.options.dereference => {
                let link = root.path().join(os(inside));
                return self.follow(walk, name, &link);
            }
            Kept::Outside => {
                self.outside.add(&path);
                let link = root.path().join(os(inside));
                let found = std::fs::metadata(link);
                self.left_behind +=
                    u64::from(found.is_ok_and(|found| found.is_file() || found.is_dir()));
                target
            }
        };
        self.links += 1;
        Ok((Item::Symlink { name, target, stat }, None))
    }

    /// Returns the target of a link in place of the link.
    fn follow(
        &mut self,
        walk: &mut FileWalk,
        name: Vec<u8>,
        link: &Path,
    ) -> Result<(Item, Option<Vec<u8>>)> {
        let real = link.canonicalize().map_err(|source| {
            Error::io("follow link", link, source).hint(Remedy::ExcludeOrKeepLink)
        })?;
        self.followed += 1;
        if !real.is_dir() {
            self.files += 1;
            return Ok((find_file(&real)?, Some(name)));
        }
        let is_own = |own: &PathBuf| own.starts_with(&real) || real.starts_with(own);
        if self.own.iter().any(is_own) {
            return Err(circle(link, "this program itself writes there"));
        }
        if self.roots.len() > NESTED_MAX {
            return Err(circle(link, "it is nested too deeply"));
        }
        let path = walk.path().to_vec();
        let (item, id) = walk.descend(name, &real)?;
        let times = self.times.entry(id).or_default();
        *times += 1;
        if *times > TIMES_MAX {
            return Err(circle(
                link,
                &format!("more than {TIMES_MAX} links lead to that directory"),
            ));
        }
        self.roots.push((path, LinkRoot::new(&real)));
        Ok((item, None))
    }

    /// Refuses a tree of which almost nothing would be kept.
    ///
    /// # Errors
    /// Invalid input then.
    pub(crate) fn check_something_is_kept(&self) -> Result<()> {
        let all = self.files + self.left_behind;
        if self.left_behind == 0 || self.options.allow_empty || self.left_behind * 10 < all * 9 {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{}: {} of its {all} files are symlinks that lead out of it, like {}: what they lead to would not be kept",
            self.given.display(),
            self.left_behind,
            self.outside.names.join(", "),
        ))
        .hint(Remedy::TakeTargets))
    }

    /// How many files and links the walk has met.
    pub(crate) fn seen(&self) -> u64 {
        self.files + self.links
    }

    /// The notes at the end of the walk.
    pub(crate) fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        if let Some(told) = self.relative.told() {
            let text = format!("{told}: absolute, led to places inside, stored relative");
            notes.push(Note::with(text, Remedy::KeepAbsoluteLinks));
        }
        if let Some(told) = self.outside.told() {
            let text = format!("{told}: led out of {}, kept as links", self.given.display());
            notes.push(Note::with(text, Remedy::TakeWhatLinksLeadTo));
        }
        if self.followed > 0 {
            let text = format!(
                "{}: followed, since what they lead to is outside of {}",
                counted(self.followed),
                self.given.display()
            );
            notes.push(text.into());
        }
        notes
    }
}

impl Named {
    fn add(&mut self, path: &[u8]) {
        self.count += 1;
        if self.names.len() < NAMED_MAX {
            self.names.push(path.escape_ascii().to_string());
        }
    }

    fn told(&self) -> Option<String> {
        let more = self.count.saturating_sub(self.names.len() as u64);
        let names = self.names.join(", ");
        match (self.count, more) {
            (0, _) => None,
            (count, 0) => Some(format!("{} ({names})", counted(count))),
            (count, more) => Some(format!("{} ({names} and {more} more)", counted(count))),
        }
    }
}

fn counted(links: u64) -> String {
    match links {
        1 => "1 symlink".to_owned(),
        links => format!("{links} symlinks"),
    }
}

fn circle(link: &Path, why: &str) -> Error {
    Error::invalid(format!("{}: cannot be followed: {why}", link.display()))
        .hint(Remedy::ExcludeOrKeepLink)
}

fn is_at_or_below(path: &[u8], root: &[u8]) -> bool {
    path.strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn os(path: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(path)
}
