//! Selects the pool: a named one, else one on the file system of the destination.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::{Error, ErrorKind, Pool, PoolLimits, Result};

use crate::config;
use crate::context::Context;
use crate::ui::{home, human};

/// Which pool, and how large it may be.
#[derive(clap::Args)]
pub(crate) struct PoolArgs {
    /// The pool: a directory on the file system of the destination [default: from the configuration, else
    /// $XDG_CACHE_HOME/store/pool if files there can be linked to the destination, else .store-pool-UID in
    /// the highest directory of the destination's mount that may be written]
    #[arg(long, value_name = "DIR", env = "STORE_POOL", hide_env_values = true, value_parser = home::path())]
    pub(crate) pool: Option<PathBuf>,

    /// Most bytes that the pool may take, like 500GB; files that trees share are not counted as free
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size, env = "STORE_POOL_MAX", hide_env_values = true)]
    pub(crate) pool_max: Option<u64>,

    /// Bytes of the pool's file system that are left free for others
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size, env = "STORE_POOL_FREE", hide_env_values = true)]
    pub(crate) pool_free: Option<u64>,
}

/// The pool for `destination`, or the usual pool if there is no destination.
pub(crate) fn open(args: &PoolArgs, context: &Context, destination: Option<&Path>) -> Result<Pool> {
    let config = &context.config().pool;
    let limits = limits(args, config);
    if let Some(path) = named(args, config) {
        has_a_place(path)?;
        return remembered(Pool::open(path, limits)?);
    }
    let usual = usual().map_or_else(|| Err(nowhere()), |path| Pool::open(&path, limits));
    let Some(destination) = destination else {
        return usual;
    };
    let parent = existing_parent(destination);
    match &usual {
        Ok(pool) if pool.can_link_to(&parent).unwrap_or(false) => return usual,
        _ => {}
    }
    let Some(pool) = beside(&parent, limits, context) else {
        return usual;
    };
    if let Err(error) = &usual {
        context.out.note(format_args!(
            "note: the pool {} is used instead of the usual one: {error}",
            pool.path().display()
        ));
    }
    remembered(pool)
}

/// Checks that the parent directory of a named pool exists. It is missing if a file system is not mounted or a name is
/// mistyped.
fn has_a_place(path: &Path) -> Result<()> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    match absolute.parent() {
        Some(above) if !above.is_dir() => Err(Error::not_found(format!(
            "pool {}: there is no directory {} to make it in",
            path.display(),
            above.display()
        ))
        .hint(format!(
            "mount its file system, or make the directory with `mkdir -p {}`",
            above.display()
        ))),
        _ => Ok(()),
    }
}

/// The named pool, else all known pools of this user.
pub(crate) fn known(named: Option<&Path>, config: &config::Pool) -> Vec<Result<Pool>> {
    let limits = PoolLimits::default();
    if let Some(path) = named.filter(|path| !path.as_os_str().is_empty()) {
        let none = || Error::not_found(format!("pool {}: there is none", path.display()));
        return vec![match is_pool(path) {
            true => Pool::open(path, limits),
            false => Err(none()),
        }];
    }
    let memory = memory().and_then(|dir| std::fs::read_dir(dir).ok());
    let links = memory.into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = links
        .filter_map(|link| std::fs::read_link(link.path()).ok())
        .collect();
    paths.extend(config.path.clone());
    paths.extend(usual());
    paths.sort();
    paths.dedup();
    paths.retain(|path| is_pool(path));
    paths.iter().map(|path| Pool::open(path, limits)).collect()
}

/// The pools that files of `source` may be linked from: known pools, and those near `source`. Pools that cannot be
/// opened are skipped.
pub(crate) fn of_source(source: &Path, config: &config::Pool) -> Vec<Arc<Pool>> {
    let mut found: Vec<Pool> = near(source, config).into_iter().flatten().collect();
    found.sort_by(|a, b| a.path().cmp(b.path()));
    found.dedup_by(|a, b| a.path() == b.path());
    found.into_iter().map(Arc::new).collect()
}

/// Why one of these pools cannot be used, if one cannot: what it knows of `source` does not count then.
pub(crate) fn unusable(source: &Path, config: &config::Pool) -> Option<Error> {
    near(source, config).into_iter().find_map(Result::err)
}

fn near(source: &Path, config: &config::Pool) -> Vec<Result<Pool>> {
    let named = std::env::var_os("STORE_POOL").map(|path| home::path_at_home(path.into()));
    let named = named.filter(|path| !path.as_os_str().is_empty());
    let mut found = known(None, config);
    let name = format!(".store-pool-{}", rustix::process::getuid().as_raw());
    let source = source.canonicalize().unwrap_or_default();
    let beside = source.ancestors().map(|above| above.join(&name));
    let others = named.into_iter().chain(beside);
    let others = others.filter(|path| is_pool(path));
    found.extend(others.map(|path| Pool::open(&path, PoolLimits::default())));
    found
}

/// The existing pools that a tree at `destination` may have been made with.
pub(crate) fn that_exist(
    args: &PoolArgs,
    destination: &Path,
    config: &config::Pool,
) -> Vec<Arc<Pool>> {
    let named = args.pool.as_deref().filter(|path| is_pool(path));
    let named = named.and_then(|path| Pool::open(path, PoolLimits::default()).ok());
    let mut found = of_source(destination, config);
    found.extend(named.map(Arc::new));
    found
}

