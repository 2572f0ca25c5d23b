//! Small steps of a walk: names, looks and single system calls, each with its error.

use super::*;
use crate::materialize::place::stamps;

/// Whether an entry is wanted: itself, or something below it.
pub(super) fn is_wanted(
    reader: &Reader<'_>,
    filter: &Filter,
    path: &[u8],
    node: &Node,
) -> Result<bool> {
    if filter.is_open() {
        return Ok(true);
    }
    let is_dir = matches!(node, Node::Tree { .. });
    if filter.excludes(path, is_dir) {
        return Ok(false);
    }
    if filter.includes(path, is_dir) || has_included_parent(filter, path) {
        return Ok(true);
    }
    let Node::Tree { content, .. } = node else {
        return Ok(false);
    };
    for entry in reader.tree(content)? {
        if is_wanted(reader, filter, &join(path, &entry.name), &entry.node)? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn has_included_parent(filter: &Filter, path: &[u8]) -> bool {
    let mut above = path;
    while let Some(at) = above.iter().rposition(|byte| *byte == b'/') {
        above = above.get(..at).unwrap_or_default();
        if filter.includes(above, true) {
            return true;
        }
    }
    false
}

/// Whether a directory of the old tree gives way to something else in the new one.
pub(super) fn is_dir_to_file(entries: &[TreeEntry], name: &[u8], old: &Node) -> bool {
    let found = entries
        .binary_search_by(|entry| entry.name.as_slice().cmp(name))
        .ok();
    let is_dir = |node: &Node| matches!(node, Node::Tree { .. });
    is_dir(old)
        && found
            .and_then(|at| entries.get(at))
            .is_some_and(|entry| !is_dir(&entry.node))
}

pub(super) fn in_the_way(path: &[u8], found: &str, wanted: &str) -> Error {
    Error::conflict(format!(
        "{}: expected {wanted} there, found {found} that a job made",
        shown(path)
    ))
    .hint("move it away, or let it go with --force")
}

pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        return name.to_vec();
    }
    [dir, b"/", name].concat()
}

pub(super) fn extended(names: &[Vec<u8>], name: &[u8]) -> Vec<Vec<u8>> {
    let mut names = names.to_vec();
    names.push(name.to_vec());
    names
}

pub(super) fn stat(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Stat>> {
    match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(disk::failed(
            "look at",
            Path::new(&shown(name).to_string()),
            errno,
        )),
    }
}

pub(super) fn reads(dir: BorrowedFd<'_>, name: &[u8], target: &[u8]) -> bool {
    fs::readlinkat(dir, name, Vec::new()).is_ok_and(|found| found.as_bytes() == target)
}

pub(super) fn make_dir(dir: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    match fs::mkdirat(dir, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(disk::failed(
            "create directory",
            Path::new(&shown(name).to_string()),
            errno,
        )),
    }
}

pub(super) fn open_dir(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    disk::open_dir(dir, name)
        .map_err(|errno| disk::failed("open directory", Path::new(&shown(name).to_string()), errno))
}

pub(super) fn make_symlink(
    dir: BorrowedFd<'_>,
    name: &[u8],
    target: &[u8],
    time: Time,
) -> Result<()> {
    fs::symlinkat(target, dir, name).map_err(|errno| {
        disk::failed("create symlink", Path::new(&shown(name).to_string()), errno)
    })?;
    set_time(dir, name, time)
}

pub(super) fn set_time(dir: BorrowedFd<'_>, name: &[u8], time: Time) -> Result<()> {
    fs::utimensat(dir, name, &stamps(time), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|source| Error::io("set the time of", shown(name).to_string(), source.into()))
}

/// Sets the time of a directory, unless it has it.
pub(super) fn settle_dir(dir: BorrowedFd<'_>, path: &[u8], time: Time) -> Result<()> {
    let failed = |errno| {
        disk::failed(
            "set the time of",
            Path::new(&shown(path).to_string()),
            errno,
        )
    };
    if Stat::from(fs::fstat(dir).map_err(failed)?).mtime == time {
        return Ok(());
    }
    fs::futimens(dir, &stamps(time)).map_err(failed)
}
