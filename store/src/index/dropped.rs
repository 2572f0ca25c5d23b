//! Deletes what the host's cache has of segments that were dropped.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::bytes::SegmentBytes;
use super::{gather, table};
use crate::format::State;
use crate::id::SegmentId;

/// How long the copy of a segment that the current state does not name is kept: another process may have a newer state.
const UNKNOWN_KEPT: Duration = Duration::from_secs(24 * 3600);

/// Deletes old files from `cache_dir` that `state` no longer needs: copies of segments that are not live, and shared
/// files of which less than half the segments are live. Files become old after a day. A file that cannot be deleted
/// only takes space, so that is not an error.
pub(super) fn forget_dropped(cache_dir: &Path, state: &State) {
    let is_live = |id: &SegmentId| state.segments.contains_key(id);
    for copy in old_files(&cache_dir.join("segments")) {
        let name = copy.file_name().and_then(|name| name.to_str());
        let id: Option<SegmentId> = name.and_then(|name| name.parse().ok());
        if !id.is_some_and(|id| is_live(&id)) {
            drop(std::fs::remove_file(&copy));
        }
    }
    type Segments = fn(&Path) -> Option<Vec<SegmentId>>;
    let kinds: [(&str, Segments); 2] = [
        (gather::DIR, gather::segments_of),
        (table::DIR, table::segments_of),
    ];
    for (dir, segments_of) in kinds {
        for file in old_files(&cache_dir.join(dir)) {
            let segments = segments_of(&file).unwrap_or_default();
            let live = segments.iter().filter(|id| is_live(id)).count();
            if live == 0 || live * 2 < segments.len() {
                drop(std::fs::remove_file(&file));
            }
        }
    }
}

/// Deletes this host's copies of `damaged` segments, so that whatever is done next sees what the store has.
pub(crate) fn forget_copies(cache_dir: &Path, damaged: &[SegmentId]) {
    // A copy that cannot be deleted is compared with the object by whoever relies on it.
    for id in damaged {
        drop(std::fs::remove_file(SegmentBytes::copy_in(cache_dir, *id)));
    }
    let gathered = std::fs::read_dir(cache_dir.join(gather::DIR));
    for file in gathered.into_iter().flatten().flatten() {
        let segments = gather::segments_of(&file.path()).unwrap_or_default();
        if segments.iter().any(|id| damaged.contains(id)) {
            drop(std::fs::remove_file(file.path()));
        }
    }
}

fn old_files(dir: &Path) -> Vec<PathBuf> {
    let old = SystemTime::now().checked_sub(UNKNOWN_KEPT);
    let is_old = |file: &std::fs::DirEntry| {
        let changed = file.metadata().and_then(|metadata| metadata.modified());
        changed.is_ok_and(|changed| Some(changed) < old)
    };
    let found = std::fs::read_dir(dir).into_iter().flatten().flatten();
    found.filter(is_old).map(|file| file.path()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn copies_of_dropped_segments_go_once_they_are_old() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("segments");
        std::fs::create_dir(&dir).unwrap();
        let two_days_ago = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
        let copy = |changed| {
            let path = dir.join(SegmentId::random().unwrap().to_string());
            let file = File::create(&path).unwrap();
            file.set_modified(changed).unwrap();
            path
        };
        let (old, new, live) = (
            copy(two_days_ago),
            copy(SystemTime::now()),
            copy(two_days_ago),
        );
        let mut state = State::default();
        let id = live.file_name().unwrap().to_str().unwrap().parse().unwrap();
        state.segments.insert(id, Default::default());
        forget_dropped(temp.path(), &state);
        assert_eq!(
            (old.exists(), new.exists(), live.exists()),
            (false, true, true)
        );
        // A file for many segments is deleted when less than half of them are live.
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for (number, ids) in [vec![id, SegmentId([1; 16])], vec![id; 1]]
            .iter()
            .enumerate()
        {
            let ids = ids.clone();
            let none = std::iter::empty::<std::slice::Iter<'_, [u8; 32]>>();
            let table = table::TableFile::write(temp.path(), ids, number as u64, none);
            kept.push(table.unwrap().unwrap().path);
        }
        let none = std::iter::empty::<std::slice::Iter<'_, [u8; 32]>>();
        let ids = vec![id, SegmentId([1; 16]), SegmentId([2; 16])];
        let table = table::TableFile::write(temp.path(), ids, 9, none);
        gone.push(table.unwrap().unwrap().path);
        for path in kept.iter().chain(&gone) {
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(two_days_ago).unwrap();
        }
        forget_dropped(temp.path(), &state);
        assert!(kept.iter().all(|path| path.exists()));
        assert!(!gone.iter().any(|path| path.exists()));
    }
}
