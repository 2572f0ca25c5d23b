//! What lies in the directory of a cache before its command starts, as far as the pools of this host know.

use std::path::Path;
use std::sync::Arc;

use store::{MadeTree, Pool};

/// Whether nothing is in it.
pub(super) fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut names| names.next().is_none())
}

/// Whether a pool knows the directory as a tree.
pub(super) fn is_tree(pools: &[Arc<Pool>], dir: &Path) -> bool {
    trees(pools).any(|tree| tree.path == dir)
}

/// Whether an update of the tree in the directory was interrupted.
pub(super) fn is_of_no_version(pools: &[Arc<Pool>], dir: &Path) -> bool {
    trees(pools).any(|tree| tree.path == dir && !tree.is_settled)
}

/// The inode number of the tree that a pool made in the directory.
pub(super) fn inode_of_tree(pool: &Pool, dir: &Path) -> Option<u64> {
    let mut trees = pool.trees().unwrap_or_default().into_iter();
    Some(trees.find(|tree| tree.path == dir)?.inode)
}

fn trees(pools: &[Arc<Pool>]) -> impl Iterator<Item = MadeTree> {
    let trees = pools.iter().map(|pool| pool.trees().unwrap_or_default());
    trees.flatten()
}