/// Whether there is a pool at `path`. Used where no pool may be created.
fn is_pool(path: &Path) -> bool {
    path.join("pool").is_file()
}

/// The named pool. A flag overrides the environment, which overrides the file.
fn named<'a>(args: &'a PoolArgs, config: &'a config::Pool) -> Option<&'a Path> {
    let path = args.pool.as_deref();
    path.filter(|path| !path.as_os_str().is_empty())
        .or(config.path.as_deref())
}

fn limits(args: &PoolArgs, config: &config::Pool) -> PoolLimits {
    let configured = |size: Option<config::Size>| size.map(|size| size.0);
    PoolLimits {
        bytes_max: args.pool_max.or(configured(config.max)),
        free_bytes_min: args.pool_free.or(configured(config.free)).unwrap_or(0),
    }
}

/// The pool in the home directory.
fn usual() -> Option<PathBuf> {
    Some(config::cache_dir()?.join("pool"))
}

/// The directory that remembers pools outside the home directory, as symlinks.
fn memory() -> Option<PathBuf> {
    Some(config::cache_dir()?.join("pools"))
}

/// Remembers where a pool is. A forgotten pool has to be named when it is cleaned up.
fn remembered(pool: Pool) -> Result<Pool> {
    if let Some(dir) = memory() {
        let name = store::ChunkId::of(pool.path().as_os_str().as_encoded_bytes()).to_string();
        let _known = std::fs::create_dir_all(&dir)
            .and_then(|()| std::os::unix::fs::symlink(pool.path(), dir.join(name)));
    }
    Ok(pool)
}

/// The nearest directory above `path` that exists, resolved.
fn existing_parent(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let above = absolute.ancestors().skip(1);
    let mut resolved = above.filter_map(|above| above.canonicalize().ok());
    resolved.next().unwrap_or_else(|| PathBuf::from("/"))
}

/// A pool on the mount of `dir`, in the highest possible directory, so that all destinations there share it. Never in
/// the root directory, where nobody would look for it.
fn beside(dir: &Path, limits: PoolLimits, context: &Context) -> Option<Pool> {
    let device = dir.metadata().ok()?.dev();
    let same_device = |above: &&Path| above.metadata().is_ok_and(|found| found.dev() == device);
    let mut above: Vec<&Path> = dir
        .ancestors()
        .filter(|above| above.parent().is_some())
        .take_while(same_device)
        .collect();
    above.reverse();
    let name = format!(".store-pool-{}", rustix::process::geteuid().as_raw());
    above.into_iter().find_map(|above| {
        let path = above.join(&name);
        let is_new = path.symlink_metadata().is_err();
        let pool = match Pool::open(&path, limits) {
            Ok(pool) => pool,
            Err(error)
                if !is_new && matches!(error.kind(), ErrorKind::Denied | ErrorKind::Conflict) =>
            {
                context
                    .out
                    .note(format_args!("warning: {error}; it is not used"));
                return None;
            }
            Err(_) => return None,
        };
        if pool.can_link_to(dir).unwrap_or(false) {
            return Some(pool);
        }
        if is_new {
            // This pool was created only to test for hard links, since two mounts of one file system look the same
            // otherwise.
            pool.remove_unused();
        }
        None
    })
}

fn nowhere() -> Error {
    Error::new(
        ErrorKind::NotFound,
        "no pool is named, and there is no home directory to keep one in",
    )
    .hint("name one with --pool or $STORE_POOL, or set HOME")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(pool: Option<&str>, max: Option<u64>, free: Option<u64>) -> PoolArgs {
        PoolArgs {
            pool: pool.map(PathBuf::from),
            pool_max: max,
            pool_free: free,
        }
    }

    #[test]
    fn what_is_asked_for_beats_what_is_configured() {
        let size = |bytes| Some(config::Size(bytes));
        let configured = config::Pool {
            path: Some("/configured".into()),
            max: size(10),
            free: size(20),
        };
        let none = config::Pool::default();
        for (args, config, most, free, path) in [
            (args(None, None, None), &none, None, 0, None),
            (
                args(None, None, None),
                &configured,
                Some(10),
                20,
                Some("/configured"),
            ),
            (
                args(Some("/asked"), Some(1), Some(2)),
                &configured,
                Some(1),
                2,
                Some("/asked"),
            ),
            (
                args(Some("/asked"), Some(1), Some(0)),
                &configured,
                Some(1),
                0,
                Some("/asked"),
            ),
            (
                args(Some("/asked"), None, None),
                &none,
                None,
                0,
                Some("/asked"),
            ),
            // An empty variable counts as not set.
            (
                args(Some(""), None, None),
                &configured,
                Some(10),
                20,
                Some("/configured"),
            ),
            (args(Some(""), None, None), &none, None, 0, None),
        ] {
            let expected = PoolLimits {
                bytes_max: most,
                free_bytes_min: free,
            };
            assert_eq!(limits(&args, config), expected);
            assert_eq!(named(&args, config), path.map(Path::new));
        }
    }
}
