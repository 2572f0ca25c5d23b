//! What every verb works with: the store that was meant, the host, and where to say things.

mod away;
mod bundles;
pub(crate) mod elsewhere;
pub(crate) mod jobs;
pub(crate) mod pools;
pub(crate) mod schedule;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::Who;
use store::remote::{self, Objects, Prune};
use store::{Error, Host, Kind, Result, Store};

use self::away::no_store;
use crate::config::clusters::{self, Cluster};
use crate::config::{self, Config};
use crate::connect;
use crate::host::memory;
use crate::host::room;
use crate::host::signals::stop_on_signals;
use crate::ui::global::Global;
use crate::ui::output::Output;
use crate::ui::remedy;

/// The situation a verb runs in.
pub(crate) struct Context {
    pub(crate) global: Global,
    pub(crate) out: Output,
    config: Config,
    stop: Arc<AtomicBool>,
    /// The stores that were opened, for their warnings.
    opened: RefCell<Vec<Store>>,
    /// With which code to end where all is well: that of a command that was run.
    code: Cell<u8>,
}

/// Where the store is, and what said so.
struct Place {
    url: String,
    /// Which profile of the configuration reaches it.
    profile: Option<String>,
    /// Nobody named a store, so it is made on the first put.
    embedded: bool,
}

