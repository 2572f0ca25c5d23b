//! Files that only their owner can read: copies of a version with such a file are for one user alone.

use std::mem;
use std::path::PathBuf;

use crate::host::walk::{Dir, Item};
use crate::profile::{Admitted, Profile};
use crate::remedy::{Note, Remedy};

/// Paths that a note names.
const NAMED_MAX: usize = 5;
/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Private paths that the walk met.
#[derive(Debug, Default)]
pub(super) struct Private {
    /// Trees of this host that were made from a private version. The mode of a linked file is the pool's, so it says
    /// nothing; and the walk may enter such a tree through a link.
    trees: Vec<PathBuf>,
    /// The closed directories around the last path in which nothing was admitted yet.
    empty: Vec<Vec<u8>>,
    named: Vec<String>,
    count: u64,
}

impl Private {
    pub(super) fn new(trees: Vec<PathBuf>) -> Self {
        Self {
            trees,
            ..Self::default()
        }
    }

    /// Looks at what was admitted. Empty files and directories are ignored, since they have nothing to hide, and so is
    /// the root: most roots are closed because of other things in them.
    pub(super) fn look(&mut self, path: &[u8], admitted: &Admitted, profile: &Profile) {
        while self.empty.pop_if(|dir| !lies_below(path, dir)).is_some() {}
        let is_closed = |mode| mode & OTHERS == 0 && !profile.has_modes_of_its_tool();
        match admitted {
            Admitted::File(file) => {
                self.count_dirs();
                let is_private = self.lies_in_one(&file.dir) || is_closed(file.stat.mode);
                if is_private && file.stat.size > 0 {
                    self.add(path);
                }
            }
            Admitted::Other(Item::Enter { stat, dir, .. })
                if !path.is_empty() && (self.lies_in_one(dir) || is_closed(stat.mode)) =>
            {
                self.empty.push(path.to_vec());
            }
            Admitted::Other(Item::Symlink { .. }) => self.count_dirs(),
            _ => {}
        }
    }

    /// Counts the closed directories around a path that was admitted.
    fn count_dirs(&mut self) {
        for dir in mem::take(&mut self.empty) {
            self.add(&dir);
        }
    }

    fn lies_in_one(&self, dir: &Dir) -> bool {
        let mut trees = self.trees.iter();
        !self.trees.is_empty() && {
            let dir = dir.path();
            trees.any(|tree| dir.starts_with(tree))
        }
    }

    /// Whether there are private files.
    pub(super) fn is_any(&self) -> bool {
        self.count > 0
    }

    pub(super) fn note(&self, is_readable: bool) -> Option<Note> {
        let more = match self.count.saturating_sub(self.named.len() as u64) {
            _ if self.count == 0 => return None,
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let told = |outcome: &str| {
            format!(
                "only their owner can read these, so this version comes out {outcome}: {}{more}",
                self.named.join(", ")
            )
        };
        Some(match is_readable {
            true => told("as the umask says all the same, as was asked for").into(),
            false => Note::with(told("for its user alone"), Remedy::LetOthersRead),
        })
    }

    fn add(&mut self, path: &[u8]) {
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(match path {
                [] => "the file itself".to_owned(),
                path => String::from_utf8_lossy(path).into_owned(),
            });
        }
    }
}

/// Whether `path` is in `dir`, at any depth.
fn lies_below(path: &[u8], dir: &[u8]) -> bool {
    let rest = path.strip_prefix(dir);
    rest.is_some_and(|rest| rest.starts_with(b"/"))
}
