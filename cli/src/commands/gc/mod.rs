//! `store gc`: applies retention, and reclaims space that no version needs.

mod metrics;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use gc::Options;
use gc::policy::{Given, Pattern, Policy, Rules, Scope};
use gc::{Request, collect};
use jiff::Timestamp;
use store::{Error, Result, Store};

use self::report::ShownReport;
use crate::config::{self, Config};
use crate::context::Context;
use crate::context::schedule::{Unattended, Unit};
use crate::host::lock::Lock;
use crate::ui::{failure, human};

/// The pattern that matches every ref.
const EVERY_REF: &str = "*";

/// Reclaim space that no version needs
///
/// Safe at any time, beside puts, gets and other collectors. What was found to be garbage is condemned by an entry in
/// the log and deleted after --grace, often by the next run; packs that are little used are copied into new ones.
///
/// If --refs matches no ref that is there or was, all else is collected, and the exit code is 6.
///
/// Without rules, every version is kept except those whose --ttl is over. Pinned versions survive every rule. The
/// newest version of each ref survives everything but the end of its --ttl, unless --may-drop-newest is given. Rules
/// and quotas are kept in the store (`store policy`), or else in the configuration; rules that are given here come
/// first.
///
/// On one host, one collector runs at a time: a second one says so and exits with 0. To run it from cron, see --systemd
/// and --crontab.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Print what would be done, without doing it
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Collect a store of a single writer: you promise that nothing else writes to it now
    #[arg(long)]
    exclusive: bool,

    #[command(flatten)]
    retention: Retention,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    schedule: Unattended,

    /// Write metrics for Prometheus' text file collector to this file; a collection that fails changes only its exit
    /// code there
    #[arg(long, value_name = "FILE")]
    metrics_file: Option<PathBuf>,
}

/// Which versions to keep.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Retention (a version that any rule keeps is kept)")]
struct Retention {
    /// The refs that these rules are for, like 'project/*'; the configuration decides about others
    #[arg(long, value_name = "PATTERN", default_value = EVERY_REF)]
    refs: String,

    /// Keep the newest N versions of each ref
    #[arg(long, value_name = "N", value_parser = human::parse_versions)]
    keep_last: Option<usize>,

    /// Keep versions younger than this, like 30d
    #[arg(long, value_name = "TIME", value_parser = human::parse_life)]
    keep_within: Option<Duration>,

    /// Keep the newest version of each of the last N days that have one
    #[arg(long, value_name = "N", value_parser = human::parse_versions)]
    keep_daily: Option<usize>,

    /// Keep the newest version of each of the last N weeks that have one
    #[arg(long, value_name = "N", value_parser = human::parse_versions)]
    keep_weekly: Option<usize>,

    /// Keep the newest version of each of the last N months that have one
    #[arg(long, value_name = "N", value_parser = human::parse_versions)]
    keep_monthly: Option<usize>,

    /// Drop versions until the rest fits, those unused for longest first. Pinned versions stay, and so do the newest of
    /// each ref and those that would free next to nothing
    #[arg(long, value_name = "SIZE", value_parser = human::parse_limit)]
    max_size: Option<u64>,

    /// Let --max-size and quotas drop the newest version of a ref too
    #[arg(long)]
    may_drop_newest: bool,
}

/// How far to go.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Limits")]
struct Limits {
    /// Leave uncommitted uploads alone if they are younger than this, and also what unfinished puts and transfers have
    /// already stored; 0 gives back at once what a stopped one left [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = human::parse_span)]
    min_age: Option<Duration>,

    /// How long after they were marked for it objects are deleted, so that running readers can finish [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = human::parse_span)]
    grace: Option<Duration>,

    /// How much of all packs may be unused before some are copied [default: 5%]
    #[arg(long, value_name = "PERCENT", value_parser = human::parse_percent)]
    max_unused: Option<u64>,

    /// Combine packs of at most this size
    #[arg(long, value_name = "SIZE", value_parser = human::parse_size)]
    max_repack: Option<u64>,

    /// Copy nothing; packs that are not used at all are still deleted
    #[arg(long, conflicts_with = "max_repack")]
    no_repack: bool,

    /// Stop cleanly after this long; the next run continues
    #[arg(long, value_name = "TIME", value_parser = human::parse_span)]
    time_limit: Option<Duration>,
}

impl Retention {
    fn rules(&self) -> Rules {
        Rules {
            keep_last: self.keep_last,
            keep_within_secs: self.keep_within.map(|time| time.as_secs()),
            keep_daily: self.keep_daily,
            keep_weekly: self.keep_weekly,
            keep_monthly: self.keep_monthly,
        }
    }