impl Context {
    /// Reads the configuration and takes care of signals from here on.
    ///
    /// Where signals are for a command, they ask us to stop, and do no more.
    pub(crate) fn new(global: Global, are_for_a_command: bool) -> Result<Self> {
        let out = Output::new(global.json, global.quiet);
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
            opened: RefCell::default(),
            global,
        })
    }

    /// The store that was meant; it must exist.
    pub(crate) fn open(&self) -> Result<Store> {
        let open = |remote: Arc<dyn Prune>| Store::open(remote, self.host());
        let opened = self.remote(false).and_then(open);
        Ok(self.watched(self.found(&self.place()?.url, opened)?))
    }

    /// The same store, at the log entry that was asked for, whose warnings are told in the end. One that keeps no
    /// policy itself goes by the quotas of the configuration.
    fn watched(&self, store: Store) -> Store {
        let store = store.with_local_policy(self.config.policy());
        let store = match self.global.at_entry {
            Some(number) => store.at(number),
            None => store,
        };
        self.opened.borrow_mut().push(store.clone());
        store
    }

    /// Tells what went wrong and did not end the work, whoever wants to be told little.
    ///
    /// # Errors
    /// Partial, when something is missing from what was done.
    pub(crate) fn tell_warnings(&self) -> Result<()> {
        let mut missing = None;
        for warning in self.opened.borrow().iter().flat_map(Store::warnings) {
            let text = match &warning.remedy {
                Some(remedy) => format!("{}; {}", warning.text, remedy::words(remedy)),
                None => warning.text,
            };
            match missing.is_none() && warning.is_part {
                true => missing = Some(Error::partial(text)),
                false => self.out.warning(format_args!("warning: {text}")),
            }
        }
        missing.map_or(Ok(()), Err)
    }

    /// The store that was meant; the embedded one is made where there was none.
    pub(crate) fn open_for_put(&self) -> Result<Store> {
        if self.place()?.embedded {
            self.check_there()?;
            self.open_or_make(&PathBuf::from(self.place()?.url))
        } else {
            self.open()
        }
    }

    /// The embedded store. It is its owner's alone, as their files may be.
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

    /// The store that was meant; an empty one in memory where the embedded one was not made yet.
    pub(crate) fn open_for_dry_run(&self) -> Result<Store> {
        self.open_if_made()?.map_or_else(|| self.nowhere(), Ok)
    }

    /// The store that was meant; none where the embedded one was not made yet.
    pub(crate) fn open_if_made(&self) -> Result<Option<Store>> {
        match self.open() {
            Err(error) if error.kind() == Kind::NotFound && self.place()?.embedded => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// An empty store in memory.
    pub(crate) fn nowhere(&self) -> Result<Store> {
        let store = Store::init(Arc::new(Objects::memory()), self.host())?;
        Ok(self.watched(store))
    }

    /// The store of a cluster; it must exist.
    pub(crate) fn open_cluster(&self, cluster: &Cluster) -> Result<Store> {
        self.open_at(&cluster.url, cluster.profile.as_deref())
    }

    /// How the store that was meant is named.
    pub(crate) fn here(&self) -> Result<String> {
        Ok(clusters::masked(&self.place()?.url))
    }

    /// How the store that was meant is named from anywhere on this host.
    pub(crate) fn lasting_store(&self) -> Result<String> {
        match self.global.store.as_ref().and_then(|url| url.to_str()) {
            Some(named) => self.lasting(named),
            None => clusters::lasting_url(&self.place()?.url),
        }
    }

    /// The name of a cluster, or a URL that means the same from anywhere on this host.
    pub(crate) fn lasting(&self, named: &str) -> Result<String> {
        match self.config.cluster(named) {
            Some(_) => Ok(named.to_owned()),
            None => clusters::lasting_url(named),
        }
    }

    /// The store that a cluster's name means, else a path or a URL; it must exist.
    ///
    /// `profile` reaches it, unless the configuration knows better.
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
                Kind::NotFound if is_word => self.config.no_cluster(named),
                _ => error,
            })
    }

    /// A new store at `url`, or where the store is looked for. A bucket is tried first: where put-if-absent
    /// overwrites, only a store of a single writer is made, and only on request.
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

    /// The bytes at `url`, with the credentials of the profile of that name, else of the environment. The
    /// place must exist, as far as that can be known without asking.
    pub(crate) fn remote_at(&self, url: &str, profile: Option<&str>) -> Result<Arc<dyn Prune>> {
        self.remote_of(url, profile, false, &self.stop)
            .map_err(|error| match error.kind() {
                Kind::NotFound if !is_bucket(url) => no_store(url, false),
                _ => error,
            })
    }

    /// The store at `url`; see [`Self::remote_at`]. Stores with different credentials go well together.
    pub(crate) fn open_at(&self, url: &str, profile: Option<&str>) -> Result<Store> {
        let open = |remote: Arc<dyn Prune>| Store::open(remote, self.host());
        let opened = self.remote_at(url, profile).and_then(open);
        Ok(self.watched(self.found(url, opened)?))
    }

    /// The store that was meant, and the right to delete from it.
    pub(crate) fn open_for_gc(&self) -> Result<(Store, Arc<dyn Prune>)> {
        let url = self.place()?.url;
        let remote = self.remote(false);
        let remote = remote.map_err(|error| self.missing(&url, error))?;
        let opened = self.found(&url, Store::open(remote.clone(), self.host()));
        Ok((self.watched(opened?), remote))
    }

    /// What the configuration says.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The store, whose work ends when `stop` is set, and by no signal.
    pub(crate) fn open_until(&self, stop: Arc<AtomicBool>) -> Result<Store> {
        let host = Host {
            stop,
            ..self.host()
        };
        let remote = self.remote_until(false, &host.stop);
        let opened = remote.and_then(|remote| Store::open(remote, host));
        Ok(self.watched(self.found(&self.place()?.url, opened)?))
    }

    /// Ends with this code, if all is well beside it.
    pub(crate) fn end_with(&self, code: u8) {
        self.code.set(code);
    }

    /// With which code to end where all is well.
    pub(crate) fn code(&self) -> u8 {
        self.code.get()
    }

    /// Set when a signal asks to stop.
    pub(crate) fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    fn remote(&self, create: bool) -> Result<Arc<dyn Prune>> {
        self.remote_until(create, &self.stop)
    }

    /// Its requests end when `stop` is set.
    fn remote_until(&self, create: bool, stop: &Arc<AtomicBool>) -> Result<Arc<dyn Prune>> {
        let place = self.place()?;
        let opened = self.remote_of(&place.url, place.profile.as_deref(), create, stop);
        opened.map_err(|error| match error.kind() {
            Kind::NotFound if !is_bucket(&place.url) => no_store(&place.url, place.embedded),
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

    /// Whether a profile that nobody wrote down is named for a directory.
    fn is_beside_the_point(&self, url: &str, profile: &str) -> bool {
        clusters::is_directory(url) && !self.config.profiles.contains_key(profile)
    }

    fn memory_bytes(&self) -> u64 {
        let configured = self.config.memory.map(|size| size.0);
        let named = self.global.memory.or(configured);
        named.unwrap_or_else(memory::default_bytes)
    }

    /// The flag beats the environment, which beats the file.
    /// How the store is called here, whatever directory this is.
    pub(crate) fn store_url(&self) -> Result<String> {
        let url = self.place()?.url;
        let dir = Path::new(&url).canonicalize().ok();
        Ok(dir
            .and_then(|dir| dir.to_str().map(str::to_owned))
            .unwrap_or(url))
    }

    /// Whether nobody named a store, so that it is the one that the first put makes.
    pub(crate) fn is_embedded(&self) -> Result<bool> {
        Ok(self.place()?.embedded)
    }

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
                "--store, $STORE_URL or `store` in the configuration is empty: name a store there, or leave it away (unset STORE_URL)",
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

    /// A cluster by its name, or a directory or bucket by its URL, whose profile may be configured.
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

/// A bucket is not asked when it is opened: what is not found then is a profile.
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
