//! Extended attributes of files and directories: those of users, and access control lists.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{self, XattrFlags};
use rustix::io::{Errno, Result};

use crate::format::Xattrs;

/// Most bytes of all names of one entry, and of one value, that Linux allows.
const BYTES_MAX: usize = 1 << 16;
/// The prefix of attributes of this program: proofs and records, which belong to one directory of one host.
const OWN: &[u8] = b"user.store.";
/// Access control lists of POSIX.
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// The version with which such a list begins, and the tag of its entry for the owning group.
const LIST_VERSION: [u8; 4] = 2_u32.to_le_bytes();
const OF_GROUP: u16 = 0x04;

/// Whether an attribute is kept and restored. Others grant privileges, or belong to the host.
fn is_kept(name: &[u8]) -> bool {
    name.starts_with(b"user.") && !name.starts_with(OWN) || LISTS.contains(&name)
}

/// Reads the attributes of an open directory.
pub(crate) fn of_directory(dir: impl AsFd) -> Result<Xattrs> {
    let dir = dir.as_fd();
    read(
        |names| fs::flistxattr(dir, names),
        |name, value| fs::fgetxattr(dir, name, value),
    )
}

/// Reads the attributes of the file `name` in `dir`, without opening or following it.
pub(crate) fn of_file(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Xattrs> {
    let above = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    let path = above.join(OsStr::from_bytes(name));
    read(
        |names| fs::llistxattr(&path, names),
        |name, value| fs::lgetxattr(&path, name, value),
    )
}

fn read(
    list: impl Fn(&mut [u8]) -> Result<usize>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize>,
) -> Result<Xattrs> {
    let mut found = Xattrs::new();
    let mut names = vec![0; BYTES_MAX];
    let len = match list(&mut names) {
        // Most files have none.
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(found),
        len => len?,
    };
    let mut value = vec![0; BYTES_MAX];
    let names = names
        .get(..len)
        .unwrap_or_default()
        .split(|byte| *byte == 0);
    for name in names.filter(|name| is_kept(name)) {
        let len = match get(name, &mut value) {
            // The attribute was removed meanwhile.
            Err(Errno::NODATA) => continue,
            len => len?,
        };
        let value = value.get(..len).unwrap_or_default();
        found.insert(name.to_vec(), value.to_vec());
    }
    Ok(found)
}

/// Sets attributes of an open file or directory. Returns how many could not be set; unknown kinds are never set.
pub(crate) fn give(to: impl AsFd, attributes: &Xattrs) -> Result<u64> {
    let to = to.as_fd();
    let mut refused = 0;
    for (name, value) in attributes {
        if !is_kept(name) {
            refused += 1;
            continue;
        }
        match fs::fsetxattr(to, name.as_slice(), value, XattrFlags::empty()) {
            Ok(()) => {}
            Err(Errno::IO) => return Err(Errno::IO),
            // The file system has no attributes or no room for them, or does not know somebody whom a list names.
            Err(_) => refused += 1,
        }
    }
    Ok(refused)
}

/// What the access control list among these grants to the owning group, as bits of a mode. None, if there is no list.
/// An invalid list grants nothing.
pub(crate) fn rights_of_group(attributes: &Xattrs) -> Option<u32> {
    let [list, _] = LISTS;
    let entries = attributes.get(list)?.strip_prefix(&LIST_VERSION);
    // Each entry is a tag, rights, and whom they are for.
    let (entries, _) = entries.unwrap_or_default().as_chunks::<8>();
    let mut rights = entries.iter().filter_map(|[tag, more, low, high, ..]| {
        let is_it = u16::from_le_bytes([*tag, *more]) == OF_GROUP;
        is_it.then(|| u32::from(u16::from_le_bytes([*low, *high])) & 0o7)
    });
    Some(rights.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_list_grants_to_the_group_is_read_from_its_entry() {
        let list = |entries: &[(u16, u16)]| {
            let mut list = LIST_VERSION.to_vec();
            for (tag, rights) in entries {
                list.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
                list.extend(u32::MAX.to_le_bytes());
            }
            rights_of_group(&Xattrs::from([(LISTS[0].to_vec(), list)]))
        };
        assert_eq!(list(&[(1, 6), (2, 7), (4, 5), (16, 7), (32, 0)]), Some(5));
        assert_eq!(list(&[(1, 6), (4, 0), (32, 4)]), Some(0));
        assert_eq!(list(&[(1, 6)]), Some(0), "it has none");
        let other = Xattrs::from([(LISTS[0].to_vec(), b"none".to_vec())]);
        assert_eq!(rights_of_group(&other), Some(0));
        let default = Xattrs::from([(LISTS[1].to_vec(), b"any".to_vec())]);
        assert_eq!(rights_of_group(&default), None);
    }

    #[test]
    fn what_lends_rights_is_neither_kept_nor_given() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("file")).unwrap();
        let all = [
            "user.a",
            "user.store.nonce",
            "trusted.b",
            "security.capability",
        ];
        let all = all.map(|name| (name.as_bytes().to_vec(), b"1".to_vec()));
        assert_eq!(give(&file, &all.into()).unwrap(), 3);
        let below = std::fs::File::open(dir.path()).unwrap();
        let given = Xattrs::from([(b"user.a".to_vec(), b"1".to_vec())]);
        assert_eq!(of_file(below.as_fd(), b"file").unwrap(), given);
        // Attributes of this program are left out.
        fs::fsetxattr(&below, "user.store.record", b"x", XattrFlags::empty()).unwrap();
        assert_eq!(of_directory(&below).unwrap(), Xattrs::new());
    }
}
