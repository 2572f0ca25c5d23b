//! The systemd unit that runs a server with as few rights as possible.
//!
//! The file system is read-only except the caches and the store, if it is a directory. systemd passes the keys to the
//! server, so the server's user need not be able to read them. Everybody may read a unit, so an upstream's token is in
//! a file that only systemd reads.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use store::{Error, Result};

use super::Args;
use crate::config::{clusters, tokens_file};
use crate::context::Context;
use crate::context::schedule::{self, Command};
use crate::serve::tokens::{self, Tokens};
use crate::ui::human;

/// The name of the service.
const NAME: &str = "store-serve";
/// Where the unit expects the token of an upstream, as NAME=TOKEN.
const SECRETS: &str = "/etc/store/serve.env";
/// Ports below this one need root or a capability.
const PRIVILEGED: u16 = 1024;

/// Rights that no server needs.
const HARDENED: &str = "\
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
";

/// A file that systemd passes to the service.
struct Credential {
    option: &'static str,
    name: &'static str,
    path: PathBuf,
}

/// The unit, with a comment that says where to put it.
pub(super) fn text(args: &Args, context: &Context) -> Result<String> {
    super::check_args(args)?;
    let store = context.lasting_store()?;
    let command = Command::of_server(&store, context)?;
    let credentials = credentials(args);
    for Credential { option, path, .. } in &credentials {
        // systemd can read what this user may be unable to.
        if let Err(error) = path.metadata()
            && error.kind() == io::ErrorKind::NotFound
        {
            return Err(Error::io("open", path, error)
                .within(option)
                .hint("make it first: without it, the service does not start"));
        }
    }
    if let Some(dir) = log_dir(args)
        && let Err(error) = dir.metadata()
    {
        return Err(Error::io("look at", &dir, error)
            .within("--access-log")
            .hint("make the directory first: a service may write there only if it exists before it starts"));
    }
    let (uid, gid) = owner(&store);
    if uid == rustix::process::getuid().as_raw() {
        super::check_addresses(args, &Tokens::open(tokens_file())?)?;
    }
    let loaded = credentials.iter().map(|one| {
        // This setting has no quoting.
        let path = one.path.to_string_lossy().replace('%', "%%");
        format!("LoadCredential={}:{path}\n", one.name)
    });
    let loaded: String = loaded.collect();
    let ports = [Some(args.listen), args.s3_listen].into_iter().flatten();
    let is_privileged = ports
        .into_iter()
        .any(|address| (1..PRIVILEGED).contains(&address.port()));
    let rights = match is_privileged {
        true => {
            "AmbientCapabilities=CAP_NET_BIND_SERVICE\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE\n"
        }
        false => "CapabilityBoundingSet=\n",
    };
    let start = words(&command, &credentials);
    let set = command
        .variables
        .iter()
        .filter(|(name, _)| *name != "XDG_CACHE_HOME");
    let set: String = set
        .map(|(name, value)| {
            format!(
                "Environment={}\n",
                schedule::systemd_value(&format!("{name}={value}"))
            )
        })
        .collect();
    let (advice, secrets) = secrets(args)?;
    let writable = writable(args, &store);
    // A private /tmp would hide a store there.
    let is_in_tmp =
        directory(&store).starts_with("/tmp/") || directory(&store).starts_with("/var/tmp/");
    let tmp = if is_in_tmp { "no" } else { "yes" };
    let (user, group) = runner(uid, gid);
    let advice = advice + &tokens_of_others(args, uid)?;
    Ok(format!(
        "# /etc/systemd/system/{NAME}.service\n{advice}\
         [Unit]\nDescription=Answer clients of a Hugging Face Hub and of S3 out of a store\n\
         Wants=network-online.target\nAfter=network-online.target\n\n\
         [Service]\nType=exec\nUser={user}\nGroup={group}\n{set}CacheDirectory={NAME}\nCacheDirectoryMode=0700\n\
         Environment=XDG_CACHE_HOME=%C/{NAME}\n{loaded}{secrets}ExecStart={start}\nRestart=on-failure\nRestartSec=2\n\
         TimeoutStopSec=35\nLimitNOFILE=65536\n\n{writable}PrivateTmp={tmp}\n{rights}{HARDENED}\n\
         [Install]\nWantedBy=multi-user.target"
    ))
}

