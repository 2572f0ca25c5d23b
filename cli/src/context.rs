//! What every verb works with: the selected store, the host, and the output.

mod away;
pub(crate) mod bundles;
pub(crate) mod elsewhere;
pub(crate) mod jobs;
pub(crate) mod pools;
pub(crate) mod schedule;
mod warnings;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::Who;
use store::remote::{self, Objects, Prune};
use store::{Error, ErrorKind, Host, Result, Store};

use self::away::no_store;
use crate::config::clusters::{self, Cluster};
use crate::config::{self, Config};
use crate::connect;
use crate::host::memory;
use crate::host::room;
use crate::host::signals::stop_on_signals;
use crate::ui::global::Global;
use crate::ui::output::Output;

/// The environment that a verb runs in.
pub(crate) struct Context {
    pub(crate) global: Global,
    pub(crate) out: Output,
    config: Config,
    stop: Arc<AtomicBool>,
    /// The opened stores, whose warnings are printed at the end.
    opened: RefCell<Vec<Store>>,
    /// The exit code if nothing failed: that of the command that `store run` ran.
    code: Cell<u8>,
    pub(crate) failed: Cell<Option<Error>>,
}

/// The location of the store, and where the name came from.
struct Place {
    url: String,
    /// The profile of the configuration that reaches the store.
    profile: Option<String>,
    /// Whether no store was named. The embedded store is then created by the first put.
    embedded: bool,
}

impl Context {
    /// Reads the configuration and installs the signal handlers.
    ///
    /// If signals are for a child command, they only ask this process to stop.
    pub(crate) fn new(global: Global, are_for_a_command: bool) -> Result<Self> {
        let named = global.named().map(|named| clusters::masked(&named));
        let out = Output::new(global.json, global.quiet).at(named);
        raise_open_files();
        let config = Config::load()?;
        if let Some(path) = config.exposed() {
            out.note(format_args!(
                "note: {0} holds credentials, and others can read it: chmod 600 {0}",
                path.display()
            ));
        }
        Ok(Self {
            config,
            out,
            stop: stop_on_signals(are_for_a_command)?,
            code: Cell::default(),
            failed: Cell::default(),
            opened: RefCell::default(),
            global,
        })
    }

    /// Opens the selected store, which must exist.
    pub(crate) fn open(&self) -> Result<Store> {
        let open = |remote: Arc<dyn Prune>| Store::open(remote, self.host());
        let opened = self.remote(false).and_then(open);
        Ok(self.watched(self.found(&self.place()?.url, opened)?))
    }

    /// Sets the store to the requested log entry, and registers it so that its warnings are printed at the end. A store
    /// without a policy of its own uses the quotas of the configuration.
    fn watched(&self, store: Store) -> Store {
        let store = store.with_local_policy(self.config.policy());
        let store = match self.global.at_entry {
            Some(number) => store.at(number),
            None => store,
        };
        self.opened.borrow_mut().push(store.clone());
        store
    }

    /// Opens the selected store. Creates the embedded store if it does not exist yet.
    pub(crate) fn open_for_put(&self) -> Result<Store> {
        if self.place()?.embedded {
            self.check_there()?;
            self.open_or_make(&PathBuf::from(self.place()?.url))
        } else {
            self.open()
        }
    }

    /// Opens or creates the embedded store. Only its owner may read it, since the files in it may be private.
    fn open_or_make(&self, dir: &Path) -> Result<Store> {
        let is_new = !dir.join("format").exists();
        if is_new {
            room::make_private(dir)?;
        }
        let store = self.watched(Store::open_or_init(self.remote(true)?, self.host())?);
        self.remember(&store);
        if is_new {
            self.out
                .note(format_args!("made a store in {}", dir.display()));
        }
        Ok(store)
    }

    /// Opens the selected store, or an empty one in memory if the embedded store does not exist yet.
    pub(crate) fn open_for_dry_run(&self) -> Result<Store> {
        self.open_if_made()?.map_or_else(|| self.nowhere(), Ok)
    }