    /// Refuses a pattern without rules, which would say nothing.
    fn check(&self) -> Result<()> {
        match self.refs == EVERY_REF || !self.rules().is_empty() {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "--refs {}: expected a rule for these refs, found none",
                self.refs
            ))
            .hint("add --keep-last, --keep-within, --keep-daily, --keep-weekly or --keep-monthly")),
        }
    }

    /// Whether the pattern matches a ref that is there, or was: only what nobody ever had is a mistake.
    fn is_for_some(&self, store: &Store) -> Result<bool> {
        if self.refs == EVERY_REF {
            return Ok(true);
        }
        let pattern = Pattern::new(self.refs.clone());
        for found in store.state()?.refs.heads(None) {
            if pattern.matches(&found?.0) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let file = args.metrics_file.as_ref().filter(|_| !args.dry_run);
    file.map_or(Ok(()), |file| {
        crate::host::metrics::check(file, &config::precious())
    })?;
    let done = collected(args, context);
    if let (Some(file), Err(_)) = (file, &done) {
        // An error of this write would hide the first one, which says more.
        let _untold = metrics::write_failure(file, failure::code_of(&done), &context.here()?);
    }
    done
}

fn collected(args: &Args, context: &Context) -> Result<()> {
    args.retention.check()?;
    let (store, prune) = context.open_for_gc()?;
    if prune.url().starts_with("bundle:") {
        let message = format!(
            "{}: a bundle is only added to, and gives nothing back",
            prune.url()
        );
        return Err(Error::unsupported(message)
            .hint("export what is wanted into a new one, and remove this file"));
    }
    let unit = Unit {
        name: "store-gc".to_owned(),
        what: "Collect the garbage of a store",
        job: None,
        store: Some(context.lasting_store()?),
        dry_run: args.dry_run,
    };
    if let Some(text) = args.schedule.text(&unit, context)? {
        return context.out.line(text);
    }
    let dir = config::cache_dir().unwrap_or_else(std::env::temp_dir);
    let path = dir.join(store.format().id.to_string()).join("gc.lock");
    let _lock = match Lock::take(&path, "collects this store")? {
        Ok(lock) => lock,
        Err(running) => return context.out.report(&running),
    };
    let request = request(args, context.config(), store.host().memory_bytes);
    let is_for_some = args.retention.is_for_some(&store)?;
    let report = collect(&store, prune.as_ref(), &request)?;
    if let Some(file) = args.metrics_file.as_ref().filter(|_| !args.dry_run) {
        metrics::write(file, store.format().id, &report)?;
    }
    context.out.report(&ShownReport(report))?;
    match is_for_some {
        true => Ok(()),
        false => Err(Error::partial(format!(
            "--refs {}: matches no ref, so its rules dropped nothing; all else was collected",
            args.retention.refs
        ))
        .hint("write a ref or a namespace, where `*` stands for any text; `store ls` lists what there is")),
    }
}

/// The request of a run without options, as a dry run.
pub(crate) fn usual(config: &Config, memory_bytes: u64) -> Request {
    Request {
        dry_run: true,
        ..request(&Args::default(), config, memory_bytes)
    }
}

fn request(args: &Args, config: &Config, memory_bytes: u64) -> Request {
    let (limits, configured) = (&args.limits, &config.gc);
    let usual = Options::default();
    let secs = |given: Option<Duration>, configured: Option<human::Span>, usual: u64| {
        given
            .or(configured.map(|span| span.0))
            .map_or(usual, |time| time.as_secs())
    };
    Request {
        policy: policy(args, config),
        options: Options {
            min_age_secs: secs(limits.min_age, configured.min_age, usual.min_age_secs),
            grace_secs: secs(limits.grace, configured.grace, usual.grace_secs),
            max_unused_ppm: limits
                .max_unused
                .or(configured.max_unused.map(|percent| percent.0))
                .unwrap_or(usual.max_unused_ppm),
            max_repack_bytes: limits
                .max_repack
                .or(configured.max_repack.map(|size| size.0)),
            repack: !limits.no_repack,
            memory_bytes,
        },
        dry_run: args.dry_run,
        exclusive: args.exclusive,
        time_limit: limits.time_limit,
        clock: Timestamp::now,
        elapsed: gc::steady,
    }
}

/// The policy of this run. Rules on the command line take precedence over the store's, and these over the
/// configuration's.
fn policy(args: &Args, config: &Config) -> Policy {
    let given = &args.retention;
    let rules = given.rules();
    let configured = config.policy();
    Policy {
        scopes: configured.keep,
        store_bytes_max: configured.bytes_max,
        given: Given {
            scope: (!rules.is_empty()).then(|| Scope {
                pattern: Pattern::new(given.refs.clone()),
                rules,
                quota_bytes: None,
                extra: store::Extra::new(),
            }),
            store_bytes_max: given.max_size,
            may_drop_newest: given.may_drop_newest,
        },
    }
}
