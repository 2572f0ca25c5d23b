//! A missing store: if a store was at this place before, no new one is created there.

use std::path::Path;

use store::{Error, ErrorKind, Result, Store};

use super::Context;
use crate::config;
use crate::config::clusters;
use crate::host::stores;
use crate::ui::names::quoted;

/// Ends the message of an error about a missing store, in the engine and in this command.
const NO_STORE: &str = ": there is no store";
/// Ends the message of an error about a store that this host knows.
const AWAY: &str = " was there and is missing now";

/// The error that there is no store at `url`, for a place that never had one as far as this host remembers.
pub(super) fn no_store(url: &str, embedded: bool) -> Error {
    let error = Error::not_found(format!("{url}{NO_STORE}"));
    if embedded {
        return error.hint(
            "`store init` or the first `store put` makes it; another one is named with --store or $STORE_URL",
        );
    }
    error.hint(format!("make one there with `store init {}`", quoted(url)))
}

impl Context {
    /// Remembers the place of an opened store. If the store is missing, the error tells what this host remembers of it.
    pub(super) fn found(&self, url: &str, opened: Result<Store>) -> Result<Store> {
        match opened {
            Ok(store) => {
                if let Some(place) = kept(url) {
                    place.remember(&store);
                }
                Ok(store)
            }
            Err(error) => Err(self.missing(url, error)),
        }
    }

    /// The error of opening the store at `url`. If the store is missing, adds what this host remembers of it.
    pub(super) fn missing(&self, url: &str, error: Error) -> Error {
        let is_missing =
            error.kind() == ErrorKind::NotFound && error.to_string().ends_with(NO_STORE);
        match is_missing.then(|| self.away(url)).flatten() {
            Some(away) => away,
            None => error,
        }
    }

    /// Whether the selected store may be back later: this host knows it, and it is missing or does not answer.
    pub(crate) fn may_be_back(&self, error: &Error) -> bool {
        let is_away = match error.kind() {
            ErrorKind::Unavailable => true,
            ErrorKind::NotFound => error.to_string().ends_with(AWAY),
            _ => false,
        };
        is_away && self.known_id().is_some()
    }

    fn away(&self, url: &str) -> Option<Error> {
        let shown = clusters::masked(url);
        if let Some(id) = kept(url).and_then(|place| place.known()) {
            let error = Error::not_found(format!("{shown}: the store {id}{AWAY}"));
            return Some(
                error
                    .hint("restore it, or mount its file system; or name another one with --store"),
            );
        }
        let mut clusters = self.config.cluster.values();
        let is_configured =
            self.config.store.as_deref() == Some(url) || clusters.any(|cluster| cluster.url == url);
        is_configured.then(|| {
            Error::not_found(format!("{shown}{NO_STORE}")).hint(format!(
                "the configuration names it: if it was made before, restore it or mount its file system; if not, make it with `store init {}`",
                quoted(&shown)
            ))
        })
    }
}

/// What this host remembers of the store at `url`.
pub(super) fn kept(url: &str) -> Option<stores::StorePlace> {
    let absolute = match !url.contains("://") {
        true => std::path::absolute(url).ok(),
        false => None,
    };
    let absolute = absolute.as_deref().and_then(Path::to_str);
    stores::StorePlace::of(config::cache_dir(), absolute.unwrap_or(url))
}