    /// Opens the selected store. Returns `None` if the embedded store does not exist yet.
    pub(crate) fn open_if_made(&self) -> Result<Option<Store>> {
        match self.open() {
            Err(error) if error.kind() == ErrorKind::NotFound && self.place()?.embedded => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// An empty store in memory.
    pub(crate) fn nowhere(&self) -> Result<Store> {
        let store = Store::init(Arc::new(Objects::memory()), self.host())?;
        Ok(self.watched(store))
    }

    /// Opens the store of a cluster, which must exist.
    pub(crate) fn open_cluster(&self, cluster: &Cluster) -> Result<Store> {
        self.open_at(&cluster.url, cluster.profile.as_deref())
    }

    /// The name of the selected store for messages.
    pub(crate) fn here(&self) -> Result<String> {
        Ok(clusters::masked(&self.place()?.url))
    }

    /// A name of the selected store that is valid anywhere on this host.
    pub(crate) fn lasting_store(&self) -> Result<String> {
        match self.global.store.as_ref().and_then(|url| url.to_str()) {
            Some(named) => self.lasting(named),
            None => clusters::lasting_url(&self.place()?.url),
        }
    }

    /// The name of a cluster, or a URL that is valid anywhere on this host.
    pub(crate) fn lasting(&self, named: &str) -> Result<String> {
        match self.config.cluster(named) {
            Some(_) => Ok(named.to_owned()),
            None => clusters::lasting_url(named),
        }
    }

    /// Opens the store that `named` means: a cluster's name, a path or a URL. The store must exist.
    ///
    /// `profile` reaches it, unless the configuration has a profile for it.
    pub(crate) fn open_named(&self, named: &str, profile: Option<&str>) -> Result<Store> {
        clusters::check_url(named)?;
        if let Some(cluster) = self.config.cluster(named) {
            let known = cluster.profile.as_deref().or(profile);
            return self.open_at(&cluster.url, known);
        }
        let plain = Cluster {
            url: named.to_owned(),
            profile: self.config.profile_of(named).or(profile).map(str::to_owned),
        };
        let is_word = !named.contains(['/', ':', '.']);
        self.open_cluster(&plain)
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound if is_word => self.config.no_cluster(named),
                _ => error,
            })
    }

    /// Creates a store at `url`, or at the selected place. A bucket is tested first: if its put-if-absent overwrites,
    /// only a store with a single writer is created, and only on request.
    pub(crate) fn init(
        &self,
        url: Option<&str>,
        single_writer: bool,
        shared: Option<room::Readers>,
    ) -> Result<Store> {
        let place = match url {
            Some(url) => self.named(url.to_owned(), None),
            None => self.place()?,
        };
        match clusters::is_directory(&place.url) {
            true => {
                let dir = place.url.strip_prefix("file://").unwrap_or(&place.url);
                room::check(Path::new(dir))?;
                match (shared, place.embedded) {
                    (Some(readers), _) => room::share(Path::new(dir), readers)?,
                    (None, true) => room::make_private(Path::new(dir))?,
                    (None, false) => {}
                }
            }
            false if shared.is_some() => {
                return Err(Error::invalid("--shared is for a directory")
                    .hint("credentials decide who may write to a bucket"));
            }
            false => {}
        }
        let remote = self.remote_of(&place.url, place.profile.as_deref(), true, &self.stop)?;
        if single_writer {
            return Store::init_single_writer(remote, self.host());
        }
        Store::create(&remote, self.host())
    }

