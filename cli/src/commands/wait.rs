//! `store wait`: waits until a ref has a version.

use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use store::{Error, ErrorKind, Id, RefName, Result, State, Store};

use crate::commands::reach::out_of_reach;
use crate::context::Context;
use crate::ui::{failure, human, names};

/// The pause after the first check.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause between two checks.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Wait until a ref exists, or has a newer version
///
/// The exit code is 0 if it has, and the version is printed; it is 3 if --timeout is over first. A store that this host
/// knows is asked again if it is missing or does not answer, as when its file system is not mounted yet; if it is still
/// away when --timeout is over, the exit code is 1. One that this host does not know ends the wait at once.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A ref, like project/llama-ft/imagenet
    #[arg(value_name = "REF")]
    name: OsString,

    /// Wait for a version after this one
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,

    /// Wait no longer than this, like 30m
    #[arg(long, value_name = "TIME", value_parser = human::parse_span)]
    timeout: Option<Duration>,
}

/// The JSON form of the report.
#[derive(Serialize)]
struct Report {
    #[serde(rename = "ref")]
    name: RefName,
    version: u64,
    id: Id,
    secs: f64,
}

/// The pauses between checks: they grow, and are random, so that many hosts do not ask at the same time.
#[derive(Default)]
pub(crate) struct Pace(u32);

impl Pace {
    /// Pauses, but not longer than `left`.
    pub(crate) fn pause(&mut self, left: Option<Duration>) {
        let usual = PAUSE_MIN.saturating_mul(1 << self.0).min(PAUSE_MAX);
        self.0 = (self.0 + 1).min(8);
        // The keys of each `RandomState` differ.
        let [dice, ..] = RandomState::new().hash_one(self.0).to_le_bytes();
        let pause = usual / 2 + usual.mul_f64(f64::from(dice) / 512.0);
        std::thread::sleep(left.map_or(pause, |left| pause.min(left)));
    }
}

/// The newest version of a ref, updated at each check.
pub(crate) struct Newest<'s> {
    store: &'s Store,
    name: &'s RefName,
    state: Option<State>,
}

impl<'s> Newest<'s> {
    pub(crate) fn new(store: &'s Store, name: &'s RefName) -> Self {
        Self {
            store,
            name,
            state: None,
        }
    }

    /// The newest version at this time, if there is one.
    pub(crate) fn look(&mut self) -> Result<Option<(u64, Id)>> {
        let state = match self.state.take() {
            Some(mut state) => {
                self.store.catch_up(&mut state)?;
                state
            }
            None => self.store.readable_state()?,
        };
        let newest = match state.version(self.name, None) {
            Ok((number, version)) => Some((number, version.id())),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        self.state = Some(state);
        Ok(newest)
    }
}

/// Opens a store. One that this host knows, and that is missing or does not answer, is asked again, until a signal or the
/// end of `limit`.
///
/// # Errors
/// Unavailable, if it is still away then.
pub(crate) fn opened(
    open: impl Fn() -> Result<Store>,
    limit: Option<Duration>,
    context: &Context,
) -> Result<Store> {
    let began = Instant::now();
    let mut pace = Pace::default();
    let mut is_told = false;
    loop {
        let error = match open() {
            Err(error) if context.may_be_back(&error) => error,
            opened => return opened,
        };
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        let is_over = left == Some(Duration::ZERO);
        if is_over || context.stop().load(Ordering::Relaxed) {
            let remedy = error.remedy().cloned();
            let error = out_of_reach(error);
            return Err(match remedy {
                Some(remedy) => error.hint(remedy),
                None => error,
            });
        }
        if !std::mem::replace(&mut is_told, true) {
            warn(&error, context);
        }
        pace.pause(left);
    }
}

/// Says that a store is away, and is asked again.
pub(crate) fn warn(error: &Error, context: &Context) {
    let told = failure::one_line(error);
    context
        .out
        .warning(format_args!("warning: {told}; asked again"));
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let name = names::name(&args.name)?;
    let began = Instant::now();
    let stopped = || context.stop().load(Ordering::Relaxed);
    let interrupted = || Error::interrupted("stopped on request");
    let store = match opened(|| context.open(), args.timeout, context) {
        Err(_) if stopped() => return Err(interrupted()),
        opened => opened?,
    };
    let mut newest = Newest::new(&store, &name);
    let mut pace = Pace::default();
    let mut is_told = false;
    loop {
        let mut away = None;
        match newest.look() {
            Ok(Some((version, id))) if version > args.after => {
                return context.out.report(&Report {
                    name: name.clone(),
                    version,
                    id,
                    secs: began.elapsed().as_secs_f64(),
                });
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                if !std::mem::replace(&mut is_told, true) {
                    warn(&error, context);
                }
                away = Some(error);
            }
            Err(error) => return Err(error),
        }
        if stopped() {
            return Err(interrupted());
        }
        let left = args
            .timeout
            .map(|limit| limit.saturating_sub(began.elapsed()));
        if left == Some(Duration::ZERO) {
            return Err(away.unwrap_or_else(|| late(&name, args, began.elapsed())));
        }
        pace.pause(left);
    }
}

fn late(name: &RefName, args: &Args, waited: Duration) -> Error {
    let what = match args.after {
        0 => "no version".to_owned(),
        after => format!("no version after @{after}"),
    };
    Error::not_found(format!("{name}: {what} after {}", human::duration(waited)))
        .hint("look whether what makes it still works, or wait longer with --timeout")
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = names::id(Some(&self.id));
        write!(out, "{}@{}{id}", self.name, self.version)
    }
}
