//! Hints that name other places: a ref that is missing here may be on another configured cluster, and commands in hints
//! name the store of the error.
//!
//! All clusters are asked at the same time, with one short deadline. Buckets may be slow, so they are not asked for a
//! name that may be mistyped, only when the caller needs the answer.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use store::RefName;
use store::{Error, ErrorKind, Remedy, Result, Store, remote};

use crate::config::clusters::{self, Cluster};
use crate::context::Context;
use crate::ui::names::quoted;
use crate::ui::{naming, remedy};

/// Time for all clusters to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Adds to the hint which other cluster has the ref, if any.
pub(crate) fn hint(error: Error, context: &Context) -> Error {
    let name = error.missing().and_then(|name| name.parse().ok());
    // Whoever drops what another store has knows that it has it.
    let is_plain =
        error.kind() == ErrorKind::NotFound && !matches!(error.remedy(), Some(Remedy::DeleteAll));
    let Some(name) = name.filter(|_| is_plain) else {
        return error;
    };
    match having(&name, false, context).having.as_slice() {
        [] => error,
        [cluster] => error.hint(format!(
            "cluster {cluster} has it: `store pull {cluster} {}`, or name it with --store {cluster}",
            quoted(&name)
        )),
        several => error.hint(format!(
            "clusters {} have it: `store pull CLUSTER {}`, or name one with --store CLUSTER",
            several.join(", "),
            quoted(&name)
        )),
    }
}

/// Adds the store that was named on the command line to the commands in the hint.
pub(crate) fn of_named_store(error: Error, context: &Context) -> Error {
    match context.global.named() {
        Some(named) => at(error, &named),
        None => error,
    }
}

/// Adds the store `named` to the commands in the hint, unless they already name one.
pub(crate) fn at(error: Error, named: &str) -> Error {
    let Some(hint) = error.remedy().map(remedy::words) else {
        return error;
    };
    match naming::with_store(&hint, &clusters::masked(named)) {
        Cow::Borrowed(_) => error,
        Cow::Owned(changed) => error.hint(changed),
    }
}

impl Context {
    /// Returns a function that opens the store of a cluster on any thread. Requests to a bucket end when `stop` is set.
    fn opener(
        &self,
        cluster: &Cluster,
        stop: &Arc<AtomicBool>,
    ) -> impl FnOnce() -> Result<Store> + Send + 'static {
        let (url, mut host) = (cluster.url.clone(), self.host());
        host.stop = Arc::clone(stop);
        let options = self.options_of(&url, cluster.profile.as_deref(), stop);
        move || {
            let quiet = remote::Options {
                waits: remote::Waits::default(),
                ..options?
            };
            Store::open(remote::open(&url, &quiet)?, host)
        }
    }
}

/// The names of the clusters, by answer.
#[derive(Default)]
pub(crate) struct Answers {
    /// Clusters that have a version of the ref.
    pub(crate) having: Vec<String>,
    /// Clusters that did not answer in time, or could not be asked.
    pub(crate) silent: Vec<String>,
}

/// Asks the clusters for a version of the ref. Asks buckets only if `asks_buckets` is set.
pub(crate) fn having(name: &RefName, asks_buckets: bool, context: &Context) -> Answers {
    let until = Instant::now() + PATIENCE;
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, received) = mpsc::channel();
    let mut answers = Answers::default();
    let clusters = context.config().cluster.iter();
    for (label, cluster) in
        clusters.filter(|(_, cluster)| asks_buckets || clusters::is_directory(&cluster.url))
    {
        let (sender, label, name) = (sender.clone(), label.to_string(), name.clone());
        answers.silent.push(label.clone());
        let opened = context.opener(cluster, &stop);
        std::thread::spawn(move || {
            let found = opened().and_then(|store| store.state());
            let has = found.map(|state| state.versions(&name).is_ok());
            // The send fails if the answer comes too late.
            drop(sender.send((label, has)));
        });
    }
    drop(sender);
    while let Ok((label, has)) =
        received.recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        if has.is_ok() {
            answers.silent.retain(|silent| *silent != label);
        }
        answers
            .having
            .extend(has.is_ok_and(|has| has).then_some(label));
    }
    stop.store(true, Ordering::Relaxed);
    answers.having.sort();
    answers
}

/// A hint that names the clusters that have the ref.
pub(crate) fn where_it_is(name: &RefName, context: &Context) -> String {
    let answers = having(name, true, context);
    let silent = match answers.silent.as_slice() {
        [] => String::new(),
        silent => format!(
            "; {} did not answer within 2 s, or cannot be reached",
            silent.join(", ")
        ),
    };
    match (answers.having.as_slice(), silent.is_empty()) {
        ([], true) => {
            "no cluster has it; without --require-local the first run makes it".to_owned()
        }
        ([], false) => format!(
            "no cluster that answered has it{silent}: `store where {}` waits for all of them; without --require-local the \
             first run makes it",
            quoted(name)
        ),
        (having, _) => format!(
            "{} has it: run there, `store pull {} {}`, or give --fallback{silent}",
            having.join(", "),
            having.first().map_or("", String::as_str),
            quoted(name)
        ),
    }
}

/// Checks that a store with an empty log is really empty. Segments without a log mean that the log was lost.
pub(crate) fn check_log(store: &Store, entries: u64) -> Result<()> {
    if entries > 0
        || store
            .remote()
            .keys_after("segments", "segments")?
            .is_empty()
    {
        return Ok(());
    }
    Err(Error::corrupt("its log is empty, and it holds segments")
        .hint("`store verify` there says what is missing"))
}

#[cfg(test)]
mod tests {
    use store::Remedy;

    use super::*;

    #[test]
    fn the_commands_of_a_hint_name_the_store() {
        for (hint, expected) in [
            (
                "see `store ls project/a`, or `store cluster ls`",
                "see `store ls --store far project/a`, or `store cluster ls`",
            ),
            (
                "`store verify` first, then `store ls --store x`",
                "`store verify --store far` first, then `store ls --store x`",
            ),
            (
                "make it with `store init far`",
                "make it with `store init far`",
            ),
            ("name it", "name it"),
        ] {
            let error = at(Error::invalid("x").hint(hint), "far");
            assert_eq!(error.remedy(), Some(&Remedy::from(expected)));
        }
        let error = at(Error::invalid("x").hint("`store ls`"), "my store");
        let expected = "`store ls --store 'my store'`";
        assert_eq!(error.remedy(), Some(&Remedy::from(expected)));
        let error = at(Error::invalid("x").hint(Remedy::VerifyThenRepair), "far");
        let expected =
            "run `store verify --store far` to see what is hit, then `store repair --store far`";
        assert_eq!(error.remedy(), Some(&Remedy::from(expected)));
    }
}
