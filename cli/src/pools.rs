//! Which pool: the one that is named, else one on the file system of the destination.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use store::{Error, Kind, Pool, PoolLimits, Result};

use crate::{config, human};

/// Which pool, and how large it may be.
#[derive(clap::Args)]
pub(crate) struct PoolArgs {
    /// The pool: a directory on the file system of the destination [default: from the configuration, else
    /// $XDG_CACHE_HOME/store/pool if files there can be linked to the destination, else .store-pool-UID in
    /// the highest directory of the destination's mount that may be written]
    #[arg(long, value_name = "DIR", env = "STORE_POOL", hide_env_values = true)]
    pub(crate) pool: Option<PathBuf>,

    /// Most bytes that the pool may take, like 500GB; files that trees share are not counted as free
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size, env = "STORE_POOL_MAX", hide_env_values = true)]
    pub(crate) pool_max: Option<u64>,

    /// Bytes of the pool's file system that are left free for others
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size, env = "STORE_POOL_FREE", hide_env_values = true)]
    pub(crate) pool_free: Option<u64>,
}

/// The pool for `destination`, or the usual one where there is none.
pub(crate) fn open(args: &PoolArgs, destination: Option<&Path>) -> Result<Pool> {
    let limits = PoolLimits {
        bytes_max: args.pool_max,
        free_bytes_min: args.pool_free.unwrap_or(0),
    };
    if let Some(path) = args
        .pool
        .as_ref()
        .filter(|path| !path.as_os_str().is_empty())
    {
        return Pool::open(path, limits);
    }
    let usual = config::cache_dir().map(|dir| Pool::open(&dir.join("pool"), limits));
    let Some(destination) = destination else {
        return usual.unwrap_or_else(|| Err(nowhere()));
    };
    let parent = existing_parent(destination);
    match &usual {
        Some(Ok(pool)) if pool.can_link_to(&parent).unwrap_or(false) => {}
        _ => {
            if let Some(pool) = beside(&parent, limits) {
                return Ok(pool);
            }
        }
    }
    usual.unwrap_or_else(|| Err(nowhere()))
}

/// The nearest directory above `path` that exists, resolved.
fn existing_parent(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let above = absolute.ancestors().skip(1);
    let mut resolved = above.filter_map(|above| above.canonicalize().ok());
    resolved.next().unwrap_or_else(|| PathBuf::from("/"))
}

/// A pool on the mount of `dir`, as high as may be, so that all destinations there share it.
fn beside(dir: &Path, limits: PoolLimits) -> Option<Pool> {
    let device = dir.metadata().ok()?.dev();
    let same_device = |above: &&Path| above.metadata().is_ok_and(|found| found.dev() == device);
    let mut above: Vec<&Path> = dir.ancestors().take_while(same_device).collect();
    above.reverse();
    let name = format!(".store-pool-{}", rustix::process::getuid().as_raw());
    above.into_iter().find_map(|above| {
        let path = above.join(&name);
        let is_new = !path.exists();
        let pool = Pool::open(&path, limits).ok()?;
        if pool.can_link_to(dir).unwrap_or(false) {
            return Some(pool);
        }
        drop(pool);
        if is_new {
            // Made for the trial only; two mounts of one file system look the same until then.
            let _kept = std::fs::remove_dir_all(&path);
        }
        None
    })
}

fn nowhere() -> Error {
    Error::new(
        Kind::NotFound,
        "no pool is named, and there is no home directory to keep one in",
    )
    .hint("name one with --pool or $STORE_POOL, or set HOME")
}
