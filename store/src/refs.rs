//! Refs and their versions, as the state has them.

use crate::error::{Error, Result};
use crate::format::{RefName, State, Version};

impl State {
    /// A version of a ref and its number; the newest, when none is named.
    ///
    /// # Errors
    /// Not found, saying what there is instead.
    pub fn version(&self, name: &RefName, number: Option<u64>) -> Result<(u64, &Version)> {
        let versions = self
            .refs
            .get(name)
            .map(|known| &known.versions)
            .filter(|versions| !versions.is_empty())
            .ok_or_else(|| {
                Error::not_found(format!("{name}: no such ref")).hint(format!(
                    "see what there is with `store ls {}`",
                    name.namespace()
                ))
            })?;
        let found = match number {
            None => versions.last_key_value(),
            Some(number) => versions.get_key_value(&number),
        };
        found
            .map(|(number, version)| (*number, version))
            .ok_or_else(|| {
                Error::not_found(format!(
                    "{name}@{}: no such version",
                    number.unwrap_or_default()
                ))
                .hint(format!("see which there are with `store history {name}`"))
            })
    }
}
