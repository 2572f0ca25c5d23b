//! A ref that is not here may be on another cluster that the configuration knows. Commands in hints name the store that
//! the error is about.
//!
//! Only clusters that are directories are asked, and all of them together only for a moment: a bucket may take long to
//! answer, and somebody who mistyped a name should not wait for it.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use store::RefName;
use store::{Error, Kind, Result, Store};

use crate::config::clusters;
use crate::context::Context;
use crate::ui::names::quoted;
use crate::ui::remedy;

/// All clusters have this long to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The same error; where another cluster has the ref, its hint says which.
pub(crate) fn hint(error: Error, context: &Context) -> Error {
    let name = error.missing().and_then(|name| name.parse().ok());
    let Some(name) = name.filter(|_| error.kind() == Kind::NotFound) else {
        return error;
    };
    match having(&name, context).as_slice() {
        [] => error,
        [cluster] => error.hint(format!(
            "cluster {cluster} has it: `store pull {cluster} {name}`, or name it with --store {cluster}"
        )),
        several => error.hint(format!(
            "clusters {} have it: `store pull CLUSTER {name}`, or name one with --store CLUSTER",
            several.join(", ")
        )),
    }
}

/// Verbs of hints that work with a store.
const VERBS: [&str; 20] = [
    "diff",
    "du",
    "export",
    "gc",
    "get",
    "history",
    "import",
    "info",
    "init",
    "ls",
    "pin",
    "policy",
    "pull",
    "put",
    "repair",
    "rm",
    "save",
    "summarize",
    "unpin",
    "verify",
];

/// The same error; the commands of its hint name the store that was named on the command line.
pub(crate) fn of_named_store(error: Error, context: &Context) -> Error {
    let named = context.global.store.as_ref();
    let is_of_environment = named.is_some() && std::env::var_os("STORE_URL").as_ref() == named;
    match named.and_then(|named| named.to_str()) {
        Some(named) if !is_of_environment => at(error, named),
        _ => error,
    }
}

/// The same error; the commands of its hint name the store `named`, unless they name one already.
pub(crate) fn at(error: Error, named: &str) -> Error {
    let Some(hint) = error.remedy().map(remedy::words) else {
        return error;
    };
    let named = quoted(&clusters::masked(named));
    let mut parts = hint.split('`');
    let mut changed = parts.next().unwrap_or_default().to_owned();
    for (at, part) in parts.enumerate() {
        changed.push('`');
        // Every other part stands between the quotes.
        let command = part.strip_prefix("store ").filter(|_| at % 2 == 0);
        let verb = command.and_then(|command| command.split(' ').next());
        match verb.filter(|verb| {
            VERBS.contains(verb) && !part.contains("--store") && !part.contains("STORE")
        }) {
            // The text itself says where.
            Some("init") if part != "store init" => changed += part,
            Some(verb) => {
                let rest = part
                    .strip_prefix("store ")
                    .and_then(|part| part.strip_prefix(verb));
                changed += &format!("store {verb} --store {named}{}", rest.unwrap_or_default());
            }
            None => changed += part,
        }
    }
    if changed == hint {
        error
    } else {
        error.hint(changed)
    }
}

/// The names of clusters that have a version of it.
pub(crate) fn having(name: &RefName, context: &Context) -> Vec<String> {
    let until = Instant::now() + PATIENCE;
    let (sender, answers) = mpsc::channel();
    let clusters = context.config().cluster.iter();
    for (label, cluster) in clusters.filter(|(_, cluster)| clusters::is_directory(&cluster.url)) {
        let (sender, label, name) = (sender.clone(), label.to_string(), name.clone());
        let opened = context.opener(cluster);
        std::thread::spawn(move || {
            let found = opened().and_then(|store| store.state());
            let has = found.is_ok_and(|state| state.versions(&name).is_ok());
            // Nobody listens any more when it took too long.
            drop(sender.send((label, has)));
        });
    }
    drop(sender);
    let mut having = Vec::new();
    while let Ok((label, has)) =
        answers.recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        having.extend(has.then_some(label));
    }
    having.sort();
    having
}

/// That a log without any entry is that of a store in which nothing was ever put.
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
