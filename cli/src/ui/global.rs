//! The options of every verb.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use crate::ui::{home, human};

/// Options of every verb.
#[derive(Args)]
#[command(next_help_heading = "Options of every verb")]
pub(crate) struct Global {
    /// The store: a directory, a URL or a cluster's name [default: from the configuration, else $XDG_DATA_HOME/store]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "STORE_URL",
        hide_env_values = true,
        value_parser = home::place()
    )]
    pub(crate) store: Option<OsString>,

    /// The profile in the configuration that says how to reach the store's bucket [default: the environment]
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "STORE_PROFILE",
        hide_env_values = true
    )]
    pub(crate) store_profile: Option<String>,

    /// Print JSON for machines: one object, or one per line for a list
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// How much memory buffers may take, like 256MiB [default: 128 MiB, or a quarter of the cgroup's limit]
    #[arg(long, global = true, value_name = "SIZE", value_parser = human::parse_size)]
    pub(crate) memory: Option<u64>,

    /// Keep retrying a failed request to a bucket for up to this long, like 30s; less for a first connection [default:
    /// 3 min]
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        value_parser = human::parse_span,
        env = "STORE_DEADLINE",
        hide_env_values = true
    )]
    pub(crate) deadline: Option<Duration>,

    /// Read the store as it was after this log entry; for verbs that only read
    #[arg(long, global = true, value_name = "N", hide = true)]
    pub(crate) at_entry: Option<u64>,

    /// Show progress even where standard error is no terminal
    #[arg(long, global = true)]
    pub(crate) progress: bool,

    /// Print no notes, no progress and no summary
    #[arg(long, short, global = true, conflicts_with = "progress")]
    pub(crate) quiet: bool,
}

impl Global {
    /// The store, if it was named on the command line, and not by the environment.
    pub(crate) fn named(&self) -> Option<String> {
        let named = self.store.as_ref()?;
        let of_environment = std::env::var_os("STORE_URL").map(home::at_home);
        let is_of_environment = of_environment.as_ref() == Some(named);
        named
            .to_str()
            .filter(|_| !is_of_environment)
            .map(str::to_owned)
    }
}
