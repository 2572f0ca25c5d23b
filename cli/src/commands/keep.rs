//! What `--keep` takes, and why trees of links take none of it.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use store::Keep;

/// Parses one of those that are kept.
pub(super) fn parser() -> impl TypedValueParser<Value = Keep> {
    let named = Keep::ALL.map(|keep| PossibleValue::new(keep.as_str()));
    PossibleValuesParser::new(named)
        .try_map(|name| name.parse::<Keep>().map_err(|error| error.to_string()))
}

/// Refuses all of them.
pub(super) fn of_links(_what: &str) -> Result<Keep, String> {
    Err(
        "a tree of hard links shares its files with other trees, and a file has one mode, one owner and one set of attributes: \
         use `store get --keep`"
            .to_owned(),
    )
}
