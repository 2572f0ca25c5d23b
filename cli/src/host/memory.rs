//! The default size of buffers, and the number of heaps of the allocator.

use std::path::Path;

const DEFAULT_BYTES: u64 = 128 << 20;
/// Minimum size: every thread needs a few buffers.
const LEAST_BYTES: u64 = 16 << 20;

/// 128 MiB, or a quarter of the cgroup's memory limit if that is less.
pub(crate) fn default_bytes() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = groups
        .lines()
        .filter_map(|line| limit(Path::new("/sys/fs/cgroup"), line))
        .min();
    limit.map_or(DEFAULT_BYTES, |limit| {
        (limit / 4).clamp(LEAST_BYTES, DEFAULT_BYTES)
    })
}

/// The smallest limit of the group in a line of `/proc/self/cgroup` and its parents.
fn limit(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, group) = (parts.next()?, parts.next()?);
    let (root, file) = match controllers {
        "" => (root.to_owned(), "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            (root.join("memory"), "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let group = root.join(group.trim_start_matches('/'));
    let groups = group
        .ancestors()
        .take_while(|group| group.starts_with(&root));
    groups
        .filter_map(|group| {
            std::fs::read_to_string(group.join(file))
                .ok()?
                .trim()
                .parse()
                .ok()
        })
        .min()
}

/// Limits the heaps of the allocator to the number of cores, at least two. glibc would create up to eight per core, and
/// each keeps the memory that was freed in it. A server with a thousand slow connections takes a third less. Does
/// nothing with other C libraries.
pub(crate) fn share_heaps() {
    #[cfg(target_env = "gnu")]
    {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let heaps = i32::try_from(cores.max(2)).unwrap_or(i32::MAX);
        #[expect(
            unsafe_code,
            reason = "takes two numbers, and is safe to call at any time; no crate offers it as such"
        )]
        // SAFETY: mallopt locks the allocator's own state, and leaves it unchanged if it rejects the value.
        let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, heaps) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_parents_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            std::fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(root.path().join(path), text).unwrap();
        };
        write("job/memory.max", "400000000\n");
        write("job/step/memory.max", "max\n");
        write("memory/a/memory.limit_in_bytes", "100\n");
        assert_eq!(limit(root.path(), "0::/job/step"), Some(400_000_000));
        assert_eq!(limit(root.path(), "4:cpu,memory:/a"), Some(100));
        assert_eq!(limit(root.path(), "4:cpu:/a"), None);
        assert_eq!(limit(root.path(), "0::/other"), None);
        assert_eq!(limit(root.path(), "garbage"), None);
    }
}