    /// The bytes at `url`, with the credentials of the named profile or of the environment. The place must exist, as
    /// far as this can be known without a request.
    pub(crate) fn remote_at(&self, url: &str, profile: Option<&str>) -> Result<Arc<dyn Prune>> {
        self.remote_of(url, profile, false, &self.stop)
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound if !is_bucket(url) => no_store(url, false),
                _ => error,
            })
    }

    /// Opens the store at `url`; see [`Self::remote_at`]. Stores with different credentials can be open at the same
    /// time.
    pub(crate) fn open_at(&self, url: &str, profile: Option<&str>) -> Result<Store> {
        let open = |remote: Arc<dyn Prune>| Store::open(remote, self.host());
        let opened = self.remote_at(url, profile).and_then(open);
        Ok(self.watched(self.found(url, opened)?))
    }

    /// Opens the selected store together with the right to delete from it.
    pub(crate) fn open_for_gc(&self) -> Result<(Store, Arc<dyn Prune>)> {
        let url = self.place()?.url;
        let remote = self.remote(false);
        let remote = remote.map_err(|error| self.missing(&url, error))?;
        let opened = self.found(&url, Store::open(remote.clone(), self.host()));
        Ok((self.watched(opened?), remote))
    }

    /// The configuration.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Opens the selected store. Its work ends when `stop` is set, not by a signal.
    pub(crate) fn open_until(&self, stop: Arc<AtomicBool>) -> Result<Store> {
        let host = Host {
            stop,
            ..self.host()
        };
        let remote = self.remote_until(false, &host.stop);
        let opened = remote.and_then(|remote| Store::open(remote, host));
        Ok(self.watched(self.found(&self.place()?.url, opened)?))
    }

    /// Sets the exit code for the case that nothing else fails.
    pub(crate) fn end_with(&self, code: u8) {
        self.code.set(code);
    }

    /// Ends with this code and this error, which is printed last, if nothing else fails.
    pub(crate) fn fail_with(&self, code: u8, error: Error) {
        self.code.set(code);
        self.failed.set(Some(error));
    }

    /// The exit code if nothing else failed.
    pub(crate) fn code(&self) -> u8 {
        self.code.get()
    }

    /// Is set when a signal asks to stop.
    pub(crate) fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    fn remote(&self, create: bool) -> Result<Arc<dyn Prune>> {
        self.remote_until(create, &self.stop)
    }

    /// The bytes of the selected store. Their requests end when `stop` is set.
    fn remote_until(&self, create: bool, stop: &Arc<AtomicBool>) -> Result<Arc<dyn Prune>> {
        let place = self.place()?;
        let opened = self.remote_of(&place.url, place.profile.as_deref(), create, stop);
        opened.map_err(|error| match error.kind() {
            ErrorKind::NotFound if !is_bucket(&place.url) => no_store(&place.url, place.embedded),
            _ => error,
        })
    }

    fn remote_of(
        &self,
        url: &str,
        profile: Option<&str>,
        create: bool,
        stop: &Arc<AtomicBool>,
    ) -> Result<Arc<dyn Prune>> {
        let options = remote::Options {
            create,
            ..self.options_of(url, profile, stop)?
        };
        remote::open(url, &options)
    }

    fn options_of(
        &self,
        url: &str,
        profile: Option<&str>,
        stop: &Arc<AtomicBool>,
    ) -> Result<remote::Options> {
        if let Some(name) = profile.filter(|name| self.is_beside_the_point(url, name)) {
            return Err(Error::invalid(format!(
                "profile {name} is not in the configuration, and {url} is a directory, which needs none"
            ))
            .hint("leave --store-profile away (unset STORE_PROFILE), or name a bucket"));
        }
        let profile = profile.or_else(|| self.config.profile_of(url));
        let profile = profile.map(|name| (name, self.config.profiles.get(name)));
        let variables = connect::variables();
        let reach = connect::to(url, profile, &variables).map_err(|error| match profile {
            Some((name, None)) => self.config.near_profile(error, name),
            _ => error,
        })?;
        let usual = remote::Options::default();
        let configured = self.config.deadline.map(|span| span.0);
        let deadline = self.global.deadline.or(reach.deadline).or(configured);
        Ok(remote::Options {
            create: usual.create,
            deadline: deadline.unwrap_or(usual.deadline),
            settings: reach.settings,
            ca_bundle: reach.ca_bundle,
            upload_bytes: self.memory_bytes() / 2,
            waits: self.out.waits(url),
            stop: Arc::clone(stop),
            credential_process: reach.credential_process,
            no_credentials: reach.no_credentials,
            proxies: connect::proxies(&variables),
        })
    }

    /// Whether an unconfigured profile is named for a directory, which needs none.
    fn is_beside_the_point(&self, url: &str, profile: &str) -> bool {
        clusters::is_directory(url) && !self.config.profiles.contains_key(profile)
    }

    fn memory_bytes(&self) -> u64 {
        let configured = self.config.memory.map(|size| size.0);
        let named = self.global.memory.or(configured);
        named.unwrap_or_else(memory::default_bytes)
    }

    /// The name of the selected store, with directories as absolute paths.
    pub(crate) fn store_url(&self) -> Result<String> {
        let url = self.place()?.url;
        let path = Path::new(&url);
        let dir = match url.contains(':') {
            true => path.canonicalize().ok(),
            false => crate::host::files::resolved(path).ok(),
        };
        Ok(dir
            .and_then(|dir| dir.to_str().map(str::to_owned))
            .unwrap_or(url))
    }

    /// Whether no store was named, so that the embedded one is used.
    pub(crate) fn is_embedded(&self) -> Result<bool> {
        Ok(self.place()?.embedded)
    }

    /// Finds the store. A flag overrides the environment, which overrides the file.
    fn place(&self) -> Result<Place> {
        let named = match &self.global.store {
            Some(url) => Some(
                url.to_str()
                    .map(str::to_owned)
                    .ok_or_else(|| not_utf8(url))?,
            ),
            None => self.config.store.clone(),
        };
        if named.as_deref() == Some("") {
            return Err(Error::invalid("the store is named by an empty text").hint(
                "--store, $STORE_URL or `store` in the configuration is empty: name a store there, or leave it out (unset STORE_URL)",
            ));
        }
        if let Some(url) = named {
            let configured = match &self.global.store {
                Some(_) => None,
                None => self.config.store_profile.clone(),
            };
            return Ok(self.named(url, configured));
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
            profile: self
                .global
                .store_profile
                .clone()
                .filter(|name| !name.is_empty()),
            embedded: true,
        })
    }

    /// The place for a cluster's name, a directory or the URL of a bucket. `configured` is the profile of last resort.
    fn named(&self, url: String, configured: Option<String>) -> Place {
        let cluster = self.config.cluster(&url);
        let of_cluster = cluster.and_then(|cluster| cluster.profile.clone());
        let flag = self.global.store_profile.clone();
        let profile = flag.or(of_cluster).or(configured);
        Place {
            url: cluster.map_or(url, |cluster| cluster.url.clone()),
            profile: profile.filter(|name| !name.is_empty()),
            embedded: false,
        }
    }

    fn host(&self) -> Host {
        Host {
            cache_dir: config::cache_dir(),
            who: who(),
            memory_bytes: self.memory_bytes(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            stop: Arc::clone(&self.stop),
        }
    }
}

/// Whether `url` is a bucket. Opening a bucket sends no request, so "not found" can only mean its profile.
fn is_bucket(url: &str) -> bool {
    remote::takes(url, "allow_http")
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

/// Raises the limit of open files as far as the system allows: a walk keeps the directories of waiting files open. If
/// raising it fails, the old limit stays, and an error names it when it is reached.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let _ = setrlimit(Resource::Nofile, raised);
}
