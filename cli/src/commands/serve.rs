//! `store serve`: clients of a Hugging Face Hub read and write a store, S3 clients read it, and people look at it.

mod pages;
mod unit;

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use store::{Error, Namespace, Pool, Result};

use crate::config;
use crate::context::{Context, pools};
use crate::host::{files, memory};
use crate::serve::XET_NOTE;
use crate::serve::front::Front;
use crate::serve::hub::{Hub, pull};
use crate::serve::journal::Journal;
use crate::serve::numbers::Numbers;
use crate::serve::s3::S3;
use crate::serve::s3::keys::Keys;
use crate::serve::source::Source;
use crate::serve::tls::Identity;
use crate::serve::tokens::Tokens;
use crate::serve::{self, Server, Shared};

/// Serve the store to clients of a Hugging Face Hub and of S3
///
/// Every namespace is an endpoint. With HF_ENDPOINT=http://127.0.0.1:8710/project/llama-ft, `hf download`,
/// `upload_folder`, `load_dataset` and whatever else uses HF_ENDPOINT see the refs of project/llama-ft as repos. With
/// --s3-listen, every namespace is also a bucket that clients of S3 can read: the bucket is called `project.llama-ft`,
/// and its keys are REF/PATH and REF@N/PATH. `store help doors` says which ref is which repo, and who may read and
/// write. The server runs until SIGINT, SIGTERM or SIGHUP; it then finishes the answers that it is sending, for up
/// to 25 s.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The address to listen at; port 0 takes any free port. The address is printed
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8710", value_parser = address)]
    listen: SocketAddr,

    /// The namespace whose refs are repos if the path of HF_ENDPOINT names none
    #[arg(long, value_name = "NAMESPACE")]
    root: Option<Namespace>,

    /// The address to answer clients of S3 at [default: none]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    s3_listen: Option<SocketAddr>,

    /// Who may read which buckets: a file of access keys, mode 0600 [default: everybody on this host, as long as there
    /// are no tokens]
    #[arg(long, value_name = "FILE", requires = "s3_listen")]
    s3_keys: Option<PathBuf>,

    /// The TLS certificate, in PEM, followed by those of the authorities between; it is read again when the file
    /// changes. It is used for both addresses
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The key of that certificate, in PEM and without a password
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Print a systemd unit that runs this server with no more rights than it needs, and exit
    #[arg(long)]
    systemd: bool,

    /// Fetch what a namespace lacks from this Hub, like https://hub.example, and keep it
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,

    /// The environment variable that holds a token for the upstream
    #[arg(long, value_name = "NAME", requires = "upstream")]
    upstream_token_env: Option<String>,

    /// Never ask the upstream: answer only with what was fetched before
    #[arg(long, requires = "upstream")]
    offline: bool,

    /// Append a line of JSON for each request to this file; it and its directory are made if they are missing [default:
    /// standard error]
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
}

/// Time for abandoned requests to end.
const GIVEN_UP_TIME: Duration = Duration::from_secs(3);

/// The addresses of the server.
#[derive(Serialize)]
struct Listening {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    s3_url: Option<String>,
}

impl fmt::Display for Listening {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "listening on {}", self.url)?;
        match &self.s3_url {
            Some(url) => write!(out, "\nlistening on {url} for S3"),
            None => Ok(()),
        }
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    if args.systemd {
        return context.out.line(unit::text(args, context)?);
    }
    check_args(args)?;
    memory::share_heaps();
    let tokens = Arc::new(Tokens::open(config::tokens_file())?);
    check_addresses(args, &tokens)?;
    let keys = args.s3_keys.as_deref().map(Keys::read).transpose()?;
    let identity = identity(args, context)?;
    let scheme = if identity.is_some() { "https" } else { "http" };
    let give_up = Arc::new(AtomicBool::new(false));
    let store = context.open_until(Arc::clone(&give_up))?;
    let numbers = Arc::new(Numbers::default());
    let shared = Arc::new(Shared {
        journal: Journal::open(
            args.access_log.as_deref(),
            &config::precious(),
            Arc::clone(&numbers),
        )?,
        numbers,
    });
    let source = Arc::new(Source::new(store, pools(context))?);
    let s3 = Arc::new(S3::new(Arc::clone(&source), keys, Arc::clone(&tokens)));
    let page = pages::new(context, Arc::clone(&source), Arc::clone(&tokens))?;
    let (root, upstream) = (args.root.clone(), args.upstream()?);
    let hub = Arc::new(Hub::new(
        source,
        Arc::clone(&shared),
        root,
        tokens,
        upstream,
    )?);
    let door = Front::new(Arc::clone(&hub), page);
    let runtime = serve::runtime()?;
    let served = runtime.block_on(async {
        let mut server = Server::new(shared, identity);
        let address = server.open(args.listen, Arc::new(door))?;
        let s3_address = match args.s3_listen {
            Some(address) => Some(server.open(address, s3)?),
            None => None,
        };
        context.out.note(format_args!("note: {XET_NOTE}"));
        context.out.answer(&Listening {
            url: format!("{scheme}://{address}"),
            s3_url: s3_address.map(|address| format!("{scheme}://{address}")),
        })?;
        context.out.finish()?;
        server.serve(context.stop(), &give_up, || hub.stop()).await;
        hub.finish().await;
        Ok(())
    });
    // Abandoned requests may still wait for a bucket.
    runtime.shutdown_timeout(GIVEN_UP_TIME);
    served
}

