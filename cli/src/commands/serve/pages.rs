//! What the pages of a server learn of this host when the server starts.

use std::sync::Arc;

use store::{Error, Result};

use crate::commands::gc as collecting;
use crate::config::clusters;
use crate::context::Context;
use crate::journal::Facts;
use crate::serve::page::survey::Planner;
use crate::serve::page::{ClusterFacts, HostFacts, Page};
use crate::serve::source::Source;
use crate::serve::tokens::Tokens;

pub(super) fn new(context: &Context, source: Arc<Source>, tokens: Arc<Tokens>) -> Result<Page> {
    let planner = planner(context);
    Ok(Page::new(source, tokens, planner, facts(context)?))
}

/// Plans a dry run of a collector with the rules of `store gc`.
fn planner(context: &Context) -> Planner {
    let request = |memory_bytes| collecting::usual(context.config(), memory_bytes);
    let opened = context.open_for_gc().map(|(store, prune)| {
        // The rest of the memory is for requests.
        let request = request(store.host().memory_bytes / 4);
        (store, prune, request)
    });
    match opened {
        Ok((store, prune, request)) => {
            Box::new(move || gc::collect(&store, prune.as_ref(), &request))
        }
        Err(error) => {
            let told = error.to_string();
            Box::new(move || Err(Error::unavailable(told.clone())))
        }
    }
}

fn facts(context: &Context) -> Result<HostFacts> {
    let config = context.config();
    let known = config.cluster.iter();
    let jobs = config.job.iter().map(|(name, job)| Facts {
        job: name.to_string(),
        from: clusters::masked(&job.from),
        to: clusters::masked(&job.to),
        refs: job.refs.clone(),
        stores: None,
    });
    Ok(HostFacts {
        store: context.here()?,
        store_url: clusters::masked(&context.store_url()?),
        clusters: known
            .map(|(name, cluster)| ClusterFacts {
                name: name.to_string(),
                url: clusters::masked(&cluster.url),
                profile: cluster.profile.clone(),
            })
            .collect(),
        jobs: jobs.collect(),
    })
}
