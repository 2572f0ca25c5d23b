//! Changes the configuration file for a verb. Comments, order and other settings stay as people wrote them.

use std::path::{Path, PathBuf};

use store::{Error, Result};
use toml_edit::{DocumentMut, Item, Table, TableLike, value};

use crate::config::clusters::{Cluster, Label};
use crate::config::{self, Config};
use crate::host::files::{self, Use};

/// Writes a cluster into the configuration and returns the path of the file.
pub(crate) fn add_cluster(name: &Label, cluster: &Cluster, force: bool) -> Result<PathBuf> {
    edit(|document| {
        let clusters = document.entry("cluster").or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        });
        let clusters = table(clusters, "cluster")?;
        if clusters.contains_key(name.as_str()) && !force {
            return Err(
                Error::conflict(format!("{name}: this cluster already exists"))
                    .hint("replace it with --force, or choose another name"),
            );
        }
        let found = clusters.entry(name.as_str());
        let written = table(found.or_insert(Item::Table(Table::new())), name.as_str())?;
        written.insert("url", value(&cluster.url));
        match &cluster.profile {
            Some(profile) => written.insert("profile", value(profile)),
            None => written.remove("profile"),
        };
        Ok(())
    })
}

/// Removes a cluster from the configuration and returns the path of the file.
pub(crate) fn remove_cluster(name: &Label) -> Result<PathBuf> {
    edit(|document| {
        let clusters = document
            .get_mut("cluster")
            .and_then(Item::as_table_like_mut);
        match clusters.and_then(|clusters| clusters.remove(name.as_str())) {
            Some(_) => Ok(()),
            None => Err(Config::load()?.no_cluster(name.as_str())),
        }
    })
}

fn edit(change: impl FnOnce(&mut DocumentMut) -> Result<()>) -> Result<PathBuf> {
    let path = config::config_file().ok_or_else(|| {
        Error::not_found("there is no home directory to keep a configuration in")
            .hint("set HOME or XDG_CONFIG_HOME")
    })?;
    let _locked = files::lock_beside(&path)?;
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|source| files::unread("read the configuration", &path, source))?,
    };
    let text = edited(&path, &text, change)?;
    files::replace(&path, text.as_bytes(), Use::Settings)?;
    Ok(path)
}

/// Applies `change` to the text. The result is a valid configuration.
fn edited(
    path: &Path,
    text: &str,
    change: impl FnOnce(&mut DocumentMut) -> Result<()>,
) -> Result<String> {
    // This parser has the better error messages, so it runs first.
    Config::parse(path, text)?;
    // The parser's message may quote the line, and the line may hold a credential.
    let mut document: DocumentMut = text.parse().map_err(|_| {
        Error::invalid(format!(
            "configuration {}: it cannot be edited",
            path.display()
        ))
    })?;
    change(&mut document)?;
    let text = document.to_string();
    Config::parse(path, &text)?;
    Ok(text)
}

fn table<'d>(item: &'d mut Item, name: &str) -> Result<&'d mut dyn TableLike> {
    item.as_table_like_mut()
        .ok_or_else(|| Error::invalid(format!("configuration: `{name}` is not a table")))
}