/// The certificate and key of the server, if it speaks TLS.
fn identity(args: &Args, context: &Context) -> Result<Option<Arc<Identity>>> {
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else {
        return Ok(None);
    };
    let identity = Identity::open(certificate, key)?;
    if identity.is_exposed() {
        let key = key.display();
        context
            .out
            .note(format_args!("note: others can read {key}: chmod 600 {key}"));
    }
    if let Some(news) = identity.news() {
        context.out.warning(format_args!("warning: {news}"));
    }
    Ok(Some(Arc::new(identity)))
}

/// The pools of this host that can be read.
fn pools(context: &Context) -> Vec<Pool> {
    let known = pools::known(None, &context.config().pool);
    known.into_iter().flatten().collect()
}

impl Args {
    fn upstream(&self) -> Result<Option<pull::Options>> {
        let Some(upstream) = self.upstream.clone() else {
            return Ok(None);
        };
        let token = match &self.upstream_token_env {
            None => None,
            Some(name) => Some(variable(name).ok_or_else(|| {
                Error::invalid(format!("{name}: there is no such variable, or it is empty"))
                    .hint("--upstream-token-env takes the name of a variable, and not a token")
            })?),
        };
        Ok(Some(pull::Options {
            upstream,
            token,
            is_offline: self.offline,
        }))
    }
}

fn address(text: &str) -> std::result::Result<SocketAddr, &'static str> {
    // Other names may have several addresses, or one that others reach.
    let port = text.strip_prefix("localhost:");
    let numeric = port.map(|port| format!("127.0.0.1:{port}"));
    let parsed = numeric.as_deref().unwrap_or(text).parse();
    parsed.map_err(|_| "expected an IP address and a port, like 127.0.0.1:8710 or [::]:8710")
}

fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    value.filter(|value| !value.is_empty())
}

/// Refuses what no server can start with.
fn check_args(args: &Args) -> Result<()> {
    if args.s3_listen == Some(args.listen) && args.listen.port() != 0 {
        return Err(Error::invalid(format!(
            "--s3-listen {}: the same address as that of --listen",
            args.listen
        ))
        .hint("clients of S3 need an address of their own, like 127.0.0.1:8711"));
    }
    if let Some(url) = &args.upstream {
        pull::check_url(url)?;
    }
    let Some(log) = &args.access_log else {
        return Ok(());
    };
    let own = [
        ("--tls-cert", &args.tls_cert),
        ("--tls-key", &args.tls_key),
        ("--s3-keys", &args.s3_keys),
    ];
    let is_log = |path: &Option<PathBuf>| {
        let id = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
        path.as_deref()
            .and_then(id)
            .is_some_and(|other| Some(other) == id(log))
    };
    if let Some((option, _)) = own.into_iter().find(|(_, path)| is_log(path)) {
        return Err(Error::conflict(format!(
            "--access-log {}: is the file of {option}",
            log.display()
        ))
        .hint("name another file for the log"));
    }
    files::check_to_append(log, &config::precious())
}

/// Refuses addresses at which those are let in who should not be.
fn check_addresses(args: &Args, tokens: &Tokens) -> Result<()> {
    check_address(args.listen, tokens)?;
    match (args.s3_listen, &args.s3_keys) {
        (Some(address), None) => check_open(address, tokens),
        _ => Ok(()),
    }
}

/// Refuses an address that other hosts reach if there are no tokens.
fn check_address(address: SocketAddr, tokens: &Tokens) -> Result<()> {
    if address.ip().is_loopback() || tokens.is_closed() {
        return Ok(());
    }
    Err(Error::new(
        store::ErrorKind::Denied,
        format!("{address}: others would reach the store there, and the server lets everybody in"),
    )
    .hint(
        "say who may with `store token add`, or listen on a loopback address, like 127.0.0.1:8710",
    ))
}

/// Refuses an S3 address without keys if others reach it, or if the rest of the server needs tokens.
fn check_open(address: SocketAddr, tokens: &Tokens) -> Result<()> {
    let why = match (address.ip().is_loopback(), tokens.is_closed()) {
        (true, false) => return Ok(()),
        (false, _) => "others would reach the store there, and there are no --s3-keys",
        (true, true) => {
            "there are tokens, and without --s3-keys everybody on this host would be let in"
        }
    };
    Err(
        Error::new(store::ErrorKind::Denied, format!("{address}: {why}"))
            .hint("say with --s3-keys FILE who may read what: `store help doors`"),
    )
}
