//! The values of `--keep`, and why trees of links do not support them.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use store::Keep;

/// Parses a value of `--keep`.
pub(super) fn parser() -> impl TypedValueParser<Value = Keep> {
    let named = Keep::ALL.map(|keep| PossibleValue::new(keep.as_str()));
    PossibleValuesParser::new(named)
        .try_map(|name| name.parse::<Keep>().map_err(|error| error.to_string()))
}

/// Refuses all values.
pub(super) fn of_links(_what: &str) -> Result<Keep, String> {
    Err(
        "a tree of hard links shares its files with other trees, and a file has one mode, one owner and one set of attributes: \
         use `store get --keep`"
            .to_owned(),
    )
}
