//! Paths of a source that are too long for one system call, for a note.

/// The system accepts only shorter paths; the terminating zero byte counts.
const PATH_BYTES_MAX: usize = 4096;
/// Bytes of such a path that a note shows.
const NAMED_BYTES: usize = 60;

/// Paths that are too long for one system call.
#[derive(Default)]
pub(super) struct LongPaths {
    count: u64,
    first: String,
}

impl LongPaths {
    pub(super) fn look_at(&mut self, path: &[u8]) {
        if path.len() < PATH_BYTES_MAX {
            return;
        }
        if self.count == 0 {
            // The whole path would fill a screen.
            let begin = path.get(..NAMED_BYTES).unwrap_or(path);
            self.first = String::from_utf8_lossy(begin).into_owned();
        }
        self.count += 1;
    }

    pub(super) fn note(&self) -> Option<String> {
        let (count, first) = (self.count, &self.first);
        let what = match count {
            0 => return None,
            1 => "1 path is".to_owned(),
            count => format!("{count} paths are"),
        };
        Some(format!(
            "{what} longer than the 4,096 bytes that the system takes at once: {first}..."
        ))
    }
}