/// Instructions for the upstream's token, and the setting that passes it.
fn secrets(args: &Args) -> Result<(String, String)> {
    let Some(name) = &args.upstream_token_env else {
        return Ok(Default::default());
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty()
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !name.chars().all(is_plain)
    {
        // The value may be a token, so it is not repeated.
        let error = Error::invalid(
            "--upstream-token-env: is not the name of a variable that systemd takes",
        );
        return Err(error.hint(
            "names are of letters, digits and _, like HUB_TOKEN; the token itself is no name",
        ));
    }
    let advice = format!(
        "# {SECRETS}, of root and of mode 0600, must have the line {name}=TOKEN with a token of the upstream:\n\
         # without that file the service does not start.\n"
    );
    Ok((advice, format!("EnvironmentFile={SECRETS}\n")))
}

/// Files of secrets and their companions.
fn credentials(args: &Args) -> Vec<Credential> {
    let files = [
        ("--tls-cert", "tls-cert", &args.tls_cert),
        ("--tls-key", "tls-key", &args.tls_key),
        ("--s3-keys", "s3-keys", &args.s3_keys),
    ];
    let named = files.into_iter().filter_map(|(option, name, path)| {
        Some(Credential {
            option,
            name,
            path: absolute(path.as_deref()?),
        })
    });
    named.collect()
}

/// The command line, with the paths at which systemd passes the credentials.
fn words(command: &Command, credentials: &[Credential]) -> String {
    let mut words = Vec::new();
    let mut all = command.words.iter();
    while let Some(word) = all.next() {
        match credentials.iter().find(|one| one.option == word) {
            Some(one) => {
                // Skips the path, which the credential replaces.
                let _path = all.next();
                words.push(format!("{word} %d/{}", one.name));
            }
            None => words.push(schedule::systemd_quoted(word)),
        }
    }
    words.join(" ")
}

/// The writable paths: the store, and the directory of the access log.
fn writable(args: &Args, store: &str) -> String {
    let store = clusters::is_directory(store).then(|| PathBuf::from(directory(store)));
    let lines = store.into_iter().chain(log_dir(args)).map(|path| {
        let path = schedule::systemd_value(&path.to_string_lossy());
        format!("ReadWritePaths={path}\n")
    });
    lines.collect()
}

/// The directory of the access log.
fn log_dir(args: &Args) -> Option<PathBuf> {
    let log = args.access_log.as_deref().map(absolute)?;
    Some(log.parent()?.to_owned())
}

fn directory(store: &str) -> &str {
    store.strip_prefix("file://").unwrap_or(store)
}

/// The user and group that own the store's directory. For a bucket, those who print the unit, whose configuration applies.
fn owner(store: &str) -> (u32, u32) {
    let own = || {
        (
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        )
    };
    let owner = clusters::is_directory(store)
        .then(|| std::fs::metadata(directory(store)).ok())
        .flatten()
        .map(|found| (found.uid(), found.gid()));
    owner.unwrap_or_else(own)
}

/// A comment about tokens that the service will not have.
fn tokens_of_others(args: &Args, uid: u32) -> Result<String> {
    let user = rustix::process::getuid().as_raw();
    let made = match tokens_file().filter(|_| user != uid) {
        Some(place) => tokens::read(&place)?.len(),
        None => 0,
    };
    if made == 0 {
        return Ok(String::new());
    }
    let count = human::counted(made as u64, "token");
    let without = match args.listen.ip().is_loopback() {
        true => "it asks\n# nobody for one",
        false => "it does\n# not start",
    };
    Ok(format!(
        "# {count} of user {user} will not count: it runs as user {uid}, who owns the store. With no token of that user {without}: add them as that user, with `store token add`.\n"
    ))
}

/// The names of a user and a group, or their numbers where they have none.
fn runner(uid: u32, gid: u32) -> (String, String) {
    let name = |file: &str, id: u32| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = lines.find(|line| line.get(2).is_some_and(|known| *known == id.to_string()));
        let found = found.and_then(|line| line.first().map(|name| (*name).to_owned()));
        found.unwrap_or_else(|| id.to_string())
    };
    (name("/etc/passwd", uid), name("/etc/group", gid))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
