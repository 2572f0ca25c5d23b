//! `store cluster add`: names a store.

use std::fmt;

use serde::Serialize;
use store::{Error, ErrorKind, Result, StoreId};

use crate::config::clusters::{self, Cluster, HERE, Label};
use crate::config::edit;
use crate::context::Context;
use crate::ui::names;

/// Give a store a name
///
/// There must be a store at URL, unless --no-check is given. Only these lines of the configuration are written;
/// comments and all other lines stay as they are.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name: letters, digits, `-` and `_`
    name: String,

    /// Where the store is: a directory or a URL
    url: String,

    /// The [profile.NAME] of the configuration to open the store with
    #[arg(long)]
    profile: Option<String>,

    /// Replace the cluster of this name
    #[arg(long)]
    force: bool,

    /// Do not look whether there is a store
    #[arg(long)]
    no_check: bool,
}

#[derive(Serialize)]
struct Added<'a> {
    name: &'a Label,
    url: &'a str,
    profile: Option<&'a str>,
    /// `None` if the store was not opened.
    id: Option<StoreId>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let name = label(args)?;
    if name.as_str() == HERE {
        return Err(Error::invalid(format!(
            "{HERE}: `store where` and `store duplicate` call the store of this host so"
        ))
        .hint("choose another name"));
    }
    let cluster = Cluster {
        url: clusters::lasting_url(&args.url)?,
        profile: args.profile.clone(),
    };
    let id = match args.no_check {
        true => None,
        false => Some(looked_at(&cluster, context)?),
    };
    edit::add_cluster(&name, &cluster, args.force)?;
    context.out.report(&Added {
        name: &name,
        url: &cluster.url,
        profile: cluster.profile.as_deref(),
        id,
    })
}

/// The name. If name and URL are swapped, the hint has the right order.
fn label(args: &Args) -> Result<Label> {
    // A URL may hold a password.
    let shown = clusters::masked(&args.name);
    let is_place = shown.contains(['/', ':', '.']);
    let named: Result<Label, String> = shown.clone().try_into();
    named.map_err(|why| {
        let error = Error::invalid(why);
        match args.url.parse::<Label>() {
            Ok(name) if is_place => error.hint(format!(
                "name it first and say where it is second: `store cluster add {name} {}`",
                names::quoted(&shown)
            )),
            _ => error,
        }
    })
}

fn looked_at(cluster: &Cluster, context: &Context) -> Result<StoreId> {
    if let Some(profile) = &cluster.profile
        && !context.config().profiles.contains_key(profile)
    {
        let error = Error::not_found(format!("{profile}: no such profile")).hint(format!(
            "write [profile.{profile}] into the configuration first, or say --no-check"
        ));
        return Err(context.config().near_profile(error, profile));
    }
    let opened = context.open_cluster(cluster);
    let store = opened.map_err(|error| match error.kind() {
        ErrorKind::NotFound => error.hint(format!(
            "make a store there with `store init {}`, or write the name down all the same with --no-check",
            names::quoted(&cluster.url)
        )),
        _ => error,
    })?;
    Ok(store.format().id)
}

impl fmt::Display for Added<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(out, "{} is store {} at {}", self.name, id.short(), self.url),
            None => write!(out, "{} is {}, not looked at", self.name, self.url),
        }
    }
}
