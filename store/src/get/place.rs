//! Where the entries of a copy are, however deep. A path that is too long for the system is followed in steps, each
//! from an open directory. At most one directory is kept open for that.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{self, Mode, OFlags};

use crate::error::Error;

/// Longest path that is passed to one system call; the limit of the system is 4,095 bytes.
const STEP_BYTES_MAX: usize = 3000;
/// Longest path that an error shows in full.
const SHOWN_BYTES_MAX: usize = 400;

/// The open directory in which a copy is made, and the name of the copy there.
pub(super) struct Ground {
    fd: OwnedFd,
    top: Vec<u8>,
    /// The path of the copy for people.
    shown: PathBuf,
    last: Mutex<Option<(Arc<Step>, Arc<OwnedFd>)>>,
}

/// An entry of the copy.
#[derive(Clone, Debug)]
pub(super) struct CopyPlace {
    from: Option<Arc<Step>>,
    /// The path from there; empty for the copy itself.
    path: Vec<u8>,
}

/// A directory on the path to deeper places.
#[derive(Debug)]
struct Step {
    above: Option<Arc<Step>>,
    path: Vec<u8>,
}

impl Ground {
    pub(super) fn new(fd: OwnedFd, top: &[u8], shown: PathBuf) -> Self {
        Self {
            fd,
            top: top.to_vec(),
            shown,
            last: Mutex::default(),
        }
    }

    /// Calls `act` with an open directory and the path from there to `place`.
    pub(super) fn at<T>(
        &self,
        place: &CopyPlace,
        act: impl FnOnce(BorrowedFd<'_>, &[u8]) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        match &place.from {
            None => act(self.fd.as_fd(), &self.below_top(&place.path)),
            Some(step) => act(self.step(step)?.as_fd(), &place.path),
        }
    }

    /// The error of a system call about a place.
    pub(super) fn failed(&self, doing: &str, place: &CopyPlace, errno: rustix::io::Errno) -> Error {
        Error::io(doing, self.shown(place), errno.into())
    }

    /// The path of a place for people. The middle of a very long path is left out.
    pub(super) fn shown(&self, place: &CopyPlace) -> PathBuf {
        let mut parts = vec![&place.path];
        let mut above = &place.from;
        while let Some(step) = above {
            parts.push(&step.path);
            above = &step.above;
        }
        parts.reverse();
        let parts: Vec<&[u8]> = parts.into_iter().map(Vec::as_slice).collect();
        let path = parts.join(&b'/');
        match path.is_empty() {
            true => self.shown.clone(),
            false => self.shown.join(shortened(&path)),
        }
    }

    fn below_top(&self, path: &[u8]) -> Vec<u8> {
        match path {
            [] => self.top.clone(),
            path => [&self.top, &b"/"[..], path].concat(),
        }
    }

    /// Opens a directory on the path, from the one above it.
    fn step(&self, step: &Arc<Step>) -> rustix::io::Result<Arc<OwnedFd>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, fd)) = last.as_ref()
            && Arc::ptr_eq(known, step)
        {
            return Ok(Arc::clone(fd));
        }
        let mut way = Vec::new();
        let mut at = Some(step);
        while let Some(step) = at {
            way.push(step);
            at = step.above.as_ref();
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut fd = None::<OwnedFd>;
        for step in way.into_iter().rev() {
            fd = Some(match &fd {
                None => fs::openat(&self.fd, self.below_top(&step.path), flags, Mode::empty())?,
                Some(fd) => fs::openat(fd, &step.path, flags, Mode::empty())?,
            });
        }
        let fd = Arc::new(fd.ok_or(rustix::io::Errno::NOENT)?);
        *last = Some((Arc::clone(step), Arc::clone(&fd)));
        Ok(fd)
    }
}

impl CopyPlace {
    /// The copy itself.
    pub(super) fn top() -> Self {
        Self {
            from: None,
            path: Vec::new(),
        }
    }

    /// The place of the entry `name` in this directory.
    pub(super) fn child(&self, name: &[u8]) -> Self {
        if self.path.len() + 1 + name.len() <= STEP_BYTES_MAX {
            return Self {
                from: self.from.clone(),
                path: crate::wanted::join(&self.path, name),
            };
        }
        let step = Step {
            above: self.from.clone(),
            path: self.path.clone(),
        };
        Self {
            from: Some(Arc::new(step)),
            path: name.to_vec(),
        }
    }
}

impl Drop for Step {
    /// Drops the steps in a loop: a recursion as deep as the tree would overflow the stack.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut step) = above.and_then(Arc::into_inner) {
            above = step.above.take();
        }
    }
}

fn shortened(path: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let path = if path.len() <= SHOWN_BYTES_MAX {
        path.to_vec()
    } else {
        let half = SHOWN_BYTES_MAX / 2;
        let begin = path.get(..half).unwrap_or_default();
        let end = path.get(path.len() - half..).unwrap_or_default();
        [begin, b"/.../", end].concat()
    };
    PathBuf::from(std::ffi::OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_any_length_is_made_and_named_shortly() {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &std::path::Path| OwnedFd::from(std::fs::File::open(path).unwrap());
        let ground = Ground::new(open(dir.path()), b"tree", "out".into());
        let mode = Mode::from_raw_mode(0o700);
        let mut place = CopyPlace::top();
        let mut places = vec![place.clone()];
        for _ in 0..100 {
            place = place.child(&[b'x'; 200]);
            places.push(place.clone());
        }
        for place in &places {
            ground
                .at(place, |dir, path| fs::mkdirat(dir, path, mode))
                .unwrap();
        }
        let shown = ground.shown(&place);
        assert!(shown.as_os_str().len() < 500, "{}", shown.display());
        assert!(shown.starts_with("out"));
        for place in places.iter().rev() {
            let removed = ground.at(place, |dir, path| {
                fs::unlinkat(dir, path, fs::AtFlags::REMOVEDIR)
            });
            removed.unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
