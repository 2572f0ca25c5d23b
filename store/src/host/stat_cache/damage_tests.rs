//! A cache that is damaged, old or of something else never gives a wrong hit.

use std::fs;
use std::os::unix::fs::FileExt;

use super::tests::*;
use super::*;
use crate::error::ErrorKind;

#[test]
fn a_cache_of_an_older_version_is_empty_and_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 3, 1);
    let file = only_file(dir.path());
    let mut bytes = fs::read(&file).unwrap();
    let version = STAT_CACHE_MAGIC.len();
    assert_eq!(bytes[version], 2);
    bytes[version] = 1;
    fs::write(&file, &bytes).unwrap();
    let mut cache = open(dir.path());
    assert_eq!(cache.lookup(b"dir00000/file0000000", &stat(0)), None);
    assert!(cache.base().is_none() && cache.damage().is_none());
}

#[test]
fn a_cache_of_another_store_or_root_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 3, 1);
    let mine = only_file(dir.path());
    for (store, root) in [
        (StoreId([8; 16]), ROOT),
        (STORE, "/data"),
        (STORE, "/data/set2"),
    ] {
        let other = dir.path().join(file_name(store, root.as_bytes()));
        assert!(!other.exists());
        let cache = StatCache::open(dir.path(), store, Path::new(root));
        assert!(cache.base().is_none() && cache.damage().is_none());
        // The right file name, with a wrong cache in it.
        fs::copy(&mine, &other).unwrap();
        let mut cache = StatCache::open(dir.path(), store, Path::new(root));
        assert_eq!(cache.lookup(b"dir00000/file0000000", &stat(0)), None);
        assert!(cache.base().is_none());
        assert_eq!(cache.damage().unwrap().kind(), ErrorKind::Corrupt);
        fs::remove_file(other).unwrap();
    }
}

#[test]
fn a_cache_cut_short_anywhere_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let paths = fill(dir.path(), 12, 1);
    let file = only_file(dir.path());
    let whole = fs::read(&file).unwrap();
    for len in 0..whole.len() {
        fs::write(&file, &whole[..len]).unwrap();
        let cache = open(dir.path());
        assert!(cache.base().is_none(), "{len} bytes");
        let message = format!("stat cache {}", file.display());
        assert!(
            cache.damage().unwrap().to_string().starts_with(&message),
            "{len} bytes"
        );
        assert_eq!(hits(dir.path(), &paths), 0, "{len} bytes");
    }
    fs::write(&file, &whole).unwrap();
    assert_eq!(hits(dir.path(), &paths), 12);
}

#[test]
fn a_flipped_byte_never_makes_a_wrong_hit() {
    let dir = tempfile::tempdir().unwrap();
    let paths = fill(dir.path(), 12, 1);
    let file = only_file(dir.path());
    let whole = fs::read(&file).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&file, &bytes).unwrap();
        let mut cache = open(dir.path());
        for (seed, path) in (0..).zip(&paths) {
            let found = cache.lookup(path.as_bytes(), &stat(seed));
            assert!(
                found.is_none_or(|found| found == content(seed)),
                "byte {at}"
            );
        }
        assert_eq!(cache.lookup(b"z", &stat(0)), None);
        assert!(cache.damage().is_some(), "byte {at}");
    }
}

#[test]
fn damage_ends_a_cache_early_and_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let paths = fill(dir.path(), 9000, 1);
    let path = only_file(dir.path());
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    file.write_all_at(b"damage", middle).unwrap();
    let found = hits(dir.path(), &paths);
    assert!((1000..8000).contains(&found), "{found} of 9000");
    let mut cache = open(dir.path());
    assert!(cache.damage().is_none());
    assert_eq!(cache.lookup(paths[8999].as_bytes(), &stat(8999)), None);
    let expected = format!(
        "stat cache {}: block: its checksum is another",
        path.display()
    );
    assert_eq!(cache.damage().unwrap().to_string(), expected);
}

#[test]
fn blocks_of_an_older_cache_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 12, 1);
    let file = only_file(dir.path());
    let mut old = fs::read(&file).unwrap();
    let paths = fill(dir.path(), 15, 2);
    let new = fs::read(&file).unwrap();
    // The footer of the new cache after the blocks of the old one.
    let footer_len = |bytes: &[u8]| u32::from_le_bytes(*bytes.last_chunk().unwrap()) as usize + 4;
    old.truncate(old.len() - footer_len(&old));
    old.extend_from_slice(&new[new.len() - footer_len(&new)..]);
    fs::write(&file, &old).unwrap();
    let mut cache = open(dir.path());
    assert_eq!(cache.lookup(paths[14].as_bytes(), &stat(14)), None);
    let expected = format!(
        "stat cache {}: blocks are missing at its end",
        file.display()
    );
    assert_eq!(cache.damage().unwrap().to_string(), expected);
}

#[test]
fn a_block_in_another_place_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 9000, 1);
    let file = only_file(dir.path());
    let whole = fs::read(&file).unwrap();
    let header = layout::encode_header(STORE, ROOT.as_bytes()).len();
    let first = u32::from_le_bytes(*whole[header..].first_chunk().unwrap()) as usize + 4 + 32;
    // Without the first block, the second one follows the header.
    fs::write(&file, [&whole[..header], &whole[header + first..]].concat()).unwrap();
    let mut cache = open(dir.path());
    assert_eq!(cache.lookup(b"dir00899/file0008999", &stat(8999)), None);
    let expected = format!(
        "stat cache {}: block: its checksum is another",
        file.display()
    );
    assert_eq!(cache.damage().unwrap().to_string(), expected);
}
