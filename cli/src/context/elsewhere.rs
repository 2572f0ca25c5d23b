//! A ref that is not here may be on another cluster that the configuration knows.
//!
//! Asked are clusters that are directories, all together for a moment only: a bucket may take long to
//! answer, and whoever mistyped a name should not wait for it.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use store::format::RefName;
use store::{Error, Kind};

use crate::config::clusters;
use crate::context::Context;

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
            "cluster {cluster} has it: `store pull {cluster} {name}`, or add --store {cluster}"
        )),
        several => error.hint(format!(
            "clusters {} have it: `store pull CLUSTER {name}`, or add --store CLUSTER",
            several.join(", ")
        )),
    }
}

/// The names of clusters that have a version of it.
fn having(name: &RefName, context: &Context) -> Vec<String> {
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
