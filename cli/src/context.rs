//! What every verb works with: the store that was meant, the host, and where to say things.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use store::format::Who;
use store::remote::{self, Objects, Prune};
use store::{Error, Host, Kind, Result, Store};

use crate::args::Global;
use crate::clusters::{self, Cluster};
use crate::config::{self, Config};
use crate::memory;
use crate::output::Output;

/// The situation a verb runs in.
pub(crate) struct Context {
    pub(crate) global: Global,
    pub(crate) out: Output,
    config: Config,
    stop: Arc<AtomicBool>,
}

/// Where the store is, and who said so.
struct Place {
    url: String,
    /// Nobody named a store, so it is made on the first put.
    embedded: bool,
}

impl Context {
    /// Reads the configuration and takes care of signals from here on.
    pub(crate) fn new(global: Global) -> Result<Self> {
        let out = Output::new(global.json, global.quiet);
        raise_open_files();
        Ok(Self {
            config: Config::load()?,
            out,
            stop: stop_on_signals()?,
            global,
        })
    }

    /// The store that was meant; it must exist.
    pub(crate) fn open(&self) -> Result<Store> {
        Store::open(self.remote(false)?, self.host())
    }

    /// The store that was meant; the embedded one is made when it is missing.
    pub(crate) fn open_for_put(&self) -> Result<Store> {
        if self.place()?.embedded {
            Store::open_or_init(self.remote(true)?, self.host())
        } else {
            self.open()
        }
    }

    /// The store that was meant; an empty one in memory where the embedded one was not made yet.
    pub(crate) fn open_for_dry_run(&self) -> Result<Store> {
        match self.open() {
            Err(error) if error.kind() == Kind::NotFound && self.place()?.embedded => {
                Store::init(Arc::new(Objects::memory()), self.host())
            }
            opened => opened,
        }
    }

    /// The store of a cluster; it must exist.
    pub(crate) fn open_cluster(&self, cluster: &Cluster) -> Result<Store> {
        let remote = remote::open(&cluster.url, remote::Options::default())?;
        Store::open(remote, self.host())
    }

    /// How the store that was meant is named.
    pub(crate) fn here(&self) -> Result<String> {
        Ok(self.place()?.url)
    }

    /// The store that a cluster's name means, else a path or a URL; it must exist.
    pub(crate) fn open_named(&self, named: &str) -> Result<Store> {
        clusters::check_url(named)?;
        if let Some(cluster) = self.config.cluster(named) {
            return self.open_cluster(cluster);
        }
        let plain = Cluster {
            url: named.to_owned(),
            profile: None,
        };
        let is_word = !named.contains(['/', ':', '.']);
        self.open_cluster(&plain)
            .map_err(|error| match error.kind() {
                Kind::NotFound if is_word => config::no_cluster(named),
                _ => error,
            })
    }

    /// A new store at `url`, or where the store is looked for.
    pub(crate) fn init(&self, url: Option<&str>) -> Result<Store> {
        let url = url.map_or_else(|| Ok(self.place()?.url), |url| Ok(url.to_owned()))?;
        Store::init(
            remote::open(&url, remote::Options { create: true })?,
            self.host(),
        )
    }

    /// The store that was meant, and the right to delete from it.
    pub(crate) fn open_for_gc(&self) -> Result<(Store, Arc<dyn Prune>)> {
        let remote = self.remote(false)?;
        Ok((Store::open(remote.clone(), self.host())?, remote))
    }

    /// What the configuration says.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Set when a signal asks to stop.
    pub(crate) fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    fn remote(&self, create: bool) -> Result<Arc<dyn Prune>> {
        let place = self.place()?;
        let opened = remote::open(&place.url, remote::Options { create });
        opened.map_err(|error| match error.kind() {
            Kind::NotFound => no_store(&place),
            _ => error,
        })
    }

    /// The flag beats the environment, which beats the file.
    fn place(&self) -> Result<Place> {
        let named = match &self.global.store {
            Some(url) => Some(
                url.to_str()
                    .map(str::to_owned)
                    .ok_or_else(|| not_utf8(url))?,
            ),
            None => self.config.store.clone(),
        };
        if let Some(url) = named.filter(|url| !url.is_empty()) {
            let cluster = self.config.cluster(&url);
            return Ok(Place {
                url: cluster.map_or(url, |cluster| cluster.url.clone()),
                embedded: false,
            });
        }
        let dir = config::data_dir().ok_or_else(|| {
            Error::not_found("no store is named, and there is no home directory to keep one in")
                .hint("name one with --store or $STORE_URL, or set HOME")
        })?;
        let url = dir
            .to_str()
            .map(str::to_owned)
            .ok_or_else(|| not_utf8(dir.as_os_str()))?;
        Ok(Place {
            url,
            embedded: true,
        })
    }

    fn host(&self) -> Host {
        let configured = self.config.memory.map(|size| size.0);
        Host {
            cache_dir: config::cache_dir(),
            who: who(),
            memory_bytes: self
                .global
                .memory
                .or(configured)
                .unwrap_or_else(memory::default_bytes),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            stop: Arc::clone(&self.stop),
        }
    }
}

fn no_store(place: &Place) -> Error {
    let error = Error::not_found(format!("{}: there is no store", place.url));
    if place.embedded {
        return error.hint(
            "the first `store put` makes it; another one is named with --store or $STORE_URL",
        );
    }
    error.hint(format!("make one there with `store init {}`", place.url))
}

fn not_utf8(name: &std::ffi::OsStr) -> Error {
    Error::invalid(format!(
        "store {}: its name is not UTF-8",
        PathBuf::from(name).display()
    ))
}

fn who() -> Who {
    let user = ["USER", "LOGNAME"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok());
    Who {
        host: rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
        user: user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string()),
        program: concat!("store ", env!("CARGO_PKG_VERSION")).to_owned(),
    }
}

/// The first signal asks to stop in good order, the second one stops at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let asked = Arc::clone(&stop);
        signal_hook::flag::register_conditional_shutdown(signal, 130, asked)
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|source| Error::unavailable("handlers of signals").because(source))?;
    }
    Ok(stop)
}

/// Allows as many open files as the system lets us: a walk keeps the directories of waiting files open.
/// Where that is refused, the limit stays and says so when it is met.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let _ = setrlimit(Resource::Nofile, raised);
}
